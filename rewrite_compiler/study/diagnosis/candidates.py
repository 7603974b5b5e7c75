"""Candidate changes of single fields of number formats, and the isolated error of their offload under each."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...compile import Offload, Plan, calibrated_within_range, float_program
from ...compile.formats.calibrate import isolated_error
from ...compile.host.host_program import HostProgram
from ...compile.offload.specified import format_refusal, is_certified
from ...compile.plan.plan import tensors_of
from ...data import CALIBRATION_SAMPLES, Dataset
from ...errors import FlexmatchError
from ...ila import Ila
from ...ir.program import Data, Value
from ...lang.arithmetic import ROUNDINGS
from ...lang.formats import Fixed, Format
from ...readings.kernels.format_conversion import codes_of, values_of
from ...target import Target
from .trials import with_formats_of

SAMPLES = 4
MAX_PROMISING = 2  # changes of a field that are tried on the simulator
STEPS = (-3, -2, -1, 1, 2, 3)  # of a binary point or an exponent bias
SHIFTED_FIELDS = ("fraction", "bias")


@dataclass(frozen=True)
class Change:
    """One changed field of one tensor's format: value before and after, all formats of the offload with it, its isolated error.

    A mistake in what a mapping says of its formats is in all offloads of its operation: `other_formats` are the formats that these have
    with the same change.
    """

    offload: str
    tensor: str
    field: str
    before: int | str
    after: int | str
    formats: Mapping[str, Format]
    is_joint: bool = False  # results move along
    is_calibrated: bool = False  # back to what calibration would choose
    error: float = 0.0
    other_formats: Mapping[str, Mapping[str, Format]] = dataclasses.field(default_factory=dict)  # by offload

    def document(self) -> dict[str, Any]:
        """Return the change as JSON, with all of its offloads where it is in several."""
        one = {"offload": self.offload, "tensor": self.tensor, "field": self.field, "before": self.before, "after": self.after}
        return {**one, "offloads": [self.offload, *self.other_formats]} if self.other_formats else one

    def applied(self, plan: Plan) -> Plan:
        """Return the plan with the formats of the change."""
        return with_formats_of(plan, {self.offload: self.formats, **self.other_formats})


@dataclass(frozen=True)
class FloatRun:
    """A float run of some samples: the values of all tensors of the offloads, on which changes are judged in isolation."""

    plan: Plan
    tensor_values: Mapping[Value, Data]
    is_specified: dict[str, bool] = dataclasses.field(default_factory=dict)  # by offload: whether numerics give the same
    ilas: dict[Hashable, Ila] = dataclasses.field(default_factory=dict)  # by design
    refusals: dict[Hashable, str] = dataclasses.field(default_factory=dict)  # why formats are not taken, nothing where they are
    results: dict[str, tuple[float, list[Change]]] = dataclasses.field(default_factory=dict)

    def calibrated_formats(self, o: Offload) -> dict[str, Format]:
        """Return the formats that calibration on these samples chooses."""
        return o.mapping.formats_for({n: float(np.max(np.abs(x), initial=0)) for n, x in self._values(o).items()})

    def _values(self, o: Offload) -> dict[str, Data]:
        p = self.plan.program
        return {n: p.constants[v] if v in p.constants else self.tensor_values[v] for n, v in tensors_of(o).items()}

    def error(self, o: Offload, formats: Mapping[str, Format], bound: float = float("inf")) -> float:
        """Return the relative error of an offload's first result; infinite where formats are refused, or the error reaches the bound."""
        variant = replace(o, formats=formats)
        relative_error = self._result_error(variant)
        is_refused = relative_error < bound and self._model(o) is None and self._refused(variant)
        return float("inf") if relative_error >= bound or is_refused else relative_error

    def _result_error(self, o: Offload) -> float:
        """Return the relative error of an offload's first result; of formats that its device refuses numerics may give one."""
        try:
            return float(isolated_error(self.plan.program, o, self.tensor_values, self._model(o)) ** 0.5)
        except (FlexmatchError, ValueError, OverflowError):
            return float("inf")

    def _refused(self, o: Offload) -> str:
        """Return why a device does not take an offload's formats."""
        units = tuple(o.mapping.unit_sizes(o.tiling.sizes).items())
        key = o.target.name, *o.target.values.items(), o.mapping.variant, *o.node.attributes, *units, *o.formats.items()
        if key not in self.refusals:
            self.refusals[key] = format_refusal(o)
        return self.refusals[key]

    def _model(self, o: Offload) -> Ila | None:
        """Return the model that an offload runs on; None where its numerics give the same."""
        if o.id not in self.is_specified:
            self.is_specified[o.id] = self._is_specified(next(planned for planned in self.plan.offloads if planned.id == o.id))
        return None if self.is_specified[o.id] else self._ila_of(o)

    def _is_specified(self, o: Offload) -> bool:
        """Tell whether the numerics of an offload give what a simulator does: proved for its design, or seen with its formats."""
        if o.mapping.codes is None or is_certified(o.target, o.mapping.variant):
            return o.mapping.codes is not None
        actual, expected = (isolated_error(self.plan.program, o, self.tensor_values, ila) for ila in (None, self._ila_of(o)))
        return actual == expected

    def _ila_of(self, o: Offload) -> Ila:
        return self.ilas.setdefault((o.target.name, *o.target.values.items()), o.target.ila())

    def differs(self, o: Offload, target: Target) -> bool:
        """Tell whether an offload has another error on another design of its target, each in the formats of calibration.

        Where numerics give the same, it is of no interest whether the other design takes its formats.
        """
        variant = replace(o, target=target, mapping=target.mappings[o.mapping.variant])
        variant = replace(variant, formats=self.calibrated_formats(variant))
        error = self.error(o, self.calibrated_formats(o))
        return error == float("inf") or error != self._result_error(variant)

    def improvements(self, o: Offload) -> tuple[float, list[Change]]:
        """Return an offload's isolated error, and the changes that lessen it: the best one of every field, best first."""
        if o.id not in self.results:
            current_error = self.error(o, o.formats)
            best: dict[tuple[str, str], Change] = {}
            for change in self._promising(o):
                key = (change.tensor, change.field)
                best_error = min(current_error, best[key].error) if key in best else current_error
                judged_change = replace(change, error=self.error(o, change.formats, best_error))
                if judged_change.error < best_error:
                    best[key] = judged_change
            self.results[o.id] = current_error, sorted(best.values(), key=lambda c: c.error)
        return self.results[o.id]

    def _promising(self, o: Offload) -> Iterator[Change]:
        """Yield the changes that are worth a run: back to the usual value, and those under which a tensor is held best."""
        usual, values = self.calibrated_formats(o), self._values(o)
        groups: dict[tuple[str, str, bool], list[tuple[float, Change]]] = {}
        for c in changes(o, usual):
            if c.is_calibrated:
                yield c
                continue
            squared_error = _squared_error(c.formats[c.tensor], values[c.tensor])
            groups.setdefault((c.tensor, c.field, c.is_joint), []).append((squared_error, c))
        for (tensor, *_), group in groups.items():
            current_error = _squared_error(o.formats[tensor], values[tensor])
            group.sort(key=lambda item: item[0])
            yield from (c for squared_error, c in group[:MAX_PROMISING] if squared_error < current_error)


