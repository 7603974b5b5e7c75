"""Reads the frozen tables of an egglog e-graph as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.types import TensorType
from ...ops.op import FLOAT, INT, INTS
from .graph import NOWHERE, PROGRAM, ClassId, EClass, EGraph, ENode
from .schema import Constructor

LEAVES = ("Input", "Constant")


class Reader:
    """A snapshot of the tables of an e-graph, taken by `refresh`; lists and sets, which never change, are kept between snapshots."""

    def __init__(self, egglog: Any, constructors: Iterable[Constructor]) -> None:
        self.egglog = egglog
        self.constructors = tuple(constructors)
        self.functions: dict[str, Any] = {}
        self.numbers: dict[Any, ClassId] = {}
        self.lists: dict[Any, tuple[int, ...]] = {}
        self.sets: dict[Any, frozenset[int]] = {None: NOWHERE}

    def refresh(self) -> Reader:
        """Take a snapshot of the present tables; return this reader."""
        self.functions = self.egglog.freeze().functions
        self.numbers = {}
        return self

    def number(self, value: Any) -> ClassId:
        """Return the number of a class; classes are numbered by first occurrence."""
        return self.numbers.setdefault(value, len(self.numbers))

    def rows(self, table: str) -> list[Any]:
        """Return the rows of a table."""
        return list(self.functions[table].rows) if table in self.functions else []

    def ints(self, value: Any) -> tuple[int, ...]:
        """Return the elements of an egglog vector of integers, cached."""
        elements = self.lists.get(value)
        if elements is None:
            elements = self.lists[value] = tuple(map(self.egglog.value_to_i64, self.egglog.value_to_vec(value)))
        return elements

    def integer(self, value: Any) -> int:
        """Return an egglog integer."""
        return int(self.egglog.value_to_i64(value))

    def attribute(self, value: Any, kind: str) -> Any:
        """Return an attribute value of a kind; floats are read back from their text."""
        if kind == INTS:
            return self.ints(value)
        if kind == INT:
            return self.egglog.value_to_i64(value)
        text = self.egglog.value_to_string(value)
        return float(text) if kind == FLOAT else text

    def table(self, name: str) -> dict[tuple[Any, ...], Any]:
        """Return a table as a mapping from arguments to result."""
        return {tuple(r.inputs): r.output for r in self.rows(name)}

    def graph(self) -> EGraph:
        """Return the whole e-graph."""
        values = {self.egglog.value_to_i64(r.inputs[0]): self.number(r.output) for r in self.rows("at")}
        nodes: dict[ClassId, list[ENode]] = {}
        for owner, node in self.e_nodes():
            nodes.setdefault(owner, []).append(node)
        types, fixed = self.types(), {self.number(r.inputs[0]) for r in self.rows("Fixed")}
        return EGraph({c: EClass(types.get(c), c in fixed, tuple(members)) for c, members in nodes.items()}, values)

    def types(self) -> dict[ClassId, TensorType]:
        """Return the type of each class."""
        kinds = {self.number(r.inputs[0]): self.egglog.value_to_string(r.output) for r in self.rows("kind")}
        shapes = {self.number(r.inputs[0]): self.ints(r.output) for r in self.rows("dims")}
        return {c: TensorType(shapes[c], kinds[c]) for c in shapes}

    def e_nodes(self) -> Iterable[tuple[ClassId, ENode]]:
        """Yield every e-node with its class."""
        for name in LEAVES:
            for r in self.rows(name):
                number = int(self.egglog.value_to_string(r.inputs[0]))
                yield self.number(r.output), ENode(name, (), (number,), PROGRAM, frozenset())
        for r in self.rows("Result"):
            yield (
                self.number(r.output),
                ENode("Result", (self.number(r.inputs[0]),), (self.egglog.value_to_i64(r.inputs[1]),), PROGRAM, frozenset()),
            )
        yield from self.opaque_nodes()
        for constructor in self.constructors:
            yield from self.applications(constructor)

    def opaque_nodes(self) -> Iterable[tuple[ClassId, ENode]]:
        """Yield the e-nodes of opaque operators."""
        origins = self.table("f_Opaque")
        for r in self.rows("Opaque"):
            children = tuple(self.number(v) for v in self.egglog.value_to_vec(r.inputs[1]))
            key = self.egglog.value_to_string(r.inputs[0])
            yield self.number(r.output), ENode("Opaque", children, (key,), PROGRAM, self.source_nodes(origins.get(tuple(r.inputs))))

    def applications(self, constructor: Constructor) -> Iterable[tuple[ClassId, ENode]]:
        """Yield the e-nodes of one constructor."""
        name, operands, kinds, is_tuple = constructor.name, constructor.operands, constructor.attributes, constructor.results > 1
        births, origins = self.table(f"b_{name}"), self.table("whole" if is_tuple else f"f_{name}")
        number, attribute, sources = self.number, self.attribute, self.source_nodes
        for r in self.rows(name):
            key, value = tuple(r.inputs), r.output
            children = tuple([number(v) for v in key[:operands]])
            attributes = tuple([attribute(v, k) for v, k in zip(key[operands:], kinds, strict=True)])
            birth = self.integer(births[key]) if key in births else PROGRAM
            origin = sources(origins.get((value,) if is_tuple else key)) if origins else NOWHERE
            yield number(value), ENode(name, children, attributes, birth, origin)

    def source_nodes(self, value: Any) -> frozenset[int]:
        """Return the elements of an egglog set of source nodes, cached."""
        if value not in self.sets:
            self.sets[value] = frozenset(map(self.egglog.value_to_i64, self.egglog.value_to_set(value)))
        return self.sets[value]
