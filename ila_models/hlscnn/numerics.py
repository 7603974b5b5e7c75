"""HLSCNN arithmetic, bit by bit: the rounded sum of eight lanes, and its accumulation in a 16-bit activation.

Raw integers; fraction bits come from the revision (specification, section 6; general formulas 6.4).
"""

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
    weight_bits, act_bits, psum_bits = p.fractions
    lost = weight_bits + act_bits - psum_bits
    if lost <= 0:
        total = wrap(reduce_sum(lambda k: weight(k) * activation(k), 8), PSUM_BITS + lost)
        return sat(shift_right(total, weight_bits, "half_up"), 16)
    truncated = sum(weight(k) * activation(k) >> lost for k in range(8))
    return sat(shift_right(wrap(truncated, PSUM_BITS), psum_bits - act_bits, "half_up"), 16)


def accumulated(p: Revision, q: Expr, base: Expr, bias: Operand = 0, is_relu: Operand = 0) -> Expr:
    """Return the activation after one step: q + base, saturated; after the last one, bias and ReLU act before that."""
    _, act_bits, psum_bits = p.fractions
    width = PSUM_BITS - psum_bits + act_bits
    total = wrap(wrap(q + base, width) + (shift(bias, WEIGHT_FRACTION - psum_bits) >> psum_bits - act_bits), width)
    return sat(select(is_relu, maximum(total, 0), total), 16)


# what numerics of the target may share with the model, and the section of the specification that says it
PRIMITIVES = {"rounded_sum": "6.2", "accumulated": "6.3"}
