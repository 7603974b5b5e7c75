"""flexmatch demo: compile and co-simulate a shipped application, or compile an architecture, and say what came out."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import page_file, write_atomically
from ..options import accelerators, add_page_option, emit_json, parse_arguments, parser
from ..output import print_lines
from .cosim import add_simulation_options, progress, settings, write_page

if TYPE_CHECKING:
    from ...apps import App
    from ...apps.gallery import Architecture
    from ...compile import Plan

SCHEMA = "flexmatch.demo/1"
UNTRAINED = "note      the weights are drawn: no accuracy to compare, nothing is co-simulated"


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch demo` and return its exit code."""
    verb_parser = parser("demo", "Compile and co-simulate a shipped application, or compile an architecture of the gallery.")
    verb_parser.add_argument(
        "app", nargs="?", default="digits_cnn", metavar="APP", help="an application of `flexmatch list` (default digits_cnn)"
    )
    verb_parser.add_argument("--accel", action="append", default=[], metavar="NAME", help="accelerator (default flexasr)")
    verb_parser.add_output("-o", "--output", type=Path, metavar="FILE", help="write the model there too")
    add_simulation_options(verb_parser)
    add_page_option(verb_parser)
    args = parse_arguments(verb_parser, arguments)
    from ...apps import App, find_application

    app = find_application(args.app)
    return _application(app, args) if isinstance(app, App) else _architecture(app, args)


def _application(app: App, args: argparse.Namespace) -> int:
    """Compile a model and co-simulate it on its data."""
    from ...cosim import cosimulate
    from ...report.terminal import cosim_lines

    page = _page(app, args)
    if args.output:
        write_atomically({args.output: app.model.read_bytes()})
    plan, document = _compiled(app, app.model, args)
    report = cosimulate(
        plan, app.data, calibrate=app.calibration, settings=settings(args), metric=args.metric or app.metric, progress=progress(args)
    )
    emit_json({"schema": SCHEMA, "plan": document, "cosim": report.document}, args.json)
    write_page(page, report)
    print_lines(args, ["", *cosim_lines(report.document), *_closing(page)])
    return 0


def _page(app: App, args: argparse.Namespace) -> str | None:
    """Return where the report goes: where it is asked for, or beside what is shown, in a folder that can be written to."""
    if args.html or args.quiet or args.json == "-":
        return None if args.html is None else str(args.html)
    return f"{app.name}.html" if os.access(".", os.W_OK) else None


def _closing(page: str | None) -> list[str]:
    """Say where the report is, and what to do next."""
    report = [] if page is None else [f"wrote      {page}: the graph, why each node went where it did, errors and formats"]
    return [*report, "next       your own model: flexmatch MODEL.onnx --accel NAME, then cosim with --data FILE"]


def _architecture(app: Architecture, args: argparse.Namespace) -> int:
    """Build a model and compile it."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / f"{app.name}.onnx"
        model.write_bytes(app.build().SerializeToString())
        plan, document = _compiled(app, model, args)
        if args.html:
            from ...report.page.html import report_page

            write_atomically(page_file(args.html, report_page(plan, None, document)))
        if args.output:
            write_atomically({args.output: model.read_bytes()})
    emit_json({"schema": SCHEMA, "plan": document, "cosim": None}, args.json)
    print_lines(args, [UNTRAINED, *(f"wrote     {name}" for name in (args.output, args.html) if name)])
    return 0


def _compiled(app: App | Architecture, model: Path, args: argparse.Namespace) -> tuple[Plan, dict[str, Any]]:
    """Compile, check and show a model; return the plan and its document."""
    from ...compile import compile_model, plan_files
    from ...compile.verify import check_plan
    from ...report.terminal import plan_lines

    plan = compile_model(model, accelerators(args) or ["flexasr"])
    plan = replace(plan, model={**plan.model, "path": str(args.output or model.name)})  # no temporary or installed folder
    files = plan_files(plan)
    check_plan(plan, files.onnx, model)
    print_lines(args, [f"{app.name}: {app.about}", *plan_lines(files.document, verbose=args.verbose)])
    return plan, files.document
