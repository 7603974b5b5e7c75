"""The cost of operators on the host: a table of one machine, so that plans do not depend on where they are made.

Figures are picoseconds of one processor core running onnxruntime, measured once; `benchmarks/results/host_costs.json` has them
beside those of another day, and this machine's own table can be measured instead. Operators that are not in a table cost what the
one named beside them does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..ir.program import Node, Program
from ..ir.types import TensorType
from ..ops.op import ELEMENTWISE, LAYOUT, Op
from ..target import Clock

CLOCK = Clock(2_600_000_000, "the processor of benchmarks/results/host_costs.json")
PROXY_OPERATORS = {ELEMENTWISE: "relu", LAYOUT: "transpose"}  # what an operator that is not in the table costs as
FALLBACK_OPERATOR = "layer_norm"


@dataclass(frozen=True)
class HostTable:
    """Picoseconds of one core for a call, a multiply-accumulate and an element of an operator, and the source of the figures."""

    source: str
    call: int
    mac: Mapping[str, int]  # dense, conv, matmul (recurrent layers and others), grouped (depthwise convolution)
    element: Mapping[str, int]

    @property
    def sha256(self) -> str:
        """SHA-256 of the figures."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def element_picoseconds(self, op: Op | None) -> int:
        """Return picoseconds for an element of an operator without multiply-accumulates."""
        like = FALLBACK_OPERATOR if op is None else op.name if op.name in self.element else PROXY_OPERATORS.get(op.kind, FALLBACK_OPERATOR)
        return self.element[like]


SHIPPED = HostTable(
    "benchmarks/results/host_costs.json", 593_000,
    {"dense": 25, "conv": 21, "matmul": 39, "grouped": 90},
    {
        "relu": 268, "exp": 286, "tanh": 388, "erf": 700, "sigmoid": 448, "sqrt": 487, "add": 260, "mul": 253, "div": 342,
        "softmax": 414, "log_softmax": 414, "layer_norm": 628, "max_pool": 311, "average_pool": 311, "reduce_mean": 182,
        "reduce_sum": 182, "reduce_max": 182, "transpose": 925,
    },
)  # fmt: skip
FREE = ("reshape", "full")  # no element moves


def host_picoseconds(
    op: Op | None, operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Mapping[str, Any], table: HostTable = SHIPPED
) -> int:
    """Return the processor time of one operator in picoseconds; None stands for an operator that is not understood."""
    elements = max((t.size for t in (*operands, *results)), default=0)
    if op is None:
        return table.call + table.element_picoseconds(None) * elements
    if op.name in FREE:
        return 0
    if op.macs is not None:
        kind = "grouped" if attributes.get("group", 1) != 1 else op.name if op.name in table.mac else "matmul"
        return table.call + table.mac[kind] * int(op.macs(*(t.shape for t in operands), **attributes))
    moved_elements = sum(t.size for t in results) if op.kind == LAYOUT else elements
    return table.call + table.element_picoseconds(op) * moved_elements


def host_bytes(op: Op | None, operands: Sequence[TensorType], results: Sequence[TensorType]) -> int:
    """Return the bytes that an operator reads and writes in the host's memory."""
    return 0 if op is not None and op.name in FREE else sum(t.nbytes for t in (*operands, *results))


def picoseconds_of(p: Program, nodes: Iterable[Node] | None = None, table: HostTable = SHIPPED) -> int:
    """Return the processor time of a program's nodes in picoseconds."""
    return sum(
        host_picoseconds(n.operator, [p.types[v] for v in n.inputs], [p.types[v] for v in n.outputs], dict(n.attributes), table)
        for n in (p.nodes if nodes is None else nodes)
    )


def host_document(table: HostTable) -> dict[str, Any]:
    """Return a table as the plan's JSON: its source and hash, and its figures where it is not the shipped one."""
    figures = None if table == SHIPPED else {"call": table.call, "mac": dict(table.mac), "element": dict(table.element)}
    return {"source": table.source, "sha256": table.sha256, "picoseconds": figures}


def table_from(document: Mapping[str, Any]) -> HostTable:
    """Return the table that a plan was made with, from its JSON."""
    figures = document["picoseconds"]
    return SHIPPED if figures is None else HostTable(document["source"], figures["call"], figures["mac"], figures["element"])
