"""Well-formedness of a graph: single static definitions, definitions before uses, no cycles, bounded nesting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ...limits import Limits
from ..file.tensors import dtype_name
from .attributes import subgraphs
from .functions import Key, key_of_call
from .header import imports_of, own_domain
from .opaque import captured_names
from .opset_upgrade import schema_of
from .signature import check_node

ABSENT = b"\n\0"  # an operand without a name, as a node's bytes have it


@dataclass
class StructureCheck:
    """The state of a check: the model's functions, limits, number of nodes so far, and notes."""

    place: str
    limits: Limits
    functions: Mapping[Key, Any]
    nodes: int = 0
    notes: list[str] = field(default_factory=list)

    def node_place(self, node: Any, number: int) -> str:
        """Return the place of a node in messages."""
        return f'{self.place}:node "{node.name or f"{node.op_type}_{number}"}"'


def check_count(model: Any, place: str, limits: Limits) -> None:
    """Check the numbers of entries before any is visited, and the number of operands of each node.

    Raises:
        InputError: the model or a node exceeds a limit.
    """
    graph = model.graph
    counts = {
        "nodes": graph.node, "functions": model.functions, "initializers": graph.initializer, "inputs": graph.input,
        "sparse initializers": graph.sparse_initializer, "outputs": graph.output, "declared values": graph.value_info,
    }  # fmt: skip
    for kind, entries in counts.items():
        if len(entries) > limits.nodes:
            raise InputError("F105", f"the model must have at most {limits.nodes} {kind}", place=place, help="raise --limits nodes=")
    for node in _all_nodes([*graph.node, *(n for f in model.functions for n in f.node)]):
        _check_arity(node, place, limits)


def _check_arity(node: Any, place: str, limits: Limits) -> None:
    """Refuse a node of so many values that import (an operator for each operand) or the host (quadratic in results) would not end."""
    for kind, values, limit, most in (
        ("inputs", node.input, "operands", limits.operands),
        ("outputs", node.output, "results", limits.results),
    ):
        if len(values) > most:
            sentence = f"{node.op_type} must have at most {most} {kind}, not {len(values)}"
            remedy = f"split it into several nodes, or raise --limits {limit}="
            raise InputError("F105", sentence, place=f'{place}:node "{node.name or node.op_type}"', help=remedy)


def check_structure(model: Any, place: str, limits: Limits) -> tuple[list[int], list[str]]:
    """Return a topological order of the model's nodes, as indices, and notes.

    Raises:
        InputError: the first definition, use, cycle, function or node that is not well-formed.
    """
    check = StructureCheck(place, limits, {function_key(f): f for f in model.functions})
    _check_functions(model, check)
    imports = imports_of(model.opset_import, "the model", place)
    if not model.graph.output:
        raise InputError("F123", "the model has no outputs", place=place)
    order = _check_graph(model.graph, imports, set(), 0, check)
    if order != sorted(order):
        check.notes.append("the nodes were not in an order in which values are defined before they are read; they were sorted")
    _note_names(model.graph, check)
    return order, check.notes


def without_trailing_absent(data: bytes) -> bytes | None:
    """Return the bytes of a model without trailing empty operands, None where it has none."""
    if ABSENT not in data:
        return None
    from onnx import ModelProto

    model = ModelProto.FromString(data)
    return bytes(model.SerializeToString()) if drop_trailing_absent(model) else None


def drop_trailing_absent(model: Any) -> bool:
    """Remove trailing empty operands, which means the same; tell whether there was one.

    onnxruntime 1.31.1 reads through a null pointer where LayerNormalization's bias is written as absent.
    """
    is_shortened = False
    for node in _all_nodes([*model.graph.node, *(n for f in model.functions for n in f.node)]):
        while node.input and not node.input[-1]:
            del node.input[-1]
            is_shortened = True
    return is_shortened


def function_key(f: Any) -> Key:
    """Return the key by which nodes call a function: domain, name, overload."""
    return own_domain(f.domain), f.name, f.overload


def _note_names(graph: Any, check: StructureCheck) -> None:
    names = [n.name for n in graph.node if n.name]
    if len(set(names)) != len(names):
        check.notes.append(f"{len(names) - len(set(names))} nodes have the name of another; they were numbered")


