"""neighbourhood: the e-classes around one node of a model after saturation, with the rule that made each e-node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...compile import Options, chosen_targets
from ...compile.compile import search_space
from ...compile.matching.match import constructor_of, extract_match, saturate_program
from ...egraph.graph.graph import PROGRAM, ClassId, EGraph, ENode
from ...egraph.graph.neighbourhood import neighbourhood_of
from ...egraph.graph.term_rows import operator_named
from ...errors import UsageError, did_you_mean
from ...frontend.load import load
from ...ir.program import Program
from ...rewrite.rule import short_place

SCHEMA = "flexmatch.egraph/1"
STEPS = 2
Document = dict[str, Any]
Names = Mapping[ClassId, Sequence[str]]


def neighbourhood(model: str | Path, accel: Sequence[str], options: Options, node: str, steps: int = STEPS) -> Document:
    """Return the e-classes at most `steps` edges from a node or value of the model, and those cut off beside them, as JSON.

    Raises:
        UsageError: the model has no node or value of that name (F203).
    """
    targets = chosen_targets(accel, options.limits)
    loaded = load(model, options.shapes, options.limits)
    p, space = loaded.program, search_space(targets, options)
    saturation = saturate_program(p, space.rules, space.mappings, options.limits)
    extraction = extract_match(p, saturation, space.rules, space.mappings, options.limits, space.objective).extraction
    rule_places = [(r.name, short_place(r.place)) for r in space.rules] + [(m.name, short_place(m.rule.place)) for m in space.mappings]
    devices = {constructor_of(m).name: m.name for m in space.mappings}
    names = class_names(p, saturation.graph)
    start = class_of(p, saturation.graph, node)
    region = neighbourhood_of(saturation.graph, start, steps)
    row = _Rows(saturation.graph, names, extraction.choice, lambda n: _rule_of(n, rule_places), devices)
    return {
        "schema": SCHEMA,
        "model": {"path": str(loaded.path), "sha256": loaded.sha256},
        "targets": [{"name": t.name, "parameters": t.values, "sha256": t.sha256} for t in targets],
        "around": node, "e_class": start, "steps": steps,
        "rounds": saturation.rounds, "stop": {"reason": saturation.reason, "detail": saturation.detail},
        "e_classes": len(saturation.graph.classes), "e_nodes": saturation.graph.e_nodes,
        "shown": [{**row.of(c), "distance": n} for c, n in region.distances.items()],
        "cut": [{**row.of(c), "beside": neighbours} for c, neighbours in region.border.items()],
    }  # fmt: skip


class _Rows:
    """Classes as JSON."""

    def __init__(
        self, graph: EGraph, names: Names, choice: Mapping[ClassId, ENode], maker: Callable[[ENode], tuple[str, str]],
        devices: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.graph, self.names, self.choice, self.maker, self.devices = graph, names, choice, maker, devices

    def of(self, c: ClassId) -> Document:
        """Return a class."""
        e_class = self.graph.classes[c]
        return {
            "e_class": c, "type": "" if e_class.type is None else str(e_class.type), "known": e_class.fixed,
            "values": list(self.names.get(c, ())), "e_nodes": [self._node(c, n) for n in e_class.nodes],
        }  # fmt: skip

    def _node(self, c: ClassId, n: ENode) -> Document:
        operator = operator_named(n.op)
        rule, at = self.maker(n)
        return {
            "op": self.devices.get(n.op, n.op if operator is None else operator.name), "operands": list(n.children),
            "attributes": [list(a) if isinstance(a, tuple) else a for a in n.attributes], "rule": rule, "at": at,
            "chosen": self.choice.get(c) is n,
        }  # fmt: skip


def _rule_of(n: ENode, rule_places: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the rule that made an e-node and its place, nothing for one of the program."""
    return ("", "") if n.birth == PROGRAM else rule_places[n.birth]


def class_names(p: Program, graph: EGraph) -> Names:
    """Return the names of the program's values by their e-class."""
    value_names: dict[ClassId, dict[str, None]] = {}
    for value, c in ((v, c) for v, c in graph.values.items() if v < len(p.names)):  # others are inside of operators
        value_names.setdefault(c, {})[p.names[value]] = None
    return {c: list(names) for c, names in value_names.items()}


def class_of(p: Program, graph: EGraph, name: str) -> ClassId:
    """Return the e-class of a source node's last result, or of a value.

    Raises:
        UsageError: the model has no node or value of that name (F203).
    """
    sources = {s.name: n for n, s in enumerate(p.sources)}
    results = [n.outputs[0] for n in p.nodes if name in sources and sources[name] in n.origins]
    values = results[-1:] or [v for v, value_name in enumerate(p.names) if value_name == name]
    e_class = next((graph.values[v] for v in values if v in graph.values), None)
    if e_class is None:
        names = [*sources, *p.names]
        remedy = did_you_mean(name, names) or f"nodes: {', '.join(list(sources)[:12])}"
        raise UsageError("F203", f'the model has no node or value called "{name}"', help=remedy)
    return e_class
