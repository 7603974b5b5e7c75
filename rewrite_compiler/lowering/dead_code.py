"""Code without what nothing reads: names, mutable scalars and local arrays that are only written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .loop_ir import Allocate, Assign, Bind, Copy, Every, For, If, Mutable, Raise, Routine, Statement, Store, Tree, Within


def trimmed(routine: Routine) -> Routine:
    """Return the routine without dead values; what it stores in its memories is the same."""
    body, before = list(routine.body), -1
    while before != (size := sum(1 for _ in statements_of(body))):
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
        elif isinstance(s, Raise) or (s.array if isinstance(s, Store | Copy | Within) else s.name) in read:
            found.append(s)
    return found


def statements_of(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements and those inside of them."""
    for s in statements:
        yield s
        if isinstance(s, For):
            yield from statements_of(s.body)
        elif isinstance(s, If):
            yield from statements_of(s.then)
            yield from statements_of(s.otherwise)


def written_by(statements: Sequence[Statement]) -> set[str]:
    """Return the names and arrays that statements give a value."""
    found = (s for s in statements_of(statements) if not isinstance(s, If | Raise | Within))
    return {s.array if isinstance(s, Store | Copy) else s.name for s in found}


def _read(body: Sequence[Statement]) -> Iterator[str]:
    """Yield every name that a value depends on; a scalar that only feeds itself does not count."""
    for s in statements_of(body):
        own = s.name if isinstance(s, Assign) else ""
        for t in trees_of(s):
            yield from (name for name in names_of(t) if name != own)


def trees_of(s: Statement) -> tuple[Tree, ...]:
    """Return the trees of a statement itself."""
    if isinstance(s, Bind | Mutable | Assign | Every):
        return (s.value,)
    if isinstance(s, Allocate):
        return (s.size,)
    if isinstance(s, Store):
        return s.index, s.value
    if isinstance(s, Copy):
        return s.index, s.start
    if isinstance(s, Within):
        return s.first, s.last, *s.when
    if isinstance(s, For):
        return (s.extent,)
    return (s.condition,) if isinstance(s, If) else tuple(x for _, x in s.values)


def names_of(t: Tree) -> Iterator[str]:
    """Yield the names and the arrays that a tree reads."""
    if t.op in ("name", "load"):
        yield t.data
    for a in t.args:
        yield from names_of(a)
