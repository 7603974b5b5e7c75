"""flexmatch bench: seconds of the phases of a compilation and of the simulators."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import AnswerNo, InputError
from ...intake import MAX_DOCUMENT_BYTES, FileBound, MalformedText, parse_json, read_bytes
from ..options import accelerators, add_steering_options, compile_options, emit_json, parse_arguments, parser, whole_number
from ..output import is_live, print_lines
from .cosim import add_calibration_options, add_simulation_options, settings

RUNS, SLOWDOWN = 5, "1.5"


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch bench` and return its exit code.

    Raises:
        AnswerNo: a phase or simulator is slower than --max-slowdown allows (F217).
    """
    verb_parser = parser(
        "bench", "Time reading, saturation, extraction and planning of a model, and with data its simulators, several times."
    )
    verb_parser.add_model("model", metavar="MODEL.onnx")
    add_steering_options(verb_parser)
    verb_parser.add_argument("--runs", type=whole_number(1), default=RUNS, metavar="N", help=f"measure N times (default: {RUNS})")
    verb_parser.add_argument("--data", metavar="FILE", help="samples: time the simulators, too")
    add_calibration_options(verb_parser)
    add_simulation_options(verb_parser)
    verb_parser.add_argument("--against", metavar="FILE", help="compare with an earlier document of this verb")
    verb_parser.add_argument(
        "--max-slowdown",
        type=factor,
        default=factor(SLOWDOWN),
        metavar="X",
        help=f"answer no (exit 1) beyond X times it (default: {SLOWDOWN})",
    )
    args = parse_arguments(verb_parser, arguments)
    baseline = None if args.against is None else read_baseline(Path(args.against))
    from ...study.checks.bench import bench, slower_phases

    document = bench(
        args.model, accelerators(args), compile_options(args), runs=args.runs, data=args.data, calibrate=args.calibrate,
        settings=settings(args), progress=progress(args),
    )  # fmt: skip
    worse = [] if baseline is None else slower_phases(document, baseline, args.max_slowdown)
    emit_json(document, args.json)
    print_lines(args, lines(document, baseline, verbose=args.verbose))
    if worse:
        slowdowns = ", ".join(f"{row['name']} {row['factor']:g}" for row in worse)
        raise AnswerNo("F217", f"processor seconds may grow at most {args.max_slowdown:g} times, not: {slowdowns}", place=args.against)
    return 0


def factor(text: str) -> float:
    """Read a factor from 1 on, for an option.

    Raises:
        ArgumentTypeError: the text is no decimal number from 1 on.
    """
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text, re.ASCII) or float(text) < 1:
        raise argparse.ArgumentTypeError(f'must be a number from 1 on, not "{text}"')
    return float(text)


def read_baseline(path: Path) -> Mapping[str, Any]:
    """Return an earlier document of this verb.

    Raises:
        InputError: there is no such file (F101), or it is not a document of bench (F103).
    """
    try:
        document = parse_json(read_bytes(path, FileBound("a document", MAX_DOCUMENT_BYTES, "give what bench writes with --json")))
    except MalformedText:
        document = None
    if not _is_timed(document):
        raise InputError("F103", "the file must be a document of flexmatch bench, not something else", place=str(path))
    return dict(document)


def _is_timed(document: Any) -> bool:
    """Tell whether a document has what is compared."""
    run = document.get("run") if isinstance(document, dict) else None
    rows = [row for part in ("phases", "simulators") for row in run.get(part, [None])] if isinstance(run, dict) else [None]
    return isinstance(document, dict) and isinstance(document.get("model"), dict) and all(map(_is_row, rows))


def _is_row(row: Any) -> bool:
    seconds = row.get("cpu_seconds") if isinstance(row, dict) else None
    return isinstance(seconds, dict) and isinstance(row.get("name"), str) and isinstance(seconds.get("median"), int | float)


def progress(args: argparse.Namespace) -> Callable[[str, int], None]:
    """Return a callback that shows the phase and the number of the run on a live line."""

    def show(phase: str, n: int) -> None:
        if is_live(args):
            print(f"\r\x1b[K{phase} {n + 1}/{args.runs}\r", end="", file=sys.stderr, flush=True)

    return show


def lines(document: Mapping[str, Any], baseline: Mapping[str, Any] | None, *, verbose: bool = False) -> list[str]:
    """Return a document as text: medians with minima and maxima, beside an earlier document's medians if there is one."""
    from ...report.tables import grid
    from ...report.terminal import count_text
    from ...study.checks.bench import medians

    baseline_medians = {} if baseline is None else medians(baseline)
    names = ", ".join(t["name"] for t in document["targets"])
    output = [f"{Path(document['model']['path']).name} on {names}  {count_text(document['runs'], 'run')}, seconds of the processor"]
    heads = ("phase", "median", "least", "largest", "wall", *(("before", "times") if baseline_medians else ()))
    rows = [_row(row, baseline_medians) for row in document["run"]["phases"]]
    output += grid(heads, rows, heads[1:])
    if document["run"]["simulators"]:
        samples = document["run"]["simulators"][0]["samples"]
        output += ["", f"one sample, mean of {samples}, in milliseconds of the processor; beside it onnxruntime in float32"]
        rows = [(*_row(row, baseline_medians, 1000), *_host_cells(row)) for row in document["run"]["simulators"]]
        heads = ("simulator", *heads[1:], "host", "times host")
        output += grid(heads, rows, heads[1:])
    if verbose:
        heads = ("rule", "matches", "new e-nodes", "offloads", "milliseconds", "at")
        seconds = {r["name"]: r["seconds"]["median"] for r in document["run"]["rules"]}
        rules = sorted(document["rules"], key=lambda r: -seconds.get(r["rule"], 0))
        output += ["", *grid(heads, [_rule(r, seconds.get(r["rule"])) for r in rules], heads[1:5])]
    return output


def _rule(row: Mapping[str, Any], seconds: float | None) -> tuple[str, ...]:
    milliseconds = "–" if seconds is None else f"{1000 * seconds:.2f}"
    return row["rule"], *(f"{row[key]:,}" for key in ("matches", "new_nodes", "offloads")), milliseconds, row["at"]


def _row(row: Mapping[str, Any], baseline: Mapping[str, float], scale: int = 1) -> tuple[str, ...]:
    """Return the cells of a phase; beside an earlier document what it took then, and how many times that it takes now."""
    cpu, wall = row["cpu_seconds"], row["wall_seconds"]["median"]
    cells = [f"{scale * x:.3f}" for x in (cpu["median"], cpu["low"], cpu["high"], wall)]
    if not baseline:
        return row["name"], *cells
    baseline_seconds = baseline.get(row["name"])
    return (
        row["name"],
        *cells,
        *((f"{scale * baseline_seconds:.3f}", f"{cpu['median'] / baseline_seconds:.2f}") if baseline_seconds else ("–", "–")),
    )


def _host_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the host takes for the same samples, and how many times that the simulator takes."""
    host = (row["reference_cpu_seconds"] or {}).get("median")
    return (f"{1000 * host:.3f}", f"{row['cpu_seconds']['median'] / host:.2f}") if host else ("–", "–")
