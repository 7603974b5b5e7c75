"""What a proof by blocks asks of lanes and of products, one condition after another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.ila.verification.lane_correspondence import LanesDiffer
from rewrite_compiler.prove.calls import block_proof
from rewrite_compiler.prove.calls.block_proof import _allowed_products, _check_labels, _narrow_failure
from rewrite_compiler.prove.calls.unit_element import ONES, ElementTerms

X_ROWS, X_COLUMNS, W_ROWS, W_COLUMNS = ("x", "m"), ("x", "k"), ("w", "n"), ("w", "k")
USES = {"i": [X_ROWS], "j": [W_ROWS], "c": [X_COLUMNS, W_COLUMNS]}
LABELS = {X_ROWS: "batch", W_ROWS: "out", X_COLUMNS: "in", W_COLUMNS: "in"}


def refusal(labels: dict[Any, str], *, uses: Any = None, contracted: str = "c", summed: str = "in", multiplies: str = "") -> str:
    """Return why lanes do not lie as the numerics combine them, nothing where they do."""
    numerics = SimpleNamespace(uses=uses or USES, contracted=set(contracted), multiplies="numerics" in multiplies)
    streams: Any = SimpleNamespace(labels_of=labels, summed_labels=set(filter(None, [summed])), multiplies="stream" in multiplies)
    try:
        _check_labels(SimpleNamespace(), streams, numerics)  # type: ignore[arg-type]
    except LanesDiffer as difference:
        return str(difference)
    return ""


def test_lanes_lie_as_the_numerics_combine_them() -> None:
    assert refusal(LABELS) == ""
    pointwise = {"i": [X_ROWS, W_ROWS]}
    assert refusal({X_ROWS: "in", W_ROWS: "in"}, uses=pointwise, contracted="", summed="", multiplies="numerics stream") == ""


@pytest.mark.parametrize(
    ("labels", "others", "sentence"),
    [
        ({X_COLUMNS: "out"}, {}, "'c' of the numerics runs over the lanes ['in', 'out'] of elements"),
        ({X_ROWS: None}, {}, "'i' of the numerics runs over the lanes [] of elements"),
        ({W_COLUMNS: None}, {}, "'c' of the numerics runs over the lanes ['in'] of elements"),
        ({X_ROWS: "out"}, {}, "two dimensions that the numerics keep apart lie along one axis of elements"),
        ({}, {"summed": ""}, "the stream sums products over other lanes than the numerics"),
        ({}, {"summed": "out"}, "the stream sums products over other lanes than the numerics"),
        ({}, {"contracted": ""}, "the stream sums products over other lanes than the numerics"),
        ({}, {"contracted": "cj"}, "the stream sums products over other lanes than the numerics"),
        ({}, {"multiplies": "numerics"}, "products of lanes and products of elements both occur"),
        ({}, {"multiplies": "stream"}, "products of lanes and products of elements both occur"),
    ],
)
def test_other_lanes_are_refused(labels: dict[Any, str], others: dict[str, str], sentence: str) -> None:
    changed = {lane: label for lane, label in {**LABELS, **labels}.items() if label is not None}
    assert refusal(changed, **others) == sentence  # type: ignore[arg-type]


def test_products_are_of_two_operands_one_of_which_ends_with_zeros() -> None:
    x, w, b = "x", "w", "b"
    assert _allowed_products({x, w, b}, set(), set(), {w}) == {frozenset((x, w)), frozenset((w, b))}
    assert _allowed_products({x, w}, set(), set(), set()) == set()
    assert _allowed_products({x, w}, {x, w}, set(), {w}) == {frozenset((x, w)), frozenset((ONES, w))}
    assert _allowed_products({x, w, b}, set(), {b}, {w}) == {frozenset((w, b))}


def narrow(monkeypatch: pytest.MonkeyPatch, *factors: str, op: str = "mul") -> str:
    """Return why a run whose one result is a term of elements of operands is no proof; x and w are multiplied, w ends with zeros."""

    def ran(*given: Any) -> Any:
        terms: ElementTerms = given[3]
        operands = {n: terms.variable(f"{n}_0", (0, 9)) for n in "xwb"}
        result = terms.make(op, None, tuple(operands[n] for n in factors), (0, 99))  # type: ignore[arg-type]
        return SimpleNamespace(pairs=[(result, result)], operands={n: np.array([t], object) for n, t in operands.items()})

    monkeypatch.setattr(block_proof, "execute", ran)
    monkeypatch.setattr(block_proof, "_with_ones", lambda *_: (set(), frozenset()))
    call: Any = SimpleNamespace(narrow_mapping=None, narrow=SimpleNamespace(ila=lambda: None), stay=None)
    streams: Any = SimpleNamespace(multiplied_operands={"x", "w"}, diagonals={})
    return _narrow_failure(call, {}, streams, SimpleNamespace(unpadded={"x"}))  # type: ignore[arg-type]


def test_a_term_that_is_no_product_of_two_operands_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    assert narrow(monkeypatch, "x", "w") == narrow(monkeypatch, "w", "x") == ""
    for factors in (("x", "x"), ("w", "w"), ("x", "b"), ("b", "w"), ("b", "b")):
        assert "is no product of one element of each of two operands" in narrow(monkeypatch, *factors)
    for factors in (("x", "b"), ("w",), ("w", "x")):
        assert "is no product of one element of each of two operands" in narrow(monkeypatch, *factors, op="max")
    assert narrow(monkeypatch, "b", "b", op="max") == ""
