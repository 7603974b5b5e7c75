"""Rules of a user that explode: the plan is valid, within the limits, and names rules and lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plan_checks import check_semantics
from small_models import SPELLINGS

from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.limits import DEFAULT

RULES = '''"""A true law that has no end beside the others."""

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o


@rule(grade="Z")
def zero_bias_at_once(x: Tensor, w: Tensor) -> Law:
    """dense(x, w) = bias_add(dense(x, w), 0)"""
    y = o.dense(x, w)
    return y, o.bias_add(y, o.full((w.shape[0],), 0.0), axis=1), Where(x.rank == 2, IsConstant(w))
'''


def test_a_rule_without_an_end_is_named_with_its_line(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "endless.py"
    file.write_text(RULES, "utf-8")
    path = SPELLINGS["Gemm"][0](model)
    limits = replace(DEFAULT, e_nodes=4_000)
    plan = compile_model(path, ["flexasr"], Options(rules=(file,), trusted=("zero-bias-at-once",), limits=limits))
    assert plan.counts["flexasr"] == {"linear": 1}
    assert any(n.startswith("added rules may not come to an end: a small program grows from") for n in plan.notes)
    assert any("zero-bias-at-once" in n and "endless.py:7" in n for n in plan.notes)
    assert plan.egraph["stop"]["reason"] == "e_nodes"
    assert "most matches:" in plan.limited[0]
    check_semantics(plan, path)
