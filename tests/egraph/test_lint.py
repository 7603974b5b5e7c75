"""Lint: rules that are each true and explode together are found on a small program, with their lines."""

from __future__ import annotations

import re

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.egraph.saturation.explosion_lint import Explosion, explosion_of, small_program
from rewrite_compiler.ir.evaluate import random_inputs, run
from rewrite_compiler.rewrite.ruleset import shipped_rules


@rule(grade="Z")
def zero_bias_at_once(x: Tensor, w: Tensor) -> Law:
    """dense(x, w) = bias_add(dense(x, w), 0)"""
    y = o.dense(x, w)
    return y, o.bias_add(y, o.full((w.shape[0],), 0.0), axis=1), Where(x.rank == 2, IsConstant(w))


@rule(grade="E")
def bias_as_sum(x: Tensor, b: Tensor) -> Law:
    """bias_add(x, b, last) = x + b"""
    return o.bias_add(x, b, axis=1), o.add(x, b), Where(x.rank == 2)


@rule(grade="A")
def associate(x: Tensor, y: Tensor, z: Tensor) -> Law:
    """(x + y) + z = x + (y + z)"""
    return o.add(o.add(x, y), z), o.add(x, o.add(y, z)), Where(x.shape == y.shape, y.shape == z.shape)


@rule(grade="A")
def associate_freely(x: Tensor, y: Tensor, z: Tensor) -> Law:
    """(x + y) + z = x + (y + z), whatever the shapes"""
    return o.add(o.add(x, y), z), o.add(x, o.add(y, z)), Where(x.rank == 2, y.rank <= 2, z.rank <= 2)


SHIPPED = shipped_rules()


def test_the_program_of_the_lint_computes_and_saturates() -> None:
    p = small_program()
    assert all(v in run(p, random_inputs(p)) for v in p.outputs)
    assert explosion_of([bias_as_sum], SHIPPED) is None


def test_the_triple_is_found_with_its_lines() -> None:
    found = explosion_of([zero_bias_at_once, bias_as_sum, associate_freely], SHIPPED)
    assert found is not None
    assert zero_bias_at_once in found.rules
    assert re.search(r"grows from \d+ to \d+ e-nodes in \d+ rounds with zero-bias-at-once \(egraph/test_lint\.py:\d+\)", str(found))


def test_the_growth_is_told_from_its_first_round_to_its_last() -> None:
    growth = Explosion((associate,), (10, 25, 60, 300))
    assert re.fullmatch(
        r"a small program grows from 10 to 300 e-nodes in 3 rounds with associate \(egraph/test_lint\.py:\d+\), and is not finished",
        str(growth),
    )


def test_the_program_of_the_lint_has_what_rules_commonly_meet() -> None:
    p = small_program()
    assert [p.types[v].shape for v in p.inputs] == [(4, 4), (1, 2, 4, 4), *[(4, 4)] * 4]
    assert [p.types[v].shape for v in p.outputs] == [(2, 2, 4), (1, 3, 2, 2)]
    window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    pooled = {"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    assert [dict(n.attributes) for n in p.nodes if n.op in ("conv", "max_pool")] == [window, pooled]
    halves = [(n.attribute("start"), n.attribute("stop")) for n in p.nodes if n.op == "slice"]
    assert halves == [(1, 2), (0, 1)]  # the other way round: no rule puts them together again
