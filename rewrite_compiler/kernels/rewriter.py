"""Rewrites a term so that it reads stored arrays only: other arrays are inlined as the terms of their elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from ..lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf, reduction, scalar_array
from ..lang.expr import Expr, binary, node, select
from ..lang.traversal import loads_of, terms_of
from .identities import (  # fmt: skip
    SUM_BITS,
    block_wide_sum,
    roll_sum,
    round_half_away,
    shift_narrow_part,
    split_floored_sum,
    split_wide_sum,
    unsaturated_fold,
)
from .operators import RING
from .vectors import NotLowered

MIN_ENTRIES, MAX_NODES = 1 << 12, 400  # from so many entries on, a table of so few terms is computed where it is used
CHEAP = frozenset({"const", "var", "load"})


class Storage(Protocol):
    """The stored arrays that a rewritten term may read."""

    batched: dict[Array, Leaf]
    stored_leaves: dict[Array, Leaf]
    uses: Counter[Array]

    def read(self, a: Array, indices: tuple[Expr, ...]) -> Expr:
        """Return an element of a stored array."""

    def tabulated(self, e: Expr, load: Expr) -> Expr:
        """Return an element of the array of a function's values on all elements of the leaf that `load` reads."""

    def is_bound_outside(self, variables: frozenset[Expr]) -> bool:
        """Tell whether all these variables are bound outside of a stage."""

    def is_sample_invariant(self, e: Expr) -> bool:
        """Tell whether a term is the same for all samples."""


class Rewriter:
    """Rewrites terms of one array; `given` are the terms that its variables stand for."""

    def __init__(self, stages: Storage, substitutions: Mapping[Expr, Expr] | None = None, depth: int = 0) -> None:
        self.stages, self.depth = stages, depth  # the number of loops around
        self.is_modular = False  # whether a wrap to SUM_BITS at most takes what is rewritten, through operations of a ring alone
        self.memo: dict[tuple[Expr, bool, bool], Expr] = {}
        self.substitutions = dict(substitutions or {})

    def term(self, e: Expr) -> Expr:
        """Return a term whose loads are of leaves, of accumulators, and of folds of scalars."""
        key = e, self.depth > 0, self.is_modular
        rewritten = self.memo.get(key)
        if rewritten is None:
            rewritten = self.substitutions[e] if e in self.substitutions else self._rewritten(e)
            single = _single(rewritten) if self.depth and rewritten.op not in CHEAP else None
            if single is not None and single.free == rewritten.free and single.args:
                rewritten = self.stages.tabulated(rewritten, single)
            self.memo[key] = rewritten
        return rewritten

    def _rewritten(self, e: Expr) -> Expr:
        if e.real:
            raise NotLowered(e.op, "on real numbers")
        if e.op == "load":
            return self._load(e)
        if e.op == "add" and (rolled_sum := roll_sum(e)) is not e:
            return self.term(rolled_sum)
        is_modular = self.is_modular
        self.is_modular = (is_modular and e.op in RING) or (e.op == "wrap" and e.data[1] and e.data[0] <= SUM_BITS)
        rewritten = self._sum(e, is_modular) if e.op == "reduce" else self._operation(e)
        self.is_modular = is_modular
        return rewritten

    def _sum(self, e: Expr, is_modular: bool) -> Expr:
        """Return a reduction; one that needs more than SUM_BITS is split, unless what takes it wraps: 32 bits then are enough."""
        monoid, variables = e.data
        self.depth += 1
        body = self.term(e.args[0])
        self.depth -= 1
        total = reduction(monoid, variables, tuple(map(self.term, e.args[1:])), body)
        return total if is_modular and body.op == "mul" else self._split_sum(total)

    def _operation(self, e: Expr) -> Expr:
        if (rounded := round_half_away(e)) is not e:
            return self.term(rounded)
        args = [self.term(a) for a in e.args]
        if e.op == "table":
            return self._table(e, args)
        if all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        if e.op == "select":
            return round_half_away(select(*args))
        term = binary(e.op, *args) if e.op in ("add", "sub", "mul") else node(e.op, args, e.data, e.interval, e.real)
        return shift_narrow_part(term) if term.op in ("shr", "lt") and not term.args[0].real else term

    def _split_sum(self, e: Expr) -> Expr:
        split = split_floored_sum(e, self.stages.tabulated, self._is_moving)
        if split is e:
            split = split_wide_sum(e, self.stages.tabulated, self._is_moving)
        return block_wide_sum(e) if split is e else split

    def _is_moving(self, e: Expr) -> bool:
        return not self.stages.is_sample_invariant(e)

    def _table(self, e: Expr, args: list[Expr]) -> Expr:
        t = e.data
        entries = 1
        for n in t.shape:
            entries *= n
        if entries < MIN_ENTRIES or _nodes(t.body) > MAX_NODES:
            return node("table", args, t, e.interval, e.real)
        return Rewriter(self.stages, dict(zip(t.parameters, args, strict=True)), self.depth).term(t.body)

    def _load(self, e: Expr) -> Expr:
        a, indices = e.data, tuple(map(self.term, e.args))
        if isinstance(a, Accumulator) and a not in self.stages.batched:
            return e
        if isinstance(a, FoldResult) and not a.rank and not a.history:
            return self._fold(a)
        if isinstance(a, Comprehension) and self._is_inlined(a):
            inner = Rewriter(self.stages, {**self.substitutions, **dict(zip(a.variables, indices, strict=True))}, self.depth)
            return inner.term(a.body)
        return self.stages.read(a, indices)

    def _is_inlined(self, a: Comprehension) -> bool:
        """Tell whether elements are computed where they are read: copies, what is read once, and what depends on loops around."""
        if a in self.stages.stored_leaves:
            return False
        is_copy = a.body.op == "const" or (a.body.op == "load" and isinstance(a.body.data, Leaf | Comprehension))
        is_once = not self.depth and self.stages.uses[a] < 2
        return is_copy or is_once or not self.stages.is_bound_outside(a.free) or not a.rank

    def _fold(self, a: FoldResult) -> Expr:
        """Return the result of a fold whose parts are rewritten; its accumulators stay what they are."""
        f = a.fold
        if any(x.rank for x in f.accumulators):
            raise NotLowered("a fold of arrays", "that depends on a loop around it")
        initial = tuple(scalar_array(self.term(x[()] if not isinstance(x, Comprehension) else x.body)) for x in f.initial)
        self.depth += 1
        bodies = tuple(scalar_array(self.term(x.body if isinstance(x, Comprehension) else x[()])) for x in f.bodies)
        self.depth -= 1
        fold = Fold(f.variable, self.term(f.extent), initial, f.accumulators, bodies)
        if (total := unsaturated_fold(fold)) is not None:
            return total
        return FoldResult((), a.interval, a.real, fold, a.component, False)[()]


def _single(e: Expr) -> Expr | None:
    """Return the one load of a leaf on which a term depends; None where it depends on more, or on a loop."""
    if any(x.op == "reduce" or (x.op == "load" and type(x.data) is not Leaf) for x in terms_of(e)):
        return None
    loads = set(loads_of(e))
    return loads.pop() if len(loads) == 1 and not _depends_elsewhere(e) else None


def _depends_elsewhere(e: Expr) -> bool:
    """Tell whether a term has a variable that is not in an index of a load."""
    return e.op == "var" or (e.op != "load" and any(map(_depends_elsewhere, e.args)))


def _nodes(e: Expr) -> int:
    return sum(1 for _ in terms_of(e))
