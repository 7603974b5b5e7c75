"""The audit recomputes parts of device calls by the oracle, and sees a simulator that answers wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.apps import named
from rewrite_compiler.compile import compile_model
from rewrite_compiler.compile.execute import Prepared
from rewrite_compiler.cosim import Settings, cosimulate
from rewrite_compiler.cosim.audit import _unit

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

    def wrong(self: Prepared, *given: Any) -> Any:
        results = right(self, *given)
        is_batch = next(iter(results.values())).ndim == 3
        return {n: np.where(np.arange(y.size).reshape(y.shape) % 2, y ^ 1, y) if is_batch else y for n, y in results.items()}

    monkeypatch.setattr(Prepared, "call", wrong)
    assert audited()["audit_mismatches"] > 0


def test_a_wrong_code_of_the_last_sample_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Prepared.call

    def wrong(self: Prepared, *given: Any) -> Any:
        results = right(self, *given)
        if next(iter(results.values())).ndim != 3:
            return results
        changed = {n: y.copy() for n, y in results.items()}
        for y in changed.values():
            y[-1] ^= 1
        return changed

    monkeypatch.setattr(Prepared, "call", wrong)
    found = audited(samples=4)
    assert 0 < found["audit_mismatches"] < found["audited"]


def test_every_unit_of_a_dimension_is_drawn() -> None:
    random = np.random.default_rng(0)
    drawn = {(u.start, u.stop) for u in (_unit(slice(3, 20), 4, random) for _ in range(200))}
    assert drawn == {(3, 7), (7, 11), (11, 15), (15, 19), (19, 20)}


@pytest.mark.parametrize("accelerator", ["flexasr", "hlscnn", "hlscnn:revision=ext16", "vta"])
def test_machine_code_gives_the_same_bits(accelerator: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    app = named("digits_cnn")
    plan = compile_model(app.model, [accelerator])
    runs = {
        tier: cosimulate(plan, app.data, calibrate=app.calibration, settings=Settings(samples=16, batch=8, audit=10, tier=tier, threads=2))
        for tier in ("native", "arrays")
    }
    native, arrays = (runs[tier].document for tier in ("native", "arrays"))
    assert all((runs["native"].accelerated[k] == x).all() for k, x in runs["arrays"].accelerated.items())
    assert native["offloads"] == arrays["offloads"]
    assert native["simulator"] == {**arrays["simulator"], "tier": "native"}
    assert native["simulator"]["audited"] > 0
    assert native["simulator"]["audit_mismatches"] == 0
    assert [n for n in native["notes"] if "without machine code" in n] == []


def test_what_ran_without_machine_code_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.ila.simulate.loaded_kernels", lambda: "machine code cannot be made here: no LLVM")
    plan = compile_model(APP.model, ["flexasr"])
    found = cosimulate(plan, APP.data, calibrate=APP.calibration, settings=Settings(samples=4, tier="native")).document
    count = len(plan.targets[0].ila().instructions)
    assert f"{count} instructions of flexasr ran without machine code: machine code cannot be made here: no LLVM" in found["notes"]
