"""Nodes between which shapes depend on data, or values are no tensors: kept whole, from the last known shapes to the next ones.

A region is one opaque node of the program, written as an `If` whose condition is true: what its branch captures are the operands,
what it gives are results of known shapes. Its other branch, which never runs, gives zeros.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import FlexmatchError
from ...ir.program import OpaqueOp
from ...ir.types import TensorType
from ..file.tensors import CODES
from ..graph.attributes import subgraphs
from ..graph.functions import key_of_call
from ..graph.header import own_domain
from ..graph.opaque import RANDOM, canonical_node, key_of, read_names
from ..graph.opset_upgrade import schema_of
from ..graph.scope import NodeContext, Scope
from ..site.context import Absorption, Context, UnknownShape, embed_tensors
from .declared_types import literal_type, opset_imports, small_constants, tensor_type, type_proto
from .mac_counts import multiplies_nothing

CONDITION = "flexmatch.condition"


@dataclass(frozen=True)
class UnsizedNode:
    """A node of the model, in the import's operator set, with a result of unknown shape; `origin` is its number, `refusal` says why."""

    node: Any
    origin: int
    refusal: FlexmatchError


@dataclass
class UnsizedRegions:
    """The nodes of a model with results of unknown shape, in their order, and what is known of these results."""

    context: Context
    nodes: list[UnsizedNode] = field(default_factory=list)
    types: dict[str, Any] = field(default_factory=dict)  # TypeProto of results of unknown shape
    _producers: dict[str, int] = field(default_factory=dict)

    def reads_one(self, node: Any) -> bool:
        """Tell whether a node, or a subgraph in it, reads a value of unknown shape."""
        return bool(self._producers) and any(name in self._producers for name in read_names(node))

    def lower(
        self, node: Any, body: NodeContext, origin: int, functions: Container[tuple[str, str, str]], refusal: FlexmatchError | None = None
    ) -> None:  # fmt: skip
        """Lower a node with results of unknown shape, or that reads one; `refusal` says why its own are not known.

        Results of known shape become those of an opaque node of all that they are computed by; what the others are is remembered.
        `functions` are those of the model.

        Raises:
            InputError: a result is random, the node calls a function of the model, or operators are of two domains beside ONNX's.
        """
        before = self._before(read_names(node))
        if key_of_call(node) in functions:
            raise refusal or before[0].refusal
        unsized = UnsizedNode(node, origin, refusal or before[0].refusal)
        inferred = self._inferred(node, body)
        results: dict[str, TensorType] = {}
        for name in filter(None, node.output):
            result_type = _known_type(inferred.get(name), name) or literal_type(body.declared.get(name))
            if result_type is not None:
                results[name] = result_type
                continue
            self._producers[name] = len(self.nodes)
            if name in inferred:
                self.types[name] = inferred[name]
        self.nodes.append(unsized)
        if results:
            self._add([*before, unsized], results, body)

    def refusal(self, names: Iterable[str], scope: Scope, file: str) -> FlexmatchError | None:
        """Return why outputs cannot be given: the first node that they are computed by has a result of unknown shape."""
        nodes = self._before(names)
        if not nodes:
            return None
        problem = nodes[0].refusal.problem
        b = self.context.builder
        inputs = [b.names[v] for v in b.inputs]
        reads = [f'"{name}"' for name in _free_names([n.node for n in nodes]) if scope.find(name) not in {*b.inputs, *b.constants}]
        if not reads or problem.code != "F160":
            return nodes[0].refusal
        cut = f'onnx.utils.extract_model("{file}", "part.onnx", [{", ".join(f"{i!r}" for i in inputs)}], [{", ".join(reads)}])'
        remedy = f"declare it in the model (value_info) if it is always the same, or compile what comes before it: {cut}"
        return type(nodes[0].refusal)(problem.code, problem.sentence, place=problem.place, help=remedy.replace("'", '"'))

    def _before(self, names: Iterable[str]) -> list[UnsizedNode]:
        """Return the nodes that values are computed by, back to values of known shape, in their order."""
        numbers: set[int] = set()
        work = [self._producers[name] for name in names if name in self._producers]
        while work:
            number = work.pop()
            if number not in numbers:
                numbers.add(number)
                work.extend(self._producers[name] for name in read_names(self.nodes[number].node) if name in self._producers)
        return [self.nodes[number] for number in sorted(numbers)]

    def _inferred(self, node: Any, body: NodeContext) -> dict[str, Any]:
        """Return what ONNX's inference finds of a node's results from what is known of its operands."""
        from onnx import shape_inference

        context, domain = self.context, own_domain(node.domain)
        schema = schema_of(node.op_type, domain, context.imports.get(domain, 1))
        if schema is None:
            return {}
        values = {name: v for name in read_names(node) if (v := body.scope.find(name)) is not None}
        types = {name: self.types[name] for name in read_names(node) if name in self.types}
        types |= {name: type_proto(context.builder.types[v]) for name, v in values.items()}
        constants = small_constants(context, values)
        try:
            return dict(shape_inference.infer_node_outputs(schema, node, types, constants, opset_imports=opset_imports(context)))
        except Exception:  # the inference raises InferenceError, RuntimeError and ValidationError; the host judges the node
            return {}

    def _add(self, nodes: Sequence[UnsizedNode], results: Mapping[str, TensorType], body: NodeContext) -> None:
        """Add nodes as one opaque node with these results."""
        operators = [inner for n in nodes for inner in _operators(n.node)]
        domains = {own_domain(n.domain) for n in operators} - {""}
        if len(domains) > 1 or any(n.op_type in RANDOM for n in operators):
            raise nodes[0].refusal
        context, first = self.context, nodes[0]
        region = _region([n.node for n in nodes], results)
        condition = context.constant(np.asarray(True), CONDITION)
        operands = [condition if name == CONDITION else body.scope.find(name) for name in read_names(region)]
        reads = [v for v in operands if v is not None]
        if len(reads) < len(operands):  # a sequence, whose tensors are known
            raise first.refusal
        payload = canonical_node(region)
        embed_tensors(context, payload)
        domain = next(iter(domains), "")
        op = OpaqueOp(
            first.node.op_type, domain, payload.SerializeToString(deterministic=True), first.refusal.problem.sentence,
            context.imports.get(domain, 1), 0 if multiplies_nothing(region) else None,
        )  # fmt: skip
        origins = frozenset(n.origin for n in nodes)
        types = list(results.values())
        values = context.opaque(op, key_of(op, len(context.builder.nodes)), reads, types, origins, first.node.output[0])
        for name, v in zip(results, values, strict=True):
            context.builder.names[v] = context.unique(name)
            body.scope.values[name] = v
        context.reasons |= dict.fromkeys(origins, Absorption.UNUSED)


