"""Post-training calibration: chooses the format of every tensor of every offload from a float run of samples.

Weights take their format from their own values; activations and results from their values in the run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...errors import InputError, Problem, UsageError
from ...ila import Ila
from ...ir.program import Data, Node, Program, Value
from ...lang.formats import Format
from ...limits import DEFAULT, Limits
from ...readings.kernels.format_conversion import codes_of, values_of
from ...target import FormatFor, body_of, inlined, simulated_device
from ..host.data_movement import PendingMove
from ..host.lazy_codes import elements_of
from ..offload.execute import PreparedOffload, check_finite
from ..offload.specified import NumericsOffload, is_certified
from ..plan.plan import Calibration, Offload, Plan, tensors_of
from ..plan.residency import resident_edges
from .range_methods import KEPT_VALUES, PERCENTILE, Method, magnitude, method_of
from .unlowered import CHECK_SAMPLES, FloatRun

SEARCH_SAMPLES = 4
PRODUCTS_ON_ARRAYS = 1 << 24  # of an offload on samples: more are worth machine code, which is printed for each choice of formats
EMPTY = np.zeros(0)
MOST_BYTES = 1 << 26  # of the tensors of samples that run at once
SEARCH = "formats with inner state by least error of the first result on the first 4 samples"
METHODS = {
    "max": "largest magnitude over all samples of a float32 run",
    "percentile": f"magnitude that {PERCENTILE} % of the values of a float32 run do not exceed",
    "mse": "magnitude whose format has the least squared error on the values of a float32 run",
    "entropy": "magnitude whose format changes the distribution of the values of a float32 run least",
}


def calibrated(
    plan: Plan, inputs: MappingOf[str, Data], source: str, sha256: str = "", *, batch: int = 64, method: str = "", limits: Limits = DEFAULT,
    observations: Observations | None = None,
) -> Plan:  # fmt: skip
    """Return the plan with formats; `inputs` are calibration samples by input name, samples first.

    `method` is max (the default), percentile, mse or entropy, or such a list with OFFLOAD.TENSOR=METHOD for single tensors.
    `observations` are those of a float run of the samples, which is made where there are none.

    Raises:
        InputError: (C100) there is no sample; (C102) a weight, or a value of the float run, is not finite.
        UsageError: (F203) a method or a tensor of it does not exist.
    """
    methods = method_of(method)
    _check_names(plan, methods)
    sha256 = sha256 or _hash(inputs)
    samples = min((len(x) for x in inputs.values()), default=0)
    if samples == 0:
        raise InputError("C100", "calibration needs at least one sample, not 0", place=source)
    if is_calibrated_by(plan, sha256, samples, methods):
        return plan
    if observations is None:
        observations = observed(plan, inputs, calibration_run(plan, inputs, limits.host_seconds), batch=batch, method=method)
    offloads, tensors = [], list[dict[str, Any]]()
    for o in plan.offloads:
        ranges = _ranges(plan, o, observations, methods)
        formats = o.mapping.formats_for({name: r["magnitude"] for name, r in ranges.items()})
        samples_of = {v: x for name, v in tensors_of(o).items() if (x := observations.first_samples.get((o.id, name))) is not None}
        offloads.append(_with_searched_formats(plan.program, replace(o, formats=formats), samples_of))
        tensors += [{"offload": o.id, "tensor": name, **r} for name, r in ranges.items()]
    unified = _unified(plan, offloads)
    calibration = Calibration(source, sha256, samples, _method_text(methods), _digest(unified), tuple(tensors))
    return replace(plan, offloads=unified, calibration=calibration)


def is_calibrated_by(plan: Plan, sha256: str, samples: int, method: Method) -> bool:
    """Tell whether a plan has unchanged formats from these samples and this method."""
    c = plan.calibration
    return c is not None and (c.sha256, c.samples, c.method, c.formats_sha256) == (
        sha256,
        samples,
        _method_text(method),
        _digest(plan.offloads),
    )


def _digest(offloads: Sequence[Offload]) -> str:
    """Return the SHA-256 of the formats of all offloads, by offload and tensor."""
    formats = {o.id: {name: [f.name, dict(f.parameters)] for name, f in o.formats.items()} for o in offloads}
    return hashlib.sha256(json.dumps(formats, sort_keys=True).encode()).hexdigest()


def _method_text(method: Method) -> str:
    """Return the description of a method that plans record."""
    single = "".join(f"; {place}: {m}" for place, m in method.single.items())
    return f"{METHODS[method.usual]}{single}; {SEARCH}"


def scale_warnings(plan: Plan) -> list[Problem]:
    """Return a problem (C103) for each tensor of a calibrated plan outside every scale of its format: it saturates or underflows."""
    if plan.calibration is None:
        return []
    offloads, problems = {o.id: o for o in plan.offloads}, []
    for t in plan.calibration.tensors:
        o, name, size = offloads.get(t["offload"]), t["tensor"], t["magnitude"]
        if o is None or name not in o.mapping.format_choices:  # an offload that the target refuses now is on the host, in no format
            continue
        requirement = _out_of_scale(o.mapping.format_choices[name], o.formats[name], size)
        if requirement:
            problems.append(
                Problem("C103", f"{name} of {o.id} must be {requirement}, not {size:g}", plan.program.names[tensors_of(o)[name]])
            )
    return problems


def _out_of_scale(choose: FormatFor, f: Format, size: float) -> str:
    """Return the requirement that the largest magnitude of a tensor violates, empty if the format represents it."""
    if _is_beyond(choose, f, size):
        return f"at most {float(f.largest):g}, the largest value of its format"
    if size > 0 and not values_of(f, codes_of(f, np.array([size]))).any():
        return "large enough for its format, which makes zero of it"
    return ""


def _is_beyond(choose: FormatFor, f: Format, size: float) -> bool:
    """Tell whether a magnitude exceeds the largest scale, where half of it has the same format; formats of one scale are exempt."""
    return size > f.largest and choose(size) == choose(size / 2) != choose(float(f.largest) / 2**40)


def _unified(plan: Plan, offloads: Sequence[Offload]) -> tuple[Offload, ...]:
    """Return the offloads with each resident operand in the format of the result that defines it."""
    by_id = {o.id: o for o in offloads}
    for maker, result, taker, operand in resident_edges(plan.program, plan.offloads, plan.residency):
        o = by_id[taker.id]
        formats = o.mapping.with_format(o.formats, operand, by_id[maker.id].formats[result])
        by_id[taker.id] = replace(o, formats=formats)
    return tuple(by_id.values())


def float_program(plan: Plan, only: Collection[str] | None = None) -> Program:
    """Return the plan's program with every offload, or those with ids in `only`, inlined as float operators."""
    nodes = {o.node.outputs[0]: o for o in plan.offloads if only is None or o.id in only}
    types = plan.program.types

    def body(node: Node) -> Program | None:
        o = nodes.get(node.outputs[0])
        return None if o is None else body_of(o.mapping, [types[v] for v in o.node.inputs], dict(o.node.attributes))

    return inlined(plan.program, body)


