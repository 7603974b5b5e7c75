"""What an operator costs on the host: a table of one machine, so that plans do not depend on where they are made.

Figures are medians of `benchmarks/results/host_costs.json`, in picoseconds of one processor core running onnxruntime.
Operators that are not in the record cost what the one named beside them does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..ir.program import Node, Program
from ..ir.types import TensorType
from ..ops.op import ELEMENTWISE, LAYOUT, Op
from ..target import Clock

CLOCK = Clock(2_600_000_000, "the processor of benchmarks/results/host_costs.json")
CALL = 593_000  # of one operator inside a model
MAC = {"dense": 25, "conv": 21}
OTHER_MAC = 39  # matmul; recurrent layers are taken for products
GROUPED_MAC = 90  # depthwise convolution
ELEMENT = {
    "relu": 268, "exp": 286, "tanh": 388, "erf": 700, "sigmoid": 448, "sqrt": 487, "add": 260, "mul": 253, "div": 342,
    "softmax": 414, "log_softmax": 414, "layer_norm": 628, "max_pool": 311, "average_pool": 311, "reduce_mean": 182,
    "reduce_sum": 182, "reduce_max": 182,
}  # fmt: skip
OTHER_ELEMENT = {ELEMENTWISE: 268, LAYOUT: 925}  # relu; transpose
REST = 628  # layer norm
FREE = ("reshape", "full")  # no element moves


def host_picoseconds(op: Op | None, operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Mapping[str, Any]) -> int:
    """Return the processor time of one operator; None stands for one that is not understood."""
    elements = max((t.size for t in (*operands, *results)), default=0)
    if op is None:
        return CALL + REST * elements
    if op.name in FREE:
        return 0
    if op.macs is not None:
        each = GROUPED_MAC if attributes.get("group", 1) != 1 else MAC.get(op.name, OTHER_MAC)
        return CALL + each * int(op.macs(*(t.shape for t in operands), **attributes))
    moved = sum(t.size for t in results) if op.kind == LAYOUT else elements
    return CALL + ELEMENT.get(op.name, OTHER_ELEMENT.get(op.kind, REST)) * moved


def host_bytes(op: Op | None, operands: Sequence[TensorType], results: Sequence[TensorType]) -> int:
    """Return the bytes that an operator reads and writes in the memory of the host."""
    return 0 if op is not None and op.name in FREE else sum(t.nbytes for t in (*operands, *results))


def picoseconds_of(p: Program, nodes: Iterable[Node] | None = None) -> int:
    """Return the processor time of the nodes of a program."""
    return sum(
        host_picoseconds(n.operator, [p.types[v] for v in n.inputs], [p.types[v] for v in n.outputs], dict(n.attributes))
        for n in (p.nodes if nodes is None else nodes)
    )
