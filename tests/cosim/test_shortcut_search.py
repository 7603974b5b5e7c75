"""Searches for shortcuts by several threads: what one thread finds, never more at a time than there is room for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_shortcut import CASES, plan_of, shortcuts
from test_tapes import BATCH, normal

from rewrite_compiler.cosim import Engine, search
from rewrite_compiler.lang.twin import NoTwin, Twin


@pytest.mark.parametrize(("accel", "shape"), CASES, ids=[a for a, _ in CASES])
@pytest.mark.parametrize("room", [0, search.ROOM])
def test_several_threads_find_what_one_finds(
    room: int, accel: str, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ROOM", room)
    x = 40 * normal(2 * BATCH, *shape)
    plan = plan_of(tmp_path, accel, x / 40)
    one, several = (
        Engine(plan, engine="recorded", audit=0, reading="native"),
        Engine(plan, engine="recorded", audit=0, reading="native", threads=3),
    )
    expected, found = one.run({"x": x}, batch=BATCH), several.run({"x": x}, batch=BATCH)
    assert shortcuts(several).keys() == shortcuts(one).keys() == {o.id for o in plan.offloads}
    np.testing.assert_array_equal(found.outputs["y"], expected.outputs["y"])
    assert found.statistics == expected.statistics


def test_what_has_no_twin_is_looked_at_on_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Twin, call: Any) -> Any:
        raise NoTwin

    monkeypatch.setattr(Twin, "call", refused)
    x = normal(2 * BATCH, 1, 5, 9, 9)
    plan = plan_of(tmp_path, "hlscnn:revision=ext8", x)
    engine = Engine(plan, engine="recorded", audit=0, reading="native", threads=2)
    found = engine.run({"x": x}, batch=BATCH)
    assert shortcuts(engine).keys() == {o.id for o in plan.offloads}
    np.testing.assert_array_equal(found.outputs["y"], Engine(plan, engine="simulator", audit=0).run({"x": x}, batch=2 * BATCH).outputs["y"])
