"""Views of an architecture covenant graph: rows of text, a document, and a drawing for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...target.acg import Acg, ComputeNode, Edge
from ...target.derivation import HOST, StorageShape
from .architecture import quoted

OFF_CHIP = "outside of the device"


def acg_rows(g: Acg) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for every storage, edge and unit, and for what has no summary."""
    if g.clock is not None:
        yield "clock", f"{g.clock.hertz / 1e6:g} MHz ({g.clock.source})"
    for s in g.storages.values():
        yield f"storage {s.name}", _storage_text(s)
    for e in g.edges:
        yield f"edge {e.source} → {e.sink}", f"{_width_text(e)}by {_names(e.by)}"
    for u in g.units.values():
        for f in u.fragments:
            places = " and ".join(dict.fromkeys(f.operands)) or "fields"
            yield f"unit {u.name}", f"{f.capability} of {f.instruction}: {places} → {f.result}"
    for o in g.opaque:
        yield f"opaque {o.instruction}", o.reason


def _storage_text(s: StorageShape) -> str:
    if s.off_chip:
        return f"{OFF_CHIP}, elements of {s.element_bits} bits"
    multiplicity = f"{s.instances} × " if s.instances > 1 else ""
    return f"{multiplicity}{s.capacity_bits // 8:,} bytes: {s.data_width} bits × {s.banks} banks × {s.depth:,}"


def _width_text(e: Edge) -> str:
    if e.bits is None:
        return ""
    cycles = "a cycle" if e.cycles == 1 else f"every {e.cycles} cycles"
    return f"{e.bits} bits {cycles}, "


def _names(names: tuple[str, ...]) -> str:
    listed_names = ", ".join(names[:4])
    return listed_names if len(names) <= 4 else f"{listed_names} and {len(names) - 4} more"


def acg_document(g: Acg) -> dict[str, Any]:
    """Return the graph as JSON, each part with where it comes from: the model, or a declaration with its source."""
    return {
        "name": g.name,
        "clock": None if g.clock is None else {"hertz": g.clock.hertz, "source": g.clock.source},
        "storages": [_storage_document(g, s) for s in g.storages.values()],
        "units": [_unit_document(u) for u in g.units.values()],
        "edges": [_edge_document(e) for e in g.edges],
        "opaque": [{"instruction": o.instruction, "reason": o.reason, "reads": list(o.reads), "writes": list(o.writes)} for o in g.opaque],
    }


def _storage_document(g: Acg, s: StorageShape) -> dict[str, Any]:
    declared = g.memories.get(s.name)
    energies = {} if declared is None else {"read": declared.read_energy, "write": declared.write_energy}
    return {
        "name": s.name, "data_width": s.data_width, "banks": s.banks, "depth": None if s.off_chip else s.depth, "instances": s.instances,
        "off_chip": s.off_chip, "capacity_bits": None if s.off_chip else s.capacity_bits, "from": "model",
        "energies": {key: {"value": x.value, "unit": x.unit, "source": x.source} for key, x in energies.items() if x is not None},
    }  # fmt: skip


def _unit_document(u: ComputeNode) -> dict[str, Any]:
    return {
        "name": u.name, "instances": 1 if u.declared is None else u.declared.instances,
        "name_from": "model" if u.declared is None else "declared",
        "capabilities": [
            {
                "capability": str(f.capability), "instruction": f.instruction, "operands": list(f.operands), "result": f.result,
                "lanes": dict(f.lanes), "from": "model",
            }
            for f in u.fragments
        ],
    }  # fmt: skip


def _edge_document(e: Edge) -> dict[str, Any]:
    return {
        "source": e.source, "sink": e.sink, "instructions": list(e.by), "bits": e.bits, "cycles": e.cycles, "latency": e.latency,
        "ends_from": "model", "width_from": None if e.bits is None else "declared",
    }  # fmt: skip


def acg_dot(g: Acg) -> str:
    """Return the graph in Graphviz's language: storages as boxes, units as ellipses, edges with the instructions that copy."""
    storages = [f"  {quoted(s.name)} [shape=box, label={quoted(s.name, _storage_text(s))}];" for s in g.storages.values()]
    units, operands = [], dict[tuple[str, str], None]()
    for u in g.units.values():
        units.append(f"  {quoted(u.name)} [shape=ellipse, label={quoted(u.name, *dict.fromkeys(str(f.capability) for f in u.fragments))}];")
        operands.update({(s, u.name): None for f in u.fragments for s in f.operands} | {(u.name, f.result): None for f in u.fragments})
    copies = [f"  {quoted(e.source)} -> {quoted(e.sink)} [label={quoted(f'{_width_text(e)}{_names(e.by)}')}];" for e in g.edges]
    paths = [f"  {quoted(a)} -> {quoted(b)} [style=dashed];" for a, b in operands]
    has_host = any(HOST in (e.source, e.sink) for e in g.edges)
    head = [f"digraph {quoted(g.name)} {{", "  rankdir=LR;", *(["  host [shape=house];"] if has_host else [])]
    return "\n".join([*head, *storages, *units, *copies, *paths, "}", ""])
