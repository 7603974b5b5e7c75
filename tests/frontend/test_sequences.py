"""Sequences of tensors are taken apart at import; what depends on data is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import agrees, model, refusal

from rewrite_compiler.ir.types import TensorType

X = {"x": TensorType((2, 6))}


def node(op: str, reads: str, gives: str, **attributes: Any) -> Any:
    """A node with its operands and results separated by spaces, "-" for an absent one."""
    return helper.make_node(op, [r if r != "-" else "" for r in reads.split()], gives.split(), **attributes)


def ints(*values: int) -> Any:
    """A constant of int64 elements."""
    return np.asarray(values, np.int64)


# nodes that make the sequence s of x → constants, nodes that read it, the core operations expected
CASES: dict[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "lengths": (
        [node("SplitToSequence", "x n", "s", axis=1), node("SequenceAt", "s i", "a"), node("Relu", "a", "y")],
        {"n": ints(1, 3, 2), "i": np.asarray(-2)}, ["slice", "relu"],
    ),
    "one length": (
        [node("SplitToSequence", "x n", "s", axis=-1), node("SequenceAt", "s i", "a"), node("Relu", "a", "y")],
        {"n": np.asarray(4), "i": np.asarray(1)}, ["slice", "relu"],
    ),
    "without axis": (
        [node("SplitToSequence", "x", "s", axis=1, keepdims=0), node("ConcatFromSequence", "s", "y", axis=0)],
        {}, ["slice", "reshape"] * 6 + ["concat"],
    ),
    "new axis": (
        [node("SequenceConstruct", "x x", "s"), node("ConcatFromSequence", "s", "y", axis=-1, new_axis=1)],
        {}, ["reshape", "reshape", "concat"],
    ),
    "inserted": (
        [
            node("SequenceEmpty", "", "e"), node("Neg", "x", "m"), node("SequenceInsert", "e x", "f"),
            node("SequenceInsert", "f m i", "s"), node("ConcatFromSequence", "s", "y", axis=0),
        ],
        {"i": np.asarray(0)}, ["neg", "concat"],
    ),
    "erased": (
        [
            node("SplitToSequence", "x n", "t", axis=1), node("SequenceErase", "t i", "s"), node("ConcatFromSequence", "s", "y", axis=1),
        ],
        {"n": np.asarray(2), "i": np.asarray(1)}, ["slice", "slice", "concat"],
    ),
    "length": (
        [
            node("SplitToSequence", "x n", "s", axis=1), node("SequenceLength", "s", "l"), node("Reshape", "l j", "k"),
            node("Slice", "x o k j", "y"),
        ],
        {"n": np.asarray(5), "o": ints(0), "j": ints(1)}, ["slice"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sequences_of_known_length_are_their_tensors(case: tuple[list[Any], dict[str, Any], list[str]]) -> None:
    nodes, constants, expected = case
    agrees(model(nodes, X, ["y"], constants), ops=expected)


REFUSALS: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "position of data": (
        [node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s i", "y")], {},
        'error[F133]: the tensors of a sequence must be known when the model is compiled: its position, "i", are computed at run time',
    ),
    "no such position": (
        [node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s k", "y")], {"k": np.asarray(2)},
        "error[F131]: Position of SequenceAt must be in -2…1, not 2",
    ),
    "no tensor": ([node("SequenceConstruct", "x", "s"), node("Relu", "s", "y")], {}, 'error[F133]: "s" must be a tensor, not sequence'),
    "no sequence": ([node("SequenceLength", "x", "y")], {}, "error[F133]: operand 0 of SequenceLength must be a sequence, not a tensor"),
    "output": ([node("SequenceConstruct", "x", "y")], {}, 'error[F133]: output "y" must be a tensor, not sequence'),
    "lengths": (
        [node("SplitToSequence", "x k", "s", axis=1), node("SequenceLength", "s", "y")], {"k": ints(1, 2)},
        "error[F131]: Lengths of SplitToSequence must add up to the 6 elements of its axis, not [1, 2]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_sequences_that_depend_on_data_are_refused(case: tuple[list[Any], dict[str, Any], str]) -> None:
    nodes, constants, sentence = case
    inputs = X | ({"i": TensorType((), "int64")} if "i" in nodes[-1].input else {})
    assert sentence in refusal(model(nodes, inputs, ["y"], constants))
