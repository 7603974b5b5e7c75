"""FlexASR's long short-term memory: two memory managers and an activation program, one timestep after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.flexasr.numerics import SIGMOID, TANH, encode, fixed
from rewrite_compiler.lang import AdaptivFloat, Array, Expr, array, fold_arrays, lift, signed
from rewrite_compiler.target import USUAL, Device, Limit, Room, Stay

from .base import Codes, Formats, adaptivfloat, target
from .sequence import CODES, core_words, load_cell_state, recurrent_limits, recurrent_rooms, run_sequence

GATES = (0, 3, 2, 1)  # the device's gate order i, g, f, o in ONNX's i, o, f, g
# specification, section 6.3: R0 = σ(i)·tanh(g) + σ(f)·c is stored as c, then R0 = σ(o)·tanh(R0) is sent
PROGRAM = (
    0x30, 0x34, 0x81, 0xA0, 0x34, 0x38, 0x86, 0xB4, 0x91, 0x34, 0x38, 0x86, 0xA4, 0x18, 0x96, 0x81, 0x20, 0xB0,
    0x34, 0x38, 0x86, 0xA4, 0x91, 0x40,
)  # fmt: skip
EVERY_BIAS = tuple(AdaptivFloat(bias=n) for n in range(8))


@target.accelerates(
    axes="x: t s i; w: g i; r: g h; b: e; h: s h; c: s h; y: t s h; hn: s h; cn: s h",
    formats=dict.fromkeys(("x", "w", "r", "b", "h", "c", "y", "hn", "cn"), adaptivfloat),
    shared=("h c y hn cn",),
    whole="t s i g e h",
    search={"y": EVERY_BIAS},  # the cell state is kept in the result's format
    trials=(
        {"t": 1, "s": 1, "i": 1, "g": 4 * 49, "e": 8 * 49, "h": 49},
        {"t": 3, "s": 1, "i": 21, "g": 4 * 70, "e": 8 * 70, "h": 70},
        {"t": 35, "s": 1, "i": 128, "g": 512, "e": 1024, "h": 128},
    ),
)
def lstm(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor) -> tuple[tuple[Tensor, ...], Where]:
    """A long short-term memory: all outputs, the last output and the last cell; both biases, any initial state, batch 1."""
    return o.lstm(x, w, r, b, h, c), Where(x.shape[1] == 1, IsConstant(w), IsConstant(r), IsConstant(b))


@lstm.limits
def lstm_limits(t: int, i: int, h: int) -> Iterator[Limit]:
    """Capacities of one sequence: four gates, a cell."""
    return recurrent_limits(t, i, h, len(GATES))


@lstm.residency
def lstm_rooms(t: int, i: int, h: int) -> Iterator[Room]:
    """Where the tensors of one sequence lie."""
    return recurrent_rooms(t, i, h, len(GATES))


@lstm.numerics
def lstm_codes(x: Array, w: Array, r: Array, b: Array, h: Array, c: Array, f: Formats, p: Mapping[str, str]) -> tuple[Array, ...]:
    """Every step as the activation program computes it: 20-bit words, products shifted down, c and h rounded to one format."""
    sigmoid, hidden = SIGMOID[p["sigmoid"]], int(r.shape[1])  # type: ignore[arg-type]
    from_x, from_h = core_words(x, w, r, b, f)
    result = lift(f["y"].bias)

    def step(t: Expr, h: Array, c: Array) -> list[Array]:
        def gate(n: int, j: Expr) -> Expr:
            row = n * hidden + j
            return signed(from_x(t, row) + from_h(h, row), 20)

        def cell(j: Expr) -> Expr:
            i, g, forget = sigmoid(gate(0, j)), TANH(gate(3, j)), sigmoid(gate(2, j))
            carried = signed((forget * fixed(c[0, j], f["y"].bias)) >> 14, 20)
            return signed(signed((i * g) >> 14, 20) + carried, 20)

        words = array(lambda _, j: cell(j), (1, hidden))
        return [
            array(lambda s, j: encode(signed((TANH(words[s, j]) * sigmoid(gate(1, j))) >> 14, 20), result), (1, hidden)),
            array(lambda s, j: encode(words[s, j], result), (1, hidden)),
        ]

    every = fold_arrays(x.shape[0], [h, c], step, [CODES, CODES], history=True)[0]
    return (every, *fold_arrays(x.shape[0], [h, c], step, [CODES, CODES]))


@lstm.driver
def drive_lstm(
    device: Device, x: Codes, w: Codes, r: Codes, b: Codes, h: Codes, c: Codes, f: Formats, stay: Stay = USUAL
) -> tuple[Codes, ...]:  # fmt: skip
    """Emit one sequence: x [(samples,) t, 1, i], w [4h, i], r [4h, h], b [8h], h and c [(samples,) 1, h] → y [(samples,) t, 1, h], h, c."""
    y = run_sequence(device, (x, w, r, b, h), f, GATES, PROGRAM, c, stay)
    return y, y[..., -1, :, :], load_cell_state(device, c.shape[-1])
