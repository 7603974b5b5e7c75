"""Operators: each described once by its signature, shape rule and meaning; calling one on patterns builds a pattern."""

from .conv import conv, im2col
from .elementwise import abs_, add, clip, div, erf, exp, log, max_, min_, mul, neg, pow_, reciprocal, relu, sigmoid, sqrt, sub, tanh
from .layout import concat, expand, gather, pad, reshape, reverse, slice_, transpose
from .linear import bias_add, dense, full, matmul, scale
from .norm import batch_norm, layer_norm, log_softmax, softmax
from .op import OPS, Attribute, Op, ShapeError, op
from .quantised import dequantize, integer_conv, integer_dense, quantize, quantized_add, requantize
from .recurrent import gate_sum, gru, lstm, rnn
from .reduction import average_pool, max_pool, reduce_max_, reduce_mean_, reduce_sum_
from .static import Condition, HasType, Ints, Inverse, IsConstant
from .term import Apply, Tensor, Variable

__all__ = [
    "OPS",
    "Apply",
    "Attribute",
    "Condition",
    "HasType",
    "Ints",
    "Inverse",
    "IsConstant",
    "Op",
    "ShapeError",
    "Tensor",
    "Variable",
    "abs_",
    "add",
    "average_pool",
    "batch_norm",
    "bias_add",
    "clip",
    "concat",
    "conv",
    "dense",
    "dequantize",
    "div",
    "erf",
    "exp",
    "expand",
    "full",
    "gate_sum",
    "gather",
    "gru",
    "im2col",
    "integer_conv",
    "integer_dense",
    "layer_norm",
    "log",
    "log_softmax",
    "lstm",
    "matmul",
    "max_",
    "max_pool",
    "min_",
    "mul",
    "neg",
    "op",
    "pad",
    "pow_",
    "quantize",
    "quantized_add",
    "reciprocal",
    "reduce_max_",
    "reduce_mean_",
    "reduce_sum_",
    "relu",
    "requantize",
    "reshape",
    "reverse",
    "rnn",
    "scale",
    "sigmoid",
    "slice_",
    "softmax",
    "sqrt",
    "sub",
    "tanh",
    "transpose",
]
