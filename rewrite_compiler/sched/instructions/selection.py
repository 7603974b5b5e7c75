"""Selection by unification: which fields of an instruction make it do a nest of loops, from the polynomials of its summary.

Each loop of a nest is given to a loop of the instruction, whose extent and strides must become those of the nest; what is left over
becomes a table (words of a control memory that the innermost loop reads) or loops of the host with other bases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import mul
from typing import Any

from ...ila.polynomial import Poly, Symbols
from ...ila.summary import Access, Read, Summary, Transition
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import lift
from ...lang.substitution import substitute
from ...lang.traversal import loads_of
from .copies import WIDE, NoCopy, number

Settings = dict[str, int]  # field or register → value
Equation = tuple[str, Poly, int]  # what it is about, the polynomial, and the number that it must be


@dataclass(frozen=True)
class Operand:
    """How an operand of a nest moves in a memory: the element that the first iteration takes, and the stride of each loop, in elements.

    Without a base it may begin where the instruction likes.
    """

    memory: str
    base: int | None
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Nest:
    """Loops, outermost first, by name and extent; the result, and the operands in the order of the transition's reads."""

    loops: tuple[tuple[str, int], ...]
    result: Operand
    operands: tuple[Operand, ...]

    @property
    def anywhere(self) -> Nest:
        """The same loops and strides without a base of any operand."""
        result, *operands = (Operand(o.memory, None, o.strides) for o in (self.result, *self.operands))
        return Nest(self.loops, result, tuple(operands))


@dataclass(frozen=True)
class Selection:
    """Settings that make an instruction do a nest; `table` are the values of the words' fields by atom, one row for each word."""

    settings: Mapping[str, int]
    table: tuple[Mapping[str, int], ...]
    pairs: tuple[tuple[str, str], ...]  # loop of the nest, loop of the instruction


@dataclass(frozen=True)
class NoSelection:
    """Why no candidate unifies: the sentence of the one that came furthest."""

    reason: str


def select(
    summary: Summary, transition: Transition, loops: Sequence[tuple[str, Poly]], nest: Nest, fixed: Mapping[str, int], *, ordered: bool,
    parts: Sequence[Transition] = (),
) -> Selection | NoSelection:  # fmt: skip
    """Return the settings with the shortest table under which a transition, inside of its ordered `loops`, does a nest.

    `fixed` are registers that have a value already; `parts` are the transitions of the update that the one consists of, where it is not
    one of them itself. Iterations keep their order when they are `ordered`; a sum in a ring may be permuted.
    """
    every = tuple([(v, tuple(p.items())) for v, p in (*loops, *transition.loops)])
    question = summary, transition, every, nest.anywhere, tuple(sorted(fixed.items())), ordered, tuple(parts) or (transition,)
    bases = [nest.result.base, *(o.base for o in nest.operands)]
    try:
        unifier, candidates, furthest = _candidates(*question)
        unifier.furthest = furthest
        attempts = (unifier.attempt(assignment, bases) for assignment in candidates)
        return next((selection for selection in attempts if selection is not None), None) or NoSelection(unifier.furthest[1])
    except NoCopy:
        return NoSelection(_unset(summary))


def _unset(summary: Summary) -> str:
    """Return that arrays of control state decide what an instruction does."""
    loads = [x for e in summary.symbols.atoms.values() if not e.free for x in loads_of(e) if x.args]
    arrays = sorted({x.data.name for x in loads if isinstance(x.data, Leaf)})
    names = ", ".join(arrays) or "data"
    return f"elements of {names} decide what {summary.instruction.name} does, and nothing sets those: a macro may"


@lru_cache(maxsize=1 << 12)
def _candidates(
    summary: Summary, transition: Transition, loops: tuple[tuple[str, Any], ...], nest: Nest, fixed: tuple[tuple[str, int], ...],
    ordered: bool, parts: tuple[Transition, ...],
) -> tuple[_Unifier, list[dict[str, int]], tuple[float, str]]:  # fmt: skip
    """Return what unifies nests that differ in their bases alone, the maps of loops, shortest table first, and the furthest reason."""
    unifier = _Unifier(summary, transition, [(v, dict(p)) for v, p in loops], nest, dict(fixed), ordered, parts)
    candidates = sorted(unifier.candidates(), key=unifier.words)
    return unifier, candidates, unifier.furthest


