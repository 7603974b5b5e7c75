"""Binding-time, width and bounds analysis: control never depends on data, values fit their state, indices their memory.

A decode, the address of a write, a length and a condition must be control. Data may only choose values: by `select`, or by a
load whose index interval lies inside its array.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...errors import Problem
from ...lang import intervals as iv
from ...lang.binders import Accumulator, Array, Comprehension, Extent, Fold, FoldResult, Leaf
from ...lang.expr import Expr, lift
from ...lang.intervals import Interval
from ...lang.step import Let, Loop, Require, Step, Together, Update, When, children, updates_of
from ...lang.traversal import terms_of
from ...readings.oracle.counterexample import find_counterexample
from ..model import CONTROL, DATA, Ila, Instruction
from .write_conflicts import find_write_conflict

WIDTH, INDEX, BINDING = "I102", "I103", "I109"
DIVISIONS = ("div", "mod", "tdiv", "tmod")
# operators that have no value for some second operands: what that is, and where it must lie
UNDEFINED: dict[str, tuple[str, Interval]] = {
    **dict.fromkeys(DIVISIONS, ("a divisor", (1, None))), **dict.fromkeys(("shl", "shr"), ("the amount of a shift", (0, None))),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Place:
    """The context of a term: its instruction, the leaves that are data, and the path conditions."""

    ila: Ila
    instruction: Instruction
    data: frozenset[Leaf]
    conditions: tuple[Expr, ...] = ()  # conditions that hold there

    def in_branch(self, condition: Expr, branch: Step) -> _Place:
        """Return the context of a branch, without the path conditions on what the branch writes itself."""
        written_memories = frozenset(u.memory for u in updates_of(branch))
        return replace(self, conditions=tuple(c for c in (*self.conditions, condition) if c.reads.isdisjoint(written_memories)))

    def problem(self, code: str, sentence: str, help: str = "") -> Problem:
        return Problem(code, f"{self.instruction.name}: {sentence}", self.instruction.place, help)

    def data_read_by(self, reads: frozenset[Leaf]) -> str:
        """Return the names of the data that a term depends on."""
        return ", ".join(sorted({leaf.name for leaf in reads & self.data}))


def check_instruction(ila: Ila, instruction: Instruction) -> Iterator[Problem]:
    """Yield the problems in an instruction's decode, operands, update and result."""
    place = _Place(ila, instruction, frozenset(s.leaf for s in ila.states.values() if s.binding == DATA))
    yield from _control(place, "the decode", instruction.decode)
    for name, operand in instruction.operands.items():
        if not iv.inside(operand.term.interval, operand.leaf.interval):
            yield place.problem(
                WIDTH, f"operand {name} holds values in {_range(operand.leaf.interval)}, not {_range(operand.term.interval)}"
            )
    yield from _step(place, instruction.update)
    if instruction.result is not None:
        yield from _result(place, instruction.result)


def regions_of(ila: Ila) -> Iterator[str]:
    """Yield a sentence for each external memory that an instruction copies into control state: what it reads must be constant."""
    for i in ila.instructions.values():
        for u in updates_of(i.update):
            state = ila.states.get(u.memory.name)
            if state is None or state.binding != CONTROL:
                continue
            for leaf in sorted(u.value.reads & _externals(ila), key=lambda leaf: str(leaf.name)):
                yield f"{i.name} copies {leaf.name} into the control state {state.name}: the region that it reads must be constant"


def _result(place: _Place, result: Array) -> Iterator[Problem]:
    lanes = place.ila.inputs["data"].interval if "data" in place.ila.inputs else iv.EVERYTHING
    if not iv.inside(result.interval, lanes):
        yield place.problem(WIDTH, f"a lane of what a read returns holds values in {_range(lanes)}, not {_range(result.interval)}")
    if isinstance(result, Comprehension):
        yield from _terms(place, result.body)


def _step(place: _Place, step: Step) -> Iterator[Problem]:
    if isinstance(step, Update):
        yield from _update(place, step)
    if isinstance(step, Update | Together):
        yield from _collision(place, step)
    elif isinstance(step, Loop):
        yield from _control(place, "the length of a loop", step.extent)
    elif isinstance(step, When):
        yield from _control(place, "a condition", step.condition)
        yield from _step(place.in_branch(step.condition, step.then), step.then)
        yield from _step(place.in_branch(~step.condition, step.otherwise), step.otherwise)
        return
    elif isinstance(step, Require):
        yield from _terms(place, step.condition)
    elif isinstance(step, Let):
        yield from _extents(place, step.array.shape)
        if isinstance(step.array, Comprehension):
            yield from _terms(place, step.array.body)
        if not step.array.reads.isdisjoint(place.data):
            place = replace(place, data=place.data | {step.local})
    for part in children(step):
        yield from _step(place, part)


def _collision(place: _Place, step: Update | Together) -> Iterator[Problem]:
    updates = step.updates if isinstance(step, Together) else (step,)
    conflict = find_write_conflict(updates)
    if conflict is not None and (isinstance(step, Update) or all(find_write_conflict([u]) is None for u in updates)):
        memory, index = conflict
        sentence = f"one update writes {memory.name}[{', '.join(map(str, index))}] more than once"
        yield place.problem(INDEX, sentence, "give every value of its indices an element of its own, or fold() what meets there")