TensorKey = tuple[str, str]  # the id of an offload, and the name of a tensor of its mapping


@dataclass
class Observations:
    """Observations of a float run: largest magnitudes, sampled values, and the first samples of tensors whose formats are searched."""

    largest: dict[TensorKey, float] = field(default_factory=dict)
    values: dict[TensorKey, list[Data]] = field(default_factory=dict)
    first_samples: dict[TensorKey, Data] = field(default_factory=dict)

    def scaled(self, exponents: MappingOf[TensorKey, int]) -> Observations:
        """Return the observations of tensors times powers of two, which floats represent exactly."""
        return Observations(
            {key: math.ldexp(x, exponents.get(key, 0)) for key, x in self.largest.items()},
            {key: [np.ldexp(x, exponents[key]) for x in parts] if key in exponents else parts for key, parts in self.values.items()},
            {key: np.ldexp(x, exponents[key]) if key in exponents else x for key, x in self.first_samples.items()},
        )


def calibration_run(plan: Plan, inputs: MappingOf[str, Data], seconds: int = DEFAULT.host_seconds) -> FloatRun:
    """Return the float run of a plan's program that computes the tensors of all offloads; samples are those of calibration.

    Raises:
        InputError: (C102) a weight of an offload is not finite.
    """
    p = float_program(plan)
    tensors = {v for o in plan.offloads for v in tensors_of(o).values()}
    for o in plan.offloads:
        for name, v in tensors_of(o).items():
            check_finite(o, name, p.constants.get(v, EMPTY))
    moving = sorted(tensors - p.constants.keys() - set(p.inputs))
    check_inputs = {v: inputs[p.names[v]][:CHECK_SAMPLES] for v in p.inputs}
    return FloatRun(plan.source, p, moving, len(plan.program.types), check_inputs, seconds)


