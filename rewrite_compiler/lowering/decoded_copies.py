"""Decoded copies (mirrors): beside a memory of codes a memory of the values that a decoding table gives for them.

Sums of products then read decoded elements instead of decoding codes in every term. Every store is done to both memories.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..lang import intervals as iv
from ..lang.binders import Leaf, Table
from .dead_code import direct_trees, names_read, statements_of
from .loop_ir import Assign, Bind, For, If, Mutable, Routine, Statement, Store, Tree
from .trap_analysis import static_size

MIN_TERMS = 8  # of a sum that is worth a mirror
MAX_ELEMENTS = 1 << 22
MAX_ENTRY_BYTES = 2  # of an entry


@dataclass(frozen=True)
class DecodedCopy:
    """A memory of codes, the table that decodes them, and the memory of decoded values."""

    memory: Leaf
    table: Table
    leaf: Leaf


def decoded_copies(routines: Iterable[Routine]) -> list[DecodedCopy]:
    """Return the mirrors that pay for the routines of a device; none of a memory whose own elements address its stores."""
    all_routines = list(routines)
    candidates = dict.fromkeys(pair for r in all_routines for pair in _candidates(r))
    barred = {r.memories[n] for r in all_routines for n in _read_for_its_stores(r)}
    pairs = [(m, t) for m, t in candidates if m not in barred]
    return [DecodedCopy(m, t, Leaf(m.shape, t.body.interval, False, f"{m.name}_by_{n}")) for n, (m, t) in enumerate(pairs)]


def with_decoded_copies(routine: Routine, copies: Sequence[DecodedCopy]) -> Routine:
    """Return a routine that reads mirrors, and writes them with every store to their memories."""
    names = {leaf: n for n, leaf in routine.memories.items()}
    tables = {id(t): n for n, t in routine.tables.items()}
    stored = {s.array for s in statements_of(routine.body) if isinstance(s, Store)}
    change = _Change({}, {})
    memories, all_tables = dict(routine.memories), dict(routine.tables)
    for n, m in enumerate(copies):
        memory, mirror = names.get(m.memory, ""), f"q{n}"
        if not memory or (memory not in stored and id(m.table) not in tables):
            continue
        table = tables.setdefault(id(m.table), f"table{len(all_tables)}")
        all_tables[table], memories[mirror] = m.table, m.leaf
        change.reads[table, memory] = mirror
        change.stores.setdefault(memory, []).append((table, mirror, m))
    return Routine(memories, all_tables, change.block(routine.body)) if change.reads else routine


@dataclass(frozen=True)
class _Change:
    reads: dict[tuple[str, str], str]  # table and memory → mirror
    stores: dict[str, list[tuple[str, str, DecodedCopy]]]

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        return [statement for s in statements for statement in self.updated(s)]

    def updated(self, s: Statement) -> Iterator[Statement]:
        if isinstance(s, For):
            yield For(s.name, self.tree(s.extent), self.block(s.body))
        elif isinstance(s, If):
            yield If(self.tree(s.condition), self.block(s.then), self.block(s.otherwise))
        elif isinstance(s, Store):
            yield (store := Store(s.array, self.tree(s.index), self.tree(s.value)))
            yield from (_copied(store, *target) for target in self.stores.get(s.array, ()))
        else:
            yield replace(s, value=self.tree(s.value)) if isinstance(s, Bind | Mutable | Assign) else s

    def tree(self, t: Tree) -> Tree:
        rewritten = replace(t, args=tuple(self.tree(a) for a in t.args))
        looked_up = _looked_up(t)
        if looked_up is None or looked_up not in self.reads:
            return rewritten
        return replace(rewritten, args=rewritten.args[0].args, data=self.reads[looked_up])


def _copied(s: Store, table: str, mirror: str, m: DecodedCopy) -> Store:
    code = Tree("load", (s.index,), s.array, m.memory.interval, False)
    return Store(mirror, s.index, Tree("load", (code,), table, m.table.body.interval, False))


def _looked_up(t: Tree) -> tuple[str, str] | None:
    """Return the table and the memory of a decoded element, table[memory[i]]; None for another tree."""
    is_found = t.op == "load" and t.args[0].op == "load"
    return (t.data, t.args[0].data) if is_found else None


def _candidates(routine: Routine) -> Iterator[tuple[Leaf, Table]]:
    """Yield memories and tables whose entries are factors in a sum."""
    for loop in statements_of(routine.body):
        if not isinstance(loop, For) or loop.extent.op != "const" or int(loop.extent.data) < MIN_TERMS:
            continue
        sums = [s.value for s in loop.body if isinstance(s, Assign) and s.value.op == "add" and s.name in names_read(s.value)]
        factors = [f for t in sums for p in t.args if p.op == "mul" for f in p.args]
        pairs = [pair for pair in map(_looked_up, factors) if pair is not None]
        yield from ((routine.memories[m], routine.tables[t]) for t, m in pairs if _is_small(routine, t, m))


def _is_small(routine: Routine, table: str, memory: str) -> bool:
    if table not in routine.tables or memory not in routine.memories:
        return False
    t, m = routine.tables[table], routine.memories[memory]
    size, bytes_ = static_size(m), iv.storage_bytes(t.body.interval) if not t.body.real else math.inf
    return t.domains == (m.interval,) and m.interval[0] == 0 and size is not None and size <= MAX_ELEMENTS and bytes_ <= MAX_ENTRY_BYTES


def _read_for_its_stores(routine: Routine) -> Iterator[str]:
    """Yield memories whose own elements say where something is stored in them."""
    for s in statements_of(routine.body):
        if isinstance(s, Store) and s.array in routine.memories and s.array in names_read(direct_trees(s)[0]):
            yield s.array
