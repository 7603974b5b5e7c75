"""Playing: the step that decodes and applies columns of plain commands, in order, until one is not plain.

Commands of one instruction with a range of addresses mostly follow each other: `LANES` of them are decoded at once, and
applied without a question where all of them are of that instruction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...lang.arithmetic import maximum, minimum
from ...lang.binders import Leaf, reduce, scalar_array, static_shape
from ...lang.expr import Expr
from ...lang.step import NOTHING, Step, assign, let, loop, make_update, seq, together, update, when
from ...lang.substitution import substitute
from ...lang.traversal import loads_of, terms_of
from ..model import Ila
from .instruction_families import Family, Plain, element, families

Inputs = Mapping[Leaf, Callable[[tuple[Expr, ...]], Expr]]  # the term that an input of a model has at an index
LANES = 16  # commands that are decoded at once
SHARED = 4


@dataclass(frozen=True, eq=False)
class Columns:
    """What the loop works on: a column an input, what reads give, and its own numbers."""

    inputs: Mapping[Leaf, Leaf]
    gives: Leaf
    most: int  # commands of one call
    count: Leaf
    done: Leaf

    def at(self, row: Expr) -> Inputs:
        """Return the inputs of the command in a row."""
        return {leaf: lambda j, column=column: column[(row, *j)] for leaf, column in self.inputs.items()}  # type: ignore[misc]


@dataclass(frozen=True, eq=False)
class Locals:
    """The loop's own numbers: the next row, where a run starts and how long it is, whether it goes on, what a command is."""

    row: Leaf
    first: Leaf
    number: Leaf
    going: Leaf
    family: Leaf
    members: tuple[Leaf, ...]

    def all(self) -> frozenset[Leaf]:
        """Return all of them."""
        return frozenset((self.row, self.first, self.number, self.going, self.family, *self.members))


def loop_of(ila: Ila, chosen: Sequence[Plain], columns: Columns) -> tuple[Step, frozenset[Leaf]]:
    """Return the step that runs plain commands and leaves their number in `done`, and its own small memories."""
    found = families(chosen)
    most = {"row": columns.most, "first": columns.most, "number": LANES, "going": 1, "family": len(found)}
    row, first, number, going, family = (Leaf((), (0, n), False, name) for name, n in most.items())
    members = tuple(dict.fromkeys(f.member for f in found if f.member is not None))
    own = Locals(row, first, number, going, family, members)
    return _Loop(ila, found, columns, own).step(), own.all()


class _Loop:
    """Builds the step."""

    def __init__(self, ila: Ila, found: Sequence[Family], columns: Columns, own: Locals) -> None:
        self.ila, self.columns, self.own = ila, columns, own
        self.single = [f for f in found if f.member is None]
        self.joint = [f for f in found if f.member is not None]
        self.count = columns.count[()]

    def step(self) -> Step:
        """Return the whole loop."""
        own = self.own
        start = seq(assign(own.row, 0), assign(own.going, 1))
        return seq(start, loop(self.count, lambda _: self.each()), assign(self.columns.done, own.row[()]))

    def each(self) -> Step:
        """Find the instruction of a command and run it; stop where there is none."""
        own = self.own
        given = self.columns.at(own.row[()])
        known = [(p.decode, self.known(n, p, f)) for n, f in enumerate(self.joint, 1) for p in f.members]
        entries = [(f.form.decode, self.run(f)) for f in self.single] + [(decode, step()) for decode, step in known]
        decodes = [decode for decode, _ in entries]
        reads = [(reads_in(decodes, leaf), given[leaf](())) for leaf in self.ila.inputs.values() if not leaf.shape]
        steps = [step for _, step in entries]
        chosen = named(reads, decodes, lambda parts: shared(parts, lambda x: search(x, steps, assign(own.going, 0))))
        found: Step = NOTHING
        for n, f in enumerate(self.joint, 1):
            found = when(own.family[()] == n, self.run(f), found)
        before = assign(own.family, 0) if self.joint else NOTHING
        return when((own.going[()] == 1) & (own.row[()] < self.count), seq(before, chosen, found))

    def known(self, number: int, p: Plain, f: Family) -> Callable[[], Step]:
        """Return what is noted of a command of a family: which one, and of which member."""
        member, at = f.member, f.members.index(p)
        assert member is not None
        return lambda: seq(assign(self.own.family, number), assign(member, at))

    def applied(self, f: Family, at: Expr) -> Step:
        """Apply the command in a row."""
        return _applied(f.form, self.columns.at(at), self.columns.gives, at)

    def next(self, row: Expr) -> Step:
        return assign(self.own.row, minimum(row, self.columns.most))

    def run(self, f: Family) -> Step:
        """Run the command found, and commands of the same instruction behind it where it has a range of addresses."""
        own = self.own
        if not f.form.is_range:
            return seq(self.applied(f, own.row[()]), self.next(own.row[()] + 1))
        most = (self.count - own.row[()]) // LANES + 1
        runs = loop(maximum(most, 0), lambda k: when(own.going[()] == 1, self.lanes(f, k)))
        return seq(runs, assign(own.going, 1))

    def lanes(self, f: Family, k: Expr) -> Step:
        """Apply the commands that are decoded at once where all are of this instruction; in the first turn else the first one."""
        first, number = self.own.first, self.own.number
        every = reduce("min", lambda j: given(f.form.decode, self.columns.at(first[()] + j)), LANES)
        decoded = when(first[()] + LANES <= self.count, when(every, assign(number, LANES)))
        each = loop(number[()], lambda j: self.applied(f, first[()] + j))
        here = seq(assign(first, self.own.row[()]), assign(number, k == 0), decoded)
        return seq(here, each, self.next(first[()] + number[()]), assign(self.own.going, number[()] == LANES))