def _squared_error(f: Format, x: Data) -> float:
    """Return the squared error of a tensor in a format; infinite where the format cannot hold it."""
    try:
        return float(np.sum((values_of(f, codes_of(f, x)) - x) ** 2))
    except (FlexmatchError, ValueError, OverflowError):
        return float("inf")


def float_run(plan: Plan, data: Dataset) -> FloatRun:
    """Run the first samples in float and record the values of all tensors of the offloads."""
    p = float_program(plan)
    first = data.take(np.arange(min(SAMPLES, data.count)))
    inputs = first.inputs
    tensor_values = {v for o in plan.offloads for v in tensors_of(o).values()}
    computed = sorted(tensor_values - p.constants.keys() - set(p.inputs))
    values = {v: inputs[p.names[v]] for v in p.inputs if v in tensor_values}
    if computed:
        host = HostProgram(replace(p, outputs=tuple(computed)), p.inputs)
        values.update(host.one_by_one({v: inputs[p.names[v]] for v in p.inputs}, first.count))
    return FloatRun(plan, values)


def recalibrated_on(plan: Plan, data: Dataset) -> Plan:
    """Return the plan with the formats that calibration on the first samples chooses."""
    first = data.take(np.arange(min(CALIBRATION_SAMPLES, data.count)))
    inputs = first.inputs  # not the samples with the hash of their file, by which those that calibrated the plan may be known
    return calibrated_within_range(plan, inputs, source=f"the first {first.count} of the samples that were run")


def changes(o: Offload, usual: Mapping[str, Format]) -> Iterator[Change]:
    """Yield every change of one field: the calibrated value, other roundings, and nearby binary points and biases.

    A binary point may move alone, or together with those of the results, where the device's arithmetic shifts them along.
    """
    for name, f in o.formats.items():
        if name in o.mapping.derived:
            continue
        for key, before in f.parameters.items():
            default = usual[name].parameters.get(key, before)
            for after in _nearby_values(key, before, default):
                variant = with_field(f, key, after)
                if variant is None:
                    continue
                formats = o.mapping.with_format(o.formats, name, variant)
                yield Change(o.id, name, key, before, after, formats, is_calibrated=after == default)
                if key == "fraction" and isinstance(before, int) and isinstance(after, int):
                    yield Change(
                        o.id, name, key, before, after, with_results_shifted(o, formats, name, after - before), True, after == default
                    )


def _nearby_values(field: str, before: int | str, usual: int | str) -> list[int | str]:
    choices: list[int | str] = [usual]
    if field == "rounding":
        choices += [*ROUNDINGS, "half_away", "truncate"]
    elif field in SHIFTED_FIELDS and isinstance(before, int):
        choices += [before + step for step in STEPS]
    return [v for v in dict.fromkeys(choices) if v != before]


def with_field(f: Format, field: str, value: int | str) -> Format | None:
    """Return a format with another field, None where there is none."""
    try:
        return replace(f, **{field: value})  # type: ignore[arg-type]
    except FlexmatchError:
        return None


def with_results_shifted(o: Offload, formats: Mapping[str, Format], name: str, step: int) -> dict[str, Format]:
    """Return formats with the binary points of the results moved like that of an operand."""
    moved_formats = dict(formats)
    for result in o.mapping.axes.results:
        f = moved_formats[result]
        if result != name and result not in o.mapping.derived and isinstance(f, Fixed):
            moved_formats[result] = replace(f, fraction=f.fraction + step)
    return moved_formats
