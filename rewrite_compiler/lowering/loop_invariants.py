"""Code whose loops do not compute again what stays the same, nor ask again what was decided before them.

What is moved cannot trap, so it does no harm where the loop does not run at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .dead_code import names_of, statements_of, trees_of, written_by
from .loop_ir import Assign, Bind, For, If, Mutable, Raise, Routine, Statement
from .trap_analysis import cannot_trap, sizes_of

MOST_STATEMENTS = 24  # of a loop that is printed twice, once for each answer


def moved(routine: Routine) -> Routine:
    """Return the routine with what does not vary in a loop before it; what it computes is the same."""
    return Routine(routine.memories, routine.tables, _Mover(sizes_of(routine)).block(routine.body))


@dataclass(frozen=True)
class _Mover:
    sizes: Mapping[str, int]

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        return [made for s in statements for made in self.made(s)]

    def made(self, s: Statement) -> list[Statement]:
        if isinstance(s, If):
            return [If(s.condition, self.block(s.then), self.block(s.otherwise))]
        return self.loop(For(s.name, s.extent, self.block(s.body)), MOST_STATEMENTS) if isinstance(s, For) else [s]

    def loop(self, s: For, most: int) -> list[Statement]:
        """Return a loop whose inner ones are done, after what does not vary in it; twice where it asks the same every time."""
        before, kept = self.parted(s)
        at = self.asked(s.name, kept) if sum(1 for _ in statements_of(kept)) <= most else None
        if at is None:
            return [*before, For(s.name, s.extent, kept)]
        asked = kept[at]
        assert isinstance(asked, If)
        bodies = ([*kept[:at], *branch, *kept[at + 1 :]] for branch in (asked.then, asked.otherwise))
        return [*before, If(asked.condition, *(self.loop(For(s.name, s.extent, body), most // 2) for body in bodies))]

    def asked(self, variable: str, body: Sequence[Statement]) -> int | None:
        """Return the place of a question that has one answer for every iteration of a loop."""
        if any(isinstance(x, Raise) for x in statements_of(body)):
            return None
        varying = written_by(body) | {variable}
        fixed = (n for n, s in enumerate(body) if isinstance(s, If) and varying.isdisjoint(names_of(s.condition)))
        return next((n for n in fixed if cannot_trap(body[n].condition, self.sizes)), None)  # type: ignore[union-attr]

    def parted(self, s: For) -> tuple[list[Statement], list[Statement]]:
        """Return the statements of a loop that are the same in every iteration, and the others."""
        before, kept, varying = list[Statement](), list[Statement](), written_by(s.body) | {s.name}
        assigned = Counter(n for x in s.body for n in _assigned(x))
        for group in _groups(s.body):
            here = Counter(n for x in group for n in _assigned(x))  # a scalar that other statements assign begins anew every time
            is_fixed = self.is_fixed(group, varying) and all(assigned[x.name] == here[x.name] <= 1 for x in group if isinstance(x, Mutable))
            (before if is_fixed else kept).extend(group)
            varying -= written_by(group) if is_fixed else set()
        return before, kept

    def is_fixed(self, group: Sequence[Statement], varying: set[str]) -> bool:
        """Tell whether a value is the same whatever varies outside of the statements that compute it."""
        inside = list(statements_of(group))
        own = {s.name for s in inside if isinstance(s, Bind | Mutable | For)}
        if not own >= written_by(group) or any(isinstance(s, Raise) for s in inside):
            return False
        trees = [t for s in inside for t in trees_of(s)]
        return (varying - own).isdisjoint(n for t in trees for n in names_of(t)) and all(cannot_trap(t, self.sizes) for t in trees)


def _groups(body: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    """Yield statements one by one, but with one that assigns scalars those scalars, which nothing uses before."""
    waiting: list[Mutable] = []
    for s in body:
        if isinstance(s, Mutable):
            waiting.append(s)
            continue
        if isinstance(s, Bind) and not any(m.name in names_of(s.value) for m in waiting):
            yield [s]
            continue
        taken = _assigned(s)
        yield from ([m] for m in waiting if m.name not in taken)
        yield [*(m for m in waiting if m.name in taken), s]
        waiting = []
    yield from ([m] for m in waiting)


def _assigned(s: Statement) -> set[str]:
    return {x.name for x in statements_of([s]) if isinstance(x, Assign)}
