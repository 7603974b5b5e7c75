"""Interval arithmetic on z3 integer terms, from intervals of their variables and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import z3

from ...lang import intervals as iv
from ...lang.intervals import Interval
from .subterms import parts_of

KINDS: dict[int, Callable[[Interval, Interval], Interval]] = {
    z3.Z3_OP_ADD: iv.add,
    z3.Z3_OP_SUB: iv.sub,
    z3.Z3_OP_MUL: iv.mul,
    z3.Z3_OP_IDIV: iv.floor_div,  # terms divide by positive constants only; anything else is left open below
    z3.Z3_OP_MOD: iv.floor_mod,
}
DIVISIONS = (z3.Z3_OP_IDIV, z3.Z3_OP_MOD)


class Bounds:
    """Computes and caches intervals of terms; `known` gives those of variables and uninterpreted functions, by name."""

    def __init__(self, symbol_intervals: Mapping[str, Interval]) -> None:
        self.symbol_intervals = symbol_intervals
        self.intervals: dict[int, Interval] = {}
        self.retained_terms: list[z3.ExprRef] = []  # z3 reuses the ids of terms that are not retained

    def of(self, term: z3.ExprRef) -> Interval:
        """Return an interval that contains the term's value."""
        number = term.get_id()
        if number in self.intervals:
            return self.intervals[number]
        work = [parts_of(term)]
        while work:
            node = work[-1]
            pending = [p for p in node.parts if p.number not in self.intervals] if node.number not in self.intervals else []
            if pending:
                work.extend(pending)
                continue
            work.pop()
            if node.number not in self.intervals:
                self.retained_terms.append(node.term)
                self.intervals[node.number] = self._combine(node.term, [self.intervals[p.number] for p in node.parts])
        return self.intervals[number]

    def _combine(self, term: z3.ExprRef, parts: Sequence[Interval]) -> Interval:
        if z3.is_int_value(term):
            return term.as_long(), term.as_long()
        kind = term.decl().kind()
        if kind == z3.Z3_OP_UNINTERPRETED:
            return self.symbol_intervals.get(term.decl().name(), iv.EVERYTHING)
        if kind in DIVISIONS and (parts[1][0] is None or parts[1][0] <= 0):
            return iv.EVERYTHING
        if kind in KINDS:
            result = parts[0]
            for p in parts[1:]:
                result = KINDS[kind](result, p)
            return result
        if kind == z3.Z3_OP_UMINUS:
            return iv.sub((0, 0), parts[0])
        if kind == z3.Z3_OP_ITE:
            return iv.hull(parts[1], parts[2])
        return iv.EVERYTHING
