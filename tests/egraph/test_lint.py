"""Lint: rules that are each true and explode together are found on a small program, with their lines."""

from __future__ import annotations

import re

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.egraph.lint import growth_of, small_program
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
    assert growth_of([bias_as_sum], SHIPPED) is None


def test_the_triple_is_found_with_its_lines() -> None:
    found = growth_of([zero_bias_at_once, bias_as_sum, associate_freely], SHIPPED)
    assert found is not None
    assert zero_bias_at_once in found.rules
    assert re.search(r"grows from \d+ to \d+ e-nodes in \d+ rounds with zero-bias-at-once \(egraph/test_lint\.py:\d+\)", str(found))