def _update(place: _Place, u: Update) -> Iterator[Problem]:
    name = u.memory.name
    state = place.ila.states.get(name)
    if state is None or state.leaf is not u.memory:
        yield place.problem(WIDTH, f"{name} is written but is not a state of {place.ila.name}")
    if not iv.inside(u.value.interval, u.memory.interval):
        yield place.problem(
            WIDTH,
            f"{name} holds values in {_range(u.memory.interval)}, not {_range(u.value.interval)}",
            _advice(u.value, u.memory.interval, "wrap() or sat() the value to the width of the state"),
        )
    yield from _indices(place, u.memory, u.address)
    yield from _extents(place, u.extents)
    for a in u.address:
        yield from _control(place, f"the address of a write to {name}", a)
    internal_reads = u.value.reads - _externals(place.ila)
    if state is not None and state.binding == CONTROL and (data_names := place.data_read_by(internal_reads)):
        yield place.problem(BINDING, f"the control state {name} must not depend on data, but its value reads {data_names}")
    yield from _terms(place, u.value)


def _control(place: _Place, subject: str, e: Expr) -> Iterator[Problem]:
    if data_names := place.data_read_by(e.reads):
        yield place.problem(
            BINDING, f"{subject} must be control, but reads the data {data_names}", "data may only choose values: use select()"
        )
    yield from _terms(place, e)


def _extents(place: _Place, extents: tuple[Extent, ...] | tuple[Expr, ...]) -> Iterator[Problem]:
    for n in extents:
        yield from _control(place, "a length", lift(n))


def _terms(place: _Place, e: Expr) -> Iterator[Problem]:
    """Yield the problems inside a term: indices that may leave their array, and lengths that depend on data."""
    inner = replace(place, data=place.data | _data_accumulators(place, e))
    for x in terms_of(e):
        if x.op == "load":
            yield from _load(inner, x)
        elif x.op in UNDEFINED:
            yield from _undefined_operand(inner, x)
        elif x.op == "reduce":
            for n in x.args[1:]:
                if data_names := inner.data_read_by(n.reads):
                    yield place.problem(BINDING, f"the length of a sum must be control, but reads the data {data_names}", _length(n))


def _undefined_operand(place: _Place, x: Expr) -> Iterator[Problem]:
    """Yield a divisor that may be 0, or a shift by an amount that may be negative: no reading defines them."""
    subject, valid_range = UNDEFINED[x.op]
    low, high = x.args[1].interval
    is_safe = iv.inside((low, high), valid_range) or (x.op in DIVISIONS and high is not None and high < 0)
    if not is_safe:
        yield place.problem(
            WIDTH, f"{subject} takes values in {_range((low, high))}", _advice(x.args[1], valid_range, "take maximum() with it")
        )


def _load(place: _Place, x: Expr) -> Iterator[Problem]:
    source: Array = x.data
    lengths = [("an array", n) for n in source.shape if isinstance(n, Expr)]
    if isinstance(source, FoldResult):
        lengths.append(("a fold", source.fold.extent))
    for subject, n in lengths:
        if data_names := place.data_read_by(n.reads):
            yield place.problem(BINDING, f"the length of {subject} must be control, but reads the data {data_names}", _length(n))
    if isinstance(source, Leaf):
        yield from _indices(place, source, x.args)


def _indices(place: _Place, memory: Leaf, indices: tuple[Expr, ...]) -> Iterator[Problem]:
    """Yield the indices whose intervals do not lie inside the memory; the axes of a local may have symbolic lengths."""
    if memory in _externals(place.ila):
        return  # as large as what a simulator is given; the update itself requires the addresses to exist
    for axis, (i, n) in enumerate(zip(indices, memory.shape, strict=True)):
        if isinstance(n, int) and not iv.inside(i.interval, (0, n - 1)) and not _is_guarded(place, i, n):
            yield place.problem(
                INDEX,
                f"axis {axis} of {memory.name} has {n} elements; the index {i!r} takes values in {_range(i.interval)}",
                _advice(i, (0, n - 1), "reduce the index modulo the size, or clamp it"),
            )


def _is_guarded(place: _Place, i: Expr, size: int) -> bool:
    """Tell whether the path conditions imply that an index lies inside its axis."""
    if not place.conditions:
        return False
    from .path_conditions import implies

    return implies(place.conditions, (i >= 0) & (i < size))


def _length(n: Expr) -> str:
    """Return two values of a length that depends on data, and the remedy."""
    low = n.interval[0]
    return _advice(n, (low, low), f"and may be {low}; take its largest value, and select() what counts")


def _advice(e: Expr, valid_range: Interval, remedy: str) -> str:
    """Return an example of a term outside of its valid range, when one is known, and the remedy."""
    example = find_counterexample(e, valid_range)
    return f"{example}; {remedy}" if example else remedy


def _externals(ila: Ila) -> frozenset[Leaf]:
    return frozenset(e.leaf for e in ila.externals.values())


def _data_accumulators(place: _Place, e: Expr) -> frozenset[Leaf]:
    """Return the accumulators below a term whose folds read data."""
    folds: list[Fold] = [x.data.fold for x in terms_of(e) if x.op == "load" and isinstance(x.data, FoldResult)]
    accumulators: frozenset[Accumulator] = frozenset(a for f in folds if not f.reads.isdisjoint(place.data) for a in f.accumulators)
    return accumulators


def _range(a: Interval) -> str:
    low, high = ("−∞" if a[0] is None else a[0]), ("∞" if a[1] is None else a[1])
    return f"{low}…{high}"
