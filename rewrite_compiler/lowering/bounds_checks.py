"""Loops whose indices are checked before them: the least and the greatest of all iterations, where an index only grows.

A loop that would leave an array is not begun: what a function that traps has stored means nothing anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..lang import intervals as iv
from .dead_code import names_of, statements_of, written_by
from .loop_ir import Allocate, Assign, Bind, For, If, Mutable, Raise, Routine, Statement, Store, Tree, Within, constant
from .trap_analysis import cannot_trap, is_inside, is_not_negative, sizes_of

CHECKED = "checked"  # the operator of an index that was
MOST_NODES = 200  # of an index that is spelt with what is known before the loop


def within(routine: Routine) -> Routine:
    """Return the routine with checks of indices before its loops."""
    return Routine(routine.memories, routine.tables, _block(routine.body, sizes_of(routine)))


def _block(statements: Sequence[Statement], sizes: Mapping[str, int]) -> list[Statement]:
    return [made for s in statements for made in _made(s, sizes)]


def _made(s: Statement, sizes: Mapping[str, int]) -> list[Statement]:
    if isinstance(s, If):
        return _choice(s.condition, *(_checks_out_of(_block(side, sizes), sizes) for side in (s.then, s.otherwise)))
    if not isinstance(s, For):
        return [s]
    body = _block(s.body, sizes)
    if any(isinstance(x, Raise) for x in statements_of(body)):
        return [For(s.name, s.extent, body)]
    own = frozenset(x.name for x in body if isinstance(x, Allocate))
    loop = _Loop(s.name, s.extent, sizes, written_by(body) | {s.name}, own)
    kept = [x for statement in body for x in loop.kept(statement)]
    return [*loop.checks, For(s.name, s.extent, kept)]


Side = Sequence[tuple[Statement, Within | None]]  # statements, and the check that each is where it stands before the choice


def _choice(condition: Tree, then: Side, otherwise: Side) -> list[Statement]:
    """Return a choice, after the checks that both sides make."""
    common = {w for _, w in then} & {w for _, w in otherwise} - {None}
    sides = ([s for s, w in side if w not in common] for side in (then, otherwise))
    return [*(w for w in dict.fromkeys(w for _, w in then) if w is not None and w in common), If(condition, *sides)]


def _checks_out_of(side: Sequence[Statement], sizes: Mapping[str, int]) -> Side:
    if any(isinstance(x, Raise) for x in statements_of(side)):
        return [(s, None) for s in side]
    once = _Loop("", constant(1), sizes, written_by(side), frozenset(x.name for x in side if isinstance(x, Allocate)))
    found = []
    for s in side:
        found.append((s, once.lifted(s) if isinstance(s, Within) else None))
        once.known.update({s.name: once.spelt(s.value)} if isinstance(s, Bind) else {})
    return found


@dataclass
class _Loop:
    name: str
    extent: Tree
    sizes: Mapping[str, int]
    varying: set[str]
    own: frozenset[str]  # arrays that are made anew in each iteration
    known: dict[str, Tree] = field(default_factory=dict)  # names of the body, spelt with the variable and what is known outside
    checks: dict[Within, None] = field(default_factory=dict)

    def kept(self, s: Statement) -> list[Statement]:
        """Return a statement of the body with the indices that are checked before the loop marked."""
        if isinstance(s, Within):
            lifted = self.lifted(s)
            self.checks.update({lifted: None} if lifted else {})
            return [] if lifted else [s]
        if isinstance(s, Bind):
            self.known[s.name] = self.spelt(s.value)
        if isinstance(s, Bind | Mutable | Assign):
            return [replace(s, value=self.tree(s.value))]
        if isinstance(s, Store):
            store = Store(s.array, self.tree(s.index), self.tree(s.value))
            return [replace(store, index=self.checked(s.array, s.index, store.index))]
        if isinstance(s, For):
            return [For(s.name, self.tree(s.extent), s.body)]
        return [If(self.tree(s.condition), s.then, s.otherwise)] if isinstance(s, If) else [s]

    def tree(self, t: Tree) -> Tree:
        if t.op == "select":  # only one side is computed
            return replace(t, args=(self.tree(t.args[0]), *t.args[1:]))
        if t.op == CHECKED or not t.args:
            return t
        found = replace(t, args=tuple(self.tree(a) for a in t.args))
        return replace(found, args=(self.checked(t.data, t.args[0], found.args[0]),)) if t.op == "load" else found

    def checked(self, array: str, index: Tree, made: Tree) -> Tree:
        """Return an index, marked when it needs a check that is made before the loop."""
        if index.op == CHECKED or is_inside(index, self.sizes.get(array)) or array in self.own:
            return made
        whole = self.spelt(index)
        check = self.lifted(Within(array, whole, whole, ()))
        if check is None:
            return made
        self.checks[check] = None
        return Tree(CHECKED, (made,), None, index.interval, False)

    def lifted(self, w: Within) -> Within | None:
        """Return the check of all iterations in one, before the loop."""
        first, last, *when = map(self.spelt, (w.first, w.last, *w.when))
        if w.array in self.own or not (_grows(first, self.name) and _grows(last, self.name)):
            return None
        end = Tree("sub", (self.extent, constant(1)), None, iv.sub(self.extent.interval, (1, 1)), False)
        first, last = _at(first, self.name, constant(0)), _at(last, self.name, end)
        is_known = all(self.varying.isdisjoint(names_of(t)) and cannot_trap(t, self.sizes) for t in (first, last, *when))
        needed = () if (self.extent.interval[0] or 0) > 0 else (self.extent,)
        return Within(w.array, first, last, (*when, *needed)) if is_known else None

    def spelt(self, t: Tree) -> Tree:
        """Return a tree with the values of names of the body in their places, unless it becomes large."""
        found = _spelt(t, self.known)
        return found if sum(1 for _ in _nodes(found)) <= MOST_NODES else t


def _spelt(t: Tree, known: Mapping[str, Tree]) -> Tree:
    return known[t.data] if t.op == "name" and t.data in known else replace(t, args=tuple(_spelt(a, known) for a in t.args))


def _nodes(t: Tree) -> Iterator[Tree]:
    yield t
    for a in t.args:
        yield from _nodes(a)


def _grows(t: Tree, name: str) -> bool:
    """Tell whether a value never becomes less from one iteration to the next."""
    if t.op == "name" or name not in names_of(t):
        return True
    if t.op in ("add", "min", "max"):
        return all(_grows(a, name) for a in t.args)
    if t.op == "sub":
        return _grows(t.args[0], name) and name not in names_of(t.args[1])
    one, other = t.args if t.op == "mul" else (t, t)
    factor = other if name in names_of(one) else one
    return t.op == "mul" and is_not_negative(factor) and name not in names_of(factor) and all(_grows(a, name) for a in t.args)


def _at(t: Tree, name: str, value: Tree) -> Tree:
    return value if t.op == "name" and t.data == name else replace(t, args=tuple(_at(a, name, value) for a in t.args))
