"""The architecture covenant graph: what a model shows of its architecture, completed by what only the target can say.

Storages, ends of edges and capabilities come from the model (`derivation`); clock, widths, latencies, energies and the names of
units are attributes that the target declares with their sources. Where both speak of one thing they must agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..errors import Problem, SpecError
from ..ila import Ila
from .derivation import HOST, Fragment, OpaqueFragment, StorageShape, Structure, derive
from .discovery import declares_target, find_ila, find_target
from .resources import Clock, Link, Memory, Resources, Unit


@dataclass(frozen=True)
class Edge:
    """Two ends between which something is copied: by these instructions, and so many bits every so many cycles where declared."""

    source: str
    sink: str
    by: tuple[str, ...] = ()
    bits: int | None = None
    cycles: int | None = None
    latency: int = 0


@dataclass(frozen=True)
class ComputeNode:
    """A unit: the fragments that it computes, and what the target declares of it."""

    name: str
    fragments: tuple[Fragment, ...]
    declared: Unit | None = None

    @property
    def inputs(self) -> frozenset[str]:
        """The storages that must be filled before the unit works: its operands, accumulators only where there is nothing else."""
        operands = frozenset(o for f in self.fragments for o in f.operands)
        return frozenset(o for f in self.fragments for o in f.operands if o != f.result) or operands


@dataclass(frozen=True)
class Acg:
    """The graph of one accelerator: storages and units by name, and edges."""

    name: str
    storages: Mapping[str, StorageShape]
    memories: Mapping[str, Memory]  # storage → what the target declares of it
    units: Mapping[str, ComputeNode]
    edges: tuple[Edge, ...]
    opaque: tuple[OpaqueFragment, ...] = ()
    clock: Clock | None = None

    def paths(self, source: str, unit: str) -> tuple[tuple[Edge, ...], ...]:
        """Return a shortest path from a storage to each storage that a unit reads, the shortest first.

        Raises:
            SpecError: I106, the graph has no such storage or unit, or no way from one to the other.
        """
        node = self.unit(unit)
        if source not in self.storages and source != HOST:
            raise SpecError("I106", f'The model must have a storage for "{source}"', help=f"storages: {', '.join(self.storages)}")
        inputs = node.inputs
        routes = self._routes(source)
        reached = sorted((routes[s] for s in inputs if s in routes), key=lambda path: (len(path), [e.sink for e in path]))
        if not reached:
            cut = ", ".join(sorted(routes))
            raise SpecError("I106", f"No edges lead from {source} to {', '.join(sorted(inputs))} of unit {unit}", help=f"reached: {cut}")
        return tuple(reached)

    def home(self, units: Iterable[str]) -> str:
        """Return the storage with the longest paths to units: where operands and results lie when nothing runs.

        Raises:
            SpecError: I106, no storage reaches all of the units.
        """
        names, lengths = list(units), dict[str, int]()
        for storage in (*self.storages, HOST):
            paths = [self._length(storage, unit) for unit in names]
            if None not in paths:
                lengths[storage] = sum(n for n in paths if n is not None)
        if not lengths:
            raise SpecError("I106", f"No storage reaches {', '.join(names)}", help="edges come from instructions that copy")
        return max(lengths, key=lambda s: (lengths[s], s == HOST, s in self.storages and self.storages[s].off_chip))

    def _length(self, storage: str, unit: str) -> int | None:
        """Return the edges to the farthest operand of a unit; None where one is out of reach."""
        routes = self._routes(storage)
        operands = self.unit(unit).inputs
        return max((len(routes[o]) for o in operands), default=0) if operands <= routes.keys() else None

    def unit(self, name: str) -> ComputeNode:
        """Return a unit by its name.

        Raises:
            SpecError: I106, there is none of this name.
        """
        if name not in self.units:
            raise SpecError("I106", f'The graph of {self.name} has no unit "{name}"', help=f"units: {', '.join(self.units) or 'none'}")
        return self.units[name]

    def _routes(self, source: str) -> dict[str, tuple[Edge, ...]]:
        """Return a shortest path to every storage within reach, breadth first; none goes through a memory outside of the device."""
        routes: dict[str, tuple[Edge, ...]] = {source: ()}
        queue = deque([source])
        while queue:
            at = queue.popleft()
            is_outside = at != source and at in self.storages and self.storages[at].off_chip
            for e in () if is_outside else self.edges:
                if e.source == at and e.sink not in routes:
                    routes[e.sink] = (*routes[at], e)
                    queue.append(e.sink)
        return routes


def complete(structure: Structure, resources: Resources | None) -> Acg:
    """Return the graph of a model with the attributes that its target declares; without any, only what the model shows.

    Raises:
        SpecError: I106, an attribute speaks of what the model does not have.
    """
    for problem in disagreements(structure, resources):
        raise SpecError(problem.code, problem.sentence, help=problem.help)
    memories = {} if resources is None else {m.name: m for m in resources.memories}
    edges = tuple(_edge(structure, resources, e.source, e.sink, e.instructions) for e in structure.edges)
    return Acg(
        structure.name, structure.storages, memories, _units(structure, resources), edges, structure.opaque,
        None if resources is None else resources.clock,
    )  # fmt: skip


def acg_of(accelerator: str | Ila) -> Acg:
    """Return the graph of an accelerator: a model, or what --accel takes; the attributes are those of its target."""
    if isinstance(accelerator, Ila):
        return complete(derive(accelerator), None)
    if not declares_target(accelerator):
        return complete(derive(find_ila(accelerator)), None)
    target = find_target(accelerator)
    return complete(derive(target.ila()), target.resources())


def _edge(structure: Structure, resources: Resources | None, source: str, sink: str, by: tuple[str, ...]) -> Edge:
    links = () if resources is None else resources.links
    link = next((x for x in links if structure.edge(x.source, x.sink) is structure.edge(source, sink)), None)
    return Edge(source, sink, by) if link is None else Edge(source, sink, by, 8 * link.width_bytes, link.cycles, link.latency_cycles)


def _units(structure: Structure, resources: Resources | None) -> dict[str, ComputeNode]:
    """Return a unit for each declared one that an instruction's name belongs to, and one for each other instruction."""
    declared = {} if resources is None else {u.name: u for u in resources.units}
    groups: dict[str, list[Fragment]] = {}
    for f in structure.fragments:
        name = next((u for u in declared if u in f.instruction.split("_") or u == f.instruction), f.instruction)
        groups.setdefault(name, []).append(f)
    nodes = {name: ComputeNode(name, tuple(fragments), declared.get(name)) for name, fragments in groups.items()}
    return nodes | {name: ComputeNode(name, (), u) for name, u in declared.items() if name not in nodes}


