"""Depthwise convolutions on the host, each fused with the clamps around it and the bias behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.program import Data, Node, Program, Value
from ...readings.arrays.buffer_pool import pooled_array
from .lazy_codes import RangedFloats, hull_of

if TYPE_CHECKING:
    from ...readings.native.gemm.depthwise import Bounds, Convolution

IMAGE, PLANE = 4, 2  # axes of a value, and of a window
LEAST_LANES = 4  # channels of a vector


@dataclass(frozen=True, eq=False)
class DepthwiseConvolution:
    """A depthwise convolution fused with a clamp before it, and a bias and a clamp after it."""

    program: Program
    node: Node
    leading_clamp: Node | None = None
    bias: Node | None = None
    trailing_clamp: Node | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The fused nodes in order."""
        return tuple(n for n in (self.leading_clamp, self.node, self.bias, self.trailing_clamp) if n is not None)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values that the fused nodes read, without constants."""
        return self.nodes[0].inputs[:1]

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The values that the fused nodes define for others."""
        return self.nodes[-1].outputs

    @cached_property
    def code(self) -> Convolution:
        """The machine code."""
        from ...readings.native.gemm.depthwise import Window, convolution, lanes_of

        p, attributes = self.program, dict(self.node.attributes)
        weights = p.constants[self.node.inputs[1]]
        lanes = lanes_of(len(weights))
        assert lanes is not None
        kernel, strides, pads = weights.shape[PLANE:], attributes["strides"], attributes["pads"]
        w = Window(kernel, strides, pads, _bounds(self.leading_clamp), _bounds(self.trailing_clamp), self.bias is not None, lanes)  # type: ignore[arg-type]
        return convolution(w, weights, np.zeros(len(weights)) if self.bias is None else p.constants[self.bias.inputs[1]])

    def __call__(self, x: Data) -> RangedFloats:
        """Return the result for x [samples, batch, channels, rows, columns], channels last in memory, with its range."""
        if x.strides[2] != x.itemsize or any(s % x.itemsize for s in x.strides):
            image = _channels_last(x.shape)
            np.copyto(image, x)
            x = image
        y = _channels_last((*x.shape[:2], *self.program.types[self.outputs[0]].shape[1:]))
        ends = [self.code(x[:, n], y[:, n]) for n in range(x.shape[1])]
        nonfinite = [e for e in ends if not all(map(math.isfinite, e))]  # NaN and infinities must not be hidden by other images
        return RangedFloats(y, nonfinite[0] if nonfinite else hull_of(ends))


def _channels_last(shape: Sequence[int]) -> Data:
    """Return an uninitialised array [samples, batch, channels, rows, columns] with channels last in memory."""
    n, batch, channels, *plane = shape
    return np.moveaxis(pooled_array((n, batch, *plane, channels), np.float32), -1, 2)


def _bounds(node: Node | None) -> Bounds | None:
    if node is None:
        return None
    attributes: Any = dict(node.attributes)
    return (attributes["low"], attributes["high"]) if node.op == "clip" else (0.0, math.inf)


def is_depthwise(p: Program, node: Node) -> bool:
    """Tell whether a node is a depthwise convolution of float32 images, with constant weights and channels in whole vectors."""
    if node.op != "conv" or node.inputs[0] in p.constants or node.inputs[1] not in p.constants:
        return False
    x, w, attributes = p.types[node.inputs[0]], p.types[node.inputs[1]], dict(node.attributes)
    is_alone = len(x.shape) == IMAGE and attributes["group"] == x.shape[1] == w.shape[0] and not x.shape[1] % LEAST_LANES
    return is_alone and x.dtype == w.dtype == "float32" and set(attributes["dilations"]) == {1}  # type: ignore[arg-type]


def fuse_depthwise(p: Program) -> list[Node | DepthwiseConvolution]:
    """Return the nodes of a program in order, with depthwise convolutions fused with their neighbours."""
    users, makers, fused = p.users(), p.producer(), dict[int, DepthwiseConvolution]()
    fused_nodes: set[int] = set()
    for node in p.nodes:
        if not is_depthwise(p, node):
            continue
        producer = makers.get(node.inputs[0])
        leading_clamp = producer if producer is not None and _is_clamp(producer) and _sole_reader(p, users, producer) is node else None
        bias = _following(p, users, node, lambda n: n.op == "bias_add" and n.inputs[1] in p.constants and dict(n.attributes)["axis"] == 1)
        clamp = _following(p, users, bias or node, _is_clamp)
        c = DepthwiseConvolution(p, node, leading_clamp, bias, clamp)
        fused_nodes.update(map(id, c.nodes))
        fused[id(c.nodes[-1])] = c
    return [fused.get(id(n), n) for n in p.nodes if id(n) not in fused_nodes or id(n) in fused]


def _is_clamp(node: Node) -> bool:
    return node.op in ("clip", "relu")


def _sole_reader(p: Program, users: Any, node: Node) -> Node | None:
    """Return the only reader of a node's result; None where there are several."""
    (v,) = node.outputs
    return users[v][0] if v not in p.outputs and len(users.get(v, ())) == 1 else None


def _following(p: Program, users: Any, node: Node, fits: Any) -> Node | None:
    reader = _sole_reader(p, users, node)
    return reader if reader is not None and fits(reader) and reader.inputs[0] == node.outputs[0] else None
