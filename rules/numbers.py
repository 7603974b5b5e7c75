"""Numbers: a single known factor of a product becomes part of known weights, or stands at its left operand."""

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ops import Condition
from rewrite_compiler.rewrite import Ints

RING = ("ring",)
MOST_AXES = 3  # of matrices that an engine takes whole, attention's; of more, a number has nowhere better to be


def is_number(c: Tensor, x: Tensor) -> tuple[Condition, ...]:
    """Return the conditions that c is known, one number, and of no more axes than x."""
    return Where(IsConstant(c), c.size == 1, c.rank <= x.rank).conditions


@rule(grade="A", marks=RING)
def number_of_weights(x: Tensor, w: Tensor, c: Tensor) -> Law:
    """dense(x, w) · c = dense(x, w · c) for known w and a number c"""
    return o.mul(o.dense(x, w), c), o.dense(x, o.mul(w, o.reshape(c, ()))), Where(IsConstant(w), *is_number(c, x))


@rule(grade="A", marks=RING)
def number_of_product_into_left(a: Tensor, b: Tensor, c: Tensor) -> Law:
    """(a · b) · c = (a · c) · b for matrices a and b and a number c"""
    return o.mul(o.matmul(a, b), c), o.matmul(o.mul(a, o.reshape(c, ())), b), Where(a.rank <= MOST_AXES, *is_number(c, a))


@rule(grade="A", marks=RING)
def number_out_of_right(a: Tensor, b: Tensor, c: Tensor) -> Law:
    """a · (b · c) = (a · b) · c for matrices a and b and a number c"""
    return o.matmul(a, o.mul(b, c)), o.mul(o.matmul(a, b), o.reshape(c, ())), Where(b.rank <= MOST_AXES, *is_number(c, b))


@rule(grade="E", marks=RING)
def number_out_of_transpose(x: Tensor, c: Tensor, p: Ints) -> Law:
    """transpose(x · c, p) = transpose(x, p) · c for a number c"""
    return o.transpose(o.mul(x, c), p), o.mul(o.transpose(x, p), o.reshape(c, ())), Where(*is_number(c, x))
