"""Mutants of the shipped rules: a guard left out, operands exchanged, a number off by one. The court must notice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rewrite_compiler.ops.op import INT, INTS, Apply, Tensor
from rewrite_compiler.ops.static import IsConstant, ListLiteral
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.prove.verdict import Proof
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.ruleset import shipped_rules

POOLS = [f"{pool}-pool{n}d-as-reduction-of-rows" for pool in ("max", "average") for n in (1, 2)]
REDUCTIONS = [f"reduce-{kind}-{form}" for kind in ("max", "mean") for form in ("of-image-as-rows", "drop-kept-axis")]
COUNT = 30
# Without these guards the law is still true: the others keep a rule from growing, one follows from the four pads of its left side.
NOT_NEEDED = {("flatten-dense", 0), ("pad-before-conv2d", 0), ("pad-before-conv2d", 1)}
NOT_NEEDED |= {(f"{name}-{places}", 5) for name in ("add-as-bias", "multiply-as-scale") for places in (1, 2, 3)}
# These say which windows become rows of a reduction, and which reductions lose their kept axis: the laws hold for all of them.
NOT_NEEDED |= (
    {("flatten-layer-norm", 0)} | {(name, n) for name in POOLS for n in range(4)} | {(name, n) for name in REDUCTIONS for n in range(3)}
)
# A row of another rank has other axes to reduce, and how long it is does not matter: these keep the rule to halves of matrices' rows.
NOT_NEEDED -= {(f"reduce-{kind}-of-image-as-rows", 0) for kind in ("max", "mean")}
NOT_NEEDED |= {(f"reduce-{kind}-of-last-as-rows", n) for kind in ("max", "mean") for n in (1, 2)}
# Rows may be any number: these keep the rule to images that halve down to one row.
NOT_NEEDED |= {(f"reduce-{kind}-of-image-of-channels", n) for kind in ("max", "mean") for n in (1, 2)}
# A sequence of one step has all of it as its last output: this would make layers of one step again and again.
NOT_NEEDED |= {(f"state-within-{layer}", 1) for layer in ("lstm", "gru", "rnn")}
NOT_NEEDED |= {(f"state-within-{layer}-backwards", 2) for layer in ("lstm", "gru", "rnn")}
# One step is its own reverse wherever it is: these keep the rule to the last step of a sequence.
NOT_NEEDED |= {("last-step-reversed", n) for n in (0, 1, 3)}
# The laws hold for all operands that broadcast: these keep the rules to the shapes of a norm, few enough that all up to 2 or 3 are judged.
NOT_NEEDED |= {(name, n) for name in ("scaled-reciprocal", "shift-of-centred-rows") for n in (1, 2)}
# Steps continue a layer wherever they end: these keep blocks to two equal halves in line with their length.
NOT_NEEDED |= {(f"double-{layer}", n) for layer in ("lstm", "gru", "rnn") for n in range(3)}
# As many pads, kernels or axes as there are say the rank; windows of one element, or of two halves of one, would be made again and again.
NOT_NEEDED |= {(f"{pool}-pool-axis-by-axis", n) for pool in ("max", "average") for n in range(3)}
NOT_NEEDED |= {(f"{pool}-pool-of-{pool}-pool-{axes}d", 0) for pool in ("max", "average") for axes in (1, 2)}
NOT_NEEDED |= {(f"max-pool-{axis}", 0) for axis in ("1d-in-halves-0", "2d-in-halves-0", "2d-in-halves-1")}
NOT_NEEDED |= {(f"{pool}-pool-of-image-as-reduction", 0) for pool in ("max", "average")}
# What a step of one sample computes it computes for any rows: these keep rules to one row and the shapes of steps; some follow from others.
NOT_NEEDED |= {(f"{name}-past-row", n) for name in ("add", "sub", "mul") for n in (3, 4, 6)}
NOT_NEEDED |= {("subtraction-of-row", n) for n in (3, 4, 6)} | {("number-less-row", n) for n in range(6)}
NOT_NEEDED |= {("row-of-pair", n) for n in range(2, 8)}
NOT_NEEDED |= {(name, 0) for name in ("step-with-batch", "slice-past-reshape-first", "slice-past-unsqueeze")}
# These follow from the shapes that a reshape has, or keep rules to ranks at which all instances are judged.
NOT_NEEDED |= {("turn-single-matrix", 0), ("concat-of-reshapes", 2), ("flatten-integer-dense", 0)}
NOT_NEEDED |= {(name, n) for name, ns in (("flatten-layer-norm-over-axes", (0, 1)), ("reciprocal-of-scaled", (1, 2))) for n in ns}
# Slices without elements are equal, too: these keep the rules to those that have some.
SLICED = {("sliced-products-as-gate-sum", 5), ("slice-of-gate-sum", 2), ("sliced-input-of-candidate", 2), ("sliced-state-of-candidate", 2)}
SLICED |= {("row-of-dense", 2), ("slice-of-bias-add", 1), ("slice-past-unsqueeze", 2), ("concat-of-slices", 2)}
SLICED |= {(f"slice-past-reshape-{end}", 2) for end in ("first", "last")}
NOT_NEEDED |= SLICED
# `keepdims` of a reduction under a reshape: the reshape gives the same elements with and without the axis of length 1.
EQUAL = {(name, n) for name in POOLS for n in (2, 3)} | {(name, n) for name in REDUCTIONS for n in (0, 1)}


# A flag that is not zero is set, whatever it is.
EQUAL |= {("gru-cell-as-layer", 0), ("shift-of-centred-rows", 1)}
# A slice of one element has one with every step.
EQUAL |= {(f"state-within-{layer}{way}", 6) for layer in ("lstm", "gru", "rnn") for way in ("", "-backwards")}
EQUAL |= {("step-of-reverse", 6), ("last-step-reversed", 8)}
EQUAL |= {(f"step-{form}", 6) for form in ("of-batch-first", "into-batch-first", "without-batch")}
EQUAL |= {("row-of-dense", 7), ("step-with-batch", 6), ("slice-of-bias-add", 9)}
# Two parts that are the same have no order.
EQUAL |= {("scale-half-of-layer-norm", n) for n in (10, 13)}
# There are no pads to count, a stride of 1 leaves nothing to round up, and axes of a reduction have no order.
EQUAL |= {("average-pool-axis-by-axis", n) for n in (5, 6, 12, 13)}
EQUAL |= {(f"average-pool-of-average-pool-{axes}d", n) for axes, n in ((1, 2), (1, 3), (2, 4), (2, 5))}
EQUAL |= {
    (f"max-pool-{axis}", n) for axis, ns in (("1d-in-halves-0", (2, 3)), ("2d-in-halves-0", (5, 6)), ("2d-in-halves-1", (5, 6))) for n in ns
}
EQUAL |= {(f"{pool}-pool-of-image-as-reduction", n) for pool in ("max", "average") for n in (0, 1)}
EQUAL |= {("reduce-max-as-window", n) for n in (1, 2)} | {("reduce-mean-as-window", n) for n in range(1, 5)}
# What windows do shows from extents of 3 on: all instances, which are few.
WINDOWED = ("axis-by-axis", "pool-of-max-pool", "pool-of-average-pool", "in-halves", "of-image-as-reduction")
MOST = 24  # mutants of one rule; of more, an even choice


def judged(rule: Rule) -> Proof:
    """Judge a rule at some of its instances, one of windows at all."""
    return prove_rule(rule, count=None if any(part in rule.name for part in WINDOWED) else COUNT)


def without_one_guard() -> Iterator[tuple[Rule, int]]:
    for r in shipped_rules():
        yield from ((r, n) for n, c in enumerate(r.where) if not isinstance(c, IsConstant))


@pytest.mark.parametrize(("rule", "n"), list(without_one_guard()), ids=str)
def test_every_guard_is_needed(rule: Rule, n: int) -> None:
    mutant = replace(rule, where=rule.where[:n] + rule.where[n + 1 :])
    proof = judged(mutant)
    if (rule.name, n) in NOT_NEEDED:
        assert proof.verdict != "refuted", proof
    else:
        assert proof.verdict == "refuted", proof


def changed(t: Tensor) -> Iterator[Tensor]:
    """Yield right sides with one operator changed."""
    if not isinstance(t, Apply):
        return
    if len(t.operands) == 2 and t.op.name not in ("add", "mul"):
        yield replace(t, operands=t.operands[::-1])
    for a in t.op.attributes:
        value = t.attributes[a.name]
        if a.kind == INTS and isinstance(value, ListLiteral) and len(value.elements) > 1 and value.elements[-1] is not value.elements[-2]:
            yield replace(
                t, attributes={**t.attributes, a.name: ListLiteral((*value.elements[:-2], value.elements[-1], value.elements[-2]))}
            )
        if a.kind == INT and not isinstance(value, str | float):
            yield replace(t, attributes={**t.attributes, a.name: value + 1})  # type: ignore[operator]
            yield replace(t, attributes={**t.attributes, a.name: value - 1})  # type: ignore[operator]
    for n, operand in enumerate(t.operands):
        yield from (replace(t, operands=(*t.operands[:n], x, *t.operands[n + 1 :])) for x in changed(operand))


def mutants() -> Iterator[tuple[Rule, int]]:
    for r in shipped_rules():
        made = [(k, right) for k, pair in enumerate(r.pairs) for right in changed(pair[1])]
        for n in range(0, len(made), -(-len(made) // MOST) or 1):
            k, right = made[n]
            yield replace(r, pairs=(*r.pairs[:k], (r.pairs[k][0], right), *r.pairs[k + 1 :])), n


@pytest.mark.parametrize(("mutant", "n"), list(mutants()), ids=str)
def test_changed_right_sides_are_refuted(mutant: Rule, n: int) -> None:
    proof = judged(mutant)
    if (mutant.name, n) in EQUAL:
        assert proof.verdict != "refuted", proof
    else:
        assert proof.verdict == "refuted", proof
