"""Host parts that only move data: a result whose elements are those of another value is one indexing of it.

Windows of a convolution spelled as slices, concatenations and transpositions are copied many times by a host engine. The
layout operators between a value and such a result are evaluated once on the numbers of elements; samples then follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from ...ir.evaluate import run
from ...ir.program import Data, Node, Program, Value
from ...limits import DEFAULT
from ...ops.op import LAYOUT
from .host_program import HostProgram
from .lazy_codes import LazyCodes, Operand, elements_of
from .windows import windows_of

if TYPE_CHECKING:
    from ...kernels.windows import Windows

LEAST = 1 << 12  # elements of a result: below, the host engine is as fast
CHECKED_SAMPLES = 2  # samples of the first run whose bits are compared with the host engine's
WINDOWS: dict[bytes, Windows | None] = {}  # by the digest of a move


@dataclass(frozen=True)
class Move:
    """A result as a gather from one value: `places` are 1 + the element number in `root`, or 0 for zero."""

    root: Value
    places: Data
    size: int  # elements of the root

    def __call__(self, x: Data, zero: int = 0) -> Data:
        """Return the result [samples, …] from the root [samples, …]; `zero` stands for zero there."""
        flat = x.reshape(len(x), -1)
        if self.has_zeros:
            flat = np.concatenate([np.full((len(x), 1), zero, x.dtype), flat], axis=1)
        out = np.empty((len(x), *self.places.shape), x.dtype)
        return np.take(flat, self.indices, axis=1, out=out, mode="clip")

    def strided_elements(self, x: Data, step: int) -> Data:
        """Return every `step`-th element of the result [samples, …] in row-major order."""
        numbers = np.arange(0, len(x) * self.places.size, step)
        places = self.places.reshape(-1)[numbers % self.places.size]
        elements: Data = x.reshape(len(x), -1)[numbers // self.places.size, places - 1]
        elements[places == 0] = 0
        return elements

    @cached_property
    def indices(self) -> Data:
        """The gather indices into the flat root, which has a zero in front where the result has zeros."""
        return self.places if self.has_zeros else self.places - 1

    @cached_property
    def has_zeros(self) -> bool:
        """Whether some elements are padding: zero whatever the root is."""
        return not self.places.all()

    @cached_property
    def digest(self) -> bytes:
        """A hash of the indexing, the same for equal moves of different roots."""
        return blake2b(f"{self.size}{self.places.shape}".encode() + self.places.tobytes()).digest()

    @cached_property
    def windows(self) -> Windows | None:
        """The result as windows over the root; None where it has no such form. Equal moves are analysed once."""
        if self.digest not in WINDOWS:
            WINDOWS[self.digest] = windows_of(self.places, self.size)
        return WINDOWS[self.digest]

    @cached_property
    def is_onto(self) -> bool:
        """Whether the move is surjective: every element of the root occurs in the result."""
        is_read = np.zeros(self.size + 1, bool)
        is_read[self.places] = True
        return bool(is_read[1:].all())


@dataclass(frozen=True)
class PendingMove:
    """A lazily gathered result: its root [samples, …] and the move."""

    root: Data
    move: Move

    @cached_property
    def data(self) -> Data:
        """The result [samples, …], gathered at the first use."""
        return self.move(self.root)


def samples_of(x: Operand, part: slice) -> Operand:
    """Return some samples of a value: of windows only their elements will be gathered."""
    if isinstance(x, PendingMove):
        return replace(x, root=x.root[part])
    return replace(x, codes=x.codes[part]) if isinstance(x, LazyCodes) else elements_of(x)[part]


class MovingProgram(HostProgram):
    """A host part that gathers moved outputs itself; where a bit differs in its first run, the host engine computes all."""

    def __init__(self, program: Program, moves: Mapping[Value, Move], seconds: int = DEFAULT.host_seconds) -> None:
        """Prepare to run; `moves` are the outputs that are gathers."""
        super().__init__(program, program.inputs, seconds=seconds, is_part=True)
        self.moves, self.is_checked = dict(moves), False
        remaining = _remaining_program(program, moves)
        self.remaining_program = HostProgram(remaining, remaining.inputs, seconds=seconds, is_part=True) if remaining.outputs else None

    def run(self, values: Mapping[Value, Data]) -> dict[Value, Data]:
        """Return the outputs: inputs [samples, …], outputs [samples, …]."""
        return {v: elements_of(x) for v, x in self.run_ungathered(values).items()}

    def run_lazily(self, values: Mapping[Value, Operand]) -> Mapping[Value, Operand]:
        """Return the outputs [samples, …], moved ones ungathered."""
        return self.run_ungathered({v: elements_of(x) for v, x in values.items()})

    def run_ungathered(self, values: Mapping[Value, Data]) -> Mapping[Value, Data | PendingMove]:
        """Return the outputs [samples, …], moved ones ungathered."""
        if not self.is_checked:
            self._check(values)
        return self._run_unchecked(values) if self.moves else super().run(values)

    def _run_unchecked(self, values: Mapping[Value, Data]) -> dict[Value, Data | PendingMove]:
        results: dict[Value, Data] = {}
        if self.remaining_program is not None:
            self.remaining_program.batching = self.remaining_program.batching or self.batching
            results = self.remaining_program.run({v: values[v] for v in self.remaining_program.program.inputs})
            self.batching = self.remaining_program.batching
        moved_outputs = {v: PendingMove(results[m.root] if m.root in results else values[m.root], m) for v, m in self.moves.items()}
        return {v: moved_outputs[v] if v in moved_outputs else results[v] for v in self.program.outputs}

    def _check(self, values: Mapping[Value, Data]) -> None:
        samples, batching = {v: x[:CHECKED_SAMPLES] for v, x in values.items()}, self.batching
        moved_results = self._run_unchecked(samples)
        host_results = self.one_by_one(samples, min(len(x) for x in samples.values()))
        if any(elements_of(moved_results[v]).tobytes() != host_results[v].tobytes() for v in self.moves):
            self.moves = {}
        self.batching, self.is_checked = batching, True
        if self.moves:
            self.sessions.clear()
        if self.remaining_program is not None:
            self.remaining_program.batching = None


def moves_of(p: Program) -> dict[Value, Move]:
    """Return the outputs that layout operators make from one value with fewer elements, each as a gather."""
    roots: dict[Value, Value] = {}
    for node in p.nodes:
        sources = {roots.get(v, v) for v in node.inputs}
        if is_movement(p, node) and len(sources) == 1:
            roots[node.outputs[0]] = sources.pop()
    worthwhile = {v: roots[v] for v in p.outputs if v in roots and _is_worth_it(p, roots[v], v)}
    return {v: move_of(p, root, v) for v, root in worthwhile.items()}


def move_of(p: Program, root: Value, v: Value) -> Move:
    """Return a value that layout operators make from `root` alone as a gather from it."""
    return Move(root, _places(p, root, v), math.prod(p.types[root].shape))


def is_movement(p: Program, node: Node) -> bool:
    """Tell whether a node only moves floats and pads with zeros."""
    is_layout = node.operator is not None and node.operator.kind == LAYOUT and len(node.outputs) == 1
    are_moved = all(v not in p.constants and p.types[v].dtype == "float32" for v in (*node.inputs, *node.outputs))
    return is_layout and are_moved and not dict(node.attributes).get("value")


def _is_worth_it(p: Program, root: Value, v: Value) -> bool:
    size, root_size = (math.prod(p.types[x].shape) for x in (v, root))
    return size >= LEAST and size > root_size


def _places(p: Program, root: Value, v: Value) -> Data:
    shape = p.types[root].shape
    numbers = 1 + np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    between = replace(_without_dead_nodes(replace(p, outputs=(v,)), root), inputs=(root,), constants={})
    return run(between, {root: numbers}, real=np.float64)[v].astype(np.intp)


def _without_dead_nodes(p: Program, root: Value | None = None) -> Program:
    """Return a program without the nodes that its outputs do not need, where `root` is given."""
    needed_values, live_nodes = set(p.outputs), []
    for node in reversed(p.nodes):
        if not needed_values.isdisjoint(node.outputs) and root not in node.outputs:
            live_nodes.append(node)
            needed_values.update(node.inputs)
    return replace(p, nodes=tuple(reversed(live_nodes)), inputs=tuple(v for v in p.inputs if v in needed_values))


def _remaining_program(p: Program, moves: Mapping[Value, Move]) -> Program:
    """Return the program that gives the other outputs, and the roots that are not given to it."""
    roots = [m.root for m in moves.values() if m.root not in p.inputs]
    return _without_dead_nodes(replace(p, outputs=tuple(dict.fromkeys((*(v for v in p.outputs if v not in moves), *roots)))))
