"""Runs one offload on a device: quantise operands, run the driver tile by tile, dequantise results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any

import numpy as np

from ...errors import InputError
from ...lang.formats import Format, Int
from ...readings.arrays.buffer_pool import pooled_array_with_strides
from ...readings.arrays.labelled_array import Data, storage_dtype
from ...readings.kernels.format_conversion import codes_of, decode_into, encode_into, values_of
from ...target import Device, Stay, StreamedDevice
from ..host.data_movement import PendingMove
from ..host.lazy_codes import Ends, LazyCodes, Operand, RangedFloats, elements_of, hull_of
from ..plan.plan import Offload

MOST_CODES = 1 << 16  # of a format whose saturated codes are enumerated


@dataclass
class Statistics:
    """Statistics of an offload over all samples: ranges, saturated results, and its error on the first samples."""

    values: int = 0
    saturated: int = 0
    range_in: tuple[float, float] = (np.inf, -np.inf)
    range_out: tuple[float, float] = (np.inf, -np.inf)
    squared_errors: list[float] = field(default_factory=list)  # of the compared samples
    squared_references: list[float] = field(default_factory=list)
    max_abs_error: float = 0.0
    compared: int = 0
    codes: int = 0  # of a quantised model that were compared; those that differ below
    differing_codes: int = 0
    audited: int = 0  # result codes that the oracle or plain numerics computed again
    validated: int = 0  # samples that a simulator computed again
    seconds: float = 0.0  # of processor time
    slow: tuple[str, ...] = ()  # why numerics ran without machine code

    def merge(self, other: Statistics) -> None:
        """Add the statistics of another run."""
        self.values += other.values
        self.saturated += other.saturated
        self.range_in = hull_of([self.range_in, other.range_in])
        self.range_out = hull_of([self.range_out, other.range_out])
        self.squared_errors += other.squared_errors
        self.squared_references += other.squared_references
        self.max_abs_error = max(self.max_abs_error, other.max_abs_error)
        self.compared += other.compared
        self.codes += other.codes
        self.differing_codes += other.differing_codes
        self.audited += other.audited
        self.validated += other.validated
        self.seconds += other.seconds
        self.slow = tuple(dict.fromkeys((*self.slow, *other.slow)))


Observer = Callable[[Mapping[str, Data], Mapping[str, slice], Mapping[str, Data], Statistics], None]


@dataclass
class PreparedOffload:
    """An offload ready to run, its constant operands quantised."""

    offload: Offload
    constants: Mapping[str, Data]  # float values by operand name
    codes: dict[str, Data] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, x in self.constants.items():
            check_finite(self.offload, name, x)
        self.codes = {n: operand_codes(self.offload.formats[n], x) for n, x in self.constants.items()}

    def run(
        self,
        device: Device | StreamedDevice,
        operands: Mapping[str, Operand],
        observe: Observer | None = None,
        stays: Sequence[Stay] = (),
    ) -> tuple[tuple[Data, ...], Statistics]:
        """Return the results [samples, …], float32 or a quantised model's own integers, for operands [samples, …], and statistics.

        `observe` gets the codes of the operands, the tile and the result codes of every call; `stays` are the tensors
        resident on the device at each call.
        """
        o = self.offload
        ends = {n: ends_of(x) for n, x in operands.items()}
        codes: dict[str, Data] = {**self.codes, **{n: self.encode_operand(n, x, ends[n]) for n, x in operands.items()}}
        roots = [x.root if isinstance(x, PendingMove) else elements_of(x) for x in operands.values()]
        samples = len(roots[0])
        axes = o.mapping.axes
        totals: dict[str, Data] = {}
        statistics = Statistics(range_in=hull_of(ends.values()))
        is_split = any(o.tiling.tile[d] < o.tiling.sizes[d] for d in axes.summed)
        for n, slices in enumerate(o.tiling.slices()):
            results = self.call(device, codes, slices, stays[n] if stays else None)
            if observe is not None:
                observe(codes, slices, results, statistics)
            for name, y in results.items():
                if name not in totals:
                    totals[name] = self._result_array(name, samples, y, is_split=is_split)
                place = totals[name][(slice(None), *(slices[d] for d in axes.of[name]))]
                part, (low, high) = _added(place, o.formats[name], y, is_split)
                statistics.saturated += count_saturated(part, o.formats[name], max(high, -low), y)
                statistics.values += part.size
                statistics.range_out = hull_of([statistics.range_out, (low, high)])
        if is_split:
            statistics.range_out = range_of(totals.values())
        return tuple(totals[n] for n in axes.results), statistics

    @cached_property
    def constants_hash(self) -> str:
        """The SHA-256 of the codes of the constant operands."""
        return hash_of_arrays(self.codes)

    def encode_operand(self, name: str, x: Operand, ends: Ends) -> Data:
        """Return the codes of an operand that is not constant."""
        return moved_codes(self.offload.formats[name], x, ends)

    def _result_array(self, name: str, samples: int, y: Data, *, is_split: bool) -> Data:
        """Return the array of a result, in the memory layout of its first part `y`; zeros where partial sums are added."""
        o = self.offload
        shape, kind = (samples, *(o.tiling.sizes[d] for d in o.mapping.axes.of[name])), result_dtype(o.formats[name])
        result: Data = pooled_array_with_strides(shape, y.strides, kind) if np.ndim(y) == len(shape) else np.empty(shape, kind)
        if is_split or isinstance(o.formats[name], Int):
            result.fill(0)
        return result

    def call(
        self, device: Device | StreamedDevice, codes: Mapping[str, Data], slices: Mapping[str, slice], stay: Stay | None = None
    ) -> dict[str, Data]:  # fmt: skip
        """Run one tile; operands without the summed dimension (a bias) enter with its first part only."""
        o = self.offload
        results = o.mapping.run_driver(device, self.parts(codes, slices), o.formats, dict(o.node.attributes), stay)
        by_name = results if isinstance(results, tuple) else (results,)
        o.mapping.check_shapes(by_name, {d: s.stop - s.start for d, s in slices.items()})
        return dict(zip(o.mapping.axes.results, by_name, strict=True))

    def parts(self, codes: Mapping[str, Data], slices: Mapping[str, slice]) -> dict[str, Data]:
        """Return the slices of the operands for one tile, zeros for those that do not enter it."""
        o, parts = self.offload, {}
        for name in (v.name for v in o.mapping.operands):
            dims = o.mapping.axes.of[name]
            lead = (slice(None),) * (codes[name].ndim - len(dims))
            part = codes[name][(*lead, *(slices[d] for d in dims))]
            parts[name] = part if _enters(o, name, slices) else np.zeros_like(part)
        return parts


def hash_of_arrays(arrays: Mapping[str, Data]) -> str:
    """Return the SHA-256 of the elements of arrays by name: equal numbers have equal ones, whatever their type."""
    digest = sha256()
    for name, x in arrays.items():
        digest.update(f"{name} {x.shape} ".encode())
        if x.dtype.kind == "O":
            digest.update(repr(x.tolist()).encode())
        else:
            elements: Data = np.asarray(x, np.float64 if x.dtype.kind == "f" else np.int64) + 0  # -0.0 equals 0.0
            digest.update(elements.tobytes())
    return digest.hexdigest()


def check_finite(o: Offload, name: str, x: Data) -> None:
    """Refuse constants that no format represents.

    Raises:
        InputError: (C102) a constant is NaN or infinite; names the first.
    """
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        at = np.argwhere(~np.isfinite(x))
        sentence = f"constant {name} of {o.id} must be finite, not {x[tuple(at[0])]} at {at[0].tolist()} ({len(at)} of {x.size} values)"
        raise InputError("C102", sentence, place=", ".join(o.nodes), help="correct the weights of the model")


def _added(total: Data, f: Format, codes: Data, is_split: bool) -> tuple[Data, Ends]:
    """Decode codes into a part of a result, added where a sum is split; return the decoded values and their range."""
    if isinstance(f, Int):  # sums wrap as the device's do
        part = np.asarray(codes).astype(total.dtype)
        total += part
        return part, range_of([part])
    if is_split:
        part = np.empty(total.shape, np.float32)
        ends = decode_into(f, codes, part)
        total += part
        return part, ends or range_of([part])
    return total, decode_into(f, codes, total) or range_of([total])


@lru_cache(maxsize=1024)
def largest_of(f: Format) -> float:
    """Return the largest value of a format as a float32."""
    return float(np.float32(f.largest))


def saturated_count(part: Data, f: Format) -> int:
    """Return the number of saturated values of a float format; 0 for a model's own integers."""
    low, high = range_of([part])
    return count_saturated(part, f, max(high, -low))


