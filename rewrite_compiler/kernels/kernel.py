"""Kernels: the machine code of one stage, and its call."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import SpecError
from ..lang.binders import Comprehension, Leaf, Table, static_shape
from ..lang.expr import Expr, const
from ..lang.substitution import substitute
from ..readings.arrays.labelled_array import Data, storage_dtype
from ..readings.kernels.evaluate import evaluate
from ..readings.native.jit import LIGHT, compile_text, host
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


class Kernel:
    """A stage compiled to machine code."""

    def __init__(self, value: Comprehension, schedule: Schedule, features: frozenset[str] | None = None) -> None:
        """Print and compile `value`.

        Raises:
            NotLowered: a term of it has no vector code.
        """
        printed = Printer(value, schedule, host()[1] if features is None else features)
        self.value, self.schedule, self.text = value, schedule, str(printed.module)
        self.sources, self.numbers = printed.sources, printed.numbers
        self._engine, address = compile_text(self.text, LEVEL)
        self._run = SIGNATURE(address)
        self._shape, self._kind = printed.result_shape(), printed.kind

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
    why = "it has no axis"
    for schedule in schedules(value, target_features):
        try:
            return Kernel(value, schedule, target_features)
        except NotLowered as refusal:
            why = refusal.problem.sentence
    return FallbackStage(value, why)
