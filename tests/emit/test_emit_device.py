"""The C model of an accelerator does what its designs did: golden traces, and random commands of the tutorial's toy.

`benchmarks/device_traces.py` replays every golden trace; here are some of each accelerator.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from board import Board, compiled, flexasr_differs, hlscnn_differs, needs_gcc, toy_text, vta_differs
from command import flexmatch, refused
from vectors import arrays, traces

from rewrite_compiler.emit.c.device_model import device_files
from rewrite_compiler.errors import InputError
from rewrite_compiler.ila import Ila, assemble, ila, mmio
from rewrite_compiler.lang import assign, select
from rewrite_compiler.target import load_target

pytestmark = needs_gcc
FLEXASR, HLSCNN, VTA = traces("flexasr"), traces("hlscnn"), traces("vta")
WORDS, IMAGES = arrays("hlscnn", "results.npz"), arrays("vta", "images.npz")
DESIGNS = sorted({t["design"] for t in HLSCNN.values()})
ON_IMAGE = sorted(n for n in VTA if f"{n}.dram_before" in IMAGES)


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """Devices by model, each compiled once."""

    @cache
    def build(name: str, level: str = "-O1", **parameters: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        return compiled(device_files(ila(name, **parameters)), folder, level)

    return lambda name, *level, **parameters: Board(build(name, *level, **parameters), name)


@pytest.mark.parametrize("name", sorted(FLEXASR)[::8])
def test_flexasr_trace(name: str, boards) -> None:  # type: ignore[no-untyped-def]
    assert flexasr_differs(boards("flexasr", "-O0"), FLEXASR[name]) == ""


@pytest.mark.parametrize("name", sorted(HLSCNN)[::11])
def test_hlscnn_trace(name: str, boards) -> None:  # type: ignore[no-untyped-def]
    """All of SPAD1 that the design wrote."""
    trace = HLSCNN[name]
    assert hlscnn_differs(boards("hlscnn", revision=trace["design"]), trace, WORDS[f"{name}.spad1_after"]) == ""


@pytest.mark.parametrize("name", ON_IMAGE[::3])
def test_vta_program(name: str, boards) -> None:  # type: ignore[no-untyped-def]
    assert vta_differs(boards("vta"), VTA[name], IMAGES[f"{name}.dram_before"], IMAGES[f"{name}.dram_after"]) == ""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ila, Path]:
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.py").write_text(toy_text(), "utf-8")
    m = load_target(str(folder / "toy.py")).ila()
    return m, compiled(device_files(m), folder / "c", "-O2")


def test_the_toy_is_every_reading(toy: tuple[Ila, Path]) -> None:
    """Random and extreme commands, ties and saturation among them, on C, machine code, numpy and the oracle."""
    m, library = toy
    draw = random.Random(11)
    board = Board(library, "toy")
    sims = [m.simulator(reading=r) for r in ("oracle", "native", "arrays")]
    extremes = (0, 1, 127, 128, 255)
    for n in range(600):
        i = draw.choice([m.instructions[x] for x in ("config", "store_x", "store_w", "dot", "load_y")])
        given = {name: draw.choice((o.leaf.interval[0] or 0, o.leaf.interval[1] or 0, draw.randint(0, o.leaf.interval[1] or 0)))
                 for name, o in i.operands.items() if not o.leaf.shape}  # fmt: skip
        if "vector" in i.operands:
            word = [draw.choice(extremes) if n % 2 else draw.randrange(256) for _ in range(8)]
            given["vector"] = int.from_bytes(bytes(word), "little")
        command = assemble(i, **given)
        if command["rd"]:
            assert [s.command(command) for s in sims] == [board.read(command["addr"])] * 3
        else:
            board.write(command["addr"], command.get("data", 0))
            for s in sims:
                s.command(command)
    assert all(board.read(0x4000 + 8 * n) == sims[0].read(0x4000 + 8 * n) for n in range(64))


def test_a_command_that_nothing_decodes_has_no_effect_and_is_said(toy: tuple[Ila, Path]) -> None:
    board = Board(toy[1], "toy")
    assert board.write(0x20, 1) == -10
    assert board.message == "no instruction decodes the command"
    assert board.write(1 << 32, 1) == -10
    assert board.wait() == -12
    assert board.message == "the device has no interrupt"
    assert board.write(0x0, 1) == 0
    assert board.message == "done"


def test_a_device_that_waits_says_for_what(boards) -> None:  # type: ignore[no-untyped-def]
    board = boards("flexasr", "-O0")
    assert board.wait() == -11
    assert board.message == "no interrupt can come: Control is not configured valid (config_gb_control is_valid)"


def test_a_diagnostic_gives_its_values(boards) -> None:  # type: ignore[no-untyped-def]
    """A load from outside of the attached image is refused as the simulator refuses it."""
    board = boards("vta")
    board.attach("dram", np.zeros(64, np.uint8), 0)
    load = assemble(ila("vta").instructions["load_uop"], dram_base=100, y_size=1, x_size=2)["data"]
    assert board.instruction(load) > 0
    assert board.message.endswith("the DRAM bytes 400..407; the image holds 0..63")


def test_an_instruction_without_a_c_form_is_named() -> None:
    m = Ila("wide")
    bus = mmio(m)
    m.memory("a", (2,), 62, signed=True)
    m.memory("b", (), 8)
    m.instruction("run", bus.write(0x10))(lambda: assign(m.s.b, select(m.s.a[0] * m.s.a[1] > 1 << 100, 7, 3)))
    with pytest.raises(InputError) as caught:
        device_files(m)
    problem = caught.value.problem
    assert (problem.code, problem.place.rpartition(":")[0]) == ("F161", __file__)
    assert problem.sentence.startswith("run of wide has no C form: const takes values in ")
    assert problem.sentence.endswith(", more than a word of 64 bits holds")


def test_the_command_writes_source_and_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text(toy_text(), "utf-8")
    answer = flexmatch("emit", "device", "./toy.py")
    assert (answer.code, answer.err) == (0, "")
    assert set(answer.new) >= {"toy_device.c", "toy_device.h"}
    refused(
        flexmatch("emit", "device", "./toy.py", "-o", "none"),
        2,
        "error[F100]: none/toy_device.h cannot be written: there is no folder none\n  help: mkdir -p none makes it",
    )
