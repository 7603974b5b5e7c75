"""Equivalence of Verilog statements and a step: the same next state from any state and any inputs, decided by z3."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import z3

from ...lang.binders import Leaf, Table, static_shape
from ...lang.step import Step
from ..smt.bitvector_operators import resize, width_of
from ..smt.evaluator import refute
from ..smt.solver import Outcome, Verdict, solve
from ..smt.symbolic_state import SymbolicState, size_of
from .products import abstract_products, constants_of
from .reader import Expression, Statement, Word
from .semantics import INDEX_BITS, Machine

QUICK_SECONDS = 1.0
TRIES, SEED = 48, 7


@dataclass(frozen=True)
class PortWords:
    """The names of the words of a memory's ports: read address and data, write enable, address and data."""

    read_address: str
    read_data: str
    write: str
    write_address: str
    write_data: str


@dataclass
class StatePair:
    """The state of a module beside that of the step, and the module's state before."""

    machine: Machine
    state: SymbolicState
    before: dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The correspondence of a module's words and a step's leaves; `rounds` bounds loops whose end depends on the state."""

    words: Mapping[str, Word]
    registers: Mapping[Leaf, str]
    inputs: Mapping[Leaf, str]
    scratch: frozenset[str]  # words whose next value is arbitrary
    rounds: int
    seconds: float
    roms: Mapping[Table, str] = field(default_factory=dict)  # memories whose contents are compared elsewhere
    ports: Mapping[str, PortWords] = field(default_factory=dict)  # by memory; that they are connected so is compared elsewhere

    wires: Mapping[str, Expression] = field(default_factory=dict)

    def arbitrary_state(self, constants: Mapping[str, int] | None = None) -> StatePair:
        """Return an arbitrary state that both share; `known` words hold a number."""
        delayed = frozenset(n for p in self.ports.values() for n in (p.write, p.write_address, p.write_data))
        machine = Machine(dict(self.words), {}, self.rounds, delayed=delayed, wires=self.wires, hidden=frozenset(self.ports))
        for name, w in self.words.items():
            if name in self.wires:
                continue
            sort = z3.BitVecSort(w.width)
            machine.values[name] = z3.Array(name, z3.BitVecSort(INDEX_BITS), sort) if w.count else z3.BitVec(name, w.width)
        for name, p in self.ports.items():
            address = resize(z3.ZeroExt(INDEX_BITS, machine.values[p.read_address]), INDEX_BITS)
            machine.values[p.read_data] = z3.Select(machine.values[name], address)
            machine.values[p.write] = z3.BitVecVal(0, 1)
        machine.before = dict(machine.values)
        for name, n in (constants or {}).items():  # assigned in this clock, which wires do not see
            machine.values[name] = z3.BitVecVal(n, self.words[name].width)
        memories = {leaf: _lanes(leaf, machine.values[name]) for leaf, name in self.inputs.items()}
        memories |= {leaf: _lanes(leaf, machine.values[n]) for leaf, n in self.registers.items() if not leaf.shape}
        arrays = {leaf: machine.values[n] for leaf, n in self.registers.items() if leaf.shape}
        tables = {table: machine.values[name] for table, name in self.roms.items()}
        return StatePair(machine, SymbolicState(memories, arrays, self.rounds, tables), dict(machine.values))

    def verdict(self, pair: StatePair, expected: Mapping[str, Any]) -> Verdict:
        """Prove that the module's registers equal the step's, the words in `expected` their terms, and that all others are unchanged."""
        register_values = {leaf_name: self.expected(pair.state, leaf) for leaf, leaf_name in self.registers.items()}
        goals = [z3.Not(p) for p in pair.machine.premises]
        self.commit(pair.machine)
        for name, initial in pair.before.items():
            goal = {**register_values, **expected}.get(name, initial)
            actual = pair.machine.values.get(name)
            if name in self.scratch or (actual is not None and actual.eq(goal)):
                continue
            goals.append(_difference(actual, goal, self.words[name].count))
        if not goals:
            return Verdict(Outcome.PROVED)
        goal, premises = z3.Or(*goals), pair.state.premises
        constraints = [goal, *premises]
        verdict = _refuted_either_way(constraints, min(QUICK_SECONDS, self.seconds))
        if verdict.outcome == Outcome.UNKNOWN:
            bounded_words = {str(x) for x in constants_of(premises)}
            sample = _refutation_by_samples(z3.And(*constraints), bounded_words, self.rounds)
            verdict = sample or _proof_without_products(goal, premises, self.seconds) or _refuted_either_way(constraints, self.seconds)
        return verdict

    def commit(self, machine: Machine) -> None:
        """Write what the write ports of the memories hold."""
        for name, p in self.ports.items():
            if (write := machine.values[p.write]) is None or (z3.is_bv_value(write) and write.as_long() == 0):
                continue
            address = resize(z3.ZeroExt(INDEX_BITS, machine.values[p.write_address]), INDEX_BITS)
            memory = machine.values[name]
            machine.values[name] = z3.If(write == 1, z3.Store(memory, address, machine.values[p.write_data]), memory)

    def expected(self, state: SymbolicState, leaf: Leaf) -> Any:
        """Return a register of the step, in the width of its word."""
        if leaf in state.arrays:
            return state.arrays[leaf]
        return resize(state.memories[leaf][()], self.words[self.registers[leaf]].width)

    def compare(
        self, statements: Sequence[Statement], step: Step, constants: Mapping[str, int], result: tuple[str, Leaf] | None = None
    ) -> tuple[Verdict, bool]:
        """Run both from an arbitrary state; tell, too, whether loops were bounded. `result` is a word and the leaf of its lanes."""
        pair = self.arbitrary_state(constants)
        locals_ = result[1] if result is not None else None
        if locals_ is not None:
            pair.state.bind(locals_, np.full(static_shape(locals_), 0, object))
        pair.machine.run(statements)
        pair.state.execute(step)
        expected = {}
        if result is not None and locals_ is not None:
            word, bits = self.words[result[0]].width, width_of(locals_.interval) - 1
            lanes = [resize(x, bits) for x in pair.state.memories[locals_].reshape(-1).tolist()]
            packed = z3.Concat(*reversed(lanes)) if len(lanes) > 1 else lanes[0]
            expected[result[0]] = z3.simplify(resize(z3.ZeroExt(word - packed.size(), packed), word))
        verdict = self.verdict(pair, expected)
        if verdict.outcome == Outcome.PROVED and self.is_vacuous(pair.state):
            verdict = Verdict(Outcome.UNKNOWN, reason=f"a loop of at most {self.rounds} rounds does not run at all")
        return verdict, bool(pair.state.premises)

    def is_vacuous(self, state: SymbolicState) -> bool:
        """Tell whether the comparison is vacuous: some loop runs in no state that the premises admit."""
        return any(refute([run, *state.premises], QUICK_SECONDS).outcome == Outcome.PROVED for run in state.runs)

    def check_decode(
        self, statements: Sequence[Statement], step: Step, result: Leaf, constants: Mapping[str, int], names: Sequence[str]
    ) -> Verdict:
        """Prove that statements set the words `names` to the number that a decode step computes, and change nothing else."""
        pair = self.arbitrary_state()
        pair.state.bind(result, np.full((), 0, object))
        pair.machine.run(statements)
        pair.state.execute(step)
        number = pair.state.memories[result][()]
        expected: dict[str, Any] = {n: resize(number, self.words[n].width) for n in names}
        expected |= {n: z3.BitVecVal(x, self.words[n].width) for n, x in constants.items()}
        return self.verdict(pair, expected)

    def check_values(self, statements: Sequence[Statement], values: Mapping[str, int]) -> Verdict:
        """Prove that statements set words (every element of a memory) to these values and change nothing else."""
        pair = self.arbitrary_state()
        pair.machine.run(statements)
        return self.verdict(pair, {n: _constant(self.words[n], x) for n, x in values.items()})


def _refuted_either_way(constraints: Sequence[z3.BoolRef], seconds: float) -> Verdict:
    """Return the verdict of z3's preprocessing and, where that leaves it open, of its core alone, which takes arrays as they come."""
    verdict = refute(constraints, seconds)
    if verdict.outcome != Outcome.UNKNOWN:
        return verdict
    by_core = solve(constraints, seconds, preprocessed=False)
    return verdict if by_core.outcome == Outcome.UNKNOWN else by_core


