"""Calls of a plan, each judged as it is issued: control class, then one term, then elements in place of numbers, then a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...errors import FlexmatchError
from ...readings.smt.normal_form_code import NotInteger
from ...readings.smt.polynomial_terms import Terms
from ...target import Mapping, Stay, Target
from ..mappings.control_classes import Call, control_branches
from ..mappings.draws import Invocation, product_count
from ..mappings.mappings import SEED, code_difference, execute, is_same_term
from ..mappings.small_designs import operation_classes
from .block_proof import BlockProofs

DIRECT_PRODUCTS = 20_000  # products of a call that is executed number by number
FEW_PRODUCTS = 2_000  # up to which that is tried before elements in place of numbers
SAMPLES = 2  # seeds of codes, where nothing stronger holds


class Method(StrEnum):
    """What shows that the driver of a call gives its numerics."""

    TERM = "one term"
    """Executed on symbols, driver and numerics are one term: equal for all codes."""
    BLOCKS = "blocks"
    """The same by the block lemma, with elements in place of numbers: equal for all codes."""
    SAMPLE = "sample"
    """Equal on drawn codes only."""
    NONE = "refuted"
    """They differ, or the device refuses the stream."""


@dataclass(frozen=True)
class CallVerdict:
    """How a call is shown, why not by more, and the control facts that no call of the operation's certificate shows."""

    method: Method
    reason: str = ""
    unproved_control: tuple[str, ...] = ()

    @property
    def is_symbolic(self) -> bool:
        """Tell whether it holds for all codes."""
        return self.method in (Method.TERM, Method.BLOCKS)


@dataclass
class CallCourt:
    """Judges calls of one target; what its operations' certificates cover is found once."""

    target: Target
    blocks: BlockProofs = field(init=False)
    covered: dict[str, frozenset[str] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.blocks = BlockProofs(self.target)

    def verdict(self, m: Mapping, sizes: MappingOf[str, Any], stay: Stay | None = None) -> CallVerdict:
        """Judge one call."""
        control, products, reasons = self.unproved_control(m, sizes, stay), product_count(m, sizes), list[str]()
        ways: list[tuple[Method, Callable[..., str]]] = [(Method.BLOCKS, self.blocks.failure)]
        if products <= DIRECT_PRODUCTS:
            ways.insert(int(products > FEW_PRODUCTS), (Method.TERM, self._term_failure))
        for method, failure in ways:
            reasons.append(failure(m, sizes, stay))
            if not reasons[-1]:
                return CallVerdict(method, "", control)
        method, evidence = self._sample(m, sizes, stay)
        return CallVerdict(method, evidence or "; ".join(reasons), control)

    def _term_failure(self, m: Mapping, sizes: MappingOf[str, Any], stay: Stay | None) -> str:
        try:
            pairs = execute(m, self.target.ila(), sizes, Terms(), stay).pairs
        except NotInteger:
            return "it computes with real numbers"
        except FlexmatchError as error:
            return error.problem.sentence
        return "" if all(is_same_term(a, b) for a, b in pairs) else "driver and numerics are not one term"

    def _sample(self, m: Mapping, sizes: MappingOf[str, Any], stay: Stay | None) -> tuple[Method, str]:
        for seed in range(SEED, SEED + SAMPLES):
            try:
                example = code_difference(m, self.target.ila(), sizes, seed, stay)
            except FlexmatchError as error:
                return Method.NONE, f"the device refuses the stream: {error.problem.sentence}"
            if example is not None:
                return Method.NONE, f"driver and numerics differ: {example}"
        return Method.SAMPLE, ""

    def unproved_control(self, m: Mapping, sizes: MappingOf[str, Any], stay: Stay | None) -> tuple[str, ...]:
        """Return the ways of branches and trip counts of a call that no call of the operation's certificate shows."""
        if m.variant not in self.covered:
            calls = operation_classes(self.target, m).calls
            self.covered[m.variant] = _shown(calls) if calls else None
        covered = self.covered[m.variant]
        if covered is None:
            return ("the target has no small design, on which classes of its control are proved",)
        return tuple(sorted(control_branches(Call(self.target, m, Invocation(sizes, stay))) - covered))


def _shown(calls: Iterable[Call]) -> frozenset[str]:
    return frozenset().union(*map(control_branches, calls))


Progress = Callable[[str], None]
