"""The entry point of co-simulation: a plan over a data set, compared with the float32 reference, as one report."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..compile import Plan, calibrated_within_range, plan_digest
from ..compile.document import plan_for_data
from ..compile.formats.calibrate import scale_warnings
from ..compile.host.exact_host import HOSTS
from ..compile.offload.execute import Statistics
from ..compile.offload.specified import is_certified
from ..compile.plan.plan import Offload
from ..data import CALIBRATION_SAMPLES, SAMPLES, Dataset, Samples, check_existence, samples_for
from ..data.data_frame import data_frame
from ..errors import FlexmatchError, UsageError
from ..garbage import rare_collection
from ..ir.program import Data
from ..limits import DEFAULT, Limits, compact_repr
from ..public_calls import CALLBACK_OF_COUNTS, COUNT, FILE, FLAG, NAME, NATURAL, TEXT, ArgumentKind, public, public_record
from .batch_size import batch_size, default_rate
from .cluster import connect
from .engine import Engine, Outcome, Progress, compared_samples, merged_by_offload
from .format_errors import OffloadNumerics, first_diverging, relative_error, tensor_document
from .journal import Journal
from .journal_records import FinishedBatch
from .metrics.float_reference import CachedReference
from .metrics.host_comparison import COMPARED_HOST, compare_hosts, hosts_document, hosts_text
from .metrics.metrics import Metric, compare_paired, metric_of, predicted_classes
from .metrics.scores import Scores, concatenated_scores
from .metrics.scoring import score_samples, scored_output
from .prefetch import in_order, prefetch_limit
from .remote import RemoteEngine
from .tier import AUTO, ENGINES, NUMERICS, SIMULATOR, TIERS, chosen_engine, chosen_tier, command_bytes_of

SCHEMA = "flexmatch.cosim/1"
DIVERGED = 0.1  # relative error against the float32 run, from which on an offload diverges
CLASS_METRICS = ("top1", "top5", "f1")  # of which the predicted classes of both runs are compared
BATCHES_AHEAD = 4  # a thread's, whose reference outputs are kept
METRIC_NAME = ArgumentKind("a name, or MODULE:FUNCTION for your own", (str,))
METRIC = ArgumentKind("a name or a function (outputs, truth) → scores", (str, Callable))  # type: ignore[arg-type]
Expected = Generator[Future[dict[str, Data]], None, None]  # the reference's outputs of each batch


@public_record(
    "rewrite_compiler.cosim.Settings", metric=METRIC_NAME, samples=NATURAL, batch=NATURAL, threads=COUNT, tier=NAME, audit=NATURAL,
    host=NAME, log=FILE, keep_outputs=FLAG, calibration_method=NAME, host_seconds=COUNT, scheduler=TEXT, engine=NAME,
)  # fmt: skip
@dataclass(frozen=True)
class Settings:
    """The settings of a co-simulation.

    With a `log`, every finished sample is on disk before it is reported, an interrupted run resumes from there, and the report
    holds no outputs.
    """

    metric: str = ""
    samples: int = 0  # 0: all
    batch: int = 0  # samples computed at once; 0: by the size of the largest tensor
    threads: int = 0  # 0: one for each core
    tier: str = AUTO  # native where there are enough samples and machine code can be made, else arrays
    audit: int | None = None  # batches, of which a random sample runs as commands on a simulator (0: none); None: of 256 samples
    host: str = "onnxruntime"  # or "exact": slower, the same bits on every machine
    log: Path | None = None
    keep_outputs: bool = True
    calibration_method: str = ""
    host_seconds: int = DEFAULT.host_seconds  # of a sample's run on the host
    scheduler: str = ""  # address of a dask.distributed scheduler, whose workers take the batches
    engine: str = AUTO  # what operations are specified to return (numerics) where they say so, or one of ENGINES

    def __repr__(self) -> str:
        """Name the settings that differ from their defaults."""
        return compact_repr(self)

    @property
    def audit_rate(self) -> int:
        """Of how many batches a random sample is audited; 0: none is."""
        return default_rate(self.batch) if self.audit is None else self.audit


@dataclass(frozen=True)
class Report:
    """The result of a co-simulation: the document, the outputs [samples, …] of both runs by name unless logged, and the scores."""

    document: Mapping[str, Any]
    reference: Mapping[str, Data]
    accelerated: Mapping[str, Data]
    scores: tuple[Scores, Scores] | None = None
    plan: Plan | None = None  # with the formats that were used

    def __repr__(self) -> str:
        """Name the model, its targets, and the metric on the host and accelerated."""
        d = self.document
        ends = d["paired"]["interval"]
        interval = "" if ends is None or None in ends else f" (95% interval of the difference {ends[0]:+.3g} … {ends[1]:+.3g})"
        values = f"{d['metric']} {d['reference']['value']:.6g} on the host, {d['accelerated']['value']:.6g} accelerated{interval}"
        return f"Report({d['model']['path']} on {', '.join(d['targets'])}: {values}, {d['samples']} samples)"

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each sample: its `host` and `accelerated` score, and its `weight`.

        Scores are those of the metric: 1 or 0 of an accuracy, the mean negative log-likelihood of a perplexity.

        Raises:
            UsageError: F108, pandas is not installed, or the report holds no scores.
        """
        if self.scores is None:
            raise UsageError("F108", "this report holds no score of a sample", help="co-simulate with the plan in this program")
        reference, accelerated = self.scores
        columns = {"host": reference.values, "accelerated": accelerated.values, "weight": reference.weights}
        return data_frame({name: values.tolist() for name, values in columns.items()})


