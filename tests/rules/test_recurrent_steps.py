"""Steps of a recurrence that keep an axis of steps, or take their part of a product of the whole sequence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import unrolled as u
from offloaded import MAPPINGS, agree, matched, offloads

ONE = np.asarray(1.0, np.float32)


def layer(g: u.Graph, x: str, w: str, b: str) -> str:
    return str(g("Add", g("MatMul", x, w), b))


def cell(g: u.Graph, kind: str, x: str, h: str, states: tuple[str, ...]) -> tuple[str, ...]:
    """The equations of a cell on the products of input and state."""
    if kind == "rnn":
        return (g("Tanh", g("Add", h, x)),)
    if kind == "lstm":
        gates = g("Split", g("Add", x, h), outputs=4, axis=-1, num_outputs=4)
        return u.lstm_step(g, gates, states[1])
    (xr, xz, xn), (hr, hz, hn) = (g("Split", v, outputs=3, axis=-1, num_outputs=3) for v in (x, h))
    r, z = g("Sigmoid", g("Add", xr, hr)), g("Sigmoid", g("Add", xz, hz))
    new = g("Tanh", g("Add", xn, g("Mul", r, hn)))
    return (g("Add", g("Mul", g("Sub", g.constant(ONE), z), new), g("Mul", z, states[0])),)


def recurrence(
    kind: str, steps: int, *, hoisted: bool, batch_first: bool, state: int = 3, step: int = 3, from_zero: bool = False
) -> object:  # fmt: skip
    """Return a model whose states have rank `state` and whose steps rank `step`; the first product may be left as its bias."""
    g, count, axis = u.Graph(), u.GATES[kind] * u.HIDDEN, int(batch_first)
    (wx, bx), (wh, bh) = ((g.weight(n, count), g.weight(count)) for n in (u.INPUTS, u.HIDDEN))
    shape = (*(1,) * (state - 1), u.HIDDEN)
    names = tuple(f"s{n}" for n in range(2 if kind == "lstm" else 1))
    states = tuple(g.constant(np.zeros(shape, np.float32)) for _ in names) if from_zero else names
    bias = next(np.asarray(t.float_data or np.frombuffer(t.raw_data, np.float32)) for t in g.initializers if t.name == bh)
    x, kept = layer(g, "x", wx, bx) if hoisted else "x", []
    for t in range(steps):
        xt = g("Slice", x, g.ints(t), g.ints(t + 1), g.ints(axis))
        xt = xt if step == 3 else g("Squeeze", xt, g.ints(axis))
        h = g.constant(bias.reshape(*(1,) * (state - 1), -1)) if from_zero and not t else layer(g, states[0], wh, bh)
        states = cell(g, kind, xt if hoisted else layer(g, xt, wx, bx), h, states)
        kept.append(states[0] if state == 3 else g("Unsqueeze", states[0], g.ints(axis)))
    inputs = {"x": (1, steps, u.INPUTS) if batch_first else (steps, 1, u.INPUTS)} | ({} if from_zero else dict.fromkeys(names, shape))
    return u.model_of(g, inputs, [g("Concat", *kept, axis=axis), *states])


def is_one_layer(model: object, kind: str, folder: Path) -> None:
    source, chosen = matched(model, folder)
    assert offloads(chosen) == {f"flexasr.{kind}": 1}
    assert {n.op for n in chosen.nodes} - MAPPINGS.keys() <= {"reshape", "transpose"}
    agree(source, chosen)


@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
@pytest.mark.parametrize("hoisted", [False, True], ids=["product by step", "product of all steps"])
@pytest.mark.parametrize("kind", u.GATES)
def test_states_may_keep_the_axis_of_steps(kind: str, hoisted: bool, batch_first: bool, tmp_path: Path) -> None:
    is_one_layer(recurrence(kind, 4, hoisted=hoisted, batch_first=batch_first), kind, tmp_path)


@pytest.mark.parametrize(("state", "step"), [(2, 2), (3, 2)])
@pytest.mark.parametrize("kind", u.GATES)
def test_a_product_of_the_whole_sequence_is_one_of_every_step(kind: str, state: int, step: int, tmp_path: Path) -> None:
    is_one_layer(recurrence(kind, 3, hoisted=True, batch_first=False, state=state, step=step), kind, tmp_path)


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_a_zero_state_may_leave_the_bias_of_its_product(kind: str, tmp_path: Path) -> None:
    """PyTorch's export of a layer whose steps it writes out: the first state's product is folded into a constant like the bias."""
    is_one_layer(recurrence(kind, 3, hoisted=True, batch_first=False, step=2, from_zero=True), kind, tmp_path)


def test_many_steps_of_one_product_are_one_layer(tmp_path: Path) -> None:
    is_one_layer(recurrence("lstm", 12, hoisted=True, batch_first=True), "lstm", tmp_path)
