"""Operator set upgrade: source nodes of older operator sets converted to the newest one in the model, never the other way.

All distinct nodes of a graph are converted in one model of disconnected nodes: a conversion costs milliseconds however
small the model is, and the replacement of each node is then known by itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ...errors import InputError
from .attributes import subgraphs
from .early_opsets import SETTLED, change_of_meaning
from .opaque import canonical_node, captured_names, operand_name, read_names, renamed_copy, result_name

OLDEST, BASE = 1, 21
NEWEST = 26  # onnxruntime 1.31 loads no newer operator set
# lowered from their own version: their conversion needs shapes
BY_VERSION = frozenset({"Softmax", "LogSoftmax", "GroupNormalization"})

# operators with the versions that the converter gives another meaning
MISCONVERTED = frozenset({("Scan", 8)})


@cache
def schema_of(op: str, domain: str, version: int) -> Any:
    """Return ONNX's schema of an operator, or None when there is none."""
    from onnx import defs

    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


@dataclass
class Upgrader:
    """Conversions to one operator set, each distinct node once."""

    target: int
    templates: dict[Hashable, tuple[Any, ...]] = field(default_factory=dict)

    def replacements(self, nodes: Sequence[Any], version: int, places: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the replacement of each node: itself, or the nodes that the converter gives.

        Raises:
            InputError: a node has no conversion.
        """
        if version >= self.target:
            return [(n,) for n in nodes]
        keys = [_signature(n, version) if self._changes(n, version) else None for n in nodes]
        self._convert(
            version, {k: (n, p) for k, n, p in zip(keys, nodes, places, strict=True) if k is not None and k not in self.templates}
        )
        return [(n,) if k is None else self._instantiated(n, k) for n, k in zip(nodes, keys, strict=True)]

    def _changes(self, node: Any, version: int) -> bool:
        if node.domain not in ("", "ai.onnx") or node.op_type in BY_VERSION:
            return False
        if subgraphs(node):
            return True
        old, new = schema_of(node.op_type, "", version), schema_of(node.op_type, "", self.target)
        return old is not None and (new is None or old.since_version != new.since_version)

    def _convert(self, version: int, pending: dict[Hashable, tuple[Any, str]]) -> None:
        if not pending:
            return
        try:
            for node, _ in pending.values():
                _check_convertible(node, version)
            templates = _converted([n for n, _ in pending.values()], version, self.target)
        except Exception:  # the converter raises RuntimeError and others; one by one it is clear which node it was
            templates = [_converted_alone(n, version, self.target, place) for n, place in pending.values()]
        self.templates.update(zip(pending, templates, strict=True))

    def _instantiated(self, node: Any, key: Hashable) -> tuple[Any, ...]:
        operand_names = {operand_name(k): name for k, name in enumerate(read_names(node))}
        result_names = {result_name(k): o for k, o in enumerate(o for o in node.output if o)}
        first = next(iter(result_names.values()), "")
        copies = []
        for template in self.templates[key]:
            inner = {
                name: f"{first}/{name}"
                for name in (*template.input, *template.output)
                if name and name not in {**operand_names, **result_names}
            }
            copies.append(renamed_copy(template, {**inner, **operand_names, **result_names}, {**inner, **result_names}))
        return tuple(copies)


def _signature(node: Any, version: int) -> Hashable:
    return version, canonical_node(node).SerializeToString(deterministic=True)


def _converted(nodes: Sequence[Any], version: int, target: int) -> list[tuple[Any, ...]]:
    """Return the replacements of nodes in terms of operand(k), result(k) and inner names."""
    from onnx import GraphProto, helper, version_converter

    graph = GraphProto(name="upgrade")
    for n, node in enumerate(nodes):
        operands = [operand_name(k) for k in range(len(read_names(node)))]
        results = [result_name(k) for k in range(sum(map(bool, node.output)))]
        graph.node.append(renamed_copy(canonical_node(node), {o: f"{n}.{o}" for o in operands}, {r: f"{n}.{r}" for r in results}))
        graph.input.extend(helper.make_tensor_value_info(f"{n}.{o}", 1, None) for o in operands)
        graph.output.extend(helper.make_tensor_value_info(f"{n}.{r}", 1, None) for r in results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)
    upgraded = version_converter.convert_version(model, target)
    _drop_declared_types(upgraded.graph)  # inferred from operands that are float here, whatever they are in the model
    constants = [helper.make_node("Constant", [], [t.name], value=t) for t in upgraded.graph.initializer]
    return _components([*constants, *upgraded.graph.node], len(nodes))


def _drop_declared_types(graph: Any) -> None:
    """Delete what a graph and the graphs inside it declare of their inner values, in place."""
    del graph.value_info[:]
    for node in graph.node:
        for inner in subgraphs(node):
            _drop_declared_types(inner)


def _components(nodes: Sequence[Any], count: int) -> list[tuple[Any, ...]]:
    """Return the nodes of each of `count` disconnected components, with the component's number removed from their names."""
    part: dict[str, int] = {}
    components: list[list[Any]] = [[] for _ in range(count)]
    for node in reversed(nodes):
        names = [name for name in (*node.output, *node.input) if name]
        n = next((part[o] for o in names if o in part), None)
        if n is None:
            n = next(int(o.partition(".")[0]) for o in names if ".flexmatch." in o)
        part.update(dict.fromkeys(names, n))
        components[n].insert(0, node)
    return [tuple(_unnumbered(node, n) for node in nodes) for n, nodes in enumerate(components)]


def _unnumbered(node: Any, n: int) -> Any:
    start = f"{n}."
    names = [name for name in (*node.input, *node.output, *captured_names(node)) if name.startswith(start)]
    short = {name: name[len(start) :] for name in names}
    return renamed_copy(node, short, short)


def _check_convertible(node: Any, version: int) -> None:
    since = schema_of(node.op_type, "", version).since_version
    if (node.op_type, since) in MISCONVERTED:
        raise ValueError("it changed its meaning")
    early = version < SETTLED and change_of_meaning(node, *(schema_of(node.op_type, "", v) for v in (version, SETTLED)))
    if early:
        raise ValueError(early)


def _converted_alone(node: Any, version: int, target: int, place: str) -> tuple[Any, ...]:
    try:
        _check_convertible(node, version)
        return _converted([node], version, target)[0]
    except Exception as error:
        raise InputError(
            "F111",
            f"{node.op_type} of operator set {version} has no conversion to {target}: {str(error).splitlines()[0]}",
            place=place,
            help=f"export the model with operator set {BASE} or newer",
        ) from None
