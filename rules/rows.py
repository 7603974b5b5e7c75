"""Single rows: what a step of one sample computes with an axis of steps is what it computes without."""

from rewrite_compiler import Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ops import Condition, Op
from rewrite_compiler.rewrite import Float, Ints

ANY = ("any_dtype",)


def is_row(x: Tensor, s: Ints) -> tuple[Condition, ...]:
    """Return the conditions that x is one row, and s its shape with an axis of steps."""
    return Where(x.rank == 2, x.shape[0] == 1, s == (1, 1, x.shape[1])).conditions


def is_as_long(y: Tensor, x: Tensor) -> tuple[Condition, ...]:
    """Return the conditions that y has the elements of one row, which is as long as x."""
    return Where(x.size > 0, y.rank > 0, y.rank <= 3, y.size == x.size, y.shape[-1] == x.shape[1]).conditions


def past_row(f: Op) -> Rule:
    """Return the rule that moves the axis of steps outward past `f` of a row and another."""

    @rule(name=f"{f.name}-past-row", grade="E", marks=ANY)
    def past(x: Tensor, y: Tensor, s: Ints) -> Law:
        """f(reshape(x, (1, 1, n)), y) = reshape(f(x, reshape(y, (1, n))), (1, 1, n))"""
        left = f(o.reshape(x, s), y)
        return left, o.reshape(f(x, o.reshape(y, x.shape)), s), Where(*is_row(x, s), *is_as_long(y, x))

    return past


binary = [past_row(f) for f in (o.add, o.sub, o.mul)]


@rule(grade="E", marks=ANY)
def subtraction_of_row(x: Tensor, y: Tensor, s: Ints) -> Law:
    """y − reshape(x, (1, 1, n)) = reshape(reshape(y, (1, n)) − x, (1, 1, n))"""
    left = o.sub(y, o.reshape(x, s))
    return left, o.reshape(o.sub(o.reshape(y, x.shape), x), s), Where(*is_row(x, s), *is_as_long(y, x))


@rule(grade="E", marks=ANY)
def number_less_row(x: Tensor, s: Ints, t: Ints, v: Float) -> Law:
    """v − reshape(x, (1, 1, n)) = reshape(v − x, (1, 1, n)) for a number v"""
    number = o.full(t, v)
    left = o.sub(number, o.reshape(x, s))
    return left, o.reshape(o.sub(o.full((), v), x), s), Where(*is_row(x, s), number.size == 1, t.length <= 3)


@rule(grade="E", marks=ANY)
def row_of_pair(x: Tensor, y: Tensor, s: Ints) -> Law:
    """reshape(concat(x, y, 2), (1, n)) = concat(reshape(x), reshape(y), 1) for rows with an axis of steps"""
    left = o.reshape(o.concat(x, y, axis=2), s)
    rows = Where(s.length == 2, s[0] == 1, *(v for z in (x, y) for v in (z.rank == 3, z.shape[0] == 1, z.shape[1] == 1)))
    return left, o.concat(o.reshape(x, (1, x.shape[2])), o.reshape(y, (1, y.shape[2])), axis=1), rows
