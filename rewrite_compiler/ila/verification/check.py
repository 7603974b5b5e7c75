"""The check of a model before anything is built on it; every problem names its instruction and, where one exists, a witness."""

from __future__ import annotations

from dataclasses import dataclass

from ...callable_module import make_callable
from ...errors import AnswerNo, Problem, SpecError
from ...lang.step import reads_of
from ..model import Ila, Instruction
from .binding_times import check_instruction, regions_of
from .decode_disjointness import Hole, Overlap, Values, find_holes, find_overlaps
from .reachable_values import undecodable_instructions
from .undriven_state import undriven_states
from .weak_requirements import weak_requirements

OVERLAP = "I100"
SOLVER_SECONDS = 5.0


@dataclass(frozen=True)
class Check:
    """The result of checking a model: its problems, overlapping decodes, and the holes: commands that no instruction decodes."""

    name: str
    instructions: int
    overlaps: tuple[Overlap, ...]
    holes: tuple[Hole, ...]
    problems: tuple[Problem, ...]
    regions: tuple[str, ...]  # what external memory a plan must keep constant
    holes_unknown: str = ""  # why the holes could not be listed

    @property
    def decodes_disjoint(self) -> bool:
        """Whether no command is decoded by two instructions."""
        return not self.overlaps

    @property
    def is_good(self) -> bool:
        """Whether there is no problem; holes are none, since commands without an instruction have no effect."""
        return not self.problems

    def refuse(self) -> None:
        """Refuse the model when it has a problem.

        Raises:
            AnswerNo: the first problem, with its code, place and remedy.
        """
        for p in self.problems[:1]:
            raise AnswerNo(p.code, p.sentence, place=p.place, help=p.help)


def check(ila: Ila, *, seconds: float = SOLVER_SECONDS) -> Check:
    """Check the decodes, widths, indices and binding times of a model; `seconds` is the solver's budget for each query."""
    overlaps = find_overlaps(ila, seconds)
    problems = [_overlap(ila, o) for o in overlaps]
    problems.extend(undecodable_instructions(ila, seconds))
    for i in ila.instructions.values():
        problems.extend(check_instruction(ila, i))
        problems.extend(_undeclared_reads(ila, i))
    problems.extend(undriven_states(ila))
    problems.extend(weak_requirements(ila))
    unlisted_reason, holes = "", list[Hole]()
    try:
        holes = find_holes(ila, seconds)
    except SpecError as refusal:
        unlisted_reason = refusal.problem.sentence
    distinct, regions = tuple(dict.fromkeys(problems)), tuple(dict.fromkeys(regions_of(ila)))
    return Check(ila.name, len(ila.instructions), tuple(overlaps), tuple(holes), distinct, regions, unlisted_reason)


def _overlap(ila: Ila, o: Overlap) -> Problem:
    place = ila.instructions[o.second].place
    remedy = f"the first is at {ila.instructions[o.first].place}"
    if not o.witness:
        return Problem(OVERLAP, f"{o.first} and {o.second} of {ila.name} are not proved disjoint: {o.reason}", place, remedy)
    return Problem(OVERLAP, f"{o.first} and {o.second} of {ila.name} both decode {_command_text(o.witness)}", place, remedy)


def _undeclared_reads(ila: Ila, i: Instruction) -> list[Problem]:
    """Return a problem for each leaf that an instruction reads and that is no state, input or operand: nothing ever drives it."""
    declared = {*ila.inputs.values(), *(s.leaf for s in ila.states.values()), *(o.leaf for o in i.operands.values())}
    reads = reads_of(i.update) | i.decode.reads | (i.result.reads if i.result is not None else frozenset())
    remedy = "declare it as a state, or give it as an operand"
    names = sorted(leaf.name for leaf in reads - declared)
    return [Problem("I102", f'{i.name} reads "{n}", which is no state, input or operand of {ila.name}', i.place, remedy) for n in names]


def _command_text(command: Values) -> str:
    return ", ".join(f"{name}={value:#x}" for name, value in sorted(command.items()))


make_callable(__name__, check)
