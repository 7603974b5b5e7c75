"""Bounds-check hoisting: where an index is monotonic in the loop variable, its first and last value are checked before the loop.

A loop that would leave an array is not begun: what a function that traps has stored means nothing anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..lang import intervals as iv
from .dead_code import names_read, names_written, statements_of
from .loop_ir import Allocate, Assign, Bind, BoundsCheck, For, If, Mutable, Raise, Routine, Statement, Store, Tree, constant
from .trap_analysis import cannot_trap, is_inside, is_not_negative, sizes_of

CHECKED = "checked"  # the operator of an index that was
MAX_NODES = 200  # of an index that is spelt with what is known before the loop


def hoist_bounds_checks(routine: Routine) -> Routine:
    """Return the routine with the bounds checks of monotonic indices hoisted out of its loops."""
    return Routine(routine.memories, routine.tables, _block(routine.body, sizes_of(routine)))


def _block(statements: Sequence[Statement], sizes: Mapping[str, int]) -> list[Statement]:
    return [statement for s in statements for statement in _with_checks(s, sizes)]


def _with_checks(s: Statement, sizes: Mapping[str, int]) -> list[Statement]:
    if isinstance(s, If):
        return _choice(s.condition, *(_checks_out_of(_block(side, sizes), sizes) for side in (s.then, s.otherwise)))
    if not isinstance(s, For):
        return [s]
    body = _block(s.body, sizes)
    if any(isinstance(x, Raise) for x in statements_of(body)):
        return [For(s.name, s.extent, body)]
    local_arrays = frozenset(x.name for x in body if isinstance(x, Allocate))
    loop = _Loop(s.name, s.extent, sizes, names_written(body) | {s.name}, local_arrays)
    unchecked_body = [x for statement in body for x in loop.without_checks(statement)]
    return [*loop.checks, For(s.name, s.extent, unchecked_body)]


Side = Sequence[tuple[Statement, BoundsCheck | None]]  # statements, and the check that each is where it stands before the choice


def _choice(condition: Tree, then: Side, otherwise: Side) -> list[Statement]:
    """Return a choice, preceded by the checks that both of its branches make."""
    common = {w for _, w in then} & {w for _, w in otherwise} - {None}
    sides = ([s for s, w in side if w not in common] for side in (then, otherwise))
    return [*(w for w in dict.fromkeys(w for _, w in then) if w is not None and w in common), If(condition, *sides)]


def _checks_out_of(side: Sequence[Statement], sizes: Mapping[str, int]) -> Side:
    if any(isinstance(x, Raise) for x in statements_of(side)):
        return [(s, None) for s in side]
    once = _Loop("", constant(1), sizes, names_written(side), frozenset(x.name for x in side if isinstance(x, Allocate)))
    lifted_checks = []
    for s in side:
        lifted_checks.append((s, once.lifted(s) if isinstance(s, BoundsCheck) else None))
        once.definitions.update({s.name: once.expanded(s.value)} if isinstance(s, Bind) else {})
    return lifted_checks


@dataclass
class _Loop:
    name: str
    extent: Tree
    sizes: Mapping[str, int]
    varying: set[str]
    local_arrays: frozenset[str]  # arrays that are made anew in each iteration
    definitions: dict[str, Tree] = field(default_factory=dict)  # names of the body, spelt with the variable and what is known outside
    checks: dict[BoundsCheck, None] = field(default_factory=dict)

    def without_checks(self, s: Statement) -> list[Statement]:
        """Return a statement of the body in which the indices that are checked before the loop are marked."""
        if isinstance(s, BoundsCheck):
            lifted = self.lifted(s)
            self.checks.update({lifted: None} if lifted else {})
            return [] if lifted else [s]
        if isinstance(s, Bind):
            self.definitions[s.name] = self.expanded(s.value)
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
        unmarked = replace(t, args=tuple(self.tree(a) for a in t.args))
        return replace(unmarked, args=(self.checked(t.data, t.args[0], unmarked.args[0]),)) if t.op == "load" else unmarked

    def checked(self, array: str, index: Tree, rewritten: Tree) -> Tree:
        """Return an index, marked when it needs a check that is made before the loop."""
        if index.op == CHECKED or is_inside(index, self.sizes.get(array)) or array in self.local_arrays:
            return rewritten
        expanded = self.expanded(index)
        check = self.lifted(BoundsCheck(array, expanded, expanded, ()))
        if check is None:
            return rewritten
        self.checks[check] = None
        return Tree(CHECKED, (rewritten,), None, index.interval, False)

    def lifted(self, w: BoundsCheck) -> BoundsCheck | None:
        """Return the check of all iterations in one, before the loop."""
        first, last, *when = map(self.expanded, (w.first, w.last, *w.when))
        if w.array in self.local_arrays or not (_grows(first, self.name) and _grows(last, self.name)):
            return None
        end = Tree("sub", (self.extent, constant(1)), None, iv.sub(self.extent.interval, (1, 1)), False)
        first, last = _at(first, self.name, constant(0)), _at(last, self.name, end)
        is_known = all(self.varying.isdisjoint(names_read(t)) and cannot_trap(t, self.sizes) for t in (first, last, *when))
        needed = () if (self.extent.interval[0] or 0) > 0 else (self.extent,)
        return BoundsCheck(w.array, first, last, (*when, *needed)) if is_known else None

    def expanded(self, t: Tree) -> Tree:
        """Return a tree with names of the body replaced by their values, unless it becomes large."""
        tree = _substituted(t, self.definitions)
        return tree if sum(1 for _ in _nodes(tree)) <= MAX_NODES else t


def _substituted(t: Tree, definitions: Mapping[str, Tree]) -> Tree:
    return (
        definitions[t.data]
        if t.op == "name" and t.data in definitions
        else replace(t, args=tuple(_substituted(a, definitions) for a in t.args))
    )


def _nodes(t: Tree) -> Iterator[Tree]:
    yield t
    for a in t.args:
        yield from _nodes(a)


def _grows(t: Tree, name: str) -> bool:
    """Tell whether a value is monotonically non-decreasing in the loop variable `name`."""
    if t.op == "name" or name not in names_read(t):
        return True
    if t.op in ("add", "min", "max"):
        return all(_grows(a, name) for a in t.args)
    if t.op == "sub":
        return _grows(t.args[0], name) and name not in names_read(t.args[1])
    left, right = t.args if t.op == "mul" else (t, t)
    factor = right if name in names_read(left) else left
    return t.op == "mul" and is_not_negative(factor) and name not in names_read(factor) and all(_grows(a, name) for a in t.args)


def _at(t: Tree, name: str, value: Tree) -> Tree:
    return value if t.op == "name" and t.data == name else replace(t, args=tuple(_at(a, name, value) for a in t.args))
