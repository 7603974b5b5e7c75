"""The native reading in single precision: reals are 32-bit floats, each operation rounded, nothing contracted or reordered.

Real functions are those that `functions` defines, each compiled from its definition, so the bits are those of C and of numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from llvmlite import ir

from ...lang import intervals as iv
from ...lang.binders import Array, Leaf
from ...lang.libm.functions import DEFINITIONS, parameters
from ...lowering.libm_code import straight_line_code
from ...lowering.loop_ir import Tree
from ...lowering.lower import lower_array
from ..arrays.labelled_array import Data
from .operators import declare_function
from .printer import COMPARISON_SIGNS, WORD, NativeFunction, NotNative, Printer, element_kind, table_entries

SINGLE = ir.FloatType()


class NativeArray(NativeFunction):
    """An array's elements compiled to machine code in single precision."""

    def __init__(self, a: Array) -> None:
        """Compile the elements of `a`.

        Raises:
            NotNative: an integer exceeds a machine word, or an operator has no machine code.
        """
        routine = lower_array(a)
        (name,) = [n for n, leaf in routine.memories.items() if leaf.name == "out"]
        self.out = routine.memories[name]
        self.shape = tuple(int(str(n)) for n in a.shape)
        self._prepare(routine, SinglePrinter(routine, frozenset({self.out})))

    def elements(self, memories: Mapping[Leaf, Data]) -> Data:
        """Return the elements, float32 or integers of `self.shape`, computed from the memories that they read."""
        result = np.empty(self.shape, element_kind(self.out))
        self([result if leaf is self.out else memories[leaf] for leaf in self.memories])
        return result


class SinglePrinter(Printer):
    """Prints reals as 32-bit floats. Integers without a known range are words, too: the caller knows that they fit."""

    def check_word(self, interval: iv.Interval, real: bool, subject: str) -> None:
        """Check that a machine word holds every value of a bounded integer interval.

        Raises:
            NotNative: the integer exceeds 64 bits.
        """
        if not real and None not in interval:
            super().check_word(interval, real, subject)

    def scalar(self, real: bool) -> ir.Type:
        """Return the type of a scalar."""
        return SINGLE if real else WORD

    def operator(self, t: Tree, a: list[ir.Value]) -> ir.Value:
        """Return the value of an operator on values, float32 where one of them is real.

        Raises:
            NotNative: the operator has no machine code.
        """
        if not t.real and not any(x.real for x in t.args):
            return super().operator(t, a)
        if t.op in COMPARISON_SIGNS:
            compare = self.b.fcmp_unordered if t.op == "ne" else self.b.fcmp_ordered
            return self.b.zext(compare(COMPARISON_SIGNS[t.op], *a), WORD)
        if t.op not in REALS:
            raise NotNative(f"{t.op} of reals has no machine code")
        return REALS[t.op](self, t, a)

    def real_function(self, name: str) -> ir.Function:
        """Return a real function of the module, printing its definition when it is new.

        Raises:
            NotNative: the function has no definition in `functions`.
        """
        if name not in DEFINITIONS:
            raise NotNative(f"{name} has no machine code")
        names = parameters(name)
        function = declare_function(self.module, f"fm_{name}", ir.FunctionType(SINGLE, [SINGLE] * len(names)))
        if not function.blocks:
            _Function(function, name)
        return function


class _Function(SinglePrinter):
    """Prints a real function from its definition."""

    def __init__(self, function: ir.Function, name: str) -> None:
        """Print the body of `function`."""
        function.linkage = "internal"
        self.open(function)
        code = straight_line_code(name)
        self.names.update(zip(code.operands, function.args, strict=True))
        for table, t in code.tables.items():
            data = table_entries(t).reshape(-1)
            kind = ir.ArrayType(ir.IntType(8 * data.itemsize), data.size)
            variable = ir.GlobalVariable(self.module, kind, self.module.get_unique_name(f"{name}_{table}"))
            variable.linkage, variable.global_constant = "internal", True
            variable.initializer = ir.Constant(kind, [int(x) for x in data])
            self.local(table, self.entry_builder.bitcast(variable, kind.element.as_pointer()), data.dtype, data.size)
        self.block(code.body)
        self.close(self.value(code.result))

    def fail_if(self, condition: ir.Value, answer: int) -> None:
        """Refuse a definition that can fail."""
        raise NotNative("a real function whose definition can fail has no machine code")


def _extremum(p: SinglePrinter, t: Tree, a: list[ir.Value]) -> ir.Value:
    return p.b.select(p.b.fcmp_ordered("<" if t.op == "min" else ">", *a), *a)


def _intrinsic(p: SinglePrinter, name: str, x: ir.Value) -> ir.Value:
    return p.b.call(declare_function(p.module, f"llvm.{name}.f32", ir.FunctionType(SINGLE, [SINGLE])), [x])


def _call(p: SinglePrinter, t: Tree, a: list[ir.Value]) -> ir.Value:
    if t.data == "sqrt":  # correctly rounded by IEEE 754
        return _intrinsic(p, "sqrt", a[0])
    return p.b.call(p.real_function(str(t.data)), a)


REALS: Mapping[str, Callable[[SinglePrinter, Tree, list[ir.Value]], Any]] = {
    "add": lambda p, t, a: p.b.fadd(*a),
    "sub": lambda p, t, a: p.b.fsub(*a),
    "mul": lambda p, t, a: p.b.fmul(*a),
    "rdiv": lambda p, t, a: p.b.fdiv(*a),
    "neg": lambda p, t, a: p.b.fneg(a[0]),
    "min": _extremum,
    "max": _extremum,
    "real": lambda p, t, a: a[0] if t.args[0].real else p.b.sitofp(a[0], SINGLE),
    "floor": lambda p, t, a: p.b.fptosi(_intrinsic(p, "floor", a[0]), WORD),
    "rint": lambda p, t, a: p.b.fptosi(_intrinsic(p, "rint", a[0]), WORD),
    "call": _call,
}
