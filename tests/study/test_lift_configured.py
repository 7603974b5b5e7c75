"""Lifting from one configured instruction: the loops, words and registers of HLSCNN's convolution follow from its model alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.sched.nests.declaration import sizes
from rewrite_compiler.sched.nests.nest import nests
from rewrite_compiler.sched.nests.places import Configuration, Layout, NoPlaces
from rewrite_compiler.sched.nests.search import Search
from rewrite_compiler.study.lift.configured import goal_of
from rewrite_compiler.study.lift.lift import HEAD, Lifted, NotLifted, lifted, target_file
from rewrite_compiler.study.lift.patterns import PATTERNS
from rewrite_compiler.target import Mapping, Target, find_target, load_target

BY_NAME = {p.name: p for p in PATTERNS}
SIZES = {"b": 2, "c": 19, "i": 7, "j": 6, "n": 10, "r": 3, "s": 2, "u": 3, "v": 5}
ATTRIBUTES = {"strides": (2, 1), "pads": (0, 0, 0, 0)}
REGISTERS = {
    "conv_filters": "n", "conv_input_channels": "c", "conv_kernel_rows": "r", "conv_kernel_cols": "s", "conv_input_rows": "i",
    "conv_kernel_row_stride": "strides[0]", "conv_output_rows": "u", "conv_input_cols": "j", "conv_kernel_col_stride": "strides[1]",
    "conv_output_cols": "v", "conv_act_base": "0",
}  # fmt: skip


def hlscnn(revision: str) -> Target:
    return find_target(f"hlscnn:revision={revision}")


def configuration() -> Configuration:
    ila = hlscnn("ext8").ila()
    (nest,) = nests(ila)
    return next(Search(ila, nest, goal_of(BY_NAME["conv2d"])).configurations())


def test_each_register_of_a_convolution_holds_the_size_that_it_must() -> None:
    c = configuration()
    assert (c.loops, c.steps) == (("n", "u", "v"), ("c", "r", "s", "c"))
    assert [None if w is None else w.operand for w in c.words] == [None, "w", "x"]
    assert c.registers == REGISTERS


@pytest.mark.parametrize(
    ("register", "value", "reason"),
    [
        ("conv_kernel_row_stride", "1", "two elements lie at one address"),
        ("conv_input_cols", "v", "what a word is depends on its place"),
        ("conv_output_cols", "r", "it does not compute every element of the result"),
    ],
)
def test_a_register_that_holds_another_size_has_no_layout(register: str, value: str, reason: str) -> None:
    c = configuration()
    wrong = Configuration(c.nest, c.result, c.loops, c.steps, c.words, {**c.registers, register: value})
    shapes = {name: tuple(SIZES[d] for d in dims) for name, dims in (("x", "bcij"), ("w", "ncrs"), ("y", "bnuv"))}
    at = {**SIZES, "strides[0]": 2, "strides[1]": 1}
    layout = Layout(hlscnn("ext8").ila(), wrong, shapes, at, {"b": 0})
    with pytest.raises(NoPlaces, match=reason):
        placed(layout)


def placed(layout: Layout) -> None:
    assert layout.operands()
    layout.results()


def results(m: Mapping, attributes: dict[str, Any], shapes: list[tuple[int, ...]], seed: int) -> np.ndarray[Any, Any]:
    """Return the codes of a mapping on random codes of 16 and 8 bits, small and large."""
    random = np.random.default_rng(seed)
    f = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    leaves = [Leaf(s, f[v.name].codes, False, v.name) for s, v in zip(shapes, m.operands, strict=True)]
    codes = {leaf: random.integers(*leaf.interval, leaf.shape, endpoint=True) >> seed % 8 for leaf in leaves}  # type: ignore[arg-type]
    return evaluate(m.result_codes(leaves, f, {name: attributes[name] for name, _ in m.statics}), codes)


@pytest.mark.parametrize("operation", ["conv2d", "conv2d_relu", "conv2d_bias", "conv2d_bias_relu"])
def test_convolutions_are_those_that_were_written_by_hand(operation: str, tmp_path: Path) -> None:
    target = hlscnn("ext8")
    row = lifted(target, BY_NAME[operation])
    assert isinstance(row, Lifted), row
    assert "by induction in steps of 8" in row.strength
    path = tmp_path / "lifted.py"
    path.write_text(target_file(HEAD.format(name="hlscnn") + row.text, "hlscnn:revision=ext8", tmp_path))
    m, hand = load_target(str(path)).mappings[operation], target.mappings[operation]
    shapes = [tuple(SIZES[d] for d in m.axes.of[v.name]) for v in m.operands]
    for seed in range(8):
        assert np.array_equal(results(m, ATTRIBUTES, shapes, seed), results(hand, ATTRIBUTES, shapes, seed))
    every = {name: tuple(SIZES[d] for d in dims) for name, dims in m.axes.of.items()}
    assert all(x.holds for x in m.limits_at(sizes(m, every, {}), ATTRIBUTES))
    assert [x.what for x in m.limits_at({**SIZES, "i": 2000, "u": 999}, ATTRIBUTES) if not x.holds][:1] == ["conv input rows"]


def test_lanes_that_are_written_out_are_refused_with_their_number() -> None:
    """Each product of ext16 is truncated by itself, so that its eight lanes are no loop."""
    row = lifted(hlscnn("ext16"), BY_NAME["conv2d"])
    assert row == NotLifted("conv2d", "accel_conv_trigger: it computes with 17 words, the operation with 2")


def test_what_the_instruction_does_not_compute_is_refused_with_the_reason() -> None:
    row = lifted(hlscnn("ext8"), BY_NAME["max_"])
    assert isinstance(row, NotLifted)
    assert row.reason.startswith("accel_conv_trigger: ")
