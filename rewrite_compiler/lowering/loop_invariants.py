"""Loop-invariant code motion and loop unswitching.

Only code that cannot trap is moved, so it does no harm where the loop does not run at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .dead_code import direct_trees, names_read, names_written, statements_of
from .loop_ir import Assign, Bind, For, If, Mutable, Raise, Routine, Statement
from .trap_analysis import cannot_trap, sizes_of

MAX_UNSWITCHED = 24  # of a loop that is printed twice, once for each answer


def hoist_invariants(routine: Routine) -> Routine:
    """Return the routine with loop invariants moved before their loops and loops on invariant conditions unswitched."""
    return Routine(routine.memories, routine.tables, _Mover(sizes_of(routine)).block(routine.body))


@dataclass(frozen=True)
class _Mover:
    sizes: Mapping[str, int]

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        return [statement for s in statements for statement in self.hoisted(s)]

    def hoisted(self, s: Statement) -> list[Statement]:
        if isinstance(s, If):
            return [If(s.condition, self.block(s.then), self.block(s.otherwise))]
        return self.loop(For(s.name, s.extent, self.block(s.body)), MAX_UNSWITCHED) if isinstance(s, For) else [s]

    def loop(self, s: For, most: int) -> list[Statement]:
        """Return a loop whose inner loops are done, preceded by its invariants; two versions of it where a choice in it is invariant."""
        invariant, variant = self.partition(s)
        at = self.invariant_choice(s.name, variant) if sum(1 for _ in statements_of(variant)) <= most else None
        if at is None:
            return [*invariant, For(s.name, s.extent, variant)]
        choice = variant[at]
        assert isinstance(choice, If)
        bodies = ([*variant[:at], *branch, *variant[at + 1 :]] for branch in (choice.then, choice.otherwise))
        return [*invariant, If(choice.condition, *(self.loop(For(s.name, s.extent, body), most // 2) for body in bodies))]

    def invariant_choice(self, variable: str, body: Sequence[Statement]) -> int | None:
        """Return the position of a choice whose condition is loop-invariant; None where there is none."""
        if any(isinstance(x, Raise) for x in statements_of(body)):
            return None
        varying = names_written(body) | {variable}
        fixed = (n for n, s in enumerate(body) if isinstance(s, If) and varying.isdisjoint(names_read(s.condition)))
        return next((n for n in fixed if cannot_trap(body[n].condition, self.sizes)), None)  # type: ignore[union-attr]

    def partition(self, s: For) -> tuple[list[Statement], list[Statement]]:
        """Return the loop-invariant statements of a body, and the others."""
        invariant, variant, varying = list[Statement](), list[Statement](), names_written(s.body) | {s.name}
        assigned = Counter(n for x in s.body for n in _assigned(x))
        for group in _groups(s.body):
            assigned_in_group = Counter(
                n for x in group for n in _assigned(x)
            )  # a scalar that other statements assign begins anew every time
            is_fixed = self.is_invariant(group, varying) and all(
                assigned[x.name] == assigned_in_group[x.name] <= 1 for x in group if isinstance(x, Mutable)
            )
            (invariant if is_fixed else variant).extend(group)
            varying -= names_written(group) if is_fixed else set()
        return invariant, variant

    def is_invariant(self, group: Sequence[Statement], varying: set[str]) -> bool:
        """Tell whether a group of statements depends on nothing that varies in the loop, and cannot trap."""
        statements = list(statements_of(group))
        defined = {s.name for s in statements if isinstance(s, Bind | Mutable | For)}
        if not defined >= names_written(group) or any(isinstance(s, Raise) for s in statements):
            return False
        trees = [t for s in statements for t in direct_trees(s)]
        return (varying - defined).isdisjoint(n for t in trees for n in names_read(t)) and all(cannot_trap(t, self.sizes) for t in trees)


def _groups(body: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """Yield statements one by one, each that assigns scalars together with the declarations of these, which nothing uses before."""
    pending: list[Mutable] = []
    for s in body:
        if isinstance(s, Mutable):
            pending.append(s)
            continue
        if isinstance(s, Bind) and not any(m.name in names_read(s.value) for m in pending):
            yield [s]
            continue
        assigned = _assigned(s)
        yield from ([m] for m in pending if m.name not in assigned)
        yield [*(m for m in pending if m.name in assigned), s]
        pending = []
    yield from ([m] for m in pending)


def _assigned(s: Statement) -> set[str]:
    return {x.name for x in statements_of([s]) if isinstance(x, Assign)}