@public(
    "cosimulate", "settings", plan=ArgumentKind("what compile returns", (Plan,)), data=SAMPLES, calibrate=SAMPLES, metric=METRIC,
    samples=NATURAL, tier=NAME, threads=COUNT, batch=NATURAL, audit=NATURAL, progress=CALLBACK_OF_COUNTS,
    settings=ArgumentKind("rewrite_compiler.cosim.Settings", (Settings,)),
)  # fmt: skip
@rare_collection()
def cosimulate(
    plan: Plan, data: Samples, *, calibrate: Samples | None = None, settings: Settings | None = None,
    metric: str | Callable[[Data, Data], object] = "", samples: int = 0, tier: str = "", threads: int = 0, batch: int = 0,
    audit: int | None = None, progress: Progress | None = None,
) -> Report:  # fmt: skip
    """Run the whole application on the host and with its offloads on simulators, and compare.

    `data` is a file or folder, a dict of arrays by input name (first axis: samples; with `labels`), one array or table, a pair
    (inputs, labels), or an iterable of batches; a Dataset as `load_data` returns it.
    `metric` is a name or a function (outputs, truth) → scores [samples], of which higher is better unless it has `lower_is_better`.
    Formats come from the plan, else from `calibrate`, else from the first 32 samples, which then are not part of the metric. They
    complete the plan as compiling with them would: offloads out of range are rescaled or stay on the host.

    Raises:
        UsageError: F203, a setting has no such value, or C100, the plan cannot be calibrated.
        InputError: the data does not fit the model or the metric, or C106, the log belongs to another run.
        AnswerNo: C104, a simulator does not give what the numerics of an operation specify.
    """
    overrides = {"metric": metric if isinstance(metric, str) else "", "samples": samples, "tier": tier, "threads": threads, "batch": batch}
    s = replace(settings or Settings(), **{name: value for name, value in overrides.items() if value})  # type: ignore[arg-type]
    s = _valid_settings(replace(s, threads=s.threads or os.cpu_count() or 1, audit=s.audit if audit is None else audit))
    check_existence(calibrate)
    plan = plan_for_data(plan, data)
    dataset = dataset_for(plan, data)
    selected_metric = metric_of(s.metric if isinstance(metric, str) else metric, dataset.task)
    plan, dataset = with_formats(plan, dataset, calibrate, s.calibration_method, replace(DEFAULT, host_seconds=s.host_seconds))
    if s.samples:
        dataset = dataset.evenly(s.samples)
    s = replace(s, batch=s.batch or batch_size(plan.source))
    s = replace(s, tier=chosen_tier(s.tier, dataset.count, s.batch, command_bytes_of(plan.offloads)))
    s = replace(s, engine=chosen_engine(s.engine, s.tier))
    return _Run(plan, dataset, selected_metric, s).report(progress)


