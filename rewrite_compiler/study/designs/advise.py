"""advise: the single change of a target that saves most on whole applications.

A change is another value of one parameter, one capacity doubled, one link or port twice as wide, a memory that holds two tiles, a
clock twice as fast, or one elementwise operator fused behind an operation. Each model is saturated once; every change extracts
from its e-graph again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from ...compile import Options, chosen_targets
from ...compile.compile import SearchSpace, search_space
from ...compile.matching.match import MatchResult, case_of, extract_match, saturate_program
from ...compile.matching.objective import OBJECTIVES, Objective, objective_for
from ...egraph.graph.outcome import Saturation
from ...errors import UsageError
from ...fit import Tiling
from ...fit.cost import price_with_overlap
from ...frontend.load import load
from ...ila import Ila
from ...ir.program import Node, Program
from ...ops.op import ELEMENTWISE
from ...target import Clock, Limit, Link, Mapping, Memory, Resources, Target
from ...target.mapping import accepted_arguments
from .totals import Run, Totals, totals

SCHEMA = "flexmatch.advise/1"
DEFAULT = Options()


class ChangeKind(StrEnum):
    """What a change alters, in the order in which equal outcomes are ranked."""

    PARAMETER = "parameter"
    """A parameter that the target offers, to its next value."""
    CAPACITY = "capacity"
    """A capacity, doubled."""
    FUSION = "fusion"
    """An elementwise operator of the host, fused behind an operation."""
    LINK = "link"
    """A link, or all links of a port, twice as wide."""
    BUFFER = "buffer"
    """A memory that holds two tiles, so that one is filled while the other is computed on."""
    CLOCK = "clock"
    """The clock, twice as fast."""


@dataclass(frozen=True)
class Change:
    """One change of a target: kind, subject, value before and after; the changed target, None where a host operator is fused."""

    kind: ChangeKind
    name: str
    before: str
    after: str
    target: Target | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.before} → {self.after}"


@dataclass(frozen=True)
class Outcome:
    """The result of a change: the levels of the objective over all models, and their totals."""

    change: Change | None
    levels: tuple[int, ...]
    totals: Totals

    @property
    def sort_key(self) -> tuple[int, ...]:
        """The sort key: the objective's levels, then time and bytes over the links and in the host's memory."""
        return (*self.levels, self.totals.nanoseconds, self.totals.moved_bytes)


@dataclass(frozen=True)
class Advice:
    """The outcome of the unchanged target, and that of every change, best first."""

    target: Target
    objective: str
    models: tuple[str, ...]
    base: Outcome
    ranked: tuple[Outcome, ...]


def advise(models: Sequence[str | Path], accel: str | Target, options: Options = DEFAULT) -> Advice:
    """Return single changes of a target, ranked by what they save on the models.

    Raises:
        UsageError: there are no models (F203), or no such accelerator (F201).
    """
    if not models:
        raise UsageError("F203", "Models must be at least one, not none")
    (target,) = chosen_targets([accel])
    space = search_space([target], options)
    studies = [_study(Path(m), space, options) for m in models]
    binding: dict[str, None] = {}
    extractions = [_Extraction.of(study, _recording_target(target, binding)) for study in studies]
    base = _outcome(None, extractions)
    outcomes = [_outcome(c, [_Extraction.of(study, c.target or target) for study in studies]) for c in changes(target, binding)]
    fused = [_fused(change, nodes, base, options.objective) for change, nodes in fusions(extractions)]
    ranked = sorted([*outcomes, *fused], key=lambda o: (o.sort_key, _rank(o.change)))
    return Advice(target, options.objective, tuple(str(m) for m in models), base, tuple(ranked))


def _rank(change: Change | None) -> tuple[int, str]:
    """Order changes that save the same: what a target offers by itself comes first."""
    assert change is not None
    return list(ChangeKind).index(change.kind), str(change)


@dataclass(frozen=True)
class _Study:
    """A model with its e-graph, ready to be extracted from for any change."""

    program: Program
    saturation: Saturation
    space: SearchSpace
    options: Options


def _study(path: Path, space: SearchSpace, options: Options) -> _Study:
    program, (rules, mappings) = load(path, options.shapes, options.limits).program, (space.rules, space.mappings)
    return _Study(program, saturate_program(program, rules, mappings, options.limits), space, options)


@dataclass(frozen=True)
class _Extraction:
    """What extraction chose for one model and one target."""

    matched: MatchResult
    objective: Objective
    mappings: MappingOf[str, Mapping]

    @classmethod
    def of(cls, study: _Study, target: Target) -> _Extraction:
        """Extract with the capacities and costs of a target that has the patterns of the e-graph."""
        options, space = study.options, study.space
        base = objective_for(options.objective, [target], options.host)
        objective = replace(base, runtime_weights=space.objective.runtime_weights)
        names = {m.name for m in space.mappings}
        mappings = {m.name: m for m in target.mappings.values() if m.name in names}
        matched = extract_match(study.program, study.saturation, space.rules, list(mappings.values()), options.limits, objective)
        return cls(matched, objective, mappings)

    def run_of(self, node: Node) -> Run | None:
        """Return which offload a node is."""
        if node.op not in self.mappings:
            return None
        m, attributes = self.mappings[node.op], dict(node.attributes)
        tiling = self.matched.fitted[case_of(m, [self.matched.program.types[v] for v in node.inputs], attributes)]
        assert isinstance(tiling, Tiling)
        return Run(tiling.calls, price_with_overlap(m, tiling, attributes, self.objective.resources.get(m.target)))


def _outcome(change: Change | None, extractions: Sequence[_Extraction]) -> Outcome:
    levels = tuple(map(sum, zip(*(f.matched.extraction.cost for f in extractions), strict=True)))
    total = Totals()
    for f in extractions:
        total = total.plus(totals(f.matched.program, f.run_of))
    return Outcome(change, levels, total)


# -- changes of the target


def changes(target: Target, binding: Iterable[str]) -> Iterator[Change]:
    """Yield every single change of a target itself; `binding` are the capacities that some layer exceeds."""
    yield from _parameters(target)
    for capacity in binding:
        yield Change(ChangeKind.CAPACITY, capacity, "as it is", "twice", _with_capacities(target, partial(_doubled, capacity=capacity)))
    resources = target.resources()
    if resources is not None:
        yield _faster(target, resources)
        yield from (_wider(target, resources, links) for links in _wires(resources))
        yield from (_buffered(target, resources, m) for m in resources.memories if m.buffering == 1)
        if sum(m.buffering == 1 for m in resources.memories) > 1:
            yield _buffered(target, resources, *resources.memories)


def _parameters(target: Target) -> Iterator[Change]:
    """Yield other values: the next smaller and larger one of a number, every other word."""
    for key, allowed in target.parameters.items():
        current = target.values[key]
        for value in _neighbours(allowed, current):
            try:
                changed_target = target.configured({key: value})
                changed_target.resources()
            except UsageError:
                continue  # no such design
            yield Change(ChangeKind.PARAMETER, key, current, value, changed_target)


def _neighbours(allowed: Sequence[str], current: str) -> list[str]:
    if not all(value.isdigit() for value in allowed):
        return [value for value in allowed if value != current]
    ordered = sorted(allowed, key=int)
    at = ordered.index(current)
    return [*ordered[max(at - 1, 0) : at], *ordered[at + 1 : at + 2]]


def _recording_target(target: Target, binding: dict[str, None]) -> Target:
    """Return the target, with every capacity that something exceeds entered in `binding`."""

    def watch(limit: Limit) -> Limit:
        if not limit.holds:
            binding[limit.what] = None
        return limit

    return _with_capacities(target, watch)


def _doubled(limit: Limit, capacity: str) -> Limit:
    return replace(limit, most=2 * limit.most) if limit.what == capacity else limit


def _with_capacities(target: Target, transform: Callable[[Limit], Limit]) -> Target:
    """Return the target with every capacity changed by a function."""

    def of(m: Mapping) -> Mapping:
        capacities_of = m.capacities
        if capacities_of is None:
            return m

        def capacities(**arguments: Any) -> Iterator[Limit]:
            return map(transform, capacities_of(**accepted_arguments(capacities_of, arguments)))

        return replace(m, capacities=capacities)

    return replace(target, mappings={name: of(m) for name, m in target.mappings.items()})


def _faster(target: Target, resources: Resources) -> Change:
    clock = Clock(2 * resources.clock.hertz, "twice the declared one")
    faster_target = _described(target, replace(resources, clock=clock))
    return Change(ChangeKind.CLOCK, "hertz", f"{resources.clock.hertz:,}", f"{clock.hertz:,}", faster_target)


def _wires(resources: Resources) -> list[list[Link]]:
    """Return the links that can be widened alone, those of a port together."""
    ports: dict[object, list[Link]] = {}
    for n, link in enumerate(resources.links):
        ports.setdefault(link.port or n, []).append(link)
    return list(ports.values())


def _wider(target: Target, resources: Resources, links: Sequence[Link]) -> Change:
    """Return the target with a link, or all links of a port, twice as wide."""
    first = links[0]
    wide_links = tuple(replace(x, width_bytes=2 * x.width_bytes) if x in links else x for x in resources.links)
    name = f"port {first.port}" if first.port else f"{first.source} → {first.sink}"
    old_width, new_width = (f"{factor * first.width_bytes} bytes" for factor in (1, 2))
    return Change(ChangeKind.LINK, name, old_width, new_width, _described(target, replace(resources, links=wide_links)))


def _buffered(target: Target, resources: Resources, *chosen: Memory) -> Change:
    """Return the target with memories of the same size that hold two tiles each: with twice the storage."""
    memories = tuple(replace(m, buffering=max(2, m.buffering)) if m in chosen else m for m in resources.memories)
    name = chosen[0].name if len(chosen) == 1 else "every memory"
    return Change(ChangeKind.BUFFER, name, "one tile", "two tiles", _described(target, replace(resources, memories=memories)))


def _described(target: Target, resources: Resources) -> Target:
    def describe(_: Ila, __: MappingOf[str, str]) -> Resources:
        return resources

    return replace(target, describe=describe)


# -- fusion: the operator would cost the host nothing; what it would cost the device is not known


def fusions(extractions: Iterable[_Extraction]) -> list[tuple[Change, list[tuple[Program, Node]]]]:
    """Return elementwise host operators that are the only reader of an offload's result, by operation and operator."""
    nodes: dict[tuple[str, str], list[tuple[Program, Node]]] = {}
    for f in extractions:
        p, users = f.matched.program, f.matched.program.users()
        for node in p.nodes:
            readers = users.get(node.outputs[0], ()) if node.op in f.mappings else ()
            if len(readers) == 1 and node.outputs[0] not in p.outputs and _is_elementwise(readers[0]):
                nodes.setdefault((f.mappings[node.op].operation, readers[0].op), []).append((p, readers[0]))
    return [
        (Change(ChangeKind.FUSION, f"{op} behind {operation}", "on the host", "on the device"), readers)
        for (operation, op), readers in sorted(nodes.items(), key=lambda item: item[0])
    ]


