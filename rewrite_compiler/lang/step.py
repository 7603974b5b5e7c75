"""Step: a change of state. Instruction updates, engine state machines and micro-op loops are Steps.

The right-hand sides of one `update` (and of all updates that go `together`) read the state before the step; a `loop`
runs in order; `let` gives a name to an array computed now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import SpecError
from . import intervals as iv
from .binders import Array, Extent, Leaf, as_shape, index_variable
from .expr import Expr, Operand, as_real, lift
from .out_of_range import OutOfRange


@dataclass(frozen=True, eq=False)
class Step:
    """Base of the six kinds of step."""


MemoryWrite = tuple[Leaf, Operand | tuple[Operand, ...], Operand]  # memory, address, value


@dataclass(frozen=True, eq=False)
class Update(Step):
    """memory[address] := value for all values of the variables at once; the addresses must be distinct."""

    memory: Leaf
    variables: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    address: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, eq=False)
class Together(Step):
    """Updates whose right-hand sides all read the state before any of them."""

    updates: tuple[Update, ...]


@dataclass(frozen=True, eq=False)
class Seq(Step):
    """Steps one after the other."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Loop(Step):
    """body for variable = 0 … extent−1, in order."""

    variable: Expr
    extent: Expr
    body: Step


@dataclass(frozen=True, eq=False)
class When(Step):
    """`then` if the condition is 1, else `otherwise`."""

    condition: Expr
    then: Step
    otherwise: Step


@dataclass(frozen=True, eq=False)
class Let(Step):
    """body, with `local` standing for the value that `array` has now."""

    local: Leaf
    array: Array
    body: Step


@dataclass(frozen=True, eq=False)
class Require(Step):
    """A diagnostic: `sentence` is raised where the condition is 0, by strict simulation or (`always`) by every one.

    `{name}` in the sentence stands for the value that the term of that name has then.
    """

    condition: Expr
    code: str
    sentence: str
    values: tuple[tuple[str, Expr], ...] = ()
    always: bool = False


NOTHING = Seq(())


def update(memory: Leaf, over: Sequence[Extent] | Extent, function: Callable[..., tuple[Operand | tuple[Operand, ...], Operand]]) -> Update:
    """Return the parallel update memory[address] := value, where function(i, …) = (address, value)."""
    extents = as_shape(over)
    variables = tuple(index_variable(n, e) for n, e in zip("ijklmnopq", extents, strict=False))
    address, value = function(*variables)
    return make_update(memory, variables, tuple(lift(e) for e in extents), address, value)


def updates(over: Sequence[Extent] | Extent, function: Callable[..., Sequence[MemoryWrite]]) -> Step:
    """Return updates of several memories that go together, where function(i, …) = rows of (memory, address, value).

    What the values share is one term, so that it is computed and recognised once.
    """
    extents = as_shape(over)
    variables = tuple(index_variable(n, e) for n, e in zip("ijklmnopq", extents, strict=False))
    bounds = tuple(lift(e) for e in extents)
    return together(*(make_update(memory, variables, bounds, address, value) for memory, address, value in function(*variables)))


def assign(memory: Leaf, value: Operand, *index: Operand) -> Update:
    """Return the update of one element (of a register, without index)."""
    return make_update(memory, (), (), index, value)


def make_update(
    memory: Leaf, variables: tuple[Expr, ...], extents: tuple[Expr, ...], address: Operand | tuple[Operand, ...], value: Operand
) -> Update:
    """Return an update over variables that are already bound.

    Raises:
        SpecError: the address does not fit the memory's axes, or the value may exceed its width.
    """
    places = tuple(lift(a) for a in (address if isinstance(address, tuple) else (address,)))
    term = as_real(lift(value)) if memory.real else lift(value)
    if not memory.real and not iv.inside(term.interval, memory.interval):
        raise _too_wide(memory, term)
    memory[places]  # refuses an address that is always outside
    return Update(memory, variables, extents, places, term)


def _too_wide(memory: Leaf, term: Expr) -> SpecError:
    sentence = f"{memory.name} holds values in {_range(memory.interval)}, not {_range(term.interval)}"
    return OutOfRange(sentence, (term,), memory.interval, help="wrap() or sat() the value to the width of the state")