def search(decodes: Sequence[Expr], steps: Sequence[Step], otherwise: Step) -> Step:
    """Return the step that runs what a command is: what many decodes share is asked first. No command is of two instructions."""
    groups: dict[Expr | None, list[tuple[Expr, Step]]] = {}
    for decode, step in zip(decodes, steps, strict=True):
        head, rest = decode.args if decode.op == "bitand" else (None, decode)
        is_shared = head is not None and head.op == "load"
        groups.setdefault(head if is_shared else None, []).append((rest if is_shared else decode, step))
    found = otherwise
    for head, parts in groups.items():
        inner = otherwise if head is not None else found
        for rest, step in parts:
            inner = when(rest, step, inner)
        found = inner if head is None else when(head, inner, found)
    return found


def reads_in(terms: Sequence[Expr], leaf: Leaf) -> list[Expr]:
    """Return the reads of a scalar input in terms."""
    return list(dict.fromkeys(x for t in terms for x in loads_of(t) if x.data is leaf))


def named(known: Sequence[tuple[Sequence[Expr], Expr]], terms: list[Expr], body: Callable[[list[Expr]], Step]) -> Step:
    """Return body(terms) with each known subterm (how it stands there, what gives its value) computed once."""
    if not known:
        return body(terms)
    (there, value), *rest = known
    if not there:
        return named(rest, terms, body)
    return let(scalar_array(value), lambda x: named(rest, [substitute(t, dict.fromkeys(there, x[()])) for t in terms], body))


def shared(terms: list[Expr], body: Callable[[list[Expr]], Step]) -> Step:
    """Return body(terms) with what many of them share computed once."""
    counts = Counter(x for t in terms for x in terms_of(t) if x.op not in ("load", "const"))
    found = [x for x, n in counts.items() if n >= SHARED]
    inner = {y for x in found for a in x.args for y in terms_of(a)}
    return named([([x], x) for x in found if x not in inner], terms, body)


def _applied(p: Plain, inputs: Inputs, gives: Leaf, row: Expr) -> Step:
    """Return what an instruction does; a read gives the state after it."""
    terms = [(u, [given(e, inputs) for e in (*u.address, u.value)]) for u in p.stores]
    parts: list[Step] = []
    if terms:
        parts.append(together(*(make_update(u.memory, u.variables, u.extents, tuple(a), value) for u, (*a, value) in terms)))
    if p.result is not None:
        result, shape = p.result, static_shape(p.result)
        parts.append(update(gives, shape, lambda *j: ((row, _flat(j, shape)), given(element(result, j), inputs))))
    return seq(*parts)


def _flat(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    total = index[0]
    for j, n in zip(index[1:], shape[1:], strict=True):
        total = total * n + j
    return total


def given(e: Expr, inputs: Inputs) -> Expr:
    """Return a term with the inputs by what stands for them."""
    for rank in (0, 1):  # lanes may be chosen by another input
        read = {x: inputs[x.data](x.args) for x in loads_of(e) if x.data in inputs and x.data.rank == rank}
        e = substitute(e, read) if read else e
    return e
