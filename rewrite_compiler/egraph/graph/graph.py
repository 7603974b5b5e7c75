"""The e-graph as plain data: sent by the worker of saturation, read by extraction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar

from ...ir.types import TensorType
from ...ops.op import AttributeValue

ClassId = int
Key = TypeVar("Key")
FEW = 8  # parts
NOWHERE = frozenset[int]()  # the source nodes of an e-node that stands for no work
PROGRAM = -1  # birth of e-nodes that the program brought


class Sources(AbstractSet[int]):
    """A set of source nodes as a lazy union of parts: a recurrent layer of 500 steps stands for thousands of nodes, rarely enumerated."""

    __slots__ = ("parts", "table")

    def __init__(self, parts: frozenset[int], table: Mapping[int, frozenset[int]]) -> None:
        self.parts, self.table = parts, table

    @classmethod
    def of(cls, parts: AbstractSet[int], table: Mapping[int, frozenset[int]]) -> AbstractSet[int]:
        """Return the union of parts of a table: lazy for many parts, a frozenset for at most FEW."""
        return cls(frozenset(parts), table) if len(parts) > FEW else frozenset(s for k in parts for s in table[k])

    @classmethod
    def _from_iterable(cls, it: Iterable[int]) -> AbstractSet[int]:  # type: ignore[override]
        return frozenset(it)

    def __iter__(self) -> Iterator[int]:
        return iter(frozenset().union(*(self.table[k] for k in self.parts)))

    def __len__(self) -> int:
        return len(frozenset().union(*(self.table[k] for k in self.parts)))

    def __contains__(self, x: object) -> bool:
        return any(x in self.table[k] for k in self.parts)

    def __eq__(self, other: object) -> bool:
        """Compare by parts, as the hash does, not by elements."""
        return isinstance(other, Sources) and self.parts == other.parts and self.table is other.table

    def __hash__(self) -> int:
        return hash(self.parts)


@dataclass(frozen=True)
class ENode:
    """An e-node: constructor, operand classes, attributes in declared order, its birth (the first rule that made it), its source nodes."""

    op: str
    children: tuple[ClassId, ...]
    attributes: tuple[AttributeValue, ...]
    birth: int
    origins: AbstractSet[int]


@dataclass(frozen=True)
class EClass:
    """An e-class: its type (None for the tuple of a multi-output operator), whether it is a compile-time constant, its e-nodes."""

    type: TensorType | None
    fixed: bool
    nodes: tuple[ENode, ...]


@dataclass(frozen=True)
class EGraph:
    """An e-graph: classes by number, and the class of each value of the program."""

    classes: Mapping[ClassId, EClass]
    values: Mapping[int, ClassId]

    @property
    def e_nodes(self) -> int:
        """Number of e-nodes."""
        return sum(len(c.nodes) for c in self.classes.values())


class _Numbering(dict[Key, int]):
    """Numbers of different values by first occurrence."""

    def of(self, value: Key) -> int:
        """Return the number of a value."""
        return self.setdefault(value, len(self))


def to_json(graph: EGraph) -> dict[str, Any]:
    """Return the e-graph as JSON values: rows of numbers, which stand for the different operators with attributes, types and sets."""
    types, heads, origins = _Numbering[TensorType | None](), _Numbering[_Head](), _Numbering[AbstractSet[int]]()
    classes = [
        [c, types.of(e.type), e.fixed, *[[heads.of(_head(n)), n.birth, origins.of(n.origins), *n.children] for n in e.nodes]]
        for c, e in graph.classes.items()
    ]
    return {
        "types": [None if t is None else [t.shape, t.dtype] for t in types],
        "heads": [[op, *attributes] for op, attributes, _ in heads],
        "origins": [sorted(x) for x in origins],
        "classes": classes,
        "values": [[v, c] for v, c in graph.values.items()],
    }


_Head = tuple[str, tuple[AttributeValue, ...], str]  # operator, attributes, and the text of these where zeros differ in sign


def _head(n: ENode) -> _Head:
    return n.op, n.attributes, str(n.attributes) if float in map(type, n.attributes) else ""


def from_json(document: Mapping[str, Any]) -> EGraph:
    """Return the e-graph of a document of `to_json`."""
    types = [None if t is None else TensorType(tuple(t[0]), t[1]) for t in document["types"]]
    heads = [(op, tuple([tuple(a) if isinstance(a, list) else a for a in attributes])) for op, *attributes in document["heads"]]
    origins = [frozenset(x) if x else NOWHERE for x in document["origins"]]

    def node(head: int, birth: int, origin: int, *children: ClassId) -> ENode:
        op, attributes = heads[head]
        return ENode(op, children, attributes, birth, origins[origin])

    classes = {c: EClass(types[t], fixed, tuple([node(*row) for row in rows])) for c, t, fixed, *rows in document["classes"]}
    return EGraph(classes, dict(document["values"]))
