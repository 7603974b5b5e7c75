"""Which offloads go beyond the closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.compile.lowered import lowered_in
from rewrite_compiler.ir.program import Builder, Node, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.target import find_target

LINEAR = next(m for m in find_target("flexasr").mappings.values() if m.operation == "linear")
CONVOLUTION = next(m for m in find_target("hlscnn").mappings.values() if m.operation == "conv2d")


def program() -> Program:
    """A convolution, a grouped one, a product with a weight and one of two moving tensors: sources 0 to 3."""
    b = Builder("small")
    image, rows, turned = b.input("i", TensorType((1, 4, 5, 5))), b.input("r", TensorType((2, 4))), b.input("t", TensorType((4, 3)))
    outputs = []
    for source, (width, group) in enumerate([(4, 1), (1, 4)]):
        w = b.constant(np.zeros((4, width, 3, 3), np.float32))
        given = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": group}
        outputs += b.apply("conv", [image, w], given, origins=[source])
    outputs += b.apply("matmul", [rows, b.constant(np.zeros((4, 3), np.float32))], origins=[2])
    outputs += b.apply("matmul", [rows, turned], origins=[3])
    return b.finish(outputs)


@pytest.mark.parametrize(
    ("mapping", "sources", "expected"),
    [
        (LINEAR, {0}, False),
        (LINEAR, {1}, True),
        (LINEAR, {2}, False),
        (LINEAR, {3}, True),
        (CONVOLUTION, {0}, False),
        (CONVOLUTION, {2}, True),
        (LINEAR, {2, 3}, False),  # one operation on several products is a form of its own
        (LINEAR, set(), False),
    ],
)
def test_what_is_beyond_the_closed_forms(mapping: object, sources: set[int], expected: bool) -> None:
    device = Node(mapping.name, (), (), (), frozenset(sources))  # type: ignore[attr-defined]
    assert lowered_in(program(), [device], {mapping.name: mapping}) == [expected]  # type: ignore[attr-defined, dict-item]
