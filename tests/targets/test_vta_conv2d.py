"""VTA's blocked convolution: on every design and behaviour the stream gives the numerics, in bands and passes that fit."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import onnx_model
from onnx import helper, numpy_helper

from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim import cosimulate
from rewrite_compiler.ila import Ila
from rewrite_compiler.ir.evaluate import run_op
from rewrite_compiler.ops import conv
from rewrite_compiler.prove.mappings.mappings import code_difference
from rewrite_compiler.target import Target, find_target, simulated_device
from rewrite_compiler.targets.vta.conv2d import Layer, layer

VARIANTS = ("conv2d", "conv2d_relu", "conv2d_bias", "conv2d_bias_relu")


@cache
def design(text: str) -> tuple[Target, Ila]:
    target = find_target(text)
    return target, target.ila()


def sizes(
    n: int, c: int, size: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], pads: tuple[int, ...], batch: int = 1
) -> dict[str, Any]:
    """Return the sizes of a layer; `pads` are top, left, bottom, right."""
    u, v = ((size[a] + pads[a] + pads[a + 2] - kernel[a]) // strides[a] + 1 for a in range(2))
    names = dict(zip("bncijrsuv", (batch, n, c, *size, *kernel, u, v), strict=True))
    return {**names, "strides": strides, "pads": pads}


RAGGED = sizes(19, 21, (7, 6), (3, 2), (2, 1), (1, 2, 0, 1), 3)
DESIGNS = (
    "vta", "vta:behaviour=hls", "vta:behaviour=ila", "vta:encoding=old,behaviour=hls", "vta:log_batch=1",
    "vta:log_inp_buffer=11,log_acc_buffer=12", "vta:log_wgt_buffer=13",
)  # fmt: skip


@pytest.mark.parametrize("text", DESIGNS)
@pytest.mark.parametrize("variant", ["conv2d", "conv2d_bias_relu"])
def test_stream_gives_the_numerics(variant: str, text: str) -> None:
    target, ila = design(text)
    assert code_difference(target.mappings[variant], ila, RAGGED) is None


# what a layer needs → its bands of rows and passes over channel blocks
CUTS = {
    "one": (sizes(16, 16, (8, 8), (3, 3), (1, 1), (1, 1, 1, 1)), 1, 1),
    "bands by the input": (sizes(16, 16, (60, 60), (1, 1), (1, 1), (0, 0, 0, 0)), 2, 1),
    "bands by the accumulators": (sizes(64, 16, (30, 30), (1, 1), (1, 1), (0, 0, 0, 0)), 2, 1),
    "passes by the weights": (sizes(64, 512, (3, 3), (3, 3), (1, 1), (0, 0, 0, 0)), 1, 2),
    "both": (sizes(64, 512, (40, 40), (3, 3), (1, 1), (1, 1, 1, 1)), 4, 8),
}


@pytest.mark.parametrize("what", CUTS)
def test_layers_are_cut_into_what_fits(what: str) -> None:
    at, bands, passes = CUTS[what]
    target, _ = design("vta")
    m = layer((1, at["c"], at["i"], at["j"]), at["n"], (at["r"], at["s"]), at["strides"], at["pads"], target.configured({}).values)
    assert (len(m.bands), len(m.passes)) == (bands, passes)
    assert sum(map(len, m.bands)) == m.out[0]
    assert sum(map(len, m.passes)) == m.channels
    assert _fits(m)


def _fits(m: Layer) -> bool:
    rows, blocks = m.tile_sizes
    c = m.design
    return (
        blocks * m.rows_for(rows) * m.width <= c.depth("inp") and m.filters * rows * m.out[1] <= c.depth("acc")
        and m.filters * blocks * m.taps <= min(c.depth("wgt"), c.depth("uop"))
    )  # fmt: skip


@pytest.mark.parametrize("what", ["bands by the input", "passes by the weights"])
def test_cut_layers_give_the_numerics(what: str) -> None:
    at, *_ = CUTS[what]
    target, ila = design("vta")
    assert code_difference(target.mappings["conv2d_bias"], ila, at) is None


def test_more_zeros_than_load_can_add_are_the_hosts() -> None:
    target, ila = design("vta")
    assert code_difference(target.mappings["conv2d"], ila, sizes(3, 2, (4, 5), (17, 2), (3, 1), (16, 0, 16, 1))) is None


def test_sums_are_exact() -> None:
    """On codes the device's sums are those of the operator on integers."""
    target, ila = design("vta")
    m, random = target.mappings["conv2d"], np.random.default_rng(5)
    x, w = random.integers(-128, 128, (1, 20, 6, 5)), random.integers(-128, 128, (17, 20, 3, 3))
    attributes = {"strides": (1, 2), "pads": (1, 0, 1, 1)}
    found = m.run_driver(simulated_device(ila), {"x": x, "w": w}, m.formats_for({"x": 1.0, "w": 1.0}), attributes)
    (expected,) = run_op(conv, [x, w], {**attributes, "dilations": (1, 1), "group": 1})
    assert np.array_equal(found, expected)


def test_a_layer_that_no_band_holds_is_refused_with_its_capacity() -> None:
    """One output row of so many columns does not fit."""
    target, _ = design("vta:log_inp_buffer=10")
    violated = target.mappings["conv2d"].exceeded_limit(
        sizes(16, 16, (9, 40), (3, 3), (1, 1), (0, 0, 0, 0)), {"strides": (1, 1), "pads": (0,) * 4}
    )
    assert str(violated) == "input elements of a band 120, must be at most 64"


def test_a_model_uses_the_blocked_form(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    constants = [numpy_helper.from_array(random.normal(0, 0.2, s).astype(np.float32), n) for n, s in (("w", (5, 4, 3, 3)), ("b", (5,)))]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    onnx.save(onnx_model(nodes, {"x": [2, 4, 6, 6]}, ["y"], constants), tmp_path / "layer.onnx")
    plan = compile_model(tmp_path / "layer.onnx", ["vta"])
    assert [(o.mapping.name, o.tiling.calls) for o in plan.offloads] == [("vta.conv2d_bias_relu", 1)]
    np.savez(tmp_path / "x.npz", x=random.normal(0, 1, (4, 2, 4, 6, 6)).astype(np.float32))
    report = cosimulate(plan, tmp_path / "x.npz", calibrate=tmp_path / "x.npz")
    assert all(o["relative_error"] < 0.03 for o in report.document["offloads"])
