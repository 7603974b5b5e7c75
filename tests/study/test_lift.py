"""Lifting: the operations of an accelerator follow from its model alone, bit for bit those that were written by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.study.lift.lift import HEAD, Lifted, NotLifted, lift, lifted, target_file
from rewrite_compiler.study.lift.patterns import PATTERNS
from rewrite_compiler.target import Mapping, Target, find_target, load_target

ACCELERATORS = Path(__file__).parents[1] / "sched" / "accelerators"
BY_NAME = {p.name: p for p in PATTERNS}


@cache
def accelerator(name: str) -> Target:
    return load_target(str(ACCELERATORS / f"{name}.py"))


def written(target: Target, operation: str, path: Path) -> Mapping:
    """Return an operation as it is lifted, from a file that has no other."""
    row = lifted(target, BY_NAME[operation])
    assert isinstance(row, Lifted), row
    name = target.name
    body = (ACCELERATORS / f"{name}.py").read_text().partition("@target.accelerates")[0]
    text, _, rest = (HEAD.format(name=name) + row.text).partition('def accelerate(target):\n    """Give a target its operations."""\n')
    path.write_text(f'{body}\n{text}\ndef accelerate(target):\n    """Give a target its operations."""\n{rest}\n\naccelerate(target)\n')
    return load_target(str(path)).mappings[operation]


@pytest.mark.parametrize(("name", "operation"), [("toy", "dense"), ("systolic", "dense"), ("vector", "mul")])
def test_numerics_are_those_that_were_written_by_hand(name: str, operation: str, tmp_path: Path) -> None:
    target = accelerator(name)
    m, hand = written(target, operation, tmp_path / f"{name}.py"), target.mappings[operation]
    at = {"t": 3, "k": 24, "n": 10}
    random = np.random.default_rng(0)
    shapes = [tuple(at[d] for d in m.axes.of[v.name]) for v in m.operands]
    formats = m.formats_for(dict(zip(m.format_choices, (0.5, 3.0, 40.0), strict=False)))
    codes = [random.integers(*formats[v.name].codes, s, endpoint=True) for v, s in zip(m.operands, shapes, strict=True)]
    results = []
    for mapping in (m, hand):
        names = [v.name for v in mapping.operands]
        own = dict(zip([*names, mapping.axes.result], [formats["x"], formats["w"], formats["y"]], strict=True))
        leaves = [Leaf(s, own[n].codes, False, n) for s, n in zip(shapes, names, strict=True)]
        results.append(evaluate(mapping.result_codes(leaves, own, {}), dict(zip(leaves, codes, strict=True))))
    assert np.array_equal(*results)


SIZES = {"t": 3, "k": 48, "b": 2, "c": 32, "i": 7, "j": 6, "n": 21, "r": 3, "s": 2, "u": 3, "v": 5}
ATTRIBUTES = {"strides": (2, 1), "pads": (0, 0, 0, 0)}


@pytest.mark.parametrize(
    ("operation", "hand"),
    [
        ("dense", "dense"), ("dense_bias_relu", "dense_bias_relu"), ("add", "add_2"), ("mul", "mul_2"), ("conv2d", "conv2d"),
        ("conv2d_bias_relu", "conv2d_bias_relu"),
    ],
)  # fmt: skip
def test_operations_of_a_shipped_accelerator_are_those_that_were_written_by_hand(operation: str, hand: str, tmp_path: Path) -> None:
    """VTA: DRAM, queues, micro-ops and stores of one byte; codes of all sizes that the hand-written ones take."""
    vta = find_target("vta")
    row = lifted(vta, BY_NAME[operation])
    assert isinstance(row, Lifted), row
    path = tmp_path / "vta_lifted.py"
    path.write_text(target_file(HEAD.format(name="vta") + row.text, "vta", tmp_path))
    m, other = load_target(str(path)).mappings[operation], vta.mappings[hand]
    random = np.random.default_rng(1)
    formats = m.formats_for(dict.fromkeys(m.format_choices, 3.0))
    limits = other.formats_for(dict.fromkeys(other.format_choices, 3.0))  # within which the hand-written one is used
    shapes = [[SIZES[d] for d in m.axes.of[v.name]] for v in m.operands]
    codes = [random.integers(*limits[v.name].codes, s, endpoint=True) for v, s in zip(other.operands, shapes, strict=True)]
    results = []
    for mapping in (m, other):
        leaves = [Leaf(c.shape, formats[v.name].codes, False, w.name) for c, v, w in zip(codes, m.operands, mapping.operands, strict=True)]
        names = [*(v.name for v in mapping.operands), mapping.axes.result]
        f = dict(zip(names, formats.values(), strict=True))
        attributes = {name: ATTRIBUTES[name] for name, _ in mapping.statics}
        results.append(evaluate(mapping.result_codes(leaves, f, attributes), dict(zip(leaves, codes, strict=True))))
    assert np.array_equal(*results)


def test_what_a_model_does_not_compute_is_listed_with_the_reason() -> None:
    text, rows = lift(accelerator("vector"))
    assert {r.name for r in rows if isinstance(r, Lifted)} == {"add", "mul", "max_"}
    reasons = {r.name: r.reason for r in rows if isinstance(r, NotLifted)}
    assert reasons["dense"] == "no instruction computes this from two operands"
    assert "it is off by" in reasons["sub"]
    assert "it is off by" in reasons["min_"]
    assert text.count("@target.accelerates") == 3


def test_instructions_whose_meaning_is_not_read_are_named() -> None:
    row = lifted(find_target("genesys"), BY_NAME["mul"])
    assert isinstance(row, NotLifted)
    assert row.reason.startswith("no instruction computes this from two operands; what block_end computes is not read, because an address")


def test_the_reason_counts_the_operands() -> None:
    row = lifted(accelerator("vector"), BY_NAME["dense_bias"])
    assert isinstance(row, NotLifted)
    assert row.reason == "no instruction computes this from 3 operands"
