"""Every golden vector that the shared folder holds, found by its file, in all readings; copies kept here run in other tests.

A new file of the same kind needs no edit: a folder given as FLEXMATCH_SHARED may hold others than these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shared import SHARED
from vectors import arrays, replay, traces

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila_models import flexasr, hlscnn, vta

READINGS = ("oracle", "arrays", "native")
FOLDER = SHARED / "golden" if SHARED else None
Arrays = Mapping[str, np.ndarray]
build_flexasr, build_vta = cache(flexasr.build), cache(vta.build)


def found(*patterns: str) -> list[str]:
    """Return the files by their path in the folder."""
    return sorted(str(p.relative_to(FOLDER)) for pattern in patterns for p in FOLDER.glob(pattern)) if FOLDER else []


def read(shared: Path, name: str) -> tuple[dict[str, Any], Arrays]:
    """Return the record and the arrays of a vector; one of them may not exist."""
    path = shared / "golden" / name
    record, data = path.with_suffix(".json"), path.with_suffix(".npz")
    return json.loads(record.read_text()) if record.exists() else {}, dict(np.load(data)) if data.exists() else {}


def is_kept(accelerator: str, name: str, record: dict[str, Any], keys: tuple[str, ...], file: str = "", data: Arrays | None = None) -> bool:
    """Tell whether a copy of this vector runs in another test."""
    kept = traces(accelerator).get(Path(name).stem)
    if kept is None or any(kept.get(k) != record.get(k) for k in keys):
        return False
    copies = arrays(accelerator, file) if file else {}
    return all(np.array_equal(copies.get(f"{Path(name).stem}.{k}", x), x) for k, x in (data or {}).items())


@pytest.mark.shared
@pytest.mark.parametrize("name", found("flexasr/*/*.json"))
def test_flexasr_trace(name: str, shared_dir: Path) -> None:
    trace, _ = read(shared_dir, name)
    if not is_kept("flexasr", name, trace, ("commands", "reads_hw")):
        for reading in READINGS:
            assert replay(Simulator(build_flexasr(), reading=reading), trace["commands"]) == trace["reads_hw"], reading


def hlscnn_model(record: dict[str, Any]) -> Ila:
    """Return the design of a trace: by its name, or the default with the trace's number formats."""
    formats = {k: record[k] for k in ("weight_bits", "act_int_bits", "psum_int_bits")}
    design = record["design"]
    return hlscnn.build(revision=design) if design in hlscnn.REVISIONS else hlscnn.build(**formats)


@pytest.mark.shared
@pytest.mark.parametrize("name", found("hlscnn/*.json"))
def test_hlscnn_trace(name: str, shared_dir: Path) -> None:
    record, data = read(shared_dir, name)
    want = data["spad1_after"]
    if is_kept("hlscnn", name, record, ("trace", "design"), "results.npz", data):
        return
    model = hlscnn_model(record)
    for reading in READINGS:
        sim = Simulator(model, reading=reading)
        for mode, address, word, virtual in record["trace"]:
            if mode == "R":
                sim.read(int(address, 16), virtual=virtual)
            else:
                sim.write(int(address, 16), int(word, 16), virtual=virtual)
        after = sim.state("spad1").view("<i2").reshape(-1, 8)
        assert np.array_equal(after[: len(want)], want), reading
        assert not after[len(want) :].any(), reading


@pytest.mark.shared
@pytest.mark.parametrize("name", found("hlscnn/recorded/*.npz"))
def test_hlscnn_recorded(name: str, shared_dir: Path) -> None:
    """A run of the real SystemC design."""
    _, run = read(shared_dir, name)
    model = hlscnn.build(revision="orig")
    for reading in READINGS:
        sim = Simulator(model, reading=reading)
        for address, is_write, lanes in zip(run["addr"].tolist(), run["is_write"], run["data_le_bytes"], strict=True):
            assert is_write
            sim.write(address, int.from_bytes(lanes.tobytes(), "little"))
        first = int(run["result_addr"][0]) & ~15
        vectors = (sim.read(a).to_bytes(16, "little") for a in range(first, int(run["result_addr"][-1]) + 2, 16))
        words = np.frombuffer(b"".join(vectors), "<u2")
        assert np.array_equal(words[(run["result_addr"] - first) // 2], run["result_u16"]), reading


def words(record: dict[str, Any]) -> list[int]:
    return [int(w, 16) for w in record["instructions_hex"]]


@pytest.mark.shared
@pytest.mark.parametrize("name", [n for n in found("vta/*.json") if not Path(n).name.startswith("ila_")])
def test_vta_program(name: str, shared_dir: Path) -> None:
    """On the image of the functional simulator, and on that of the HLS design."""
    record, data = read(shared_dir, name)
    images = {k: data[k] for k in data if k.startswith("dram")}
    if is_kept("vta", name, record, ("instructions_hex", "phys_base"), "images.npz", images):
        return
    for behaviour, want in (("fsim", data["dram_after"]), ("hls", data.get("dram_after_hls", data["dram_after"]))):
        for reading in READINGS:
            image = bytearray(data["dram_before"].tobytes())
            build_vta(behaviour=behaviour).simulator(dram=image, base=record["phys_base"], reading=reading).run(words(record))
            assert np.array_equal(np.frombuffer(image, np.uint8), want), (behaviour, reading)


@pytest.mark.shared
@pytest.mark.parametrize("name", found("vta/recorded/*.json", "vta/ila_*.json"))
def test_vta_program_on_virtual_drams(name: str, shared_dir: Path) -> None:
    """Recorded from Vivado HLS in the old encoding; or run on the published ILA, whose encoding has three bits of alu_opcode."""
    record, data = read(shared_dir, name)
    is_recorded = "expected_out" in data
    drams = {k.removeprefix("dram_"): x for k, x in data.items() if k.removeprefix("dram_") in ("inp", "wgt", "bias", "uop")}
    want = data["expected_out"] if is_recorded else data["out"]
    for behaviour in ("fsim", "hls", "ila") if is_recorded else ("fsim", "ila"):
        model = build_vta(encoding="old" if is_recorded else "ila3", behaviour=behaviour)
        for reading in READINGS:
            out = np.zeros_like(want)
            is_strict = behaviour == "hls"  # tokens of recorded programs are complete
            model.simulator(drams={**drams, "out": out}, reading=reading, strict=is_strict).run(words(record))
            assert np.array_equal(out, want), (behaviour, reading)
