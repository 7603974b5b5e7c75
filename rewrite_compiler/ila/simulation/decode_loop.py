"""The loop, as a Step, that decodes and executes columns of plain commands in order, up to the first that is not plain.

Commands of one instruction with a range of addresses mostly follow each other: `LANES` of them are decoded together, and
executed without further tests where all of them are of that instruction.
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
from .instruction_families import Family, PlainInstruction, element, families

Inputs = Mapping[Leaf, Callable[[tuple[Expr, ...]], Expr]]  # the term that an input of a model has at an index
LANES = 16  # commands that are decoded at once
SHARED = 4


@dataclass(frozen=True, eq=False)
class Columns:
    """The memories of the loop: a column for each input, the rows of read results, and the counts of given and executed commands."""

    inputs: Mapping[Leaf, Leaf]
    gives: Leaf
    max_rows: int  # commands of one call
    count: Leaf
    executed: Leaf

    def inputs_at(self, row: Expr) -> Inputs:
        """Return the inputs of the command in a row."""
        return {leaf: lambda j, column=column: column[(row, *j)] for leaf, column in self.inputs.items()}  # type: ignore[misc]


@dataclass(frozen=True, eq=False)
class LoopVariables:
    """The loop's variables: next row, start and length of a run, whether it goes on, family and member of the current command."""

    row: Leaf
    first: Leaf
    number: Leaf
    active: Leaf
    family: Leaf
    members: tuple[Leaf, ...]

    def leaves(self) -> frozenset[Leaf]:
        """Return all variables."""
        return frozenset((self.row, self.first, self.number, self.active, self.family, *self.members))


def loop_of(ila: Ila, instructions: Sequence[PlainInstruction], columns: Columns) -> tuple[Step, frozenset[Leaf]]:
    """Return the step that executes plain commands and counts them, and its local variables."""
    groups = families(instructions)
    upper_bounds = {"row": columns.max_rows, "first": columns.max_rows, "number": LANES, "going": 1, "family": len(groups)}
    row, first, number, active, family = (Leaf((), (0, n), False, name) for name, n in upper_bounds.items())
    members = tuple(dict.fromkeys(f.member for f in groups if f.member is not None))
    variables = LoopVariables(row, first, number, active, family, members)
    return _Loop(ila, groups, columns, variables).step(), variables.leaves()


class _Loop:
    """Builds the step."""

    def __init__(self, ila: Ila, groups: Sequence[Family], columns: Columns, variables: LoopVariables) -> None:
        self.ila, self.columns, self.variables = ila, columns, variables
        self.single = [f for f in groups if f.member is None]
        self.joint = [f for f in groups if f.member is not None]
        self.count = columns.count[()]

    def step(self) -> Step:
        """Return the whole loop."""
        variables = self.variables
        start = seq(assign(variables.row, 0), assign(variables.active, 1))
        return seq(start, loop(self.count, lambda _: self.step_command()), assign(self.columns.executed, variables.row[()]))

    def step_command(self) -> Step:
        """Decode and execute one command, or several of one instruction; end the loop where no instruction decodes it."""
        variables = self.variables
        inputs = self.columns.inputs_at(variables.row[()])
        joint_entries = [(p.decode, self.record_member(n, p, f)) for n, f in enumerate(self.joint, 1) for p in f.members]
        entries = [(f.form.decode, self.run(f)) for f in self.single] + [(decode, step()) for decode, step in joint_entries]
        decodes = [decode for decode, _ in entries]
        reads = [(reads_in(decodes, leaf), inputs[leaf](())) for leaf in self.ila.inputs.values() if not leaf.shape]
        steps = [step for _, step in entries]
        dispatch = bind_subterms(
            reads, decodes, lambda parts: share_subterms(parts, lambda x: decision_tree(x, steps, assign(variables.active, 0)))
        )
        family_dispatch: Step = NOTHING
        for n, f in enumerate(self.joint, 1):
            family_dispatch = when(variables.family[()] == n, self.run(f), family_dispatch)
        reset = assign(variables.family, 0) if self.joint else NOTHING
        return when((variables.active[()] == 1) & (variables.row[()] < self.count), seq(reset, dispatch, family_dispatch))

    def record_member(self, number: int, p: PlainInstruction, f: Family) -> Callable[[], Step]:
        """Return the step that records the family and the member that decode a command."""
        member, index = f.member, f.members.index(p)
        assert member is not None
        return lambda: seq(assign(self.variables.family, number), assign(member, index))

    def apply(self, f: Family, row: Expr) -> Step:
        """Execute the command in a row."""
        return _apply(f.form, self.columns.inputs_at(row), self.columns.gives, row)

    def advance_to(self, row: Expr) -> Step:
        return assign(self.variables.row, minimum(row, self.columns.max_rows))

    def run(self, f: Family) -> Step:
        """Execute the decoded command and, for an instruction with a range of addresses, commands of the same instruction behind it."""
        variables = self.variables
        if not f.form.is_range:
            return seq(self.apply(f, variables.row[()]), self.advance_to(variables.row[()] + 1))
        blocks = (self.count - variables.row[()]) // LANES + 1
        runs = loop(maximum(blocks, 0), lambda k: when(variables.active[()] == 1, self.run_lanes(f, k)))
        return seq(runs, assign(variables.active, 1))

    def run_lanes(self, f: Family, k: Expr) -> Step:
        """Execute `LANES` commands decoded together where all are of this instruction; else, at k = 0, the first one alone."""
        first, number = self.variables.first, self.variables.number
        all_match = reduce("min", lambda j: substitute_inputs(f.form.decode, self.columns.inputs_at(first[()] + j)), LANES)
        decode_lanes = when(first[()] + LANES <= self.count, when(all_match, assign(number, LANES)))
        apply_each = loop(number[()], lambda j: self.apply(f, first[()] + j))
        start = seq(assign(first, self.variables.row[()]), assign(number, k == 0), decode_lanes)
        return seq(start, apply_each, self.advance_to(first[()] + number[()]), assign(self.variables.active, number[()] == LANES))


