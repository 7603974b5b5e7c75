"""Shortcuts: the bits of the tapes they leave the moves out of, and none where codes are not only moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import onnx_model
from onnx import helper, numpy_helper
from test_tapes import BATCH, convolution, normal

from rewrite_compiler.compile import Plan, calibrated, compile_model
from rewrite_compiler.compile.plain import PLAIN, PlainProgram
from rewrite_compiler.cosim import Engine
from rewrite_compiler.cosim.provenance import moves_bits
from rewrite_compiler.cosim.shortcut import Shortcut
from rewrite_compiler.lang.straight import Op
from rewrite_compiler.lang.tape import Arena, Ran, Span

CASES = [("hlscnn:revision=ext8", (1, 5, 9, 9)), ("hlscnn:revision=ext16", (1, 5, 9, 9)), ("vta", (1, 5, 9, 9))]


def plan_of(folder: Path, accel: str, x: np.ndarray) -> Plan:
    onnx.save(convolution(), folder / "app.onnx")
    return calibrated(compile_model(folder / "app.onnx", [accel]), {"x": x}, "inputs", "")


def shortcuts(engine: Engine) -> dict[str, Shortcut]:
    return {n: s for groups in engine.tapes.idle.values() for g in groups for d in g.values() for n, s in d.shortcuts.items()}


@pytest.mark.parametrize(("accel", "shape"), CASES, ids=[a for a, _ in CASES])
def test_shortcuts_give_the_bits_and_figures_of_the_simulators(accel: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = 40 * normal(3 * BATCH, *shape)  # some of it saturates
    plan = plan_of(tmp_path, accel, x / 40)
    short, plain = Engine(plan, reading="native"), Engine(plan)
    found, expected = short.run({"x": x}, batch=BATCH), plain.run({"x": x}, batch=3 * BATCH)
    assert shortcuts(short).keys() == {o.id for o in plan.offloads}, short.tapes.moving
    np.testing.assert_array_equal(found.outputs["y"], expected.outputs["y"])
    for o in plan.offloads:
        a, b = found.statistics[o.id], expected.statistics[o.id]
        assert (a.values, a.saturated, a.range_in, a.range_out) == (b.values, b.saturated, b.range_in, b.range_out)
    assert found.instructions == expected.instructions * 3


def test_a_shortcut_with_other_outputs_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(3 * BATCH, 1, 5, 9, 9)
    plan = plan_of(tmp_path, "hlscnn:revision=ext8", x)
    right = Shortcut.run

    def wrong(self: Shortcut, *given: Any, is_loose: bool) -> Any:
        results, seen = right(self, *given, is_loose=is_loose)
        return tuple(y + 1 for y in results), seen

    monkeypatch.setattr(Shortcut, "run", wrong)
    engine = Engine(plan, reading="native")
    found = engine.run({"x": x}, batch=BATCH)
    assert not shortcuts(engine)
    np.testing.assert_array_equal(found.outputs["y"], Engine(plan).run({"x": x}, batch=3 * BATCH).outputs["y"])


def residual() -> Any:
    """Return a residual block between two convolutions, its sum cut and zeros put around it, [1, 8, 6, 6]."""
    weights = {"w0": normal(8, 8, 3, 3, seed=1), "w1": normal(9, 8, 1, 1, seed=2)}
    constants = {"first": [0], "last": [6], "axis": [2], "two": [2], "pads": [0, 0, 1, 1, 0, 0, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Slice", ["c", "first", "last", "axis", "two"], ["d"]),
        helper.make_node("Pad", ["d", "pads"], ["e"]),
        helper.make_node("Conv", ["e", "w1"], ["y"]),
    ]
    kept = [numpy_helper.from_array(w, n) for n, w in weights.items()]
    kept += [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()]
    return onnx_model(nodes, {"x": (1, 8, 6, 6)}, {"y": (1, 9, 5, 8)}, kept)


@pytest.mark.parametrize("is_right", [True, False], ids=["used", "other bits"])
def test_plain_host_parts_give_the_bits_of_the_engine(is_right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(3 * BATCH, 1, 8, 6, 6)
    onnx.save(residual(), tmp_path / "app.onnx")
    plan = calibrated(compile_model(tmp_path / "app.onnx", ["hlscnn:revision=ext8"]), {"x": x}, "inputs", "")
    expected = Engine(plan).run({"x": x}, batch=3 * BATCH).outputs["y"]
    if not is_right:
        monkeypatch.setitem(PLAIN, "add", lambda a, b: a - b)
    engine = Engine(plan, reading="native")
    np.testing.assert_array_equal(engine.run({"x": x}, batch=BATCH).outputs["y"], expected)
    assert [h.is_used for _, h in engine.steps if isinstance(h, PlainProgram)] == [is_right]
    assert len(engine.loose) == 1
    assert shortcuts(engine).keys() == {o.id for o in plan.offloads}


def call(arena: Arena, code: tuple[Op, ...], compute: Callable[[np.ndarray], np.ndarray]) -> Ran:
    source, out = (arena.empty((64,), np.int16) for _ in range(2))

    def bind(_: object) -> Callable[[], None]:
        return lambda: np.copyto(out, compute(source))

    return Ran(out, [Span(source, 0, 64)], bind, code, None)


@pytest.mark.parametrize(
    ("names", "compute", "is_move"),
    [
        (("array",), lambda x: x, True),
        (("array", "const", "shl", "const", "shr"), lambda x: (x << 8) | (x >> 8 & 255), True),
        (("array", "const", "add"), lambda x: x + 1, False),
        (("array", "const", "mul"), lambda x: 3 * x, False),
        (("array", "const", "max"), lambda x: np.maximum(x, 0), False),
        (("array", "table"), lambda x: x, False),  # whatever the table holds: its entries are not tried
    ],
    ids=["copy", "swapped bytes", "sum", "product", "maximum", "table"],
)
def test_code_is_told_to_move_bits(names: tuple[str, ...], compute: Callable[[np.ndarray], np.ndarray], is_move: bool) -> None:
    arena = Arena()
    ran = call(arena, tuple(Op(n) for n in names), compute)
    before = ran.reads[0].flat.copy()
    assert moves_bits(ran, arena) is is_move
    np.testing.assert_array_equal(ran.reads[0].flat, before)
