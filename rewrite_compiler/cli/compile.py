"""flexmatch compile: a model to a plan, its JSON and its ONNX."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AnswerNo
from .common import accelerators, compile_options, document_bytes, emit_json, parser, say, steering, write_whole

if TYPE_CHECKING:
    from ..compile import Plan


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("compile", "Find every offload of a model and write the plan.")
    made.add_argument("model", type=Path, metavar="MODEL.onnx")
    steering(made)
    made.add_argument("--calibrate", type=Path, metavar="FILE", help="samples that fix the number formats of activations")
    made.add_argument("-o", "--output", type=Path, metavar="STEM", help="write STEM.json and STEM.onnx (default: MODEL.TARGETS here)")
    made.add_argument("--require-offload", type=int, default=0, metavar="N", help="fail unless at least N offloads are found")
    given = made.parse_args(arguments)
    plan = compiled(given)
    stem = given.output or Path(f"{given.model.stem}.{'-'.join(t.name for t in plan.targets)}")
    document, written = write_plan(plan, stem, given)
    from ..report.terminal import plan_lines

    say(given, plan_lines(document, written, f"flexmatch cosim {stem}.json --data FILE" if plan.offloads else ""))
    if len(plan.offloads) < given.require_offload:
        raise AnswerNo("F213", f"Offloads must be at least {given.require_offload}, not {len(plan.offloads)}", place=str(given.model))
    return 0


def compiled(given: argparse.Namespace) -> Plan:
    """Return the plan that the arguments describe, calibrated when they say with what."""
    from ..compile import compile_model

    plan = compile_model(given.model, accelerators(given), compile_options(given))
    return plan if given.calibrate is None else calibrate_from(plan, given.calibrate)


def calibrate_from(plan: Plan, path: Path) -> Plan:
    """Return the plan calibrated on a data file."""
    from ..compile import calibrated
    from ..cosim.cosimulate import dataset_for

    data = dataset_for(plan, path)
    return calibrated(plan, data.inputs, path.name, data.sha256)


def write_plan(plan: Plan, stem: Path, given: argparse.Namespace) -> tuple[Mapping[str, Any], list[str]]:
    """Check the plan against its model, write both files whole, and return the document and their names."""
    from ..compile import plan_files
    from ..compile.verify import check_plan

    started = time.perf_counter()
    path = os.path.relpath(plan.model["path"], stem.parent)
    plan = replace(plan, model={**plan.model, "path": path})
    files = plan_files(plan)
    checked = check_plan(plan, files.onnx, given.model)
    files.document["run"].update({"check": vars(checked), "check_seconds": round(time.perf_counter() - started, 3)})
    names = [Path(f"{stem}.onnx"), Path(f"{stem}.json")]
    write_whole(names[0], files.onnx)
    write_whole(names[1], document_bytes(files.document))
    emit_json(files.document, given.json)
    return files.document, [str(n) for n in names]
