"""Tapes and shortcuts by numpy alone: the bits of the simulators where machine code cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_shortcut import CASES, plan_of, shortcuts
from test_tapes import BATCH, normal

from rewrite_compiler.cosim import Engine, affine, fusion, tapes
from rewrite_compiler.lang import codes, convert, kernels, native_fold


@pytest.fixture(autouse=True)
def _no_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tapes.LEAST_BATCHES, "arrays", 2)
    for module in (convert, codes, affine, fusion):
        monkeypatch.setattr(module, "kernels_in_use", lambda: None)
    monkeypatch.setattr(kernels, "launched", None)
    monkeypatch.setattr(native_fold, "fold_function", None)


@pytest.mark.parametrize(("accel", "shape"), [c for c in CASES if "ext16" not in c[0]], ids=lambda c: str(c))
def test_shortcuts_by_numpy_give_the_bits_and_figures_of_the_simulators(accel: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = 40 * normal(3 * BATCH, *shape)  # some of it saturates
    plan = plan_of(tmp_path, accel, x / 40)
    short, plain = Engine(plan, engine="recorded", audit=0, reading="arrays"), Engine(plan, engine="simulator", audit=0)
    found, expected = short.run({"x": x}, batch=BATCH), plain.run({"x": x}, batch=3 * BATCH)
    assert shortcuts(short).keys() == {o.id for o in plan.offloads}, short.tapes.moving
    assert (found.outputs["y"] == expected.outputs["y"]).all()
    seen, wanted = ({n: (s.values, s.saturated, s.range_in, s.range_out) for n, s in r.statistics.items()} for r in (found, expected))
    assert seen == wanted
    assert found.instructions == expected.instructions * 3


def test_few_batches_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    x = normal(3 * BATCH, 1, 5, 9, 9)
    engine = Engine(plan_of(tmp_path, "hlscnn:revision=ext8", x), engine="recorded", audit=0, reading="arrays")
    engine.run({"x": x}, batch=BATCH)
    assert not engine.tapes.idle
