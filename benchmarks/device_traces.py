"""Does the C model of each accelerator replay every golden trace in the project, bit for bit?"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from record import ROOT, Row, finish, options

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "emit")]

from board import Board, compiled, flexasr_differs, hlscnn_differs, vta_differs  # noqa: E402
from vectors import arrays, traces  # noqa: E402

from rewrite_compiler.emit.device import device_files  # noqa: E402
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


def main() -> None:
    """Run the command line."""
    given = options(__doc__ or "", runs=1).parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, replay in replays(Path(folder)).items():
            images = arrays("vta", "images.npz") if name == "vta" else None
            chosen = [n for n in traces(name) if images is None or f"{n}.dram_before" in images]
            wrong = {n: why for n in chosen if (why := replay(n))}
            rows.append({"name": name, "traces": len(chosen), "different": len(wrong)})
            print(f"{name:10}{len(chosen):>4} traces  {len(wrong)} differ", *(f"\n  {n}: {why}" for n, why in wrong.items()))
    finish("device_traces", rows, given.json)


if __name__ == "__main__":
    main()
