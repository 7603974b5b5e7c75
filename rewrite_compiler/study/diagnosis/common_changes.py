"""Candidate changes of formats that many offloads have in common: one field of one tensor, or of all that one function chooses.

A mistake in a mapping is in every offload that uses it. Restoring one of them takes back a part of the loss; restoring all, the whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ...compile import Offload, Plan
from ...lang.formats import Format
from .candidates import SHIFTED_FIELDS, STEPS, Change, FloatRun, with_field, with_results_shifted

Places = Mapping[str, tuple[str, ...]]  # offload → tensors whose formats one function chooses


def common_changes(plan: Plan, table: FloatRun, suspects: Sequence[str], alone_errors: Mapping[str, float]) -> list[tuple[float, Change]]:
    """Return what each promises, and changes of formats in several places that lessen the isolated error of a suspect.

    The error that an offload causes alone says how much a share of its isolated error is worth.
    """
    planned = {o.id: o for o in plan.offloads}
    by_formats: dict[Hashable, tuple[float, Change]] = {}
    for change in (*_of_operations(plan, table, suspects), *_of_functions(plan, suspects)):
        formats = {change.offload: change.formats, **change.other_formats}
        key = tuple((name, *f.items()) for name, f in sorted(formats.items()))
        if key not in by_formats and all(table.error(o, formats[o.id]) < float("inf") for o in _of(plan, formats)):
            by_formats[key] = _gain(planned, table, formats, suspects, alone_errors), change
    return [(gain, change) for gain, change in by_formats.values() if gain > 0]


def _of(plan: Plan, formats: Mapping[str, Mapping[str, Format]]) -> list[Offload]:
    return [o for o in plan.offloads if o.id in formats]


def _gain(
    planned: Mapping[str, Offload], table: FloatRun, formats: Mapping[str, Mapping[str, Format]], suspects: Sequence[str],
    alone_errors: Mapping[str, float],
) -> float:  # fmt: skip
    """Return the shares of their isolated errors that suspects lose, each times the error that it causes alone."""
    return sum(
        (1 - table.error(planned[name], formats[name]) / table.improvements(planned[name])[0]) * alone_errors[name]
        for name in suspects
        if name in formats and table.improvements(planned[name])[0] > 0
    )


def _of_operations(plan: Plan, table: FloatRun, suspects: Sequence[str]) -> Iterator[Change]:
    """Yield the changes that promise something in one offload, in all offloads of its operation."""
    for o in (o for o in plan.offloads if o.id in suspects):
        same_operation = [
            p for p in plan.offloads if p.target.name == o.target.name and p.mapping.operation == o.mapping.operation and p is not o
        ]
        for change in table.improvements(o)[1]:
            others = {p.id: _with_same_change(p, change) for p in same_operation if change.tensor in p.formats}
            complete = {name: f for name, f in others.items() if f is not None}
            if complete and len(complete) == len(others):
                yield replace(change, other_formats=complete, is_calibrated=False)


def _with_same_change(o: Offload, change: Change) -> Mapping[str, Format] | None:
    """Return the formats of an offload with the change of another one's format, by as much or to the same word; None where it has none."""
    f = o.formats[change.tensor]
    before, step = f.parameters.get(change.field), 0
    if isinstance(before, int) and isinstance(change.before, int) and isinstance(change.after, int):
        step = change.after - change.before
    variant = with_field(f, change.field, before + step if isinstance(before, int) else change.after)
    if before is None or variant is None or variant == f:
        return None
    formats = o.mapping.with_format(o.formats, change.tensor, variant)
    return with_results_shifted(o, formats, change.tensor, step) if change.is_joint else formats


def _of_functions(plan: Plan, suspects: Sequence[str]) -> Iterator[Change]:
    """Yield binary points and biases moved in all tensors, of all offloads, whose formats one function of a target chooses."""
    for places in _places_by_function(plan).values():
        worst = next((name for name in suspects if name in places), None)
        if worst is None or sum(map(len, places.values())) < 2:
            continue
        for field in SHIFTED_FIELDS:
            yield from (c for step in STEPS for c in _moved(plan, places, worst, field, step))


def _places_by_function(plan: Plan) -> dict[Hashable, Places]:
    """Return the tensors of each offload by the function that chooses their formats."""
    places: dict[Hashable, dict[str, tuple[str, ...]]] = {}
    for o in plan.offloads:
        for tensor, choose in o.mapping.format_choices.items():
            of_function = places.setdefault((o.target.name, choose), {})
            of_function[o.id] = (*of_function.get(o.id, ()), tensor)
    return dict(places)


def _moved(plan: Plan, places: Places, worst: str, field: str, step: int) -> Iterable[Change]:
    """Yield the change of a field by a step at all places; none where a format has no such field, or no such value of it."""
    formats: dict[str, Mapping[str, Format]] = {}
    for o in _of(plan, {name: {} for name in places}):
        variant_formats: Mapping[str, Format] = o.formats
        for tensor in places[o.id]:
            before = o.formats[tensor].parameters.get(field)
            variant = with_field(o.formats[tensor], field, before + step) if isinstance(before, int) else None
            if variant is None:
                return
            variant_formats = o.mapping.with_format(variant_formats, tensor, variant)
        formats[o.id] = variant_formats
    text = f"{abs(step)} {'more' if step > 0 else 'less'}"
    tensors = ", ".join(dict.fromkeys(tensor for of_offload in places.values() for tensor in of_offload))
    yield Change(worst, tensors, field, "as chosen", text, formats.pop(worst), other_formats=formats)
