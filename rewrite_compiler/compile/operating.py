"""Operating range: the relative error of each offload, computed by its numerics at the magnitudes of calibration samples.

An operation whose numerics saturate, or lose all digits, at such magnitudes returns numbers all the same. So an offload that is
far off on the first calibration samples computes on scaled operands where a proved law allows that and it helps; one whose result
is no nearer than zeros would be even so is not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..data import CALIBRATION_SAMPLES, Samples, samples_for
from ..fit.host import table_from
from ..ir.program import Data, Value
from ..limits import DEFAULT, Limits
from .formats.calibrate import MOST_BYTES, SEARCH_SAMPLES, Observations, calibrated, calibration_run, isolated_error, observed
from .formats.unlowered import FloatRun
from .host.lazy_codes import elements_of
from .matching.objective import objective_for
from .matching.pins import HOST
from .plan.plan import Offload, Plan, tensors_of
from .rescaling import Choice, choice, rescaled, rescaling_text, scaled_text, tensor_exponents

FAR = 0.25  # relative error of results from which on an offload is named
USELESS = 0.99  # from which on it is not used: zeros, which are 1.0 off, would do as well
MOST_NAMED = 3  # offloads of a note
PRODUCTS = 1 << 22  # of an offload on the samples on which it is measured, unless SEARCH_SAMPLES have more


@dataclass(frozen=True)
class _Rescaling:
    """An offload, how it is rescaled, and its relative error without."""

    offload: Offload
    choice: Choice
    error: float


def relative_errors(plan: Plan, inputs: MappingOf[str, Data], seconds: int = DEFAULT.host_seconds) -> dict[str, float]:
    """Return the relative error (root of the relative squared error) of each offload's first result on the first samples, by offload."""
    return _errors(plan, first_values(plan, inputs, calibration_run(plan, inputs, seconds)))


def _errors(plan: Plan, samples: MappingOf[Value, Data]) -> dict[str, float]:
    measured = ((o, _measured_on(o, samples)) for o in plan.offloads if o.mapping.codes is not None)
    return {o.id: isolated_error(plan.program, o, part, None) ** 0.5 for o, part in measured if _has_a_scale(o, part)}


