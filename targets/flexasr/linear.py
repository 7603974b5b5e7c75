"""FlexASR's linear layer on the four processing elements, with and without an activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.flexasr.numerics import SIGMOID, TANH, decoded, encode, fixed, relu
from rewrite_compiler.lang import Array, Expr, array, clamp, lift, reduce_sum, signed
from rewrite_compiler.target import USUAL, Device, Limit, Room, Stay, pad_axis
from rewrite_compiler.target import Mapping as Layer

from .base import (
    INPUT,
    LANES,
    MOST_VECTORS,
    PES,
    WEIGHT,
    Codes,
    Formats,
    Manager,
    adaptivfloat,
    configure_element,
    large_buffer_limits,
    rows_room,
    rows_scratch,
    run_timesteps,
    store_inputs,
    store_weights,
    target,
    vectors,
)  # fmt: skip

INPE, OUTGB, SIGM, TANH_, RELU = 0x30, 0x40, 0xA0, 0xB0, 0xC0  # activation instructions on register 0
AXES = "x: t k; w: n k; b: n; y: t n"
UNITS = {"k": LANES, "n": PES * LANES}


@target.accelerates(axes=AXES, formats=dict.fromkeys("xwby", adaptivfloat), units=UNITS)
def linear(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """One fully connected layer on the four processing elements: y[t, n] = Σ_k x[t, k] · w[n, k] + b[n]."""
    return o.bias_add(o.dense(x, w), b, 1), Where(x.rank == 2, IsConstant(w), IsConstant(b))


@target.accelerates(axes=AXES, formats=dict.fromkeys("xwby", adaptivfloat), units=UNITS, operation="linear", whole="k")
def linear_relu(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A fully connected layer with the activation unit's RELU."""
    return o.relu(o.bias_add(o.dense(x, w), b, 1)), Where(x.rank == 2, IsConstant(w), IsConstant(b))


