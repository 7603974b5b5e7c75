"""Where onnxruntime's optimiser refuses a model, or changes what it computes, the plan is checked against the model as written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from small_models import node, weight, written

from rewrite_compiler.compile import compile_model, plan_onnx
from rewrite_compiler.compile.verify import PlanDiffers, check_plan

AS_WRITTEN = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


class Refusing:
    """A session of an optimiser that refuses every model that has a MatMul."""

    make: Callable[..., Any] = staticmethod(onnxruntime.InferenceSession)

    def __init__(self, source: Any, options: Any, **settings: Any) -> None:
        self.is_optimised = options.graph_optimization_level != AS_WRITTEN
        self.has_product = isinstance(source, str)  # the model is a file, the plan is not
        if self.is_optimised and self.has_product:
            self.refuse()
        self.real = self.make(source, options, **settings)
        self.get_inputs, self.get_outputs = self.real.get_inputs, self.real.get_outputs

    def refuse(self) -> None:
        raise RuntimeError("input to Range should be scalars")

    def run(self, wanted: Sequence[str], inputs: Mapping[str, Any], _: Any = None) -> list[Any]:
        return list(self.real.run(wanted, dict(inputs)))


class Changing(Refusing):
    """A session of an optimiser that makes all results of a model half as large again."""

    def refuse(self) -> None:
        pass

    def run(self, wanted: Sequence[str], inputs: Mapping[str, Any], _: Any = None) -> list[Any]:
        return [x * np.float32(1.5 if self.is_optimised and self.has_product else 1) for x in super().run(wanted, inputs)]


@pytest.mark.parametrize(
    ("session", "said"),
    [
        (Refusing, "onnxruntime's optimiser refuses the model (small.onnx cannot be run on the host: input to Range should be scalars)"),
        (Changing, "onnxruntime's optimiser changes what the model computes, by 0.5 of the largest value of y"),
    ],
)
def test_the_model_as_it_is_written_is_the_reference(session: Any, said: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(model, [node("MatMul", "x w", "y")], (2, 8), ["y"], w=weight(8, 4))
    plan = compile_model(model, ["vta"])
    content = plan_onnx(plan)
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    checked = check_plan(plan, content, model)
    assert (checked.against, checked.outputs) == ("model", 1)
    assert checked.relative_difference is not None
    assert checked.relative_difference < 1e-6
    assert checked.defaults == f"{said}; the plan was checked against the model as it is written"


def test_a_plan_that_differs_from_the_model_as_it_is_written_is_found(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(model, [node("MatMul", "x w", "y")], (2, 8), ["y"], w=weight(8, 4))
    other = plan_onnx(compile_model(model, ["vta"]))
    written(model, [node("MatMul", "x w", "y")], (2, 8), ["y"], w=2 * weight(8, 4))
    plan = compile_model(model, ["vta"])
    with pytest.raises(PlanDiffers, match="the plan differs from its model by"):
        check_plan(plan, other, model)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Changing)
    with pytest.raises(PlanDiffers, match="the plan differs from its model by"):
        check_plan(plan, other, model)