def _valid_settings(s: Settings) -> Settings:
    """Return the settings once checked; the oracle takes one sample at a time."""
    if s.tier not in TIERS:
        raise UsageError("F203", f'tier must be one of {", ".join(TIERS)}, not "{s.tier}"')
    if s.host not in HOSTS:
        raise UsageError("F203", f'host must be one of {", ".join(HOSTS)}, not "{s.host}"')
    if s.engine not in ENGINES:
        raise UsageError("F203", f'engine must be one of {", ".join(ENGINES)}, not "{s.engine}"')
    return replace(s, batch=1) if s.tier == "oracle" else s


def with_formats(plan: Plan, data: Dataset, calibrate: Samples | None, method: str = "", limits: Limits = DEFAULT) -> tuple[Plan, Dataset]:
    """Return the plan as compiling with the calibration samples gives it, and the samples that remain for the metric."""
    if calibrate is not None:
        return calibrated_within_range(plan, calibrate, method=method, limits=limits), data
    if plan.calibrated:
        return plan, data
    first, evaluation = data.split(CALIBRATION_SAMPLES)
    source = f"the first {CALIBRATION_SAMPLES} samples of {Path(data.place).name}"
    return calibrated_within_range(plan, first, source=source, method=method, limits=limits), evaluation


def remaining_samples(plan: Plan, data: Dataset, calibrate: Samples | None) -> Dataset:
    """Return the samples that remain for the metric: without the first ones where those calibrate the plan."""
    return data if calibrate is not None or plan.calibrated else data.split(CALIBRATION_SAMPLES)[1]


def dataset_for(plan: Plan, data: Samples) -> Dataset:
    """Return the data set for a plan's model, read from a file when `data` is a path."""
    return samples_for(plan.source, data)


def _completed(outputs: dict[str, Data]) -> Future[dict[str, Data]]:
    future: Future[dict[str, Data]] = Future()
    future.set_result(outputs)
    return future