@target.accelerates(axes=AXES, formats=dict.fromkeys("xwby", adaptivfloat), units=UNITS, operation="linear", whole="k")
def linear_sigmoid(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A fully connected layer with the activation unit's piecewise-linear SIGM."""
    return o.sigmoid(o.bias_add(o.dense(x, w), b, 1)), Where(x.rank == 2, IsConstant(w), IsConstant(b))


@target.accelerates(axes=AXES, formats=dict.fromkeys("xwby", adaptivfloat), units=UNITS, operation="linear", whole="k")
def linear_tanh(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """A fully connected layer with the activation unit's piecewise-linear TANH."""
    return o.tanh(o.bias_add(o.dense(x, w), b, 1)), Where(x.rank == 2, IsConstant(w), IsConstant(b))


def linear_limits(t: int, k: int, n: int) -> Iterator[Limit]:
    """Capacities of one linear call (specification, section 8)."""
    inputs, per_pe = vectors(k), -(-n // (PES * LANES))
    yield Limit("input vectors of a timestep", inputs, MOST_VECTORS)
    yield Limit("output vectors of a timestep", per_pe * PES, MOST_VECTORS)
    yield Limit("weight vectors of a processing element", inputs * per_pe * LANES, WEIGHT)
    yield Limit("input and bias vectors of a processing element", inputs + per_pe, INPUT)
    yield from large_buffer_limits(t, inputs + per_pe * PES)


def linear_rooms(t: int, k: int, n: int) -> Iterator[Room]:
    """Where the tensors of one linear call lie; biases and staged inputs share the small input buffers and are stored each time."""
    inputs, per_pe = vectors(k), -(-n // (PES * LANES))
    yield rows_room("x", t, inputs)
    yield rows_room("y", t, per_pe * PES)
    yield Room("weight", inputs * per_pe * LANES, "w", lasting=True)


def core_word(codes: Callable[[Expr], tuple[Expr, Expr]], count: int | Expr, shift: int, bias: Expr) -> Expr:
    """Return what the core sends for one output: Σ of exact products in 32 bits that wrap, a floor shift, bias, clamp."""

    def product(k: Expr) -> Expr:
        a, b = codes(k)
        return decoded(a) * decoded(b)

    limit = (1 << 19) - 1
    return clamp((signed(reduce_sum(product, count), 32) >> shift) + bias, -limit, limit)


def linear_codes(x: Array, w: Array, b: Array, f: Formats, activation: Callable[[Expr], Expr]) -> Array:
    """The core's word, the activation, one rounding to the output format."""
    shift = 14 - f["w"].bias - f["x"].bias

    def element(t: Expr, n: Expr) -> Expr:
        word = core_word(lambda k: (x[t, k], w[n, k]), x.shape[1], shift, fixed(b[n], f["b"].bias))
        return encode(activation(word), lift(f["y"].bias))

    return array(element, (x.shape[0], w.shape[0]))


def drive_linear(
    device: Device, x: Codes, w: Codes, b: Codes, f: Formats, activation: int = 0, stay: Stay = USUAL
) -> Codes:  # fmt: skip
    """Emit one linear call: x [(samples,) t, k], w [(samples,) n, k], b [n] → y [(samples,) t, n], all codes."""
    program = [INPE, activation, OUTGB] if activation else [INPE, OUTGB]
    inputs, per_pe = vectors(x.shape[-1]), -(-w.shape[-2] // (PES * LANES))
    rows = pad_axis(pad_axis(w, -2, PES * per_pe * LANES), -1, inputs * LANES)
    biases = pad_axis(b, 0, rows.shape[-2])
    manager = Manager(f["w"], f["b"], f["x"], inputs, stay.base("w"), base_bias=inputs)
    for pe in range(PES):
        rows_of_pe = slice(pe * per_pe * LANES, (pe + 1) * per_pe * LANES)
        configure_element(device, pe, [manager], per_pe, program, per_pe, f["y"])
        if "w" not in stay.present:
            store_weights(device, pe, rows[..., rows_of_pe, :], manager.base_weight)
        store_inputs(device, pe, biases[rows_of_pe].reshape(per_pe, LANES), inputs)
    return run_timesteps(device, x, inputs, per_pe * PES, stay=stay)[..., : w.shape[-2]]


Activation = Callable[[Expr], Expr]


def _numerics(choose: Callable[[Mapping[str, str]], Activation]) -> Callable[..., Array]:
    """Return the numerics of a layer whose activation the target's parameters choose."""

    def codes(x: Array, w: Array, b: Array, f: Formats, p: Mapping[str, str]) -> Array:
        return linear_codes(x, w, b, f, choose(p))

    return codes


# pattern → the instruction of the activation unit (0: none), and the function it computes
ACTIVATIONS: tuple[tuple[Layer, int, Callable[[Mapping[str, str]], Activation]], ...] = (
    (linear, 0, lambda p: lambda x: x),
    (linear_relu, RELU, lambda p: relu),
    (linear_sigmoid, SIGM, lambda p: SIGMOID[p["sigmoid"]]),
    (linear_tanh, TANH_, lambda p: TANH),
)
for layer, instruction, function in ACTIVATIONS:
    layer.limits(linear_limits)
    layer.residency(linear_rooms)
    layer.driver(partial(drive_linear, activation=instruction))
    layer.numerics(_numerics(function))


@target.accelerates(
    axes="x: h t k; w: h k n; y: h t n", formats=dict.fromkeys("xwy", adaptivfloat), units=UNITS, operation="matmul", runtime_weights="w"
)  # fmt: skip
def matmul(x: Tensor, w: Tensor) -> tuple[Tensor, Where]:
    """Matrix products of computed pairs, whose second factors are written as weights at run time: y[h] = x[h] · w[h]."""
    return o.matmul(x, w), Where(x.rank == 3, w.rank == 3, x.shape[0] == w.shape[0])


@matmul.limits
def matmul_limits(h: int, t: int, k: int, n: int) -> Iterator[Limit]:
    """Capacities of one product; a call takes one."""
    yield Limit("products of a call", h, 1)
    yield from linear_limits(t, k, n)


@matmul.residency
def matmul_rooms(t: int, k: int, n: int) -> Iterator[Room]:
    """What one product takes; nothing of it stays, because its pairs are cut apart and its second factors turned on the host."""
    inputs, per_pe = vectors(k), -(-n // (PES * LANES))
    yield rows_scratch("x", t, inputs)
    yield rows_scratch("y", t, per_pe * PES)
    yield Room("weight", inputs * per_pe * LANES, scratch="w")


@matmul.numerics
def matmul_codes(x: Array, w: Array, f: Formats) -> Array:
    """The core's word of each product without a bias, one rounding to the output format."""
    shift = 14 - f["w"].bias - f["x"].bias

    def element(h: Expr, t: Expr, n: Expr) -> Expr:
        word = core_word(lambda k: (x[h, t, k], w[h, k, n]), x.shape[2], shift, lift(0))
        return encode(word, lift(f["y"].bias))

    return array(element, (x.shape[0], x.shape[1], w.shape[2]))


@matmul.driver
def drive_matmul(device: Device, x: Codes, w: Codes, f: Formats, stay: Stay = USUAL) -> Codes:
    """Emit one product as a linear call with biases of zero: x [(samples,) 1, t, k], w [(samples,) 1, k, n] → y [(samples,) 1, t, n]."""
    rows, zeros = w[..., 0, :, :].swapaxes(-2, -1), np.zeros(w.shape[-1], np.int64)
    return drive_linear(device, x[..., 0, :, :], rows, zeros, {**f, "b": f["w"]}, stay=stay)[..., None, :, :]
