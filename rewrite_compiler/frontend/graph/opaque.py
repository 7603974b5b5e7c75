"""Opaque operators: source nodes kept as they are, with the names of operands and results replaced by positions.

The program's node reads each value once, in the order of `read_names`; in the payload the k-th is called `operand(k)` and the
k-th result `result(k)`, while an omitted operand or result keeps its empty name. Values that only the node's subgraphs
read come last. `node_proto` puts real names in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.program import OpaqueOp
from .attributes import subgraphs

# source operators whose results differ from run to run: two equal nodes are not one
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}


def operand_name(k: int) -> str:
    """Return the name of the k-th operand in a payload."""
    return f"flexmatch.operand.{k}"


def result_name(k: int) -> str:
    """Return the name of the k-th result in a payload."""
    return f"flexmatch.result.{k}"


def captured_names(node: Any) -> list[str]:
    """Return the free names of a node's subgraphs, each once."""
    names: dict[str, None] = {}
    for graph in subgraphs(node):
        names.update(dict.fromkeys(_free_names(graph)))
    return list(names)


def _free_names(graph: Any) -> list[str]:
    defined = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
    read = [name for n in graph.node for name in (*n.input, *captured_names(n))] + [o.name for o in graph.output]
    return [name for name in read if name and name not in defined]


def renamed_copy(node: Any, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Any:
    """Return a copy of a node with operands and results renamed; free names of subgraphs follow `inputs`."""
    copy = type(node)()
    copy.CopyFrom(node)
    _rename_node(copy, inputs)
    copy.output[:] = [outputs.get(o, o) for o in node.output]
    return copy


def _rename_node(node: Any, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(i, i) for i in node.input]
    for graph in subgraphs(node):
        defined = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {o for n in graph.node for o in n.output}
        outer = {old: new for old, new in names.items() if old not in defined}
        for inner in graph.node:
            _rename_node(inner, outer)
        for output in graph.output:
            output.name = outer.get(output.name, output.name)


def read_names(node: Any) -> list[str]:
    """Return the names a node reads, free names of its subgraphs included, each once."""
    return [name for name in dict.fromkeys((*node.input, *captured_names(node))) if name]


def canonical_node(node: Any) -> Any:
    """Return the canonical form of a node: names replaced by positions, its own name and documentation dropped."""
    result_names = {name: result_name(k) for k, name in enumerate(o for o in node.output if o)}
    copy = renamed_copy(node, {name: operand_name(k) for k, name in enumerate(read_names(node))}, result_names)
    copy.ClearField("name")
    copy.ClearField("doc_string")
    return copy


def key_of(op: OpaqueOp, number: int) -> str:
    """Return the key of an opaque operator: equal operators share it, unless their results are random."""
    digest = hashlib.sha256(f"{op.label}\0{op.macs}\0".encode() + op.payload).hexdigest()[:16]
    return f"{op.label}.{digest}" + (f".{number}" if op.op_type in RANDOM else "")


def node_proto(op: OpaqueOp, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """Return the source node of an opaque operator with these names for its operands and results."""
    from onnx import NodeProto

    node = NodeProto()
    node.ParseFromString(op.payload)
    operand_names = {operand_name(k): name for k, name in enumerate(inputs)}
    return renamed_copy(node, operand_names, {result_name(k): name for k, name in enumerate(outputs)})
