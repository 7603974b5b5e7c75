"""check: what must hold of a model before anything is built on it; every failure names the instruction and a witness."""

from __future__ import annotations

from dataclasses import dataclass

from ...callable_module import make_callable
from ...errors import AnswerNo, Problem, SpecError
from ...lang.step import reads_of
from ..model import Ila, Instruction
from .binding_times import check_instruction, regions_of
from .decode_disjointness import Hole, Overlap, Values, find_holes, find_overlaps
from .reachable_values import undecoded
from .undriven_state import undriven

OVERLAP = "I100"
SOLVER_SECONDS = 5.0


@dataclass(frozen=True)
class Check:
    """The verdict on a model: problems that make it wrong, and the commands that it does not decode."""

    name: str
    instructions: int
    overlaps: tuple[Overlap, ...]
    holes: tuple[Hole, ...]
    problems: tuple[Problem, ...]
    regions: tuple[str, ...]  # what external memory a plan must keep constant
    holes_unknown: str = ""  # why the holes could not be listed

    @property
    def decodes_disjoint(self) -> bool:
        """No two instructions answer to one command."""
        return not self.overlaps

    @property
    def is_good(self) -> bool:
        """Nothing is wrong; holes are not wrong, they are commands without an effect."""
        return not self.problems

    def refuse(self) -> None:
        """Raise the first problem, if there is one."""
        for p in self.problems[:1]:
            raise AnswerNo(p.code, p.sentence, place=p.place, help=p.help)


def check(ila: Ila, *, seconds: float = SOLVER_SECONDS) -> Check:
    """Check the decodes, widths, indices and binding times of a model; `seconds` is the solver's budget for one question."""
    overlaps = find_overlaps(ila, seconds)
    problems = [_overlap(ila, o) for o in overlaps]
    problems.extend(undecoded(ila, seconds))
    for i in ila.instructions.values():
        problems.extend(check_instruction(ila, i))
        problems.extend(_unknown(ila, i))
    problems.extend(undriven(ila))
    unknown, holes = "", list[Hole]()
    try:
        holes = find_holes(ila, seconds)
    except SpecError as refusal:
        unknown = refusal.problem.sentence
    distinct, regions = tuple(dict.fromkeys(problems)), tuple(dict.fromkeys(regions_of(ila)))
    return Check(ila.name, len(ila.instructions), tuple(overlaps), tuple(holes), distinct, regions, unknown)


def _overlap(ila: Ila, o: Overlap) -> Problem:
    place = ila.instructions[o.second].place
    remedy = f"the first is at {ila.instructions[o.first].place}"
    if not o.witness:
        return Problem(OVERLAP, f"{o.first} and {o.second} of {ila.name} are not proved disjoint: {o.reason}", place, remedy)
    return Problem(OVERLAP, f"{o.first} and {o.second} of {ila.name} both decode {_shown(o.witness)}", place, remedy)


def _unknown(ila: Ila, i: Instruction) -> list[Problem]:
    """Return what an instruction reads that is neither a state, an input nor an operand of it: nothing ever drives that."""
    known = {*ila.inputs.values(), *(s.leaf for s in ila.states.values()), *(o.leaf for o in i.operands.values())}
    read = reads_of(i.update) | i.decode.reads | (i.result.reads if i.result is not None else frozenset())
    remedy = "declare it as a state, or give it as an operand"
    names = sorted(leaf.name for leaf in read - known)
    return [Problem("I102", f'{i.name} reads "{n}", which is no state, input or operand of {ila.name}', i.place, remedy) for n in names]


def _shown(command: Values) -> str:
    return ", ".join(f"{name}={value:#x}" for name, value in sorted(command.items()))


make_callable(__name__, check)