def _measured_on(o: Offload, samples: MappingOf[Value, Data]) -> dict[Value, Data]:
    """Return the samples of an offload's tensors on which it is measured: all of small ones, a few of large ones."""
    work = max(o.macs, *(math.prod(shape) for shape in o.shapes))
    count = max(SEARCH_SAMPLES, PRODUCTS // max(1, work))
    return {v: samples[v][:count] for v in tensors_of(o).values() if v in samples}


def first_values(plan: Plan, inputs: MappingOf[str, Data], run: FloatRun) -> dict[Value, Data]:
    """Return the values of the offloads' tensors in a float run of the first samples; none where no tensor depends on them."""
    p, offloads = run.lowered, [o for o in plan.offloads if o.mapping.codes is not None]
    moving = {v for o in offloads for v in tensors_of(o).values()} & set(run.requested)
    if not moving:
        return {}
    size = sum(p.types[v].nbytes for v in moving)
    count = max(1, min(CALIBRATION_SAMPLES, MOST_BYTES // max(1, size)))
    values = {v: inputs[p.names[v]][:count] for v in p.inputs}
    return {**values, **{v: elements_of(x) for v, x in run.run(values).items() if v in moving}}


def _has_a_scale(o: Offload, samples: MappingOf[Value, Data]) -> bool:
    """Tell whether a relative error is defined: the result depends on samples and is not all zeros."""
    return any(v in samples for v in o.node.inputs) and bool(np.any(samples[o.node.outputs[0]]))


def calibrated_within_range(plan: Plan, data: Samples, *, source: str = "", method: str = "", limits: Limits = DEFAULT) -> Plan:
    """Return the plan that samples complete: its formats, and which of its offloads are rescaled or stay on the host.

    A plan that samples have completed before keeps its offloads, and only its formats are chosen anew. `source` names the samples,
    by default the file of `data`.

    Raises:
        InputError: (C100, C102) there are no samples, or values that are not finite.
        UsageError: (F203) a calibration method does not exist.
        AnswerNo: (F216) a pin of the user cannot be kept without the offloads that stay on the host.
    """
    samples = samples_for(plan.source, data, limits)
    work = _Completion(plan, samples.inputs, source or Path(samples.place).name, samples.sha256, method, limits)
    return work.formatted(plan) if plan.calibration is not None else work.within_range()


@dataclass(frozen=True)
class _Measured:
    """A plan without formats, what a float run shows of its offloads, and values of the first samples."""

    plan: Plan
    observations: Observations
    samples: dict[Value, Data]


def _scaled_values(base: _Measured, plan: Plan, exponents: MappingOf[tuple[str, str], int]) -> dict[Value, Data]:
    """Return values of the first samples in a plan that is rescaled."""
    samples = dict(base.samples)
    for before, after in zip(base.plan.offloads, plan.offloads, strict=True):
        tensors = tensors_of(before)
        for name, v in tensors_of(after).items():
            x, exponent = base.samples.get(tensors[name]), exponents.get((after.id, name), 0)
            if x is not None:
                samples[v] = np.ldexp(x, exponent) if exponent else x
    return samples


@dataclass(frozen=True)
class _Completion:
    """A plan without formats, and the samples that choose them."""

    plan: Plan
    inputs: MappingOf[str, Data]
    source: str
    sha256: str
    method: str
    limits: Limits
    runs: dict[tuple[tuple[str, ...], tuple[str, ...]], _Measured] = field(default_factory=dict)  # by pins and scalings

    def formatted(self, plan: Plan, observations: Observations | None = None) -> Plan:
        """Return a plan with formats."""
        return calibrated(
            plan, self.inputs, self.source, self.sha256, method=self.method, limits=self.limits, observations=observations
        )  # fmt: skip

    def measured(self, plan: Plan) -> _Measured:
        """Return a plan with what a float run of the samples shows of its offloads."""
        run = calibration_run(plan, self.inputs, self.limits.host_seconds)
        observations = observed(plan, self.inputs, run, method=self.method)
        return _Measured(plan, observations, first_values(plan, self.inputs, run))

    def variant(self, on: tuple[str, ...], scaled: tuple[str, ...]) -> tuple[Plan, dict[Value, Data]]:
        """Return the plan with formats, with other pins and scalings than its own, and values of the first samples.

        Scalings by powers of two change what a float run shows by those, so that it is not run again.
        """
        pins, user_scalings = tuple(self.plan.settings["on"]), tuple(self.plan.settings["scaled"])
        is_scaled_here = bool(scaled) and not user_scalings
        key = on, () if is_scaled_here else scaled
        if key not in self.runs:
            plan = self.plan
            if key != (pins, user_scalings):
                assert plan.compile_again is not None
                plan = plan.compile_again(*key)
            self.runs[key] = self.measured(plan)
        base = self.runs[key]
        if not is_scaled_here:
            return self.formatted(base.plan, base.observations), base.samples
        objective = objective_for(self.plan.settings["objective"], self.plan.targets, table_from(self.plan.settings["host_costs"]))
        plan, exponents = rescaled(base.plan, scaled, objective.resources), tensor_exponents(base.plan, scaled)
        return self.formatted(plan, base.observations.scaled(exponents)), _scaled_values(base, plan, exponents)

    def within_range(self) -> Plan:
        """Return the plan without offloads that are no nearer than zeros, those that are far off rescaled, and notes on all of them.

        It is compiled repeatedly, until no offload is left that is useless or that scaling mends; what the user pins stays. Formats
        are calibrated anew with scalings, by a method that may clip what they gain: one without effect is taken back.
        """
        on, user_scalings = tuple(self.plan.settings["on"]), tuple(self.plan.settings["scaled"])
        pins, trials, examined_ids, refusals = on, list[_Rescaling](), set[str](), list[str]()
        while True:
            plan, samples = self.variant(pins, (*user_scalings, *(rescaling_text(t.offload, t.choice) for t in trials)))
            errors = _errors(plan, samples)
            effective = [t for t in trials if errors.get(t.offload.id, 0.0) < t.error]
            if len(effective) < len(trials):
                trials = effective
                continue
            choices = _rescalings(plan, samples, {key: e for key, e in errors.items() if key not in examined_ids})
            if choices:
                examined_ids |= errors.keys()
                trials += choices
                continue
            useless = [o for o in plan.offloads if errors.get(o.id, 0.0) >= USELESS and not _is_wanted(o, on)]
            if not useless:
                rescaling_notes = (_rescaling_note(t, errors.get(t.offload.id, 0.0)) for t in trials)
                return replace(
                    plan, model=self.plan.model, notes=(*plan.notes, *refusals, *rescaling_notes, *_far_note(errors), *_zero_note(plan))
                )
            refusals += [_refusal(o, errors[o.id]) for o in useless]
            pins += tuple(f"{HOST}={name}" for o in useless for name in o.nodes if f"{HOST}={name}" not in pins)
            trials, examined_ids = [], set()  # offloads are numbered anew


def _rescalings(plan: Plan, samples: MappingOf[Value, Data], errors: MappingOf[str, float]) -> list[_Rescaling]:
    """Return the scalings that bring offloads that are far off within FAR."""
    choices = [(o, choice(plan.program, o, _measured_on(o, samples), FAR)) for o in plan.offloads if errors.get(o.id, 0.0) > FAR]
    return [_Rescaling(o, c, errors[o.id]) for o, c in choices if c is not None]


def _rescaling_note(t: _Rescaling, error: float) -> str:
    change = f"{100 * t.error:.3g}% → {100 * error:.3g}% off on calibration samples"
    return f"{t.offload.id} computes on operands times powers of two, {scaled_text(t.choice.scaling, t.choice.exponent)}: {change}"


def _is_wanted(o: Offload, on: Iterable[str]) -> bool:
    """Tell whether the user pins one of its nodes to its target."""
    return bool({f"{o.target.name}={name}" for name in o.nodes} & set(on))


def _refusal(o: Offload, error: float) -> str:
    first, *further_nodes = o.nodes
    nodes = f"{first} and {len(further_nodes)} more" if further_nodes else first
    return (
        f"{o.mapping.name} is not used for {nodes}: its result would be {100 * error:.3g}% off on calibration samples; "
        f"--on {o.target.name}={first} uses it even so"
    )


def _far_note(errors: MappingOf[str, float]) -> list[str]:
    """Return the note on offloads that are used though their error exceeds FAR, worst first."""
    far_offloads = sorted((key for key, error in errors.items() if error > FAR), key=lambda key: -errors[key])
    if not far_offloads:
        return []
    return [f"more than {FAR:.0%} off on calibration samples: {_listing([f'{key} {100 * errors[key]:.3g}%' for key in far_offloads])}"]


def _zero_note(plan: Plan) -> list[str]:
    """Return the note on tensors that are zero in all calibration samples, of which formats that follow magnitudes say nothing."""
    assert plan.calibration is not None
    largest = {(t["offload"], t["tensor"]): t["largest"] for t in plan.calibration.tensors}
    zero_names = []
    for o in plan.offloads:
        groups = [*o.mapping.shared, *((n,) for n in o.formats if not any(n in group for group in o.mapping.shared))]
        zeros = [g for g in groups if not any(largest.get((o.id, n), 1.0) for n in g) and not _is_known(plan, o, g)]
        if zeros:
            usual = o.mapping.formats_for(dict.fromkeys(o.mapping.format_choices, 1.0))
            zero_names += [f"{g[0]} of {o.id}" for g in zeros if usual[g[0]] != o.formats[g[0]]]
    return [f"nothing but zeros in calibration samples, so that formats are guesses: {_listing(zero_names)}"] if zero_names else []


def _is_known(plan: Plan, o: Offload, names: Iterable[str]) -> bool:
    """Tell whether tensors of an offload are constants of the program."""
    values = tensors_of(o)
    return all(values[n] in plan.program.constants for n in names)


def _listing(texts: list[str]) -> str:
    """Return the first texts, and how many more there are."""
    overflow = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return f"{', '.join(texts[:MOST_NAMED])}{overflow}"
