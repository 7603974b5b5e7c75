"""flexmatch emit verilog TARGET, and flexmatch emit check of a Verilog text."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AnswerNo, UsageError
from ..options import accelerators

if TYPE_CHECKING:
    from ...emit.rtl.readback_check import PartVerdict

MAX_LISTED = 3
SIMULATE = "simulate these instructions: emit verilog writes a test bench"
Emission = tuple[Mapping[Path, bytes], dict[str, Any], list[str]]


def emit_verilog(args: argparse.Namespace) -> Emission:
    """Return a module with the instructions of an accelerator that have a register-level form, and a test bench."""
    from ...emit.rtl.emit import verilog_device
    from ...target import find_target

    target = find_target(args.subject[0])
    device = verilog_device(target.ila(), target.name)
    folder = Path(args.output or ".")
    count = len(device.instructions) + len(device.omitted)
    lines = [f"verilog   {target.name}: {len(device.instructions)} of {count} instructions"]
    lines += [f"outside   {name}: {reason}" for name, reason in device.omitted.items()]
    lines += [f"clocks    {name} takes several clocks, of {n} kinds" for name, n in device.clock_counts.items()]
    document = {
        "target": target.name,
        "instructions": list(device.instructions),
        "outside": dict(device.omitted),
        "clocks": dict(device.clock_counts),
    }
    return {folder / name: data for name, data in device.files.items()}, document, lines


def check_verilog_text(args: argparse.Namespace, reader: Any) -> Emission:
    """Prove every part of a Verilog text equivalent to the model of the accelerator.

    Raises:
        UsageError: not exactly one text and one accelerator are given (F203).
        AnswerNo: a part differs from the model, or is not decided (I115).
    """
    from ...emit.rtl.readback_check import ROUNDS, check_verilog
    from ...target import find_target

    names = accelerators(args)
    if len(names) != 1 or len(args.subject) != 1:
        raise UsageError("F203", "a Verilog text is checked against one accelerator", help="flexmatch emit check FILE.v --accel NAME")
    path, target = args.subject[0], find_target(names[0])
    judgements = list(check_verilog(reader(path).decode("utf-8", "replace"), target.ila(), path))
    refuted = [j for j in judgements if j.verdict.outcome == "refuted"]
    if refuted:
        more_text = f"; {len(refuted) - 1} more" if len(refuted) > 1 else ""
        raise AnswerNo("I115", f"{refuted[0].part} is {_verdict_text(refuted[0])}{more_text}", place=path)
    undecided = [j for j in judgements if j.verdict.outcome != "proved"]
    if undecided:
        raise AnswerNo("I115", _undecided_text(undecided, len(judgements)), place=path, help=SIMULATE)
    bounded = [j.part for j in judgements if j.bounded]
    lines = [f"proved    {len(judgements)} parts of {Path(path).name} are what {target.name} says"]
    lines += [f"bounded   {name}: for loops of at most {ROUNDS} rounds" for name in bounded]
    return {}, {"target": target.name, "proved": [j.part for j in judgements], "bounded": bounded}, lines


def _undecided_text(undecided: Sequence[PartVerdict], count: int) -> str:
    """Say how many parts are proved, and which are neither proved nor refuted, and why the first of them is not."""
    names = [j.part for j in undecided[:MAX_LISTED]] + ([f"{len(undecided) - MAX_LISTED} more"] if len(undecided) > MAX_LISTED else [])
    reason = undecided[0].verdict.reason or "the solver does not end in its time"
    return f"{count - len(undecided)} of {count} parts are proved and none is refuted, but not decided are {', '.join(names)}: {reason}"


def _verdict_text(j: PartVerdict) -> str:
    if j.verdict.reason and j.verdict.outcome == "refuted":
        return f"not the model's: {j.verdict.reason}"
    assignment = ", ".join(f"{name} = {x:#x}" for name, x in sorted(j.verdict.model.items()) if "!" not in name and isinstance(x, int))
    return f"not the model's, for example for {assignment or 'every command'}"
