"""Float run of a lowered program by way of its source model, which computes most of its tensors faster.

Lowered (im2col), a convolution is a product of windows that a host engine copies: nine times the data, and ten times the time of
the model. Values of the lowered program with the name of a source value are taken from the model; windows are moves out of such a
value, results of products are moved into one, and all others are computed by the lowered nodes from the nearest source values. On
the first samples the whole lowered program runs too; where the two differ, it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...ir.program import Data, Node, Program, Value
from ..host.data_movement import Move, PendingMove, is_movement, move_of
from ..host.host_program import HostProgram, are_equal
from ..host.lazy_codes import elements_of

CHECK_SAMPLES = 2  # samples on which both programs are compared
TOLERANCE = 1e-5  # of a batched float run against single runs
DIFFERENCE = 1e-4  # of sums in another order, relative to the largest value
SourceValue = Callable[[Value], Value | None]  # the value of the model that one of the lowered program stands for


@dataclass(frozen=True)
class Origin:
    """A source value, by its number in the lowered program, and the move that derives another value from it (None: identity)."""

    value: Value
    move: Move | None = None


class FloatRun:
    """Computes requested float values of a lowered program for samples of its inputs."""

    def __init__(
        self, source: Program, lowered: Program, requested: Sequence[Value], named_count: int, check_inputs: Mapping[Value, Data],
        seconds: int,
    ) -> None:  # fmt: skip
        """Compare both programs on few samples; the first `named_count` values of the lowered one carry the names of source values."""
        self.lowered, self.requested, self.seconds = lowered, tuple(requested), seconds
        self.lowered_host = self._host(lowered, lowered.inputs, self.requested)
        source_value = _naming(source, lowered, named_count)
        self.origins = {v: o for v in self.requested if (o := _origin_of(lowered, source_value, v)) is not None}
        underived = tuple(v for v in self.requested if v not in self.origins)
        subprogram = _subprogram(lowered, source_value, underived)
        source_reads = dict.fromkeys((*(o.value for o in self.origins.values()), *subprogram.inputs))
        self.model = {v: u for v in source_reads if v not in lowered.inputs and (u := source_value(v)) is not None}
        self.host = self._host(source, source.inputs, tuple(dict.fromkeys(self.model.values())))
        self.remainder = self._host(subprogram, subprogram.inputs, underived)
        self.source_inputs = dict(zip(lowered.inputs, source.inputs, strict=True))
        self.is_unlowered = any(o.move is not None for o in self.origins.values()) and self._agrees(check_inputs)

    @property
    def live_bytes(self) -> int:
        """Bytes of the tensors that are live for one sample."""
        live_values = {*self.model, *(v for v in self.requested if v not in self.origins)} if self.is_unlowered else set(self.requested)
        return sum(self.lowered.types[v].nbytes for v in live_values)

    def run(self, values: Mapping[Value, Data]) -> Mapping[Value, Data | PendingMove]:
        """Return the requested values [samples, …] for inputs [samples, …] of the lowered program, by its value numbers."""
        return self._unlowered(values) if self.is_unlowered else {} if self.lowered_host is None else self.lowered_host.run(values)

    def _host(self, p: Program, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> HostProgram | None:
        return HostProgram(replace(p, outputs=outputs), inputs, tolerance=TOLERANCE, seconds=self.seconds) if outputs else None

    def _unlowered(self, values: Mapping[Value, Data]) -> dict[Value, Data | PendingMove]:
        model_values = {} if self.host is None else self.host.run({self.source_inputs[v]: x for v, x in values.items()})
        values_by_lowered = {**values, **{v: model_values[u] for v, u in self.model.items()}}
        derived = {
            v: values_by_lowered[o.value] if o.move is None else PendingMove(values_by_lowered[o.value], o.move)
            for v, o in self.origins.items()
        }
        return (
            derived
            if self.remainder is None
            else {**derived, **self.remainder.run({v: values_by_lowered[v] for v in self.remainder.program.inputs})}
        )

    def _agrees(self, few: Mapping[Value, Data]) -> bool:
        """Tell whether both programs agree on some samples up to the order of sums."""
        assert self.lowered_host is not None
        actual, expected = self._unlowered(few), self.lowered_host.one_by_one(few, min(len(x) for x in few.values()))
        return all(are_equal(elements_of(actual[v]), expected[v], DIFFERENCE) for v in self.requested)


def _naming(source: Program, lowered: Program, named_count: int) -> SourceValue:
    names = {name: v for v, name in enumerate(source.names) if source.names.count(name) == 1}

    def source_value(v: Value) -> Value | None:
        u = names.get(lowered.names[v]) if v < named_count else None
        return u if u is not None and source.types[u] == lowered.types[v] and u not in source.constants else None

    return source_value


def _origin_of(p: Program, source_value: SourceValue, v: Value) -> Origin | None:
    """Return a value as a move of a source value, or as the inverse of its own move into one, if that is a bijection; else None."""
    root = next((r for r in _move_sources(p, p.producer(), v) if source_value(r) is not None), None)
    if root is not None:
        return Origin(root, None if root == v else move_of(p, root, v))
    container = next((r for r in _move_targets(p, p.users(), v) if source_value(r) is not None), None)
    forward = None if container is None else move_of(p, v, container)
    if container is None or forward is None or forward.places.size != forward.size or not forward.is_onto:
        return None
    back = np.empty(forward.size, forward.places.dtype)
    back[forward.places.reshape(-1) - 1] = np.arange(1, forward.size + 1)
    return Origin(container, Move(container, back.reshape(p.types[v].shape), forward.size))


def _move_sources(p: Program, maker: Mapping[Value, Node], v: Value) -> Iterator[Value]:
    """Yield a value and the values it is moved from, nearest first."""
    yield v
    node = maker.get(v)
    if node is not None and is_movement(p, node) and len(set(node.inputs)) == 1:
        yield from _move_sources(p, maker, node.inputs[0])


def _move_targets(p: Program, users: Mapping[Value, Sequence[Node]], v: Value) -> Iterator[Value]:
    """Yield the values that a value alone is moved into, nearest first."""
    for node in users.get(v, ()):
        if is_movement(p, node) and set(node.inputs) == {v}:
            yield node.outputs[0]
            yield from _move_targets(p, users, node.outputs[0])


def _subprogram(p: Program, source_value: SourceValue, outputs: tuple[Value, ...]) -> Program:
    """Return the subprogram that computes values from the nearest source values (a backward slice)."""
    live, nodes = set(outputs), list[Node]()
    for node in reversed(p.nodes):
        if any(v in live and (v in outputs or source_value(v) is None) for v in node.outputs):
            nodes.append(node)
            live.update(node.inputs)
    defined = {v for node in nodes for v in node.outputs}
    return replace(p, nodes=tuple(reversed(nodes)), inputs=tuple(sorted(live - defined - p.constants.keys())), outputs=outputs)
