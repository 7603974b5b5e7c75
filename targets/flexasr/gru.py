"""FlexASR's gated recurrent unit and plain recurrent layer: activation programs for one state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rewrite_compiler import IsConstant, Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.flexasr.numerics import SIGMOID, TANH, encode, fixed, one_minus
from rewrite_compiler.lang import Array, Expr, array, fold_arrays, lift, signed
from rewrite_compiler.target import USUAL, Device, Limit, Room, Stay

from .base import Codes, Formats, adaptivfloat, target
from .sequence import CODES, core_words, recurrent_limits, recurrent_rooms, run_sequence

AXES = "x: t s i; w: g i; r: g h; b: e; h: s h; y: t s h; hn: s h"
FORMATS = dict.fromkeys(("x", "w", "r", "b", "h", "y", "hn"), adaptivfloat)
SHARED, WHOLE = ("h y hn",), "t s i g e h"
GRU_GATES = (1, 2, 0)  # the device's gate order r, n, z in ONNX's z, r, h
# specification, section 6.3: R0 = tanh(x·n + σ(r)·(h·n)), R2 = σ(z)·h, R0 = R0·(1 − σ(z)) + R2 is stored and sent
GRU_PROGRAM = (
    0x30, 0x34, 0x81, 0xA0, 0x34, 0x38, 0x92, 0x81, 0xB0, 0x34, 0x38, 0x86, 0xA4, 0x18, 0x99, 0xD4, 0x91, 0x82, 0x20, 0x40,
)  # fmt: skip
RNN_PROGRAM = (0x30, 0x34, 0x81, 0xB0, 0x40)


def sizes(gates: int, i: int, h: int) -> tuple[dict[str, int], ...]:
    """Return the sizes of the proofs: as few columns as reach every element, ragged, and one that fills the input buffers."""
    trials = ((1, 1, 49), (3, 21, 70), (2, i, h))
    return tuple({"t": t, "s": 1, "i": i, "g": gates * h, "e": 2 * gates * h, "h": h} for t, i, h in trials)


@target.accelerates(axes=AXES, formats=FORMATS, shared=SHARED, whole=WHOLE, trials=sizes(3, 3136, 384))
def gru(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> tuple[tuple[Tensor, ...], Where]:
    """A gated recurrent unit that applies its reset gate after the recurrent product; both biases, any initial state, batch 1."""
    return o.gru(x, w, r, b, h, linear_before_reset=1), Where(x.shape[1] == 1, IsConstant(w), IsConstant(r), IsConstant(b))


@target.accelerates(axes=AXES, formats=FORMATS, shared=SHARED, whole=WHOLE, trials=sizes(1, 2368, 1152))
def rnn(x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor) -> tuple[tuple[Tensor, ...], Where]:
    """A recurrent layer h' = tanh(x·w + h·r + b); both biases, any initial state, batch 1."""
    return o.rnn(x, w, r, b, h, activation="tanh"), Where(x.shape[1] == 1, IsConstant(w), IsConstant(r), IsConstant(b))


@gru.limits
def gru_limits(t: int, i: int, h: int) -> Iterator[Limit]:
    """Capacities of one sequence: three gates."""
    return recurrent_limits(t, i, h, len(GRU_GATES))


@rnn.limits
def rnn_limits(t: int, i: int, h: int) -> Iterator[Limit]:
    """Capacities of one sequence: one gate."""
    return recurrent_limits(t, i, h, 1)


@gru.residency
def gru_rooms(t: int, i: int, h: int) -> Iterator[Room]:
    """Where the tensors of one sequence lie."""
    return recurrent_rooms(t, i, h, len(GRU_GATES))


@rnn.residency
def rnn_rooms(t: int, i: int, h: int) -> Iterator[Room]:
    """Where the tensors of one sequence lie."""
    return recurrent_rooms(t, i, h, 1)


@gru.numerics
def gru_codes(x: Array, w: Array, r: Array, b: Array, h: Array, f: Formats, p: Mapping[str, str]) -> tuple[Array, ...]:
    """Every step as the activation program computes it: 20-bit words that wrap, products shifted down, the state rounded."""
    sigmoid, hidden, bias = SIGMOID[p["sigmoid"]], int(r.shape[1]), lift(f["y"].bias)  # type: ignore[arg-type]
    from_x, from_h = core_words(x, w, r, b, f)

    def step(t: Expr, h: Array) -> list[Array]:
        def gate(n: int, j: Expr) -> Expr:
            return sigmoid(signed(from_x(t, n * hidden + j) + from_h(h, n * hidden + j), 20))

        def new(j: Expr) -> Expr:
            row = 2 * hidden + j
            return TANH(signed(signed((gate(1, j) * from_h(h, row)) >> 14, 20) + from_x(t, row), 20))

        update = array(lambda j: gate(0, j), (hidden,))

        def state(j: Expr) -> Expr:
            changed = signed((new(j) * one_minus(update[j])) >> 14, 20)
            carried = signed((update[j] * fixed(h[0, j], bias)) >> 14, 20)
            return encode(signed(changed + carried, 20), bias)

        return [array(lambda _, j: state(j), (1, hidden))]

    return _sequence(x, h, step)


@rnn.numerics
def rnn_codes(x: Array, w: Array, r: Array, b: Array, h: Array, f: Formats) -> tuple[Array, ...]:
    """Every step as the activation program computes it: the sum of two words wraps, TANH, one rounding."""
    from_x, from_h = core_words(x, w, r, b, f)

    def step(t: Expr, h: Array) -> list[Array]:
        return [array(lambda _, j: encode(TANH(signed(from_x(t, j) + from_h(h, j), 20)), lift(f["y"].bias)), h.shape)]

    return _sequence(x, h, step)


def _sequence(x: Array, h: Array, step: object) -> tuple[Array, ...]:
    """Return every state and the last one."""
    every = fold_arrays(x.shape[0], [h], step, [CODES], history=True)[0]  # type: ignore[arg-type]
    return (every, *fold_arrays(x.shape[0], [h], step, [CODES]))  # type: ignore[arg-type]


@gru.driver
def drive_gru(
    device: Device, x: Codes, w: Codes, r: Codes, b: Codes, h: Codes, f: Formats, stay: Stay = USUAL
) -> tuple[Codes, ...]:  # fmt: skip
    """Emit one sequence: x [(samples,) t, 1, i], w [3h, i], r [3h, h], b [6h], h [(samples,) 1, h] → all states, the last one."""
    y = run_sequence(device, (x, w, r, b, h), f, GRU_GATES, GRU_PROGRAM, h, stay)
    return y, y[..., -1, :, :]


@rnn.driver
def drive_rnn(
    device: Device, x: Codes, w: Codes, r: Codes, b: Codes, h: Codes, f: Formats, stay: Stay = USUAL
) -> tuple[Codes, ...]:  # fmt: skip
    """Emit one sequence: x [(samples,) t, 1, i], w [h, i], r [h, h], b [2h], h [(samples,) 1, h] → all states, the last one."""
    y = run_sequence(device, (x, w, r, b, h), f, (0,), RNN_PROGRAM, stay=stay)
    return y, y[..., -1, :, :]
