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
    largest, inner = _largest(plan, inputs, samples, batch)
    offloads = tuple(replace(o, formats=_formats(o, largest, inner.get(o.id, {}))) for o in plan.offloads)
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


Largest = dict[Value, float]


def _largest(plan: Plan, inputs: MappingOf[str, Data], samples: int, batch: int) -> tuple[Largest, dict[str, dict[str, float]]]:
    """Return the largest magnitude of every tensor of every offload, and what operations keep inside."""
    p = float_program(plan)
    wanted = {v for o in plan.offloads for v in tensors_of(o).values()}
    found = {v: _magnitude(p.constants[v]) for v in wanted if v in p.constants}
    inner: dict[str, dict[str, float]] = {}
    moving = sorted(wanted - p.constants.keys() - set(p.inputs))
    host = HostProgram(replace(p, outputs=tuple(moving)), p.inputs, tolerance=TOLERANCE)
    for at in range(0, samples, batch):
        values = {v: inputs[p.names[v]][at : at + batch] for v in p.inputs}
        results = {**values, **host.run(values)}
        for v in wanted & results.keys():
            found[v] = max(found.get(v, 0.0), _magnitude(results[v]))
        for o in plan.offloads:
            _look_inside(o, results, p.constants, inner.setdefault(o.id, {}))
    return found, inner


def _look_inside(o: Offload, results: MappingOf[Value, Data], constants: MappingOf[Value, Data], found: dict[str, float]) -> None:
    """Widen the ranges of what an operation keeps inside by the samples of one batch."""
    if o.mapping.inner_ranges is None:
        return
    moving = [v for v in o.node.inputs if v in results]
    for n in range(len(results[moving[0]]) if moving else 0):
        operands = [results[v][n] if v in results else constants[v] for v in o.node.inputs]
        for name, size in o.mapping.inner_ranges(*operands).items():
            found[name] = max(found.get(name, 0.0), float(size))


def _magnitude(x: Data) -> float:
    size = float(np.max(np.abs(x), initial=0))
    if not np.isfinite(size):
        raise InputError("C102", "a tensor of the float run is not finite", help="check the calibration samples")
    return size


def _formats(o: Offload, largest: MappingOf[Value, float], inner: MappingOf[str, float]) -> dict[str, Format]:
    sizes = {name: max(largest[v], inner.get(name, 0.0)) for name, v in tensors_of(o).items()}
    return o.mapping.formats_for(sizes)


def _hash(inputs: MappingOf[str, Data]) -> str:
    digest = hashlib.sha256()
    for name in sorted(inputs):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(inputs[name]).tobytes())
    return digest.hexdigest()