def count_saturated(part: Data, f: Format, size: float, codes: Data | None = None) -> int:
    """Return the number of saturated values, given the largest magnitude `size`; counted on `codes`, which are smaller, if given."""
    largest = largest_of(f)
    if isinstance(f, Int) or size < largest:
        return 0
    low, high = f.codes
    if codes is not None and low is not None and high is not None and high - low < MOST_CODES:
        return sum(int(np.count_nonzero(codes == c)) for c in saturated_codes(f))
    return int(np.count_nonzero(part >= largest)) + int(np.count_nonzero(part <= -largest))


@lru_cache(maxsize=256)
def saturated_codes(f: Format) -> tuple[int, ...]:
    """Return the codes of values of the largest magnitude."""
    codes = np.arange(f.codes[0] or 0, (f.codes[1] or 0) + 1)
    return tuple(codes[np.abs(values_of(f, codes)) >= largest_of(f)].tolist())


def _enters(o: Offload, name: str, slices: Mapping[str, slice]) -> bool:
    """Tell whether an operand enters a tile: one without the split summed dimension enters the first part only."""
    split = [d for d in o.mapping.axes.summed if slices[d].start]
    return not split or bool(set(split) & set(o.mapping.axes.of[name]))


def result_dtype(f: Format) -> Any:
    """Return the numpy type of a result: float32, or the integers of a quantised model."""
    return storage_dtype(f.codes) if isinstance(f, Int) else np.float32


