"""The plan: the extracted program, the place of every source node, and the reasons."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...data.data_frame import data_frame
from ...fit import Tiling
from ...fit.cost import Price, accesses, cost_document
from ...fit.host import table_from
from ...fit.link_traffic import link_traffic
from ...ir.program import Node, Program, Value, nodes_of_unknown_macs
from ...lang.formats import Format
from ...ops.op import Apply, subterms
from ...prove.certificates.shipped_certificates import weakest_coverage
from ...target import Mapping, Target
from .application_time import application_time
from .resident_document import DeviceResidency, residency_document, resident_document

if TYPE_CHECKING:
    from ...fit.mapped_cost import MappedCost

SCHEMA = "flexmatch.plan/1"
CompileAgain = Callable[[tuple[str, ...], tuple[str, ...]], "Plan"]  # with other pins PLACE=NODE, and other scalings


@dataclass(frozen=True)
class Reason:
    """A rule that led to an offload: its name, its place in a file, its grade, and the scope of its certificate.

    `ulp` and `share_of_rounding` are the largest differences of its sides measured in float32, `error_bound_ratio` is how many times
    larger the rounding error bound of one side may be, of grades A and F; None for operations.
    """

    rule: str
    at: str
    grade: str
    covers: str
    ulp: float | None = None
    share_of_rounding: float | None = None
    error_bound_ratio: float | None = None


@dataclass(frozen=True)
class Offload:
    """A logical offload: one target operation, in as many device calls as its tiling has tiles."""

    id: str
    target: Target
    mapping: Mapping
    node: Node
    nodes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    macs: int
    because: tuple[Reason, ...]
    tiling: Tiling
    formats: MappingOf[str, Format] = field(default_factory=dict)  # operand or result name of the mapping → format
    price: Price | None = None  # None when the target states no costs
    host_picoseconds: int = 0  # time of the same nodes on the host
    mapped: MappedCost | None = None  # at the best mappings, where the objective asks mappers

    def __repr__(self) -> str:
        """Return the id with operation and operand shapes."""
        shapes = ", ".join("×".join(map(str, s)) for s in self.shapes)
        return f"Offload({self.id}: {self.mapping.name} of {shapes})"


def tensors_of(o: Offload) -> dict[str, Value]:
    """Return the values of an offload's operands and results by their names in the mapping."""
    names = (*(v.name for v in o.mapping.operands), *o.mapping.axes.results)
    return dict(zip(names, (*o.node.inputs, *o.node.outputs), strict=True))


@dataclass(frozen=True)
class HostNode:
    """A source node that stays on the host, with the reason."""

    node: str
    op: str
    why_not: str


@dataclass(frozen=True)
class Absorbed:
    """A source node without an operation of its own, and what absorbed it."""

    node: str
    by: str


@dataclass(frozen=True)
class Calibration:
    """The origin of format parameters: samples, method, and range of each tensor."""

    source: str
    sha256: str
    samples: int
    method: str
    formats_sha256: str = ""  # of the calibrated formats, which detects later changes
    tensors: tuple[MappingOf[str, Any], ...] = ()  # offload, tensor, method, magnitude to represent, largest magnitude


