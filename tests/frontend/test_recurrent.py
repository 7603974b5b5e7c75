"""LSTM, GRU and RNN: directions, layouts, optional operands, results that are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import agrees, feeds, imported, model, refusal, single

from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.types import TensorType

R = np.random.default_rng(5)
TIME, BATCH, WIDTH, HIDDEN = 4, 2, 3, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """A constant of normal elements."""
    return (R.standard_normal(shape) * 0.5).astype(np.float32)


def operands(op: str, directions: int, *, bias: bool, states: bool, lengths: bool = False, first: int = BATCH) -> list[Any]:
    """The operands of a recurrent node; `first` is the leading extent of the initial states."""
    rows, second = GATES[op] * HIDDEN, directions * BATCH // first
    state = [(first, second, HIDDEN)] * (2 if op == "LSTM" else 1)
    return [
        (TIME, BATCH, WIDTH),
        normal(directions, rows, WIDTH),
        normal(directions, rows, HIDDEN),
        normal(directions, 2 * rows) if bias else None,
        np.full(BATCH, TIME, np.int32) if lengths else None,
        *(state if states else []),
    ]


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("bias", "states"), [(True, True), (False, False), (True, False)])
def test_a_layer_gives_what_onnxruntime_gives(op: str, direction: str, bias: bool, states: bool) -> None:
    directions = 2 if direction == "bidirectional" else 1
    given = operands(op, directions, bias=bias, states=states, first=directions)
    loaded = agrees(single(op, given, results=3 if op == "LSTM" else 2, hidden_size=HIDDEN, direction=direction))
    assert [n.op for n in loaded.program.nodes].count(op.lower()) == directions
    assert not loaded.program.opaque


@pytest.mark.parametrize("flag", [0, 1])
def test_a_gru_resets_before_or_after_its_product(flag: int) -> None:
    given = operands("GRU", 1, bias=True, states=True, first=1)
    agrees(single("GRU", given, results=2, hidden_size=HIDDEN, linear_before_reset=flag))


@pytest.mark.parametrize("activation", ["Tanh", "Relu", "Sigmoid"])
def test_an_rnn_has_an_activation(activation: str) -> None:
    given = operands("RNN", 1, bias=True, states=False)
    loaded = agrees(single("RNN", given, results=2, hidden_size=HIDDEN, activations=[activation]))
    assert dict(next(n for n in loaded.program.nodes if n.op == "rnn").attributes) == {"activation": activation.lower()}


def test_sequence_lengths_that_say_nothing_are_dropped() -> None:
    given = operands("LSTM", 1, bias=True, states=False, lengths=True)
    assert not agrees(single("LSTM", given, results=3, hidden_size=HIDDEN)).program.opaque


def test_a_state_that_is_absent_is_known_to_be_zero() -> None:
    loaded = agrees(single("LSTM", operands("LSTM", 1, bias=False, states=False), results=1, hidden_size=HIDDEN))
    zeros = [dict(n.attributes) for n in loaded.program.nodes if n.op == "full"]
    assert [z["shape"] for z in zeros] == [(8 * HIDDEN,), (BATCH, HIDDEN), (BATCH, HIDDEN)]
    assert {z["value"] for z in zeros} == {0.0}


@pytest.mark.parametrize("outputs", [["y", "", ""], ["", "h", ""], ["", "", "c"], ["y", "", "c"]])
def test_results_may_be_left_out(outputs: list[str]) -> None:
    given = operands("LSTM", 1, bias=True, states=False)
    constants = dict(zip("wrb", given[1:4], strict=True))
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], outputs, hidden_size=HIDDEN)
    proto = model([node], {"x": TensorType((TIME, BATCH, WIDTH))}, [o for o in outputs if o], constants)
    agrees(proto)


@pytest.mark.parametrize("op", GATES)
def test_batch_first_is_time_first_transposed(op: str) -> None:
    given = operands(op, 2, bias=True, states=True, first=2)
    count, attributes = (3 if op == "LSTM" else 2), {"hidden_size": HIDDEN, "direction": "bidirectional"}
    time_first = imported(single(op, given, results=count, **attributes)).program
    batch_first = imported(single(op, [_swapped(x) for x in given], results=count, layout=1, **attributes)).program
    fed = feeds(time_first)
    swapped = [np.swapaxes(fed[v], 0, 1) for v in time_first.inputs]
    wanted = run(time_first, fed)
    found = run(batch_first, dict(zip(batch_first.inputs, swapped, strict=True)))
    for a, b, axes in zip(time_first.outputs, batch_first.outputs, [(2, 0, 1, 3), (1, 0, 2), (1, 0, 2)][:count], strict=True):
        assert np.array_equal(wanted[a].transpose(axes), found[b])


def _swapped(x: Any) -> Any:
    return (x[1], x[0], *x[2:]) if isinstance(x, tuple) else x


WHY = [
    ({"clip": 1.0}, "it has the attribute clip"),
    ({"input_forget": 1}, "it has the attribute input_forget"),
    ({"activations": ["Sigmoid", "Relu", "Tanh"]}, "its activations are sigmoid, relu, tanh"),
]


@pytest.mark.parametrize(("attributes", "reason"), WHY)
def test_variants_stay_opaque(attributes: dict[str, Any], reason: str) -> None:
    proto = single("LSTM", operands("LSTM", 1, bias=True, states=False), results=3, hidden_size=HIDDEN, **attributes)
    (opaque,) = agrees(proto, ops=["opaque"]).program.opaque.values()
    assert opaque.reason == reason


def test_an_activation_of_an_rnn_that_is_not_known() -> None:
    proto = single("RNN", operands("RNN", 1, bias=True, states=False), hidden_size=HIDDEN, activations=["Softsign"])
    (opaque,) = agrees(proto, ops=["opaque"]).program.opaque.values()
    assert opaque.reason == "its activations are softsign"


def test_peepholes_stay_opaque_unless_they_are_zero() -> None:
    given = [*operands("LSTM", 1, bias=True, states=False), None, None, normal(1, 3 * HIDDEN)]
    (opaque,) = agrees(single("LSTM", given, hidden_size=HIDDEN), ops=["opaque"]).program.opaque.values()
    assert opaque.reason == "it has peepholes"
    given[-1] = np.zeros((1, 3 * HIDDEN), np.float32)
    assert not agrees(single("LSTM", given, hidden_size=HIDDEN)).program.opaque


def test_lengths_that_differ_stay_opaque() -> None:
    given = operands("GRU", 1, bias=True, states=False, lengths=True)
    given[4] = np.asarray([TIME, 1], np.int32)
    (opaque,) = agrees(single("GRU", given, results=2, hidden_size=HIDDEN), ops=["opaque"]).program.opaque.values()
    assert opaque.reason == "its sequences have different lengths"


def test_double_precision() -> None:
    given = [("float64", (TIME, BATCH, WIDTH)), *(x.astype(np.float64) for x in operands("LSTM", 1, bias=True, states=False)[1:4])]
    loaded = imported(single("LSTM", given, hidden_size=HIDDEN))
    assert {t.dtype for t in loaded.program.types} == {"float64"}


def test_weights_of_inconsistent_sizes() -> None:
    given = operands("LSTM", 1, bias=True, states=False)
    given[3] = normal(1, 7)
    text = refusal(single("LSTM", given, hidden_size=HIDDEN))
    assert text == 'app.onnx:node "lstm": error[F131]: Operand 3 of LSTM must have shape (1, 40), not (1, 7)'
