"""Dead-code elimination: names, mutable scalars and local arrays that are written and never read are removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .loop_ir import Allocate, Assign, Bind, BoundsCheck, Conjunction, Copy, For, If, Mutable, Raise, Routine, Statement, Store, Tree


def eliminate_dead_code(routine: Routine) -> Routine:
    """Return the routine without dead statements; what it stores in its memories is the same.

    Liveness is flow-insensitive: a name that any value depends on is live everywhere. Passes repeat until nothing is removed.
    """
    body, previous_size = list(routine.body), -1
    while previous_size != (size := sum(1 for _ in statements_of(body))):
        live = {*_live_names(body), *routine.memories}
        body, previous_size = _live_part(body, live), size
    return Routine(routine.memories, routine.tables, body)


def _live_part(statements: Sequence[Statement], live: set[str]) -> list[Statement]:
    live_statements: list[Statement] = []
    for s in statements:
        if isinstance(s, For):
            body = _live_part(s.body, live)
            live_statements += [For(s.name, s.extent, body)] if body else []
        elif isinstance(s, If):
            then, otherwise = _live_part(s.then, live), _live_part(s.otherwise, live)
            live_statements += [If(s.condition, then, otherwise)] if then or otherwise else []
        elif isinstance(s, Raise) or (s.array if isinstance(s, Store | Copy | BoundsCheck) else s.name) in live:
            live_statements.append(s)
    return live_statements


def statements_of(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements and those nested in them, in pre-order."""
    for s in statements:
        yield s
        if isinstance(s, For):
            yield from statements_of(s.body)
        elif isinstance(s, If):
            yield from statements_of(s.then)
            yield from statements_of(s.otherwise)


def names_written(statements: Sequence[Statement]) -> set[str]:
    """Return the names and arrays that statements define or store to."""
    writers = (s for s in statements_of(statements) if not isinstance(s, If | Raise | BoundsCheck))
    return {s.array if isinstance(s, Store | Copy) else s.name for s in writers}


def _live_names(body: Sequence[Statement]) -> Iterator[str]:
    """Yield every name that a value depends on; a scalar that only feeds itself does not count."""
    for s in statements_of(body):
        assigned = s.name if isinstance(s, Assign) else ""
        for t in direct_trees(s):
            yield from (name for name in names_read(t) if name != assigned)


def direct_trees(s: Statement) -> tuple[Tree, ...]:
    """Return the expression trees of a statement, without those of statements nested in it."""
    if isinstance(s, Bind | Mutable | Assign | Conjunction):
        return (s.value,)
    if isinstance(s, Allocate):
        return (s.size,)
    if isinstance(s, Store):
        return s.index, s.value
    if isinstance(s, Copy):
        return s.index, s.start
    if isinstance(s, BoundsCheck):
        return s.first, s.last, *s.when
    if isinstance(s, For):
        return (s.extent,)
    return (s.condition,) if isinstance(s, If) else tuple(x for _, x in s.values)


def names_read(t: Tree) -> Iterator[str]:
    """Yield the names and arrays that an expression tree reads."""
    if t.op in ("name", "load"):
        yield t.data
    for a in t.args:
        yield from names_read(a)
