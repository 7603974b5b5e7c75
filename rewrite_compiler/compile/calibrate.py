"""Calibrate: choose the format of every tensor of every offload from a float run of calibration samples.

Weights take their format from their own values; activations and results from the largest magnitude in the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping as MappingOf
from dataclasses import replace

import numpy as np

from ..errors import InputError
from ..ir.program import Data, Program, Value
from ..lang.formats import Format
from ..target import body_of, inlined, simulated_device
from .execute import Prepared
from .host import HostProgram
from .plan import Calibration, Offload, Plan, tensors_of

TRIED_SAMPLES = 4
TOLERANCE = 1e-5  # of a batched float run against single runs
METHOD = (
    "largest magnitude over all samples of a float32 run; "
    "formats with inner state by least error of the first result on the first 4 samples"
)


def calibrated(plan: Plan, inputs: MappingOf[str, Data], source: str, sha256: str = "", *, batch: int = 64) -> Plan:
    """Return the plan with formats; `inputs` are calibration samples by input name, samples first."""
    samples = min((len(x) for x in inputs.values()), default=0)
    if samples == 0:
        raise InputError("C100", "calibration needs at least one sample, not 0", place=source)
    largest, kept = _largest(plan, inputs, samples, batch)
    offloads = tuple(_searched(plan.program, replace(o, formats=_formats(o, largest)), kept) for o in plan.offloads)
    return replace(plan, offloads=offloads, calibration=Calibration(source, sha256 or _hash(inputs), samples, METHOD))


def float_program(plan: Plan) -> Program:
    """Return the plan's program with every offload replaced by its meaning."""
    nodes = {o.node.outputs[0]: o for o in plan.offloads}
    types = plan.program.types

    def body(node: object) -> Program:
        o = nodes[node.outputs[0]]  # type: ignore[attr-defined]
        return body_of(o.mapping, [types[v] for v in o.node.inputs], dict(o.node.attributes))

    return inlined(plan.program, body)


Largest = dict[Value, float]


def _largest(plan: Plan, inputs: MappingOf[str, Data], samples: int, batch: int) -> tuple[Largest, dict[Value, Data]]:
    """Return the largest magnitude of every tensor of every offload, and the first samples of tensors that are tried out."""
    p = float_program(plan)
    wanted = {v for o in plan.offloads for v in tensors_of(o).values()}
    tried = {v for o in plan.offloads if o.mapping.search for v in tensors_of(o).values()}
    found = {v: _magnitude(p.constants[v]) for v in wanted if v in p.constants}
    kept: dict[Value, Data] = {}
    moving = sorted(wanted - p.constants.keys() - set(p.inputs))
    host = HostProgram(replace(p, outputs=tuple(moving)), p.inputs, tolerance=TOLERANCE) if moving else None
    for at in range(0, samples, batch):
        values = {v: inputs[p.names[v]][at : at + batch] for v in p.inputs}
        results = values if host is None else {**values, **host.run(values)}
        for v in wanted & results.keys():
            found[v] = max(found.get(v, 0.0), _magnitude(results[v]))
        if not at:
            kept = {v: np.array(results[v][:TRIED_SAMPLES]) for v in tried & results.keys()}
    return found, kept


def _magnitude(x: Data) -> float:
    size = float(np.max(np.abs(x), initial=0))
    if not np.isfinite(size):
        raise InputError("C102", "a tensor of the float run is not finite", help="check the calibration samples")
    return size


def _formats(o: Offload, largest: MappingOf[Value, float]) -> dict[str, Format]:
    return o.mapping.formats_for({name: largest[v] for name, v in tensors_of(o).items()})


def _searched(p: Program, o: Offload, kept: MappingOf[Value, Data]) -> Offload:
    """Return the offload with the candidate formats that give the least error on the first calibration samples."""
    for name, candidates in o.mapping.search.items():
        tried = [replace(o, formats=o.mapping.with_format(o.formats, name, f)) for f in candidates]
        o = min(tried, key=lambda trial: _error(p, trial, kept))
    return o


def _error(p: Program, o: Offload, kept: MappingOf[Value, Data]) -> float:
    """Return the relative squared error of an offload's first result on kept samples, run on its simulator."""
    tensors = tensors_of(o)
    moving = {v.name: kept[tensors[v.name]] for v in o.mapping.operands if tensors[v.name] in kept}
    constants = {v.name: p.constants[tensors[v.name]] for v in o.mapping.operands if tensors[v.name] in p.constants}
    samples = len(next(iter(moving.values())))
    device = simulated_device(o.target.ila(), samples=samples)
    results, _ = Prepared(o, constants).run(device, moving)
    expected = kept[o.node.outputs[0]].astype(np.float64)
    return float(np.sum((results[0] - expected) ** 2) / max(float(np.sum(expected**2)), 1e-30))


def _hash(inputs: MappingOf[str, Data]) -> str:
    digest = hashlib.sha256()
    for name in sorted(inputs):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(inputs[name]).tobytes())
    return digest.hexdigest()
