"""Einsum as moves and matrix products: what onnxruntime computes, and what stays with the host."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import agrees, imported, single

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.normalise.einsum import parse_equation

PRODUCTS = {
    "bsd,dhk->bshk": [(1, 5, 8), (8, 2, 4)],
    "bshk,hkd->bsd": [(1, 5, 2, 4), (2, 4, 8)],
    "bij,bkj->bik": [(3, 4, 5), (3, 6, 5)],
    "bhqk,bhkd->bqhd": [(1, 2, 3, 4), (1, 2, 4, 5)],
    "bqhd,bkhd->bhqk": [(1, 3, 2, 4), (1, 5, 2, 4)],
    "... i j , j k -> ... i k": [(2, 3, 4), (4, 5)],
    "...ij,...jk": [(2, 3, 4), (2, 4, 5)],
    "ij,jk": [(3, 4), (4, 5)],
    "ij,j->i": [(3, 4), (4,)],
    "i,i->": [(4,), (4,)],
}


@pytest.mark.parametrize("text", PRODUCTS)
def test_a_product_of_two_operands_is_one_of_matrices(text: str) -> None:
    found = [n.op for n in agrees(single("Einsum", PRODUCTS[text], equation=text)).program.nodes]
    assert found.count("matmul") == 1
    assert set(found) <= {"matmul", "reshape", "transpose"}


def test_one_operand_may_be_turned() -> None:
    assert [n.op for n in agrees(single("Einsum", [(2, 3, 4)], equation="abc->cab")).program.nodes] == ["transpose"]


@pytest.mark.parametrize(
    ("text", "shapes", "reason"),
    [
        ("ii->i", [(3, 3)], "it takes a diagonal"),
        ("ij->i", [(3, 4)], "it is neither a transposition nor a product of two operands"),
        ("ij,kl->ijkl", [(2, 3), (4, 5)], "it sums an axis of one operand, or none of both"),
        ("ijl,jk->ik", [(2, 3, 2), (3, 5)], "it sums an axis of one operand, or none of both"),
    ],
)
def test_other_equations_stay_with_the_host(text: str, shapes: list[tuple[int, ...]], reason: str) -> None:
    (opaque,) = imported(single("Einsum", shapes, equation=text)).program.opaque.values()
    assert opaque.reason == reason


@pytest.mark.parametrize("text", ["ijk,jk->i", "ij,jk->iik", "ij,jk->iz", "i.j,jk->ik"])
def test_an_equation_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(FlexmatchError) as caught:
        parse_equation(text, [2, 2])
    assert caught.value.problem.sentence == f'Einsum "{text}" does not fit operands of ranks 2, 2'


def test_an_equation_has_a_term_for_each_operand() -> None:
    with pytest.raises(FlexmatchError) as caught:
        parse_equation("ij,jk,kl->il", [2, 2])
    assert caught.value.problem.sentence == 'Einsum "ij,jk,kl->il" has 3 terms for 2 operands'


def test_a_power_of_minus_one_half_is_a_reciprocal_root() -> None:
    found = [n.op for n in imported(single("Pow", [(2, 3), np.asarray(-0.5, np.float32)])).program.nodes]
    assert found == ["sqrt", "reciprocal"]
