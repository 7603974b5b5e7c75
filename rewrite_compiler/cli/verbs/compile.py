"""flexmatch compile: a model to a plan, its JSON and its ONNX."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AnswerNo, printable
from ..files import check_outputs, page_file, write_atomically
from ..options import (
    accelerators,
    add_page_option,
    add_steering_options,
    compile_options,
    json_files,
    parse_arguments,
    parser,
    python_files,
    whole_number,
)
from ..output import document_bytes, print_json, print_lines
from ..progress import phase
from .cosim import add_method_option

if TYPE_CHECKING:
    from ...compile import Plan
    from ...target import Target


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch compile` and return its exit code.

    Raises:
        AnswerNo: fewer offloads than --require-offload are found (F213).
    """
    verb_parser = parser("compile", "Find every offload of a model and write the plan.")
    verb_parser.add_model("model", metavar="MODEL.onnx")
    add_steering_options(verb_parser)
    verb_parser.add_argument("--calibrate", metavar="FILE", help="samples that fix the number formats of activations")
    add_method_option(verb_parser)
    verb_parser.add_output(
        "-o", "--output", is_file=False, metavar="STEM", help="write STEM.json and STEM.onnx (default: MODEL.TARGETS here)"
    )
    add_page_option(verb_parser)
    verb_parser.add_argument(
        "--alternatives",
        type=whole_number(0),
        default=0,
        metavar="K",
        help="write the K next cheapest plans that differ in one choice, too",
    )
    verb_parser.add_argument(
        "--require-offload", type=whole_number(0), default=0, metavar="N", help="fail unless at least N offloads are found"
    )
    args = parse_arguments(verb_parser, arguments)
    from ...compile import chosen_targets

    targets = chosen_targets(accelerators(args))
    stem = stem_of(args, targets)
    with phase(args, f"matching  {printable(Path(args.model).name)}") as show:
        plan = compiled_plan(args, targets, lambda name: show(f"judging   {name}, which has no certificate yet"))
    with phase(args, "checking  the plan against the model"):
        document, file_names = write_plan(plan, stem, args)
    if args.html is not None:
        from ...report.page.html import report_page

        write_atomically(page_file(args.html, report_page(plan, None, document)))
        file_names.append(args.html)
    from ...report.terminal import plan_lines

    files = "".join(f" --accel {shlex.quote(name)}" for name in accelerators(args) if name.partition(":")[0] in python_files(args))
    next_command = f"flexmatch cosim {stem}.json{files} --data FILE" if plan.offloads else ""
    print_lines(args, plan_lines(document, file_names, next_command, verbose=args.verbose))
    if args.alternatives:
        print_lines(args, _alternatives(args, targets, stem, document))
    if len(plan.offloads) < args.require_offload:
        raise AnswerNo("F213", f"Offloads must be at least {args.require_offload}, not {len(plan.offloads)}", place=args.model)
    return 0


def _alternatives(args: argparse.Namespace, targets: Sequence[Target], stem: Path, best: Mapping[str, Any]) -> list[str]:
    """Write the next cheapest plans beside the cheapest; return a line for each: its file, its option, what it costs more."""
    from ...compile.alternatives import alternatives

    quiet = argparse.Namespace(**{**vars(args), "json": None})
    cost = best["extraction"]["cost"]
    lines = []
    plan_options = compile_options(args)
    search = alternatives(args.model, targets, args.alternatives, plan_options)
    unseen_notes = [text] if (text := search.incompleteness(plan_options.limits.alternatives_seconds)) else []
    for n, a in enumerate(search.plans, 1):
        place = stem.with_name(f"{stem.name}.alternative{n}")
        check_plan_paths(place, args)
        write_plan(replace(a.plan, notes=(*a.plan.notes, *unseen_notes)), place, quiet)
        added_cost = ", ".join(f"{v - cost[k]:+,} {k}" for k, v in a.plan.extraction["cost"].items() if v != cost[k])
        lines.append(f"{place}.json  {a.option}  {added_cost or 'at the same cost'}")
    return [*(lines or ["no other plan differs in one choice"]), *unseen_notes]


def stem_of(args: argparse.Namespace, targets: Sequence[Target]) -> Path:
    """Return the path of the plan's files without suffix, once both are known to be writable.

    Raises:
        UsageError: a file cannot be written, or is an input (F100).
    """
    text = Path(args.model).stem + "." + "-".join(t.name for t in targets) if args.output is None else args.output
    stem = Path(text)
    if args.output is not None:
        check_outputs([stem])  # a folder, or no name at all
        stem = stem.with_suffix("") if stem.suffix in (".json", ".onnx") else stem
    check_plan_paths(stem, args)
    return stem


def plan_paths(stem: Path) -> tuple[Path, Path]:
    """Return the names of a plan's two files."""
    return Path(f"{stem}.onnx"), Path(f"{stem}.json")


def check_plan_paths(stem: Path, args: argparse.Namespace) -> None:
    """Check that both files of a plan can be written beside the other outputs; UsageError F100 names both where one is an input."""
    onnx, document = plan_paths(stem)
    other_outputs = [path for path in args.output_files if path != document]  # --json may name the plan's own document
    check_outputs((onnx, document, *other_outputs), args.inputs, about=f"; a plan is two files, {document} and {onnx}")


def compiled_plan(args: argparse.Namespace, targets: Sequence[Target], progress: Callable[[str], None] = lambda _: None) -> Plan:
    """Return the plan of the model that the arguments name, calibrated if --calibrate is given."""
    from ...compile import compile_model

    plan_options = compile_options(args)
    method = args.calibration_method
    return compile_model(args.model, targets, plan_options, calibrate=args.calibrate, calibration_method=method, progress=progress)


def write_plan(plan: Plan, stem: Path, args: argparse.Namespace) -> tuple[Mapping[str, Any], list[str]]:
    """Check a plan against its model, write its two files and the --json document; return the document and the files' names."""
    from ...compile import plan_files
    from ...compile.verify import check_plan

    started = time.perf_counter()
    path = os.path.relpath(plan.model["path"], stem.parent)
    plan = replace(plan, model={**plan.model, "path": path})
    files = plan_files(plan)
    check = check_plan(plan, files.onnx, Path(args.model), compile_options(args).limits)
    files.document["run"].update({"check": vars(check), "check_seconds": round(time.perf_counter() - started, 3)})
    onnx, document = plan_paths(stem)
    write_atomically({onnx: files.onnx, document: document_bytes(files.document), **json_files(files.document, args.json)})
    if args.json == "-":
        print_json(files.document)
    return files.document, [str(onnx), str(document)]