def _known_type(proto: Any, name: str) -> TensorType | None:
    try:
        return tensor_type(proto, name)
    except UnknownShape:
        return None


def _free_names(nodes: Sequence[Any]) -> list[str]:
    """Return the names that nodes read and do not define, each once."""
    defined = {o for n in nodes for o in n.output}
    return list(dict.fromkeys(name for n in nodes for name in read_names(n) if name not in defined))


def _operators(node: Any) -> Iterator[Any]:
    """Yield a node and the nodes in its subgraphs."""
    yield node
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _operators(inner)


def _region(nodes: Sequence[Any], results: Mapping[str, TensorType]) -> Any:
    """Return nodes as one node, which reads CONDITION and what the nodes read."""
    from onnx import helper

    infos = [helper.make_tensor_value_info(name, CODES[t.dtype], list(t.shape)) for name, t in results.items()]
    then = helper.make_graph(nodes, "region", [], infos)
    other = helper.make_graph([n for name, t in results.items() for n in _zeros(name, t)], "nothing", [], infos)
    return helper.make_node("If", [CONDITION], list(results), then_branch=then, else_branch=other)


def _zeros(name: str, t: TensorType) -> Iterator[Any]:
    from onnx import helper

    if t.dtype == "string":
        yield helper.make_node("Constant", [], [name], value=helper.make_tensor("zeros", CODES[t.dtype], t.shape, [""] * t.size))
        return
    shape = helper.make_tensor("shape", CODES["int64"], [len(t.shape)], t.shape)
    yield helper.make_node("Constant", [], [f"{name}.shape"], value=shape)
    zero = helper.make_tensor("zero", CODES[t.dtype], [1], [0])
    yield helper.make_node("ConstantOfShape", [f"{name}.shape"], [name], value=zero)
