"""Macros in generated drivers: the model with the steps of a target's macros as instructions, and the commands that these stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from ...errors import SpecError, did_you_mean
from ...ila import Ila
from ...ila.macro import Command, Macro
from ...ila.model import Instruction
from ...lang.step import Step
from ...target.functions import Role, call_user, listed_by, wrong_result
from ...target.target import Target
from ...user_code import is_a, quoted


class PlannedIla(Ila):
    """A model whose instructions are those of a device and the steps of macros; it is scheduled, and never simulated."""

    def __init__(self, device: Ila, macros: Sequence[Macro], parameters: Mapping[str, str]) -> None:
        """Take the device's model, the macros and the target's parameters.

        Raises:
            SpecError: I102, a step has the name of an instruction.
        """
        super().__init__(device.name, device.doc, device.parameters)
        vars(self).update(vars(device))
        self.device, self.values = device, parameters
        self.macros = {name: m for m in macros for name in m.steps}
        self.instructions = dict(device.instructions)
        for name, m in self.macros.items():
            if name in device.instructions:
                remedy = f"the instruction is at {device.instructions[name].place}"
                raise SpecError("I102", f'A step of {m.name} is called "{name}", as an instruction is', place=m.place, help=remedy)
            self.instructions[name] = _instruction(device, name, m)

    def commands_of(self, m: Macro, steps: Sequence[Command]) -> list[Command]:
        """Return the commands of steps of one macro that follow each other; absent fields are 0.

        Raises:
            SpecError: I102, the function yields something else than commands of the model.
        """
        complete = [(name, dict.fromkeys(m.steps[name].fields, 0) | dict(fields)) for name, fields in steps]
        role = Role(f"The macro {m.name}", "pairs of an instruction and its fields", m.place, operands=("p", "steps"))
        commands = list(listed_by(role, tuple, m.commands, {"p": self.values, "steps": complete}, places=True))
        wrong = next((c for c in commands if len(c) != 2 or not is_a(c[0], str) or not is_a(c[1], dict)), None)
        if wrong is not None:
            raise wrong_result(role, m.commands, f"not {quoted(wrong)} among them")
        unknown = next((name for name, _ in commands if name not in self.device.instructions), None)
        if unknown is not None:
            remedy = did_you_mean(unknown, self.device.instructions) or f"flexmatch show ila {self.name} lists them"
            raise SpecError("I102", f'The macro {m.name} yields "{unknown}", which {self.name} does not have', place=m.place, help=remedy)
        return commands


def _instruction(device: Ila, name: str, m: Macro) -> Instruction:
    step = m.steps[name]
    role = Role(f"The effect of the step {name}", "a Step", m.place, operands=("the model", *step.fields))
    update = call_user(role, Step, step.effect, device, **{field: leaf[()] for field, leaf in step.leaves.items()})
    return step.instruction(name, m.place, update)


def planned(target: Target) -> Ila:
    """Return the model that drivers of a target are scheduled for."""
    return _planned(target.build, tuple(target.values.items()), tuple(target.macros.values())) if target.macros else target.ila()


@lru_cache(maxsize=16)
def _planned(build: Callable[..., Ila], values: tuple[tuple[str, str], ...], macros: tuple[Macro, ...]) -> PlannedIla:
    return PlannedIla(Target("", build, chosen=dict(values)).ila(), macros, dict(values))


def device_model(ila: Ila) -> Ila:
    """Return the model of the device that runs what is scheduled for a model."""
    return ila.device if isinstance(ila, PlannedIla) else ila
