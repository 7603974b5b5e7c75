"""Completion of targets: operations without a driver or limits get those that follow from the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import SpecError
from ...ila import Ila
from ...readings.arrays.labelled_array import Data
from ...target.cost import Cost, Limit
from ...target.mapping import Mapping
from ...target.resources import HOST, Resources
from ...target.target import Target
from ..instructions.macros import planned
from .generation import Request, known_schedule, program_of
from .schedule import Failure, Schedule, depth_of

SOURCES = tuple(sorted(Path(__file__).parent.parent.rglob("*.py")))


def completed(target: Target) -> Target:
    """Return a target whose operations that have numerics and no driver have the generated one, and its limits."""
    for m in target.mappings.values():
        if m.drive is None and m.codes is not None:
            m.drive = generated_driver(target, m)
            m.capacities = m.capacities or generated_limits(target, m)
            m.price = m.price or generated_costs(target, m)
    return target


def _model(target: Target, p: MappingOf[str, str]) -> Ila:
    return planned(replace(target, chosen=dict(p)))


def generated_driver(target: Target, m: Mapping) -> Callable[..., Data]:
    """Return the driver of an operation: it runs the program for the shapes of its operands."""

    def drive(device: Any, f: Any, p: Any, **named: Any) -> Data:
        """Emit the commands that follow from the model."""
        codes = {v.name: named[v.name] for v in m.operands}
        ranks = {name: len(m.axes.of[name]) for name in codes}
        shapes = {name: tuple(int(n) for n in x.shape[x.ndim - ranks[name] :]) for name, x in codes.items()}
        attributes = {name: named[name] for name, _ in m.statics}
        request = Request(_at(m, p), shapes, f, attributes)
        return program_of(_model(target, p), request).run(device, codes, ranks)

    drive.sources = SOURCES  # type: ignore[attr-defined]
    return drive


def _at(m: Mapping, p: MappingOf[str, str]) -> Mapping:
    """Return an operation at parameter values, the same object each time."""
    return _configured(m, tuple(p.items()))


@lru_cache(maxsize=256)
def _configured(m: Mapping, parameters: tuple[tuple[str, str], ...]) -> Mapping:
    return replace(m, parameters=dict(parameters))


def generated_limits(target: Target, m: Mapping) -> Callable[..., Iterator[Limit]]:
    """Return the limits of an operation: what its regions take of each memory, at the formats of the magnitude 1."""

    def limits(p: Any, **named: Any) -> Iterator[Limit]:
        """Yield what the program takes of each memory."""
        yield from _limits(_model(target, p), _request(_at(m, p), named))

    return limits


def generated_costs(target: Target, m: Mapping) -> Callable[..., Cost]:
    """Return the costs of an operation: steps of its unit, then all bytes over the link to the host, one after the other."""

    def costs(resources: Resources, p: Any, **named: Any) -> Cost:
        """Price the program of one tile."""
        configured = _at(m, p)
        request = _request(configured, named)
        program = program_of(_model(target, p), request)
        volumes = program.moved(m.axes.result)
        links = [x for x in resources.links if HOST in (x.source, x.sink)]
        transfer = max((x.cycles_for(sum(volumes.values())) for x in links), default=0)
        instruction = max(program.steps, key=lambda name: program.steps[name])
        unit = next((u.name for u in resources.units if u.name in (instruction, *instruction.split("_"))), resources.units[0].name)
        return Cost(unit, sum(program.steps.values()), transfer, volumes)

    return costs


def _request(m: Mapping, named: MappingOf[str, Any]) -> Request:
    """Return an operation at sizes, in the formats of the magnitude 1."""
    shapes = {v.name: tuple(named[d] for d in m.axes.of[v.name]) for v in m.operands}
    formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    return Request(m, shapes, formats, {name: named[name] for name, _ in m.statics})


def _limits(ila: Ila, r: Request) -> Iterator[Limit]:
    try:
        s = known_schedule(ila, r)
    except SpecError as refusal:
        yield Limit("drivers", 1, 0, refusal.problem.sentence.replace("No driver", "no driver", 1))
        return
    if isinstance(s, Failure):
        yield Limit("fields", 1, 0, f"no field holds it: {s.reason}")
        return
    yield from capacity_limits(ila, s)


def capacity_limits(ila: Ila, chain: Sequence[Schedule]) -> Iterator[Limit]:
    """Yield what schedules take of each memory, in addresses."""
    needs: dict[str, int] = {}
    for s in chain:
        needs |= {name: max(n, needs.get(name, 0)) for name, n in s.needs.items()}
    for name, needed in needs.items():
        if name in ila.states:
            yield Limit(f"addresses of {name}", needed, depth_of(ila, name) or 1)
