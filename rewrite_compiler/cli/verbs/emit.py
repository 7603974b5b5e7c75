"""flexmatch emit: files for a board: command traces, C of a plan, C or Verilog of a device."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AnswerNo, UsageError
from ...intake import MAX_DOCUMENT_BYTES, FileBound, read_bytes
from ..files import check_outputs, write_atomically
from ..options import (
    STEERING,
    Parser,
    accelerators,
    add_steering_options,
    check_options_apply,
    emit_json,
    one_of,
    parse_arguments,
    parser,
    plan_of,
    whole_number,
)
from ..output import print_lines
from .emit_asm import add_asm_options, emit_asm
from .emit_verilog import check_verilog_text, emit_verilog

if TYPE_CHECKING:
    from ...compile import Plan
    from ...emit.mmio.trace import EmittedTrace
    from ...ila import Ila
    from ...ila.traces.trace import Header, Trace
    from ...ir.program import Data

SCHEMA = "flexmatch.emit/1"
FORMS = {"json": "jsonl", "binary": "bin", "assembly": "asm"}
PLANS = ("emit c", "emit trace")
SUBJECTS = {
    **dict.fromkeys((*STEERING, "data", "sample", "calibrate"), PLANS), **dict.fromkeys(("form", "part", "comments"), ("emit trace",)),
    "accel": (*PLANS, "emit check", "emit asm"), **dict.fromkeys(("disassemble", "words"), ("emit asm",)),
    "output": (*PLANS, "emit device", "emit verilog", "emit asm"),
}  # fmt: skip
PARTS = {"whole": None, "constant": True, "inference": False}


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch emit` and return its exit code."""
    verb_parser = parser("emit", "Write what leaves the tool: the commands of an inference; or check a trace on the simulator.")
    verb_parser.add_argument("what", metavar="|".join(EMITTERS), type=one_of(*EMITTERS))
    verb_parser.add_argument("subject", nargs="+", metavar="PLAN|MODEL|TRACE|TARGET|FILE")
    add_steering_options(verb_parser)
    add_trace_options(verb_parser)
    add_asm_options(verb_parser)
    verb_parser.add_output("-o", "--output", is_file=False, metavar="NAME", help="where to write (default: beside the model)")
    args = parse_arguments(verb_parser, arguments)
    check_options_apply(args, SUBJECTS, f"emit {args.what}")
    files, document, lines = EMITTERS[args.what](args)
    check_outputs(files, args.inputs)
    write_atomically(files)
    file_rows = [{"path": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in files.items()]
    emit_json({"schema": SCHEMA, "what": args.what, "files": file_rows, **document}, args.json)
    print_lines(args, [*lines, *(f"wrote     {path}" for path in files)])
    return 0


def add_trace_options(verb_parser: Parser) -> None:
    """Add the options of a trace."""
    verb_parser.add_argument("--data", metavar="FILE", help="samples; without, the inputs of a trace are zeros")
    verb_parser.add_argument("--sample", type=whole_number(0), default=0, metavar="N", help="the sample of --data (default 0)")
    verb_parser.add_argument("--calibrate", metavar="FILE", help="samples that fix the number formats of a MODEL")
    verb_parser.add_argument(
        "--form", type=one_of(*FORMS), default="json", metavar="|".join(FORMS), help="how a trace is written (default json: JSON lines)"
    )
    parts = "commands that do not depend on the inputs, those that do, or all (default)"
    verb_parser.add_argument("--part", type=one_of(*PARTS), default="whole", metavar="|".join(PARTS), help=parts)
    verb_parser.add_argument("--comments", action="store_true", help="name the instruction and fields of every command of JSON lines")


Emission = tuple[Mapping[Path, bytes], dict[str, Any], list[str]]


def emit_trace(args: argparse.Namespace) -> Emission:
    """Return the command traces of a plan, one file for each accelerator, with the document and lines of what they cost.

    Raises:
        UsageError: --comments is given for a form that has none (F203).
    """
    from ...emit.mmio.trace import costs, cycles_of, part_of, traces_of
    from ...ila.traces.writer import to_assembly, to_binary, to_json_lines

    if args.comments and args.form != "json":
        raise UsageError("F203", f"--comments is for --form json, not {args.form}", help="assembly names instructions and fields already")
    plan, inputs, about = plan_and_inputs(args)
    files: dict[Path, bytes] = {}
    documents, lines = [], []
    for name, emitted in traces_of(plan, inputs, about=about).items():
        trace = emitted.trace if args.part == "whole" else part_of(emitted.trace, constant=args.part == "constant")
        write: Callable[[Trace, Ila], bytes] = {
            "json": lambda t, m: to_json_lines(t, m, comments=args.comments), "binary": to_binary, "assembly": to_assembly,
        }[args.form]  # fmt: skip
        files[_trace_path(args, name)] = write(trace, emitted.ila)
        phase_costs = costs(trace)
        cycles = cycles_of(phase_costs, plan)
        phases = [{**vars(c), "cycles": n} for c, n in zip(phase_costs, cycles, strict=True)]
        documents.append({"target": name, "commands": trace.commands, "phases": phases})
        lines += [*cost_lines(name, emitted, trace), *cycle_lines(phases)]
    return files, {"traces": documents}, lines


def plan_and_inputs(args: argparse.Namespace) -> tuple[Plan, Mapping[str, Data] | None, str]:
    """Return the plan with formats, one sample of its inputs where --data is given, and where that comes from.

    Raises:
        UsageError: more than one file is given, --sample without --data or beyond its samples (F203).
    """
    from ...cosim.cosimulate import dataset_for, with_formats

    if args.data is None and "sample" in args.given:
        raise UsageError("F203", "--sample is the number of a sample of --data, which is not given", help="add --data FILE")
    plan = plan_of(args, _single_subject(args))
    if args.data is None:
        if args.calibrate is not None and not plan.calibrated:
            plan, _ = with_formats(plan, dataset_for(plan, args.calibrate), args.calibrate)
        return plan, None, ""
    plan, data = with_formats(plan, dataset_for(plan, args.data), args.calibrate)
    if args.sample >= data.count:
        raise UsageError("F203", f"--sample must be below {data.count}, the samples there are, not {args.sample}", place=args.data)
    return plan, {name: x[args.sample] for name, x in data.inputs.items()}, f"sample {args.sample} of {Path(data.place).name}"


def _single_subject(args: argparse.Namespace) -> Path:
    if len(args.subject) > 1:
        raise UsageError("F203", f'"{args.subject[1]}" is one argument too many', help=f"flexmatch emit {args.what} takes one file")
    return Path(args.subject[0])


def _trace_path(args: argparse.Namespace, target: str) -> Path:
    stem = args.output or str(Path(args.subject[0]).with_suffix("")).removesuffix(f".{target}")
    part = "" if args.part == "whole" else f".{args.part}"
    return Path(f"{stem}.{target}{part}.{FORMS[args.form]}")


def cost_lines(name: str, emitted: EmittedTrace, trace: Trace) -> list[str]:
    """Return commands and bytes of each offload for people, constant and moving ones apart."""
    from ...emit.mmio.trace import costs

    phase_costs = costs(trace)
    lines = [f"trace     {name}: {trace.commands:,} commands, {sum(c.bytes for c in phase_costs):,} bytes an inference"]
    for offload in dict.fromkeys(c.offload for c in phase_costs):
        offload_costs = [c for c in phase_costs if c.offload == offload]
        lines.append(f"          {offload}: " + ", ".join(f"{c.phase} {c.commands:,} ({c.bytes:,} bytes)" for c in offload_costs))
    constant = sum(c.bytes for c in phase_costs if c.constant)
    return [*lines, f"constant  {constant:,} bytes do not depend on the inputs"]


def cycle_lines(phases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the estimated cycles of an inference by phase as text; nothing where the target gives no costs."""
    if not phases or any(row["cycles"] is None for row in phases):
        return []
    by_phase: dict[str, int] = {}
    for row in phases:
        by_phase[row["phase"]] = by_phase.get(row["phase"], 0) + row["cycles"]
    breakdown = ", ".join(f"{phase} {n:,}" for phase, n in by_phase.items())
    return [f"cycles    {sum(by_phase.values()):,} an inference, estimated: {breakdown}"]


def emit_check(args: argparse.Namespace) -> Emission:
    """Replay traces on the simulator, parts of one trace joined, or prove a Verilog text.

    Raises:
        UsageError: the files are not parts of one trace (F203).
        AnswerNo: a read differs from the recorded one (I111), or a part of the Verilog text from the model (I115).
    """
    if args.subject[0].endswith(".v"):
        return check_verilog_text(args, _bytes)
    from ...emit.mmio.replay import replay
    from ...emit.mmio.trace import merged_trace
    from ...ila.traces.reader import read_trace

    ilas: dict[str, Ila] = {}
    changed_targets: list[str] = []

    def ila_of(header: Header) -> Ila:
        target = target_of(args, header)
        if target.sha256 != header.sha256:
            changed_targets.append(header.target)
        return ilas.setdefault(header.target, target.ila())

    traces = [read_trace(_bytes(path), ila_of, path) for path in args.subject]
    first = traces[0].header
    for path, t in zip(args.subject, traces, strict=True):
        identity_keys = ("model_sha256", "inputs")
        if t.header.target != first.target or any(t.header.about.get(key) != first.about.get(key) for key in identity_keys):
            raise UsageError("F203", f"{path} must be a part of the same trace as {args.subject[0]}", help="check one trace at a time")
    result = replay(merged_trace(traces), ilas[first.target])
    document = {"replay": {"target": first.target, "target_changed": bool(changed_targets), **result.document}}
    if result.different:
        d = result.first[0]
        raise AnswerNo(
            "I111", f"{result.different} of {result.compared} reads differ, first {d.command}: {d.found}, recorded {d.recorded}",
            place=f"{d.section}, command {d.number}" if d.section else f"command {d.number}",
        )  # fmt: skip
    lines = [f"replayed  {result.commands:,} commands on {first.target}, {result.compared:,} reads equal"]
    return {}, document, [*lines, *(["note      the target changed since the trace"] if changed_targets else [])]


def target_of(args: argparse.Namespace, header: Header) -> Any:
    """Return the target of a trace: the one of --accel, else the shipped one of its name, with the trace's parameters.

    Raises:
        UsageError: --accel names another target (F203).
    """
    from ...target import find_target

    candidates = [find_target(text) for text in accelerators(args)]
    if not candidates:
        parameters = ",".join(f"{key}={value}" for key, value in header.parameters.items())
        return find_target(f"{header.target}:{parameters}" if parameters else header.target)
    target = next((t for t in candidates if t.name == header.target), None)
    if target is None:
        raise UsageError("F203", f"--accel must be {header.target}, the target of the trace, not {candidates[0].name}")
    return target.configured(dict(header.parameters))


def _bytes(path: str) -> bytes:
    return read_bytes(Path(path), FileBound("a trace", MAX_DOCUMENT_BYTES, "emit the trace in parts: --part"))


def emit_device(args: argparse.Namespace) -> Emission:
    """Return the C source and header of an accelerator."""
    from ...emit.c.device_model import device_files
    from ...target import find_target

    target = find_target(str(_single_subject(args)))
    files = device_files(target.ila(), target.name)
    folder = Path(args.output or ".")
    return {folder / name: data for name, data in files.items()}, {"target": target.name}, [f"device    {target.name}"]


def emit_c(args: argparse.Namespace) -> Emission:
    """Return the C source and header of a plan's host program."""
    from ...emit.c.program import program_files
    from ...report.terminal import count_text

    plan, _, _ = plan_and_inputs(args)
    files = program_files(plan)
    folder = Path(args.output or ".")
    host = sum(n.operator is not None for n in plan.program.nodes)
    size = f"{count_text(len(plan.offloads), 'offload')}, {count_text(host, 'host operator')}"
    return {folder / name: data for name, data in files.items()}, {}, [f"program   {size}"]


EMITTERS: dict[str, Callable[[argparse.Namespace], Emission]] = {
    "trace": emit_trace, "check": emit_check, "c": emit_c, "device": emit_device, "verilog": emit_verilog,
    "asm": lambda args: emit_asm(args, _bytes(args.subject[0])),
}  # fmt: skip
