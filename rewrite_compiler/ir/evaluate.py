"""The reference evaluator: runs programs by the operators' meaning, in numpy; rewriting is checked against it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import InputError
from ..lang.binders import Array, Leaf
from ..ops.op import AttributeValue, Op, Shape
from ..readings.kernels.evaluate import evaluate as evaluate_array
from ..readings.kernels.evaluate import evaluate_together
from .program import Data, Node, Program, Value
from .types import TensorType, interval_of

MAX_MEANINGS = 64  # of operators, that are kept
OpaqueRunner = Callable[[Node, Sequence[Data]], Sequence[Data]]


def run_op(
    operator: Op, operands: Sequence[Data], attributes: Mapping[str, AttributeValue], real: Any = None, moving: Sequence[bool] = ()
) -> list[Data]:
    """Return the outputs of one operator on concrete operands; floats are computed in `real` (default: the operands' type).

    Operands for which `moving` is true, and then all outputs, have an axis of samples first.
    """
    kinds = [x.dtype for x in operands if np.issubdtype(x.dtype, np.floating)]
    compute = real or (np.result_type(*kinds) if kinds else np.float64)
    moves = moving or [False] * len(operands)
    own_shapes = [tuple(x.shape[move:]) for x, move in zip(operands, moves, strict=True)]
    samples = tuple(len(x) for x, move in zip(operands, moves, strict=True) if move)[:1]
    shapes = operator.shapes(own_shapes, attributes)
    if all(0 in shape for shape in shapes):  # nothing to compute, and indices of empty tensors have no place to point at
        keeps_type = bool(operands) and (real is None or not np.issubdtype(operands[0].dtype, np.floating))
        return [np.zeros((*samples, *shape), operands[0].dtype if keeps_type else compute) for shape in shapes]
    dtypes = [x.dtype for x in operands]
    leaves, arrays = _meaning(operator, tuple(zip(own_shapes, dtypes, strict=True)), _AttributeKey(attributes))
    values = {leaf: x.astype(compute, copy=False) if leaf.real else x for leaf, x in zip(leaves, operands, strict=True)}
    dtype = np.dtype(operator.dtype_of(str(operands[0].dtype) if operands else "float32", attributes))
    floats = dtype if real is None else compute
    sampled = {leaf: values[leaf] for leaf, move in zip(leaves, moves, strict=True) if move}
    shared = {leaf: x for leaf, x in values.items() if leaf not in sampled}
    results = (evaluate_together(a, sampled, shared, compute) if sampled else evaluate_array(a, values, compute) for a in arrays)
    return [np.asarray(y).astype(floats if a.real else dtype, copy=False) for a, y in zip(arrays, results, strict=True)]


class _AttributeKey:
    """Attributes as a hashable key, equal where their text is."""

    def __init__(self, attributes: Mapping[str, AttributeValue]) -> None:
        self.attributes, self.text = attributes, repr(sorted(attributes.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AttributeKey) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@lru_cache(maxsize=MAX_MEANINGS)
def _meaning(operator: Op, operands: tuple[tuple[Shape, Any], ...], key: _AttributeKey) -> tuple[list[Leaf], tuple[Array, ...]]:
    """Return the operands and the outputs of an operator as terms."""
    leaves = [_leaf(n, *x) for n, x in enumerate(operands)]
    meaning = operator.meaning(*leaves, **key.attributes)
    return leaves, meaning if isinstance(meaning, tuple) else (meaning,)


def _leaf(n: int, shape: Shape, dtype: Any) -> Leaf:
    real = bool(np.issubdtype(dtype, np.floating))
    return Leaf(shape, (None, None) if real else interval_of(str(dtype)), real, f"x{n}")


def run(
    p: Program, inputs: Mapping[Value, Data], *, real: Any = np.float64, opaque: OpaqueRunner | None = None, keep: Sequence[Value] = (),
    moving: Collection[Value] = (),
) -> dict[Value, Data]:  # fmt: skip
    """Return the outputs of a program, and the values in `keep`; `opaque` runs operators that the engine does not know.

    Inputs in `moving`, and what depends on them, have an axis of samples first.

    Raises:
        InputError: the program has such an operator and `opaque` is None.
    """
    values: dict[Value, Data] = {**p.constants, **inputs}
    requested, sampled = {*p.outputs, *keep}, set(moving)
    last_use = {v: n for n, node in enumerate(p.nodes) for v in node.inputs}
    for n, node in enumerate(p.nodes):
        operands = [values[v] for v in node.inputs]
        moves = [v in sampled for v in node.inputs]
        values.update(zip(node.outputs, _results(p, node, operands, real, opaque, moves), strict=True))
        sampled.update(node.outputs if any(moves) else ())
        for v in node.inputs:
            if last_use[v] == n and v not in requested and v not in p.constants:
                values.pop(v, None)
    return {v: values[v] for v in requested}


def _results(
    p: Program, node: Node, operands: Sequence[Data], real: Any, opaque: OpaqueRunner | None, moves: Sequence[bool]
) -> Sequence[Data]:
    if node.operator is not None:
        return run_op(node.operator, operands, dict(node.attributes), real, moves)
    if opaque is None:
        label = p.opaque_of(node).label if node.op == "opaque" else node.op
        raise InputError("F161", f"the reference evaluator does not know the operator {label}")
    return opaque(node, operands)


def random_inputs(p: Program, seed: int = 0) -> dict[Value, Data]:
    """Return reproducible inputs: standard normal floats, small non-negative integers."""
    random = np.random.default_rng(seed)
    return {v: random_tensor(p.types[v], random) for v in p.inputs}


def random_tensor(t: TensorType, random: np.random.Generator) -> Data:
    """Return one reproducible tensor."""
    if t.is_float:
        return random.standard_normal(t.shape).astype(t.dtype if t.dtype in ("float64", "float16") else np.float32)
    if t.dtype == "string":
        return np.asarray(random.choice(np.asarray(("", "a", "two words"), object), t.shape), object)
    if t.dtype == "bool":
        return random.integers(0, 2, t.shape).astype(bool)
    return random.integers(0, 2, t.shape).astype(t.dtype)
