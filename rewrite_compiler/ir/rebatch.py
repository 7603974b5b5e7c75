"""Rebatching (vectorisation over samples): the program that runs many samples at once, along the batch axis of its operators."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ops import OPS
from ..ops.op import Shape
from .batch_rules import Case, Contradiction, Refused, Rule, SamplePassage, may_add_axis, rule_of
from .placement import Place, equivalent_places, repeat_per_sample
from .program import OPAQUE, Node, Program, Value
from .types import TensorType

MAX_ATTEMPTS = 1024  # combinations of places of the operands tried for one node


@dataclass(frozen=True)
class Rebatched:
    """A program for many samples. Values keep their numbers; a value without a place is the same for all samples."""

    program: Program
    places: Mapping[Value, Place]
    samples: int
    moves: int  # transposes put in because an operator needs the samples elsewhere

    @property
    def axes(self) -> dict[Value, int]:
        """The axis that carries the samples, by value."""
        return {v: p.axis for v, p in self.places.items()}


@dataclass(frozen=True)
class NotBatchable:
    """Why a program cannot be given a sample axis: a sentence that names the node, and the node."""

    reason: str
    node: Node | None = None


def rebatch(p: Program, samples: int, batched: Mapping[Value, int | Place]) -> Rebatched | NotBatchable:
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
    work = _Rebatching(p, samples, places)
    for node in p.nodes:
        try:
            work.carry(node)
        except Refused as refused:
            return NotBatchable(f'{operator_label(p, node)} "{p.names[node.outputs[0]]}" cannot be batched: {refused}', node)
    return work.finish()


def rebatch_cheapest_axis(p: Program, samples: int, inputs: Sequence[Value]) -> Rebatched | NotBatchable:
    """Return the rebatched program whose samples lie along the best axis, one for all inputs: fewest transposes, then the lowest."""
    results: list[Rebatched] = []
    refused: NotBatchable | None = None
    for axis in range(max((len(p.types[v].shape) for v in inputs), default=1)):
        result = rebatch(p, samples, {v: min(axis, len(p.types[v].shape) - 1) for v in inputs})
        if isinstance(result, NotBatchable):
            refused = refused or result
        else:
            results.append(result)
    return min(results, key=lambda r: r.moves) if results or refused is None else refused


def candidate_places(shapes: Sequence[Shape], current: Sequence[Place | None]) -> Iterator[tuple[Place | None, ...]]:
    """Yield places of the samples in a node's operands, cheapest first: as they are, by a reshape, by a transpose."""
    yield tuple(current)
    spelt = [[None] if p is None else equivalent_places(s, p) for p, s in zip(current, shapes, strict=True)]
    anywhere = [c if c == [None] else [*c, *_axes(s)] for c, s in zip(spelt, shapes, strict=True)]
    for choices in (spelt, anywhere):
        yield from _aligned(choices)
        yield from itertools.islice(itertools.product(*choices), MAX_ATTEMPTS // 4)


def _axes(shape: Shape) -> list[Place]:
    """Return the places in front of each axis, axes of extent 1 first: they are batch axes more often."""
    return [Place(axis) for axis in sorted(range(len(shape)), key=lambda a: (shape[a] != 1, a)) if math.prod(shape)]


def _aligned(choices: Sequence[Sequence[Place | None]]) -> Iterator[tuple[Place | None, ...]]:
    """Yield the choices that put the samples of all operands at one place."""
    for place in next(c for c in choices if c[0] is not None):
        if all(c[0] is None or place in c for c in choices):
            yield tuple(None if c[0] is None else place for c in choices)


def operator_label(p: Program, node: Node) -> str:
    """Return the operator of a node as people write it."""
    return p.opaque_of(node).label if node.op == OPAQUE else node.op


class _Rebatching:
    """A program being rebatched; new values are operands whose samples were moved or that were repeated for each sample."""

    def __init__(self, p: Program, samples: int, places: dict[Value, Place]) -> None:
        self.p = p
        self.samples = samples
        self.places: dict[Value, Place] = {}
        self.types = list(p.types)
        self.names = list(p.names)
        self.nodes: list[Node] = []
        self.constants = dict(p.constants)
        self.values: dict[tuple[Any, ...], Value] = {}
        self._place(places)

    def _place(self, places: Mapping[Value, Place]) -> None:
        """Note where values have their samples, and the types they get by that."""
        self.places.update(places)
        for v, place in places.items():
            self.types[v] = TensorType(place.scaled(self.p.types[v].shape, self.samples), self.p.types[v].dtype)

    def carry(self, node: Node) -> None:
        """Add one node; Refused when the samples cannot pass."""
        operand_places = [self.places.get(v) for v in node.inputs]
        if not any(operand_places):
            self.nodes.append(node)
            return
        source = self.p.opaque_of(node).op_type if node.op == OPAQUE else ""
        rule = rule_of(node.operator, source)
        if rule is None:
            raise Refused("how it treats samples is not known")
        try:
            places, carried = self._passing(rule, node, operand_places)
        except Refused as refused:
            if isinstance(refused, Contradiction) or not may_add_axis(node.operator, source, operand_places):
                raise
            self._widened(node)
            return
        inputs = [self._operand(v, n, places[n], carried) for n, v in enumerate(node.inputs)]
        attributes = tuple((k, carried.attributes.get(k, value)) for k, value in node.attributes)
        self._place(dict(zip(node.outputs, carried.results, strict=True)))
        self.nodes.append(replace(node, inputs=tuple(inputs), attributes=attributes))

    def _widened(self, node: Node) -> None:
        """Add a node whose samples have an axis of their own in front, and take the axis away again."""
        (result,) = node.outputs
        shape = self.p.types[result].shape
        inputs = [self._in_front(v, len(shape)) if v in self.places else v for v in node.inputs]
        wide = self._value((self.samples, *shape), result)
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=(wide,)))
        self._place({result: Place(0)})
        self.nodes.append(Node("reshape", (wide,), (result,), (("shape", self.types[result].shape),)))

    def _in_front(self, v: Value, rank: int) -> Value:
        shape = self.p.types[v].shape
        at_front = self._operand(v, 0, Place(0), SamplePassage(()))
        return self._reshaped(at_front, (self.samples, *[1] * (rank - len(shape)), *shape))

    def _passing(self, rule: Rule, node: Node, operand_places: Sequence[Place | None]) -> tuple[Sequence[Place | None], SamplePassage]:
        """Return the first places of the operands under which the rule lets the samples pass."""
        shapes = [self.p.types[v].shape for v in node.inputs]
        results = [self.p.types[v].shape for v in node.outputs]
        first: Refused | None = None
        for places in itertools.islice(candidate_places(shapes, operand_places), MAX_ATTEMPTS):
            try:
                return places, rule(Case(node.op, shapes, places, dict(node.attributes), results, self.samples))
            except Refused as refused:
                first = first or refused
        assert first is not None
        raise first

    def _operand(self, v: Value, n: int, place: Place | None, carried: SamplePassage) -> Value:
        if place is None:
            return self._repeated(v, carried.repeated[n]) if n in carried.repeated else v
        shape, current = self.p.types[v].shape, self.places[v]
        if place == current:
            return v
        if place.lead(shape) != current.lead(shape):
            v = self._moved(v, shape, current.lead(shape), place.lead(shape))
        return self._reshaped(v, place.scaled(shape, self.samples))

    def _moved(self, v: Value, shape: Shape, lead: int, new_lead: int) -> Value:
        """Return a value as [before, samples, behind] with `new` instead of `old` blocks before the samples."""
        low, high = min(lead, new_lead), max(lead, new_lead)
        middle, behind = high // low, math.prod(shape) // high
        v = self._reshaped(v, (low, *((self.samples, middle) if lead == low else (middle, self.samples)), behind))
        return self._apply("transpose", v, "perm", (0, 2, 1, 3))

    def _repeated(self, v: Value, place: Place) -> Value:
        """Return a value without samples, repeated for each sample."""
        shape, key = self.types[v].shape, ("repeated", v, place)
        data = self.constants.get(v)
        if data is None:
            before, behind = place.split(shape)
            unit_axis = self._reshaped(v, (*before, 1, *behind))
            wide = self._apply("expand", unit_axis, "shape", (*before, self.samples, *behind))
            return self._reshaped(wide, place.scaled(shape, self.samples))
        if key not in self.values:
            self.values[key] = self._value(place.scaled(shape, self.samples), v)
            self.constants[self.values[key]] = repeat_per_sample(data, place, self.samples)
        return self.values[key]

    def _reshaped(self, v: Value, shape: Shape) -> Value:
        return self._apply("reshape", v, "shape", shape)

    def _apply(self, op: str, v: Value, name: str, value: Shape) -> Value:
        key = (op, v, value)
        if key not in self.values:
            (shape,) = OPS[op].shapes([self.types[v].shape], {name: value})
            self.values[key] = self._value(shape, v)
            self.nodes.append(Node(op, (v,), (self.values[key],), ((name, value),)))
        return self.values[key]

    def _value(self, shape: Shape, like: Value) -> Value:
        self.types.append(TensorType(shape, self.types[like].dtype))
        self.names.append(f"{self.names[like]}.samples")
        return len(self.types) - 1

    def finish(self) -> Rebatched:
        """Return the program."""
        p = replace(self.p, types=tuple(self.types), names=tuple(self.names), nodes=tuple(self.nodes), constants=self.constants)
        moves = sum(key[0] == "transpose" for key in self.values)
        return Rebatched(p, self.places, self.samples, moves)
