"""FlexASR: which operations its engines accelerate, in which formats, within which capacities, and by which instructions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models import flexasr as model
from rewrite_compiler.ila_models.flexasr.numerics import decoded, encode, fixed
from rewrite_compiler.lang import AdaptivFloat, Array, Expr, array, clamp, lift, reduce_sum, signed
from rewrite_compiler.target import Device, Limit, Target

PES, LANES = 4, 16
BLOCK = 16  # timesteps of one vector that lie next to each other in the large buffer
LARGE, WEIGHT, INPUT = 1 << 16, 1 << 16, 1 << 8  # vectors
INPE, OUTGB = 0x30, 0x40  # activation instructions on register 0
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


@target.accelerates(axes="x: t k; w: n k; b: n; y: t n", formats=dict.fromkeys("xwby", adaptivfloat), units={"k": LANES, "n": PES * LANES})
def linear(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Where]:
    """One fully connected layer on the four processing elements: y[t, n] = Σ_k x[t, k] · w[n, k] + b[n]."""
    return o.bias_add(o.dense(x, w), b, 1), Where(x.rank == 2, IsConstant(w), IsConstant(b))


@linear.limits
def linear_limits(t: int, k: int, n: int) -> Iterator[Limit]:
    """Capacities of one linear call (specification, section 8)."""
    inputs, per_pe = -(-k // LANES), -(-n // (PES * LANES))
    yield Limit("input vectors of a timestep", inputs, MOST_VECTORS)
    yield Limit("output vectors of a timestep", per_pe * PES, MOST_VECTORS)
    yield Limit("weight vectors of a processing element", inputs * per_pe * LANES, WEIGHT)
    yield Limit("input and bias vectors of a processing element", inputs + per_pe, INPUT)
    yield Limit("large-buffer vectors", -(-t // BLOCK) * BLOCK * (inputs + per_pe * PES), LARGE)
    yield Limit("timesteps", t, MOST_TIMESTEPS)


@linear.numerics
def linear_codes(x: Array, w: Array, b: Array, f: Formats) -> Array:
    """Exact products summed in 32 bits that wrap, a floor shift to 14 fraction bits, bias, clamp, one rounding to the output format."""
    shift = 14 - f["w"].bias - f["x"].bias
    limit = (1 << 19) - 1

    def element(t: Expr, n: Expr) -> Expr:
        total = signed(reduce_sum(lambda k: decoded(x[t, k]) * decoded(w[n, k]), x.shape[1]), 32)
        word = clamp((total >> shift) + fixed(b[n], f["b"].bias), -limit, limit)
        return encode(word, lift(f["y"].bias))

    return array(element, (x.shape[0], w.shape[0]))


@linear.driver
def drive_linear(device: Device, x: Codes, w: Codes, b: Codes, f: Formats) -> Codes:
    """Emit one linear call: x [(samples,) t, k], w [n, k], b [n] → y [(samples,) t, n], all codes."""
    timesteps, outputs = x.shape[-2], len(w)
    inputs, per_pe = -(-x.shape[-1] // LANES), -(-outputs // (PES * LANES))
    rows = np.zeros((PES * per_pe * LANES, inputs * LANES), w.dtype)
    rows[: len(w), : w.shape[1]] = w
    biases = np.zeros(len(rows), b.dtype)
    biases[: len(b)] = b
    for pe in range(PES):
        mine = slice(pe * per_pe * LANES, (pe + 1) * per_pe * LANES)
        _configure_element(device, pe, inputs, per_pe, f)
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


def _configure_element(device: Device, pe: int, inputs: int, per_pe: int, f: Formats) -> None:
    """Set one processing element up for inputs → per_pe output vectors without activation."""
    device.issue(f"pe{pe}_config_rnn_layer_sizing", is_valid=1, is_bias=1, num_manager=1, num_output=per_pe)
    device.issue(
        f"pe{pe}_config_mem_mngr_first", adpfloat_bias_w=f["w"].bias, adpfloat_bias_b=f["b"].bias, adpfloat_bias_i=f["x"].bias,
        num_input=inputs, base_bias=inputs,
    )  # fmt: skip
    device.issue(
        f"pe{pe}_config_act_mngr", is_valid=1, adpfloat_bias=f["y"].bias, num_inst=2, num_output=per_pe, output_addr_base=pe * per_pe
    )
    program = np.zeros((1, LANES), np.int64)
    program[0, :2] = INPE, OUTGB
    device.store(f"pe{pe}_config_act_vector_0_15", instructions=program)


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
