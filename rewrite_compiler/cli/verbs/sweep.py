"""flexmatch sweep: the accuracy of an application over parameters of its accelerators and calibration methods."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import write_atomically
from ..options import accelerators, add_steering_options, compile_options, emit_json, parse_arguments, parser
from ..output import is_live, print_lines
from .cosim import add_calibration_options, add_simulation_options, settings

FIGURES = ("difference", "95% interval", "calls")  # of a point, beside its metric


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch sweep` and return its exit code."""
    verb_parser = parser("sweep", "Co-simulate a model at every value of its accelerators' parameters.")
    verb_parser.add_model("model", metavar="MODEL.onnx")
    add_steering_options(verb_parser)
    verb_parser.add_data(metavar="FILE", help="samples, in any form that cosim takes")
    verb_parser.add_argument(
        "--over", action="append", default=[], metavar="NAME[=VALUE,…]",
        help="vary TARGET.PARAMETER, calibration-method, or accel (sets: A,B,A+B); repeat it (default: every parameter)",
    )  # fmt: skip
    add_calibration_options(verb_parser)
    add_simulation_options(verb_parser)
    verb_parser.add_output("--html", metavar="FILE", help="write a page with a drawing of all points and their intervals")
    args = parse_arguments(verb_parser, arguments)
    from ...compile import chosen_targets
    from ...study.designs.sweep import axes_of, sweep

    targets = chosen_targets(accelerators(args))
    axes = axes_of(args.over, targets)
    run_settings = replace(settings(args), calibration_method=args.calibration_method)
    calibrate = None if args.calibrate is None else Path(args.calibrate)
    document = sweep(
        Path(args.model), targets, Path(args.data), axes, calibrate=calibrate, options=compile_options(args), settings=run_settings,
        progress=_progress(args),
    )  # fmt: skip
    emit_json(document, args.json)
    if args.html is not None:
        from ...report.graphics.blocks import html_page
        from ...report.graphics.sweep import sweep_blocks

        page = html_page(Path(args.model).stem, sweep_blocks(document, *_table(document)))
        write_atomically({Path(args.html): page.encode()})
    print_lines(args, [*lines(document), *([f"wrote     {args.html}"] if args.html is not None else [])])
    return 0


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return a sweep as text: the host's value, and a table with a row for each point."""
    from ...report.tables import grid
    from ...report.terminal import count_text, number

    heads, rows = _table(document)
    host = f"host      {document['metric']} {number(document['reference']['value'])}  ({count_text(document['samples'], 'sample')})"
    return [host, *grid(heads, rows, heads[-len(FIGURES) - 1 :])]


def _table(document: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and rows of the table of points."""
    axes = [*document["points"][0]["at"]] if document["points"] else []
    return (*axes, document["metric"], *FIGURES), [_point(p) for p in document["points"]]


def _point(p: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one point as a row."""
    from ...report.figures import difference_text, interval_text, number

    calls = sum(n for counts in p["device_calls"].values() for n in counts.values())
    interval = "–" if p["interval"] is None else interval_text(p["interval"])
    difference = number(p["difference"]) if p["difference"] is None else difference_text(p["difference"], p["interval"])
    on_host = f", {len(p['out_of_range'])} out of range" if p["out_of_range"] else ""
    return (*map(str, p["at"].values()), number(p["value"]), difference, interval, f"{calls:,}{on_host}")


def _progress(args: Any) -> Callable[[int, int], None] | None:
    if not is_live(args):
        return None
    return lambda count, total: print(
        f"\r\x1b[Ksweep     {count}/{total}", end="" if count < total else "\r\x1b[K", file=sys.stderr, flush=True
    )