def _check_functions(model: Any, check: StructureCheck) -> None:
    if len(check.functions) != len(model.functions):
        keys = [function_key(f) for f in model.functions]
        duplicate = next(k for k in keys if keys.count(k) > 1)
        raise InputError("F121", f'function "{duplicate[1]}" of domain "{duplicate[0]}" is defined twice', place=check.place)
    calls = {function_key(f): [k for n in _all_nodes(f.node) if (k := key_of_call(n)) in check.functions] for f in model.functions}
    _check_size(model, calls, _check_recursion(calls, check), check)
    for f in model.functions:
        _check_name(f, check)
        imports = imports_of(f.opset_import, f'function "{f.name}"', check.place)
        _check_body(f.node, [*f.input], [], [*f.output], imports, set(), 1, check)


def _check_name(f: Any, check: StructureCheck) -> None:
    version = imports_of(f.opset_import, f'function "{f.name}"', check.place).get("", 1)
    if own_domain(f.domain) == "" and schema_of(f.name, "", version) is not None:  # which of the two is meant differs from tool to tool
        raise InputError("F121", f'function "{f.name}" has the name of an operator of ai.onnx', place=check.place, help="rename it")


def _check_size(model: Any, calls: Mapping[Key, Sequence[Key]], order: Iterable[Key], check: StructureCheck) -> None:
    """Refuse functions whose expansion exceeds the limit on nodes, before expanding them; `order` has callees first."""
    sizes: dict[Key, int] = {}
    for key in order:
        sizes[key] = len(check.functions[key].node) + sum(sizes[k] for k in calls[key])
    callees = [k for n in _all_nodes(model.graph.node) if (k := key_of_call(n)) in sizes]
    if len(model.graph.node) + sum(sizes[k] for k in callees) > check.limits.nodes:
        sentence = f"the model must have at most {check.limits.nodes} nodes{' with its functions expanded' if callees else ''}"
        raise InputError("F105", sentence, place=check.place, help="raise --limits nodes=")


def _check_recursion(calls: Mapping[Key, Sequence[Key]], check: StructureCheck) -> Iterable[Key]:
    """Return the functions, callees first; InputError names a recursive chain of calls."""
    order: dict[Key, None] = {}
    for start in calls:
        path = [start]
        work = [iter(calls[start])]
        while work:
            following = next((k for k in work[-1] if k not in order), None)
            if following is None:
                order[path.pop()] = None
                work.pop()
            elif following in path:
                loop = " → ".join(k[1] for k in (*path[path.index(following) :], following))
                raise InputError("F124", f"functions must not call themselves: {loop}", place=check.place)
            else:
                path.append(following)
                work.append(iter(calls[following]))
    return order


def _all_nodes(nodes: Iterable[Any]) -> Iterable[Any]:
    work = list(nodes)
    while work:
        node = work.pop()
        yield node
        work.extend(inner for g in subgraphs(node) for inner in g.node)


def _check_graph(graph: Any, imports: dict[str, int], outer: set[str], depth: int, check: StructureCheck) -> list[int]:
    inputs = [i.name for i in graph.input]
    constants = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
    declared = (("input", graph.input), ("output", graph.output), ("value", graph.value_info if depth == 0 else ()))
    for info, subject in ((info, f'{kind} "{info.name}"') for kind, infos in declared for info in infos):
        if info.type.WhichOneof("value") == "tensor_type":
            dtype_name(int(info.type.tensor_type.elem_type), subject)  # refuses what is none, of an input that names an initializer as well
    return _check_body(graph.node, inputs, constants, [o.name for o in graph.output], imports, outer, depth, check)


