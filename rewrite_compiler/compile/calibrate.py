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
from ..target import body_of, inlined
from .host import HostProgram
from .plan import Calibration, Offload, Plan

TOLERANCE = 1e-5  # of a batched float run against single runs
METHOD = "largest magnitude over all samples of a float32 run"


def calibrated(plan: Plan, inputs: MappingOf[str, Data], source: str, sha256: str = "", *, batch: int = 64) -> Plan:
    """Return the plan with formats; `inputs` are calibration samples by input name, samples first."""
    samples = min((len(x) for x in inputs.values()), default=0)
    if samples == 0:
        raise InputError("C100", "calibration needs at least one sample, not 0", place=source)
    largest = _largest(plan, inputs, samples, batch)
    offloads = tuple(replace(o, formats=_formats(plan.program, o, largest)) for o in plan.offloads)
    return replace(plan, offloads=offloads, calibration=Calibration(source, sha256 or _hash(inputs), samples, METHOD))


def float_program(plan: Plan) -> Program:
    """Return the plan's program with every offload replaced by its meaning."""
    nodes = {o.node.outputs[0]: o for o in plan.offloads}
    types = plan.program.types

    def body(node: object) -> Program:
        o = nodes[node.outputs[0]]  # type: ignore[attr-defined]
        return body_of(o.mapping, [types[v] for v in o.node.inputs], dict(o.node.attributes))

    return inlined(plan.program, body)


def tensors_of(o: Offload) -> dict[str, Value]:
    """Return the values of an offload's operands and result by their names in the mapping."""
    return dict(zip([v.name for v in o.mapping.operands], o.node.inputs, strict=True)) | {o.mapping.axes.result: o.node.outputs[0]}


def _largest(plan: Plan, inputs: MappingOf[str, Data], samples: int, batch: int) -> dict[Value, float]:
    """Return the largest magnitude of every tensor of every offload."""
    p = float_program(plan)
    wanted = {v for o in plan.offloads for v in tensors_of(o).values()}
    found = {v: _magnitude(p.constants[v]) for v in wanted if v in p.constants}
    moving = sorted(wanted - p.constants.keys() - set(p.inputs))
    host = HostProgram(replace(p, outputs=tuple(moving)), p.inputs, tolerance=TOLERANCE)
    for at in range(0, samples, batch):
        values = {v: inputs[p.names[v]][at : at + batch] for v in p.inputs}
        results = {**values, **host.run(values)}
        for v in wanted & results.keys():
            found[v] = max(found.get(v, 0.0), _magnitude(results[v]))
    return found


def _magnitude(x: Data) -> float:
    size = float(np.max(np.abs(x), initial=0))
    if not np.isfinite(size):
        raise InputError("C102", "a tensor of the float run is not finite", help="check the calibration samples")
    return size


def _formats(p: Program, o: Offload, largest: MappingOf[Value, float]) -> dict[str, Format]:
    values = tensors_of(o)
    return {name: choose(largest[values[name]]) for name, choose in o.mapping.formats.items()}


def _hash(inputs: MappingOf[str, Data]) -> str:
    digest = hashlib.sha256()
    for name in sorted(inputs):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(inputs[name]).tobytes())
    return digest.hexdigest()
