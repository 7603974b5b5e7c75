"""Terms that are the same have one digest, in whatever order they were made; what differs in anything has another."""

from __future__ import annotations

from fractions import Fraction

import pytest

from rewrite_compiler.lang import (
    NOTHING,
    Expr,
    Leaf,
    Step,
    array,
    assign,
    const,
    fold,
    let,
    loop,
    reduce_sum,
    require,
    sat,
    seq,
    when,
    wrap,
)
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.binders import Array, scalar_array
from rewrite_compiler.lang.structural_hash import StructuralHash, Undigested

BYTE = iv.of_width(8, False)


def digest(*terms: Expr | Array) -> str:
    found = StructuralHash()
    found.add(*terms)
    return found.text()


def term(name: str = "m", interval: iv.Interval = BYTE, by: int = 3, bits: int = 8, count: int = 8, plus: int = 1) -> Expr:
    memory = Leaf((16,), interval, False, name)
    products = array(lambda i: memory[i] * by + plus, count)
    return wrap(reduce_sum(lambda k: products[k], count) + memory[0], bits)


def test_equal_terms() -> None:
    assert digest(term()) == digest(term())
    assert digest(term(), term()) != digest(term())


@pytest.mark.parametrize("change", [{"name": "n"}, {"interval": (0, 100)}, {"by": 4}, {"bits": 9}, {"count": 7}, {"plus": 2}])
def test_what_differs(change: dict[str, object]) -> None:
    assert digest(term(**change)) != digest(term())  # type: ignore[arg-type]


def test_which_leaf_a_term_reads() -> None:
    a, b = (Leaf((), BYTE, False, name) for name in "ab")
    assert digest(a, b, a[()]) != digest(a, b, b[()])
    assert digest(a[()] - b[()]) != digest(b[()] - a[()])


def test_a_fold_has_none() -> None:
    memory = Leaf((16,), BYTE, False, "m")
    with pytest.raises(Undigested):
        digest(fold(16, 0, lambda k, total: sat(total + memory[k], 8), iv.of_width(8, True)))


def test_fractions_have_digests_too() -> None:
    half, third = (digest(const(Fraction(1, n)) + term()) for n in (2, 3))
    assert half == digest(const(Fraction(1, 2)) + term()) != third


def test_steps() -> None:
    memory = Leaf((16,), BYTE, False, "m")

    def made(by: int = 1, code: str = "I103", count: int = 4) -> Step:
        def body(k: Expr) -> Step:
            checked = require(memory[k] < 9, code, "{n} is too large", always=True, n=memory[k])
            return seq(checked, when(k > by, let(scalar_array(memory[k]), lambda x: assign(memory, wrap(x[()] + by, 8, False), k))))

        return loop(count, body)

    def digested(step: Step) -> str:
        found = StructuralHash()
        found.step(step)
        return found.text()

    assert digested(made()) == digested(made())
    assert len({digested(x) for x in (made(), made(2), made(code="I102"), made(count=5), NOTHING, made().body)}) == 6  # type: ignore[attr-defined]