def decision_tree(decodes: Sequence[Expr], steps: Sequence[Step], otherwise: Step) -> Step:
    """Return the decision tree that runs the step of the decode that holds, else `otherwise`; shared conjuncts are tested first.

    At most one decode holds for any command.
    """
    groups: dict[Expr | None, list[tuple[Expr, Step]]] = {}
    for decode, step in zip(decodes, steps, strict=True):
        head, condition = decode.args if decode.op == "bitand" else (None, decode)
        is_shared = head is not None and head.op == "load"
        groups.setdefault(head if is_shared else None, []).append((condition if is_shared else decode, step))
    result = otherwise
    for head, parts in groups.items():
        inner = otherwise if head is not None else result
        for condition, step in parts:
            inner = when(condition, step, inner)
        result = inner if head is None else when(head, inner, result)
    return result


def reads_in(terms: Sequence[Expr], leaf: Leaf) -> list[Expr]:
    """Return the distinct reads of a scalar input in terms."""
    return list(dict.fromkeys(x for t in terms for x in loads_of(t) if x.data is leaf))


def bind_subterms(bindings: Sequence[tuple[Sequence[Expr], Expr]], terms: list[Expr], body: Callable[[list[Expr]], Step]) -> Step:
    """Return body(terms) with each of these subterms (its occurrences, the term of its value) bound to a local."""
    if not bindings:
        return body(terms)
    (occurrences, value), *rest = bindings
    if not occurrences:
        return bind_subterms(rest, terms, body)
    return let(scalar_array(value), lambda x: bind_subterms(rest, [substitute(t, dict.fromkeys(occurrences, x[()])) for t in terms], body))


def share_subterms(terms: list[Expr], body: Callable[[list[Expr]], Step]) -> Step:
    """Return body(terms) with subterms that `SHARED` or more of them have in common bound to locals (common-subexpression elimination)."""
    counts = Counter(x for t in terms for x in terms_of(t) if x.op not in ("load", "const"))
    common = [x for x, n in counts.items() if n >= SHARED]
    inner = {y for x in common for a in x.args for y in terms_of(a)}
    return bind_subterms([([x], x) for x in common if x not in inner], terms, body)


def _apply(p: PlainInstruction, inputs: Inputs, gives: Leaf, row: Expr) -> Step:
    """Return what an instruction does; a read gives the state after it."""
    terms = [(u, [substitute_inputs(e, inputs) for e in (*u.address, u.value)]) for u in p.stores]
    parts: list[Step] = []
    if terms:
        parts.append(together(*(make_update(u.memory, u.variables, u.extents, tuple(a), value) for u, (*a, value) in terms)))
    if p.result is not None:
        result, shape = p.result, static_shape(p.result)
        parts.append(update(gives, shape, lambda *j: ((row, _flat(j, shape)), substitute_inputs(element(result, j), inputs))))
    return seq(*parts)


def _flat(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    total = index[0]
    for j, n in zip(index[1:], shape[1:], strict=True):
        total = total * n + j
    return total


def substitute_inputs(e: Expr, inputs: Inputs) -> Expr:
    """Return a term with its reads of inputs replaced by the terms that stand for the inputs."""
    for rank in (0, 1):  # lanes may be chosen by another input
        loads = {x: inputs[x.data](x.args) for x in loads_of(e) if x.data in inputs and x.data.rank == rank}
        e = substitute(e, loads) if loads else e
    return e
