"""Kernels: the machine code of one stage, and its call.

What was printed for a stage is kept on disk by the hash of its term, so that a later process neither prints nor compiles it.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..disk_cache import DiskCache, private_cache_folder, sources_hash
from ..errors import SpecError
from ..lang.binders import Accumulator, Array, Comprehension, Fold, FoldResult, Leaf, Table, static_shape
from ..lang.expr import Expr, const
from ..lang.structural_hash import StructuralHash
from ..lang.substitution import substitute
from ..readings.arrays.labelled_array import Data, storage_dtype
from ..readings.kernels.evaluate import evaluate
from ..readings.native.jit import LIGHT, cached_code, compile_text, counts, host, key_of
from ..readings.native.printer import table_entries
from .layout import Layout
from .printer import Printer
from .schedule import Schedule, schedules
from .vectors import NotLowered

LEVEL = LIGHT  # its vectors and unrolled loops are printed: the passes of higher levels, half of the time, gain nothing
PackedOperands = dict[Leaf, dict[Layout, Data]]  # packed operands by leaf and layout
SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class FallbackStage:
    """A stage that is evaluated by the arrays reading, and the reason why it has no machine code."""

    value: Comprehension
    reason: str

    def __str__(self) -> str:
        return f"plain arrays: {self.reason}"

    def __call__(self, arrays: Mapping[Leaf, Data], variables: Mapping[Expr, int], packed_operands: PackedOperands) -> Data:
        """Return all elements, in the shape of the stage.

        Raises:
            NotLowered: the stage depends on a variable inside a fold, and cannot be rewritten for its value.
        """
        del packed_operands
        try:
            body = substitute(self.value.body, {v: const(n) for v, n in variables.items() if v in self.value.body.free})
        except SpecError as error:  # a fold in a fold
            raise NotLowered("a fold", f"in a fold: {self.reason}") from error
        value = Comprehension(self.value.shape, self.value.interval, self.value.real, self.value.variables, body)
        return evaluate(value, {leaf: _wide(arrays[leaf]) for leaf in body.reads}).astype(storage_dtype(value.interval))


def _wide(x: Data) -> Data:
    return x if x.dtype == object else x.astype(np.int64)


@dataclass(frozen=True)
class KernelCode:
    """Printed code: the cache key and level of its object, and its arguments; a variable is a number that differs between calls."""

    object: tuple[str, int]
    sources: tuple[Layout | Table, ...]
    numbers: tuple[int | Expr, ...]


class Kernel:
    """A stage as machine code."""

    def __init__(self, value: Comprehension, schedule: Schedule, code: KernelCode, loaded: tuple[Any, int]) -> None:
        """Make the stage `value` callable; `loaded` is the engine that owns the machine code, and the address of the code."""
        self.value, self.schedule, self.code = value, schedule, code
        self.sources, self.numbers = code.sources, code.numbers
        self._engine, address = loaded
        self._run = SIGNATURE(address)
        self._shape, self._kind = schedule.result_shape(static_shape(value)), storage_dtype(value.interval)

    def __str__(self) -> str:
        return str(self.schedule)

    def __call__(self, arrays: Mapping[Leaf, Data], variables: Mapping[Expr, int], packed_operands: PackedOperands) -> Data:
        """Return all elements, in the shape of the stage; layouts of operands in `held` are not packed again."""
        operands = [self._operand(x, arrays, packed_operands) for x in self.sources]
        numbers = np.array([variables[n] if isinstance(n, Expr) else n for n in self.numbers], np.int64)
        result = np.empty(self._shape, self._kind)
        places = (ctypes.c_void_p * (1 + len(operands)))(result.ctypes.data, *(x.ctypes.data for x in operands))
        self._run(ctypes.addressof(places), numbers.ctypes.data)
        if numbers[0]:  # an index lies outside: the other reading says where
            return FallbackStage(self.value, "an index lies outside")(arrays, variables, packed_operands)
        extent = static_shape(self.value)[self.schedule.lane]
        return np.moveaxis(result[..., :extent], -1, self.schedule.lane)

    def _operand(self, x: Layout | Table, arrays: Mapping[Leaf, Data], packed_operands: PackedOperands) -> Data:
        if isinstance(x, Table):
            return table_entries(x)
        by_layout = packed_operands.setdefault(x.leaf, {})
        if x not in by_layout:
            by_layout[x] = x.pack(arrays[x.leaf])
        return by_layout[x]


def kernel_of(value: Comprehension, features: frozenset[str] | None = None) -> Kernel | FallbackStage:
    """Return the kernel of the first schedule, best first, that has code; else the stage for the arrays reading."""
    target_features = host()[1] if features is None else features
    cached = CachedStage(value, target_features)
    stage = cached.load()
    if stage is None:
        stage = _printed(value, target_features)
        cached.store(stage)
    return stage


def _printed(value: Comprehension, features: frozenset[str]) -> Kernel | FallbackStage:
    why = "it has no axis"
    for schedule in schedules(value, features):
        try:
            printer = Printer(value, schedule, features)
        except NotLowered as refusal:
            why = refusal.problem.sentence
            continue
        text = str(printer.module)
        code = KernelCode(key_of(text, LEVEL), tuple(printer.sources), tuple(printer.numbers))
        return Kernel(value, schedule, code, compile_text(text, LEVEL))
    return FallbackStage(value, why)


class CachedStage(StructuralHash):
    """What was printed for a stage, on disk: its key is the hash of the term, of the processor, and of the sources that print.

    Arguments that are terms or tables of the stage are recorded by their numbers in the hash.
    """

    def __init__(self, value: Comprehension, features: frozenset[str]) -> None:
        """Hash a stage."""
        super().__init__()
        self.value = value
        self.others: dict[Fold | Table, int] = {}  # the number of each
        self.add_words(_printer_sources(), sorted(features))
        self.add(value)
        self.cache, self.key = DiskCache(private_cache_folder("kernels")), key_of(self.text(), LEVEL)[0]

    def load(self) -> Kernel | FallbackStage | None:
        """Return the stage as an earlier process printed it; None where none did, or the object is gone."""
        stored = self.cache.get(self.key)
        counts.rebuilt += self.cache.damaged
        if stored is None:
            return None
        record = json.loads(stored)
        if record["reason"]:
            return FallbackStage(self.value, record["reason"])
        object_key, level = record["object"]
        loaded = _loaded_code(object_key, level)
        if loaded is None:
            return None
        terms: dict[int, Any] = {number: term for term, number in (*self._numbers.items(), *self.others.items())}
        sources = tuple(Layout(terms[n], *layout) if layout else terms[n] for n, *layout in record["sources"])
        numbers = tuple(terms[n[0]] if isinstance(n, list) else n for n in record["numbers"])
        return Kernel(self.value, Schedule(**record["schedule"]), KernelCode((object_key, level), sources, numbers), loaded)

    def store(self, stage: Kernel | FallbackStage) -> None:
        """Store what was printed for the stage, or why nothing was."""
        record: dict[str, Any] = {"reason": stage.reason if isinstance(stage, FallbackStage) else ""}
        if isinstance(stage, Kernel):
            record |= {
                "schedule": asdict(stage.schedule), "object": stage.code.object,
                "sources": [
                    [self.others[x]] if isinstance(x, Table) else [self._numbers[x.leaf], x.kind, x.lane, x.block, x.pair]
                    for x in stage.code.sources
                ],
                "numbers": [[self._numbers[n]] if isinstance(n, Expr) else n for n in stage.code.numbers],
            }  # fmt: skip
        self.cache.put(self.key, json.dumps(record).encode())

    def _array(self, a: Array) -> object:
        if isinstance(a, Accumulator):
            return "accumulator", a.name, a.shape, a.interval, a.real, self._number(a.variable)
        if isinstance(a, FoldResult):
            return "fold result", self._other(a.fold), a.component, a.history
        return super()._array(a)

    def _data(self, e: Expr) -> Any:
        return self._other(e.data) if e.op == "table" else super()._data(e)

    def _other(self, x: Fold | Table) -> int:
        number = self.others.get(x)
        if number is None:
            line = self._fold(x) if isinstance(x, Fold) else ("table", self._numbered(x.parameters), x.domains, self._number(x.body))
            number = self.others[x] = len(self._lines)
            self._lines.append(line)
        return number

    def _fold(self, f: Fold) -> object:
        return (
            "fold",
            self._numbered((f.variable, f.extent)),
            [[self._number(a) for a in part] for part in (f.initial, f.accumulators, f.bodies)],
        )


@lru_cache(maxsize=4096)
def _loaded_code(key: str, level: int) -> tuple[Any, int] | None:
    return cached_code(key, level)


@cache
def _printer_sources() -> str:
    """Return the hash of the sources that split terms into stages, choose schedules and print."""
    package = Path(__file__).parents[1]
    return sources_hash([package / p for p in ("kernels", "lang", "readings")], [])
