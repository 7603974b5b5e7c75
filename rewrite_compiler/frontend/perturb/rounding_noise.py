"""Rounding noise: a model whose real numbers are moved in their last bits before they are quantised.

A mean of codes often lies exactly between two codes; which one it becomes depends on the order of its sums, on which nothing depends
elsewhere. Sums of codes times a scale of few bits are exact in any order: such a number is not moved where it lies between two codes,
so that another rounding of ties still shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..graph.attributes import subgraphs

QUANTISER = "QuantizeLinear"
EXACT_BITS = 8  # of a scale: 256 codes times it have an exact sum in float32


def with_rounding_noise(model: bytes, amount: float) -> bytes | None:
    """Return a model that multiplies each element of a quantiser's float32 operand by 1 ± `amount`, another draw in each run.

    None where nothing is quantised.
    """
    if QUANTISER.encode() not in model:
        return None
    from onnx import ModelProto

    proto, prefix = ModelProto.FromString(model), "noise"
    while prefix.encode() in model:
        prefix += "_"
    names = (f"{prefix}{n}" for n in itertools.count())
    count = sum(_with_noise(body, names, amount) for top in (proto.graph, *proto.functions) for body in _bodies(top))
    return bytes(proto.SerializeToString()) if count else None


def _bodies(body: Any) -> Iterator[Any]:
    """Yield a graph, or the body of a function, and all its subgraphs."""
    yield body
    for node in body.node:
        for inner in subgraphs(node):
            yield from _bodies(inner)


def _with_noise(body: Any, names: Iterator[str], amount: float) -> int:
    """Insert the noise of one body in place; return the number of quantisers that have it."""
    constants = _constants(body)
    nodes, count = list[Any](), 0
    for node in body.node:
        if node.op_type == QUANTISER and _is_single(constants.get(node.input[1])):
            nodes.extend(_noise(node, constants.get(node.input[1]), names, amount, count))
            count += 1
        nodes.append(node)
    rewritten = list(nodes)
    del body.node[:]
    body.node.extend(rewritten)
    return count


def _constants(body: Any) -> Mapping[str, Any]:
    """Return the tensors of a body's initializers and constant nodes by name."""
    from onnx import helper

    tensors = {t.name: t for t in getattr(body, "initializer", ())}
    constants = (n for n in body.node if n.op_type == "Constant" and n.attribute[0].name == "value")
    return tensors | {n.output[0]: helper.get_attribute_value(n.attribute[0]) for n in constants}


def _is_single(scale: Any) -> bool:
    """Tell whether a scale is of single precision, as far as it is known."""
    from onnx import TensorProto

    return scale is None or scale.data_type == TensorProto.FLOAT


def _noise(node: Any, scale: Any, names: Iterator[str], amount: float, seed: int) -> Iterator[Any]:
    """Yield the nodes that move the operand of a quantiser, and let it read what they make."""
    from onnx import TensorProto, helper, numpy_helper

    added = list[Any]()

    def step(op: str, *inputs: str, **attributes: Any) -> str:
        added.append(helper.make_node(op, inputs, [next(names)], **attributes))
        return str(added[-1].output[0])

    def number(value: float) -> str:
        return step("Constant", value=numpy_helper.from_array(np.float32(value)))

    x, one = node.input[0], number(1)
    sign = step("Sign", step("RandomUniformLike", x, low=-1.0, high=1.0, seed=float(seed), dtype=TensorProto.FLOAT))
    factor = step("Add", one, step("Mul", sign, number(amount)))
    if scale is not None and _has_exact_sums(numpy_helper.to_array(scale)):
        codes = step("Div", x, node.input[1])
        is_tie = step("Equal", step("Sub", codes, step("Floor", codes)), number(0.5))
        factor = step("Where", is_tie, one, factor)
    node.input[0] = step("Mul", x, factor)
    yield from added


def _has_exact_sums(scale: Any) -> bool:
    """Tell whether sums of codes times a scale are exact: it is one number of few bits."""
    mantissa = np.frexp(scale.astype(np.float64))[0] * 2**EXACT_BITS
    return bool(scale.size == 1 and np.all(mantissa == np.rint(mantissa)))
