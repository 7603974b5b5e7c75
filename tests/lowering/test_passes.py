"""Each pass over loop code: the code before and after it, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import dedent

import pytest

from rewrite_compiler.lang import Leaf, Table, shift_right
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.intervals import Interval
from rewrite_compiler.lowering.bounds_checks import hoist_bounds_checks
from rewrite_compiler.lowering.copy_propagation import propagate_copies
from rewrite_compiler.lowering.dead_code import eliminate_dead_code
from rewrite_compiler.lowering.decoded_copies import decoded_copies, with_decoded_copies
from rewrite_compiler.lowering.dot_narrowing import split_wide_sums
from rewrite_compiler.lowering.listing import listing
from rewrite_compiler.lowering.loop_invariants import hoist_invariants
from rewrite_compiler.lowering.loop_ir import (
    Allocate,
    Assign,
    Bind,
    For,
    If,
    Mutable,
    Routine,
    Statement,
    Store,
    Tree,
    constant,
    folded_sum_or_product,
)
from rewrite_compiler.lowering.trap_analysis import cannot_trap, sizes_of
from rewrite_compiler.lowering.vector_idioms import recognise_idioms
from rewrite_compiler.readings.oracle.emit_python import compile_routine

BYTE, HALF, SUM = iv.of_width(8, True), iv.of_width(16, True), iv.of_width(48, True)
MEMORIES = {"x": Leaf((8,), BYTE, False, "x"), "y": Leaf((8,), BYTE, False, "y")}
DOUBLED = Table("doubled", lambda code: shift_right(code, 1), (0, 15))


def name(text: str, interval: Interval = (0, 7)) -> Tree:
    return Tree("name", (), text, interval, False)


def load(array: str, index: Tree, interval: Interval = BYTE) -> Tree:
    return Tree("load", (index,), array, interval, False)


def operator(op: str, a: Tree, b: Tree, interval: Interval) -> Tree:
    return Tree(op, (a, b), None, interval, False)


def number(n: int) -> Tree:
    return constant(n)


def idioms(routine: Routine) -> Routine:
    return Routine(routine.memories, routine.tables, recognise_idioms(routine.body))


def decoded(routine: Routine) -> Routine:
    return with_decoded_copies(routine, decoded_copies([routine]))


ROW, TAP, LANE, VALUE = name("i"), name("k"), name("l", (0, 15)), name("a", BYTE)
COUNT = name("n", (0, 20))
PRODUCT = operator("mul", load("x", folded_sum_or_product("add", TAP, LANE)), load("w", LANE, HALF), iv.mul(BYTE, HALF))
LOOKED_UP = operator("mul", load("doubled", load("codes", ROW, (0, 15)), (0, 7)), load("x", ROW), (-896, 889))

DEAD = [
    Bind("a", load("x", number(0))),
    Mutable("s", number(0), (0, 9), False),
    Allocate("t", number(8), BYTE, False),
    For("i", number(8), [Store("t", ROW, load("x", ROW)), Assign("s", number(1)), Store("y", ROW, load("x", ROW))]),
]
COPIES = [
    Mutable("a", load("x", number(3)), BYTE, False),
    For("i", number(8), [Bind("b", load("x", ROW)), Store("y", ROW, operator("min", name("b", BYTE), VALUE, BYTE))]),
]
INVARIANT = [
    For("i", number(8), [
        Bind("a", operator("shr", load("x", number(3)), number(1), (-64, 63))),
        If(operator("lt", load("x", number(0)), number(0), (0, 1)), [Store("y", ROW, VALUE)], [Store("y", ROW, number(0))]),
    ]),
]  # fmt: skip
UNBOUNDED = [
    Bind("n", load("r", number(0), (0, 20))),
    For("i", COUNT, [Store("y", name("i", (0, 19)), load("x", operator("add", name("i", (0, 19)), number(2), (2, 21))))]),
]
WIDE = [
    Mutable("s", number(0), SUM, False),
    For("k", number(100_000), [For("l", number(16), [Assign("s", operator("add", name("s", SUM), PRODUCT, SUM))])]),
    Store("y", number(0), name("s", SUM)),
]
DECODED = [
    Store("codes", number(3), number(9)),
    Mutable("s", number(0), HALF, False),
    For("i", number(8), [Assign("s", operator("add", name("s", HALF), LOOKED_UP, HALF))]),
    Store("y", number(0), name("s", HALF)),
]
COPY = [For("i", number(8), [Store("y", ROW, load("x", ROW))])]

REGISTER = {**MEMORIES, "r": Leaf((1,), (0, 20), False, "r")}
WORDS = {"x": Leaf((32,), BYTE, False, "x"), "w": Leaf((16,), HALF, False, "w"), "y": Leaf((1,), SUM, False, "y")}
CODES = {"codes": Leaf((8,), (0, 15), False, "codes"), "x": MEMORIES["x"], "y": Leaf((1,), HALF, False, "y")}

Case = tuple[Callable[[Routine], Routine], Sequence[Statement], dict[str, Leaf], str, str]
CASES: dict[str, Case] = {
    "dead_code": (
        eliminate_dead_code, DEAD, MEMORIES,
        """
        a := x[0]
        var s <- 0
        allocate t[8]
        for i < 8
            t[i] <- x[i]
            s <- 1
            y[i] <- x[i]
        """,
        """
        for i < 8
            y[i] <- x[i]
        """,
    ),
    "copy_propagation": (
        propagate_copies, COPIES, MEMORIES,
        """
        var a <- x[3]
        for i < 8
            b := x[i]
            y[i] <- min(b, a)
        """,
        """
        var a <- x[3]
        for i < 8
            y[i] <- min(x[i], a)
        """,
    ),
    "loop_invariants": (
        hoist_invariants, INVARIANT, MEMORIES,
        """
        for i < 8
            a := (x[3] >> 1)
            if (x[0] < 0)
                y[i] <- a
            else
                y[i] <- 0
        """,
        """
        a := (x[3] >> 1)
        if (x[0] < 0)
            for i < 8
                y[i] <- a
        else
            for i < 8
                y[i] <- 0
        """,
    ),
    "bounds_checks": (
        hoist_bounds_checks, UNBOUNDED, REGISTER,
        """
        n := r[0]
        for i < n
            y[i] <- x[(i + 2)]
        """,
        """
        n := r[0]
        check (0 + 2) … ((n - 1) + 2) in x if n
        check 0 … (n - 1) in y if n
        for i < n
            y[checked(i)] <- x[checked((i + 2))]
        """,
    ),
    "dot_narrowing": (
        split_wide_sums, WIDE, WORDS,
        """
        var s <- 0
        for k < 100000
            for l < 16
                s <- (s + (x[(k + l)] * w[l]))
        y[0] <- s
        """,
        """
        var s <- 0
        for k < 100000
            var l_sum <- 0
            for l < 16
                l_sum <- (l_sum + (x[(k + l)] * w[l]))
            s <- (s + l_sum)
        y[0] <- s
        """,
    ),
    "decoded_copies": (
        decoded, DECODED, CODES,
        """
        codes[3] <- 9
        var s <- 0
        for i < 8
            s <- (s + (doubled[codes[i]] * x[i]))
        y[0] <- s
        """,
        """
        codes[3] <- 9
        q0[3] <- doubled[codes[3]]
        var s <- 0
        for i < 8
            s <- (s + (q0[i] * x[i]))
        y[0] <- s
        """,
    ),
    "vector_idioms": (
        idioms, COPY, MEMORIES,
        """
        for i < 8
            y[i] <- x[i]
        """,
        "copy y[0] <- x[0], 8 elements",
    ),
}  # fmt: skip


def routine_of(case: Case) -> Routine:
    _, body, memories, _, _ = case
    return Routine(memories, {"doubled": DOUBLED} if "codes" in memories else {}, list(body))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_pass_gives_the_code_that_it_says(case: Case) -> None:
    transform, _, _, before, after = case
    routine = routine_of(case)
    assert listing(routine) == dedent(before).strip()
    assert listing(transform(routine)) == dedent(after).strip()


@pytest.mark.parametrize(
    "case",
    [c for key, c in CASES.items() if key not in {"bounds_checks", "dot_narrowing"}],
    ids=[key for key in CASES if key not in {"bounds_checks", "dot_narrowing"}],
)
def test_a_pass_keeps_what_the_code_stores(case: Case) -> None:
    """By the oracle, which prints all but checks of whole loops; the code of 1,600,000 products takes too long for it."""
    routine = routine_of(case)
    results = []
    for r in (routine, case[0](routine)):
        contents = {leaf.name: [leaf.interval[0] or 0] * int(leaf.shape[0]) for leaf in r.memories.values()}  # type: ignore[call-overload]
        contents["x"] = [(37 * n + 5) % 256 - 128 for n in range(8)]
        copies = [n for n in r.memories if n not in routine.memories]
        for n in copies:  # a decoded copy holds what the codes mean now
            contents[r.memories[n].name] = [code // 2 for code in contents["codes"]]
        compile_routine(r)[1](*(contents[leaf.name] for leaf in r.memories.values()))
        results.append(contents["y"])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (load("x", ROW), True),
        (load("x", name("i", (0, 8))), False),
        (load("unknown", ROW), False),
        (operator("div", VALUE, name("d", (1, 4)), BYTE), True),
        (operator("div", VALUE, name("d", (0, 4)), BYTE), False),
        (operator("shr", VALUE, name("d", (0, 4)), BYTE), True),
        (operator("shr", VALUE, name("d", (-1, 4)), BYTE), False),
        (operator("add", VALUE, load("x", name("i", (-1, 3))), HALF), False),
    ],
)
def test_trap_analysis_knows_what_has_a_value_at_any_time(tree: Tree, expected: bool) -> None:
    assert cannot_trap(tree, sizes_of(Routine(MEMORIES, {}, []))) is expected


BACK = operator("sub", number(9), name("n", (0, 20)), (-11, 9))
AGAIN = operator("add", name("s", HALF), number(1), HALF)
LONG = operator("mul", load("w", ROW, HALF), load("w", ROW, HALF), iv.mul(HALF, HALF))
# what a pass must leave as it is
UNCHANGED: dict[str, tuple[Callable[[Routine], Routine], Sequence[Statement], dict[str, Leaf]]] = {
    "a scalar that is made of itself is no copy": (
        propagate_copies, [Mutable("s", number(3), HALF, False), Assign("s", AGAIN), Store("y", number(0), name("s", HALF))], MEMORIES,
    ),
    "a scalar that is read before it is assigned is no copy": (
        propagate_copies, [Mutable("s", number(3), HALF, False), Store("y", number(0), name("s", HALF)), Assign("s", number(1))], MEMORIES,
    ),
    "a scalar that is assigned again begins anew in every iteration": (
        hoist_invariants, [For("i", number(8), [
            Mutable("s", number(0), HALF, False), Assign("s", number(1)), Store("y", ROW, name("s", HALF)),
            Assign("s", load("x", ROW)), Store("y", ROW, name("s", HALF)),
        ])], MEMORIES,
    ),
    "an index that falls has its first value last": (
        hoist_bounds_checks, [Bind("m", load("r", number(0), (0, 20))), For("n", number(8), [Store("y", BACK, number(0))])], REGISTER,
    ),
    "a memory whose elements say where it is written has no mirror": (
        decoded, [Store("codes", load("codes", number(0), (0, 15)), number(9)), *DECODED], CODES,
    ),
    "partial sums beyond words are not split off": (
        split_wide_sums, [
            Mutable("s", number(0), SUM, False), For("i", number(8), [Assign("s", operator("add", name("s", SUM), LONG, SUM))]),
            Store("y", number(0), name("s", SUM)),
        ], WORDS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNCHANGED.values(), ids=UNCHANGED)
def test_a_pass_leaves_code_that_it_would_change_in_meaning(
    case: tuple[Callable[[Routine], Routine], Sequence[Statement], dict[str, Leaf]],
) -> None:
    transform, body, memories = case
    routine = Routine(memories, {"doubled": DOUBLED} if "codes" in memories else {}, list(body))
    assert listing(transform(routine)) == listing(routine)
