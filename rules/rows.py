"""Single rows: what a step of one sample computes with an axis of steps, or as a vector, is what it computes as a row."""

from rewrite_compiler import Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ops import Condition, Op
from rewrite_compiler.rewrite import Float, Ints

ANY = ("any_dtype",)


def is_row(x: Tensor, s: Ints) -> tuple[Condition, ...]:
    """Return the conditions that x is one row, and s its shape as a vector or with an axis of steps."""
    return Where(x.rank == 2, x.shape[0] == 1, x.size > 0, s.length > 0, s.length <= 3, s[-1] == x.shape[1]).conditions


def is_as_long(y: Tensor, x: Tensor, s: Ints) -> tuple[Condition, ...]:
    """Return the conditions that y has the elements of one row, which is as long as x and of no more axes than s."""
    return Where(y.rank > 0, y.rank <= s.length, y.size == x.size, y.shape[-1] == x.shape[1]).conditions


def past_row(f: Op) -> Rule:
    """Return the rule that moves the axis of steps outward past `f` of a row and another."""

    @rule(name=f"{f.name}-past-row", grade="E", marks=ANY)
    def past(x: Tensor, y: Tensor, s: Ints) -> Law:
        """f(reshape(x, s), y) = reshape(f(x, reshape(y, (1, n))), s) for a row x"""
        left = f(o.reshape(x, s), y)
        return left, o.reshape(f(x, o.reshape(y, x.shape)), s), Where(*is_row(x, s), *is_as_long(y, x, s))

    return past


binary = [past_row(f) for f in (o.add, o.sub, o.mul)]


@rule(grade="E", marks=ANY)
def subtraction_of_row(x: Tensor, y: Tensor, s: Ints) -> Law:
    """y − reshape(x, s) = reshape(reshape(y, (1, n)) − x, s) for a row x"""
    left = o.sub(y, o.reshape(x, s))
    return left, o.reshape(o.sub(o.reshape(y, x.shape), x), s), Where(*is_row(x, s), *is_as_long(y, x, s))


@rule(grade="E", marks=ANY)
def number_less_row(x: Tensor, s: Ints, t: Ints, v: Float) -> Law:
    """v − reshape(x, s) = reshape(v − x, s) for a number v and a row x"""
    number = o.full(t, v)
    left = o.sub(number, o.reshape(x, s))
    return left, o.reshape(o.sub(o.full((), v), x), s), Where(*is_row(x, s), number.size == 1, t.length <= s.length)


@rule(grade="E", marks=ANY)
def row_of_pair(x: Tensor, y: Tensor, s: Ints) -> Law:
    """reshape(concat(x, y, 2), (1, n)) = concat(reshape(x), reshape(y), 1) for rows with an axis of steps"""
    left = o.reshape(o.concat(x, y, axis=2), s)
    rows = Where(s.length == 2, s[0] == 1, *(v for z in (x, y) for v in (z.rank == 3, z.shape[0] == 1, z.shape[1] == 1)))
    return left, o.concat(o.reshape(x, (1, x.shape[2])), o.reshape(y, (1, y.shape[2])), axis=1), rows