def operand_codes(f: Format, x: Data, ends: Ends | None = None) -> Data:
    """Return the codes of an operand in the narrowest integer type that holds every code; its values lie between `ends`."""
    if isinstance(f, Int) and x.dtype == storage_dtype(f.codes):
        return x
    if x.dtype == np.float32:  # the memory layout is kept
        codes = pooled_array_with_strides(x.shape, x.strides, storage_dtype(f.codes))
        if encode_into(f, x, codes, range_of([x]) if ends is None else ends):
            return codes
    return codes_of(f, x).astype(storage_dtype(f.codes), copy=False)


def moved_codes(f: Format, x: Operand, ends: Ends) -> Data:
    """Return the codes of a lazy operand; of a moved one the codes of its root, moved, so that each element is quantised once."""
    if isinstance(x, LazyCodes):
        result = pooled_array_with_strides(x.codes.shape, x.codes.strides, storage_dtype(f.codes))
        if x.encode_into(f, lambda codes: codes, result, None):
            return result
    if not isinstance(x, PendingMove) or not x.move.is_onto:
        return operand_codes(f, elements_of(x), ends)
    zero = operand_codes(f, np.zeros(1, x.root.dtype))
    return x.move(np.ascontiguousarray(operand_codes(f, x.root, ends)), int(zero[0]))


def ends_of(x: Operand) -> Ends:
    """Return the least and the largest element of a lazy operand, without materialising it where they are known."""
    if isinstance(x, LazyCodes | RangedFloats):
        return x.ends
    if not isinstance(x, PendingMove) or not x.move.is_onto:
        return range_of([elements_of(x)])
    low, high = range_of([x.root])
    is_wider = x.move.has_zeros and low <= high  # a range with NaN stays not finite
    return hull_of([(low, high), (0.0, 0.0)]) if is_wider else (low, high)


def range_of(arrays: object) -> tuple[float, float]:
    """Return the least and the largest element of several arrays."""
    low, high = np.inf, -np.inf
    for x in arrays:  # type: ignore[attr-defined]
        if x.size:
            low, high = min(low, float(x.min())), max(high, float(x.max()))
    return low, high
