"""Differential test of a written plan against its model: both run on the host engine, on random inputs and at decision boundaries.

A difference beyond rounding is traced to the rule that does not hold on the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import AnswerNo, BudgetError, FlexmatchError, InputError
from ..frontend.file.read import read_bytes
from ..frontend.graph.emit import to_onnx
from ..frontend.graph.structure import without_trailing_absent
from ..frontend.perturb.rounding_noise import with_rounding_noise
from ..hostrun import Session, coded_operators, has_wide_weights, reference, saturates
from ..ir.evaluate import random_tensor
from ..ir.program import Data, Program
from ..ir.types import TensorType
from ..limits import DEFAULT, Limits
from .formats.edge_data import edge_inputs
from .plan.plan import Plan
from .plan.suspect_laws import suspect
from .rounding_ties import Run, undecided_by_ties

TOLERANCE = 1e-5  # of the largest output: what float32 rounding in another order may do
PERTURBATION = 2.0**-21  # of an input: what reordered sums of a few dozen float32 terms may lose before the model's first cancellation
PERTURBATIONS = 8
SEED = 20261
MODEL = "model"
NO_VNNI = "without VNNI its sums of products of uint8 and int8 saturate in 16 bits"
AS_WRITTEN = "the plan was checked against the model as it is written"
FUSED = "its fused operators on codes round otherwise"
TIES = "numbers about halfway between two codes become the other one in its fused operators"
NO_HOST = ("F162", "C100", "C107")  # the host engine refuses a model, its declared inputs, or to run it


class PlanDiffers(FlexmatchError):
    """The plan does not compute what the model computes: a bug, never the user's mistake."""

    exit_code = 5


@dataclass(frozen=True)
class PlanCheck:
    """The largest difference of the plan's outputs from the reference, relative to the largest value of the output.

    A difference above the tolerance is allowed only where perturbing the model's inputs in their last bits moves the output as far,
    or the numbers that it quantises: an output that cancels has no digits to agree in, a number between two codes may become either.
    `against` is "model", "imported program" when the host engine refuses the model as it is written, or why nothing was compared.
    `defaults` states how onnxruntime with its own settings deviates from the model's codes, or its optimiser from the model.
    """

    relative_difference: float | None
    outputs: int
    against: str = MODEL
    defaults: str = ""


def random_inputs(p: Program, random: np.random.Generator) -> dict[str, Data]:
    """Return random inputs of a program by name."""
    return {p.names[v]: random_tensor(p.types[v], random) for v in p.inputs}


def check_plan(plan: Plan, onnx: bytes, model: Path, limits: Limits = DEFAULT) -> PlanCheck:
    """Run plan and model on the same inputs and compare their outputs; `onnx` is the written plan.

    Where they differ and onnxruntime's optimiser changes what the model computes, the model runs as it is written.

    Raises:
        PlanDiffers: (X100) an output differs beyond rounding.
        AnswerNo: (R106) an output differs because a rule of a user does not hold there.
    """
    try:
        return _check(plan, onnx, model, limits)
    except PlanDiffers:
        deviation = _optimiser_deviation(plan, model, limits)
        if not deviation:
            raise
        return replace(_check(plan, onnx, model, limits, is_optimised=False), defaults=deviation)


def _optimiser_deviation(plan: Plan, model: Path, limits: Limits) -> str:
    """Return a sentence on how onnxruntime's optimiser changes what a model computes on random inputs, empty where it does not."""
    random, p = np.random.default_rng(SEED), plan.program
    values = random_inputs(p, random)
    try:
        optimised, as_written = (_runner(plan, _reference(model, is_optimised=o), limits.host_seconds) for o in (True, False))
        expected = as_written(values)
        deviations = differences(expected, optimised(values).values())
    except (InputError, BudgetError):
        return ""
    far = beyond_rounding(deviations, expected, as_written, values)
    if not far:
        return ""
    worst = max(far, key=lambda name: deviations[name])
    amount = f"by {deviations[worst]:.3g} of the largest value of {worst}"
    return f"onnxruntime's optimiser changes what the model computes, {amount}; {AS_WRITTEN}"


def _check(plan: Plan, onnx: bytes, model: Path, limits: Limits, *, is_optimised: bool = True) -> PlanCheck:
    """Compare the outputs of plan and model, the model optimised by onnxruntime or as it is written."""
    random = np.random.default_rng(SEED)
    p = plan.program
    values = random_inputs(p, random)
    try:
        run = _source(plan, model, limits.host_seconds, is_optimised)
        expected = run(values)
    except (InputError, BudgetError) as error:
        if error.problem.code not in NO_HOST:
            raise
        return PlanCheck(None, 0, f"not compared with the model: {error.problem.sentence}")
    compiled = Session(onnx, name="the plan")
    deviations = _checked_deviations(plan, compiled, run, values, expected, model, limits)
    extra_inputs = [random_inputs(p, random)] if isinstance(run.run, _InBatch) else []
    for edge in (*extra_inputs, *edge_inputs(plan, random)):
        _checked_deviations(plan, compiled, run, edge, run(edge), model, limits)
    by_default = _by_default(plan, model, run, values, expected, limits) if run.against == MODEL else ""
    without = f"onnxruntime's optimiser refuses the model ({run.refusal}); {AS_WRITTEN}" if run.refusal else ""
    return PlanCheck(max(deviations.values(), default=0.0), len(expected), run.against, without or by_default)


