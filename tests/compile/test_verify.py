"""Tests of how a plan is held against its model: rounding is allowed what it moves, everything else is a difference."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import compile_model, plan_onnx, verify
from rewrite_compiler.compile.verify import beyond_rounding, check_plan, differences
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.graph.emit import to_onnx

X = np.linspace(0.5, 1.5, 65, dtype=np.float32)


def cancelling(values: Any) -> dict[str, Any]:
    """Return a sum that leaves only rounding, a plain result and what an integer makes of it."""
    x = values["x"]
    return {"cancels": np.float32(x[::-1].sum(dtype=np.float32) - np.float32(65)), "plain": 3 * x, "code": np.int32(np.rint(x * 8))}


def far(**other: Any) -> list[str]:
    """Return the outputs that are farther from the model's than its rounding moves them."""
    expected = cancelling({"x": X})
    found = {**expected, **{name: np.asarray(y, expected[name].dtype) for name, y in other.items()}}
    return beyond_rounding(differences(expected, found.values()), expected, cancelling, {"x": X})


def test_digits_that_cancel_may_differ() -> None:
    assert far() == []
    assert far(cancels=cancelling({"x": X})["cancels"] + 3e-6) == []
    assert far(cancels=1e-2) == ["cancels"]


@pytest.mark.parametrize("by", [1.0001, 0.9, np.nan, np.inf])
def test_a_difference_that_rounding_does_not_make_is_found(by: float) -> None:
    assert far(plain=3 * X * by) == ["plain"]


def test_integers_differ_by_one_only_where_the_model_moves_them() -> None:
    expected = cancelling({"x": X})["code"]
    assert far(code=expected + 1) == []  # values at a tie: the model's own codes move by one
    assert far(code=expected + 2) == ["code"]


def test_a_result_of_another_shape_differs() -> None:
    expected = cancelling({"x": X})
    assert differences(expected, [expected["cancels"], expected["plain"][:1], expected["code"]])["plain"] == np.inf


def test_the_lowest_value_stands_for_minus_infinity() -> None:
    lowest = np.array([np.finfo(np.float32).min, 2], np.float32)
    assert differences({"y": lowest}, [np.array([-np.inf, 2], np.float32)])["y"] == 0
    assert differences({"y": lowest}, [np.array([-np.inf, np.inf], np.float32)])["y"] == np.inf


def test_what_is_no_number_is_infinitely_far_and_no_distance_is_within_rounding() -> None:
    one = np.ones(2, np.float32)
    assert differences({"y": one}, [np.array([1, np.nan], np.float32)])["y"] == math.inf
    assert beyond_rounding({"y": math.nan}, {"y": one}, lambda values: {"y": one}, {"x": X}) == ["y"]


def test_a_plan_is_held_against_its_model_at_decision_boundaries_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random inputs hardly meet the bound of a comparison; the inputs at boundaries are compared after them."""
    app = find_application("digits_mlp")
    plan = compile_model(app.model, ["flexasr"])
    (name,) = (plan.program.names[v] for v in plan.program.inputs)
    edge = {name: np.zeros(plan.program.types[plan.program.inputs[0]].shape, np.float32)}
    compared = list[Any]()

    def compare(plan: Any, compiled: Any, run: Any, values: Any, expected: Any, model: Any, limits: Any) -> dict[str, float]:
        compared.append(values)
        assert all(np.array_equal(x, y) for x, y in zip(run(values).values(), expected.values(), strict=True))
        return {"logits": 0.25}

    monkeypatch.setattr(verify, "_checked_deviations", compare)
    monkeypatch.setattr(verify, "edge_inputs", lambda plan, random: [edge])
    found = verify.check_plan(plan, to_onnx(plan.source), app.model)
    assert (found.relative_difference, found.against) == (0.25, "model")
    assert len(compared) >= 2
    assert compared[-1] is edge
    assert np.ptp(compared[0][name]) > 0


@pytest.mark.parametrize(("size", "sentence"), [(None, "there is no such file"), (0, "is empty"), (20 << 30, "at most")])
def test_a_model_that_cannot_be_read_is_refused_before_it_is(size: int | None, sentence: str, tmp_path: Path) -> None:
    plan, file = compile_model(find_application("digits_mlp").model, ["flexasr"]), tmp_path / "model.onnx"
    if size is not None:
        file.touch()
        os.truncate(file, size)  # a sparse file, which takes no room
    with pytest.raises(FlexmatchError, match=sentence):
        check_plan(plan, plan_onnx(plan), file)
