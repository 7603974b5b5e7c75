"""Contractions: known factors at the left as the weights of a linear layer, and windows as a convolution.

An ONNX Einsum of two operands comes in as transposes, one product of matrices and a transpose; these laws turn the product where an
engine takes weights at one side only. Only `--rules lowering` uses them, and objectives that price lowerings.
"""

from rewrite_compiler import IsConstant, Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Ints

LOWERING = ("lowering", "ring")


@rule(grade="E", marks=LOWERING)
def rows_of_constant(a: Tensor, b: Tensor) -> Law:
    """a·b = reshape(reshape(a, (rows, k))·b) for known a of several axes of rows"""
    y = o.matmul(a, b)
    k = b.shape[0]
    return y, o.reshape(o.matmul(o.reshape(a, (a.size // k, k)), b), y.shape), Where(IsConstant(a), a.rank > 2, b.rank == 2, k > 0)


@rule(grade="E", marks=LOWERING)
def constant_rows_as_weights(a: Tensor, b: Tensor) -> Law:
    """dense(a, b) = dense(b, a)ᵀ for known a"""
    return o.dense(a, b), o.transpose(o.dense(b, a), (1, 0)), Where(IsConstant(a), a.rank == 2)


def windows_as_convolution(axes: int) -> Rule:
    """Return the rule that reads a linear layer on windows over `axes` spatial axes as a convolution."""
    channels_last = (0, *range(2, axes + 2), 1)

    @rule(name=f"dense-of-windows-as-conv{axes}d", grade="A", marks=LOWERING)
    def of_windows(x: Tensor, w: Tensor, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints) -> Law:
        """dense(im2col(x), w) = reshape(transpose(conv(x, reshape(w))))"""
        y = o.dense(o.im2col(x, kernel, strides, pads, dilations), w)
        filters = o.reshape(w, (w.shape[0], x.shape[1], *(kernel[k] for k in range(axes))))
        image = o.conv(x, filters, strides, pads, dilations, group=1)
        return y, o.reshape(o.transpose(image, channels_last), y.shape), Where(x.rank == axes + 2, IsConstant(w), w.size > 0)

    return of_windows


windows = [windows_as_convolution(axes) for axes in (1, 2)]
