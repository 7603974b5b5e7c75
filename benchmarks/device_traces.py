"""Does the C model of each accelerator replay every golden and every recorded trace, bit for bit?"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np
from record import ROOT, Row, finish, options

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "emit")]

from board import Board, compiled, flexasr_differs, hlscnn_differs, vta_differs  # noqa: E402
from vectors import arrays, traces  # noqa: E402

from rewrite_compiler.emit.c.device_model import device_files  # noqa: E402
from rewrite_compiler.ila import ila  # noqa: E402


def replays(folder: Path) -> dict[str, Callable[[str], str]]:
    """Return for each accelerator the function that replays one of its traces and tells what differs."""

    @cache
    def library(name: str, **parameters: str) -> Path:
        return compiled(device_files(ila(name, **parameters)), folder / "_".join([name, *parameters.values()]), "-O1")

    def board(name: str, **parameters: str) -> Board:
        return Board(library(name, **parameters), name)

    flexasr, hlscnn, vta = (traces(name) for name in ("flexasr", "hlscnn", "vta"))
    words, images = arrays("hlscnn", "results.npz"), arrays("vta", "images.npz")
    return {
        "flexasr": lambda n: flexasr_differs(board("flexasr"), flexasr[n]),
        "hlscnn": lambda n: hlscnn_differs(board("hlscnn", revision=hlscnn[n]["design"]), hlscnn[n], words[f"{n}.spad1_after"]),
        "vta": lambda n: vta_differs(board("vta"), vta[n], images[f"{n}.dram_before"], images[f"{n}.dram_after"]),
    }


def recorded(folder: Path) -> dict[str, dict[str, Callable[[], str]]]:
    """Return for each accelerator the published traces outside of the project, and what replays each: nothing, or what differs."""
    golden = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "golden"

    @cache
    def board(name: str, **parameters: str) -> Board:
        library = compiled(device_files(ila(name, **parameters)), folder / "_".join(["recorded", name, *parameters.values()]), "-O1")
        return Board(library, name)

    def flexasr(path: Path) -> str:
        board("flexasr").reset()
        return flexasr_differs(board("flexasr"), json.loads(path.read_text()))

    def hardware(path: Path) -> str:
        with np.load(path) as data:
            run = {k: data[k] for k in data.files}
        device = board("hlscnn", revision="orig")
        for address, lanes in zip(run["addr"].tolist(), run["data_le_bytes"], strict=True):
            device.write(address, int.from_bytes(lanes.tobytes(), "little"))
        first, last = (int(run["result_addr"][n]) for n in (0, -1))
        read = b"".join(device.read(a).to_bytes(16, "little") for a in range(first & ~15, last + 2, 16))
        words = np.frombuffer(read, "<u2")[(run["result_addr"] - (first & ~15)) // 2]
        return "" if np.array_equal(words, run["result_u16"]) else f"{int((words != run['result_u16']).sum())} words differ"

    def vta(path: Path, encoding: str, names: Mapping[str, str], result: str) -> str:
        with np.load(path.with_suffix(".npz")) as data:
            memories = {name: np.ascontiguousarray(data[key]) for name, key in names.items()}
            expected = data[result]
        memories["out"] = np.zeros_like(expected)
        device = board("vta", encoding=encoding)
        device.reset()
        for name, words in memories.items():
            device.attach(f"dram_{name}", words)
        for word in json.loads(path.read_text())["instructions_hex"]:
            if device.instruction(int(word, 16)) != 0:
                return device.message
        if encoding == "old" and device.wait() != 0:  # the others do not end in an interrupt
            return device.message
        return "" if np.array_equal(memories["out"], expected) else f"{int((memories['out'] != expected).sum())} values differ"

    old = {name: f"dram_{name}" for name in ("inp", "wgt", "bias", "uop")}
    return {
        "flexasr recorded": {p.stem: partial(flexasr, p) for p in sorted((golden / "flexasr" / "recorded").glob("*.json"))},
        "hlscnn recorded": {p.stem: partial(hardware, p) for p in sorted((golden / "hlscnn" / "recorded").glob("*.npz"))},
        "vta recorded": {
            **{p.stem: partial(vta, p, "old", old, "expected_out") for p in sorted((golden / "vta" / "recorded").glob("*.json"))},
            **{p.stem: partial(vta, p, "ila3", {n: n for n in ("inp", "wgt", "uop")}, "out")
               for p in sorted((golden / "vta").glob("ila_*.json"))},
        },
    }  # fmt: skip


def told(name: str, traces: int, wrong: Mapping[str, str]) -> Row:
    """Print and return what became of the traces of an accelerator."""
    print(f"{name:18}{traces:>4} traces  {len(wrong)} differ", *(f"\n  {n}: {why}" for n, why in wrong.items()), flush=True)
    return {"name": name, "traces": traces, "different": len(wrong)}


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=1).parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, replay in replays(Path(folder)).items():
            images = arrays("vta", "images.npz") if name == "vta" else None
            chosen = [n for n in traces(name) if images is None or f"{n}.dram_before" in images]
            wrong = {n: why for n in chosen if (why := replay(n))}
            rows.append(told(name, len(chosen), wrong))
        for name, runs in recorded(Path(folder)).items():
            rows.append(told(name, len(runs), {n: why for n, run in runs.items() if (why := run())}))
    finish("device_traces", rows, args.json)


if __name__ == "__main__":
    main()
