"""Unlowered: the tensors of offloads in a float run, from the model as it was imported as far as that has them.

Lowered, a convolution is a product of windows that a host engine copies: nine times the data, and ten times the time of the
model. A value of the lowered program that stands for one of the model has its name; windows are moved out of such a value, results
of products are moved into one, and what is neither is computed by the lowered nodes from the nearest values that the model has.
On the first samples the whole lowered program is run beside, and decides where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...ir.program import Data, Node, Program, Value
from ..host.data_movement import Move, Moved, is_movement, move_of
from ..host.host_program import HostProgram
from ..host.lazy_codes import looked_at

CHECKED = 2  # samples on which both programs are run
TOLERANCE = 1e-5  # of a batched float run against single runs
DIFFERENCE = 1e-4  # of sums in another order, relative to the largest value
Named = Callable[[Value], Value | None]  # the value of the model that one of the lowered program stands for


@dataclass(frozen=True)
class Origin:
    """A value that the model has, by its number in the lowered program, and where its elements lie; None: as they are."""

    value: Value
    move: Move | None = None


class FloatRun:
    """The float values of a lowered program that are wanted, for samples of its inputs."""

    def __init__(
        self, source: Program, lowered: Program, wanted: Sequence[Value], known: int, few: Mapping[Value, Data], seconds: int
    ) -> None:  # fmt: skip
        """Try both programs on a few samples; `known` values of the lowered one have names that tell what they are in the model."""
        self.lowered, self.wanted, self.seconds = lowered, tuple(wanted), seconds
        self.plain = self._host(lowered, lowered.inputs, self.wanted)
        named = _naming(source, lowered, known)
        self.origins = {v: o for v in self.wanted if (o := _origin_of(lowered, named, v)) is not None}
        missing = tuple(v for v in self.wanted if v not in self.origins)
        cut = _cut(lowered, named, missing)
        held = dict.fromkeys((*(o.value for o in self.origins.values()), *cut.inputs))
        self.model = {v: u for v in held if v not in lowered.inputs and (u := named(v)) is not None}
        self.host = self._host(source, source.inputs, tuple(dict.fromkeys(self.model.values())))
        self.rest = self._host(cut, cut.inputs, missing)
        self.given = dict(zip(lowered.inputs, source.inputs, strict=True))
        self.is_unlowered = any(o.move is not None for o in self.origins.values()) and self._agrees(few)

    @property
    def held_bytes(self) -> int:
        """Bytes of the tensors that a sample is run for."""
        held = {*self.model, *(v for v in self.wanted if v not in self.origins)} if self.is_unlowered else set(self.wanted)
        return sum(self.lowered.types[v].nbytes for v in held)

    def run(self, values: Mapping[Value, Data]) -> Mapping[Value, Data | Moved]:
        """Return the wanted values [samples, …] for inputs of the lowered program."""
        return self._unlowered(values) if self.is_unlowered else {} if self.plain is None else self.plain.run(values)

    def _host(self, p: Program, inputs: tuple[Value, ...], outputs: tuple[Value, ...]) -> HostProgram | None:
        return HostProgram(replace(p, outputs=outputs), inputs, tolerance=TOLERANCE, seconds=self.seconds) if outputs else None

    def _unlowered(self, values: Mapping[Value, Data]) -> dict[Value, Data | Moved]:
        made = {} if self.host is None else self.host.run({self.given[v]: x for v, x in values.items()})
        found = {**values, **{v: made[u] for v, u in self.model.items()}}
        moved = {v: found[o.value] if o.move is None else Moved(found[o.value], o.move) for v, o in self.origins.items()}
        return moved if self.rest is None else {**moved, **self.rest.run({v: found[v] for v in self.rest.program.inputs})}

    def _agrees(self, few: Mapping[Value, Data]) -> bool:
        """Tell whether both programs give the same values of some samples, but for the order of sums."""
        assert self.plain is not None
        here, there = self._unlowered(few), self.plain.one_by_one(few, min(len(x) for x in few.values()))
        return all(_are_close(looked_at(here[v]), there[v]) for v in self.wanted)


def _naming(source: Program, lowered: Program, known: int) -> Named:
    names = {name: v for v, name in enumerate(source.names) if source.names.count(name) == 1}

    def named(v: Value) -> Value | None:
        u = names.get(lowered.names[v]) if v < known else None
        return u if u is not None and source.types[u] == lowered.types[v] and u not in source.constants else None

    return named


def _origin_of(p: Program, named: Named, v: Value) -> Origin | None:
    """Return a value as moved out of one that the model has, or out of what it is moved into, all of it and once."""
    root = next((r for r in _upwards(p, p.producer(), v) if named(r) is not None), None)
    if root is not None:
        return Origin(root, None if root == v else move_of(p, root, v))
    taker = next((r for r in _downwards(p, p.users(), v) if named(r) is not None), None)
    inside = None if taker is None else move_of(p, v, taker)
    if taker is None or inside is None or inside.places.size != inside.size or not inside.is_onto:
        return None
    back = np.empty(inside.size, inside.places.dtype)
    back[inside.places.reshape(-1) - 1] = np.arange(1, inside.size + 1)
    return Origin(taker, Move(taker, back.reshape(p.types[v].shape), inside.size))


def _upwards(p: Program, maker: Mapping[Value, Node], v: Value) -> Iterator[Value]:
    """Yield a value and what it is moved from, nearest first."""
    yield v
    node = maker.get(v)
    if node is not None and is_movement(p, node) and len(set(node.inputs)) == 1:
        yield from _upwards(p, maker, node.inputs[0])


def _downwards(p: Program, users: Mapping[Value, Sequence[Node]], v: Value) -> Iterator[Value]:
    """Yield what a value alone is moved into, nearest first."""
    for node in users.get(v, ()):
        if is_movement(p, node) and set(node.inputs) == {v}:
            yield node.outputs[0]
            yield from _downwards(p, users, node.outputs[0])


def _cut(p: Program, named: Named, outputs: tuple[Value, ...]) -> Program:
    """Return what computes some values from the nearest ones that the model has."""
    wanted, kept = set(outputs), list[Node]()
    for node in reversed(p.nodes):
        if any(v in wanted and (v in outputs or named(v) is None) for v in node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
    made = {v for node in kept for v in node.outputs}
    return replace(p, nodes=tuple(reversed(kept)), inputs=tuple(sorted(wanted - made - p.constants.keys())), outputs=outputs)


def _are_close(a: Data, b: Data) -> bool:
    most = float(np.max(np.abs(b), initial=0))
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=0, atol=DIFFERENCE * most, equal_nan=True))
