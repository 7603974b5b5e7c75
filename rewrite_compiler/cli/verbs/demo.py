"""flexmatch demo: compile and co-simulate a shipped application, or compile an architecture, and say what came out."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import check_outputs, page_file, write_whole
from ..options import accelerators, emit_json, options, page_option, parser
from ..output import say
from .cosim import progress, settings, simulation_options, write_page

if TYPE_CHECKING:
    from ...apps import App
    from ...apps.gallery import Architecture
    from ...compile import Plan

SCHEMA = "flexmatch.demo/1"
UNTRAINED = "note      the weights are drawn: no accuracy to compare, nothing is co-simulated"


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("demo", "Compile and co-simulate a shipped application, or compile an architecture of the gallery.")
    made.add_argument("app", nargs="?", default="digits_cnn", metavar="APP", help="an application of `flexmatch list` (default digits_cnn)")
    made.add_argument("--accel", action="append", default=[], metavar="NAME", help="accelerator (default flexasr)")
    made.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the model there too")
    simulation_options(made)
    page_option(made)
    given = options(made, arguments)
    from ...apps import App, named

    app = named(given.app)
    if given.output:
        check_outputs([given.output])
    return _application(app, given) if isinstance(app, App) else _architecture(app, given)


def _application(app: App, given: argparse.Namespace) -> int:
    """Compile a model and co-simulate it on its data."""
    from ...cosim import cosimulate
    from ...report.terminal import cosim_lines

    page = _page(app, given)
    if given.output:
        write_whole({given.output: app.model.read_bytes()})
    plan, document = _compiled(app, app.model, given)
    report = cosimulate(
        plan, app.data, calibrate=app.calibration, settings=settings(given), metric=given.metric or app.metric, progress=progress(given)
    )
    emit_json({"schema": SCHEMA, "plan": document, "cosim": report.document}, given.json)
    write_page(page, report)
    say(given, ["", *cosim_lines(report.document), *_closing(page)])
    return 0


def _page(app: App, given: argparse.Namespace) -> str | None:
    """Return where the report goes: where it is asked for, or beside what is shown, in a folder that can be written to."""
    if given.html or given.quiet or given.json == "-":
        return None if given.html is None else str(given.html)
    return f"{app.name}.html" if os.access(".", os.W_OK) else None


def _closing(page: str | None) -> list[str]:
    """Say where the report is, and what to do next."""
    report = [] if page is None else [f"wrote      {page}: the graph, why each node went where it did, errors and formats"]
    return [*report, "next       your own model: flexmatch MODEL.onnx --accel NAME, then cosim with --data FILE"]


def _architecture(app: Architecture, given: argparse.Namespace) -> int:
    """Build a model and compile it."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / f"{app.name}.onnx"
        model.write_bytes(app.build().SerializeToString())
        plan, document = _compiled(app, model, given)
        if given.html:
            from ...report.html import report_page

            write_whole(page_file(given.html, report_page(plan, None, document)))
        if given.output:
            write_whole({given.output: model.read_bytes()})
    emit_json({"schema": SCHEMA, "plan": document, "cosim": None}, given.json)
    say(given, [UNTRAINED, *(f"wrote     {name}" for name in (given.output, given.html) if name)])
    return 0


def _compiled(app: App | Architecture, model: Path, given: argparse.Namespace) -> tuple[Plan, dict[str, Any]]:
    """Compile, check and show a model; return the plan and its document."""
    from ...compile import compile_model, plan_files
    from ...compile.verify import check_plan
    from ...report.terminal import plan_lines

    plan = compile_model(model, accelerators(given) or ["flexasr"])
    plan = replace(plan, model={**plan.model, "path": str(given.output or model.name)})  # no temporary or installed folder
    files = plan_files(plan)
    check_plan(plan, files.onnx, model)
    say(given, [f"{app.name}: {app.about}", *plan_lines(files.document, verbose=given.verbose)])
    return plan, files.document