def _check_body(
    nodes: Sequence[Any], inputs: Sequence[str], constants: Sequence[str], outputs: Sequence[str],
    imports: dict[str, int], outer: set[str], depth: int, check: StructureCheck,
) -> list[int]:  # fmt: skip
    """Check one graph or function body and return a topological order of its nodes."""
    if depth > check.limits.nesting:
        sentence = f"subgraphs must be nested at most {check.limits.nesting} deep"
        raise InputError("F125", sentence, place=check.place, help="raise --limits nesting=")
    check.nodes += len(nodes)
    if check.nodes > check.limits.nodes:
        raise InputError("F105", f"the model must have at most {check.limits.nodes} nodes", place=check.place, help="raise --limits nodes=")
    predefined = _check_unique("graph input", inputs, check) | _check_unique("initializer", constants, check)
    producer = _producers(nodes, predefined, check)
    _check_unique("output", outputs, check, "F123")
    undefined_output = next((o for o in outputs if o not in producer and o not in predefined), None)
    if undefined_output is not None:
        is_outer = undefined_output in outer
        sentence = f'output "{undefined_output}" is ' + ("a value from outside its subgraph" if is_outer else "not defined by any node")
        raise InputError("F123", sentence, place=check.place, help="put an Identity node between" if is_outer else "")
    visible = predefined | outer | producer.keys()
    for number, node in enumerate(nodes):
        check_node(node, imports, check.functions.get(key_of_call(node)), check.node_place(node, number))
        for graph in subgraphs(node):
            _check_graph(graph, imports, visible, depth + 1, check)
    return _order(nodes, producer, predefined | outer, check)


def _check_unique(kind: str, names: Sequence[str], check: StructureCheck, code: str = "F121") -> set[str]:
    unique_names: set[str] = set()
    for name in names:
        if not name:
            raise InputError(code, f"every {kind} must have a name", place=check.place)
        if name in unique_names:
            raise InputError(code, f'{kind} "{name}" is defined twice', place=check.place)
        unique_names.add(name)
    return unique_names


def _producers(nodes: Sequence[Any], predefined: set[str], check: StructureCheck) -> dict[str, int]:
    producer: dict[str, int] = {}
    for number, node in enumerate(nodes):
        if not any(node.output):
            raise InputError("F123", f"{node.op_type} defines no value", place=check.node_place(node, number))
        for name in node.output:
            if name and (name in producer or name in predefined):
                first = (
                    "the graph's inputs or constants" if name in predefined else f'node "{nodes[producer[name]].name or producer[name]}"'
                )
                raise InputError("F121", f'value "{name}" is defined here and by {first}', place=check.node_place(node, number))
            if name:
                producer[name] = number
    return producer


def _order(nodes: Sequence[Any], producer: dict[str, int], visible_names: set[str], check: StructureCheck) -> list[int]:
    """Return node indices with definitions before uses, as close to the given order as that allows."""
    needs: list[list[int]] = []
    for number, node in enumerate(nodes):
        read = [name for name in (*node.input, *captured_names(node)) if name and name not in visible_names]
        undefined_input = next((name for name in read if name not in producer), None)
        if undefined_input is not None:
            raise InputError(
                "F122",
                f'input "{undefined_input}" is not the result of any node, an input or a constant',
                place=check.node_place(node, number),
            )
        needs.append([producer[name] for name in read])
    return _topological_order(nodes, needs, check)


def _topological_order(nodes: Sequence[Any], needs: list[list[int]], check: StructureCheck) -> list[int]:
    order: list[int] = []
    state = [0] * len(nodes)  # 0 unseen, 1 on the path, 2 done
    for start in range(len(nodes)):
        path: list[tuple[int, Any]] = [] if state[start] else [(start, iter(needs[start]))]
        while path:
            current, dependencies = path[-1]
            state[current] = 1
            following = next((n for n in dependencies if state[n] != 2), None)
            if following is None:
                state[current] = 2
                order.append(current)
                path.pop()
            elif state[following] == 1:
                raise _cycle(nodes, [n for n, _ in path], following, check)
            else:
                path.append((following, iter(needs[following])))
    return order


def _cycle(nodes: Sequence[Any], path: list[int], start: int, check: StructureCheck) -> InputError:
    loop = path[path.index(start) :]
    names = [nodes[n].name or f"{nodes[n].op_type}_{n}" for n in loop]
    labels = names if len(names) <= 8 else [*names[:7], f"… {len(names) - 8} more …", names[-1]]
    return InputError("F120", f"the nodes form a cycle: {' → '.join(labels)} → {names[0]}", place=check.node_place(nodes[start], start))
