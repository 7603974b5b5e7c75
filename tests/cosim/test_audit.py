"""The audit recomputes parts of device calls by the oracle, and sees a simulator that answers wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rewrite_compiler.apps import named
from rewrite_compiler.compile import compile_model
from rewrite_compiler.compile.execute import Prepared
from rewrite_compiler.cosim import Settings, cosimulate

APP = named("digits_mlp")


def audited(samples: int = 4) -> Any:
    plan = compile_model(APP.model, ["flexasr"])
    return cosimulate(plan, APP.data, calibrate=APP.calibration, settings=Settings(samples=samples, audit=100)).document["simulator"]


def test_arrays_and_oracle_agree() -> None:
    found = audited()
    assert found["audited"] >= 300
    assert found["audit_mismatches"] == 0


def test_a_wrong_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Prepared.call

    def wrong(self: Prepared, device: Any, codes: Any, slices: Any) -> Any:
        results = right(self, device, codes, slices)
        is_batch = next(iter(results.values())).ndim == 3
        return {n: np.where(np.arange(y.size).reshape(y.shape) % 2, y ^ 1, y) if is_batch else y for n, y in results.items()}

    monkeypatch.setattr(Prepared, "call", wrong)
    assert audited()["audit_mismatches"] > 0
