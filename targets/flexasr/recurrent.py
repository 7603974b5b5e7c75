"""FlexASR's long short-term memory: two memory managers and an activation program, one timestep after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.flexasr.numerics import SIGMOID, TANH, encode, fixed
from rewrite_compiler.lang import AdaptivFloat, Array, Expr, array, fold_arrays, lift, signed
from rewrite_compiler.target import Device, Limit

from .base import (
    ACT,
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
    padded,
    run_timesteps,
    store_inputs,
    store_weights,
    target,
    vectors,
)  # fmt: skip
from .linear import core_word

GATES = (0, 3, 2, 1)  # the device's gate order i, g, f, o in ONNX's i, o, f, g
# specification, section 6.3: R0 = σ(i)·tanh(g) + σ(f)·c is stored as c, then R0 = σ(o)·tanh(R0) is sent
PROGRAM = (
    0x30, 0x34, 0x81, 0xA0, 0x34, 0x38, 0x86, 0xB4, 0x91, 0x34, 0x38, 0x86, 0xA4, 0x18, 0x96, 0x81, 0x20, 0xB0,
    0x34, 0x38, 0x86, 0xA4, 0x91, 0x40,
)  # fmt: skip
CODES = (0, 255)
EVERY_BIAS = tuple(AdaptivFloat(bias=n) for n in range(8))


@target.accelerates(
    axes="x: t s i; w: g i; r: g h; b: e; h: s h; c: s h; y: t s h; hn: s h; cn: s h",
    formats=dict.fromkeys(("x", "w", "r", "b", "h", "c", "y", "hn", "cn"), adaptivfloat),
    shared=("h c y hn cn",),
    whole="t s i g e h",
    search={"y": EVERY_BIAS},  # the cell state is kept in the result's format
    trials=(
        {"t": 1, "s": 1, "i": 16, "g": 256, "e": 512, "h": 64},
        {"t": 3, "s": 1, "i": 21, "g": 4 * 70, "e": 8 * 70, "h": 70},
        {"t": 35, "s": 1, "i": 128, "g": 512, "e": 1024, "h": 128},
    ),
)
def lstm(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor) -> tuple[tuple[Tensor, ...], Where]:
    """A long short-term memory: all outputs, the last output and the last cell; both biases, any initial state, batch 1."""
    return o.lstm(x, w, r, b, h, c), Where(x.shape[1] == 1, IsConstant(w), IsConstant(r), IsConstant(b))


@lstm.limits
def lstm_limits(t: int, s: int, i: int, g: int, e: int, h: int) -> Iterator[Limit]:
    """Capacities of one sequence (specification, section 8)."""
    inputs, per_pe = vectors(i), -(-h // (PES * LANES))
    hidden = per_pe * PES
    yield Limit("input vectors of a timestep", inputs, MOST_VECTORS)
    yield Limit("output vectors of a timestep", hidden, MOST_VECTORS)
    yield Limit("cell vectors of a processing element", per_pe, ACT)
    yield Limit("weight vectors of a processing element", 4 * per_pe * (inputs + hidden) * LANES, WEIGHT)
    yield Limit("input, state and bias vectors of a processing element", inputs + hidden + 8 * per_pe, INPUT)
    yield from large_buffer_limits(t, inputs + hidden)


@lstm.numerics
def lstm_codes(x: Array, w: Array, r: Array, b: Array, h: Array, c: Array, f: Formats, p: Mapping[str, str]) -> tuple[Array, ...]:
    """Every step as the activation program computes it: 20-bit words, products shifted down, c and h rounded to one format."""
    sigmoid, hidden = SIGMOID[p["sigmoid"]], int(r.shape[1])  # type: ignore[arg-type]
    from_x, from_h = 14 - f["w"].bias - f["x"].bias, 14 - f["r"].bias - f["y"].bias
    result = lift(f["y"].bias)

    def step(t: Expr, h: Array, c: Array) -> list[Array]:
        def gate(n: int, j: Expr) -> Expr:
            row = n * hidden + j
            a = core_word(lambda k: (x[t, 0, k], w[row, k]), x.shape[2], from_x, fixed(b[row], f["b"].bias))
            z = core_word(lambda k: (h[0, k], r[row, k]), hidden, from_h, fixed(b[4 * hidden + row], f["b"].bias))
            return signed(a + z, 20)

        def cell(j: Expr) -> Expr:
            i, g, forget = sigmoid(gate(0, j)), TANH(gate(3, j)), sigmoid(gate(2, j))
            kept = signed((forget * fixed(c[0, j], f["y"].bias)) >> 14, 20)
            return signed(signed((i * g) >> 14, 20) + kept, 20)

        words = array(lambda _, j: cell(j), (1, hidden))
        return [
            array(lambda s, j: encode(signed((TANH(words[s, j]) * sigmoid(gate(1, j))) >> 14, 20), result), (1, hidden)),
            array(lambda s, j: encode(words[s, j], result), (1, hidden)),
        ]

    every = fold_arrays(x.shape[0], [h, c], step, [CODES, CODES], history=True)[0]
    return (every, *fold_arrays(x.shape[0], [h, c], step, [CODES, CODES]))


@lstm.driver
def drive_lstm(device: Device, x: Codes, w: Codes, r: Codes, b: Codes, h: Codes, c: Codes, f: Formats) -> tuple[Codes, ...]:
    """Emit one sequence: x [(samples,) t, 1, i], w [4h, i], r [4h, h], b [8h], h and c [(samples,) 1, h] → y [(samples,) t, 1, h], h, c."""
    hidden = r.shape[1]
    inputs, per_pe = vectors(x.shape[-1]), -(-hidden // (PES * LANES))
    width = per_pe * PES
    state, bias_h = inputs + 4 * per_pe, inputs + 4 * per_pe + width
    managers = (
        Manager(f["w"], f["b"], f["x"], inputs, base_bias=inputs),
        Manager(f["r"], f["b"], f["y"], width, 4 * per_pe * inputs * LANES, bias_h, state),
    )
    rows = [_by_element(padded(a, 1, n * LANES), hidden, per_pe) for a, n in ((w, inputs), (r, width))]
    biases = [_by_element(a[:, None], hidden, per_pe)[..., 0] for a in np.split(b, 2)]
    h0, c0 = (padded(a, a.ndim - 1, width * LANES).reshape(*a.shape[:-2], -1, LANES) for a in (h, c))
    for pe in range(PES):
        configure_element(device, pe, managers, 4 * per_pe, PROGRAM, per_pe, f["y"])
        for n, manager in enumerate(managers):
            store_weights(device, pe, rows[n][pe], manager.base_weight)
            store_inputs(device, pe, biases[n][pe].reshape(-1, LANES), manager.base_bias)
        store_inputs(device, pe, h0, state)
        device.store(f"pe{pe}_act_store_buffer", index=np.arange(per_pe), vector=c0[..., pe * per_pe : (pe + 1) * per_pe, :])
    y = run_timesteps(device, x[..., 0, :], inputs, width, is_rnn=1)
    cells = [device.load(f"pe{pe}_act_load_buffer", index=np.arange(per_pe)) for pe in range(PES)]
    cell = np.concatenate(cells, axis=-2)
    cell = cell.reshape(*cell.shape[:-2], 1, width * LANES)[..., :hidden]
    return y[..., None, :hidden], y[..., -1:, :hidden], cell


def _by_element(a: Codes, hidden: int, per_pe: int) -> Codes:
    """Return gate rows [4h, k] as [pe, rows, k]: for each output vector of an element its 16 rows of gate i, then g, f, o."""
    gates = a.reshape(4, hidden, -1)[list(GATES)]
    whole = padded(gates, 1, PES * per_pe * LANES)
    return whole.reshape(4, PES, per_pe, LANES, -1).transpose(1, 2, 0, 3, 4).reshape(PES, 4 * per_pe * LANES, -1)
