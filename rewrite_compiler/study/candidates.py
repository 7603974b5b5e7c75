"""Candidates: what single fields of number formats could be instead, and what each would do to its offload alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..compile import Offload, Plan, float_program
from ..compile.formats.calibrate import isolated_error
from ..compile.host.host_program import HostProgram
from ..compile.offload.specified import is_certified, refused
from ..compile.plan.plan import tensors_of
from ..data import Dataset
from ..errors import FlexmatchError
from ..ila import Ila
from ..ir.program import Data, Value
from ..lang.arithmetic import ROUNDINGS
from ..lang.formats import Fixed, Format
from ..readings.kernels.format_conversion import codes_of, values_of
from ..target import Target

KEPT_SAMPLES = 4
PROMISING = 2  # changes of a field that are tried on the simulator
STEPS = (-3, -2, -1, 1, 2, 3)  # of a binary point or an exponent bias
SHIFTED = ("fraction", "bias")


@dataclass(frozen=True)
class Change:
    """One field of the format of one tensor of an offload: before and after, all formats after it, and its isolated error."""

    offload: str
    tensor: str
    field: str
    before: int | str
    after: int | str
    formats: Mapping[str, Format]
    is_joint: bool = False  # results move along
    is_usual: bool = False  # back to what calibration would choose
    error: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return what a report says."""
        return {"offload": self.offload, "tensor": self.tensor, "field": self.field, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class Bench:
    """A float run of some samples: the values of all tensors of the offloads, on which changes are tried in isolation."""

    plan: Plan
    kept: Mapping[Value, Data]
    is_specified: dict[str, bool] = field(default_factory=dict)  # by offload: whether numerics give the same
    ilas: dict[Hashable, Ila] = field(default_factory=dict)  # by design
    refused: dict[Hashable, str] = field(default_factory=dict)  # why formats are not taken, nothing where they are
    done: dict[str, tuple[float, list[Change]]] = field(default_factory=dict)

    def usual(self, o: Offload) -> dict[str, Format]:
        """Return the formats that calibration on these samples would choose."""
        return o.mapping.formats_for({n: float(np.max(np.abs(x), initial=0)) for n, x in self._values(o).items()})

    def _values(self, o: Offload) -> dict[str, Data]:
        p = self.plan.program
        return {n: p.constants[v] if v in p.constants else self.kept[v] for n, v in tensors_of(o).items()}

    def error(self, o: Offload, formats: Mapping[str, Format], below: float = float("inf")) -> float:
        """Return the relative error of an offload's first result with formats; infinite where they cannot be, or it is not `below`."""
        made = replace(o, formats=formats)
        try:
            model = self._model(o)
            found = float(isolated_error(self.plan.program, made, self.kept, model) ** 0.5)
        except (FlexmatchError, ValueError, OverflowError):
            return float("inf")
        return float("inf") if found >= below or (model is None and self._refused(made)) else found

    def _refused(self, o: Offload) -> str:
        """Return why a device does not take an offload's formats."""
        units = tuple(o.mapping.unit_sizes(o.tiling.sizes).items())
        key = o.target.name, *o.target.values.items(), o.mapping.variant, *o.node.attributes, *units, *o.formats.items()
        if key not in self.refused:
            self.refused[key] = refused(o)
        return self.refused[key]

    def _model(self, o: Offload) -> Ila | None:
        """Return the model that an offload runs on; None where its numerics give the same."""
        if o.id not in self.is_specified:
            self.is_specified[o.id] = self._is_specified(next(own for own in self.plan.offloads if own.id == o.id))
        return None if self.is_specified[o.id] else self._built(o)

    def _is_specified(self, o: Offload) -> bool:
        """Tell whether the numerics of an offload give what a simulator does: proved for its design, or seen with its formats."""
        if o.mapping.codes is None or is_certified(o.target, o.mapping.variant):
            return o.mapping.codes is not None
        found, expected = (isolated_error(self.plan.program, o, self.kept, ila) for ila in (None, self._built(o)))
        return found == expected

    def _built(self, o: Offload) -> Ila:
        return self.ilas.setdefault((o.target.name, *o.target.values.items()), o.target.ila())

    def differs(self, o: Offload, target: Target) -> bool:
        """Tell whether an offload on another design of its target has another error, each with the formats of calibration."""
        other = replace(o, target=target, mapping=target.mappings[o.mapping.variant])
        now, then = self.error(o, self.usual(o)), self.error(other, self.usual(other))
        return now != then or now == float("inf")

    def tried(self, o: Offload) -> tuple[float, list[Change]]:
        """Return an offload's isolated error, and changes that lessen it: the best one of every field, the best first."""
        if o.id not in self.done:
            now = self.error(o, o.formats)
            best: dict[tuple[str, str], Change] = {}
            for change in self._promising(o):
                key = (change.tensor, change.field)
                least = min(now, best[key].error) if key in best else now
                one = replace(change, error=self.error(o, change.formats, least))
                if one.error < least:
                    best[key] = one
            self.done[o.id] = now, sorted(best.values(), key=lambda c: c.error)
        return self.done[o.id]

    def _promising(self, o: Offload) -> Iterator[Change]:
        """Yield the changes that are worth a run: back to the usual value, and those under which a tensor is held best."""
        usual, values = self.usual(o), self._values(o)
        groups: dict[tuple[str, str, bool], list[tuple[float, Change]]] = {}
        for c in changes(o, usual):
            if c.is_usual:
                yield c
                continue
            held = _held(c.formats[c.tensor], values[c.tensor])
            groups.setdefault((c.tensor, c.field, c.is_joint), []).append((held, c))
        for (tensor, *_), group in groups.items():
            now = _held(o.formats[tensor], values[tensor])
            group.sort(key=lambda item: item[0])
            yield from (c for held, c in group[:PROMISING] if held < now)


def _held(f: Format, x: Data) -> float:
    """Return the squared error of a tensor in a format; infinite where the format cannot hold it."""
    try:
        return float(np.sum((values_of(f, codes_of(f, x)) - x) ** 2))
    except (FlexmatchError, ValueError, OverflowError):
        return float("inf")


def bench(plan: Plan, data: Dataset) -> Bench:
    """Run the first samples in float and keep the values of all tensors of the offloads."""
    p = float_program(plan)
    first = data.take(np.arange(min(KEPT_SAMPLES, data.count)))
    inputs = first.inputs
    wanted = {v for o in plan.offloads for v in tensors_of(o).values()}
    moving = sorted(wanted - p.constants.keys() - set(p.inputs))
    kept = {v: inputs[p.names[v]] for v in p.inputs if v in wanted}
    if moving:
        host = HostProgram(replace(p, outputs=tuple(moving)), p.inputs)
        kept.update(host.one_by_one({v: inputs[p.names[v]] for v in p.inputs}, first.count))
    return Bench(plan, kept)


def changes(o: Offload, usual: Mapping[str, Format]) -> Iterator[Change]:
    """Yield every change of one field: what calibration would choose, other roundings, and nearby binary points and biases.

    A binary point may move alone, or together with that of the results, where the device's arithmetic shifts them along.
    """
    for name, f in o.formats.items():
        if name in o.mapping.derived:
            continue
        for key, before in f.parameters.items():
            default = usual[name].parameters.get(key, before)
            for after in _near(key, before, default):
                made = _made(f, key, after)
                if made is None:
                    continue
                formats = o.mapping.with_format(o.formats, name, made)
                yield Change(o.id, name, key, before, after, formats, is_usual=after == default)
                if key == "fraction" and isinstance(before, int) and isinstance(after, int):
                    yield Change(o.id, name, key, before, after, _moved(o, formats, name, after - before), True, after == default)


def _near(field: str, before: int | str, usual: int | str) -> list[int | str]:
    found: list[int | str] = [usual]
    if field == "rounding":
        found += [*ROUNDINGS, "half_away", "truncate"]
    elif field in SHIFTED and isinstance(before, int):
        found += [before + step for step in STEPS]
    return [v for v in dict.fromkeys(found) if v != before]


def _made(f: Format, field: str, value: int | str) -> Format | None:
    """Return a format with another field, None where there is none."""
    try:
        return replace(f, **{field: value})  # type: ignore[arg-type]
    except FlexmatchError:
        return None


def _moved(o: Offload, formats: Mapping[str, Format], name: str, step: int) -> dict[str, Format]:
    """Return formats with the binary points of the results moved like that of an operand."""
    found = dict(formats)
    for result in o.mapping.axes.results:
        f = found[result]
        if result != name and result not in o.mapping.derived and isinstance(f, Fixed):
            found[result] = replace(f, fraction=f.fraction + step)
    return found
