"""Convolutions of every channel by itself among host operators, each with the clamps around it and the bias behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.program import Data, Node, Program, Value
from ...readings.arrays.buffer_pool import recycled
from .lazy_codes import Ended, hull_of

if TYPE_CHECKING:
    from ...readings.native.gemm.depthwise import Bounds, Convolution

IMAGE, PLANE = 4, 2  # axes of a value, and of a window
LEAST_LANES = 4  # channels of a vector


@dataclass(frozen=True, eq=False)
class Channelwise:
    """A convolution and what is done to single elements before and after it, in one pass."""

    program: Program
    node: Node
    before: Node | None = None
    bias: Node | None = None
    after: Node | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All that is done, in order."""
        return tuple(n for n in (self.before, self.node, self.bias, self.after) if n is not None)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What it reads."""
        return self.nodes[0].inputs[:1]

    @property
    def outputs(self) -> tuple[Value, ...]:
        """What it gives."""
        return self.nodes[-1].outputs

    @cached_property
    def code(self) -> Convolution:
        """Its machine code."""
        from ...readings.native.gemm.depthwise import Window, convolution, lanes_of

        p, given = self.program, dict(self.node.attributes)
        weights = p.constants[self.node.inputs[1]]
        lanes = lanes_of(len(weights))
        assert lanes is not None
        kernel, strides, pads = weights.shape[PLANE:], given["strides"], given["pads"]
        w = Window(kernel, strides, pads, _bounds(self.before), _bounds(self.after), self.bias is not None, lanes)  # type: ignore[arg-type]
        return convolution(w, weights, np.zeros(len(weights)) if self.bias is None else p.constants[self.bias.inputs[1]])

    def __call__(self, x: Data) -> Ended:
        """Return the result for x[samples, batch, channels, rows, columns]; its channels lie side by side."""
        if x.strides[2] != x.itemsize or any(s % x.itemsize for s in x.strides):
            kept = _channels_last(x.shape)
            np.copyto(kept, x)
            x = kept
        y = _channels_last((*x.shape[:2], *self.program.types[self.outputs[0]].shape[1:]))
        ends = [self.code(x[:, n], y[:, n]) for n in range(x.shape[1])]
        odd = [e for e in ends if not all(map(math.isfinite, e))]  # a number does not hide what is none
        return Ended(y, odd[0] if odd else hull_of(ends))


def _channels_last(shape: Sequence[int]) -> Data:
    """Return [samples, batch, channels, rows, columns], not set, whose channels lie side by side."""
    n, batch, channels, *plane = shape
    return np.moveaxis(recycled((n, batch, *plane, channels), np.float32), -1, 2)


def _bounds(node: Node | None) -> Bounds | None:
    if node is None:
        return None
    given: Any = dict(node.attributes)
    return (given["low"], given["high"]) if node.op == "clip" else (0.0, math.inf)


def channelwise(p: Program, node: Node) -> bool:
    """Tell whether a node convolves every channel of an image by itself, with constant weights, channels in whole vectors."""
    if node.op != "conv" or node.inputs[0] in p.constants or node.inputs[1] not in p.constants:
        return False
    x, w, given = p.types[node.inputs[0]], p.types[node.inputs[1]], dict(node.attributes)
    is_alone = len(x.shape) == IMAGE and given["group"] == x.shape[1] == w.shape[0] and not x.shape[1] % LEAST_LANES
    return is_alone and x.dtype == w.dtype == "float32" and set(given["dilations"]) == {1}  # type: ignore[arg-type]


def joined(p: Program) -> list[Node | Channelwise]:
    """Return the nodes of a program in order, those that one pass takes with a convolution as one."""
    users, makers, found = p.users(), p.producer(), dict[int, Channelwise]()
    taken: set[int] = set()
    for node in p.nodes:
        if not channelwise(p, node):
            continue
        before = makers.get(node.inputs[0])
        first = before if before is not None and _is_clamp(before) and _only(p, users, before) is node else None
        bias = _then(p, users, node, lambda n: n.op == "bias_add" and n.inputs[1] in p.constants and dict(n.attributes)["axis"] == 1)
        after = _then(p, users, bias or node, _is_clamp)
        c = Channelwise(p, node, first, bias, after)
        taken.update(map(id, c.nodes))
        found[id(c.nodes[-1])] = c
    return [found.get(id(n), n) for n in p.nodes if id(n) not in taken or id(n) in found]


def _is_clamp(node: Node) -> bool:
    return node.op in ("clip", "relu")


def _only(p: Program, users: Any, node: Node) -> Node | None:
    """Return the one reader of a node's result; None where others read it."""
    (v,) = node.outputs
    return users[v][0] if v not in p.outputs and len(users.get(v, ())) == 1 else None


def _then(p: Program, users: Any, node: Node, fits: Any) -> Node | None:
    reader = _only(p, users, node)
    return reader if reader is not None and fits(reader) and reader.inputs[0] == node.outputs[0] else None
