"""HLSCNN arithmetic, bit by bit: the rounded sum of eight lanes, and its accumulation in a 16-bit activation.

Raw integers; fraction bits come from the revision (specification, section 6; general formulas 6.4).
"""

from __future__ import annotations

from collections.abc import Callable

from rewrite_compiler.lang import Expr, Operand, maximum, reduce_sum, sat, select, shift, shift_right, wrap

from .revisions import Revision

WEIGHT_FRACTION = 14  # of a 16-bit weight and of the bias
PSUM_BITS = 32
Lanes = Callable[[Operand], Expr]


def rounded_sum(p: Revision, weight: Lanes, activation: Lanes) -> Expr:
    """Return q: the sum of eight products, rounded half up to an activation, saturated.

    Every lane's product is truncated to the fraction bits of the partial sum; where none is lost the sum stays exact.
    """
    lost = p.weight_fraction + p.act_fraction - p.psum_fraction
    if lost <= 0:
        total = wrap(reduce_sum(lambda k: weight(k) * activation(k), 8), PSUM_BITS + lost)
        return sat(shift_right(total, p.weight_fraction, "half_up"), 16)
    total = weight(0) * activation(0) >> lost
    for k in range(1, 8):
        total = total + (weight(k) * activation(k) >> lost)
    return sat(shift_right(wrap(total, PSUM_BITS), p.psum_fraction - p.act_fraction, "half_up"), 16)


def accumulated(p: Revision, q: Expr, base: Expr) -> Expr:
    """Return the activation after one step: q + base, saturated."""
    return sat(_sum(p, q, base), 16)


def finished(p: Revision, q: Expr, base: Expr, bias: Operand, is_relu: Expr) -> Expr:
    """Return the activation after the last step: bias and ReLU act before the truncation and the saturation."""
    below = p.psum_fraction - p.act_fraction
    total = wrap(_sum(p, q, base) + (shift(bias, WEIGHT_FRACTION - p.psum_fraction) >> below), PSUM_BITS - below)
    return sat(select(is_relu, maximum(total, 0), total), 16)


def _sum(p: Revision, q: Expr, base: Expr) -> Expr:
    return wrap(q + base, PSUM_BITS - p.psum_fraction + p.act_fraction)