def _checked_deviations(
    plan: Plan, compiled: Session, run: _Source, values: Mapping[str, Data], expected: Mapping[str, Data], model: Path, limits: Limits
) -> dict[str, float]:
    """Return the relative difference of each output from the expected one; refuse differences beyond rounding."""
    outputs = compiled.run(values, seconds=10 * limits.host_seconds)
    deviations = differences(expected, outputs.values())
    far = beyond_rounding(deviations, expected, run, values)
    noisy = run.with_noise() if far else None
    if noisy is not None:
        far = undecided_by_ties(far, expected, dict(zip(expected, outputs.values(), strict=True)), noisy, values, TOLERANCE)
    if not far:
        return deviations
    differs = far[0]
    sentence = f"the plan differs from its model by {deviations[differs]:.3g} of the largest value of {differs}; {TOLERANCE:g} is allowed"
    law = suspect(plan, values, limits)
    if law is None:
        raise PlanDiffers("X100", sentence, place=str(model))
    name, full_sentence = law.rule.name, f"the rule {law.rule.name} does not hold here: {law.gap}; {sentence}"
    if law.is_shipped:
        raise PlanDiffers("X100", full_sentence, place=str(model), help=f"this is a bug of flexmatch; until it is mended: --without {name}")
    raise AnswerNo("R106", full_sentence, place=law.rule.place, help=f"give the rule a guard, or leave it out: --without {name}")


def differences(expected: Mapping[str, Data], actual: Iterable[Data]) -> dict[str, float]:
    """Return the largest difference of each output from the expected one, relative to its largest value; matched by position."""
    return {name: _difference(x, y) for (name, x), y in zip(expected.items(), actual, strict=True)}


def beyond_rounding(deviations: Mapping[str, float], expected: Mapping[str, Data], run: Run, values: Mapping[str, Data]) -> list[str]:
    """Return the outputs that differ beyond rounding; `run` is the model, perturbed only if some output exceeds the tolerance."""
    far = [name for name, x in expected.items() if not deviations[name] <= (TOLERANCE if x.dtype.kind == "f" else 0.0)]
    if not far:
        return []
    movement = _movement(run, values, expected)
    return [name for name in far if not deviations[name] <= movement[name]]


@dataclass(frozen=True)
class _Source:
    """The reference: a runner of it, which it is (the model, else the imported program), and what the optimiser refused of it.

    `with_noise` makes a runner of the model with rounding noise before it quantises, None where it does not.
    """

    run: Run
    against: str
    refusal: str
    with_noise: Callable[[], Run | None]

    def __call__(self, values: Mapping[str, Data]) -> dict[str, Data]:
        """Return the outputs of the reference."""
        return self.run(values)


def _source(plan: Plan, model: Path, seconds: float, is_optimised: bool) -> _Source:
    """Return the model as the reference, the imported program where the host engine refuses the model."""

    def with_noise() -> Run | None:
        changed = with_rounding_noise(_content(model) or read_bytes(model, DEFAULT), PERTURBATION)
        return None if changed is None else _runner(plan, reference(model, changed, is_optimised=is_optimised), seconds)

    try:
        source = _reference(model, is_optimised=is_optimised)
        return _Source(_runner(plan, source, seconds), MODEL, source.refusal, with_noise)
    except InputError as error:
        if error.problem.code not in NO_HOST:
            raise
    imported = Session(to_onnx(plan.source), name="the imported program")
    return _Source(lambda values: imported.run(values, seconds=seconds), "imported program", "", lambda: None)


def _reference(model: Path, *, is_exact: bool = True, is_optimised: bool = True) -> Session:
    """Return the model on the host."""
    return reference(model, _content(model), is_exact=is_exact, is_optimised=is_optimised)


def _content(model: Path) -> bytes | None:
    """Return a model without trailing absent operands, None where it has none: onnxruntime 1.31.1 may read through a null pointer."""
    return without_trailing_absent(read_bytes(model, DEFAULT))


def _runner(plan: Plan, source: Session, seconds: float) -> Run:
    """Return a runner of a model on inputs of its plan, padded where the model fixes its batch."""
    samples = _fixed_samples(plan, source)
    return _InBatch(source, samples, seconds) if samples else lambda values: source.run(_fitting(source, values), seconds=seconds)


