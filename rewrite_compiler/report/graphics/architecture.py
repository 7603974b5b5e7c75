"""Views of a target's resources: lines of text, and an architecture graph for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import printable
from ...target import Resources

LINE = "\\n"


def resource_rows(r: Resources) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for every memory, unit and link of the architecture graph, the clock first and notes last."""
    yield "clock", f"{r.clock.hertz / 1e6:g} MHz ({r.clock.source})"
    for m in r.memories:
        multiplicity = f"{m.instances} × " if m.instances > 1 else ""
        banks = f"{m.banks} banks × " if m.banks > 1 else ""
        yield f"memory {m.name}", f"{multiplicity}{m.capacity_bytes:,} bytes: {banks}{m.depth:,} × {m.width_bits} bits"
    for u in r.units:
        step = " × ".join(f"{d} {n}" for d, n in u.step.items())
        multiplicity = f"{u.instances} × " if u.instances > 1 else ""
        yield (
            f"unit {u.name}",
            f"{', '.join(u.operations)} on {', '.join(u.types)}: {multiplicity}{step} a step, {u.per_cycle:,} in a cycle",
        )
    for x in r.links:
        latency = f", latency {x.latency_cycles}" if x.latency_cycles else ""
        cycles = "a cycle" if x.cycles == 1 else f"every {x.cycles} cycles"
        port = f", port {x.port}" if x.port else ""
        yield f"link {x.source} → {x.sink}", f"{x.width_bytes} bytes {cycles}{latency}{port}"
    for note in r.notes:
        yield "note", note


def architecture_dot(name: str, r: Resources) -> str:
    """Return the architecture graph in Graphviz's language: memories as boxes, units as ellipses, links labelled bytes / cycles."""
    memories = [f"  {_node(m.name, f'{m.instances} × {m.capacity_bytes:,} bytes', 'box')}" for m in r.memories]
    units = [f"  {_node(u.name, f'{u.per_cycle:,} a cycle', 'ellipse')}" for u in r.units]
    links = [f"  {quoted(x.source)} -> {quoted(x.sink)} [label={quoted(f'{x.width_bytes} B / {x.cycles}')}];" for x in r.links]
    return "\n".join([f"digraph {quoted(name)} {{", "  rankdir=LR;", "  host [shape=house];", *memories, *units, *links, "}", ""])


def _node(name: str, text: str, shape: str) -> str:
    return f"{quoted(name)} [shape={shape}, label={quoted(name, text)}];"


def quoted(*lines: str) -> str:
    """Return lines as one quoted string of Graphviz, every special character escaped."""
    return '"' + LINE.join(printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'
