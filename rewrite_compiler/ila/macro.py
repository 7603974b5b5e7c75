"""Macros: commands of an accelerator that are written by hand, and steps that say what they do, which the scheduler uses as instructions.

A summary cannot express every instruction: one whose loops run over the stored words of a configuration has none. A macro has steps,
each with fields and an effect on the states, as if the model had such instructions, and a function that writes the commands of steps
that follow each other. Generated drivers choose the steps and their fields, and consist of those commands: a macro is trusted with
nothing, as what it says wrongly leads to other codes, which no trial and no court accepts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import SpecError
from ..lang import intervals as iv
from ..lang.binders import Leaf
from ..lang.expr import lift
from ..lang.step import Step
from .bit_fields import Bits
from .model import Instruction, Operand

MOST_MACROS = 3  # of one accelerator: where more are needed, its model should say what they do
Command = tuple[str, Mapping[str, int]]  # a step or an instruction, and its fields


@dataclass(frozen=True, eq=False)
class MacroStep:
    """One step: what it does, as an update that takes the model and the fields by name, and the bits of each field."""

    effect: Callable[..., Step]
    fields: Mapping[str, int]

    @cached_property
    def leaves(self) -> dict[str, Leaf]:
        """The fields."""
        return {name: Leaf((), iv.of_width(bits, False), False, name) for name, bits in self.fields.items()}

    def instruction(self, name: str, place: str, update: Step) -> Instruction:
        """Return the step with its effect on the fields as an instruction, which no word encodes."""
        operands = {field: Operand(leaf, lift(0), "", Bits(0, 0)) for field, leaf in self.leaves.items()}
        return Instruction(name, inspect.getdoc(self.effect) or "", place, lift(0), {}, operands, update)


@dataclass(frozen=True, eq=False)
class Macro:
    """Steps, and the function that writes their commands: it takes the target's parameters and the steps with their fields."""

    name: str
    reason: str
    steps: Mapping[str, MacroStep]
    commands: Callable[..., Any]
    place: str


def checked_macro(target: str, m: Macro, macros: Mapping[str, Macro]) -> Macro:
    """Return a macro of a target that has others.

    Raises:
        SpecError: I102, it has no reason, its name or that of a step is in use, or the target has as many as it may.
    """
    if not m.reason.strip():
        remedy = "say what the summaries of the model's instructions cannot express"
        raise SpecError("I102", f'The macro "{m.name}" of {target} must give its reason', place=m.place, help=remedy)
    if len(macros) == MOST_MACROS:
        sentence = f"{target} may have at most {MOST_MACROS} macros, not {m.name} beside {', '.join(macros)}"
        raise SpecError("I102", sentence, place=m.place, help="let the model say what an instruction does, or make it a step of another")
    places = {name: other.place for other in macros.values() for name in (other.name, *other.steps)}
    for name in (m.name, *m.steps):
        if name in places:
            sentence = f'{target} already has a macro, or a step of one, "{name}"'
            raise SpecError("I102", sentence, place=m.place, help=f"the first is at {places[name]}")
    return m
