"""Shortcuts: the bits of the tapes they leave the moves out of, and none where codes are not only moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import onnx_model
from numpy.lib.stride_tricks import as_strided
from onnx import helper, numpy_helper
from test_tapes import BATCH, convolution, normal

from rewrite_compiler.compile import Plan, calibrated, compile_model
from rewrite_compiler.compile.channelwise import Channelwise
from rewrite_compiler.compile.coded import looked_at
from rewrite_compiler.compile.plain import PLAIN, PlainProgram
from rewrite_compiler.cosim import Engine
from rewrite_compiler.cosim.maker import _around, _ranges, _started
from rewrite_compiler.cosim.provenance import MOST, moves_bits
from rewrite_compiler.cosim.shortcut import Shortcut
from rewrite_compiler.cosim.steps import Filling
from rewrite_compiler.lang.digits import digits_of
from rewrite_compiler.lang.native_fold import FORMS, Kernel, best_form, run_fold
from rewrite_compiler.lang.native_tiles import is_there
from rewrite_compiler.lang.straight import Op
from rewrite_compiler.lang.tape import Arena, Ran, Span, Tape

CASES = [("hlscnn:revision=ext8", (1, 5, 9, 9)), ("hlscnn:revision=ext16", (1, 5, 9, 9)), ("vta", (1, 5, 9, 9)), ("flexasr", (1, 5, 9, 9))]


def plan_of(folder: Path, accel: str, x: np.ndarray) -> Plan:
    onnx.save(convolution(), folder / "app.onnx")
    return calibrated(compile_model(folder / "app.onnx", [accel]), {"x": x}, "inputs", "")


def shortcuts(engine: Engine) -> dict[str, Shortcut]:
    return {n: s for groups in engine.tapes.idle.values() for g in groups for d in g.values() for n, s in d.shortcuts.items()}


@pytest.mark.parametrize(("accel", "shape"), CASES, ids=[a for a, _ in CASES])
def test_shortcuts_give_the_bits_and_figures_of_the_simulators(accel: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = 40 * normal(3 * BATCH, *shape)  # some of it saturates
    plan = plan_of(tmp_path, accel, x / 40)
    short, plain = Engine(plan, engine="recorded", audit=0, reading="native"), Engine(plan, engine="simulator", audit=0)
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
        return tuple(looked_at(y) + 1 for y in results), seen

    monkeypatch.setattr(Shortcut, "run", wrong)
    engine = Engine(plan, engine="recorded", audit=0, reading="native")
    found = engine.run({"x": x}, batch=BATCH)
    assert not shortcuts(engine)
    np.testing.assert_array_equal(found.outputs["y"], Engine(plan, engine="simulator", audit=0).run({"x": x}, batch=3 * BATCH).outputs["y"])


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
    expected = Engine(plan, engine="simulator", audit=0).run({"x": x}, batch=3 * BATCH).outputs["y"]
    if not is_right:
        monkeypatch.setitem(PLAIN, "add", lambda a, b: a - b)
    engine = Engine(plan, engine="recorded", audit=0, reading="native")
    np.testing.assert_array_equal(engine.run({"x": x}, batch=BATCH).outputs["y"], expected)
    assert [h.is_used for _, h in engine.steps if isinstance(h, PlainProgram)] == [is_right]
    assert len(engine.loose) == 1
    assert shortcuts(engine).keys() == {o.id for o in plan.offloads}


def test_a_host_value_is_written_over_only_where_nobody_else_reads_it(tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(normal(8, 8, 3, 3, seed=n), f"w{n}") for n in range(2)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),  # b is read again
        helper.make_node("Add", ["c", "b"], ["d"]),  # c is not
        helper.make_node("Conv", ["d", "w1"], ["y"]),
    ]
    onnx.save(onnx_model(nodes, {"x": (1, 8, 6, 6)}, {"y": (1, 8, 4, 4)}, weights), tmp_path / "app.onnx")
    x = normal(3 * BATCH, 1, 8, 6, 6)
    plan = calibrated(compile_model(tmp_path / "app.onnx", ["hlscnn:revision=ext8"]), {"x": x}, "inputs", "")
    engine = Engine(plan, engine="recorded", audit=0, reading="native")
    found = engine.run({"x": x}, batch=BATCH).outputs["y"]
    np.testing.assert_array_equal(found, Engine(plan, engine="simulator", audit=0).run({"x": x}, batch=3 * BATCH).outputs["y"])
    (part,) = (h for _, h in engine.steps if isinstance(h, PlainProgram))
    assert part.is_used
    assert len(part.passing) == 1


def inverted() -> Any:
    """Return an inverted residual block, [1, 8, 7, 7]: 1×1, every channel by itself, 1×1, clamps between."""
    weights = {"w0": normal(48, 8, 1, 1, seed=1), "w1": normal(48, 1, 3, 3, seed=2), "w2": normal(8, 48, 1, 1, seed=4)}
    weights |= {"b": normal(48, seed=3), "low": np.zeros((), np.float32), "high": np.float32(6) + np.zeros((), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b"], ["a"]),
        helper.make_node("Clip", ["a", "low", "high"], ["c"]),
        helper.make_node("Conv", ["c", "w1", "b"], ["d"], pads=[1, 1, 1, 1], strides=[2, 2], group=48),
        helper.make_node("Clip", ["d", "low", "high"], ["e"]),
        helper.make_node("Conv", ["e", "w2"], ["y"]),
    ]
    return onnx_model(nodes, {"x": (1, 8, 7, 7)}, {"y": (1, 8, 4, 4)}, [numpy_helper.from_array(w, n) for n, w in weights.items()])


def test_channels_by_themselves_are_convolved_where_the_device_leaves_them(tmp_path: Path) -> None:
    x = normal(3 * BATCH, 1, 8, 7, 7)
    onnx.save(inverted(), tmp_path / "app.onnx")
    plan = calibrated(compile_model(tmp_path / "app.onnx", ["vta"]), {"x": x}, "inputs", "")
    assert len(plan.offloads) == 2
    engine = Engine(plan, engine="recorded", audit=0, reading="native")
    found = engine.run({"x": x}, batch=BATCH)
    expected = Engine(plan, engine="simulator", audit=0).run({"x": x}, batch=3 * BATCH)
    np.testing.assert_array_equal(found.outputs["y"], expected.outputs["y"])
    (part,) = (h for _, h in engine.steps if isinstance(h, PlainProgram))
    assert [type(n) for n in part.nodes] == [Channelwise]
    assert len(engine.loose) == 1
    for o in plan.offloads:
        a, b = found.statistics[o.id], expected.statistics[o.id]
        assert (a.values, a.saturated, a.range_in, a.range_out) == (b.values, b.saturated, b.range_in, b.range_out)


@pytest.mark.parametrize(
    ("steps", "ends"),
    [
        ([16 * 100 * (n // 16) + n % 16 for n in range(35)], [32, 35]),
        ([10_000 * (n // 464) + 100 * (n % 464 // 16) + n % 16 for n in range(915)], [464, 912, 915]),
        (list(range(9)), [9]),
        ([4], [1]),
    ],
    ids=["blocks", "vectors of elements", "one progression", "one"],
)
def test_results_fall_into_parts_that_lie_in_a_regular_order(steps: list[int], ends: list[int]) -> None:
    found = _ranges(np.array(steps), 0)
    assert [r.stop for r in found] == ends
    assert [r.start for r in found] == [0, *ends[:-1]]
    assert all(digits_of(np.array(steps[r])[None]) is not None for r in found)


@pytest.mark.parametrize(("planes", "side", "edge"), [(3, 20, 1), (2, 9, 3), (1, 30, 0)], ids=["one around", "three around", "none"])
def test_only_what_lies_around_an_image_is_filled(planes: int, side: int, edge: int) -> None:
    marked = np.ones((planes, side, side, 16), bool)
    marked[:, edge : side - edge, edge : side - edge] = False
    area = np.zeros(marked.size + 7, np.int16)
    views = _around(marked.reshape(-1), 14, np.dtype(np.int16))
    for v in views:
        as_strided(area[v.place // 2 :], v.shape, v.strides)[...] = 1
    assert len(views) <= 4
    np.testing.assert_array_equal(area[7:].reshape(marked.shape), marked)


def test_everything_is_filled_where_marks_lie_in_no_order() -> None:
    marked = np.random.default_rng(0).random(5000) < 0.5
    (view,) = _around(marked, 64, np.dtype(np.int32))
    assert (view.place, view.shape, view.strides) == (64, (5000,), (4,))


@pytest.mark.parametrize(("kind", "clamps"), [("<i2", True), ("<i4", False)], ids=["saturating", "plain"])
def test_a_fold_whose_rows_start_alike_starts_them_at_the_values_of_one(kind: str, clamps: bool) -> None:
    rng, (rows, steps, lanes) = np.random.default_rng(1), (12, 5, FORMS[best_form()][0])
    word = {"bits": 32, "width": 32}
    added: tuple[Op, ...] = (Op("dot", (), (0, 0, 0, 2)), Op("const", (), 3, 32), Op("add", (0, 1), None, **word))
    ends = (Op("const", (), 32767, 32), Op("const", (), -32768, 32))
    code = (*added, Op("acc"), Op("add", (2, 3), None, **word))
    if clamps:
        code = (*added, *ends, Op("min", (2, 3), None, **word), Op("max", (5, 4), None, **word), Op("acc"), Op("add", (6, 7), None, **word))
        code = (*code, Op("min", (8, 3), None, **word), Op("max", (9, 4), None, **word))
    arena = Arena()
    tape = Tape(0, arena)
    a, start = arena.empty((rows * 4 * steps,), np.int16), arena.empty((rows, lanes), np.int32)
    a[:], start[:] = rng.integers(-90, 90, a.size), rng.integers(-30_000, 30_000, lanes)
    b, out = rng.integers(-90, 90, (1, steps, 2, lanes, 2)).astype(np.int16), arena.empty((rows, lanes), kind)
    tables = [(a, np.arange(rows, dtype=np.int32) * 4 * steps, np.arange(steps, dtype=np.int32) * 4)]
    kernel = Kernel(code, 1, 2, kind, best_form(), True)
    run_fold(kernel, tables, b.view(np.int32).reshape(1, steps, 2, lanes), start, out, [rows, 1, steps, lanes], tape)
    (recorded,) = tape.calls
    assert isinstance(recorded, Ran)
    expected = out.copy()
    terms = np.einsum("rkpj,kplj->rkl", a.reshape(rows, steps, 2, 2).astype(np.int64), b[0].astype(np.int64)) + 3
    total = np.broadcast_to(start.astype(np.int64), (rows, lanes))
    for k in range(steps):
        total = np.clip(total + terms[:, k], -32768, 32767) if clamps else total + terms[:, k]
    np.testing.assert_array_equal(expected, total)
    again, row = _started(recorded, recorded.started.read, start.reshape(-1).copy())
    assert row.shape == (lanes,)
    out[:] = 0
    again.bind([out.ctypes.data, *(r.address + r.offset for r in recorded.reads[:1]), row.ctypes.data, a.ctypes.data])()
    np.testing.assert_array_equal(out, expected)
    start[3, 0] += 1
    assert _started(recorded, recorded.started.read, start.reshape(-1).copy())[0] is recorded


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


def dense(inputs: int, outputs: int) -> Any:
    """Return a matrix product with a bias, [3, inputs] to [3, outputs]."""
    kept = [numpy_helper.from_array(normal(inputs, outputs, seed=3), "w"), numpy_helper.from_array(normal(outputs, seed=4), "b")]
    return onnx_model([helper.make_node("Gemm", ["x", "w", "b"], ["y"])], {"x": (3, inputs)}, {"y": (3, outputs)}, kept)


@pytest.mark.parametrize("most", [None, 180_000], ids=["all tiles", "tile by tile"])
def test_sums_whose_words_become_floats_in_registers_give_the_bits_and_figures(
    most: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("rewrite_compiler.cosim.provenance.MOST", most or MOST)
    onnx.save(dense(20, 6000), tmp_path / "app.onnx")
    x = normal(3 * BATCH, 3, 20)
    x[: 2 * BATCH] *= 40  # saturates
    plan = calibrated(compile_model(tmp_path / "app.onnx", ["flexasr"]), {"x": x[-BATCH:]}, "inputs", "")
    (o,) = plan.offloads
    assert len(list(o.tiling.slices())) == 2
    short, plain = Engine(plan, engine="recorded", audit=0, reading="native"), Engine(plan, engine="simulator", audit=0)
    found, expected = short.run({"x": x}, batch=BATCH), plain.run({"x": x}, batch=BATCH)
    (made,) = shortcuts(short).values()
    assert len(made.tiles) == (1 if most is None else 2)
    if is_there():
        assert all(isinstance(s, Filling) for t in made.tiles for s in t.steps)
    np.testing.assert_array_equal(found.outputs["y"].view(np.int32), expected.outputs["y"].view(np.int32))
    a, b = found.statistics[o.id], expected.statistics[o.id]
    assert (a.values, a.saturated, a.range_in, a.range_out) == (b.values, b.saturated, b.range_in, b.range_out)
    assert a.saturated > 0
