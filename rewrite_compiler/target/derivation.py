"""Derivation of an architecture graph from a model: storages, edges and fragments that the updates of its instructions show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ..ila import DATA, Ila
from ..ila.demanded_bits import possible_bits
from ..ila.model import Instruction, State
from ..ila.polynomial import Poly
from ..ila.summary import Access, Choice, Group, Local, Node, Opaque, Read, Repeat, Summary, Transition, summarise
from ..lang.binders import Leaf, Table
from ..lang.expr import Expr
from ..lang.step import reads_of, updates_of
from ..lang.traversal import terms_of
from .capability import Capability, Typed

HOST = "host"  # the end of an edge that is no part of the accelerator
COPYING = frozenset({"wrap", "extract", "add", "select"})  # around the parts of one word
SCALING = frozenset({"shl", "shr", "mod", "mul"})  # by a constant, of a part
# root of a value → the name of its capability
NAMES = {
    "add": "ADD", "sub": "SUB", "mul": "MUL", "div": "DIV", "tdiv": "DIV", "min": "MIN", "max": "MAX", "shr": "SHR", "shl": "SHL",
    "select": "SELECT", "call": "CALL",
}  # fmt: skip


@dataclass(frozen=True)
class StorageShape:
    """A storage as the model has it: one data state, memory or external memory; an element is what lies at one address."""

    name: str
    data_width: int
    banks: int
    depth: int
    instances: int = 1
    off_chip: bool = False
    signed: bool = True

    @property
    def element_bits(self) -> int:
        """Bits at one address."""
        return self.data_width * self.banks

    @property
    def capacity_bits(self) -> int:
        """Bits of one instance."""
        return self.element_bits * self.depth


@dataclass(frozen=True)
class EdgeShape:
    """Two storages, or the host and a storage, between which instructions copy."""

    source: str
    sink: str
    instructions: tuple[str, ...]


@dataclass(frozen=True)
class Fragment:
    """A computation of an instruction: its capability, where operands and result lie, and the lanes of a step by loop."""

    instruction: str
    capability: Capability
    result: str
    operands: tuple[str, ...]
    lanes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class OpaqueFragment:
    """An instruction without a summary: why, and the storages that it reads and writes."""

    instruction: str
    reason: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Structure:
    """What a model says of its architecture: storages, edges, computations, what is cleared, and instructions without a summary."""

    name: str
    storages: Mapping[str, StorageShape]
    edges: tuple[EdgeShape, ...]
    fragments: tuple[Fragment, ...]
    clears: tuple[tuple[str, str], ...] = ()  # instruction, storage
    opaque: tuple[OpaqueFragment, ...] = ()

    def edge(self, source: str, sink: str) -> EdgeShape | None:
        """Return the edge between two ends; the host stands for memories outside of the device, too."""
        return next((e for e in self.edges if self.stands_for(e.source, source) and self.stands_for(e.sink, sink)), None)

    def stands_for(self, end: str, name: str) -> bool:
        """Tell whether an end is what a name says; the host is every memory outside of the device, too."""
        return end == name or (name == HOST and end in self.storages and self.storages[end].off_chip)


@dataclass
class _Facts:
    edges: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    fragments: dict[tuple[str, str, str, tuple[str, ...]], Fragment] = field(default_factory=dict)
    clears: dict[tuple[str, str], None] = field(default_factory=dict)
    accesses: list[tuple[Access, tuple[tuple[str, Poly], ...]]] = field(default_factory=list)

    def add_edge(self, source: str, sink: str, instruction: str) -> None:
        self.edges.setdefault((source, sink), {})[instruction] = None


def derive(ila: Ila) -> Structure:
    """Return the storages, edges and fragments of a model: one walk over all updates, once in a process."""
    return _derived(ila, len(ila.instructions))


@lru_cache(maxsize=16)
def _derived(ila: Ila, _: int) -> Structure:
    memories = {s.name: s for s in ila.states.values() if s.binding == DATA or (s.is_memory and s.leaf.shape)}
    facts, opaque = _Facts(), []
    for name, instruction in ila.instructions.items():
        summary = summarise(ila, name)
        if instruction.result is not None:
            for leaf in sorted(instruction.result.reads, key=lambda x: str(x.name)):
                if leaf.name in memories:
                    facts.add_edge(leaf.name, HOST, name)
        if isinstance(summary, Opaque):
            opaque.append(_opaque(summary, instruction, memories))
        else:
            _Walk(ila, summary, memories, facts).run()
    storages = {s.name: _storage(s, s.name in ila.externals, facts) for s in memories.values()}
    edges = tuple(EdgeShape(a, b, tuple(names)) for (a, b), names in facts.edges.items())
    return Structure(ila.name, storages, edges, tuple(facts.fragments.values()), tuple(facts.clears), tuple(opaque))


def _opaque(o: Opaque, instruction: Instruction, memories: Mapping[str, State]) -> OpaqueFragment:
    reads = sorted(leaf.name for leaf in reads_of(instruction.update) if leaf.name in memories)
    writes = sorted({u.memory.name for u in updates_of(instruction.update)} & memories.keys())
    return OpaqueFragment(o.instruction, o.reason, tuple(reads), tuple(writes))


class _Walk:
    """The transitions of one summary."""

    def __init__(self, ila: Ila, summary: Summary, memories: dict[str, State], facts: _Facts) -> None:
        self.summary, self.memories, self.facts = summary, memories, facts
        self.name = summary.instruction.name
        self.operands = {o.leaf for o in summary.instruction.operands.values() if o.leaf.shape}
        self.locals = dict(_locals(summary.node))

    def run(self) -> None:
        for _, loops, t in self.summary.transitions():
            bounds = (*loops, *t.loops)
            self.facts.accesses += [(r.access, (*bounds, *r.variables)) for r in t.reads if r.access.memory in self.memories]
            if t.write.memory in self.memories:
                self.facts.accesses.append((t.write, bounds))
                self.transition(t, bounds)

    def transition(self, t: Transition, bounds: tuple[tuple[str, Poly], ...]) -> None:
        sink, reads = t.write.memory, list(self.reads(t))
        sources = list(dict.fromkeys(r.access.memory for r in reads))
        if not sources and self.operands & t.value.reads:
            self.facts.add_edge(HOST, sink, self.name)
        elif not sources:
            self.facts.clears[(self.name, sink)] = None
        elif len(sources) == 1 and sources[0] != sink and self.is_copy(t.value):
            self.facts.add_edge(sources[0], sink, self.name)
        else:
            for fragment in self.fragments(t, reads, bounds):
                key = (fragment.instruction, str(fragment.capability), fragment.result, fragment.operands)
                self.facts.fragments.setdefault(key, fragment)

    def reads(self, t: Transition) -> Iterator[Read]:
        """Yield the reads of storages that a value makes, those of arrays computed before it included."""
        for r in t.reads:
            fill = self.locals.get(r.load.data)
            if fill is not None:
                yield from self.reads(fill)
            elif r.access.memory in self.memories:
                yield r

    def is_copy(self, value: Expr) -> bool:
        """Tell whether a value is one element, or consecutive ones joined to a word or cut from it; parts may be zeros."""
        if value.op == "load":
            fill = self.locals.get(value.data)
            return getattr(value.data, "name", "") in self.memories if fill is None else self.is_copy(fill.value)
        if value.op in SCALING:
            return value.args[1].value is not None and self.is_copy(value.args[0])
        parts = value.args[1:] if value.op == "select" else value.args
        if value.op == "add" and possible_bits(parts[0]) & possible_bits(parts[1]):
            return False
        return value.op == "const" or (value.op in COPYING and all(map(self.is_copy, parts)))

    def fragments(self, t: Transition, reads: list[Read], bounds: tuple[tuple[str, Poly], ...]) -> Iterator[Fragment]:
        """Yield a fragment for each operation that control may choose at the root of a value; an accumulator is the last operand."""
        lanes = {v: int(p.get((), 0)) for v, p in (*bounds, *(x for r in reads for x in r.variables)) if set(p) <= {()}}
        words = list({(r.access.memory, _without_constants(r.access)): r for r in reads}.values())
        names = list(dict.fromkeys(operations(t.value, self.summary.symbols.control)))
        if "GEMM" in names:
            words.sort(key=lambda r: not r.variables)
        typed = [self.typed(r.access.memory, _lanes_of(r.access, lanes)) for r in words]
        immediates = [Typed(f"{'i' if signed else 'u'}{bits}") for bits, signed in self.immediates(t.value)]
        result = self.typed(t.write.memory, _lanes_of(t.write, lanes))
        steps = tuple((v, n) for v, n in lanes.items() if n > 1 and (_names(t.write, v) or any(_names(r.access, v) for r in words)))
        for name in names:
            capability = Capability(name, result, (*typed, *immediates))
            yield Fragment(self.name, capability, t.write.memory, tuple(r.access.memory for r in words), steps)

    def immediates(self, value: Expr) -> list[tuple[int, bool]]:
        """Return bits and sign of the fields that a value itself contains, those in addresses left out."""
        leaves = {o.leaf: o.bits for o in self.summary.instruction.operands.values() if not o.leaf.shape}
        work, visited, immediates = [value], set[Expr](), dict[Leaf, tuple[int, bool]]()
        while work:
            e = work.pop()
            if e not in visited:
                visited.add(e)
                if e.op == "load" and e.data in leaves:
                    immediates[e.data] = (leaves[e.data].width, leaves[e.data].signed)
                work.extend(() if e.op == "load" else e.args)
        return list(immediates.values())

    def typed(self, memory: str, shape: tuple[int, ...]) -> Typed:
        s = self.memories[memory]
        return Typed(f"{'i' if s.signed else 'u'}{s.bits}", tuple(n for n in shape if n > 1))


def _locals(node: Node) -> Iterator[tuple[Leaf, Transition]]:
    """Yield the arrays that are computed on the way, with what fills them."""
    if isinstance(node, Local):
        yield node.leaf, node.fill
    inner: tuple[Node, ...] = ()
    if isinstance(node, Local | Repeat):
        inner = (node.body,)
    elif isinstance(node, Choice):
        inner = (node.then, node.otherwise)
    elif isinstance(node, Group):
        inner = node.nodes
    for part in inner:
        yield from _locals(part)


def _lanes_of(access: Access, lanes: dict[str, int]) -> tuple[int, ...]:
    """Return the extents of an access in one step: of each lane that one of its axes is."""
    return tuple(lanes[name] for p in access.address for name in lanes if (name,) in p)


def _names(access: Access, variable: str) -> bool:
    return any(variable in monomial for p in access.address for monomial in p)


def _without_constants(access: Access) -> tuple[frozenset[tuple[tuple[str, ...], int]], ...]:
    """Return what accesses to parts of one word share."""
    return tuple(frozenset((m, c) for m, c in p.items() if m) for p in access.address)


def operations(value: Expr, control: frozenset[Leaf]) -> Iterator[str]:
    """Yield the names of the operations at the root of a value, rounding, clamps and wraps left out: one for each choice of control."""
    e = value
    while e.op in ("wrap", "extract") or (e.op in ("min", "max", "mod") and e.args[1].value is not None) or _is_part(e):
        e = e.args[0]
    if e.op == "select" and {x.op for x in e.args[1:]} == {"shl", "shr"}:
        yield "SHR"
    elif e.op == "select" and e.args[0].reads <= control:
        yield from operations(e.args[1], control)
        yield from operations(e.args[2], control)
    else:
        yield _operation(e)


def _is_part(e: Expr) -> bool:
    """Tell whether a term is the part of a word that loop variables choose."""
    return e.op == "shr" and bool(e.args[1].free) and not e.args[1].reads


def _operation(e: Expr) -> str:
    parts = [e, *e.args] if e.op == "add" else [e]
    sums = [x for x in parts if x.op == "reduce"]
    if sums and sums[0].args[0].op == "mul":
        return "GEMM"
    if sums:
        return {"sum": "ADD", "max": "MAX", "min": "MIN"}[sums[0].data[0]]
    if e.op == "load" and not isinstance(e.data, Leaf):
        return "MAC" if any(x.op == "mul" for x in terms_of(e)) else "FOLD"
    if isinstance(e.data, Table) and e.data.name.isidentifier():
        return e.data.name.upper()
    return NAMES.get(e.op, "MAP")


def _storage(s: State, off_chip: bool, facts: _Facts) -> StorageShape:
    """Return a state as a storage: axes that a step covers are banks, axes that every access names by a number are instances."""
    if off_chip:
        return StorageShape(s.name, s.bits, 1, 1 << 48, off_chip=True, signed=s.signed)
    shape = [int(n) for n in s.leaf.shape if isinstance(n, int)]
    kinds = [
        _kind(n, axis, [(a.address[axis], loops) for a, loops in facts.accesses if a.memory == s.name]) for axis, n in enumerate(shape)
    ]
    sizes = {kind: math.prod(n for n, k in zip(shape, kinds, strict=True) if k == kind) for kind in ("lane", "instance", "depth")}
    return StorageShape(s.name, s.bits, sizes["lane"], sizes["depth"], sizes["instance"], signed=s.signed)


def _kind(size: int, axis: int, addresses: Iterable[tuple[Poly, tuple[tuple[str, Poly], ...]]]) -> str:
    """Return what an axis is: lanes are addressed by loops of constant extents alone, and one of them covers the axis."""
    uses = list(addresses)
    if any(_covers(p, loops, size) for p, loops in uses) and all(_is_static(p, loops) for p, loops in uses):
        return "lane"
    if uses and axis == 0 and all(set(p) <= {()} for p, _ in uses):
        return "instance"
    return "depth"


def _covers(p: Poly, loops: tuple[tuple[str, Poly], ...], size: int) -> bool:
    return any(p == {(v,): 1} and extent == {(): size} for v, extent in loops)


def _is_static(p: Poly, loops: tuple[tuple[str, Poly], ...]) -> bool:
    constant_loops = {v for v, extent in loops if set(extent) <= {()}}
    return all(name in constant_loops for monomial in p for name in monomial)
