"""Offloads as one sum a result: the bits and figures of the simulators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from command import onnx_model
from onnx import helper, numpy_helper
from test_shortcut import shortcuts
from test_tapes import BATCH, normal

from rewrite_compiler.compile import calibrated, compile_model
from rewrite_compiler.cosim import Engine
from rewrite_compiler.cosim.affine import AffineShortcut
from rewrite_compiler.cosim.shortcut import Shortcut
from rewrite_compiler.lang.native_tiles import is_there

WIDE = {
    "windows, some of a tile's columns": (5, 24, 3, 9, 1),
    "a sum in two parts, rows of several tiles": (320, 40, 1, 9, 1),
    "steps between windows": (12, 16, 3, 7, 2),
}


@pytest.mark.parametrize("case", WIDE)
def test_sums_and_what_is_added_to_them_are_one_sum(case: str, tmp_path: Path) -> None:
    channels, filters, kernel, extent, stride = WIDE[case]
    x = 3 * normal(3 * BATCH, 1, channels, extent, extent)
    weights = {"w": normal(filters, channels, kernel, kernel, seed=1), "b": normal(filters, seed=2)}
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[kernel // 2] * 4, strides=[stride] * 2)
    kept = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    out = (extent - 1) // stride + 1
    model = onnx_model([node], {"x": (1, channels, extent, extent)}, {"y": (1, filters, out, out)}, kept)
    onnx.save(model, tmp_path / "app.onnx")
    plan = calibrated(compile_model(tmp_path / "app.onnx", ["vta"]), {"x": x}, "inputs", "")
    engine = Engine(plan, engine="recorded", audit=0, reading="native")
    found, expected = engine.run({"x": x}, batch=BATCH), Engine(plan, engine="simulator", audit=0).run({"x": x}, batch=3 * BATCH)
    np.testing.assert_array_equal(found.outputs["y"], expected.outputs["y"])
    for o in plan.offloads:
        a, b = found.statistics[o.id], expected.statistics[o.id]
        assert (a.values, a.saturated, a.range_in, a.range_out) == (b.values, b.saturated, b.range_in, b.range_out)
    kind = AffineShortcut if is_there() else Shortcut
    assert [type(s) for s in shortcuts(engine).values()] == [kind] * len(plan.offloads)


@pytest.mark.parametrize("log_batch", [1, 2])
def test_several_samples_in_one_block(log_batch: int, tmp_path: Path) -> None:
    x = 3 * normal(3 * BATCH, 1, 40)
    model = onnx_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, 40)}, {"y": (1, 24)}, [
        numpy_helper.from_array(normal(40, 24, seed=1), "w")
    ])  # fmt: skip
    onnx.save(model, tmp_path / "app.onnx")
    plan = calibrated(compile_model(tmp_path / "app.onnx", [f"vta:log_batch={log_batch}"]), {"x": x}, "inputs", "")
    found = Engine(plan, engine="recorded", audit=0, reading="native").run({"x": x}, batch=BATCH)
    np.testing.assert_array_equal(found.outputs["y"], Engine(plan, engine="simulator", audit=0).run({"x": x}, batch=3 * BATCH).outputs["y"])
