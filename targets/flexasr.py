"""FlexASR: which operations its engines accelerate, in which formats, within which capacities, and by which instructions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models import flexasr as model
from rewrite_compiler.ila_models.flexasr.numerics import SIGMOID, TANH, decoded, encode, fixed, relu
from rewrite_compiler.lang import AdaptivFloat, Array, Expr, array, clamp, lift, reduce_sum, signed
from rewrite_compiler.target import Device, Limit, Target

PES, LANES = 4, 16
BLOCK = 16  # timesteps of one vector that lie next to each other in the large buffer
LARGE, WEIGHT, INPUT = 1 << 16, 1 << 16, 1 << 8  # vectors
INPE, OUTGB, SIGM, TANH_, RELU = 0x30, 0x40, 0xA0, 0xB0, 0xC0  # activation instructions on register 0
MOST_VECTORS, MOST_TIMESTEPS = 255, 65_535
Formats = Mapping[str, AdaptivFloat]
Codes = np.ndarray

target = Target(
    "flexasr", model.build, {"behaviour": model.BEHAVIOURS, "sigmoid": model.SIGMOIDS}, __doc__ or "",
    (Path(__file__), *sorted(Path(model.__file__).parent.glob("*.py"))),
)  # fmt: skip


def adaptivfloat(largest: float) -> AdaptivFloat:
    """Return the 8-bit format whose top binade holds `largest`; the bias is 3 bits wide (specification, section 7.3b)."""
    exponent = math.frexp(largest)[1] - 1 if largest > 0 else -3
    return AdaptivFloat(bias=min(max(exponent + 3, 0), 7))


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
    inputs, per_pe = -(-k // LANES), -(-n // (PES * LANES))
    yield Limit("input vectors of a timestep", inputs, MOST_VECTORS)
    yield Limit("output vectors of a timestep", per_pe * PES, MOST_VECTORS)
    yield Limit("weight vectors of a processing element", inputs * per_pe * LANES, WEIGHT)
    yield Limit("input and bias vectors of a processing element", inputs + per_pe, INPUT)
    yield Limit("large-buffer vectors", -(-t // BLOCK) * BLOCK * (inputs + per_pe * PES), LARGE)
    yield Limit("timesteps", t, MOST_TIMESTEPS)


def linear_codes(x: Array, w: Array, b: Array, f: Formats, activation: Callable[[Expr], Expr]) -> Array:
    """Exact products summed in 32 bits that wrap, a floor shift to 14 fraction bits, bias, clamp, activation, one rounding."""
    shift = 14 - f["w"].bias - f["x"].bias
    limit = (1 << 19) - 1

    def element(t: Expr, n: Expr) -> Expr:
        total = signed(reduce_sum(lambda k: decoded(x[t, k]) * decoded(w[n, k]), x.shape[1]), 32)
        word = clamp((total >> shift) + fixed(b[n], f["b"].bias), -limit, limit)
        return encode(activation(word), lift(f["y"].bias))

    return array(element, (x.shape[0], w.shape[0]))


def drive_linear(device: Device, x: Codes, w: Codes, b: Codes, f: Formats, activation: int = 0) -> Codes:
    """Emit one linear call: x [(samples,) t, k], w [n, k], b [n] → y [(samples,) t, n], all codes."""
    program = [INPE, activation, OUTGB] if activation else [INPE, OUTGB]
    timesteps, outputs = x.shape[-2], len(w)
    inputs, per_pe = -(-x.shape[-1] // LANES), -(-outputs // (PES * LANES))
    rows = np.zeros((PES * per_pe * LANES, inputs * LANES), w.dtype)
    rows[: len(w), : w.shape[1]] = w
    biases = np.zeros(len(rows), b.dtype)
    biases[: len(b)] = b
    for pe in range(PES):
        mine = slice(pe * per_pe * LANES, (pe + 1) * per_pe * LANES)
        _configure_element(device, pe, inputs, per_pe, f, program)
        _store_weights(device, pe, rows[mine], inputs)
        vectors = biases[mine].reshape(per_pe, LANES)
        device.store(f"pe{pe}_core_store_input_buffer", index=inputs + np.arange(per_pe), vector=vectors)
    base = -(-timesteps // BLOCK) * BLOCK * inputs
    _configure_buffers(device, timesteps, inputs, per_pe * PES, base)
    _store_timesteps(device, x, inputs)
    device.issue("gb_control_start")
    device.wait()
    index = _large_index(timesteps, per_pe * PES, base)
    y = device.load("gb_core_load_large", index=index.reshape(-1))
    return y.reshape(*y.shape[:-2], timesteps, per_pe * PES * LANES)[..., :outputs]


def _configure_element(device: Device, pe: int, inputs: int, per_pe: int, f: Formats, program: Sequence[int]) -> None:
    """Set one processing element up for inputs → per_pe output vectors and its activation program."""
    device.issue(f"pe{pe}_config_rnn_layer_sizing", is_valid=1, is_bias=1, num_manager=1, num_output=per_pe)
    device.issue(
        f"pe{pe}_config_mem_mngr_first", adpfloat_bias_w=f["w"].bias, adpfloat_bias_b=f["b"].bias, adpfloat_bias_i=f["x"].bias,
        num_input=inputs, base_bias=inputs,
    )  # fmt: skip
    device.issue(
        f"pe{pe}_config_act_mngr", is_valid=1, adpfloat_bias=f["y"].bias, num_inst=len(program), num_output=per_pe, output_addr_base=pe * per_pe
    )
    _store_program(device, pe, program)


def _store_program(device: Device, pe: int, program: Sequence[int]) -> None:
    words = np.zeros((2, LANES), np.int64)
    words.reshape(-1)[: len(program)] = program
    device.store(f"pe{pe}_config_act_vector_0_15", instructions=words[:1])
    if len(program) > LANES:
        device.store(f"pe{pe}_config_act_vector_16_31", instructions=words[1:])


def _store_weights(device: Device, pe: int, rows: Codes, inputs: int) -> None:
    """Store 16×16 tiles, output vectors outer, input vectors inner, one row of a tile a vector."""
    tiles = rows.reshape(-1, LANES, inputs, LANES).swapaxes(1, 2).reshape(-1, LANES)
    device.store(f"pe{pe}_core_store_weight_buffer", index=np.arange(len(tiles)), vector=tiles)


def _configure_buffers(device: Device, timesteps: int, inputs: int, outputs: int, base: int) -> None:
    device.issue("config_gb_core_mem_mngr_large", num_vector_0=inputs, base_0=0, num_vector_1=outputs, base_1=base)
    device.issue(
        "config_gb_control", is_valid=1, memory_index_1=0, memory_index_2=1, num_vector_1=inputs, num_vector_2=outputs,
        num_timestep_1=timesteps,
    )  # fmt: skip


def _large_index(timesteps: int, vectors: int, base: int) -> np.ndarray:
    """Return where vector v of timestep t lies (specification, section 5), shape [t, v]."""
    t, v = np.arange(timesteps)[:, None], np.arange(vectors)
    return base + t % BLOCK + (t // BLOCK * vectors + v) * BLOCK


def _store_timesteps(device: Device, x: Codes, inputs: int) -> None:
    padded = np.zeros((*x.shape[:-1], inputs * LANES), x.dtype)
    padded[..., : x.shape[-1]] = x
    index = _large_index(x.shape[-2], inputs, 0).reshape(-1)
    device.store("gb_core_store_large", index=index, vector=padded.reshape(*x.shape[:-2], -1, LANES))


def _identity(x: Expr) -> Expr:
    return x


def _activation(name: str, p: Mapping[str, str]) -> Callable[[Expr], Expr]:
    return {"linear": _identity, "linear_relu": relu, "linear_sigmoid": SIGMOID[p["sigmoid"]], "linear_tanh": TANH}[name]


# pattern → the instruction of the activation unit, 0 for none
for mapping, instruction in ((linear, 0), (linear_relu, RELU), (linear_sigmoid, SIGM), (linear_tanh, TANH_)):
    mapping.limits(linear_limits)
    mapping.driver(partial(drive_linear, activation=instruction))
    mapping.numerics(lambda *operands, f, p, name=mapping.variant: linear_codes(*operands, f, _activation(name, p)))
