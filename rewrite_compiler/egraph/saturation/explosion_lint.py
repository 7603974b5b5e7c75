"""Explosion lint: tests whether new rules, together with others, keep a small program from saturating.

A sound rule can still explode in combination: a bias of zeros is introduced, read as a sum, associated, and introduced again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...ir.program import Builder, Program
from ...ir.types import TensorType
from ...limits import DEFAULT, MIB
from ...rewrite.rule import Rule, short_place
from ..graph.outcome import Saturation, StopReason
from .saturate import saturate

TRIAL = replace(DEFAULT, e_nodes=6_000, rounds=24, saturation_seconds=20, saturation_bytes=768 * MIB)
MOST_SUSPECTS = 8  # new rules that are tried one by one


@dataclass(frozen=True)
class Explosion:
    """An explosion: the new rules without each of which the small program saturates, and its e-nodes round by round with all rules."""

    rules: tuple[Rule, ...]
    e_nodes: tuple[int, ...]

    def __str__(self) -> str:
        suspects = ", ".join(f"{r.name} ({short_place(r.place)})" for r in self.rules)
        first, last = self.e_nodes[0], self.e_nodes[-1]
        return (
            f"a small program grows from {first} to {last} e-nodes in {len(self.e_nodes) - 1} rounds with {suspects}, and is not finished"
        )


def explosion_of(new: Sequence[Rule], existing: Sequence[Rule]) -> Explosion | None:
    """Return the explosion caused by adding rules to others; None where the small program still saturates."""
    if not new:
        return None
    with_all = _trial([*existing, *new])
    if with_all.reason is StopReason.SATURATED:
        return None
    suspects = new if len(new) <= MOST_SUSPECTS else sorted(new, key=lambda r: -with_all.matches.get(r.name, 0))[:MOST_SUSPECTS]
    culprits = [r for r in suspects if _trial([x for x in (*existing, *new) if x is not r]).reason is StopReason.SATURATED]
    return Explosion(tuple(culprits or suspects), with_all.growth)


def _trial(rules: Sequence[Rule]) -> Saturation:
    return saturate(small_program(), rules, [], TRIAL)


def small_program() -> Program:
    """Return a program of operators that rules commonly match: two layers, a convolution, a sum of five terms, layout operators."""
    b, random = Builder("lint"), np.random.default_rng(0)

    def weight(*shape: int) -> int:
        return b.constant(random.normal(size=shape).astype(np.float32))

    def apply(op: str, *operands: int, **attributes: object) -> int:
        return b.apply(op, operands, attributes)[0]  # type: ignore[arg-type]

    x, image = b.input("x", TensorType((4, 4))), b.input("image", TensorType((1, 2, 4, 4)))
    y = apply("relu", apply("bias_add", apply("dense", x, weight(4, 4)), weight(4), axis=1))
    y = apply("add", apply("matmul", y, weight(4, 4)), weight(4))
    for n in range(4):
        y = apply("add", y, b.input(f"term{n}", TensorType((4, 4))))
    transposed = apply("transpose", apply("reshape", y, shape=(2, 2, 4)), perm=(1, 0, 2))
    halves = [apply("slice", transposed, axis=0, start=n, stop=n + 1, step=1) for n in (1, 0)]
    z = apply("conv", image, weight(3, 2, 3, 3), strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
    z = apply("max_pool", apply("mul", z, weight(1, 3, 1, 1)), kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0), dilations=(1, 1), ceil=0)
    return b.finish([apply("concat", *halves, axis=0), z])
