"""Trials: variants of a plan on the same samples, scored against one float32 run."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from ...compile import Offload, Plan, float_program
from ...cosim.batch_size import batch_size
from ...cosim.metrics.float_reference import Reference
from ...cosim.metrics.metrics import Metric, PairedComparison, compare_paired
from ...cosim.metrics.scores import Scores
from ...cosim.metrics.scoring import score_samples, scored_output
from ...cosim.plan_variants import Variants
from ...cosim.tier import LEAST_BATCHES, chosen_tier
from ...data import Dataset
from ...ir.program import Data
from ...lang.formats import Format


@dataclass(frozen=True)
class Trial:
    """The result of a variant: the metric, its loss against the reference, and the relative error of the outputs."""

    value: float
    loss: float
    error: float
    scores: Scores
    squares: Data  # [2, samples]: of the outputs' errors, and of the expected outputs


class Trials:
    """The samples and the float reference that variants are tried on; a variant is run once."""

    def __init__(
        self, plan: Plan, data: Dataset, metric: Metric, *, batch: int = 0, threads: int = 1, tier: str = "auto",
        shared: Variants | None = None,
    ) -> None:  # fmt: skip
        """Run the reference; `shared` is what trials on other samples have made already."""
        self.data, self.metric, self.threads = data, metric, threads
        batch = batch or batch_size(plan.source)
        self.shared = shared or variants_of(data.count, batch, tier)
        self.inputs = data.inputs
        self.output = scored_output(plan.source)
        self.expected = self._reference(plan, batch)
        self.scores = score_samples(metric, data, self.expected, self.expected)
        self.value = metric.value(self.scores)
        self.trials: dict[Hashable, tuple[Plan, Trial]] = {}

    @property
    def runs(self) -> int:
        """The number of variants that were run."""
        return len(self.trials)

    def _reference(self, plan: Plan, batch: int) -> Data:
        parts = [{n: x[at : at + batch] for n, x in self.inputs.items()} for at in range(0, self.data.count, batch)]
        reference = Reference(plan.source, parts[0])
        return np.concatenate([reference.run(part)[self.output] for part in parts])

    def run_all(self, plans: Sequence[Plan], *, are_last: bool = False) -> list[Trial]:
        """Run variants on all samples, in parallel where there are threads; `are_last`: their programs are not cached."""
        if self.threads == 1 or len(plans) < 2:
            return [self.run(plan, is_last=are_last) for plan in plans]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(lambda plan: self.run(plan, threads=1, is_last=are_last), plans))

    def run(self, plan: Plan, *, threads: int = 0, is_last: bool = False) -> Trial:
        """Run a variant on all samples, once."""
        key = (id(plan.program), *map(_key, plan.offloads))
        if key not in self.trials:
            outputs = self.shared.outputs(plan, self.inputs, threads=threads or self.threads, is_last=is_last)[self.output]
            self.trials[key] = plan, self._trial_of(outputs)
        return self.trials[key][1]

    def _trial_of(self, outputs: Data) -> Trial:
        scores = score_samples(self.metric, self.data, outputs, self.expected)
        value = self.metric.value(scores)
        expected = self.expected.astype(np.float64)
        squares = np.stack([np.sum(x.reshape(len(x), -1) ** 2, axis=1) for x in (outputs - expected, expected)])
        return Trial(value, self.metric.loss(self.value, value), _relative_error(squares), scores, squares)

    def on(self, trial: Trial, indices: Data) -> Trial:
        """Return what a trial says on the samples at these indices."""
        scores, squares = trial.scores.take(indices), trial.squares[:, indices]
        reference, value = (self.metric.value(s) for s in (self.scores.take(indices), scores))
        return Trial(value, self.metric.loss(reference, value), _relative_error(squares), scores, squares)

    def compare(self, trial: Trial, baseline: Trial | None = None) -> PairedComparison:
        """Return the paired comparison of a variant with the reference, or with another variant, sample by sample."""
        return compare_paired(self.metric, self.scores if baseline is None else baseline.scores, trial.scores)


def _relative_error(squares: Data) -> float:
    errors, sizes = (float(np.sum(row)) for row in squares)
    return (errors / sizes) ** 0.5 if sizes else 0.0


def _key(o: Offload) -> Hashable:
    return o.id, o.target.build, o.mapping.codes, *o.target.values.items(), *o.formats.items()


def variants_of(samples: int, batch: int, tier: str) -> Variants:
    """Return the cache that variants share, for a number of samples in batches of equal size."""
    batches = -(-samples // batch)
    reading = chosen_tier(tier, LEAST_BATCHES * samples, samples)
    return Variants(reading, 1 if reading == "oracle" else -(-samples // batches))


def with_float(plan: Plan, ids: Collection[str]) -> Plan:
    """Return the plan with some offloads in float on the host."""
    if not ids:
        return plan
    remaining = tuple(o for o in plan.offloads if o.id not in ids)
    return replace(plan, program=float_program(plan, frozenset(ids)), offloads=remaining)


def with_formats_of(plan: Plan, formats: Mapping[str, Mapping[str, Format]]) -> Plan:
    """Return the plan with other formats for some offloads."""
    return replace(plan, offloads=tuple(replace(o, formats=formats.get(o.id, o.formats)) for o in plan.offloads))
