"""Give a program a sample axis: the same program for many samples at once, along the batch axis its operators have."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ops.op import AttributeValue, Shape
from .batch_rules import Carried, Case, Refused, Rule, rule_of
from .placement import Place, equivalents, spread
from .program import OPAQUE, Node, Program, Value
from .types import TensorType

SPELLINGS = 1024  # combinations of operand spellings tried for one node


@dataclass(frozen=True)
class Rebatched:
    """A program for many samples. Values keep their numbers; a value without a place is the same for all samples."""

    program: Program
    places: Mapping[Value, Place]
    samples: int

    @property
    def axes(self) -> dict[Value, int]:
        """The axis that carries the samples, by value."""
        return {v: p.axis for v, p in self.places.items()}


@dataclass(frozen=True)
class NotBatchable:
    """Why a program cannot be given a sample axis: a sentence that names the node, and the node."""

    reason: str
    node: Node | None = None


def rebatched(p: Program, samples: int, batched: Mapping[Value, int | Place]) -> Rebatched | NotBatchable:
    """Return the program that runs `samples` samples at once.

    `batched` gives, for inputs that differ between samples, the axis whose extent the samples multiply; there they vary
    slowest. Running the result on merged samples gives the merged results of separate runs (`placement.merged`,
    `.separated`); operators whose library kernels sum in another order for another extent may differ in the last bits.
    """
    places = {v: a if isinstance(a, Place) else Place(a) for v, a in batched.items()}
    for v, place in places.items():
        if not 0 <= place.axis < len(p.types[v].shape) or p.types[v].shape[place.axis] % place.outer:
            return NotBatchable(
                f'input "{p.names[v]}" of type {p.types[v]} has no axis {place.axis} to carry {place.outer} parts of samples'
            )
    work = _Work(p, samples, places)
    for node in p.nodes:
        try:
            work.carry(node)
        except Refused as refused:
            return NotBatchable(f'{_label(p, node)} "{p.names[node.outputs[0]]}" cannot be batched: {refused}', node)
    return work.finish()


def _label(p: Program, node: Node) -> str:
    return p.opaque_of(node).label if node.op == OPAQUE else node.op


class _Work:
    """A program being rebatched; new values are operands whose samples were moved or that were repeated for each sample."""

    def __init__(self, p: Program, samples: int, places: dict[Value, Place]) -> None:
        self.p = p
        self.samples = samples
        self.places = places
        self.types = list(p.types)
        self.names = list(p.names)
        self.nodes: list[Node] = []
        self.constants = dict(p.constants)
        self.made: dict[tuple[Any, ...], Value] = {}

    def carry(self, node: Node) -> None:
        """Add one node; Refused when the samples cannot pass."""
        own = [self.places.get(v) for v in node.inputs]
        if not any(own):
            self.nodes.append(node)
            return
        rule = rule_of(node.operator, self.p.opaque_of(node).op_type if node.op == OPAQUE else "")
        if rule is None:
            raise Refused("how it treats samples is not known")
        places, carried = self._passing(rule, node, own)
        inputs = [self._operand(v, n, places[n], carried) for n, v in enumerate(node.inputs)]
        attributes = tuple((k, carried.attributes.get(k, value)) for k, value in node.attributes)
        self.places.update(zip(node.outputs, carried.results, strict=True))
        self.nodes.append(replace(node, inputs=tuple(inputs), attributes=attributes))

    def _passing(self, rule: Rule, node: Node, own: Sequence[Place | None]) -> tuple[Sequence[Place | None], Carried]:
        """Return the first spelling of the operands' places under which the rule lets the samples pass."""
        shapes = [self.p.types[v].shape for v in node.inputs]
        results = [self.p.types[v].shape for v in node.outputs]
        spellings = [[None] if p is None else equivalents(s, p) for p, s in zip(own, shapes, strict=True)]
        first: Refused | None = None
        for places in itertools.islice(itertools.product(*spellings), SPELLINGS):
            try:
                return places, rule(Case(node.op, shapes, places, dict(node.attributes), results, self.samples))
            except Refused as refused:
                first = first or refused
        assert first is not None
        raise first

    def _operand(self, v: Value, n: int, place: Place | None, carried: Carried) -> Value:
        if place is None:
            return self._repeated(v, carried.repeated[n]) if n in carried.repeated else v
        if place == self.places[v]:
            return v
        return self._apply("reshape", v, place.scaled(self.p.types[v].shape, self.samples))

    def _repeated(self, v: Value, place: Place) -> Value:
        """Return a value without samples, repeated for each sample."""
        shape, key = self.types[v].shape, ("repeated", v, place)
        data = self.constants.get(v)
        if data is None:
            inner = shape[place.axis] // place.outer
            before, behind = (*shape[: place.axis], place.outer), (inner, *shape[place.axis + 1 :])
            split = self._apply("reshape", v, (*before, 1, *behind))
            wide = self._apply("expand", split, (*before, self.samples, *behind))
            return self._apply("reshape", wide, place.scaled(shape, self.samples))
        if key not in self.made:
            self.made[key] = self._value(place.scaled(shape, self.samples), v)
            self.constants[self.made[key]] = spread(data, place, self.samples)
        return self.made[key]

    def _apply(self, op: str, v: Value, shape: Shape) -> Value:
        key = (op, v, shape)
        if key not in self.made:
            self.made[key] = self._value(shape, v)
            attributes: tuple[tuple[str, AttributeValue], ...] = (("shape", shape),)
            self.nodes.append(Node(op, (v,), (self.made[key],), attributes))
        return self.made[key]

    def _value(self, shape: Shape, like: Value) -> Value:
        self.types.append(TensorType(shape, self.types[like].dtype))
        self.names.append(f"{self.names[like]}.samples")
        return len(self.types) - 1

    def finish(self) -> Rebatched:
        """Return the program with the types that its values have now."""
        for v, place in self.places.items():
            t = self.types[v]
            self.types[v] = TensorType(place.scaled(t.shape, self.samples), t.dtype)
        p = replace(self.p, types=tuple(self.types), names=tuple(self.names), nodes=tuple(self.nodes), constants=self.constants)
        return Rebatched(p, self.places, self.samples)
