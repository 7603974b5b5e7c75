"""Unrolled recurrences: every spelling is one offload that computes the same; a step that differs is not swallowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import unrolled as u
from offloaded import MAPPINGS, RULES, agree, matched, offloads

from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.frontend.load import load
from rewrite_compiler.frontend.perturb.perturb import perturbed
from rewrite_compiler.limits import DEFAULT


@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
@pytest.mark.parametrize("cell", u.CELLS)
def test_a_spelling_is_one_offload(cell: str, batch_first: bool, tmp_path: Path) -> None:
    source, chosen = matched(u.unrolled(cell, 4, batch_first=batch_first), tmp_path)
    assert offloads(chosen) == {f"flexasr.{u.CELLS[cell][0]}": 1}
    assert {n.op for n in chosen.nodes} - MAPPINGS.keys() <= {"reshape", "transpose"}
    agree(source, chosen)


@pytest.mark.parametrize(("cell", "batch_first"), [("separate", False), ("four products", True), ("gru", True), ("rnn", False)])
def test_a_sequence_may_run_backwards(cell: str, batch_first: bool, tmp_path: Path) -> None:
    source, chosen = matched(u.bidirectional(cell, 4, batch_first=batch_first), tmp_path)
    assert offloads(chosen) == {f"flexasr.{u.CELLS[cell][0]}": 1}
    assert {n.op for n in chosen.nodes} - MAPPINGS.keys() <= {"reshape", "transpose", "reverse"}
    agree(source, chosen)


@pytest.mark.parametrize(("cell", "join"), [("separate", "steps"), ("state first", "whole"), ("gru", "whole"), ("rnn", "steps")])
def test_both_ways_are_an_offload_each(cell: str, join: str, tmp_path: Path) -> None:
    """Outputs joined at every step or as a whole."""
    source, chosen = matched(u.bidirectional(cell, 4, join=join), tmp_path)
    assert offloads(chosen) == {f"flexasr.{u.CELLS[cell][0]}": 2}
    assert {n.op for n in chosen.nodes} - MAPPINGS.keys() <= {"reshape", "transpose", "reverse", "concat"}
    agree(source, chosen)


LONG = (("separate", False, 64), ("four products", True, 14), ("gru", True, 13), ("pair", False, 11), ("rnn", True, 12))


@pytest.mark.parametrize(("cell", "batch_first", "steps"), LONG)
def test_equal_steps_are_saturated_once(cell: str, batch_first: bool, steps: int, tmp_path: Path) -> None:
    """Lengths are no powers of two; most steps are copies of one region, and the sequence is one offload."""
    source = load(u.saved(u.unrolled(cell, steps, batch_first=batch_first), tmp_path)).program
    found = match(source, RULES, list(MAPPINGS.values()), DEFAULT)
    assert (found.saturation.regions, found.saturation.forms) == (steps - 3 + (cell == "pair"), 2)
    assert offloads(found.program) == {f"flexasr.{u.CELLS[cell][0]}": 1}
    assert {n.op for n in found.program.nodes} - MAPPINGS.keys() <= {"reshape", "transpose"}
    assert (found.extraction.status, found.extraction.gap) == ("optimal", 0)
    agree(source, found.program)


def test_equal_steps_go_back_and_forth(tmp_path: Path) -> None:
    source, chosen = matched(u.bidirectional("separate", 12, join="whole"), tmp_path)
    assert offloads(chosen) == {"flexasr.lstm": 2}
    agree(source, chosen)


def test_a_sequence_that_is_no_layer_keeps_what_is_in_its_steps(tmp_path: Path) -> None:
    """FlexASR's LSTM takes one sample: of two, the products of every step are linear layers."""
    source, chosen = matched(u.unrolled("separate", 12, batch=2), tmp_path)
    assert offloads(chosen) == {"flexasr.linear": 24}
    agree(source, chosen)


def test_another_weight_ends_a_long_sequence_where_it_is(tmp_path: Path) -> None:
    g = u.Graph()
    run, other = u.lstm_separate(g), u.lstm_separate(g)
    states: tuple[str, ...] = ("s0", "s1")
    for t in range(30):
        states = (other if t == 17 else run)(g, u.step_of(g, "x", t, batch_first=False), states)
    shape = (1, u.HIDDEN)
    source, chosen = matched(u.model_of(g, {"x": (30, 1, u.INPUTS), "s0": shape, "s1": shape}, states), tmp_path)
    lengths = [chosen.types[n.inputs[0]].shape[0] for n in chosen.nodes if n.op in MAPPINGS]
    assert (lengths[0], lengths[1], sum(lengths)) == (17, 1, 30)
    agree(source, chosen)


def test_a_sequence_may_be_one_step(tmp_path: Path) -> None:
    source, chosen = matched(u.unrolled("separate", 1), tmp_path)
    assert offloads(chosen) == {"flexasr.lstm": 1}
    agree(source, chosen)


def test_a_zero_state_may_be_left_out_of_the_first_step(tmp_path: Path) -> None:
    """Keras's export: the first product of the state, which is zero, is gone."""
    g = u.Graph()
    n = 4 * u.HIDDEN
    wx, wh, b = g.weight(n, u.INPUTS), g.weight(u.HIDDEN, n), g.weight(n)
    c = g.constant(np.zeros((1, u.HIDDEN), np.float32))
    h = ""
    for t in range(3):
        z = u.linear(g, u.step_of(g, "x", t, batch_first=False), wx, b)
        z = g("Add", z, g("Squeeze", g("MatMul", h, wh), g.ints(0))) if h else z
        h, c = u.lstm_step(g, u.gates_of(g, z, 4), c)
    source, chosen = matched(u.model_of(g, {"x": (3, 1, u.INPUTS)}, [h, c]), tmp_path)
    assert offloads(chosen) == {"flexasr.lstm": 1}
    agree(source, chosen)