def _proof_without_products(goal: z3.BoolRef, premises: Sequence[z3.BoolRef], seconds: float) -> Verdict | None:
    """Return a proof with symbols in place of products, None without one: what holds of any numbers holds of products."""
    abstracted = abstract_products(goal, premises)
    verdict = _refuted_either_way(abstracted, seconds) if abstracted is not None else None
    return verdict if verdict is not None and verdict.outcome == Outcome.PROVED else None


def _refutation_by_samples(goal: z3.BoolRef, bounded_words: set[str], rounds: int) -> Verdict | None:
    """Return a refutation by extreme and random values, where the solver is slow; None when none of them refutes.

    `bounded_words` decide how long loops run: they are `rounds`.
    """
    generator = random.Random(SEED)
    free = [x for x in sorted(constants_of([goal]), key=str) if isinstance(x, z3.BitVecRef | z3.ArrayRef)]
    for _ in range(TRIES):
        assignment = [
            (
                x,
                _random_value(x, generator)
                if str(x) not in bounded_words or isinstance(x, z3.ArrayRef)
                else z3.BitVecVal(rounds, x.size()),
            )
            for x in free
        ]
        if z3.is_true(z3.simplify(z3.substitute(goal, *assignment))):
            return Verdict(Outcome.REFUTED, {str(x): value.as_long() for x, value in assignment if isinstance(value, z3.BitVecNumRef)})
    return None


