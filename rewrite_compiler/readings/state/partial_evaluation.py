"""Partial evaluation of a sequential loop body with respect to control state that no iteration writes.

Invariant control is constant: conditions are decided, indices become affine functions of variables, and a loop over a
program whose instructions are known is unrolled into those instructions. Data terms stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ...errors import SpecError
from ...lang.binders import Array, Comprehension, FoldResult, Leaf
from ...lang.expr import Expr, binary, const, lift, node, unary, var
from ...lang.step import Let, Loop, Require, Seq, Step, Together, Update, When, seq, when
from ..arrays.evaluator import Evaluator, NotUniform
from ..arrays.labelled_array import axis_of

MAX_UNROLLED = 128  # inner loops of up to this length are written out, where their conditions differ
MAX_UPDATES = 1 << 10
FOLDABLE = frozenset(
    {"add", "sub", "mul", "div", "mod", "tdiv", "tmod", "min", "max", "eq", "ne", "lt", "le", "bitand", "bitor", "shl", "shr"}
)


class _VaryingCondition(Exception):
    """A condition that differs along a variable."""

    def __init__(self, free: frozenset[Expr]) -> None:
        self.free = free


class Irregular(Exception):
    """A body that has no residual: a length or a condition stays unknown, or the code grows too large."""


def residual_body(ev: Evaluator, loop: Loop, extent: int, is_invariant: Callable[[Leaf], bool]) -> tuple[Expr, Step]:
    """Return the residual body of a loop, and the variable that counts its iterations 1 … extent−1 in it.

    Raises:
        Irregular: the body has no residual.
    """
    later_iteration = var("k", (1, extent - 1))
    try:
        return later_iteration, _Residual(ev, loop.variable, later_iteration, is_invariant).step(loop.body)
    except (_VaryingCondition, NotUniform, SpecError) as error:  # of a branch that is never taken, too
        raise Irregular from error


class _Residual:
    def __init__(self, ev: Evaluator, loop_variable: Expr, later_iteration: Expr, is_steady: Callable[[Leaf], bool]) -> None:
        self.ev, self.loop_variable, self.later_iteration, self.is_steady = ev, loop_variable, later_iteration, is_steady
        self.unrolled_values: dict[Expr, int] = {}  # variables of loops that are written out
        self.memo: dict[tuple[object, ...], Expr] = {}
        self.steady: dict[Leaf, bool] = {}
        self.updates = 0

    # -- steps

    def step(self, s: Step) -> Step:
        if isinstance(s, Seq):
            return seq(*map(self.step, s.steps))
        if isinstance(s, Update):
            return self._update(s)
        if isinstance(s, Together):
            return Together(tuple(map(self._update, s.updates)))
        if isinstance(s, Loop):
            return self._loop(s)
        if isinstance(s, When):
            return self._when(s)
        if isinstance(s, Let):
            return self._let(s)
        assert isinstance(s, Require)
        return Require(self.value(s.condition), s.code, s.sentence, tuple((n, self.value(x)) for n, x in s.values), s.always)

    def _update(self, u: Update) -> Update:
        self.updates += 1
        if self.updates > MAX_UPDATES:
            raise Irregular
        extents = tuple(map(self.control, u.extents))
        with self._bound_axes(u.variables, extents):
            return Update(u.memory, u.variables, extents, tuple(map(self.control, u.address)), self.value(u.value))

    def _let(self, s: Let) -> Step:
        if any(not lift(n).free.isdisjoint((self.loop_variable, *self.unrolled_values)) for n in s.local.shape):
            raise Irregular  # the name is of arrays of this length
        return Let(s.local, self._array(s.array), self.step(s.body))

    def _when(self, s: When) -> Step:
        condition = self.control(s.condition)
        if condition.value is not None:
            return self.step(s.then if condition.value else s.otherwise)
        if not condition.free <= {self.later_iteration}:
            raise _VaryingCondition(condition.free)
        return when(condition, self.step(s.then), self.step(s.otherwise))

    def _loop(self, s: Loop) -> Step:
        extent = self.control(s.extent)
        try:
            with self._bound_axes((s.variable,), (extent,)):
                return Loop(s.variable, extent, self.step(s.body))
        except _VaryingCondition as condition:
            if s.variable not in condition.free or extent.value is None or extent.value > MAX_UNROLLED:
                raise
        return seq(*(self._iteration(s, k) for k in range(int(extent.value))))

    def _iteration(self, s: Loop, k: int) -> Step:
        self.unrolled_values[s.variable] = k
        try:
            with self.ev.inner_scope({s.variable: k}):
                return self.step(s.body)
        finally:
            del self.unrolled_values[s.variable]

    @contextmanager
    def _bound_axes(self, variables: Sequence[Expr], extents: Sequence[Expr]) -> Iterator[None]:
        """Bind variables to axes; Irregular where a length is not known."""
        if any(n.value is None for n in extents):
            raise Irregular
        with self.ev.inner_scope(axes=[(v, int(n.value or 0)) for v, n in zip(variables, extents, strict=True)]):
            yield

    # -- terms

    def control(self, e: Expr) -> Expr:
        """Return an index, a condition or a length as what it is in every iteration."""
        return self._memoised(e, True, self._rewritten_control)

    def value(self, e: Expr) -> Expr:
        """Return a value, computed as it was: its indices, conditions and lengths are worked out."""
        return self._memoised(e, False, self._rewritten_value)

    def _memoised(self, e: Expr, is_control: bool, make: Callable[[Expr], Expr]) -> Expr:
        if e.op == "const":
            return e
        key = (e, is_control, *((v, self._binding_of(v)) for v in e.free))
        rewritten = self.memo.get(key)
        if rewritten is None:
            rewritten = self.memo[key] = make(e)
        return rewritten

    def _binding_of(self, v: Expr) -> tuple[int | None, int | None]:
        """Return what a variable stands for here: its number, or how many numbers it runs through."""
        return self.unrolled_values.get(v), self.ev.axes.extent.get(axis_of(v))

    def _rewritten_control(self, e: Expr) -> Expr:
        if e.op == "var":
            return self._variable(e)
        if not e.real and self.loop_variable not in e.free and all(map(self._is_steady, e.reads)):
            form = self.ev.affine(e)
            if form is not None:
                return self._sum(e, form.constant, form.terms)
        if e.op == "select":
            condition = self.control(e.args[0])
            if condition.value is not None:
                return self.control(e.args[1] if condition.value else e.args[2])
        args = [self.control(a) for a in e.args] if e.op != "reduce" else []
        if e.op in FOLDABLE and not e.real:
            return binary(e.op, *args)
        if e.op == "not":
            return unary("not", args[0])
        return self._rewritten_value(e)

    def _sum(self, e: Expr, total: int, terms: Sequence[tuple[int, int]]) -> Expr:
        """Return an affine function of the axes that are bound now as a term of their variables."""
        variables = {axis_of(v): v for v in e.free if v not in self.unrolled_values}
        sum_term = const(total - sum(c * self.ev.axes.start[a] for a, c in terms))
        for a, c in terms:
            sum_term = sum_term + variables[a] * c
        return sum_term

    def _rewritten_value(self, e: Expr) -> Expr:
        if e.op == "var":
            return self._variable(e)
        if e.op == "select":
            condition = self.control(e.args[0])
            if condition.value is not None:
                return self.value(e.args[1] if condition.value else e.args[2])
        if e.op == "reduce":
            return self._reduced(e)
        is_load = e.op == "load"
        args = [self.control(a) if is_load else self.value(a) for a in e.args]
        data = self._array(e.data) if is_load else e.data
        if data is e.data and all(a is b for a, b in zip(args, e.args, strict=True)):
            return e
        free = data.free.union(*(a.free for a in args)) if is_load else None
        return node(e.op, args, data, e.interval, e.real, free)

    def _reduced(self, e: Expr) -> Expr:
        monoid, variables = e.data
        extents = [self.control(n) for n in e.args[1:]]
        with self._bound_axes(variables, extents):
            body = self.value(e.args[0])
        free = body.free.difference(variables).union(*(n.free for n in extents))
        return node("reduce", (body, *extents), (monoid, variables), e.interval, e.real, free)

    def _array(self, a: Array) -> Array:
        if isinstance(a, Comprehension):
            shape = tuple(n if isinstance(n, int) else self.control(n) for n in a.shape)
            with self._bound_axes(a.variables, [lift(n) for n in shape]):
                body = self.value(a.body)
            is_unchanged = body is a.body and all(lift(n) is lift(m) for n, m in zip(shape, a.shape, strict=True))
            return a if is_unchanged else Comprehension(shape, a.interval, a.real, a.variables, body)
        if isinstance(a, FoldResult) and not a.free.isdisjoint({self.loop_variable, *self.unrolled_values}):
            raise Irregular
        return a

    def _variable(self, v: Expr) -> Expr:
        if v is self.loop_variable:
            return self.later_iteration
        number = self.unrolled_values.get(v)
        return v if number is None else const(number)

    def _is_steady(self, leaf: Leaf) -> bool:
        if leaf not in self.steady:
            self.steady[leaf] = self.is_steady(leaf)
        return self.steady[leaf]