@dataclass(frozen=True)
class Plan:
    """A compiled program: source and extracted program, offloads, host nodes, formats, and statistics of how it was found."""

    model: MappingOf[str, Any]  # path, sha256, ops
    source: Program  # as imported, before matching
    program: Program
    targets: tuple[Target, ...]
    offloads: tuple[Offload, ...]
    host: tuple[HostNode, ...]
    absorbed: tuple[Absorbed, ...]
    rules_sha256: str
    counts: MappingOf[str, MappingOf[str, int]]
    lowered_counts: MappingOf[str, MappingOf[str, int]]
    exact_counts: MappingOf[str, MappingOf[str, int]]
    egraph: MappingOf[str, Any]
    extraction: MappingOf[str, Any]
    settings: MappingOf[str, Any]
    limited: tuple[str, ...] = ()
    calibration: Calibration | None = None
    notes: tuple[str, ...] = ()
    run: MappingOf[str, Any] = field(default_factory=dict)
    residency: MappingOf[str, DeviceResidency] = field(default_factory=dict)  # by target
    compile_again: CompileAgain | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        """Return the model with its offloads and number of host nodes."""
        counted = ", ".join(f"{n} {operation} on {t}" for t, c in self.counts.items() for operation, n in c.items()) or "no offload"
        return f"Plan({self.model['path'].rsplit('/', 1)[-1]}: {counted}; nodes on the host: {len(self.host)})"

    @property
    def calibrated(self) -> bool:
        """Whether every offload has its formats."""
        return all(o.formats for o in self.offloads)

    @property
    def device_calls(self) -> dict[str, dict[str, int]]:
        """The number of device calls by target and operation."""
        calls_by_target: dict[str, dict[str, int]] = {t.name: {} for t in self.targets}
        for o in self.offloads:
            calls = calls_by_target[o.target.name]
            calls[o.mapping.operation] = calls.get(o.mapping.operation, 0) + o.tiling.calls
        return calls_by_target

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each node of the model: where it runs and why.

        Columns: `node`, `place` (host, or TARGET.OPERATION), `offload` (its id, or that of what absorbed the node), `why`.
        """
        names = {o.id: f"{o.target.name}.{o.mapping.operation}" for o in self.offloads}
        rows = [(node, names[o.id], o.id, ", ".join(r.rule for r in o.because)) for o in self.offloads for node in o.nodes]
        rows += [(h.node, "host", "", h.why_not) for h in self.host]
        rows += [(a.node, names.get(a.by, "host"), a.by if a.by in names else "", f"absorbed by {a.by}") for a in self.absorbed]
        return data_frame({name: [row[k] for row in rows] for k, name in enumerate(("node", "place", "offload", "why"))})


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as a JSON document; everything that may differ between two equal runs is under `run`."""
    return {
        "schema": SCHEMA,
        "model": dict(plan.model),
        "targets": [{"name": t.name, "parameters": t.values, "sha256": t.sha256} for t in plan.targets],
        "rules_sha256": plan.rules_sha256,
        "settings": dict(plan.settings),
        "calibrated": plan.calibrated,
        "calibration": None if plan.calibration is None else {**vars(plan.calibration), "tensors": list(plan.calibration.tensors)},
        "counts": plan.counts,
        "lowered_counts": plan.lowered_counts,
        "exact_counts": plan.exact_counts,
        "device_calls": plan.device_calls,
        "offloads": [_offload(o, plan.residency) for o in plan.offloads],
        "host": [vars(h) for h in plan.host],
        "uncounted": sorted({plan.source.sources[k].name for n in nodes_of_unknown_macs(plan.program) for k in n.origins}),
        "absorbed": [vars(a) for a in plan.absorbed],
        "inserted": _inserted(plan),
        "application": application_time(
            plan.source, plan.program, {o.node.outputs[0]: o.price for o in plan.offloads}, table_from(plan.settings["host_costs"])
        ),
        "formats": [f for o in plan.offloads for f in _formats(plan, o)],
        "egraph": dict(plan.egraph),
        "extraction": dict(plan.extraction),
        "residency": residency_document(plan.residency),
        "limited": list(plan.limited),
        "notes": list(plan.notes),
        "run": dict(plan.run),
    }


def link_bytes(o: Offload) -> dict[str, int]:
    """Return the bytes of an offload by the link that they cross; nothing where its target does not say what it costs."""
    return {} if o.price is None else link_traffic(o.mapping, o.tiling, dict(o.node.attributes), o.target.resources(), o.price.cost)


def _offload(o: Offload, residency: MappingOf[str, DeviceResidency]) -> dict[str, Any]:
    levels = accesses(o.mapping, o.tiling, dict(o.node.attributes))
    links = link_bytes(o)
    return {
        "id": o.id, "target": o.target.name, "operation": o.mapping.operation, "parts": _parts(o), "nodes": list(o.nodes),
        "shape": dict(o.tiling.sizes), "macs": o.macs, "because": [vars(r) for r in o.because],
        "certificate": weakest_coverage(r.covers for r in o.because),
        "device_calls": o.tiling.calls, "tiles": dict(o.tiling.tile),
        "formats": {n: {"format": f.name, **f.parameters} for n, f in o.formats.items()},
        "resident": resident_document(o.id, o.target.name, residency),
        "cost": None if o.price is None else cost_document(o.price, o.macs, o.host_picoseconds, levels, links),
        **({} if o.mapped is None else {"mapping": o.mapped.document()}),
        **({"runtime_weights": list(o.mapping.runtime_weights)} if o.mapping.runtime_weights else {}),
    }  # fmt: skip


def _parts(o: Offload) -> list[str]:
    """Return the operators of the matched pattern, operands first."""
    return [x.op.name for x in subterms(o.mapping.rule.left) if isinstance(x, Apply)]


def _inserted(plan: Plan) -> list[dict[str, Any]]:
    """Return host operations without origin in a source node, with the bytes they write."""
    readers: dict[int, list[str]] = {}
    for o in plan.offloads:
        for v in (*o.node.inputs, *o.node.outputs):
            readers.setdefault(v, []).append(o.id)
    inserted = []
    for n in plan.program.nodes:
        if n.origins or n.operator is None:
            continue
        neighbours = [i for v in (*n.inputs, *n.outputs) for i in readers.get(v, ())]
        inserted.append({"op": n.op, "bytes": sum(plan.program.types[v].nbytes for v in n.outputs), "for": sorted(set(neighbours))})
    return inserted


def _formats(plan: Plan, o: Offload) -> list[dict[str, Any]]:
    values, has_own_formats = tensors_of(o), not o.mapping.format_choices
    return [
        {
            "tensor": plan.program.names[values[name]], "target": o.target.name, "format": f.name, "parameters": f.parameters,
            "from": "model" if has_own_formats else "weights" if plan.program.is_constant(values[name]) else "calibration",
        }
        for name, f in o.formats.items()
    ]  # fmt: skip