class _Unifier:
    """One transition, which consists of parts, and nests that differ in their bases alone."""

    def __init__(
        self, summary: Summary, t: Transition, loops: Sequence[tuple[str, Poly]], nest: Nest, fixed: Mapping[str, int], ordered: bool,
        parts: tuple[Transition, ...],
    ) -> None:  # fmt: skip
        self.summary, self.symbols, self.nest, self.fixed, self.ordered = summary, summary.symbols, nest, fixed, ordered
        self.parts = parts
        self.accesses = [(t.write, nest.result), *((r.access, o) for r, o in zip(reads_of(t), nest.operands, strict=True))]
        self.lanes = {v for v, p in loops if set(p) <= {()}}
        self.loops = [(v, p) for v, p in loops if v not in self.lanes]
        self.table_atoms = {name for name, e in self.symbols.atoms.items() if e.free and self._is_used(name)}
        self.table_loop = next((v for v, _ in self.loops if any(self._reads(name, v) for name in self.table_atoms)), None)
        self.furthest: tuple[float, str] = (-1, "the instruction has no loops")
        self.refusals: dict[tuple[str, int], str] = {}  # of a loop of the instruction as one of the nest

    @cached_property
    def room(self) -> int:
        """The words of the memory that the table lies in; none where an atom is no field of a word."""
        e = self.symbols.atoms[next(iter(self.table_atoms))]
        while e.op != "load" and e.args:
            e = e.args[0]
        return next((n for n in e.data.shape if isinstance(n, int)), 0) if e.op == "load" else 0

    def _is_used(self, name: str) -> bool:
        return any(name in monomial for access, _ in self.accesses for p in access.address for monomial in p)

    def _reads(self, atom: str, variable: str) -> bool:
        return self.symbols.variables[variable] in self.symbols.atoms[atom].free

    def candidates(self) -> Iterator[dict[str, int]]:
        """Yield maps from loops of the instruction to positions of the nest's loops; the others go to the table, which is innermost."""
        other_loops = [v for v, _ in self.loops if v != self.table_loop]
        positions = range(len(self.nest.loops))
        for count in range(min(len(other_loops), len(self.nest.loops)), -1, -1):
            if self.table_loop is None and count < len(self.nest.loops):
                self.note(
                    count, f"{len(other_loops)} loops of {self.summary.instruction.name} cannot take the {len(positions)} of the nest"
                )
                return
            for variables in itertools.combinations(other_loops, count):
                yield from self._maps(variables, {}, positions)

    def _maps(self, variables: Sequence[str], assignment: dict[str, int], positions: range) -> Iterator[dict[str, int]]:
        """Yield the maps that give each variable a loop of the nest that moves what it moves."""
        if len(assignment) == len(variables):
            yield assignment
            return
        variable, used = variables[len(assignment)], assignment.values()
        free = positions[len(assignment) : len(assignment) + 1] if self.ordered else [n for n in positions if n not in used]
        for n in free:
            if not self._moves_alike(variable, n):
                self.note(len(assignment), f"loop {variable} moves other operands than {self.nest.loops[n][0]}")
            elif refusal := self._refusal(variable, n):
                self.note(len(variables) - 0.5, refusal)  # nearly as far as a whole map comes
            else:
                yield from self._maps(variables, {**assignment, variable: n}, positions)

    def _refusal(self, variable: str, n: int) -> str:
        """Return why fields cannot make a loop of the instruction one of the nest, whatever the others are; nothing where they may.

        Only equations of one unknown are asked: others of a whole map may decide what more than one depends on.
        """
        if (variable, n) not in self.refusals:
            system = self.system()
            solution = system.solve([e for e in self._equations({variable: n}, (variable,)) if system.has_one_unknown(e)])
            self.refusals[variable, n] = system.reason if solution is None else ""
        return self.refusals[variable, n]

    def _moves_alike(self, variable: str, n: int) -> bool:
        """Tell whether a loop of the instruction moves no operand that one of the nest leaves, and all that it moves."""
        factors = [self._factor(access, variable) for access, _ in self.accesses]
        strides = [operand.strides[n] for _, operand in self.accesses]
        return all(bool(f) if stride else set(f) != {()} for f, stride in zip(factors, strides, strict=True))

    def words(self, assignment: Mapping[str, int]) -> int:
        """Return how many iterations a map leaves to the table."""
        return math.prod(extent for n, (_, extent) in enumerate(self.nest.loops) if n not in assignment.values())

    def note(self, depth: float, reason: str) -> None:
        """Keep the reason of the candidate that came furthest."""
        if depth > self.furthest[0]:
            self.furthest = (depth, reason)

    def attempt(self, assignment: dict[str, int], bases: Sequence[int | None]) -> Selection | None:
        """Return the selection of one map of loops at the base of each access; None where its equations have no solution."""
        rest = [n for n in range(len(self.nest.loops)) if n not in assignment.values()]
        if self.table_loop and not self.room:
            self.note(len(assignment), f"an address of {self.summary.instruction.name} is neither a sum of fields and loops nor a table")
            return None
        if self.table_loop and self.words(assignment) > self.room:
            self.note(len(assignment), f"a table of {self.words(assignment)} words is longer than the {self.room} that there is room for")
            return None
        equations = list(self._equations(assignment, [v for v, _ in self.loops]))
        strides_of_atom: dict[str, tuple[int, ...]] = {}  # base and strides of what a field of the table holds
        for (access, operand), place in zip(self.accesses, bases, strict=True):
            base, strides = place or 0, [operand.strides[n] for n in rest]
            ends = [stride * (self.nest.loops[n][1] - 1) for n, stride in zip(rest, strides, strict=True)]
            low, high = base + sum(min(x, 0) for x in ends), base + sum(max(x, 0) for x in ends)
            atom = next((m[0] for m in access.address[0] if len(m) == 1 and m[0] in self.table_atoms), None)
            if atom is None:
                if any(ends):
                    self.note(len(assignment), f"{access.memory} has no table for the loops that are left over")
                    return None
                equations += [(f"base of {access.memory}", self.base(access), base)] if place is not None else []
            elif not iv.inside((low, high), self.symbols.atoms[atom].interval):
                self.note(len(assignment), f"a field of the table cannot hold element {high} of {access.memory}")
                return None
            elif strides_of_atom.setdefault(atom, (base, *strides)) != (base, *strides):
                self.note(len(assignment), f"two operands of {access.memory} share a field of the table and move in other ways")
                return None
        system = self.system()
        settings = system.solve(equations)
        if settings is None:
            self.note(len(assignment), system.reason)
            return None
        effect = side_effect(self.summary, self.parts, settings)
        if effect:
            self.note(len(assignment), effect)
            return None
        names = tuple((self.nest.loops[n][0], v) for v, n in assignment.items())
        return Selection(settings, tuple(self._table(rest, strides_of_atom)) if self.table_loop else (), names)

    def _table(self, rest: Sequence[int], strides_of_atom: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
        """Yield the words of the table: what each field holds in each iteration of the loops that are left over."""
        for word in itertools.product(*(range(self.nest.loops[n][1]) for n in rest)):
            yield {atom: base + sum(map(mul, word, strides)) for atom, (base, *strides) in strides_of_atom.items()}

    def system(self) -> _Equations:
        """Return the system over all fields and registers, without equations yet."""
        registers = {leaf.name: leaf.interval for leaf in self.symbols.control if not leaf.shape}
        return _Equations(self.symbols, {**registers, **self.summary.fields}, self.fixed)

    def _equations(self, assignment: Mapping[str, int], variables: Sequence[str]) -> Iterator[Equation]:
        """Yield the equations of extents and strides of these loops of the instruction under a map."""
        extents = dict(self.loops)
        for variable in variables:
            extent = self.nest.loops[assignment[variable]][1] if variable in assignment else 1
            yield f"extent of {variable}", extents[variable], self.words(assignment) if variable == self.table_loop else extent
        for access, operand in self.accesses:
            for variable in variables:
                if variable in assignment:
                    stride = operand.strides[assignment[variable]]
                    yield f"stride of {variable} in {access.memory}", self._factor(access, variable), stride

    def _factor(self, access: Access, variable: str) -> Poly:
        return {tuple(n for n in m if n != variable): c for m, c in access.address[0].items() if variable in m}

    def base(self, access: Access) -> Poly:
        variables = self.symbols.variables.keys()
        return {m: c for m, c in access.address[0].items() if not variables & set(m)}


def reads_of(t: Transition) -> list[Read]:
    """Return the reads of a transition whose addresses differ, in the order of its value."""
    return list({(r.access.memory, tuple(frozenset(p.items()) for p in r.access.address)): r for r in t.reads}.values())


def side_effect(summary: Summary, parts: Sequence[Transition], settings: Settings) -> str:
    """Return what an instruction does to memories under settings besides transitions, or why it does not do these.

    Nothing where it is all that it does.
    """
    values = tuple([settings.get(name, 0) for name in _deciding(summary)])
    return _side_effect(summary, tuple(parts), values)


@lru_cache(maxsize=64)
def _deciding(summary: Summary) -> tuple[str, ...]:
    """Return the fields and registers that decide which transitions of an instruction happen, and whether it is refused."""
    symbols = summary.symbols
    every = [(conditions, (*loops, *t.loops)) for conditions, loops, t in summary.transitions()]
    atoms = {name for _, loops in every for _, p in loops for monomial in p for name in monomial if name in symbols.atoms}
    terms = [*(x for conditions, _ in every for x in conditions), *(symbols.atoms[name] for name in atoms), *summary.domain]
    return tuple(sorted({leaf.name for e in terms for leaf in e.reads if leaf in symbols.control and not leaf.shape}))


@lru_cache(maxsize=1 << 12)
def _side_effect(summary: Summary, parts: tuple[Transition, ...], values: tuple[int, ...]) -> str:
    """Return the same at values of what decides it."""
    registers = {leaf.name for leaf in summary.symbols.control if not leaf.shape}
    settings = dict(zip(_deciding(summary), values, strict=True))
    system = _Equations(summary.symbols, {}, {})
    name = summary.instruction.name
    for conditions, loops, t in summary.transitions():
        is_guarded = any(x.free for x in conditions)
        holds = is_guarded or all(number(x, {}, settings) for x in conditions)
        extents = [p for _, p in (*loops, *t.loops)]
        is_active = holds and (is_guarded or all(system.value(p, settings) > 0 for p in extents))
        if t not in parts and is_active and t.write.memory not in registers:
            return f"{name} also writes {t.write.memory} under these settings"
        if t in parts and (is_guarded or not holds):
            return f"a condition of {name} does not hold under these settings"
    scalars = frozenset(leaf for leaf in summary.symbols.control if not leaf.shape)
    if any(x.reads <= scalars and not number(x, {}, settings) for x in summary.domain):
        return f"a diagnostic of {name} refuses these settings"
    return ""


def words_of(selection: Selection, symbols: Symbols) -> tuple[dict[int, int], dict[int, int]]:
    """Return the words of a selection's table by their address in the memory that holds them, and the bits of each that are read."""
    words: dict[int, int] = {}
    bits: dict[int, int] = {}
    for k, row in enumerate(selection.table):
        for atom, value in row.items():
            e = symbols.atoms[atom]
            low, width = 0, WIDE
            while e.op == "extract":
                low, width, e = low + e.data[0], min(width, e.data[1]), e.args[0]
            (index,) = e.args
            numbers = {v: lift(k) for v in index.free}
            address = number(substitute(index, numbers), {}, selection.settings)
            words[address] = words.get(address, 0) | value << low
            bits[address] = bits.get(address, 0) | ((1 << width) - 1) << low
    return words, bits


class _Equations:
    """Polynomials that must have given numbers, over fields and registers."""

    def __init__(self, symbols: Symbols, intervals: Mapping[str, iv.Interval], fixed: Mapping[str, int]) -> None:
        self.symbols, self.intervals, self.fixed = symbols, intervals, fixed
        self.reason, self.solved = "", -1

    def solve(self, equations: Iterable[Equation]) -> Settings | None:
        """Return values that fulfil all equations, within the intervals of their fields; what no equation needs is 0."""
        return self._solve([(*e, self._unknowns(e[1])) for e in equations], dict(self.fixed))

    def has_one_unknown(self, equation: Equation) -> bool:
        """Tell whether an equation depends on one field or register that is not fixed, or on none."""
        return len(self._unknowns(equation[1])) <= 1

    def _unknowns(self, p: Poly) -> list[str]:
        """Return the fields and registers of a polynomial that are not fixed."""
        names = frozenset[str]().union(*(_fields_of(self.symbols, name) for monomial in p for name in monomial))
        return sorted(names - self.fixed.keys())

    def _solve(self, equations: list[tuple[str, Poly, int, list[str]]], settings: Settings) -> Settings | None:
        """Return values that fulfil equations, each with what may be unknown in it, where some are known already."""
        if not equations:
            return settings
        unknowns = [[name for name in names if name not in settings] for *_, names in equations]
        n = min(range(len(equations)), key=lambda k: len(unknowns[k]))
        subject, p, target, _ = equations[n]
        rest = equations[:n] + equations[n + 1 :]
        if not unknowns[n]:
            if self.value(p, settings) == target:
                return self._solve(rest, settings)
            self._note(f"{subject} is {self.value(p, settings)}, not {target}", len(rest))
            return None
        for name in unknowns[n]:
            zeros = {**settings, **dict.fromkeys(unknowns[n], 0)}
            for value in self._values(p, name, zeros, target):
                trial = {**zeros, name: value}
                if self._fits(name, value) and self.value(p, trial) == target:
                    solution = self._solve(rest, trial)
                    if solution is not None:
                        return solution
        self._note(f"{subject} cannot be {target}", len(rest))
        return None

    def _note(self, reason: str, left_over: int) -> None:
        if not self.reason or left_over < self.solved:
            self.reason, self.solved = reason, left_over

    def _values(self, p: Poly, name: str, zeros: Settings, target: int) -> Iterator[int]:
        """Yield values of one name that may fulfil an equation that is linear from 0 on, or at the end of the field; else the number."""
        _, last = self.intervals.get(name, (0, None))
        for first in (0, (last or 1) - 1):
            low, high = (self.value(p, {**zeros, name: x}) for x in (first, first + 1))
            slope = high - low
            if slope and (target - low) % slope == 0:
                yield first + (target - low) // slope
        yield target

    def _fits(self, name: str, value: int) -> bool:
        return iv.inside((value, value), self.intervals.get(name, (0, None)))

    def value(self, p: Poly, settings: Settings) -> int:
        """Return a polynomial at settings."""
        total = 0
        for monomial, c in p.items():
            for name in monomial:
                field = _field_of(self.symbols, name)
                c *= settings[field] if field else number(self.symbols.atoms[name], {}, settings)
            total += c
        return total


@lru_cache(maxsize=1 << 12)
def _fields_of(symbols: Symbols, atom: str) -> frozenset[str]:
    """Return the fields and registers that an atom depends on."""
    return frozenset(leaf.name for leaf in symbols.atoms[atom].reads)


@lru_cache(maxsize=1 << 12)
def _field_of(symbols: Symbols, atom: str) -> str:
    """Return the field or register that an atom is; nothing where it is a term over some."""
    e = symbols.atoms[atom]
    return e.data.name if e.op == "load" and isinstance(e.data, Leaf) and not e.args else ""
