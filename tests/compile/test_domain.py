"""Domains: a rule matches only operands as large as it is proved for, and `explain` says where that keeps it from a node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from command import flexmatch
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.compile import Options, Plan, compile_model, plan_onnx
from rewrite_compiler.compile.formats.operating_range import domain_exclusions
from rewrite_compiler.compile.plan.user_rules import with_proved_domain
from rewrite_compiler.compile.verify import check_plan
from rewrite_compiler.egraph.saturation.rule_text import rule_text
from rewrite_compiler.egraph.saturation.saturate import saturate
from rewrite_compiler.ir.program import Builder, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.prove.certificates.shipped_certificates import certificate_of_rule
from rewrite_compiler.prove.rules import rules as judge
from rewrite_compiler.rewrite.domain import EVERYWHERE, Domain
from rewrite_compiler.rewrite.ruleset import every_rule, shipped_rules
from rewrite_compiler.rewrite.text_file import rules_of_file, rules_of_text

# true of few axes: the law of some ranks, the axes from which it is false, the perm that shows it
LAWS = """rule g1(x: tensor, p: ints) grade A {
    transpose(x, perm=p) = x
    where x.rank > 2, AXES
}
rule g3(x: tensor, p: ints) grade A {
    transpose(transpose(x, perm=p), perm=p) = x
    where x.rank > 2, AXES
}
"""


def law(name: str, kept: int) -> str:
    """Return a law that is true where at most one pair of axes is left to be exchanged: of ranks to `kept` + 1."""
    text = next(f"rule {r}" for r in LAWS.split("rule ") if r.startswith(name))
    return text.replace("AXES", ", ".join(f"p[{n}] == {n}" for n in range(kept)))


def turned(shape: tuple[int, ...], perm: tuple[int, ...]) -> Program:
    b = Builder("p")
    return b.finish(b.apply("transpose", [b.input("x", TensorType(shape))], {"perm": perm}))


def test_a_match_beyond_the_domain_does_not_exist() -> None:
    (r,) = rules_of_text(law("g1", 3), "g.rules")
    small, large = turned((2, 2, 2, 3), (0, 1, 2, 3)), turned((2, 2, 2, 3, 3), (0, 1, 2, 4, 3))
    for domain, at in ((EVERYWHERE, (True, True)), (Domain(4), (True, False)), (Domain(3), (False, False))):
        within = replace(r, domain=domain)
        assert tuple(within.name in saturate(p, [within], []).matches for p in (small, large)) == at


def test_shapes_that_a_pattern_binds_are_in_the_domain_too() -> None:
    r = next(r for r in shipped_rules() if r.name == "fuse-reshapes")
    for shape, matches in (((2, 2, 2, 3), True), ((1, 2, 2, 2, 3), False)):
        b = Builder("p")
        inner = b.apply("reshape", [b.input("x", TensorType((24,)))], {"shape": (4, 6)})
        p = b.finish(b.apply("reshape", inner, {"shape": shape}))
        within = replace(r, domain=Domain(4))
        assert (within.name in saturate(p, [within], []).matches) is matches


def test_what_the_guard_says_is_not_asked_again() -> None:
    (r,) = rules_of_text("rule two(x: tensor) grade A {\n relu(x) = x\n where x.rank == 2\n}\n", "r.rules")
    assert rule_text(replace(r, domain=Domain(4)), 0) == rule_text(r, 0)
    assert rule_text(replace(r, domain=Domain(1)), 0) != rule_text(r, 0)


def test_every_shipped_rule_is_used_where_its_certificate_holds() -> None:
    for r in every_rule():
        found = certificate_of_rule(r)
        assert found is not None
        assert with_proved_domain(r).domain == Domain(found.ranks)
        assert certificate_of_rule(with_proved_domain(r)) == found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A transposition of the last of six axes, and a product."""
    weights = numpy_helper.from_array(np.random.default_rng(0).normal(size=(36, 8)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 2, 3, 5, 4], name="turn"),
        helper.make_node("Reshape", ["t", "s"], ["r"], name="rows"),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="product"),
    ]
    ports = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in (("x", [1, 2, 2, 2, 6, 6]), ("y", [8, 8]))]
    graph = helper.make_graph(nodes, "turned", *ports, [weights, numpy_helper.from_array(np.array([8, 36]), "s")])
    path = tmp_path / "turned.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def compiled(model: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return a plan with a law that is proved for ranks to 5 and false of rank 6; the wide draws, which refute it, look away."""
    rules = model.with_name("mine.rules")
    rules.write_text(law("g1", 4))
    monkeypatch.setattr(judge, "witness", lambda *_, **__: None)
    assert judge.prove_rule(rules_of_file(rules)[0]).is_proved
    return compile_model(model, "flexasr", Options(rules=(rules,)))


def test_a_law_of_few_axes_does_not_change_a_model_of_more(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(model.parent / "cache"))
    plan = compiled(model, monkeypatch)
    assert [n.op for n in plan.program.nodes] == ["transpose", "reshape", "flexasr.linear"]
    assert check_plan(plan, plan_onnx(plan), model).relative_difference is not None
    assert "g1 does not match: proved for ranks to 5" in domain_exclusions(plan, "turn")


def test_explain_says_that_a_rule_is_not_proved_for_a_node(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (r,) = rules_of_text(law("g1", 4), "g.rules")
    monkeypatch.setattr("rewrite_compiler.compile.formats.operating_range.rules_of", lambda plan, limits: [replace(r, domain=Domain(5))])
    answer = flexmatch("explain", str(model), "turn", "--accel", "flexasr")
    assert answer.code == 0, answer.err
    assert "  g1 does not match: proved for ranks to 5\n" in answer.out


def test_what_an_operator_takes_is_not_asked_again() -> None:
    (r,) = rules_of_text("rule two(x: tensor, w: tensor) grade A {\n dense(x, w) = matmul(x, transpose(w, perm=[1, 0]))\n}\n", "r.rules")
    text = rule_text(replace(r, domain=Domain(5)), 0)
    assert "(<= (vec-length s_v_x) 5)" in text
    assert "s_v_w" not in text
