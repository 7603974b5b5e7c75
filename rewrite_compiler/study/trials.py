"""Trials: variants of a plan on the same samples, scored against one float32 run that is made once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..compile import Plan, float_program
from ..cosim.cosimulate import BATCH
from ..cosim.metrics import Metric, Paired, Scores, paired
from ..cosim.reference import Reference
from ..cosim.run import Engine
from ..cosim.scoring import scored
from ..cosim.tier import chosen_tier
from ..data import Dataset
from ..ila import Ila
from ..ir.program import Data
from ..lang.formats import Format


@dataclass(frozen=True)
class Trial:
    """What a variant does: the metric, its loss against the reference, and the relative error of the outputs."""

    value: float
    loss: float
    error: float
    scores: Scores


class Trials:
    """The samples and the reference that variants are tried on."""

    def __init__(self, plan: Plan, data: Dataset, metric: Metric, *, batch: int = BATCH, threads: int = 1, tier: str = "auto") -> None:
        self.data, self.metric, self.batch, self.threads = data, metric, batch, threads
        self.tier = chosen_tier(tier, data.count, batch)
        self.inputs = data.inputs
        self.output = plan.source.names[plan.source.outputs[0]]
        self.expected = self._reference(plan)
        self.scores = scored(metric, data, self.expected, self.expected)
        self.value = metric.value(self.scores)
        self.runs = 0
        self.built: dict[str, Ila] = {}  # models of targets, by the target's hash

    def _reference(self, plan: Plan) -> Data:
        parts = [{n: x[at : at + self.batch] for n, x in self.inputs.items()} for at in range(0, self.data.count, self.batch)]
        reference = Reference(plan.source, parts[0])
        return np.concatenate([reference.run(part)[self.output] for part in parts])

    def run(self, plan: Plan) -> Trial:
        """Run a variant on all samples."""
        self.runs += 1
        for t in plan.targets:
            if t.sha256 not in self.built:
                self.built[t.sha256] = t.ila()
        engine = Engine(plan, reading=self.tier, threads=self.threads, compared=0, built=self.built)
        found = engine.run(self.inputs, batch=self.batch).outputs[self.output]
        scores = scored(self.metric, self.data, found, self.expected)
        value = self.metric.value(scores)
        difference = found.astype(np.float64) - self.expected
        size = float(np.sum(self.expected.astype(np.float64) ** 2))
        error = (float(np.sum(difference**2)) / size) ** 0.5 if size else 0.0
        return Trial(value, self.metric.loss(self.value, value), error, scores)

    def compared(self, trial: Trial) -> Paired:
        """Compare a variant with the reference, sample by sample."""
        return paired(self.metric, self.scores, trial.scores)


def with_float(plan: Plan, ids: Collection[str]) -> Plan:
    """Return the plan with some offloads in float on the host."""
    if not ids:
        return plan
    kept = tuple(o for o in plan.offloads if o.id not in ids)
    return replace(plan, program=float_program(plan, frozenset(ids)), offloads=kept)


def with_formats_of(plan: Plan, formats: Mapping[str, Mapping[str, Format]]) -> Plan:
    """Return the plan with other formats for some offloads."""
    return replace(plan, offloads=tuple(replace(o, formats=formats.get(o.id, o.formats)) for o in plan.offloads))
