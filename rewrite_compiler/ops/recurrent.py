"""Recurrent layers, one direction, time first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..lang.arithmetic import maximum
from ..lang.binders import Array, FoldResult, array, as_shape, fold_arrays, reduce_sum
from ..lang.expr import Expr, as_real, call, lift
from .op import STAGE, Shape, ShapeError, op

GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def _shapes(name: str, states: int) -> Callable[..., tuple[Shape, ...]]:
    gates = GATES[name]

    def shape(x: Shape, w: Shape, r: Shape, b: Shape, *initial: Shape, **_: object) -> tuple[Shape, ...]:
        if len(x) != 3 or len(w) != 2 or len(r) != 2 or w[0] % gates:
            raise ShapeError(f"{name} needs x[T, N, I], w[{gates}·H, I] and r[{gates}·H, H], not {x}, {w} and {r}")
        hidden = w[0] // gates
        required = {"w": ((gates * hidden, x[2]), w), "r": ((gates * hidden, hidden), r), "b": ((2 * gates * hidden,), b)}
        required |= {f"initial state {n}": ((x[1], hidden), s) for n, s in enumerate(initial)}
        for operand, (expected, actual) in required.items():
            if expected != actual:
                raise ShapeError(f"{operand} of {name} must have shape {expected}, not {actual}")
        return ((x[0], x[1], hidden), *[(x[1], hidden)] * states)

    return shape


def _macs(x: Shape, w: Shape, r: Shape, *_: Shape, **__: object) -> int:
    return x[0] * x[1] * w[0] * (w[1] + r[1])


def _gate(x: Array, w: Array, b: Array, h: Array, r: Array, hidden: int, gate: int, count: int) -> Callable[[Expr, Expr, Expr], Expr]:
    """Return (t, n, j) → x[t]·w + b + h·r + b' of one gate."""

    read = _steps(x)

    def value(t: Expr, n: Expr, j: Expr) -> Expr:
        row = gate * hidden + j
        from_x = reduce_sum(lambda c: read(t, n, c) * w[row, c], w.shape[1])
        from_h = reduce_sum(lambda c: h[n, c] * r[row, c], r.shape[1])
        return from_x + from_h + b[row] + b[count * hidden + row]

    return value


def _steps(x: Array) -> Callable[[Expr, Expr, Expr], Expr]:
    """Return (t, n, c) → x[t, n, c]; a sequence without steps has no element to read, and no step that would."""
    return (lambda t, n, c: x[t, n, c]) if x.shape[0] != 0 else lambda t, n, c: as_real(lift(0)) if x.real else lift(0)


def _gate_sum_shape(x: Shape, h: Shape, w: Shape, r: Shape, a: Shape, b: Shape) -> Shape:
    if len(x) != 2 or len(h) != 2 or x[0] != h[0] or len(w) != 2 or w[1] != x[1]:
        raise ShapeError(f"gate_sum needs x[N, I], h[N, H] and w[G, I], not {x}, {h} and {w}")
    for operand, actual, expected in (("r", r, (w[0], h[1])), ("a", a, (w[0],)), ("b", b, (w[0],))):
        if actual != expected:
            raise ShapeError(f"{operand} of gate_sum must have shape {expected}, not {actual}")
    return (x[0], w[0])