def observed(plan: Plan, inputs: MappingOf[str, Data], run: FloatRun, *, batch: int = 64, method: str = "") -> Observations:
    """Return what a float run of samples shows of the tensors of a plan's offloads.

    Raises:
        InputError: (C102) a value of the float run is not finite.
    """
    p, needs_values = run.lowered, method_of(method).needs_values
    keys: dict[Value, list[TensorKey]] = {}
    for o in plan.offloads:
        for name, v in tensors_of(o).items():
            keys.setdefault(v, []).append((o.id, name))
    searched = {v for o in plan.offloads if o.mapping.search for v in tensors_of(o).values()}
    largest, values, first_samples = dict[Value, float](), dict[Value, list[Data]](), dict[Value, Data]()
    for v in keys.keys() & p.constants.keys():
        largest[v] = _magnitude(p.constants[v])
        values[v] = [_sampled_values(p.constants[v], 1)] if needs_values else []
    # sampled values depend on the number of batches, which must not depend on the program that is run
    sample_bytes = sum(p.types[v].nbytes for v in run.requested) if needs_values else run.live_bytes
    batch = max(1, min(batch, MOST_BYTES // max(1, sample_bytes)))
    samples = min((len(x) for x in inputs.values()), default=0)
    batches = -(-samples // batch)
    for at in range(0, samples, batch):
        part = {v: inputs[p.names[v]][at : at + batch] for v in p.inputs}
        results = {**part, **run.run(part)}
        for v in keys.keys() & results.keys():
            size = _magnitude(results[v])
            if not np.isfinite(size):
                raise _not_finite(plan, v, at)
            largest[v] = max(largest.get(v, 0.0), size)
            if needs_values:
                values.setdefault(v, []).append(_sampled_values(results[v], batches))
        if not at:
            first_samples = {v: np.array(elements_of(results[v])[:SEARCH_SAMPLES]) for v in searched & results.keys()}

    def by_key(part: MappingOf[Value, Any]) -> dict[TensorKey, Any]:
        return {key: x for v, x in part.items() for key in keys[v]}

    return Observations(by_key(largest), by_key(values), by_key(first_samples))


def _sampled_values(x: Data | PendingMove, parts: int) -> Data:
    """Return evenly spaced values of one of `parts` batches of a tensor."""
    size = len(x.root) * x.move.places.size if isinstance(x, PendingMove) else x.size
    step = max(1, size * parts // KEPT_VALUES)
    return x.move.strided_elements(x.root, step) if isinstance(x, PendingMove) else np.array(x.reshape(-1)[::step])


def _magnitude(x: Data | PendingMove) -> float:
    values = x.root if isinstance(x, PendingMove) and x.move.is_onto else elements_of(x)
    return float(np.max(np.abs(values), initial=0))


def _not_finite(plan: Plan, v: Value, at: int) -> InputError:
    """Return the refusal of a tensor that overflows in the float run of a batch of samples."""
    o, name = next((o, name) for o in plan.offloads for name, value in tensors_of(o).items() if value == v)
    sentence = f"{name} of {o.id} must be finite in the float32 run of calibration samples, not so in samples from {at} on"
    return InputError("C102", sentence, place=", ".join(o.nodes), help="calibrate on samples of the magnitudes that the model is for")


def _check_names(plan: Plan, method: Method) -> None:
    names = {f"{o.id}.{name}" for o in plan.offloads for name in tensors_of(o)}
    for place in method.single:
        if place not in names:
            raise UsageError("F203", f'there is no tensor "{place}" to calibrate', help="name it OFFLOAD.TENSOR, as the plan does")


def _ranges(plan: Plan, o: Offload, observations: Observations, method: Method) -> dict[str, dict[str, Any]]:
    """Return the method, the magnitude to represent, and the largest magnitude of every tensor of an offload."""
    choices, ranges = o.mapping.format_choices, {}
    for name, v in tensors_of(o).items():
        largest = observations.largest[o.id, name]
        tensor_method = method.of(o.id, name, is_constant=v in plan.program.constants) if name in choices else "max"
        size = (
            largest
            if tensor_method == "max"
            else magnitude(tensor_method, largest, np.concatenate(observations.values[o.id, name]), choices[name])
        )
        ranges[name] = {"method": tensor_method, "magnitude": size, "largest": largest}
    return ranges


def _with_searched_formats(p: Program, o: Offload, samples: MappingOf[Value, Data]) -> Offload:
    """Return the offload with the candidate formats of least error on the first samples, one tensor after another.

    Candidates run by their numerics where driver and numerics are proved equivalent, else on the simulator.
    """
    is_simulated = bool(o.mapping.search) and not is_certified(o.target, o.mapping.variant)
    ila = o.target.ila() if is_simulated else None
    for name, candidates in o.mapping.search.items():
        trials = [replace(o, formats=o.mapping.with_format(o.formats, name, f)) for f in candidates]
        errors = [isolated_error(p, trial, samples, ila) for trial in trials]
        o = trials[errors.index(min(errors))]
    return o


def isolated_error(p: Program, o: Offload, samples: MappingOf[Value, Data], ila: Ila | None) -> float:
    """Return Σ(y − ŷ)² / Σy² of an offload's first result on samples, run in isolation on a simulator, or without one by numerics."""
    tensors = tensors_of(o)
    moving = {v.name: samples[tensors[v.name]] for v in o.mapping.operands if tensors[v.name] in samples}
    constants = {v.name: p.constants[tensors[v.name]] for v in o.mapping.operands if tensors[v.name] in p.constants}
    if ila is None:
        products = o.macs * len(next(iter(moving.values()), ()))
        results = NumericsOffload(o, constants, is_native=products > PRODUCTS_ON_ARRAYS).results(moving)
    else:
        results, _ = PreparedOffload(o, constants).run(simulated_device(ila, samples=len(next(iter(moving.values())))), moving)
    expected = samples[o.node.outputs[0]].astype(np.float64)
    return float(np.sum((results[0] - expected) ** 2) / max(float(np.sum(expected**2)), 1e-30))


def _hash(inputs: MappingOf[str, Data]) -> str:
    digest = hashlib.sha256()
    for name in sorted(inputs):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(inputs[name]).tobytes())
    return digest.hexdigest()