class _Run:
    """One co-simulation, batch by batch."""

    def __init__(self, plan: Plan, data: Dataset, metric: Metric, s: Settings) -> None:
        self.plan, self.data, self.metric, self.s = plan, data, metric, s
        self.output = scored_output(plan.source)
        self.batches: list[FinishedBatch] = []
        self.kept_outputs: list[tuple[Mapping[str, Data], Mapping[str, Data]]] = []
        self.wall = self.cpu = self.reference_cpu = 0.0
        self.concurrent_seconds: list[float] = []  # processor seconds of the reference's thread, which are in `cpu`, too
        self.is_kept = False
        self.keeps_outputs = s.keep_outputs and s.log is None
        self.needs_outputs = self.keeps_outputs or metric.name in CLASS_METRICS  # of the reference: its scores do not suffice

    def report(self, progress: Progress | None) -> Report:
        log = None if self.s.log is None else Journal(self.s.log, self._key(), [o.id for o in self.plan.offloads])
        self.batches = [] if log is None else list(log.batches)
        resumed = sum(b.samples for b in self.batches)
        try:
            for batch in self._run_batches(resumed):
                if log is not None:
                    log.append(batch)
                self.batches.append(batch)
                if progress is not None:
                    progress(batch.first + batch.samples, self.data.count)
            scores = concatenated_scores([b.reference for b in self.batches]), concatenated_scores([b.accelerated for b in self.batches])
            document = {**self._document(scores), "run": self._figures(resumed)}
            if log is not None:
                log.sync()
        finally:
            if log is not None:
                log.close()
        outputs = (
            [{n: np.concatenate([k[side][n] for k in self.kept_outputs]) for n in self.kept_outputs[0][side]} for side in (0, 1)]
            if self.kept_outputs
            else [{}, {}]
        )
        return Report(document, outputs[0], outputs[1], scores, self.plan)

    def _key(self) -> dict[str, Any]:
        """Return what identifies this run: a log with another key cannot be resumed."""
        return {
            "flexmatch": version("flexmatch"), "plan": plan_digest(self.plan),
            "data": self.data.sha256, "samples": self.data.count, "metric": self.metric.name, "batch": self.s.batch, "tier": self.s.tier,
            "audit": self.s.audit_rate, "host": self.s.host, "metric's file": self.metric.sha256, "engine": self.s.engine,
        }  # fmt: skip

    def _run_batches(self, first_sample: int) -> Iterator[FinishedBatch]:
        """Yield the batches from a sample on.

        The reference runs concurrently where there are threads for it; otherwise it runs some batches ahead, so that the two times
        stay separate.
        """
        if first_sample >= self.data.count:
            return
        reference = CachedReference(self.plan, self.data, self.s.batch, self.s.host_seconds, None if self.needs_outputs else self.metric)
        self.is_kept = reference.is_cached
        batch = self.s.batch
        parts = [slice(k, min(k + batch, self.data.count)) for k in range(first_sample, self.data.count, batch)]
        with self._engine() as (engine, comparison_engine, threads):
            is_concurrent = threads > 1 and comparison_engine is None and not reference.is_cached
            is_whole = comparison_engine is None and (is_concurrent or reference.is_cached)
            most_ahead = min(threads * BATCHES_AHEAD, prefetch_limit(self.plan.source, batch, threads))
            ahead = len(parts) if is_whole else most_ahead
            for k in range(0, len(parts), ahead):
                chunk = parts[k : k + ahead]
                other_outputs = (
                    [None] * len(chunk)
                    if comparison_engine is None
                    else [outcome.outputs for outcome in comparison_engine.batches(self._inputs, chunk)]
                )
                with contextlib.closing(
                    (self._reference_concurrently if is_concurrent else self._reference_first)(reference, chunk)
                ) as expected:
                    yield from self._chunk(engine, chunk, reference, expected, other_outputs)
        share = (self.data.count - first_sample) / self.data.count if reference.is_cached else 1.0
        self.reference_cpu = reference.seconds * share

    def _reference_first(self, reference: CachedReference, parts: Sequence[slice]) -> Expected:
        """Run the reference on these batches now, and yield their outputs."""
        results = [self._reference(reference, part) for part in parts]
        return (_completed(outputs) for outputs in results)

    def _reference_concurrently(self, reference: CachedReference, parts: Sequence[slice]) -> Expected:
        """Yield futures of the reference's outputs, computed by one thread whose processor time is measured apart."""

        def run(part: slice) -> dict[str, Data]:
            started = time.thread_time()
            try:
                return self._reference(reference, part)
            finally:
                self.concurrent_seconds.append(time.thread_time() - started)

        return in_order(run, parts, 1, prefetch_limit(self.plan.source, self.s.batch, 1))

    @contextlib.contextmanager
    def _engine(self) -> Iterator[tuple[Engine | RemoteEngine, Engine | None, int]]:
        """Yield the engine, local or on a cluster, an engine on another host to compare with, and the number of parallel batches."""
        s = self.s
        local_engine = Engine(
            self.plan, reading=s.tier, threads=s.threads, audit=s.audit_rate, host=s.host, host_seconds=s.host_seconds, engine=s.engine,
        )  # fmt: skip
        comparison_engine = (
            replace(local_engine, host=COMPARED_HOST[s.host], audit=0, compared=0, steps=[], prepared={})
            if s.host in COMPARED_HOST
            else None
        )
        if not s.scheduler:
            yield local_engine, comparison_engine, s.threads
            return
        with connect(s.scheduler) as cluster:
            yield RemoteEngine(local_engine, cluster), comparison_engine, cluster.threads

    def _chunk(
        self, engine: Engine | RemoteEngine, parts: Sequence[slice], reference: CachedReference, expected: Expected,
        comparison_outputs: Sequence[dict[str, Data] | None],
    ) -> Iterator[FinishedBatch]:  # fmt: skip
        wall, cpu, scoring = time.perf_counter(), time.process_time(), 0.0
        for part, truth, other_outputs, outcome in zip(
            parts, expected, comparison_outputs, engine.batches(self._inputs, parts), strict=True
        ):
            outputs, started = truth.result(), time.thread_time()
            batch = self._finished(part, reference.scores_of(part), outputs, outcome, other_outputs)
            reference.collect_scores(part, batch.reference)
            scoring += time.thread_time() - started
            self.wall, wall = self.wall + time.perf_counter() - wall, time.perf_counter()
            yield batch
        self.cpu += time.process_time() - cpu - scoring
        self.wall += time.perf_counter() - wall

    def _inputs(self, part: slice) -> dict[str, Data]:
        return self.data.rows(part).inputs

    def _reference(self, reference: CachedReference, part: slice) -> dict[str, Data]:
        """Run the reference on a batch; an error names the sample."""
        try:
            return reference.run(part)
        except FlexmatchError as error:
            for n in range(part.start, part.stop):
                try:
                    reference.run_uncached(self._inputs(slice(n, n + 1)))
                except FlexmatchError as single:
                    raise single.at(f"{self.data.place}: sample {self.data.number(n)}") from None
            raise error.at(self.data.place) from None

    def _finished(
        self, part: slice, reference_scores: Scores | None, reference: Mapping[str, Data], outcome: Outcome,
        other_outputs: Mapping[str, Data] | None,
    ) -> FinishedBatch:  # fmt: skip
        """Return a batch with its scores; `reference` has no outputs where the scores of the reference are given."""
        accelerated, samples = outcome.outputs[self.output], self.data.rows(part)
        expected = reference.get(self.output, accelerated[:0])
        scores = (
            score_samples(self.metric, samples, expected, expected) if reference_scores is None else reference_scores,
            score_samples(self.metric, samples, accelerated, expected),
        )
        comparison = (
            None
            if other_outputs is None
            else compare_hosts(outcome.outputs, other_outputs, score_samples(self.metric, samples, other_outputs[self.output], expected))
        )
        if self.keeps_outputs:
            self.kept_outputs.append((reference, outcome.outputs))
        equal_predictions = None
        if self.metric.name in CLASS_METRICS:
            equal_predictions = np.equal(*map(predicted_classes, (expected, accelerated)))
        return FinishedBatch(
            part.start,
            *scores,
            outcome.statistics,
            outcome.numerics,
            outcome.instructions,
            outcome.host_batching,
            equal_predictions,
            comparison,
        )

    def _figures(self, resumed: int) -> dict[str, Any]:
        new_samples = self.data.count - resumed
        engine_seconds = self.cpu - sum(self.concurrent_seconds)
        return {
            "wall_seconds": round(self.wall, 3),
            # those of workers are not measured
            "cpu_seconds_per_sample": round(engine_seconds / new_samples, 6) if new_samples and not self.s.scheduler else None,
            "reference_cpu_seconds_per_sample": round(self.reference_cpu / new_samples, 6) if new_samples else None, "batch": self.s.batch,
            "threads": self.s.threads, "resumed_samples": resumed, "scheduler": self.s.scheduler or None,
            "reference_kept": self.is_kept, "fallbacks": self._fallbacks(),
        }  # fmt: skip

    def _fallbacks(self) -> list[dict[str, Any]]:
        """Return the offloads whose numerics ran without machine code although it was selected: why, and their processor seconds."""
        statistics = merged_by_offload([b.statistics for b in self.batches], Statistics)
        return [{"offload": key, "why": list(s.slow), "cpu_seconds": round(s.seconds, 6)} for key, s in statistics.items() if s.slow]

    def _document(self, scores: tuple[Scores, Scores]) -> dict[str, Any]:
        plan, data, metric = self.plan, self.data, self.metric
        statistics, numerics = (
            merged_by_offload([b.statistics for b in self.batches], Statistics),
            merged_by_offload([b.numerics for b in self.batches], OffloadNumerics),
        )
        comparison = compare_paired(metric, *scores)
        equal_predictions = [b.equal_predictions for b in self.batches if b.equal_predictions is not None]
        batching_notes = dict.fromkeys(w for b in self.batches for w in b.host_batching)
        value = metric.value(scores[1])
        hosts = hosts_document(self.s.host, metric, [b.host_comparison for b in self.batches if b.host_comparison is not None])
        compared = [] if hosts is None else [hosts_text(self.s.host, metric.name, value, hosts)]
        drift = [(o.id, numerics[o.id].cumulative if o.id in numerics else None) for o in plan.offloads]
        return {
            "schema": SCHEMA,
            "model": {"path": Path(plan.model["path"]).name, "sha256": plan.model["sha256"]},
            "targets": [t.name for t in plan.targets],
            "metric": metric.name,
            "lower_is_better": metric.lower_is_better,
            "samples": data.count,
            "data": {"source": Path(data.place).name, "sha256": data.sha256},
            "calibration": None if plan.calibration is None else {k: v for k, v in vars(plan.calibration).items() if k != "tensors"},
            "reference": {"value": metric.value(scores[0])},
            "accelerated": {"value": value},
            "hosts": hosts,
            "paired": {
                **vars(comparison), "mcnemar": None if comparison.mcnemar is None else vars(comparison.mcnemar),
                "same_predictions": float(np.mean(np.concatenate(equal_predictions))) if equal_predictions else None,
            },
            "offloads": [{**_offload(plan, n, statistics, numerics), **_computed_by(o, self.s)} for n, o in enumerate(plan.offloads)],
            "first_diverging": first_diverging(drift, DIVERGED),
            "attribution": None,
            "simulator": {
                "tier": self.s.tier,
                "engine": self.s.engine,
                "validated": sum(x.validated for x in statistics.values()),
                "host": self.s.host,
                "audited": sum(x.audited for x in statistics.values()),
                "instructions": sum(b.instructions for b in self.batches),
            },
            "compared_samples": min(compared_samples(self.plan), data.count),
            "warnings": [f"{w.code}: {w.sentence}" for w in (*data.warnings, *scale_warnings(self.plan))],
            "notes": [*plan.notes, *batching_notes, *compared, *_unvalidated(self.s)],
        }  # fmt: skip


