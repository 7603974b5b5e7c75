"""Unbatching: the program of one sample from one whose batch is fixed; the inverse of `rebatch`, checked by its rules.

Each node of the small program is a candidate guessed from the shapes of its operands, accepted only where the rule of its
operator gives, for the fixed number of samples, exactly the attributes and shapes of the large program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ops.op import ELEMENTWISE, Shape, ShapeError
from .batch_rules import Case, Refused, SamplePassage, rule_of
from .placement import Place, equivalent_places, split_samples
from .program import OPAQUE, Node, OpaqueOp, Program, Value
from .rebatch import NotBatchable, Rebatched, operator_label, rebatch
from .types import TensorType, result_types

Attributes = Mapping[str, Any]
MAX_CANDIDATES = 256  # guesses for one node


def with_samples(p: Program, fixed: int, samples: int) -> Program | NotBatchable:
    """Return a program of `fixed` samples, in axis 0 of all its inputs, as one of another number of samples."""
    single = unbatch(p, fixed)
    if samples == 1 or isinstance(single, NotBatchable):
        return single
    wide = rebatch(single, samples, dict.fromkeys(p.inputs, 0))
    return wide.program if isinstance(wide, Rebatched) else wide


def unbatch(p: Program, samples: int) -> Program | NotBatchable:
    """Return the program of one of the samples that axis 0 of all inputs carries; values keep their numbers."""
    work = _Unbatching(p, samples)
    for node in p.nodes:
        try:
            work.carry(node)
        except Refused as refused:
            return NotBatchable(f'{operator_label(p, node)} "{p.names[node.outputs[0]]}" cannot be taken apart: {refused}', node)
    lost = [p.names[v] for v in p.outputs if v not in work.places or Place(0) not in equivalent_places(work.types[v].shape, work.places[v])]
    if lost:
        return NotBatchable(f'output "{lost[0]}" does not have the samples in its axis 0')
    return work.finish()


def _broadcasts(shape: Shape, to: Shape) -> bool:
    return len(shape) == len(to) and all(n in (1, m) for n, m in zip(shape, to, strict=True))


class _Unbatching:
    """A program whose samples are taken apart."""

    def __init__(self, p: Program, samples: int) -> None:
        self.p = p
        self.samples = samples
        self.places = {v: Place(0) for v in p.inputs}
        self.types = list(p.types)
        self.names = list(p.names)
        self.constants = dict(p.constants)
        self.opaque: dict[str, OpaqueOp] = {}
        self.nodes: list[Node] = []
        for v in p.inputs:
            shape = p.types[v].shape
            self.types[v] = replace(p.types[v], shape=(shape[0] // samples, *shape[1:]))

    def carry(self, node: Node) -> None:
        """Add one node; Refused when no node for a single sample becomes it."""
        operand_places = [self.places.get(v) for v in node.inputs]
        if not any(operand_places):
            self.nodes.append(self._opaque(node, 1))
            return
        rule = rule_of(node.operator, self.p.opaque_of(node).op_type if node.op == OPAQUE else "")
        if rule is None:
            raise Refused("how it treats samples is not known")
        first: Refused | None = None
        for inputs, places, attributes, results in itertools.islice(self._candidates(node, operand_places), MAX_CANDIDATES):
            shapes = [self.types[v].shape if isinstance(v, int) else v.shape for v in inputs]
            try:
                by_rule = rule(Case(node.op, shapes, places, attributes, [t.shape for t in results], self.samples))
            except Refused as refused:
                first = first or refused
                continue
            for carried in self._spellings(node, by_rule, results):
                if self._reproduces(node, carried, attributes, results) and self._repeats(node, inputs, carried):
                    self._add(node, inputs, attributes, results, carried)
                    return
        raise first or Refused(f"no operation on one sample gives {self.p.types[node.outputs[0]]} for {self.samples}")

    def _candidates(
        self, node: Node, operand_places: Sequence[Place | None]
    ) -> Iterator[tuple[list[Any], Sequence[Any], Attributes, list[TensorType]]]:
        """Yield candidates for the node on one sample: operands (values, or one sample's part of a constant), places, attributes, types."""
        spelt = [
            [None] if place is None else equivalent_places(self.types[v].shape, place)
            for v, place in zip(node.inputs, operand_places, strict=True)
        ]
        parts = [[v] if place is not None else [v, *self._parts(v)] for v, place in zip(node.inputs, operand_places, strict=True)]
        for attributes in self._attributes(node):
            for inputs in itertools.product(*parts):
                for results in self._results(node, inputs, attributes):
                    for places in itertools.product(*spelt):
                        yield list(inputs), places, attributes, results

    def _parts(self, v: Value) -> Iterator[Any]:
        """Yield what one sample may have of a constant that repeats the same for all."""
        data = self.constants.get(v)
        for axis, n in enumerate(() if data is None else data.shape):
            if data is not None and n and n % self.samples == 0:
                samples = split_samples(data, Place(axis), self.samples)
                if all(np.array_equal(samples[0], sample, equal_nan=data.dtype.kind == "f") for sample in samples[1:]):
                    yield np.ascontiguousarray(samples[0])

    def _attributes(self, node: Node) -> Iterator[Attributes]:
        """Yield the attributes as they are, and with one extent that all samples share divided."""
        attributes: dict[str, Any] = dict(node.attributes)
        yield attributes
        for name, value in attributes.items():
            if isinstance(value, int) and not isinstance(value, bool) and value and value % self.samples == 0:
                yield {**attributes, name: value // self.samples}
            for axis in range(len(value)) if isinstance(value, tuple) else ():
                if isinstance(value[axis], int) and value[axis] and value[axis] % self.samples == 0:
                    yield {**attributes, name: (*value[:axis], value[axis] // self.samples, *value[axis + 1 :])}

    def _results(self, node: Node, inputs: Sequence[Any], attributes: Attributes) -> Iterator[list[TensorType]]:
        if node.operator is not None:
            operands = [self.types[v] if isinstance(v, int) else TensorType(v.shape, str(v.dtype)) for v in inputs]
            try:
                yield list(result_types(node.operator, operands, attributes))
            except ShapeError:
                return
        else:
            divided = [list(self._divided(self.p.types[v])) for v in node.outputs]
            yield from map(list, itertools.product(*divided))

    def _divided(self, t: TensorType) -> Iterator[TensorType]:
        for axis, n in enumerate(t.shape):
            if n and n % self.samples == 0:
                yield replace(t, shape=(*t.shape[:axis], n // self.samples, *t.shape[axis + 1 :]))

    def _spellings(self, node: Node, carried: SamplePassage, results: Sequence[TensorType]) -> Iterator[SamplePassage]:
        """Yield what a rule gives, and for a reshape the same order of elements with the samples in other axes."""
        yield carried
        for place in equivalent_places(results[0].shape, carried.results[0])[1:] if node.op == "reshape" else ():
            yield SamplePassage((place,), {"shape": place.scaled(results[0].shape, self.samples)})

    def _reproduces(self, node: Node, carried: SamplePassage, attributes: Attributes, results: Sequence[TensorType]) -> bool:
        """Tell whether the rule turns the candidate into the node of the program."""
        shapes: list[Shape] = [place.scaled(t.shape, self.samples) for place, t in zip(carried.results, results, strict=True)]
        return {**attributes, **carried.attributes} == dict(node.attributes) and shapes == [self.p.types[v].shape for v in node.outputs]

    def _repeats(self, node: Node, inputs: Sequence[Any], carried: SamplePassage) -> bool:
        """Tell whether the operands repeated for each sample, or broadcast, are those of which the guess has one sample's part."""
        is_broadcast = node.operator is not None and node.operator.kind == ELEMENTWISE
        for n, (v, was) in enumerate(zip(inputs, node.inputs, strict=True)):
            if was in self.places:
                continue
            shape = self.types[v].shape if isinstance(v, int) else v.shape
            wide = carried.repeated[n].scaled(shape, self.samples) if n in carried.repeated else shape
            if wide != self.p.types[was].shape and not (is_broadcast and _broadcasts(wide, self.p.types[was].shape)):
                return False
        return True

    def _add(
        self, node: Node, inputs: Sequence[Any], attributes: Attributes, results: Sequence[TensorType], carried: SamplePassage
    ) -> None:
        values = [v if isinstance(v, int) else self._constant(v, was) for v, was in zip(inputs, node.inputs, strict=True)]
        self.places.update(zip(node.outputs, carried.results, strict=True))
        for v, t in zip(node.outputs, results, strict=True):
            self.types[v] = t
        self.nodes.append(replace(self._opaque(node, self.samples), inputs=tuple(values)))
        if node.op != OPAQUE:
            self.nodes[-1] = replace(self.nodes[-1], attributes=tuple((k, attributes[k]) for k, _ in node.attributes))

    def _opaque(self, node: Node, parts: int) -> Node:
        """Return a node under whose key stands the work of one sample."""
        if node.op != OPAQUE:
            return node
        batched, key = self.p.opaque_of(node), str(node.attribute("key"))
        sample_key = key if parts == 1 else f"{key}.sample"
        self.opaque[sample_key] = replace(batched, macs=None if batched.macs is None else batched.macs // parts)
        return replace(node, attributes=tuple((k, sample_key if k == "key" else value) for k, value in node.attributes))

    def _constant(self, data: Any, like: Value) -> Value:
        self.types.append(TensorType(data.shape, self.p.types[like].dtype))
        self.names.append(f"{self.names[like]}.sample")
        self.constants[len(self.types) - 1] = data
        return len(self.types) - 1

    def finish(self) -> Program:
        """Return the program without constants that nothing reads."""
        live = {v for n in self.nodes for v in n.inputs} | set(self.p.outputs)
        constants = {v: c for v, c in self.constants.items() if v in live}
        nodes = tuple(self.nodes)
        return replace(self.p, types=tuple(self.types), names=tuple(self.names), nodes=nodes, constants=constants, opaque=self.opaque)
