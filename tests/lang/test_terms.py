"""Terms in a normal form: every step is an identity of integers, and what is taken apart and put together again is one term."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.lang import Table, array
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.readings.smt.normal_form_evaluator import NormalFormEvaluator, Z3Translator, variables
from rewrite_compiler.readings.smt.polynomial_terms import Number, Term, Terms, interval_of

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
