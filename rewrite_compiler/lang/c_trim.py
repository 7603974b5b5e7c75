"""Code without what nothing reads: names, mutable scalars and local arrays that are only written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .code import Allocate, Assign, Bind, Copy, Every, For, If, Mutable, Raise, Routine, Statement, Store, Tree


def trimmed(routine: Routine) -> Routine:
    """Return the routine without dead values; what it stores in its memories is the same."""
    body, before = list(routine.body), -1
    while before != (size := sum(1 for _ in _statements(body))):
        read = {*_read(body), *routine.memories}
        body, before = _kept(body, read), size
    return Routine(routine.memories, routine.tables, body)


def _kept(statements: Sequence[Statement], read: set[str]) -> list[Statement]:
    found: list[Statement] = []
    for s in statements:
        if isinstance(s, For):
            body = _kept(s.body, read)
            found += [For(s.name, s.extent, body)] if body else []
        elif isinstance(s, If):
            then, otherwise = _kept(s.then, read), _kept(s.otherwise, read)
            found += [If(s.condition, then, otherwise)] if then or otherwise else []
        elif isinstance(s, Raise) or (s.array if isinstance(s, Store | Copy) else s.name) in read:
            found.append(s)
    return found


def _statements(statements: Sequence[Statement]) -> Iterator[Statement]:
    for s in statements:
        yield s
        if isinstance(s, For):
            yield from _statements(s.body)
        elif isinstance(s, If):
            yield from _statements(s.then)
            yield from _statements(s.otherwise)


def _read(body: Sequence[Statement]) -> Iterator[str]:
    """Yield every name that a value depends on; a scalar that only feeds itself does not count."""
    for s in _statements(body):
        own = s.name if isinstance(s, Assign) else ""
        for t in _trees(s):
            yield from (name for name in _names(t) if name != own)


def _trees(s: Statement) -> tuple[Tree, ...]:
    if isinstance(s, Bind | Mutable | Assign | Every):
        return (s.value,)
    if isinstance(s, Allocate):
        return (s.size,)
    if isinstance(s, Store):
        return s.index, s.value
    if isinstance(s, Copy):
        return s.index, s.start
    if isinstance(s, For):
        return (s.extent,)
    return (s.condition,) if isinstance(s, If) else tuple(x for _, x in s.values)


def _names(t: Tree) -> Iterator[str]:
    if t.op in ("name", "load"):
        yield t.data
    for a in t.args:
        yield from _names(a)
