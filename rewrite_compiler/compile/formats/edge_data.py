"""Boundary-value inputs: at, next to and on both sides of the bounds that a model and its plan compare values with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ...ir.evaluate import random_tensor
from ...ir.program import Data, Program
from ...ir.types import TensorType
from ..plan.plan import Plan

SMALLEST_SCALE, LARGEST_SCALE = 0.25, 8.0  # the smallest and the largest bound, times these, are what standard normal inputs are scaled by
MOST_BOUNDS = 8  # bounds around which inputs are drawn


def edge_inputs(plan: Plan, random: np.random.Generator) -> Iterator[dict[str, Data]]:
    """Yield inputs of a plan by name around the bounds of model and plan, at several scales; none if 0 is the only bound."""
    bounds = sorted({abs(c) for p in (plan.source, plan.program) for c in bounds_of(p) if c and math.isfinite(c)})
    if not bounds:
        return
    for scale in dict.fromkeys((bounds[0] * SMALLEST_SCALE, bounds[-1] * LARGEST_SCALE)):
        yield _inputs(plan.program, random, partial(_scaled, random, scale))
    edge_values = [
        m
        for c in (*bounds[:MOST_BOUNDS], 0.0)
        for n in (c, -c)
        for m in (n, *(float(np.nextafter(np.float32(n), np.float32(to))) for to in (-np.inf, np.inf)))
    ]
    yield _inputs(plan.program, random, lambda t: random.choice(edge_values, t.shape).astype(t.dtype))


def _scaled(random: np.random.Generator, scale: float, t: TensorType) -> Data:
    return np.asarray(random_tensor(t, random) * np.asarray(scale, t.dtype))


def _inputs(p: Program, random: np.random.Generator, draw: Callable[[TensorType], Data]) -> dict[str, Data]:
    return {p.names[v]: draw(p.types[v]) if p.types[v].is_float else random_tensor(p.types[v], random) for v in p.inputs}


def bounds_of(p: Program) -> Iterator[float]:
    """Yield the bounds of a program: the numbers of clips and of minima and maxima with a constant."""
    for n in p.nodes:
        attributes = dict(n.attributes)
        if n.op == "clip":
            yield from (float(attributes[name]) for name in ("low", "high"))  # type: ignore[arg-type]
        elif n.op in ("min", "max"):
            data = (p.constants[v] for v in n.inputs if v in p.constants)
            yield from (float(x.flat[0]) for x in data if x.size and x.dtype.kind == "f" and np.all(x == x.flat[0]))
