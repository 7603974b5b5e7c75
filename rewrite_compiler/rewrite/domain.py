"""The domain of a rule: the ranks and the numbers that its proof covers, as conditions that every match has to satisfy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..lang.expr import Expr
from ..ops.op import Apply, Tensor, Variable, subterms
from ..ops.static import ELEMENTS, Condition, Element, Ints, NamedList, Real, RealComparison, ShapeOf, TermIsTrue

Pairs = Sequence[tuple[Tensor, Tensor]]
# ranks that operators take operands of alone
RECURRENT = (3, 2, 2, 1, 2, 2)
OPERAND_RANKS: dict[str, tuple[int | None, ...]] = {
    **dict.fromkeys(("bias_add", "scale", "dequantize"), (None, 1)),
    **dict.fromkeys(("dense", "integer_dense"), (None, 2)),
    **dict.fromkeys(("lstm", "gru", "rnn"), RECURRENT),
    "batch_norm": (None, 1, 1, 1, 1),
    "gate_sum": (2, 2, 2, 2, 1, 1),
}


@dataclass(frozen=True)
class Domain:
    """The largest rank of each operand for which a rule is proved, None for any; whether bounds of clip that become elements are finite."""

    rank: int | None = None
    finite: bool = True

    def __str__(self) -> str:
        return "every rank" if self.rank is None else f"ranks to {self.rank}"

    def conditions(self, pairs: Pairs, guard: Sequence[Condition] = ()) -> tuple[Condition, ...]:
        """Return bounds on ranks of operands and shapes and on float attributes, but those that the guard or an operator implies."""
        bounds = _finite_bounds(pairs) if self.finite else ()
        return (*self._rank_bounds(pairs, guard), *bounds)

    def _rank_bounds(self, pairs: Pairs, guard: Sequence[Condition]) -> tuple[Condition, ...]:
        if self.rank is None:
            return ()
        max_rank = self.rank
        implied = {id(x) for x, rank in _fixed_rank_operands(pairs) if rank <= max_rank}
        implied |= {id(element.base.tensor) for element in _equal_ranks(guard, max_rank) if isinstance(element.base, ShapeOf)}
        tensors = {id(x): x.rank for left, _ in pairs for x in subterms(left) if isinstance(x, Variable) and id(x) not in implied}
        return tuple(TermIsTrue(length <= max_rank) for length in (*tensors.values(), *(s.length for s in _shapes(pairs))))


EVERYWHERE = Domain(finite=False)


def _finite_bounds(pairs: Pairs) -> tuple[Condition, ...]:
    """Return that float attributes are finite which a model may leave infinite (bounds of clip) and a side has as an element."""
    parts = [x for pair in pairs for side in pair for x in subterms(side) if isinstance(x, Apply)]
    bounds = {v.name for x in parts for v in _float_attributes(x, "low", "high")}
    elements = {v.name: v for x in parts for v in _float_attributes(x, "value") if v.name in bounds}
    return tuple(c for v in elements.values() for c in (RealComparison(-math.inf, "lt", v), RealComparison(v, "lt", math.inf)))


def _float_attributes(x: Apply, *names: str) -> Iterator[Real]:
    """Yield the attributes of some names that a pattern binds as numbers."""
    values: list[object] = [x.attributes.get(name) for name in names]
    yield from (v for v in values if isinstance(v, Real))


def _fixed_rank_operands(pairs: Pairs) -> Iterator[tuple[Tensor, int]]:
    """Yield the operands whose operator admits only one rank, with that rank."""
    for x in (x for left, _ in pairs for x in subterms(left) if isinstance(x, Apply)):
        yield from ((y, rank) for y, rank in zip(x.operands, OPERAND_RANKS.get(x.op.name, ()), strict=False) if rank is not None)


def _shapes(pairs: Pairs) -> list[Ints]:
    """Return the shapes that a pattern binds."""
    patterns = (x for pair in pairs for side in pair for x in subterms(side) if isinstance(x, Apply))
    return list({id(s): s for x in patterns if isinstance(s := x.attributes.get("shape"), NamedList)}.values())


def _equal_ranks(guard: Sequence[Condition], max_rank: int) -> Iterator[Element]:
    """Yield the lengths that a guard sets to a number that is small enough."""
    for c in guard:
        e: Expr | None = c.term if isinstance(c, TermIsTrue) else None
        if e is not None and e.op == "eq" and e.args[1].op == "const" and int(e.args[1].data) <= max_rank:
            element = ELEMENTS.get(e.args[0])
            if element is not None and element.kind == "length":
                yield element
