"""Local functions of a model: their bodies with a call's attributes bound, and inlining of calls inside opaque subgraphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from .attributes import TYPE_NAMES, subgraphs
from .header import own_domain
from .opaque import renamed_copy
from .opset_upgrade import Upgrader

Key = tuple[str, str, str]


def key_of_call(node: Any) -> Key:
    """Return the key of the function that a node may call: domain, name, overload."""
    return own_domain(node.domain), node.op_type, node.overload


def imports_of_function(function: Any) -> dict[str, int]:
    """Return the operator set versions of a function by domain."""
    return {own_domain(o.domain): int(o.version) for o in function.opset_import}


def with_attributes(inner: Any, call: Any, function: Any) -> Any:
    """Return a node of a function body with attribute references replaced by the call's values."""
    copy = type(inner)()
    copy.CopyFrom(inner)
    _bind(copy, {a.name: a for a in (*function.attribute_proto, *call.attribute)})
    return copy


def _bind(node: Any, arguments: Mapping[str, Any]) -> None:
    if any(a.ref_attr_name for a in node.attribute):
        bound_attributes = [_bound_attribute(a, arguments) for a in node.attribute if not a.ref_attr_name or a.ref_attr_name in arguments]
        del node.attribute[:]
        node.attribute.extend(bound_attributes)
    for graph in subgraphs(node):
        for inner in graph.node:
            _bind(inner, arguments)


def _bound_attribute(a: Any, arguments: Mapping[str, Any]) -> Any:
    if not a.ref_attr_name:
        return a
    copy = type(a)()
    copy.CopyFrom(arguments[a.ref_attr_name])
    if a.type and copy.type != a.type:
        kinds = TYPE_NAMES.get(a.type, str(a.type)), TYPE_NAMES.get(copy.type, str(copy.type))
        raise InputError("F130", f'attribute "{a.ref_attr_name}" of a function must be {kinds[0]}, not {kinds[1]}')
    copy.name = a.name
    return copy


@dataclass
class Inliner:
    """Inlines calls inside subgraphs, whose nodes all have one operator set, and counts the nodes it makes."""

    functions: Mapping[Key, Any]
    version: int
    max_nodes: int
    expanded_nodes: int = 0

    def inlined(self, node: Any) -> Any:
        """Return a node whose subgraphs call no function of the model.

        Raises:
            InputError: inlining exceeds the limit on nodes, or a function has a newer operator set than the subgraph.
        """
        if not any(self._calls(g) for g in subgraphs(node)):
            return node
        copy = type(node)()
        copy.CopyFrom(node)
        for graph in subgraphs(copy):
            self._rewrite(graph)
        return copy

    def _calls(self, graph: Any) -> bool:
        return any(key_of_call(n) in self.functions or any(self._calls(g) for g in subgraphs(n)) for n in graph.node)

    def _rewrite(self, graph: Any) -> None:
        nodes = [part for n in graph.node for part in self._expanded(n)]
        del graph.node[:]
        graph.node.extend(nodes)

    def _expanded(self, node: Any) -> Sequence[Any]:
        function = self.functions.get(key_of_call(node))
        if function is None:
            return [self.inlined(node)]
        self.expanded_nodes += len(function.node)
        if self.expanded_nodes > self.max_nodes:
            raise InputError(
                "F105", f"the model must have at most {self.max_nodes} nodes with its functions expanded", help="raise --limits nodes="
            )
        prefix = f"{next(o for o in node.output if o)}/{self.expanded_nodes}/"
        reads = {formal: node.input[n] if n < len(node.input) else "" for n, formal in enumerate(function.input)}
        results = {formal: node.output[n] if n < len(node.output) else "" for n, formal in enumerate(function.output)}
        inner = {o: results.get(o) or prefix + o for n in function.node for o in n.output if o}
        nodes = [renamed_copy(with_attributes(n, node, function), {**reads, **inner}, inner) for n in self._upgraded(function)]
        return [part for n in nodes for part in self._expanded(n)]

    def _upgraded(self, function: Any) -> list[Any]:
        version = imports_of_function(function).get("", self.version)
        if version > self.version:
            sentence = f'function "{function.name}" of operator set {version} is called in a subgraph of operator set {self.version}'
            raise InputError("F111", sentence, help="export all of the model with one operator set")
        parts = Upgrader(self.version).replacements(function.node, version, [f'function "{function.name}"'] * len(function.node))
        return [n for part in parts for n in part]
