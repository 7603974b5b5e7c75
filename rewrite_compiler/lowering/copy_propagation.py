"""Code without names for nothing: a scalar that is assigned once is a name, an element that is used at once has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .dead_code import names_of, statements_of, trees_of
from .loop_ir import Assign, Bind, For, If, Mutable, Routine, Statement, Store, Tree


def settled(routine: Routine) -> Routine:
    """Return the routine with the scalars that vary, and the names of what is used more than once or later."""
    return Routine(routine.memories, routine.tables, _block(routine.body))


def _block(statements: Sequence[Statement]) -> list[Statement]:
    found: list[Statement] = []
    rest = [_inner(s) for s in statements]
    while rest:
        s, rest = rest[0], rest[1:]
        at = _only_assigned(s.name, rest) if isinstance(s, Mutable) else None
        if at is not None:
            only = rest[at]
            assert isinstance(only, Assign)
            rest[at] = Bind(only.name, only.value)
        elif isinstance(s, Bind) and _is_used_at_once(s, rest):
            rest[0] = _with(rest[0], s)
        else:
            found.append(s)
    return found


def _inner(s: Statement) -> Statement:
    if isinstance(s, If):
        return If(s.condition, _block(s.then), _block(s.otherwise))
    return For(s.name, s.extent, _block(s.body)) if isinstance(s, For) else s


def _only_assigned(name: str, rest: Sequence[Statement]) -> int | None:
    """Return the place of the only assignment of a scalar, which is not read before."""
    at = next((n for n, s in enumerate(rest) if isinstance(s, Assign) and s.name == name), None)
    count = sum(1 for s in statements_of(rest) if isinstance(s, Assign) and s.name == name)
    return at if at is not None and count == 1 and not _uses(name, rest[: at + 1]) else None


def _uses(name: str, statements: Sequence[Statement]) -> int:
    return sum(n == name for s in statements_of(statements) for t in trees_of(s) for n in names_of(t))


def _is_used_at_once(s: Bind, rest: Sequence[Statement]) -> bool:
    """Tell whether only the next statement has an element, once, and nothing is stored before."""
    is_plain = s.value.op == "load" and bool(rest) and isinstance(rest[0], Bind | Mutable | Assign | Store)
    return is_plain and _uses(s.name, rest[:1]) == 1 == _uses(s.name, rest)


def _with(s: Statement, known: Bind) -> Statement:
    if isinstance(s, Store):
        return Store(s.array, _spelt(s.index, known), _spelt(s.value, known))
    assert isinstance(s, Bind | Mutable | Assign)
    return replace(s, value=_spelt(s.value, known))


def _spelt(t: Tree, known: Bind) -> Tree:
    return known.value if t.op == "name" and t.data == known.name else replace(t, args=tuple(_spelt(a, known) for a in t.args))
