"""Counterexamples: data on which the two sides of a rule differ, simplified to zeros and ones where that keeps the difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.program import Data
from ...ops.op import Tensor
from ...rewrite.float_condition import OperandBound, within
from ..verdict import Counterexample
from .instance_search import Instance
from .sides import array_text, number_text, operands_from, same_values, side_values

Pairs = Sequence[tuple[Tensor, Tensor]]
# the values operands are drawn from, the plain ones first
POOLS: tuple[tuple[float, ...], ...] = ((0.0, 1.0), (-1.0, 0.0, 1.0), (1.0, 2.0, 3.0), (-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0))
DRAWS = 8


def find_difference(pairs: Pairs, instance: Instance) -> Counterexample | None:
    """Return data on which the sides differ by more than rounding, None when no draw shows any."""
    for operands in _draws(instance):
        if _first_difference(pairs, instance, operands) is not None:
            return counterexample(pairs, instance, _simplified(pairs, instance, operands))
    return None


def _draws(instance: Instance) -> Iterator[dict[str, Data]]:
    random = np.random.default_rng(0)
    for pool in POOLS:
        for _ in range(DRAWS):
            yield operands_from(instance, lambda shape, pool=pool: random.choice(pool, shape))
    for _ in range(DRAWS):
        yield operands_from(instance, random.standard_normal)


def _first_difference(pairs: Pairs, instance: Instance, operands: Mapping[str, Data]) -> tuple[int, tuple[int, ...], Any, Any] | None:
    for n, (left, right) in enumerate(side_values(pairs, instance, operands, np.float64)):
        places = np.argwhere(~same_values(left, right, exact=False))
        if len(places):
            place = tuple(int(i) for i in places[0])
            return n, place, left[place], right[place]
    return None


def _simplified(pairs: Pairs, instance: Instance, operands: Mapping[str, Data]) -> dict[str, Data]:
    """Replace elements by 0 or 1 as long as the sides still differ."""
    simplified = {name: x.copy() for name, x in operands.items()}
    for x in simplified.values():
        for place in np.ndindex(x.shape):
            for value in (0.0, 1.0):
                if x[place] in (0.0, value):
                    break
                previous, x[place] = x[place], value
                if _first_difference(pairs, instance, simplified) is not None:
                    break
                x[place] = previous
    return simplified


def counterexample(pairs: Pairs, instance: Instance, operands: Mapping[str, Data]) -> Counterexample:
    """Return operands with the first place where the sides differ on them.

    Raises:
        ValueError: the sides do not differ on these operands.
    """
    first_difference = _first_difference(pairs, instance, operands)
    if first_difference is None:
        raise ValueError("the sides do not differ on these operands")
    _, place, left, right = first_difference
    return Counterexample(
        {n: array_text(x) for n, x in operands.items()}, instance.attributes, place, number_text(left), number_text(right)
    )


def float32_difference(
    pairs: Pairs, instance: Instance, draw: Callable[[Any], Data], agree: Callable[[Data, Data], Data], bounds: Sequence[OperandBound] = ()
) -> Counterexample | None:
    """Return float32 data within `bounds` on which the sides do not agree, None where they do on this draw; `agree` is elementwise."""
    operands = within(operands_from(instance, draw), bounds)
    for left, right in side_values(pairs, instance, operands, np.float32):
        places = np.argwhere(~agree(left, right))
        if len(places):
            place = tuple(int(i) for i in places[0])
            texts = {name: array_text(x) for name, x in operands.items()}
            return Counterexample(texts, instance.attributes, place, repr(float(left[place])), repr(float(right[place])))
    return None
