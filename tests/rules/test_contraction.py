"""Contractions: a known factor at the left is what weights are, windows go back to a convolution, and wrong laws are refuted."""

from __future__ import annotations

from pathlib import Path

import pytest
import unrolled as u
from offloaded import agree

from rewrite_compiler import IsConstant, Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.frontend.load import load
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.prove.verdict import REFUTED
from rewrite_compiler.rewrite import Ints
from rewrite_compiler.rewrite.ruleset import rules_at, shipped_rules
from rewrite_compiler.rules import contraction
from rewrite_compiler.target import find_target

LAWS = [contraction.rows_of_constant, contraction.constant_rows_as_weights, *contraction.windows]
RING = ("ring",)


@rule(grade="E", marks=RING)
def rows_turned(a: Tensor, b: Tensor) -> Law:
    """a·b = reshape(b·reshape(a)), false: the factors change sides"""
    y = o.matmul(a, b)
    k = b.shape[0]
    square = Where(a.rank == 3, b.rank == 2, k == b.shape[1], a.shape[0] * a.shape[1] == k, k > 0)
    return y, o.reshape(o.matmul(b, o.reshape(a, (k, k))), y.shape), square


@rule(grade="E", marks=RING)
def weights_not_turned_back(a: Tensor, b: Tensor) -> Law:
    """dense(a, b) = dense(b, a), false: the result is turned"""
    return o.dense(a, b), o.dense(b, a), Where(IsConstant(a), a.rank == 2, a.shape == b.shape)


@rule(grade="A", marks=RING)
def windows_of_the_wrong_order(x: Tensor, w: Tensor, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints) -> Law:
    """dense(im2col(x), w) = reshape(conv(x, reshape(w))), false: channels come before places"""
    y = o.dense(o.im2col(x, kernel, strides, pads, dilations), w)
    image = o.conv(x, o.reshape(w, (w.shape[0], x.shape[1], kernel[0])), strides, pads, dilations, group=1)
    return y, o.reshape(image, y.shape), Where(x.rank == 3, w.size > 0)


@rule(grade="E", marks=RING)
def blocks_of_columns(x: Tensor, w: Tensor) -> Law:
    """dense(x, w) = dense(x, the first half of w's rows) beside dense(x, the others)"""
    half, columns = w.shape[0] // 2, w.shape[0]
    blocks = (o.dense(x, o.slice_(w, axis=0, start=a, stop=b)) for a, b in ((0, half), (half, columns)))
    return o.dense(x, w), o.concat(*blocks, axis=1), Where(x.rank == 2, columns > 1)


@rule(grade="E", marks=RING)
def blocks_exchanged(x: Tensor, w: Tensor) -> Law:
    """dense(x, w) = dense(x, the second half of w's rows) beside dense(x, the others), false"""
    half, columns = w.shape[0] // 2, w.shape[0]
    blocks = (o.dense(x, o.slice_(w, axis=0, start=a, stop=b)) for a, b in ((half, columns), (0, half)))
    return o.dense(x, w), o.concat(*blocks, axis=1), Where(x.rank == 2, columns > 1)


@pytest.mark.parametrize("law", [*LAWS, blocks_of_columns], ids=str)
def test_the_laws_are_proved(law: Rule) -> None:
    proof = prove_rule(law, count=20)
    assert proof.is_proved, proof.problem


@pytest.mark.parametrize("law", [rows_turned, weights_not_turned_back, windows_of_the_wrong_order, blocks_exchanged], ids=str)
def test_wrong_laws_are_refuted(law: Rule) -> None:
    proof = prove_rule(law, count=20)
    assert proof.verdict == REFUTED
    assert proof.counterexample is not None


CONTRACTIONS = {  # equation, extents, which operand is known; the three of Union among them
    "intensli2": ("dbea,ec->abcd", {"a": 2, "b": 3, "c": 4, "d": 2, "e": 5}),
    "ccsd7": ("adec,ebd->abc", {"a": 2, "b": 3, "c": 4, "d": 2, "e": 5}),
    "ccsd-t4": ("dfgb,geac->abcdef", {"a": 2, "b": 3, "c": 2, "d": 2, "e": 3, "f": 2, "g": 4}),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_a_contraction_with_a_known_left_operand_is_offloaded(name: str, tmp_path: Path) -> None:
    equation, sizes = CONTRACTIONS[name]
    left, right = ([sizes[d] for d in term] for term in equation.split("->")[0].split(","))
    g = u.Graph()
    y = g("Einsum", g.weight(*left), "x", equation=equation)
    source = load(u.saved(u.model_of(g, {"x": tuple(right)}, [y]), tmp_path)).program
    mappings = [m for m in find_target("flexasr").mappings.values() if m.operation == "linear"]
    before = match(source, shipped_rules(), mappings, DEFAULT).program
    after = match(source, (*shipped_rules(), *LAWS), mappings, DEFAULT).program
    assert [n.op for n in before.nodes if n.op in ("matmul", "flexasr.linear")] == ["matmul"]
    assert [n.op for n in after.nodes if n.op in ("matmul", "flexasr.linear")] == ["flexasr.linear"]
    agree(source, after)


def test_the_laws_are_among_the_lowerings_alone() -> None:
    assert {r.name for r in LAWS} <= {r.name for r in rules_at(Path("lowering"))}
    assert not {r.name for r in LAWS} & {r.name for r in shipped_rules()}