def _random_value(x: Any, generator: random.Random) -> Any:
    """Return a value of a word, or a memory of equal values: an end of the range, a small number or a random one."""
    sort = x.sort()
    bits = sort.range().size() if isinstance(x, z3.ArrayRef) else sort.size()
    number = generator.choice((0, 1, 4, 1 << bits - 1, (1 << bits) - 1, (1 << bits - 1) - 1, generator.getrandbits(bits)))
    value = z3.BitVecVal(number, bits)
    return z3.K(sort.domain(), value) if isinstance(x, z3.ArrayRef) else value


def _constant(word: Word, value: int) -> Any:
    number = z3.BitVecVal(value, word.width)
    return z3.K(z3.BitVecSort(INDEX_BITS), number) if word.count else number


def _difference(actual: Any, expected: Any, count: int) -> Any:
    if actual is None:
        return z3.BoolVal(True)
    if not count:
        return actual != expected
    k = z3.FreshConst(z3.BitVecSort(INDEX_BITS), "k")
    return z3.And(z3.ULT(k, count), z3.Select(actual, k) != z3.Select(expected, k))


def _lanes(leaf: Leaf, word: z3.BitVecRef) -> Any:
    shape, size = static_shape(leaf), size_of(leaf)
    bits = word.size() // size
    is_signed = (leaf.interval[0] or 0) < 0
    parts = [z3.Extract(bits * n + bits - 1, bits * n, word) if size > 1 else word for n in range(size)]
    lanes = np.empty(size, object)
    width = max(width_of(leaf.interval), bits + (not is_signed))
    for n, part in enumerate(parts):
        lanes[n] = (z3.SignExt if is_signed else z3.ZeroExt)(width - bits, part) if width > bits else part
    return lanes.reshape(shape)


def statements_of(statement: Statement) -> Iterator[Statement]:
    """Yield the statements of a block, or the statement itself."""
    if statement.kind == "block":
        yield from statement.bodies[0]
    else:
        yield statement