def seq(*steps: Step) -> Step:
    """Return the steps one after the other."""
    flat = tuple(part for s in steps for part in (s.steps if isinstance(s, Seq) else (s,)))
    return flat[0] if len(flat) == 1 else Seq(flat)


def together(*updates: Update) -> Step:
    """Return updates that all read the state before any of them."""
    return updates[0] if len(updates) == 1 else Together(updates)


def loop(extent: Sequence[Extent] | Extent, body: Callable[..., Step]) -> Step:
    """Return body(k, …) for k = 0 … extent−1 in order, the last index fastest."""
    bounds = [(index_variable("k", n), lift(n)) for n in as_shape(extent)]
    step = body(*(k for k, _ in bounds))
    for k, n in reversed(bounds):
        step = Loop(k, n, step)
    return step


def when(condition: Operand, then: Step, otherwise: Step = NOTHING) -> Step:
    """Return `then` if the condition is 1, else `otherwise`."""
    c = lift(condition)
    if c.value is not None:
        return then if c.value else otherwise
    return When(c, then, otherwise)


def cases(index: Operand, table: dict[int, Step], otherwise: Step = NOTHING) -> Step:
    """Return the step that `table` has at `index`, else `otherwise`."""
    i, result = lift(index), otherwise
    for key in sorted(table, reverse=True):
        result = when(i == key, table[key], result)
    return result


def let(value: Array, body: Callable[[Leaf], Step], name: str = "local") -> Step:
    """Return body(local), where local holds what `value` is now."""
    local = Leaf(value.shape, value.interval, value.real, name)
    return Let(local, value, body(local))


def require(condition: Operand, code: str, sentence: str, *, always: bool = False, **values: Operand) -> Step:
    """Return the diagnostic `sentence`, raised by strict simulation (`always`: by every one) where the condition is 0."""
    return Require(lift(condition), code, sentence, tuple((name, lift(x)) for name, x in values.items()), always)


def updates_of(step: Step) -> Iterator[Update]:
    """Yield every update inside `step`."""
    if isinstance(step, Update):
        yield step
    elif isinstance(step, Together):
        yield from step.updates
    else:
        for part in children(step):
            yield from updates_of(part)


def has_loops(step: Step) -> bool:
    """Tell whether a step, or a part of it, is a loop."""
    return isinstance(step, Loop) or any(map(has_loops, children(step)))


def reads_of(step: Step) -> frozenset[Leaf]:
    """Return the leaves that a step and its parts depend on, local names left out."""
    leaves = _own_reads(step).union(*map(reads_of, children(step)))
    return leaves - {step.local} if isinstance(step, Let) else leaves


def _own_reads(step: Step) -> frozenset[Leaf]:
    if isinstance(step, Update):
        return frozenset[Leaf]().union(*(e.reads for e in (step.value, *step.address, *step.extents)))
    if isinstance(step, When | Require):
        return step.condition.reads
    if isinstance(step, Let):
        return step.array.reads
    return step.extent.reads if isinstance(step, Loop) else frozenset()


def children(step: Step) -> tuple[Step, ...]:
    """Return the steps directly inside `step`."""
    if isinstance(step, Seq):
        return step.steps
    if isinstance(step, Together):
        return step.updates
    if isinstance(step, When):
        return step.then, step.otherwise
    return (step.body,) if isinstance(step, Loop | Let) else ()


def terms_in(step: Step) -> Iterator[Expr]:
    """Yield the terms of a step and of the steps in it, not their subterms."""
    if isinstance(step, Update):
        yield from (step.value, *step.address, *step.extents)
    elif isinstance(step, When | Require):
        yield step.condition
    elif isinstance(step, Loop):
        yield step.extent
    elif isinstance(step, Let):
        yield step.array[(0,) * step.array.rank]
    for _, value in step.values if isinstance(step, Require) else ():
        yield value
    for part in children(step):
        yield from terms_in(part)


def _range(a: iv.Interval) -> str:
    low, high = ("-∞" if a[0] is None else a[0]), ("∞" if a[1] is None else a[1])
    return f"{low}…{high}"
