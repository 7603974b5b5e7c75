"""Axes and points of sweeps."""

from __future__ import annotations

import pytest

from rewrite_compiler.errors import UsageError
from rewrite_compiler.study.designs.sweep import Axis, axes_of, points
from rewrite_compiler.target import find_target

TARGETS = [find_target("flexasr"), find_target("hlscnn")]


def test_sets_of_accelerators_are_an_axis() -> None:
    assert axes_of(["accel"], TARGETS) == [Axis("accel", ("flexasr", "hlscnn", "flexasr+hlscnn"))]
    assert axes_of(["accel=flexasr+hlscnn,hlscnn"], TARGETS) == [Axis("accel", ("flexasr+hlscnn", "hlscnn"))]


def test_a_set_must_be_of_the_named_accelerators() -> None:
    with pytest.raises(UsageError) as caught:
        axes_of(["accel=flexasr+vta"], TARGETS)
    assert caught.value.problem.sentence == 'accel must be one of flexasr, hlscnn, flexasr+hlscnn, not "flexasr+vta"'


def test_sets_and_methods_are_not_varied_unless_named() -> None:
    assert all(axis.name.startswith(("flexasr.", "hlscnn.")) for axis in axes_of([], TARGETS))


def test_a_parameter_of_an_accelerator_that_is_left_out_is_not_varied() -> None:
    axes = [Axis("accel", ("flexasr", "hlscnn")), Axis("hlscnn.revision", ("ext8", "ext16")), Axis("calibration-method", ("max",))]
    assert list(points(axes)) == [
        {"accel": "flexasr", "calibration-method": "max"},
        {"accel": "hlscnn", "hlscnn.revision": "ext8", "calibration-method": "max"},
        {"accel": "hlscnn", "hlscnn.revision": "ext16", "calibration-method": "max"},
    ]
