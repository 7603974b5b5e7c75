"""Differences between the specifications of two designs: states and instructions that differ, line by line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...ila import Ila, Instruction, State
from ...lang.listing import StepWriter, step_listing
from ...lang.printer import show

Sentences = dict[str, list[str]]  # by "state NAME" and "instruction NAME"


@dataclass(frozen=True)
class Change:
    """One state or instruction, and the lines that only one of the two specifications has."""

    subject: str
    old: tuple[str, ...]
    new: tuple[str, ...]


def specification_lines(ila: Ila) -> Sentences:
    """Return a model's specification as lines by subject: width and shape of states; decode, fields, update of instructions."""
    states = {f"state {s.name}": [_state(s)] for s in ila.states.values()}
    return states | {f"instruction {i.name}": _instruction(i) for i in ila.instructions.values()}


def changes(old: Ila, new: Ila) -> list[Change]:
    """Return the differing subjects of two models in the new one's order; those that it lacks come last."""
    old_lines, new_lines = specification_lines(old), specification_lines(new)
    subject_changes = (_change(subject, old_lines.get(subject, []), new_lines.get(subject, [])) for subject in {**new_lines, **old_lines})
    return [c for c in subject_changes if c.old or c.new]


def _change(subject: str, old: list[str], new: list[str]) -> Change:
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    parts = [(i, j, k, n) for tag, i, j, k, n in matcher.get_opcodes() if tag != "equal"]
    return Change(subject, tuple(x for i, j, _, _ in parts for x in old[i:j]), tuple(x for _, _, k, n in parts for x in new[k:n]))


def _state(s: State) -> str:
    shape = " × ".join(map(str, s.leaf.shape))
    sign = "signed " if s.signed else ""
    reset = f", reset to {s.reset}" if s.reset else ""
    return f"{f'{shape} of ' if shape else ''}{s.bits} {sign}bits, {s.binding}{reset}"


def _instruction(i: Instruction) -> list[str]:
    fields = [f"{name} is {o.input}[{o.bits.high}:{o.bits.low}]{' signed' if o.bits.signed else ''}" for name, o in i.operands.items()]
    result_line = [] if i.result is None else [f"gives {StepWriter().array(i.result)}"]
    return [f"when {show(i.decode)}", *fields, *step_listing(i.update), *result_line]


def word_differences(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the differences between the lines of one subject as "8 → 16", each once; whole lines where one side has none."""
    if not old or not new:
        return [f"only in {'old' if old else 'new'}: {line.strip()}" for line in old or new]
    a, b = (re.findall(r"-?\w+|\S", " ".join(lines)) for lines in (old, new))
    parts = difflib.SequenceMatcher(a=a, b=b, autojunk=False).get_opcodes()
    return list(dict.fromkeys(f"{' '.join(a[i:j]) or '–'} → {' '.join(b[k:n]) or '–'}" for tag, i, j, k, n in parts if tag != "equal"))


def changes_document(old: Ila, new: Ila) -> list[Mapping[str, object]]:
    """Return the changes as JSON."""
    return [{"subject": c.subject, "old": list(c.old), "new": list(c.new)} for c in changes(old, new)]