def _is_elementwise(node: Node) -> bool:
    return node.operator is not None and node.operator.kind == ELEMENTWISE


def _fused(change: Change, nodes: Sequence[tuple[Program, Node]], base: Outcome, objective: str) -> Outcome:
    saved = Totals()
    for p, node in nodes:
        saved = saved.plus(totals(replace(p, nodes=(node,)), lambda _: None))
    savings = {
        "nanoseconds": saved.nanoseconds,
        "moved_bytes": saved.moved_bytes,
        "host_elementwise": len(nodes),
        "moved_elements": len(nodes),
    }
    levels = tuple(n - savings.get(level, 0) for level, n in zip(OBJECTIVES[objective], base.levels, strict=True))
    return Outcome(change, levels, base.totals.minus(saved))


# -- the document


def advice_document(advice: Advice) -> dict[str, Any]:
    """Return advice as JSON."""
    levels = OBJECTIVES[advice.objective]
    base = dict(zip(levels, advice.base.levels, strict=True))
    return {
        "schema": SCHEMA,
        "models": list(advice.models),
        "target": {"name": advice.target.name, "parameters": advice.target.values, "sha256": advice.target.sha256},
        "objective": advice.objective,
        "base": {"cost": base, "totals": advice.base.totals.document()},
        "changes": [
            {
                "rank": rank, "kind": o.change.kind, "name": o.change.name, "from": o.change.before, "to": o.change.after,
                "cost": dict(zip(levels, o.levels, strict=True)),
                "saved": {level: b - n for level, b, n in zip(levels, advice.base.levels, o.levels, strict=True)},
                "saved_nanoseconds": advice.base.totals.nanoseconds - o.totals.nanoseconds,
                "saved_bytes": advice.base.totals.bytes - o.totals.bytes,
                "saved_host_bytes": advice.base.totals.host_bytes - o.totals.host_bytes,
                "totals": o.totals.document(),
            }
            for rank, o in enumerate(advice.ranked, 1) if o.change is not None
        ],
    }  # fmt: skip