@op("gate_sum", "x h w r a b", _gate_sum_shape, kind=STAGE, macs=lambda x, h, w, r, a, b: x[0] * w[0] * (x[1] + h[1]))
def gate_sum(x: Array, h: Array, w: Array, r: Array, a: Array, b: Array) -> Array:
    """The pre-activation of a recurrent gate, x·wᵀ + h·rᵀ + a + b: x [N, I], h [N, H], w [G, I], r [G, H], a and b [G] → [N, G]."""

    def element(n: Expr, j: Expr) -> Expr:
        from_x = reduce_sum(lambda c: x[n, c] * w[j, c], w.shape[1])
        from_h = reduce_sum(lambda c: h[n, c] * r[j, c], r.shape[1])
        return from_x + from_h + a[j] + b[j]

    return array(element, (x.shape[0], w.shape[0]))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e⁻ˣ)."""
    return 1 / (1 + call("exp", -x))


@op("lstm", "x w r b h c", _shapes("lstm", 2), outputs=3, macs=_macs)
def lstm(x: Array, w: Array, r: Array, b: Array, h: Array, c: Array) -> tuple[Array, ...]:
    """Long short-term memory: x [T, N, I], w [4H, I], r [4H, H], b [8H], h and c [N, H].

    Gates in ONNX order i, o, f, c; b holds the input biases, then the recurrent ones.

    c' = σ(f)·c + σ(i)·tanh(g) and h' = σ(o)·tanh(c'); the outputs are all h, the last h, the last c.
    """
    hidden = int(w.shape[0]) // 4  # type: ignore[arg-type]

    def step(t: Expr, h: Array, c: Array) -> list[Array]:
        i, o, f, g = (_gate(x, w, b, h, r, hidden, n, 4) for n in range(4))
        cell = array(lambda n, j: sigmoid(f(t, n, j)) * c[n, j] + sigmoid(i(t, n, j)) * call("tanh", g(t, n, j)), c.shape)
        return [array(lambda n, j: sigmoid(o(t, n, j)) * call("tanh", cell[n, j]), h.shape), cell]

    last = fold_arrays(x.shape[0], [h, c], step)
    return _history(last[0]), last[0], last[1]


def _history(last: Array) -> Array:
    if not isinstance(last, FoldResult):
        raise TypeError("a history belongs to a fold")
    return replace(last, shape=(*as_shape(last.fold.extent), *last.shape), history=True)


@op("gru", "x w r b h", _shapes("gru", 1), attributes="linear_before_reset:int", outputs=2, macs=_macs)
def gru(x: Array, w: Array, r: Array, b: Array, h: Array, *, linear_before_reset: int) -> tuple[Array, ...]:
    """Gated recurrent unit: x [T, N, I], w [3H, I], r [3H, H], b [6H], h [N, H]; gates in ONNX order z, r, h.

    h' = (1 − z)·n + z·h; the outputs are all h [T, N, H] and the last h [N, H].
    """
    hidden, read = int(w.shape[0]) // 3, _steps(x)  # type: ignore[arg-type]

    def step(t: Expr, h: Array) -> list[Array]:
        update, reset = (_gate(x, w, b, h, r, hidden, n, 3) for n in range(2))
        gate = array(lambda n, j: sigmoid(reset(t, n, j)), h.shape)

        def candidate(n: Expr, j: Expr) -> Expr:
            row = 2 * hidden + j
            from_x = reduce_sum(lambda c: read(t, n, c) * w[row, c], w.shape[1]) + b[row]
            bias = b[3 * hidden + row]
            if linear_before_reset:
                return call("tanh", from_x + gate[n, j] * (reduce_sum(lambda c: h[n, c] * r[row, c], hidden) + bias))
            return call("tanh", from_x + reduce_sum(lambda c: gate[n, c] * h[n, c] * r[row, c], hidden) + bias)

        proposal = array(candidate, h.shape)
        z = array(lambda n, j: sigmoid(update(t, n, j)), h.shape)
        return [array(lambda n, j: (1 - z[n, j]) * proposal[n, j] + z[n, j] * h[n, j], h.shape)]

    (last,) = fold_arrays(x.shape[0], [h], step)
    return _history(last), last


@op("rnn", "x w r b h", _shapes("rnn", 1), attributes="activation:string", outputs=2, macs=_macs)
def rnn(x: Array, w: Array, r: Array, b: Array, h: Array, *, activation: str) -> tuple[Array, ...]:
    """Elman network: h' = f(x·wᵀ + h·rᵀ + b). Outputs: all h [T, N, H], the last h [N, H].

    Raises:
        ShapeError: `activation` is none of tanh, sigmoid and relu.
    """
    hidden = int(w.shape[0])  # type: ignore[arg-type]
    functions: dict[str, Callable[[Expr], Expr]] = {"tanh": lambda e: call("tanh", e), "sigmoid": sigmoid, "relu": _relu}
    if activation not in functions:
        raise ShapeError(f'Activation of rnn must be one of {", ".join(functions)}, not "{activation}"')

    def step(t: Expr, h: Array) -> list[Array]:
        gate = _gate(x, w, b, h, r, hidden, 0, 1)
        return [array(lambda n, j: functions[activation](gate(t, n, j)), h.shape)]

    (last,) = fold_arrays(x.shape[0], [h], step)
    return _history(last), last


def _relu(e: Expr) -> Expr:
    return maximum(e, 0)
