"""Copy propagation: a mutable scalar that is assigned once becomes a name, a load that the next statement uses once is forwarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .dead_code import direct_trees, names_read, statements_of
from .loop_ir import Assign, Bind, For, If, Mutable, Routine, Statement, Store, Tree


def propagate_copies(routine: Routine) -> Routine:
    """Return the routine with single assignments turned into names and single uses of loads forwarded."""
    return Routine(routine.memories, routine.tables, _block(routine.body))


def _block(statements: Sequence[Statement]) -> list[Statement]:
    block: list[Statement] = []
    rest = [_inner(s) for s in statements]
    while rest:
        s, rest = rest[0], rest[1:]
        at = _only_assigned(s.name, rest) if isinstance(s, Mutable) else None
        if at is not None:
            only = rest[at]
            assert isinstance(only, Assign)
            rest[at] = Bind(only.name, only.value)
        elif isinstance(s, Bind) and _is_used_at_once(s, rest):
            rest[0] = _substituted_in(rest[0], s)
        else:
            block.append(s)
    return block


def _inner(s: Statement) -> Statement:
    if isinstance(s, If):
        return If(s.condition, _block(s.then), _block(s.otherwise))
    return For(s.name, s.extent, _block(s.body)) if isinstance(s, For) else s


def _only_assigned(name: str, following: Sequence[Statement]) -> int | None:
    """Return the position of the only assignment of a scalar that nothing reads before it; None where there is none."""
    at = next((n for n, s in enumerate(following) if isinstance(s, Assign) and s.name == name), None)
    count = sum(1 for s in statements_of(following) if isinstance(s, Assign) and s.name == name)
    return at if at is not None and count == 1 and not _uses(name, following[: at + 1]) else None


def _uses(name: str, statements: Sequence[Statement]) -> int:
    return sum(n == name for s in statements_of(statements) for t in direct_trees(s) for n in names_read(t))


def _is_used_at_once(s: Bind, following: Sequence[Statement]) -> bool:
    """Tell whether a loaded element has one use, in the next statement, so that no store lies between."""
    is_plain = s.value.op == "load" and bool(following) and isinstance(following[0], Bind | Mutable | Assign | Store)
    return is_plain and _uses(s.name, following[:1]) == 1 == _uses(s.name, following)


def _substituted_in(s: Statement, binding: Bind) -> Statement:
    if isinstance(s, Store):
        return Store(s.array, _substituted(s.index, binding), _substituted(s.value, binding))
    assert isinstance(s, Bind | Mutable | Assign)
    return replace(s, value=_substituted(s.value, binding))


def _substituted(t: Tree, binding: Bind) -> Tree:
    return binding.value if t.op == "name" and t.data == binding.name else replace(t, args=tuple(_substituted(a, binding) for a in t.args))