@dataclass
class _InBatch:
    """Runs a plan's samples through a model of fixed batch, alternately at the front and the back of a batch of random samples."""

    source: Session
    samples: tuple[int, int]  # of a batch of the model, and of the plan
    seconds: float
    runs: int = 0

    def __call__(self, values: Mapping[str, Data]) -> dict[str, Data]:
        """Return the outputs of the plan's samples."""
        fixed, plan_samples = self.samples
        random = np.random.default_rng(SEED)
        self.runs += 1
        at = 0 if self.runs % 2 else max(0, fixed - plan_samples)
        batch = {name: _padded(x, at, fixed, random) for name, x in _fitting(self.source, values).items()}
        parts = [
            self.source.run({name: x[n : n + fixed] for name, x in batch.items()}, seconds=self.seconds)
            for n in range(0, at + plan_samples, fixed)
        ]
        return {name: np.concatenate([part[name] for part in parts])[at : at + plan_samples] for name in parts[0]}


def _padded(x: Data, at: int, fixed: int, random: np.random.Generator) -> Data:
    """Return x [samples, …] embedded at `at` in random samples, a multiple of the batch `fixed`."""
    count = -(-(at + len(x)) // fixed) * fixed
    dtype = "string" if x.dtype.kind in "OUS" else str(x.dtype)
    padded = np.concatenate([random_tensor(TensorType(x.shape, dtype), random) for _ in range(-(-count // len(x)))])[:count]
    padded[at : at + len(x)] = x
    return padded


def _fixed_samples(plan: Plan, source: Session) -> tuple[int, int] | None:
    """Return the batch that a model fixes and that of its plan, None where they agree."""
    plan_shapes = {plan.source.names[v]: plan.source.types[v].shape for v in plan.source.inputs}
    for port in source.inputs:
        fixed = port.shape[0] if port.shape else None
        if isinstance(fixed, int) and plan_shapes.get(port.name, (fixed,))[0] != fixed:
            return fixed, plan_shapes[port.name][0]
    return None


def _by_default(plan: Plan, model: Path, run: _Source, values: Mapping[str, Data], expected: Mapping[str, Data], limits: Limits) -> str:
    """Return a sentence on how onnxruntime's own settings deviate for a quantised model, empty where they do not."""
    content = model.read_bytes()
    operators = coded_operators(content)
    if not operators:
        return ""
    try:
        source = _reference(model, is_exact=False)
        outputs = _runner(plan, source, limits.host_seconds)(values)
    except (InputError, BudgetError) as error:
        return f"onnxruntime with its own settings does not run the model: {error.problem.sentence}"
    deviations = differences(expected, outputs.values())
    far = beyond_rounding(deviations, expected, run, values)
    if not far:
        return ""
    worst = max(far, key=lambda name: deviations[name])
    deviation_text = f"by up to {deviations[worst]:.3g} of the largest value of {worst} ({', '.join(operators)})"
    noisy = run.with_noise()
    by_default = dict(zip(expected, outputs.values(), strict=True))
    is_tie = noisy is not None and not undecided_by_ties(far, expected, by_default, noisy, values, TOLERANCE)
    cause = TIES if is_tie else NO_VNNI if saturates() and has_wide_weights(content) else FUSED
    return f"onnxruntime with its own settings gives other numbers on this processor, {deviation_text}: {cause}"


def _movement(run: Run, values: Mapping[str, Data], at: Mapping[str, Data]) -> dict[str, float]:
    """Return the largest relative change of each output over random perturbations of all float inputs in their last bits."""
    random = np.random.default_rng(SEED)
    farthest = dict.fromkeys(at, 0.0)
    for _ in range(PERTURBATIONS):
        deviations = differences(at, run({name: _perturbed(x, random) for name, x in values.items()}).values())
        farthest = {name: max(far, deviations[name]) for name, far in farthest.items()}
    return farthest


def _perturbed(x: Data, random: np.random.Generator) -> Data:
    """Return a tensor with floats scaled by 1 ± MOVE at random."""
    return (x * (1 + PERTURBATION * random.choice((-1.0, 1.0), x.shape))).astype(x.dtype) if x.dtype.kind == "f" else x


def _difference(expected: Data, actual: Data) -> float:
    """Return the largest difference relative to the largest value, where that is finite; the host's pools write the lowest for −∞."""
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return math.inf
    if expected.dtype.kind not in "fciub":
        return 0.0 if np.array_equal(expected, actual) else math.inf
    comparable = np.isfinite(expected)
    if expected.dtype.kind == "f":
        comparable &= np.abs(expected) < np.finfo(expected.dtype).max
    x, y = expected[comparable].astype(np.float64), actual[comparable].astype(np.float64)
    if not np.isfinite(y).all():
        return math.inf
    scale = max(float(np.max(np.abs(x), initial=0)), 1e-30)
    return float(np.max(np.abs(x - y), initial=0)) / scale


def _fitting(source: Session, values: Mapping[str, Data]) -> dict[str, Data]:
    """Return the values restricted to the inputs that a model declares."""
    return {port.name: values[port.name] for port in source.inputs if port.name in values}
