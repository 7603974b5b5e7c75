"""flexmatch demo: compile and co-simulate a shipped application, and say what came out."""

from __future__ import annotations

from collections.abc import Sequence

from .common import accelerators, emit_json, options, parser
from .cosim import progress, settings, simulation_options
from .output import say


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("demo", "Compile and co-simulate a shipped application.")
    made.add_argument("app", nargs="?", default="digits_cnn", metavar="APP", help="an application of `flexmatch list` (default digits_cnn)")
    made.add_argument("--accel", action="append", default=[], metavar="NAME", help="accelerator (default flexasr)")
    simulation_options(made)
    given = options(made, arguments)
    from ..apps import named
    from ..compile import compile_model, plan_files
    from ..compile.verify import check_plan
    from ..cosim import cosimulate
    from ..report.terminal import cosim_lines, plan_lines

    app = named(given.app)
    plan = compile_model(app.model, accelerators(given) or ["flexasr"])
    files = plan_files(plan)
    check_plan(plan, files.onnx, app.model)
    say(given, [f"{app.name}: {app.about}", *plan_lines(files.document, verbose=given.verbose)])
    report = cosimulate(
        plan, app.data, calibrate=app.calibration, settings=settings(given), metric=given.metric or app.metric, progress=progress(given)
    )
    emit_json({"schema": "flexmatch.demo/1", "plan": files.document, "cosim": report.document}, given.json)
    say(given, ["", *cosim_lines(report.document)])
    return 0
