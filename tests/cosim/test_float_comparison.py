"""What is kept of a comparison with float values is that of the very same numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.compile.host.data_movement import Move, PendingMove, samples_of
from rewrite_compiler.compile.host.lazy_codes import LazyCodes, elements_of
from rewrite_compiler.compile.offload.execute import PreparedOffload, Statistics
from rewrite_compiler.cosim.cosimulate import Settings, cosimulate, dataset_for, with_formats
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.cosim.float_comparison import FloatComparison, bits_of
from rewrite_compiler.lang.formats import Fixed

MLP = find_application("digits_mlp")
MODULE = sys.modules["rewrite_compiler.cosim.float_comparison"]


@pytest.fixture(scope="module")
def plan() -> Plan:
    made = compile_model(MLP.model, ["vta"])
    return with_formats(made, dataset_for(made, MLP.data), MLP.calibration)[0]


def test_what_was_compared_in_an_earlier_run_is_not_computed_again(plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    compared: list[str] = []
    figures = FloatComparison._figures

    def counted(self: FloatComparison, prepared: PreparedOffload, *given: Any) -> Any:
        compared.append(prepared.offload.id)
        return figures(self, prepared, *given)

    monkeypatch.setattr(FloatComparison, "_figures", counted)
    reports = [cosimulate(plan, MLP.data, settings=Settings(samples=24, threads=n, batch=8, audit=0)) for n in (1, 1, 2)]
    assert sorted(compared) == sorted(3 * [o.id for o in plan.offloads])  # in each batch
    assert all(r.document["offloads"] == reports[0].document["offloads"] for r in reports)
    cosimulate(plan, MLP.data, settings=Settings(samples=23, batch=8, audit=0))
    assert len(compared) > 3 * len(plan.offloads)


def test_any_other_number_is_compared_anew(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {v: np.ones((3, *plan.program.types[v].shape[1:]), np.float32) for v in plan.program.inputs}
    prepared = Engine(plan).prepared[plan.offloads[0].id]
    o = prepared.offload
    names = [x.name for x in o.mapping.operands if x.name not in prepared.constants]
    operands = {n: np.arange(12, dtype=np.float32).reshape(3, 4) for n in names}
    result = np.arange(6, dtype=np.float32).reshape(3, 2)

    def key(**other: Any) -> str:
        given: Mapping[str, Any] = {
            "plan": plan, "inputs": inputs, "count": 3, "start": 0, "prepared": prepared, "operands": operands, "result": result, **other
        }  # fmt: skip
        comparison = FloatComparison(given["plan"], given["inputs"], given["count"], given["start"], 60)
        found = comparison._key(given["prepared"], given["operands"], given["result"])
        assert found is not None
        return found

    (name, f), *_ = o.formats.items()
    constants = {v: c + (c.dtype.kind == "f") for v, c in plan.program.constants.items()}
    changed = result.copy()
    changed[2, 1] = np.nextafter(changed[2, 1], np.float32(0))
    keys = [
        key(),
        key(inputs={v: x * 2 for v, x in inputs.items()}),
        key(count=2),
        key(start=3),
        key(operands={n: x[:, ::-1] for n, x in operands.items()}),
        key(operands={n: x.astype(np.float64) for n, x in operands.items()}),
        key(result=changed),
        key(result=-result),
        key(plan=replace(plan, program=replace(plan.program, constants=constants))),
        key(prepared=PreparedOffload(replace(o, formats={**o.formats, name: replace(f, width=f.width + 1)}), prepared.constants)),  # type: ignore[type-var, call-arg, attr-defined]
        key(prepared=PreparedOffload(o, {n: x + 1 for n, x in prepared.constants.items()})),
    ]
    assert key() == keys[0]
    for place, other in ((f"{MODULE.__name__}.engine_hash", lambda: "other"), (f"{MODULE.__name__}.version", lambda name: "other")):
        with monkeypatch.context() as patch:
            patch.setattr(place, other)
            keys.append(key())
    assert len(set(keys)) == len(keys)


def test_bits_of_lazy_values_are_told_without_their_elements() -> None:
    codes = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)
    f, g = Fixed(8, 4), Fixed(8, 5)
    move = Move(0, np.array([[1, 0], [3, 2]]), 4)  # type: ignore[arg-type]
    values: list[Any] = [
        codes, codes.astype(np.int16), codes.reshape(2, 8), LazyCodes(codes, f, (-1, 1)), LazyCodes(codes, g, (-1, 1)),
        LazyCodes(codes, f, (-1, 1), (("max", 0.0),)), LazyCodes(codes, f, (-1, 1), (("min", 0.0),)),
        LazyCodes(codes + np.int8(1), f, (-1, 1)),
        PendingMove(codes, move), PendingMove(codes + np.int8(1), move), PendingMove(codes, replace(move, places=move.places.T)),
    ]  # fmt: skip
    bits = [repr(bits_of(x)) for x in values]
    assert len(set(bits)) == len(bits)
    for x in values:
        assert np.array_equal(elements_of(samples_of(x, slice(1, 2))), elements_of(x)[1:2])


def test_figures_of_a_kept_comparison_are_added_as_computed_ones(plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    data = dataset_for(plan, MLP.data).rows(slice(0, 4)).inputs
    outcomes = [Engine(plan, audit=0).run(data, batch=2) for _ in range(2)]
    for first, second in zip(*(o.statistics.values() for o in outcomes), strict=True):
        assert isinstance(first, Statistics)
        assert {**vars(first), "seconds": 0} == {**vars(second), "seconds": 0}
    assert outcomes[0].numerics == outcomes[1].numerics