def test_a_batch_stays_with_layers_that_take_it(tmp_path: Path) -> None:
    source, chosen = matched(u.unrolled("separate", 2, batch=2), tmp_path)
    assert offloads(chosen) == {"flexasr.linear": 4}
    agree(source, chosen)


@pytest.mark.parametrize("cell", ["separate", "gru", "rnn"])
def test_a_step_with_another_weight_ends_the_sequence(cell: str, tmp_path: Path) -> None:
    kind, make = u.CELLS[cell]
    other = make(g := u.Graph(seed=50))
    model = u.unrolled(cell, 3, change={2: other})
    for t in g.initializers:
        t.name = f"other_{t.name}"
    names = {t.name.removeprefix("other_"): t.name for t in g.initializers}
    last = [n for n in model.graph.node if n.op_type in ("Gemm",)][-2:]
    for node in last:
        node.input[:] = [names.get(i, i) if k else i for k, i in enumerate(node.input)]
    model.graph.initializer.extend(g.initializers)
    del model.graph.output[0]  # the last states alone
    source, chosen = matched(model, tmp_path)
    assert offloads(chosen)[f"flexasr.{kind}"] == 2
    agree(source, chosen)


def test_swapped_gates_are_another_cell(tmp_path: Path) -> None:
    """A step whose input and forget gates are exchanged has its weights' rows exchanged: an offload of its own."""

    def swapped(g: u.Graph, x: str, s: object) -> tuple[str, ...]:
        wx, bx, wh, bh = (f"c{n}" for n in range(4))
        i, f, new, o = u.gates_of(g, g("Add", u.linear(g, x, wx, bx), u.linear(g, s[0], wh, bh)), 4)  # type: ignore[index]
        return u.lstm_step(g, (f, i, new, o), s[1])  # type: ignore[index]

    source, chosen = matched(u.unrolled("separate", 3, change={1: swapped}), tmp_path)
    assert offloads(chosen) == {"flexasr.lstm": 3}
    agree(source, chosen)


def test_a_step_in_another_place_ends_the_sequence(tmp_path: Path) -> None:
    """x0, x2, x1 of four: no slice continues the one before, nor begins at the end."""
    g = u.Graph()
    run_cell = u.lstm_separate(g)
    states: tuple[str, ...] = ("s0", "s1")
    for t in (0, 2, 1):
        states = run_cell(g, u.step_of(g, "x", t, batch_first=False), states)
    shape = (1, u.HIDDEN)
    source, chosen = matched(u.model_of(g, {"x": (4, 1, u.INPUTS), "s0": shape, "s1": shape}, states), tmp_path)
    assert offloads(chosen) == {"flexasr.lstm": 3}
    agree(source, chosen)


def test_states_exchanged_are_no_cell(tmp_path: Path) -> None:
    g = u.Graph()
    run_cell = u.lstm_separate(g)
    h, c = run_cell(g, u.step_of(g, "x", 0, batch_first=False), ("s0", "s1"))
    h, c = run_cell(g, u.step_of(g, "x", 1, batch_first=False), (c, h))
    shape = (1, u.HIDDEN)
    source, chosen = matched(u.model_of(g, {"x": (2, 1, u.INPUTS), "s0": shape, "s1": shape}, (h, c)), tmp_path)
    assert offloads(chosen) == {"flexasr.lstm": 2}
    agree(source, chosen)


@pytest.mark.parametrize("seed", [1, 4])
def test_steps_may_be_spelt_differently(seed: int, tmp_path: Path) -> None:
    """Products, operands, copies of weights and of values differ from step to step."""
    model = u.node("lstm", 14)
    changed, applied = perturbed(model, seed, ["lstm-as-steps", "gemm-as-matmul", "swap-operands", "duplicate", "identity"], 0.6)
    assert applied["gemm-as-matmul"] > 2
    source, chosen = matched(changed, tmp_path)
    assert offloads(chosen) == {"flexasr.lstm": 1}
    agree(source, chosen)


def test_every_step_may_have_weights_of_its_own_that_are_equal(tmp_path: Path) -> None:
    model = u.unrolled("separate", 12)
    shared = {t.name: t for t in model.graph.initializer if len(t.dims) == 2 or t.dims[:1] == [4 * u.HIDDEN]}
    for k, node in enumerate(n for n in model.graph.node if n.op_type == "Gemm"):
        for n, name in enumerate(node.input):
            if name in shared:
                copy = model.graph.initializer.add()
                copy.CopyFrom(shared[name])
                copy.name = node.input[n] = f"{name}_{k}"
    source, chosen = matched(model, tmp_path)
    assert offloads(chosen) == {"flexasr.lstm": 1}
    assert len(source.constants) == 4
    agree(source, chosen)


@pytest.mark.parametrize("cell", ["state first", "four products", "rnn"])
def test_states_may_be_as_wide_as_inputs(cell: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then a sum of two products says nothing of which is the state's: only the steps before and after do."""
    monkeypatch.setattr(u, "INPUTS", u.HIDDEN)
    source, chosen = matched(u.unrolled(cell, 12), tmp_path)
    assert offloads(chosen) == {f"flexasr.{u.CELLS[cell][0]}": 1}
    agree(source, chosen)
