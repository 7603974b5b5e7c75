"""Runs one offload by the numerics of its operation, the bit-exact specification of its results, without a device.

It is many times faster than instructions on a simulator, and gives the same where the two are proved to agree. Terms run as
vector machine code; terms that cannot be lowered are evaluated by numpy, which a note reports.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...errors import FlexmatchError, SpecError
from ...lang.binders import Array, Leaf
from ...lang.formats import Fixed, Format, Int
from ...prove.certificates.operations import judge_operation
from ...readings.arrays.labelled_array import Data
from ...readings.kernels.format_conversion import values_of
from ...readings.kernels.selection import machine_code_refusal
from ...target import Device, Stay, StreamedDevice, Target, simulated_device
from ...target import Mapping as Operation
from ..host.data_movement import PendingMove
from ..host.lazy_codes import Ends, LazyCodes, Operand, RangedFloats, hull_of, keeps_codes
from ..host.windows import WindowedCodes
from ..plan.plan import Offload
from .execute import PreparedOffload, Statistics, ends_of, largest_of, operand_codes, saturated_codes

if TYPE_CHECKING:
    from ...kernels import Constants, Lowered
    from ...kernels.windows import ImplicitIm2col, Windows

KEPT_TERMS = 256
Shapes = tuple[tuple[str, tuple[int, ...], bool], ...]  # of each operand: its name, its own axes, whether samples come before


@dataclass(frozen=True)
class Terms:
    """The numerics of one tile: a leaf for each operand, a term for each result, their machine code or notes why there is none."""

    leaves: Mapping[str, Leaf]
    results: tuple[Array, ...]
    code: Lowered | None
    notes: tuple[str, ...]

    def __call__(self, operands: Mapping[str, Data], constants: Constants | None = None) -> tuple[Data, ...]:
        """Return the results [samples, …]; `constants` caches intermediate results of constant operands."""
        leaf_values = {self.leaves[n]: x for n, x in operands.items()}
        if self.code is not None:
            with contextlib.suppress(SpecError):  # numpy arrays give the better error
                return tuple(self.code(leaf_values, constants))
        from ...readings.kernels.evaluate import evaluate_together

        wide = {leaf: x.astype(np.int64) for leaf, x in leaf_values.items()}
        moving = {leaf: x for leaf, x in wide.items() if x.ndim > leaf.rank}
        constant_values = {leaf: x for leaf, x in wide.items() if leaf not in moving}
        return tuple(evaluate_together(term, moving, constant_values) for term in self.results)


@lru_cache(maxsize=KEPT_TERMS)
def terms_of(
    operation: Operation, formats: tuple[tuple[str, Format], ...], attributes: tuple[tuple[str, Any], ...], shapes: Shapes, samples: int,
    *, is_native: bool = True,
) -> Terms:  # fmt: skip
    """Return the numerics of an operation on operands of these shapes, as machine code if `is_native` and it can be lowered."""
    format_of = dict(formats)
    leaves = {n: Leaf(shape, format_of[n].codes, False, n) for n, shape, _ in shapes}
    codes = operation.result_codes(list(leaves.values()), format_of, dict(attributes))
    results = codes if isinstance(codes, tuple) else (codes,)
    if not is_native:
        return Terms(leaves, results, None, ())
    if why := machine_code_refusal():
        return Terms(leaves, results, None, (why,))
    from ...kernels import Lowered, NotLowered

    place = f"{operation.name} ({operation.rule.place})"
    try:
        code = Lowered(results, [leaves[n] for n, _, moves in shapes if moves], samples)
    except NotLowered as refusal:
        return Terms(leaves, results, None, (f"{place} runs on plain arrays: {refusal.problem.sentence}",))
    return Terms(leaves, results, code, tuple(f"{place} runs in part on plain arrays: {note}" for note in code.notes))


@lru_cache(maxsize=KEPT_TERMS)
def unfolded_terms(
    operation: Operation, formats: tuple[tuple[str, Format], ...], attributes: tuple[tuple[str, Any], ...], shapes: Shapes, samples: int,
    name: str, windows: Windows, zero: int,
) -> tuple[Terms, ImplicitIm2col, Lowered] | None:  # fmt: skip
    """Return the numerics with windows of an operand read from their root (implicit im2col); None where they cannot be lowered."""
    terms = terms_of(operation, formats, attributes, shapes, samples, is_native=False)
    if machine_code_refusal():
        return None
    from ...kernels import Lowered, NotLowered
    from ...kernels.windows import ImplicitIm2col

    try:
        unfolded = ImplicitIm2col(terms.results, terms.leaves[name], windows, zero)
        moving = [terms.leaves[n] for n, _, moves in shapes if moves and n != name]
        code = Lowered(unfolded.results, [unfolded.source, *moving], samples)
    except NotLowered:
        return None
    return None if code.notes else (terms, unfolded, code)


@dataclass
class NumericsOffload(PreparedOffload):
    """An offload ready to run by its numerics; `notes` state which terms ran without machine code, and why."""

    is_native: bool = True
    notes: dict[str, None] = field(default_factory=dict)
    constant_cache: dict[object, Constants] = field(default_factory=dict)  # of each tile, of operands that do not move
    samples: int = 0  # of the largest batch so far, which machine code was printed for

    @cached_property
    def by_driver(self) -> PreparedOffload:
        """The same offload, prepared to run by its driver on a device."""
        return PreparedOffload(self.offload, self.constants)

    @property
    def slow(self) -> tuple[str, ...]:
        """The reasons why parts of it ran without machine code."""
        return tuple(self.notes)

    def run_lazily(self, operands: Mapping[str, Operand]) -> tuple[tuple[Operand, ...], Statistics]:
        """Return lazy results in any memory layout, and statistics: codes where the format allows, else floats with their range."""
        o = self.offload
        (name, *other_results), f = o.mapping.axes.results, o.formats[o.mapping.axes.results[0]]
        (slices, *other_tiles) = o.tiling.slices()
        if other_results or other_tiles or not keeps_codes(f):
            results, statistics = self.run(cast(Device, None), operands)
            return tuple(results) if other_results or isinstance(f, Int) else (RangedFloats(results[0], statistics.range_out),), statistics
        ends = {n: ends_of(x) for n, x in operands.items()}
        codes: dict[str, Data] = {**self.codes, **{n: self.encode_operand(n, x, ends[n]) for n, x in operands.items()}}
        y = self.call(cast(Device, None), codes, slices)[name]
        extremes = np.array([y.min(), y.max()]) if y.size else np.zeros(0, y.dtype)
        low, high = values_of(f, extremes).tolist() if y.size else (np.inf, -np.inf)
        ends_of_codes = saturated_codes(f) if max(high, -low) >= largest_of(f) else ()
        coded_result = LazyCodes(y, cast(Fixed, f), (low, high))
        return (coded_result,), Statistics(
            y.size, sum(int(np.count_nonzero(y == c)) for c in ends_of_codes), hull_of(ends.values()), (low, high)
        )

    def encode_operand(self, name: str, x: Operand, ends: Ends) -> Data:
        """Return the codes of an operand that is not constant; of windows the codes of their root."""
        is_undivided = self.offload.tiling.tile == self.offload.tiling.sizes
        if self.is_native and is_undivided and isinstance(x, PendingMove) and x.move.is_onto and (windows := x.move.windows) is not None:
            f = self.offload.formats[name]
            zero = int(operand_codes(f, np.zeros(1, x.root.dtype))[0])
            return cast(Data, WindowedCodes(operand_codes(f, x.root, ends), x.move, windows, zero))
        return super().encode_operand(name, x, ends)

    def results(self, operands: Mapping[str, Data]) -> tuple[Data, ...]:
        """Return the results [samples, …] for operands [samples, …]."""
        return self.run(cast(Device, None), operands)[0]

    def call(
        self, device: Device | StreamedDevice, codes: Mapping[str, Data], slices: Mapping[str, slice], stay: Stay | None = None
    ) -> dict[str, Data]:  # fmt: skip
        """Return the result codes of one tile; the last samples of a run are repeated up to the size of the batches before."""
        del device, stay
        dims = self.offload.mapping.axes.of
        moving = {n: x for n, x in codes.items() if x.ndim > len(dims[n])}
        samples = max(x.shape[0] for x in moving.values())
        if not self.is_native or not self.samples // 2 < samples < self.samples:
            self.samples = max(self.samples, samples)
            return self._results_of_tile(codes, slices)
        repeated = {n: repeat_last(x, self.samples) for n, x in moving.items()}
        return {n: y[:samples] for n, y in self._results_of_tile({**codes, **repeated}, slices).items()}

    def _results_of_tile(self, codes: Mapping[str, Any], slices: Mapping[str, slice]) -> dict[str, Data]:
        unfolded = self._unfolded(codes, slices)
        if unfolded is not None:
            return unfolded
        o, parts = self.offload, self.parts(codes, slices)
        axes = o.mapping.axes
        sample_axes = {n: x.ndim - len(axes.of[n]) for n, x in parts.items()}
        shapes = tuple((n, x.shape[sample_axes[n] :], sample_axes[n] > 0) for n, x in parts.items())
        samples = max(len(x) for n, x in parts.items() if sample_axes[n])
        terms = terms_of(o.mapping, tuple(o.formats.items()), o.node.attributes, shapes, samples, is_native=self.is_native)
        self.notes.update(dict.fromkeys(terms.notes))
        return dict(zip(axes.results, terms(parts, self._constants(terms.code, slices)), strict=True))

    def _unfolded(self, codes: Mapping[str, Any], slices: Mapping[str, slice]) -> dict[str, Data] | None:
        """Return the result codes where exactly one operand is windows, read from their root; None elsewhere."""
        o, axes = self.offload, self.offload.mapping.axes
        names = [n for n, x in codes.items() if isinstance(x, WindowedCodes)]
        if len(names) != 1:
            return None
        (name,), sample_axes = names, {v.name: codes[v.name].ndim - len(axes.of[v.name]) for v in o.mapping.operands}
        shapes = tuple((n, tuple(codes[n].shape[lead:]), lead > 0) for n, lead in sample_axes.items())
        x: WindowedCodes = codes[name]
        samples, formats = len(x.root), tuple(o.formats.items())
        unfolding = unfolded_terms(o.mapping, formats, o.node.attributes, shapes, samples, name, x.windows, x.zero)
        if unfolding is None:
            return None
        terms, unfolded, code = unfolding
        leaf_values = unfolded.operands_of({terms.leaves[n]: codes[n] for n in sample_axes if n != name}, x.root)
        try:
            results = code(leaf_values, self._constants(code, slices))
        except SpecError:  # numpy arrays give the better error
            return None
        return {n: y.reshape(samples, *a.shape) for n, y, a in zip(axes.results, results, terms.results, strict=True)}

    def _constants(self, code: Lowered | None, slices: Mapping[str, slice]) -> Constants | None:
        if code is None:
            return None
        from ...kernels import Constants

        return self.constant_cache.setdefault((id(code), *((d, s.start, s.stop) for d, s in slices.items())), Constants())


def repeat_last(codes: Any, count: int) -> Any:
    """Return codes of so many samples, the last of which is repeated."""
    if isinstance(codes, WindowedCodes):
        return WindowedCodes(repeat_last(codes.root, count), codes.move, codes.windows, codes.zero)
    return codes[np.minimum(np.arange(count), len(codes) - 1)]


def plain_results(prepared: PreparedOffload, codes: Mapping[str, Data], slices: Mapping[str, slice]) -> dict[str, Data]:
    """Return the result codes of one tile by the numerics on numpy arrays, for operands of one sample without sample axis."""
    o, parts = prepared.offload, prepared.parts(codes, slices)
    shapes = tuple((n, x.shape, True) for n, x in parts.items())
    terms = terms_of(o.mapping, tuple(o.formats.items()), o.node.attributes, shapes, 1, is_native=False)
    return {n: y[0] for n, y in zip(o.mapping.axes.results, terms({n: x[None] for n, x in parts.items()}), strict=True)}


def is_certified(target: Target, variant: str) -> bool:
    """Tell whether driver and numerics of an operation are proved equivalent in their present versions and parameters."""
    return judge_operation(target, target.mappings[variant]).is_proved


def format_refusal(o: Offload) -> str:
    """Return why a device refuses an offload's formats, empty where it accepts them, by running the smallest tile on zeros."""
    m = o.mapping
    sizes = m.unit_sizes(o.tiling.sizes)
    zeros = {v.name: np.zeros([sizes[d] for d in m.axes.of[v.name]], np.int64) for v in m.operands}
    try:
        m.run_driver(simulated_device(o.target.ila()), zeros, o.formats, dict(o.node.attributes))
    except (FlexmatchError, ValueError, OverflowError) as error:
        return str(error)
    return ""
