"""Products that both sides of an equivalence compute are cut: one symbol where they are equal, two where they only look so."""

from __future__ import annotations

from typing import Any

import pytest
import z3

from rewrite_compiler.emit.rtl.emit import verilog_device
from rewrite_compiler.emit.rtl.readback_check import check_verilog
from rewrite_compiler.ila import ila
from rewrite_compiler.readings.smt.evaluator import refute
from rewrite_compiler.readings.smt.solver import Outcome
from rewrite_compiler.readings.verilog.products import abstract_products, constants_of

INDEX, J, X = z3.BitVec("i", 16), z3.BitVec("j", 16), z3.BitVec("x", 16)
CODES = z3.Array("codes", z3.BitVecSort(16), z3.BitVecSort(13))


def product(first: Any, second: Any, width: int) -> Any:
    return z3.SignExt(width - first.size(), first) * z3.SignExt(width - second.size(), second)


def cut(text: Any, model: Any, *premises: Any) -> tuple[str, int]:
    """Return the verdict on two words with their products cut, and the number of symbols."""
    abstracted = abstract_products(text != z3.SignExt(text.size() - model.size(), model), premises)
    assert abstracted is not None
    symbols = [x for x in constants_of(abstracted) if str(x).startswith("product")]
    return refute(abstracted, 5.0).outcome, len(symbols)


def test_products_of_equal_words_are_one() -> None:
    """At another width, with other words of the index, and the operands exchanged."""
    text = product(CODES[INDEX * 2 + J], CODES[X], 40)
    assert cut(text, product(CODES[X], CODES[J + INDEX + INDEX], 26)) == (Outcome.PROVED, 1)


@pytest.mark.parametrize(
    "other",
    [CODES[INDEX + 1], z3.If(INDEX == 0x1234, z3.BitVecVal(0, 13), CODES[INDEX]), CODES[X]],
    ids=["another word", "the same word but at one index", "the other operand twice"],
)
def test_products_that_differ_stay_two(other: Any) -> None:
    assert cut(product(CODES[INDEX], CODES[X], 40), product(other, CODES[X], 26)) == (Outcome.REFUTED, 2)


def test_what_is_equal_under_a_premise_alone_needs_the_premise() -> None:
    text, model = product(CODES[INDEX], CODES[X], 40), product(z3.If(J == 0x7777, CODES[J], CODES[INDEX]), CODES[X], 26)
    assert cut(text, model) == (Outcome.REFUTED, 2)
    assert cut(text, model, J != 0x7777) == (Outcome.PROVED, 1)


def test_a_product_with_a_number_is_none() -> None:
    assert abstract_products(INDEX * 3 != J, ()) is None


def test_clocks_of_flexasr_that_multiply_are_proved() -> None:
    """Addresses in one, numbers of a layer norm with a table between them in the other; the solver alone decides neither in a second."""
    m, clocks = ila("flexasr"), {"clock 58 of gb_control_start", "clock 227 of gb_layer_norm_start"}
    (text,) = [data.decode() for path, data in verilog_device(m).files.items() if path.endswith("_device.v")]
    found = {j.part: j.verdict.outcome for j in check_verilog(text, m, seconds=1.0, only=clocks)}
    assert found == dict.fromkeys({"words", *clocks}, "proved")
