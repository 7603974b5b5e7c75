"""The host's cost table measured on this machine: each operator timed in onnxruntime, one thread, on the shipped table's shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..frontend.graph.emit import to_onnx
from ..hostrun.timing import random_operands, session_seconds
from ..ir.program import Builder, Program, total_macs
from ..ir.types import TensorType
from .host import SHIPPED, HostTable

PICO = 10**12
CHAIN = 256  # calls of a small operator in a row
Shapes = tuple[tuple[int, ...], ...]
ROW, IMAGE = (256, 1024), (1, 64, 56, 56)
WINDOW = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
MACS: Mapping[str, tuple[str, Shapes, Mapping[str, Any]]] = {
    "dense": ("dense", (ROW, (1024, 1024)), {}),
    "matmul": ("matmul", ((8, 128, 128), (8, 128, 128)), {}),
    "conv": ("conv", (IMAGE, (64, 64, 3, 3)), {**WINDOW, "group": 1}),
    "grouped": ("conv", (IMAGE, (64, 1, 3, 3)), {**WINDOW, "group": 64}),
}
ELEMENTS: Mapping[str, tuple[Shapes, Mapping[str, Any]]] = {
    **{op: ((ROW,), {}) for op in ("relu", "exp", "tanh", "erf", "sigmoid", "sqrt")},
    **{op: ((ROW, ROW), {}) for op in ("add", "mul", "div")},
    "softmax": ((ROW,), {"axis": 1}),
    "layer_norm": ((ROW, (1024,), (1024,)), {"axis": 1, "epsilon": 1e-5}),
    "max_pool": ((IMAGE,), {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}),
    "reduce_mean": ((ROW,), {"axes": (1,), "keepdims": 0}),
    "transpose": ((ROW,), {"perm": (1, 0)}),
}
PROXY_OPERATORS = {"log_softmax": "softmax", "average_pool": "max_pool", "reduce_sum": "reduce_mean", "reduce_max": "reduce_mean"}


def measured_table() -> HostTable:
    """Return this machine's table: the median of five measurements of each operator, less the cost of a call."""
    call = max(1, _picoseconds(_program("tanh", ((1, 16),), {}, CHAIN)) // CHAIN)
    macs = {}
    for kind, (op, shapes, attributes) in MACS.items():
        program = _program(op, shapes, attributes)
        macs[kind] = max(1, (_picoseconds(program) - call) // total_macs(program))
    elements = {}
    for op, (shapes, attributes) in ELEMENTS.items():
        program = _program(op, shapes, attributes)
        largest = max(program.types[v].size for v in (*program.inputs, *program.outputs))
        elements[op] = max(1, (_picoseconds(program) - call) // largest)
    elements |= {op: elements[like] for op, like in PROXY_OPERATORS.items()}
    assert elements.keys() == SHIPPED.element.keys()
    return HostTable("measured", call, macs, elements)


def _program(op: str, shapes: Shapes, attributes: Mapping[str, Any], chain: int = 1) -> Program:
    builder = Builder(op)
    operands = random_operands({str(n): s for n, s in enumerate(shapes)}, {str(n): "float32" for n in range(len(shapes))})
    y = builder.input("x", TensorType(shapes[0], "float32"))
    for _ in range(chain):
        y = builder.apply(op, [y, *(builder.constant(operands[str(n)]) for n in range(1, len(shapes)))], dict(attributes))[0]
    return builder.finish([y])


def _picoseconds(p: Program) -> int:
    """Return the processor time of one run."""
    (x,) = p.inputs
    operands = random_operands({p.names[x]: p.types[x].shape}, {p.names[x]: p.types[x].dtype})
    return round(session_seconds(to_onnx(p), operands) * PICO)
