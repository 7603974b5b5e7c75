"""The vocabulary of `learn`: the right sides that are tried for a fragment, the simplest first.

Families of terms are tried in a fixed order, with attributes from permutations, shapes and axes of the left side, and with
operators from a table of equivalents. Nothing else is tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...lang.expr import Expr, lift
from ...ops.op import INT, INTS, OPS, Apply, Op, Tensor, Variable
from ...ops.static import Ints, NamedList, as_ints

Variables = Mapping[str, object]
MAX_PERMUTED_RANK = 3  # ranks up to which every permutation is tried
PERMUTATIONS = ((0, 2, 3, 1), (0, 3, 1, 2))  # of rank 4: between channels first and channels last
# operators that an operator of as many operands may be written by
EQUIVALENT_OPERATORS: dict[str, tuple[str, ...]] = {
    "matmul": ("dense",),
    "dense": ("dense", "matmul"),
    "add": ("bias_add", "add"),
    "mul": ("scale", "mul"),
    "bias_add": ("bias_add", "add"),
    "scale": ("scale", "mul"),
    "conv": ("conv",),
    "layer_norm": ("layer_norm",),
}


def right_sides(left: Apply, variables: Variables) -> Iterator[Tensor]:
    """Yield the right sides of every family for a left side."""
    for family in FAMILIES:
        yield from family(left, variables)


def list_values(left: Apply, variables: Variables) -> list[Ints]:
    """Return the integer lists for attributes: those of the left side, compositions of its permutations, and shapes."""
    named_lists = [v for v in variables.values() if isinstance(v, NamedList)]
    composed = [p.permuted(q) for p, q in itertools.permutations(named_lists, 2)]
    tensors = [v for v in variables.values() if isinstance(v, Variable)]
    return [*named_lists, left.shape, *composed, *(x.shape for x in tensors), *(as_ints((x.size,)) for x in tensors)]


def axis_values(variables: Variables) -> list[Any]:
    """Return the axes for attributes: those of the left side and their images under its permutations, last axes, 0, 1, 2."""
    numbers = [v for v in variables.values() if isinstance(v, Expr)]
    named_lists = [v for v in variables.values() if isinstance(v, NamedList)]
    last = [v.rank - n for v in variables.values() if isinstance(v, Variable) for n in (1, 2, 3)]
    return [*numbers, *(p[a] for p in named_lists for a in numbers), *last, *map(lift, range(3))]


def _attributes(op: Op, left: Apply, variables: Variables) -> Iterator[dict[str, Any]]:
    """Yield attributes of an operator: its own where the left side has it, else of the vocabulary."""
    left_attributes = {
        name: value for x in (left, *left.operands) if isinstance(x, Apply) and x.op is op for name, value in x.attributes.items()
    }
    options: list[Sequence[Any]] = []
    for a in op.attributes:
        first = [left_attributes[a.name]] if a.name in left_attributes else []
        choices = list_values(left, variables) if a.kind == INTS else axis_values(variables) if a.kind == INT and a.name == "axis" else []
        options.append([*first, *(m for m in choices if not first or m is not first[0])])
    for values in itertools.product(*options):
        yield dict(zip((a.name for a in op.attributes), values, strict=True))


def _applications(op: Op, operands: Sequence[Tensor], left: Apply, variables: Variables) -> Iterator[Tensor]:
    if len(operands) == len(op.operands):
        yield from (Apply(op, tuple(operands), a) for a in _attributes(op, left, variables))


def arrangements(x: Tensor) -> Iterator[Tensor]:
    """Yield a tensor as it is, flattened, as rows, without its first axis, and transposed."""
    yield x
    for shape in (as_ints((x.size,)), as_ints((x.size // x.shape[-1], x.shape[-1])), x.shape[1:]):
        yield Apply(OPS["reshape"], (x,), {"shape": shape})
    yield from transpositions(x)
    yield from (Apply(OPS["transpose"], (x,), {"perm": as_ints(p)}) for p in PERMUTATIONS)


def transpositions(x: Tensor) -> Iterator[Tensor]:
    """Yield a tensor under every permutation of 2 and 3 axes but the identity."""
    for rank in (2, MAX_PERMUTED_RANK):
        permutations = [p for p in itertools.permutations(range(rank)) if p != tuple(range(rank))]
        yield from (Apply(OPS["transpose"], (x,), {"perm": as_ints(p)}) for p in permutations)


def result_forms(x: Tensor, left: Apply) -> Iterator[Tensor]:
    """Yield a term as it is, reshaped to the left side's shape, and transposed."""
    yield x
    yield Apply(OPS["reshape"], (x,), {"shape": left.shape})
    yield from transpositions(x)


