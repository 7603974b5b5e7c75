"""Alpha-equivalence of folds: equality up to the names of bound variables."""

from __future__ import annotations

from .binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf
from .expr import Expr, lift


def are_alpha_equivalent(a: Fold, b: Fold) -> bool:
    """Tell whether two folds without free variables are alpha-equivalent."""
    return _Pairs().folds(a, b)


class _Pairs:
    def __init__(self) -> None:
        self.counterparts: dict[Expr | Array | Fold, Expr | Array | Fold] = {}
        self.equal_pairs: set[tuple[int, int]] = set()

    def folds(self, a: Fold, b: Fold) -> bool:
        if a in self.counterparts:
            return self.counterparts[a] is b
        if len(a.accumulators) != len(b.accumulators):
            return False
        self.counterparts[a], self.counterparts[a.variable] = b, b.variable
        self.counterparts.update(zip(a.accumulators, b.accumulators, strict=True))
        parts = zip((*a.initial, *a.bodies), (*b.initial, *b.bodies), strict=True)
        return self.terms(a.extent, b.extent) and all(self.arrays(x, y) for x, y in parts)

    def arrays(self, a: Array, b: Array) -> bool:
        if a is b:
            return True
        if (
            type(a) is not type(b)
            or a.rank != b.rank
            or not all(self.terms(lift(m), lift(n)) for m, n in zip(a.shape, b.shape, strict=True))
        ):
            return False
        if isinstance(a, Comprehension) and isinstance(b, Comprehension):
            self.counterparts.update(zip(a.variables, b.variables, strict=True))
            return self.terms(a.body, b.body)
        if isinstance(a, FoldResult) and isinstance(b, FoldResult):
            return (a.component, a.history) == (b.component, b.history) and self.folds(a.fold, b.fold)
        return isinstance(a, Accumulator | Leaf) and self.counterparts.get(a) is b

    def terms(self, a: Expr, b: Expr) -> bool:
        if a is b or (id(a), id(b)) in self.equal_pairs:
            return True
        if a.op != b.op or len(a.args) != len(b.args):
            return False
        if a.op == "var":
            return self.counterparts.get(a) is b
        if a.op == "load":
            are_equal = self.arrays(a.data, b.data)
        elif a.op == "reduce":
            self.counterparts.update(zip(a.data[1], b.data[1], strict=True))
            are_equal = a.data[0] == b.data[0]
        else:
            are_equal = a.data == b.data
        are_equal = are_equal and all(self.terms(x, y) for x, y in zip(a.args, b.args, strict=True))
        if are_equal:
            self.equal_pairs.add((id(a), id(b)))
        return are_equal
