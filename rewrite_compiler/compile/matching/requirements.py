"""Requirements: what a program would have to meet at a node so that a pattern takes it, each a change that can be made and tried."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.program import Node, Value
from ...ops.op import Apply, AttributeValue
from ...rewrite.rule import Rule
from ...target import Limit, Mapping


@dataclass(frozen=True)
class ResultOf:
    """A node reads, in place of a value, the result of a pattern."""

    node: Node
    value: Value
    pattern: Apply


@dataclass(frozen=True)
class AttributeOf:
    """An attribute of a node has a value."""

    node: Node
    name: str
    value: AttributeValue | None


@dataclass(frozen=True)
class SoleReader:
    """No other node, and not the caller, reads a value that a node reads."""

    node: Node
    value: Value


@dataclass(frozen=True)
class Guarded:
    """The conditions of a rule hold at a node, where its variables stand for these values, by their names."""

    node: Node
    rule: Rule
    values: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class OneMatrix:
    """A node reads, in place of a value, one matrix that is known at compile time."""

    node: Node
    value: Value


@dataclass(frozen=True)
class FewerSteps:
    """A recurrence has so few steps that it is unrolled."""

    node: Node


@dataclass(frozen=True)
class PartOf:
    """A node is part of the whole pattern of a mapping, which has several operators that compute."""

    node: Node
    mapping: Mapping


@dataclass(frozen=True)
class Capacity:
    """A device has as much of a capacity as an operation needs."""

    mapping: Mapping
    limit: Limit


@dataclass(frozen=True)
class Pinned:
    """The node is pinned to the target: the objective prefers the host."""

    target: str


Requirement = ResultOf | AttributeOf | SoleReader | Guarded | OneMatrix | FewerSteps | PartOf | Capacity | Pinned


@dataclass(frozen=True)
class Difference:
    """The first difference between a pattern and a program: a sentence, and the requirements that would remove it, if they are known."""

    sentence: str
    requirements: tuple[Requirement, ...] = ()