# -- families


def _inner(left: Apply) -> Iterator[tuple[int, Apply]]:
    yield from ((k, x) for k, x in enumerate(left.operands) if isinstance(x, Apply))


def subtract_as_add(left: Apply, variables: Variables) -> Iterator[Tensor]:
    """Yield a difference as a sum with a negated operand."""
    if left.op.name == "sub":
        x, y = left.operands
        yield Apply(OPS["add"], (x, Apply(OPS["neg"], (y,), {})), {})


def drop_operator(left: Apply, variables: Variables) -> Iterator[Tensor]:
    """Yield terms with one operator less: f(g(x)) as x, as f(x) and as g(x)."""
    for k, g in _inner(left):
        for n in range(len(g.operands)):
            yield from _applications(left.op, (*left.operands[:k], g.operands[n], *left.operands[k + 1 :]), left, variables)
        yield from _applications(g.op, g.operands, left, variables)
    if not any(_inner(left)):
        yield from left.operands


def commute(left: Apply, variables: Variables) -> Iterator[Tensor]:
    """Yield a binary operator with its operands exchanged."""
    if len(left.operands) == 2:
        yield Apply(left.op, left.operands[::-1], left.attributes)


def swap_operators(left: Apply, variables: Variables) -> Iterator[Tensor]:
    """Yield the operators in the other order: f(g(x, a), b) as g(f(x, b), a), b as it is or arranged."""
    for k, g in _inner(left):
        for n, x in enumerate(g.operands):
            operand_choices = [list(arrangements(y)) if j != k else [x] for j, y in enumerate(left.operands)]
            for operands in itertools.product(*operand_choices):
                for f in _applications(left.op, operands, left, variables):
                    yield from _applications(g.op, (*g.operands[:n], f, *g.operands[n + 1 :]), left, variables)


def distribute(left: Apply, variables: Variables) -> Iterator[Tensor]:
    """Yield both operands under one operator: f(g(x), g(y)) as g(f(x, y)), and f(g(x, a), b) as g(x, h(a, b))."""
    for _, g in _inner(left):
        outer_operands = [y for y in left.operands if y is not g]
        for n, h in itertools.product(range(len(g.operands)), ("add", "mul", "scale", "bias_add")):
            for inner_operand in (j for y in outer_operands for j in _applications(OPS[h], (g.operands[n], y), left, variables)):
                yield from _applications(g.op, (*g.operands[:n], inner_operand, *g.operands[n + 1 :]), left, variables)


def distribute_twice(left: Apply, variables: Variables) -> Iterator[Tensor]:
    """Yield f(g(x, a), b) as g(f(x, b), h(a, b))."""
    for k, g in _inner(left):
        outer_operands = [y for y in left.operands if y is not g]
        if len(g.operands) != 2 or len(outer_operands) != 1:
            continue
        for h in ("mul", "add"):
            for f in _applications(left.op, (*left.operands[:k], g.operands[0], *left.operands[k + 1 :]), left, variables):
                second = Apply(OPS[h], (g.operands[1], outer_operands[0]), {})
                yield from _applications(g.op, (f, second), left, variables)


def replace_operator(left: Apply, variables: Variables) -> Iterator[Tensor]:
    """Yield another operator on the operands, each arranged; the result as it is or arranged."""
    if any(_inner(left)):
        return
    for name in EQUIVALENT_OPERATORS.get(left.op.name, ()):
        for operands in itertools.permutations(left.operands):
            for arrangement in itertools.product(*map(arrangements, operands)):
                for core in _applications(OPS[name], arrangement, left, variables):
                    yield from result_forms(core, left)


FAMILIES: tuple[Callable[[Apply, Variables], Iterator[Tensor]], ...] = (
    commute, subtract_as_add, drop_operator, swap_operators, distribute, distribute_twice, replace_operator,
)  # fmt: skip