def disagreements(structure: Structure, resources: Resources | None) -> Iterator[Problem]:
    """Yield a problem for each declared memory or link that the model does not have so."""
    if resources is None:
        return
    for m in resources.memories:
        yield from _memory_problems(structure, m)
    units, names = {u.name for u in resources.units}, [m.name for m in resources.memories]
    for x in resources.links:
        if not units & {x.source, x.sink} and not _has_edge(structure, names, x.source, x.sink):
            yield _link_problem(structure, x)


def _memory_problems(structure: Structure, m: Memory) -> Iterator[Problem]:
    storage = structure.storages.get(m.name)
    if storage is None:
        sentence = f'The model must have a storage for "{m.name}" that the graph names'
        yield Problem("I106", sentence, help=f"it has {', '.join(structure.storages) or 'none'}")
        return
    size, declared = storage.capacity_bits * storage.instances, m.capacity_bytes * m.instances * 8
    if size != declared:
        sentence = f"{m.name} holds {size // 8:,} bytes in the model, not {declared // 8:,}"
        yield Problem("I106", sentence, help="state_memory takes the sizes from the model")


def _has_edge(structure: Structure, declared: Iterable[str], source: str, sink: str) -> bool:
    """Tell whether instructions move something from one end to the other: at once, or through storages that nothing is declared of."""
    steps = {(e.source, e.sink) for e in structure.edges} | {(o, f.result) for f in structure.fragments for o in f.operands}
    hidden = structure.storages.keys() - set(declared)
    reached, work = set[str](), [source]
    while work:
        at = work.pop()
        for a, b in steps:
            if structure.stands_for(a, at) and b not in reached:
                reached.add(b)
                work += [b] * (b in hidden)
    if any(structure.stands_for(end, sink) for end in reached):
        return True
    return any(_reaches(o.reads, source) and _reaches(o.writes, sink) for o in structure.opaque)


def _reaches(names: tuple[str, ...], end: str) -> bool:
    return end == HOST or end in names


def _link_problem(structure: Structure, x: Link) -> Problem:
    ways = sorted({f"{e.source} → {e.sink}" for e in structure.edges if {e.source, e.sink} & {x.source, x.sink}})
    return Problem(
        "I106", f"The graph has an edge from {x.source} to {x.sink}, but no instruction copies that way",
        help=f"edges there: {', '.join(ways) or 'none'}",
    )  # fmt: skip
