"""Loops with control registers worked out of their bodies leave what the oracle leaves, whatever the registers decide."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rewrite_compiler.lang import (
    Expr,
    Leaf,
    Step,
    array,
    assign,
    cases,
    leaf,
    let,
    loop,
    reduce_sum,
    require,
    select,
    seq,
    update,
    updates,
    when,
    wrap,
)
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.readings.arrays.batched_memory import Memory
from rewrite_compiler.readings.oracle.emit_python import StepFunction
from rewrite_compiler.readings.state import interpreter
from rewrite_compiler.readings.state.interpreter import Machine

N, LANES, UNITS = 40, 2, 4
BYTE = iv.of_width(8, True)
A, B = leaf("a", (N, LANES), BYTE), leaf("b", (N, LANES), BYTE)
R, PROGRAM = leaf("r", (UNITS,), (0, 3)), leaf("program", (UNITS, 8), (0, 3))
CONTROL = frozenset((R, PROGRAM))


class Run:
    """Both memories after a step by the oracle and by a machine, and how the machine came there."""

    def __init__(self, step: Step, registers: list[int], programs: list[list[int]], seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        data = {m: rng.integers(-128, 128, (N, LANES)).astype(np.int8) for m in (A, B)}
        self.data: dict[Leaf, np.ndarray] = {**data, R: np.array(registers, np.uint8), PROGRAM: np.array(programs, np.uint8)}
        flat = {m: x.reshape(-1).tolist() for m, x in self.data.items()}
        function = StepFunction(step)
        function([flat[m] for m in function.memories])
        self.machine = Machine({m: Memory(x) for m, x in self.data.items()})
        self.machine.control = CONTROL
        self.machine.run(step)
        self.wanted = [flat[m] for m in self.data]

    @property
    def is_right(self) -> bool:
        """The machine left what the oracle left."""
        return self.wanted == [x.reshape(-1).tolist() for x in self.data.values()]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Bodies that were made without what control decides."""
    found: list[Step] = []
    make = interpreter.residual_body

    def watched(*given: object) -> tuple[Expr, Step]:
        variable, body = make(*given)  # type: ignore[arg-type]
        found.append(body)
        return variable, body

    monkeypatch.setattr(interpreter, "residual_body", watched)
    return found


# -- by hand

UNIFORM = [[0, 1, 2, 3, 3, 1, 0, 2]] * UNITS


def engine(x: Expr, unit: Expr) -> Step:
    """A program of eight instructions on one vector a unit, of which some depend on what was left there."""

    def instruction(pc: Expr) -> Step:
        at = unit * 2 + R[unit]
        table = {
            0: update(A, LANES, lambda o: ((at, o), wrap(A[at, o] + B[x + unit, o], 8))),
            1: update(A, LANES, lambda o: ((at, o), wrap(A[at, o] * 3, 8))),
            2: update(B, LANES, lambda o: ((20 + (x * R[unit] + unit) % 16, o), A[at, o])),
        }
        return cases(PROGRAM[unit, pc], table)

    return loop(8, instruction)


@pytest.mark.parametrize("registers", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [3, 2, 1, 0]])
def test_an_engine_with_one_program(registers: list[int], made: list[Step]) -> None:
    found = Run(loop(12, lambda x: loop(UNITS, lambda unit: engine(x, unit))), registers, UNIFORM)
    assert found.is_right
    assert made


def test_an_engine_whose_units_have_programs_of_their_own(made: list[Step]) -> None:
    programs = [[(k * n + n) % 4 for k in range(8)] for n in range(UNITS)]
    assert Run(loop(12, lambda x: loop(UNITS, lambda unit: engine(x, unit))), [0, 1, 2, 3], programs).is_right
    assert made


def test_addresses_that_meet_in_some_iterations_only() -> None:
    """Where x is even, places of the inner loop meet: the last one counts. What was found of odd x must not stand there."""
    step = loop(
        12,
        lambda x: seq(
            assign(B, wrap(A[x, 0] + 1, 8), x + 20, 0),
            loop(4, lambda i: update(A, LANES, lambda o: ((x * i % 4 + R[0], o), wrap(B[x + i + 10, o] + A[x + 20, o] + i, 8)))),
            loop(4, lambda i: update(A, LANES, lambda o: ((x + i, o), wrap(A[(x + i * x) % 8, o] + 3, 8)))),
        ),
    )
    for first in range(4):
        assert Run(step, [first, 0, 0, 0], UNIFORM).is_right, first


def test_registers_that_an_iteration_writes_are_not_worked_out(made: list[Step]) -> None:
    body = lambda x: seq(assign(A, wrap(A[R[0] + x, 0] + 1, 8), R[0], 1), assign(R, (R[0] + 1) % 4, 0))  # noqa: E731
    assert Run(loop(12, body), [2, 0, 0, 0], UNIFORM).is_right


