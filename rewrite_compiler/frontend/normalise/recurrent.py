"""Lowerings of recurrent layers: one core operation a direction, time-major."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.program import Value
from ...ops.op import ShapeError
from ..site.context import Unsupported
from ..site.site import Lowering, Site

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True)
class Kind:
    """A recurrent operator: its core operator, numbers of gates and states, and default activations."""

    op: str
    gates: int
    states: int
    activations: tuple[str, ...]


_KINDS = {
    "LSTM": Kind("lstm", 4, 2, ("sigmoid", "tanh", "tanh")),
    "GRU": Kind("gru", 3, 1, ("sigmoid", "tanh")),
    "RNN": Kind("rnn", 1, 1, ("tanh",)),
}
X, W, R, B, LENGTHS, FIRST_STATE, PEEPHOLES = 0, 1, 2, 3, 4, 5, 7


def _layer(kind: Kind) -> Callable[[Site], list[Value]]:
    def lower(site: Site) -> list[Value]:
        directions = _checked_directions(site, kind)
        x = _time_first(site, site.value(X))
        parts = [_one_direction(site, kind, x, d, backwards) for d, backwards in enumerate(directions)]
        return _stacked_directions(site, kind, parts)

    return lower


def _checked_directions(site: Site, kind: Kind) -> tuple[bool, ...]:
    if site.get("direction", "forward") not in DIRECTIONS:
        raise ShapeError(f'direction of {site.op} must be forward, reverse or bidirectional, not "{site.get("direction", "")}"')
    directions = DIRECTIONS[site.get("direction", "forward")]
    for n in (X, W, R, B, FIRST_STATE, FIRST_STATE + 1):
        if site.has(n):
            site.require_float_at(n)
    _check_shapes(site, kind, len(directions))
    _check_variant(site, kind, len(directions))
    return directions


def _check_shapes(site: Site, kind: Kind, directions: int) -> None:
    if [site.rank(n) for n in (X, W, R)] != [3, 3, 3]:
        raise ShapeError(f"{site.op} needs X, W and R of rank 3, not {site.shape(X)}, {site.shape(W)} and {site.shape(R)}")
    time, batch, width = (site.shape(X)[a] for a in ((1, 0, 2) if site.flag("layout") else (0, 1, 2)))
    hidden = int(site.get("hidden_size", site.shape(R)[2]))
    rows = kind.gates * hidden
    state = (batch, directions, hidden) if site.flag("layout") else (directions, batch, hidden)
    expected_shapes = {W: (directions, rows, width), R: (directions, rows, hidden), B: (directions, 2 * rows), LENGTHS: (batch,)}
    expected_shapes |= {FIRST_STATE + n: state for n in range(kind.states)}
    for n, expected in expected_shapes.items():
        if site.has(n) and site.shape(n) != expected:
            raise ShapeError(f"Operand {n} of {site.op} must have shape {expected}, not {site.shape(n)}")
    if site.has(LENGTHS) and not np.all(site.required_data(LENGTHS, "sequence lengths") == time):
        raise Unsupported("its sequences have different lengths")


def _check_variant(site: Site, kind: Kind, directions: int) -> None:
    if site.has(PEEPHOLES) and np.any(site.required_data(PEEPHOLES, "peepholes")):
        raise Unsupported("it has peepholes")
    for name in ("clip", "input_forget", "activation_alpha", "activation_beta"):
        if site.get(name, 0):
            raise Unsupported(f"it has the attribute {name}")
    activations = tuple(a.lower() for a in site.get("activations", ())) or kind.activations * directions
    if kind.op == "rnn":
        if len(activations) != directions or any(a not in ("tanh", "relu", "sigmoid") for a in activations):
            raise Unsupported(f"its activations are {', '.join(activations)}")
    elif activations != kind.activations * directions:
        raise Unsupported(f"its activations are {', '.join(activations)}")


def _time_first(site: Site, x: Value) -> Value:
    return site.transpose(x, (1, 0, 2)) if site.flag("layout") else x


def _direction_weights(site: Site, v: Value, d: int) -> Value:
    """Return the weights of one direction."""
    shape = site.type(v).shape
    direction_slice = site.apply("slice", v, axis=0, start=d, stop=d + 1, step=1) if shape[0] > 1 else v
    return site.reshape(direction_slice, shape[1:])


def _initial_state(site: Site, n: int, d: int, shape: tuple[int, int]) -> Value:
    if not site.has(n):
        return site.zeros(shape, site.value(X))
    v = _time_first(site, site.value(n))
    direction_slice = site.apply("slice", v, axis=0, start=d, stop=d + 1, step=1) if site.type(v).shape[0] > 1 else v
    return site.reshape(direction_slice, shape)


def _one_direction(site: Site, kind: Kind, x: Value, d: int, backwards: bool) -> list[Value]:
    w, r = _direction_weights(site, site.value(W), d), _direction_weights(site, site.value(R), d)
    rows, hidden = site.type(r).shape
    b = _direction_weights(site, site.value(B), d) if site.has(B) else site.zeros((2 * rows,), x)
    time, batch = site.type(x).shape[:2]
    states = [_initial_state(site, FIRST_STATE + n, d, (batch, hidden)) for n in range(kind.states)]
    sequence = _reversed(site, x, time) if backwards else x
    history, *last = site.apply_all(kind.op, sequence, w, r, b, *states, **_extra_attributes(site, kind, d))
    return [_reversed(site, history, time) if backwards else history, *last]


def _extra_attributes(site: Site, kind: Kind, d: int) -> dict[str, int | str]:
    if kind.op == "gru":
        return {"linear_before_reset": site.flag("linear_before_reset")}
    if kind.op == "rnn":
        return {"activation": (site.get("activations", ()) or ("Tanh",) * (d + 1))[d].lower()}
    return {}


def _reversed(site: Site, x: Value, time: int) -> Value:
    return site.gather(x, range(time - 1, -1, -1), 0)


def _stacked_directions(site: Site, kind: Kind, parts: Sequence[Sequence[Value]]) -> list[Value]:
    """Return Y[T, D, N, H] and the last states [D, N, H], or their batch-first forms."""
    results = []
    for n in range(1 + kind.states):
        axis = 1 if n == 0 else 0
        pieces = [_with_axis(site, part[n], axis) for part in parts]
        stacked = pieces[0] if len(pieces) == 1 else site.apply("concat", *pieces, axis=axis)
        if site.flag("layout"):
            stacked = site.transpose(stacked, (2, 0, 1, 3) if n == 0 else (1, 0, 2))
        results.append(stacked)
    return results


def _with_axis(site: Site, v: Value, axis: int) -> Value:
    shape = site.type(v).shape
    return site.reshape(v, (*shape[:axis], 1, *shape[axis:]))


TABLE: dict[str, Lowering] = {name: _layer(kind) for name, kind in _KINDS.items()}
