"""Variants of false laws: a share of those that `benchmarks/variants.py` judges, drawn by another seed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rewrite_compiler.rewrite.rule import Rule

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import variants  # noqa: E402

SHARE, SEED = 16, 7


@pytest.mark.parametrize("variant", variants.variants(SHARE, SEED), ids=str)
def test_no_variant_is_proved_that_a_wide_draw_refutes(variant: Rule) -> None:
    judged = variants.row(0, variant)
    assert judged["witness"] is None, judged


def test_variants_change_what_a_careless_judge_tries_at_two_values() -> None:
    sides = "max(relu(x), x) = slice(x, axis=0, start=2, stop=k[0], step=1)"
    text = f"rule law(x: tensor, k: ints) grade A {{\n    {sides}\n    where x.rank == 4\n}}"
    made = {*variants.changes(text)}
    for part in ("start=1,", "start=4,", "step=2)", "x.rank == 5", "x.rank < 4", "min(relu(x)", "max(abs(x)"):
        assert any(part in other for other in made), part
    assert any("where" not in other for other in made)