def test_a_condition_of_the_first_iteration(made: list[Step]) -> None:
    """`x = 0` holds in the first iteration alone: the others have no choice any more."""
    body = lambda x: update(A, LANES, lambda o: ((3, o), wrap(select((x == 0) & (R[0] == 1), 7, A[3, o] + B[x, o]), 8)))  # noqa: E731
    assert Run(loop(12, body), [1, 0, 0, 0], UNIFORM).is_right
    assert "==" not in repr(made[0])


def test_a_local_whose_length_an_iteration_decides(made: list[Step]) -> None:
    def of(x: Expr) -> Step:
        local = array(lambda i: A[i, 0], x + 1)
        return let(local, lambda t: assign(A, wrap(reduce_sum(lambda i: t[i], x + 1), 8), 0, 1), "t")

    assert Run(loop(12, lambda x: seq(of(x), assign(A, wrap(A[0, 1] + 1, 8), x, 0))), [0, 0, 0, 0], UNIFORM).is_right
    assert not made


def test_nothing_is_kept_of_a_body(made: list[Step]) -> None:
    """Terms and loops of a body that is gone are gone, however often the loop runs."""
    step = loop(12, lambda x: loop(UNITS, lambda unit: engine(x, unit)))
    found = Run(step, [0, 1, 2, 3], UNIFORM)
    sizes = len(found.machine.forms), len(found.machine.evaluator.dtypes)
    for _ in range(3):
        found.machine.run(step)
    assert len(made) == 4
    assert (len(found.machine.forms), len(found.machine.evaluator.dtypes)) == sizes


# -- at random


def number(dice: random.Random, variables: list[Expr]) -> Expr:
    kind = dice.randrange(5)
    if kind == 0:
        return R[dice.choice(variables) % UNITS]
    if kind == 1:
        return R[dice.randrange(UNITS)]
    if kind == 2:
        return PROGRAM[dice.choice(variables) % UNITS, dice.choice(variables) % 8]
    return dice.choice(variables) * dice.randint(0, 3)


def place(dice: random.Random, variables: list[Expr]) -> Expr:
    index: Expr = number(dice, variables)
    for _ in range(2):
        index = index + number(dice, variables)
    return (index + dice.randrange(6)) % N


def statement(dice: random.Random, variables: list[Expr]) -> Step:
    to, one, two = (place(dice, variables) for _ in range(3))
    target, first, second = (dice.choice((A, B)) for _ in range(3))
    kind = dice.randrange(6)
    if kind == 0:
        return updates(LANES, lambda o: [(A, (to, o), wrap(B[one, o] + A[to, o], 8)), (B, (two, o), wrap(A[one, o] * 3, 8))])
    if kind == 1:
        local = array(lambda o: wrap(first[one, o] * 3 - second[two, LANES - 1 - o], 8), LANES)
        return let(local, lambda t: update(target, LANES, lambda o: ((to, o), wrap(t[LANES - 1 - o] + second[to, o], 8))), "t")
    if kind == 2:
        total = reduce_sum(lambda c: first[(one + c) % N, 0] * R[c % UNITS], R[dice.randrange(UNITS)] + 1)
        return update(target, LANES, lambda o: ((to, o), wrap(total + second[two, o], 8)))
    if kind == 3:
        chosen = select(number(dice, variables) == dice.randrange(4), first[one, 0], second[two, 1])
        return seq(require(to >= 0, "I100", "never"), update(target, LANES, lambda o: ((to, o), wrap(chosen + o, 8))))
    return update(target, LANES, lambda o: ((to, o), wrap(first[one, o] * 3 + second[two, LANES - 1 - o] + 1, 8)))


def body(dice: random.Random, variables: list[Expr], depth: int) -> Step:
    if depth == 0:
        return statement(dice, variables)
    if dice.random() < 0.25:
        return when(number(dice, variables) == dice.randrange(3), body(dice, variables, depth - 1), statement(dice, variables))
    register = R[dice.choice(variables) % UNITS if dice.random() < 0.5 else dice.randrange(UNITS)]
    extent = register + 1 if dice.random() < 0.4 else dice.choice((1, 2, 3, 4))
    inner = loop(extent, lambda k: body(dice, [*variables, k], depth - 1))
    kind = dice.randrange(4)
    return inner if kind < 2 else seq(inner, statement(dice, variables)) if kind == 2 else seq(statement(dice, variables), inner)


def drawn(seed: int) -> Run:
    dice = random.Random(seed)
    registers = [dice.choice((1, 1, 2))] * UNITS if dice.random() < 0.5 else [dice.randrange(4) for _ in range(UNITS)]
    programs = UNIFORM if dice.random() < 0.5 else [[dice.randrange(4) for _ in range(8)] for _ in range(UNITS)]
    return Run(loop(dice.choice((8, 9, 12)), lambda x: body(dice, [x], dice.choice((1, 2, 3)))), registers, programs, seed)


@pytest.mark.parametrize("block", range(6))
def test_random_programs(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        assert drawn(seed).is_right, seed


def test_random_programs_often_have_a_residual(made: list[Step]) -> None:
    for seed in range(60):
        drawn(seed)
    assert len(made) >= 20