def _computed_by(o: Offload, s: Settings) -> dict[str, Any]:
    """Return the engine of an offload, and whether its driver and numerics are certified equal at its target's parameters."""
    engine = SIMULATOR if s.engine == NUMERICS and o.mapping.codes is None else s.engine
    return {"engine": engine, "certified": is_certified(o.target, o.mapping.variant)}


def _unvalidated(s: Settings) -> list[str]:
    return [] if s.audit_rate else ["no sample was computed again on the simulator: --audit 0"]


def _offload(plan: Plan, n: int, statistics: Mapping[str, Statistics], numerics: Mapping[str, OffloadNumerics]) -> dict[str, Any]:
    o = plan.offloads[n]
    s, offload_numerics = statistics[o.id], numerics.get(o.id, OffloadNumerics())
    relative = relative_error(s.squared_errors, s.squared_references)
    return {
        "id": o.id, "relative_error": relative, "cumulative_error": offload_numerics.cumulative,
        "max_abs_error": s.max_abs_error if s.compared else None,
        "compared_codes": s.codes or None, "differing_codes": s.differing_codes if s.codes else None,
        "validated_samples": s.validated,
        "saturated": s.saturated / s.values if s.values else 0.0, "range_in": list(s.range_in), "range_out": list(s.range_out),
        "tensors": [tensor_document(name, o.formats[name], t) for name, t in offload_numerics.tensors.items()],
    }  # fmt: skip
