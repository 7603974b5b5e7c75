"""Terms in a normal form: every step is an identity of integers, and what is taken apart and put together again is one term."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.errors import SpecError
from rewrite_compiler.lang import Table, array, maximum, select, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.lang.expr import const
from rewrite_compiler.lang.step import together, update
from rewrite_compiler.readings.smt.normal_form_evaluator import NormalFormEvaluator, Z3Translator, variables
from rewrite_compiler.readings.smt.polynomial_terms import Number, Term, Terms, interval_of
from rewrite_compiler.readings.smt.renamed_pairs import distinct_pairs

NAMES = {"x": (-128, 127), "y": (0, 255), "z": (-(1 << 31), (1 << 31) - 1)}
Tree = tuple[Any, ...]
PLAIN: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "mod": operator.mod, "div": operator.floordiv,
    "min": min, "max": max, "eq": lambda a, b: int(a == b), "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b), "le": lambda a, b: int(a <= b),
}  # fmt: skip


def trees() -> st.SearchStrategy[Tree]:
    leaf = st.one_of(st.sampled_from([(n,) for n in NAMES]), st.integers(-300, 300).map(lambda n: ("const", n)))
    divisors = st.sampled_from([2, 3, 16, 256, 65536, 1 << 32])

    def grown(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        pairs = st.tuples(st.sampled_from(sorted(PLAIN.keys() - {"mod", "div"})), children, children)
        return st.one_of(pairs, st.tuples(st.sampled_from(["mod", "div"]), children, divisors))

    return st.recursive(leaf, grown, max_leaves=12)


def built(tree: Tree, terms: Terms) -> Number:
    if tree[0] in NAMES:
        return terms.variable(tree[0], NAMES[tree[0]])
    if tree[0] == "const":
        return int(tree[1])
    op, a, b = tree[0], built(tree[1], terms), tree[2] if tree[0] in ("mod", "div") else built(tree[2], terms)
    if op in ("mod", "div"):
        return terms.modulo(a, b) if op == "mod" else terms.quotient(a, b)
    if op in ("min", "max"):
        return terms.extremum(op, a, b)
    return terms.compare(op, a, b) if op in ("eq", "ne", "lt", "le") else PLAIN[op](a, b)


def plain(tree: Tree, values: dict[str, int]) -> int:
    if tree[0] in NAMES:
        return values[tree[0]]
    if tree[0] == "const":
        return int(tree[1])
    return int(PLAIN[tree[0]](plain(tree[1], values), tree[2] if tree[0] in ("mod", "div") else plain(tree[2], values)))


def value_of(t: Number, values: dict[str, int]) -> int:
    if not isinstance(t, Term):
        return t
    args = [value_of(a, values) for a in t.args]
    if t.op in ("var", "const"):
        return values[t.data] if t.op == "var" else t.data
    if t.op == "sum":
        return t.data[0] + sum(c * a for c, a in zip(t.data[1], args, strict=True))
    if t.op == "mul":
        return args[0] * value_of_product(args[1:])
    return int(PLAIN[t.op](*args) if len(args) == 2 else PLAIN[t.op](args[0], t.data))


def value_of_product(numbers: list[int]) -> int:
    return numbers[0] * value_of_product(numbers[1:]) if numbers else 1


@given(trees(), st.data())
def test_a_normal_form_has_the_value_and_stays_in_its_interval(tree: Tree, data: st.DataObject) -> None:
    values = {n: data.draw(st.one_of(st.integers(*ends), st.sampled_from(ends))) for n, ends in NAMES.items()}
    found = built(tree, Terms())
    assert value_of(found, values) == plain(tree, values)
    assert iv.inside((plain(tree, values),) * 2, interval_of(found))


def test_digits_that_are_put_together_again_are_the_word() -> None:
    terms = Terms()
    x = terms.variable("x", (-(1 << 15), (1 << 15) - 1))
    low, high = x % 256, (x - x % 256) / 256 % 256  # type: ignore[operator]
    assert (low + 256 * high + (1 << 15)) % (1 << 16) - (1 << 15) is x
    total = x + 3 * terms.variable("y", (0, 255))
    parts = [terms.modulo(terms.quotient(total, 256**n), 256) for n in range(4)]
    whole = terms.linear_combination((256**n, p) for n, p in enumerate(parts))
    assert terms.modulo(whole + (1 << 31), 1 << 32) - (1 << 31) is total
    shifted = terms.quotient(total, 16)  # whose digits are quotients of the same number by more
    parts = [terms.modulo(terms.quotient(shifted, 256**n), 256) for n in range(2)]
    assert terms.linear_combination((256**n, p) for n, p in enumerate(parts)) is terms.modulo(shifted, 1 << 16)
    assert terms.linear_combination([(1, parts[0]), (256, terms.quotient(total, 1 << 13))]) is not terms.quotient(total, 32)


def test_sums_that_wrap_at_every_step_are_sums_that_wrap_once() -> None:
    terms = Terms(unbounded=True)
    products = [terms.variable(f"x{n}", (0, 9)) * terms.variable(f"w{n}", (0, 9)) for n in range(4)]  # type: ignore[operator]
    at_once, step_by_step = terms.modulo(terms.total(products), 1 << 32), 0
    for p in products:
        step_by_step = terms.modulo(step_by_step + p, 1 << 32)
    assert step_by_step is at_once
    assert isinstance(at_once, Term)
    assert at_once.op == "mod"


@pytest.mark.parametrize(
    "tree", [("div", ("-", ("x",), ("y",)), 16), ("mod", ("*", ("x",), ("x",)), 256), ("max", ("x",), ("eq", ("y",), ("const", 3)))]
)
def test_z3_gets_the_same_value(tree: Tree) -> None:
    values = {"x": -77, "y": 3, "z": 0}
    term = Z3Translator().of(built(tree, Terms()))
    known = z3.simplify(z3.substitute(term, *[(z3.Int(n), z3.IntVal(v)) for n, v in values.items()]))
    assert known.as_long() == plain(tree, values)


def test_tables_of_one_name_are_one_function_only_with_the_same_entries() -> None:
    terms, leaf = Terms(), Leaf((1,), (0, 3), False, "c")
    reading = NormalFormEvaluator({leaf: variables(terms, "c", (1,), (0, 3))}, terms)
    tables = [Table("t", lambda c, n=n: c * n, (0, 3)) for n in (5, 5, 6)]  # type: ignore[misc]
    first, again, other = (reading.array(array(lambda i, t=t: t(leaf[i]), 1))[0] for t in tables)  # type: ignore[misc]
    assert first is again
    assert first is not other
    solved = Z3Translator()
    assert not solved.of(first).eq(solved.of(other))


def test_large_tables_of_one_name_are_compared_by_all_entries() -> None:
    """Entries of large tables are computed when they are first read; two without any computed entry seemed to be one function."""
    terms, leaf = Terms(), Leaf((1,), (0, (1 << 13) - 1), False, "c")
    reading = NormalFormEvaluator({leaf: variables(terms, "c", (1,), (0, (1 << 13) - 1))}, terms)
    tables = [Table("large", lambda c, n=n: c % n, (0, (1 << 13) - 1)) for n in (8190, 8191, 8191)]  # type: ignore[misc]
    first, other, again = (reading.array(array(lambda i, t=t: t(leaf[i]), 1))[0] for t in tables)  # type: ignore[misc]
    assert first is not other
    assert other is again


def test_divisions_by_terms_stay_beside_those_by_numbers() -> None:
    """A remainder by a term has no number to rewrite with: a sum of both kinds was an error."""
    terms, leaf = Terms(), Leaf((2,), (1, 9), False, "c")
    reading = NormalFormEvaluator({leaf: variables(terms, "c", (2,), (1, 9))}, terms)
    digits = array(lambda i: (leaf[0] % leaf[1] + leaf[0] // leaf[1] * leaf[1] + leaf[1] // 4 * 4 + leaf[1] % 4) % 8 // 2, 1)
    (found,) = reading.array(digits)
    solved = z3.substitute(Z3Translator().of(found), (z3.Int("c_0"), z3.IntVal(7)), (z3.Int("c_1"), z3.IntVal(5)))
    assert z3.simplify(solved).as_long() == (7 + 5) % 8 // 2


@pytest.mark.parametrize("sign", [1, -1])
def test_deep_terms_are_more_than_python_nests(sign: int) -> None:
    terms, leaf = Terms(), Leaf((2,), (0, 3), False, "c")
    reading = NormalFormEvaluator({leaf: variables(terms, "c", (2,), (0, 3))}, terms)
    deep: Any = leaf[0]
    for n in range(70):
        deep = maximum(sign * (deep - n), leaf[1])
    (found,) = reading.array(array(lambda i: deep, 1))
    assert isinstance(found, Term | int)


def test_a_shared_operand_of_an_untaken_branch_is_not_computed() -> None:
    """Loads beyond the end stand in branches that are not taken, and twice, so that they are kept."""
    leaf = Leaf((2,), (0, 3), False, "c")
    reading = NormalFormEvaluator({leaf: np.array([1, 2], object)}, Terms())
    beyond = array(lambda i: select(i < 2, leaf[i] * leaf[i], const(0)) + select(i < 2, leaf[i], const(0)), 4)
    assert list(reading.array(beyond)) == [2, 6, 0, 0]
    for outside, place in (((lambda i: leaf[i] + leaf[i] * 2), 2), ((lambda i: leaf[i + select(leaf[i] > 1, const(-2), const(0))]), -1)):
        with pytest.raises(SpecError, match=f"index {place} of axis 0 is outside"):
            reading.array(array(outside, 3))


@pytest.mark.parametrize("symbolic", [False, True])
def test_operators_of_words_have_their_values(symbolic: bool) -> None:
    """On numbers, and on symbols that are replaced by the numbers afterwards; words of 4 bits, of numbers on both sides of them."""
    terms, numbers = Terms(), range(-20, 21)
    leaf = Leaf((len(numbers),), (-20, 20), False, "c")
    elements = variables(terms, "c", leaf.shape, leaf.interval) if symbolic else np.array([*numbers], object)  # type: ignore[arg-type]
    reading, solved = NormalFormEvaluator({leaf: elements}, terms), Z3Translator()
    operators: list[tuple[Any, Any]] = [
        (lambda x: wrap(x, 4), lambda n: (n + 8) % 16 - 8), (lambda x: wrap(x, 4, signed=False), lambda n: n % 16),
        (lambda x: x & 7, lambda n: n & 7), (lambda x: x & 0, lambda n: 0), (lambda x: x & 5, lambda n: n & 5),
        (lambda x: x >> 1, lambda n: n >> 1), (lambda x: x << 3, lambda n: n << 3), (lambda x: -x, lambda n: -n),
        (lambda x: maximum(x, 3), lambda n: max(n, 3)), (lambda x: select(x <= 3, x, x * x), lambda n: n if n <= 3 else n * n),
    ]  # fmt: skip
    for term, plain_value in operators:
        found = reading.array(array(lambda i: term(leaf[i]), len(numbers)))  # noqa: B023
        places = [z3.substitute(z3.IntVal(0) + solved.of(x), (z3.Int(f"c_{i}"), z3.IntVal(numbers[i]))) for i, x in enumerate(found)]
        assert [z3.simplify(x).as_long() for x in places] == [plain_value(n) for n in numbers]


def test_updates_read_the_state_before_them() -> None:
    terms, leaf, other = Terms(), Leaf((3,), (0, 9), False, "c"), Leaf((3,), (0, 9), False, "d")
    memories = {leaf: np.array([1, 2, 3], object), other: variables(terms, "d", (3,), (0, 9))}
    reading, before = NormalFormEvaluator(memories, terms), list(memories[other])
    both = together(update(leaf, 3, lambda i: (2 - i, other[i])), update(other, 3, lambda i: (i, leaf[i])))
    reading.run(both)
    assert list(memories[leaf]) == before[::-1]
    assert list(memories[other]) == [1, 2, 3]
    with pytest.raises(SpecError, match="index 3 of axis 0 is outside"):
        reading.run(update(leaf, 2, lambda i: (i + select(leaf[0] < 0, const(0), const(2)) * i, other[i])))
    with pytest.raises(SpecError, match="depends on data where control is needed"):
        reading.run(update(other, 2, lambda i: (leaf[i] % 3, other[i])))


def lanes(terms: Terms, count: int) -> list[tuple[Number, Number]]:
    """Return two forms of one function of each of some variables, and of a number that all have in common."""
    shared = terms.variable("scale", (0, 255))
    elements = [terms.variable(f"x_{n}", (-128, 127)) for n in range(count)]
    squares = [terms.product(x, x) for x in elements]
    return [(terms.extremum("max", s, terms.product(x, shared)), terms.total((s, shared))) for s, x in zip(squares, elements, strict=True)]


def test_of_equations_that_differ_in_names_one_is_asked() -> None:
    terms = Terms()
    pairs = lanes(terms, 8)
    assert distinct_pairs(pairs) == pairs[:1]
    assert distinct_pairs(lanes(terms, 1) + lanes(Terms(), 3)) == lanes(terms, 1)


def test_equations_that_differ_in_more_than_names_are_all_asked() -> None:
    terms = Terms()
    x, y = (terms.variable(name, (-128, 127)) for name in "xy")
    byte = terms.variable("byte", (0, 255))
    pairs: list[tuple[Number, Number]] = [
        (x, y), (x, x), (x, byte), (x, 3), (3, x), (4, x), (terms.extremum("max", x, y), x), (terms.extremum("min", x, y), x),
        (terms.extremum("max", x, y), y), (terms.total((x, y)), x), (terms.linear_combination([(1, x), (2, y)]), x),
    ]  # fmt: skip
    assert distinct_pairs(pairs) == pairs
    assert distinct_pairs([*pairs, (y, x), (byte, x), (y, byte)]) == [*pairs, (byte, x)]
