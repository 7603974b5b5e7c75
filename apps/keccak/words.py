"""The permutation as implementations write it, with bitwise operators on lanes of 64 bits: none of it is sent to an accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .export import IR_VERSION, Nodes
from .permutation import BITS, LANES, ROUNDS, SIDE, rotations, round_constant, sources

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 18  # the first with bitwise operators


def _rotated(nodes: Nodes, x: str, left: str, right: str, name: str) -> str:
    """Add a rotation to the left."""
    parts = [nodes.add("BitShift", [x, by], f"{side.lower()}_{name}", direction=side) for by, side in ((left, "LEFT"), (right, "RIGHT"))]
    return nodes.add("BitwiseOr", parts, f"rotate_{name}")


def _round(nodes: Nodes, state: str, n: int) -> str:
    """Add one round on lanes [1, y, x]."""
    rows = [nodes.add("Gather", [state, f"row_{y}"], f"row_{y}_{n}", axis=1) for y in range(SIDE)]
    column = rows[0]
    for y, row in enumerate(rows[1:], start=1):
        column = nodes.add("BitwiseXor", [column, row], f"column_{y}_{n}")
    after = _rotated(nodes, nodes.add("Gather", [column, "neighbour_1"], f"after_{n}", axis=2), "one", "rest", f"column_{n}")
    before = nodes.add("Gather", [column, "neighbour_4"], f"before_{n}", axis=2)
    mixed = nodes.add("BitwiseXor", [state, nodes.add("BitwiseXor", [after, before], f"effect_{n}")], f"theta_{n}")
    moved = nodes.add("Gather", [nodes.add("Reshape", [mixed, "flat"], f"flatten_{n}"), "sources"], f"pi_{n}", axis=1)
    lanes = nodes.add("Reshape", [_rotated(nodes, moved, "rotations", "returns", f"lanes_{n}"), "square"], f"unflatten_{n}")
    b, c = (nodes.add("Gather", [lanes, f"neighbour_{k}"], f"next_{k}_{n}", axis=2) for k in (1, 2))
    masked = nodes.add("BitwiseAnd", [nodes.add("BitwiseNot", [b], f"not_{n}"), c], f"and_{n}")
    return nodes.add("BitwiseXor", [nodes.add("BitwiseXor", [lanes, masked], f"chi_{n}"), f"iota_{n}.word"], f"iota_{n}")


def to_onnx(rounds: int = ROUNDS) -> ModelProto:
    """Return the model with input `state` (1, 5, 5) of lanes and output `permuted` of the same shape."""
    from onnx import TensorProto, checker, helper, numpy_helper

    turns = rotations()[sources()].astype(np.uint64)[None]
    constants: dict[str, Any] = {
        "one": np.uint64(1), "rest": np.uint64(BITS - 1), "rotations": turns, "returns": (BITS - turns) % np.uint64(BITS),
        "sources": sources(), "flat": np.array([1, LANES]), "square": np.array([1, SIDE, SIDE]),
    }  # fmt: skip
    constants |= {f"row_{y}": np.array([y]) for y in range(SIDE)}
    constants |= {f"neighbour_{k}": (np.arange(SIDE) + k) % SIDE for k in (1, 2, 4)}
    for n in range(rounds):
        constants[f"iota_{n}.word"] = np.array([[[round_constant(n)] + [0] * (SIDE - 1)] + [[0] * SIDE] * (SIDE - 1)], np.uint64)
    nodes, state = Nodes(), "state"
    for n in range(rounds):
        state = _round(nodes, state, n)
    nodes.entries.append(helper.make_node("Identity", [state], ["permuted"], "result"))
    ends = [helper.make_tensor_value_info(name, TensorProto.UINT64, (1, SIDE, SIDE)) for name in ("state", "permuted")]
    tensors = [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()]
    graph = helper.make_graph(nodes.entries, "keccak_words", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="rewrite_compiler.apps.keccak")
    checker.check_model(model, full_check=True)
    return model
