"""LLVM printer: the term of an array's element as one function over all elements.

Lanes of a vector are neighbours along one axis of the result. Extents, strides and the numbers in indices are arguments, so
that one kernel serves many shapes; indices that may be out of bounds are tested, and the first number reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from ..lang import intervals as iv
from ..lang.binders import Accumulator, Comprehension, FoldResult, Leaf, Table, static_shape
from ..lang.expr import Expr
from ..readings.arrays.labelled_array import storage_dtype
from . import operators
from .affine import Affine, affine_of
from .folds import emit_fold, emit_reduction
from .layout import Layout
from .schedule import Schedule
from .vectors import (  # fmt: skip
    WORD,
    NotLowered,
    Value,
    align_lanes,
    constant_of,
    element_type,
    interleave,
    is_vector,
    map_positions,
    resize,
    splat,
    width_of,
)

Values = list[Value]
POINTER = ir.IntType(8).as_pointer()


class Printer:
    """Prints one kernel; `sources` and `numbers` are its arguments, a variable standing for a number that differs between calls."""

    def __init__(self, value: Comprehension, schedule: Schedule, features: frozenset[str]) -> None:
        """Print `value` by `schedule`."""
        self.value, self.schedule, self.features = value, schedule, features
        self.shape = static_shape(value)
        self.lane = value.variables[schedule.lane]
        self.jam = None if schedule.jam is None else value.variables[schedule.jam]
        self.sources: list[Layout | Table] = []
        self.numbers: list[int | Expr] = [0]
        self.loaded: dict[tuple[object, ...], Value] = {}  # arguments by what they are for
        self.loop_counters: dict[Expr, Value] = {}  # by variable how often its unit
        self.unit: dict[Expr, int] = {self.lane: schedule.lanes}
        self.accumulators: dict[Accumulator, Values] = {}
        self.memo: list[dict[Any, Any]] = [{}]
        self.in_index = False
        self.pairing: dict[Expr, Values] = {}  # loads as pairs, where both values of pairs are computed side by side
        self.depth = 0  # loops of folds and sums
        self.module = ir.Module("kernel")
        kind = ir.FunctionType(ir.VoidType(), [POINTER.as_pointer(), WORD.as_pointer()])
        self.function = ir.Function(self.module, kind, "run")
        self.start = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.b = ir.IRBuilder(self.function.append_basic_block("body"))
        self.kind = storage_dtype(value.interval)
        self.has_samples_innermost = not schedule.lane  # results and operands have them innermost, so that nothing is moved between kernels
        other_axes = [n for n in range(value.rank) if n not in (schedule.lane, schedule.jam)]
        self._nest([*other_axes, schedule.lane] if schedule.jam is None else [schedule.lane, *other_axes, schedule.jam])
        self.b.ret_void()
        self.start.branch(self.function.blocks[1])

    # -- loops

    def _nest(self, order: Sequence[int]) -> None:
        if not order:
            self._store()
            return
        axis, variable = order[0], self.value.variables[order[0]]
        extent = self.shape[axis]
        step = self.schedule.lanes if variable is self.lane else self.schedule.positions if variable is self.jam else 1

        def body(i: Value, _: Values) -> Values:
            if variable is self.jam:  # the last positions may be computed twice
                last, first = self.number(extent - step, "last"), self.b.mul(i, WORD(step))
                i = self.b.select(self.b.icmp_signed("<", first, last), first, last)
            self.loop_counters[variable] = i
            self._nest(order[1:])
            del self.loop_counters[variable]
            return []

        self.loop(self.number(-(-extent // step), "extent", axis), [], body)

    def loop(self, count: Value, carried: Values, body: Callable[[Value, Values], Values]) -> Values:
        """Emit a loop that runs at least once; `body` returns the loop-carried values of the next iteration."""
        head, block, end = self.b.block, self.function.append_basic_block(), self.function.append_basic_block()
        self.b.branch(block)
        self.b.position_at_end(block)
        i = self.b.phi(WORD)
        phis = [self.b.phi(x.type) for x in carried]
        for phi, first in zip([i, *phis], [WORD(0), *carried], strict=True):
            phi.add_incoming(first, head)
        with self.scope():
            next_values = body(i, phis)
        successor = self.b.add(i, WORD(1), flags=["nsw", "nuw"])
        for phi, x in zip([i, *phis], [successor, *next_values], strict=True):
            phi.add_incoming(x, self.b.block)
        self.b.cbranch(self.b.icmp_signed("<", successor, count), block, end)
        self.b.position_at_end(end)
        return next_values

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Discard on leaving the values of terms that are emitted inside."""
        self.memo.append({})
        yield
        self.memo.pop()

    @contextmanager
    def paired_loads(self, loads: dict[Expr, Values]) -> Iterator[None]:
        """Emit terms inside on pairs of neighbours along a variable of a sum."""
        self.pairing = loads
        with self.scope():
            yield
        self.pairing = {}

    def _store(self) -> None:
        values = self.evaluate(self.value.body, width_of(self.value.interval))
        place = self.b.mul(self.loop_counters[self.lane], WORD(self.schedule.lanes))
        for n, v in enumerate(self.value.variables):
            if v is not self.lane:
                place = self.b.add(place, self.b.mul(self.loop_counters[v], self._out_stride(n)))
        for q in range(self.schedule.positions):
            x = splat(self.b, resize(self.b, values[q % len(values)], element_type(self.kind).width), self.schedule.lanes)
            at = place
            if q and self.schedule.jam is not None:
                at = self.b.add(place, self.b.mul(WORD(q), self._out_stride(self.schedule.jam)))
            self.b.store(x, self.element(0, at, self.kind, x.type), align=np.dtype(self.kind).itemsize)

    def _out_stride(self, axis: int) -> Value:
        """Return the elements between neighbours along an axis of the result, whose lanes lie innermost, filled up."""
        inner = self.schedule.result_shape(self.shape)[axis - (axis > self.schedule.lane) + 1 :]
        return self.number(int(np.prod(inner, dtype=np.int64)), "result", axis)

    # -- arguments

    def number(self, n: int | Expr, *purpose: object) -> Value:
        """Return a scalar argument, one for each purpose; a variable stands for a number that differs between calls."""
        key = (n, *purpose)
        if key not in self.loaded:
            self.numbers.append(n)
            self.loaded[key] = self.start.load(self.start.gep(self.function.args[1], [WORD(len(self.numbers) - 1)]))
        return self.loaded[key]

    def constant_argument(self, e: Expr, bits: int) -> Values:
        """Return an operand; a constant outside of loops is an argument, so that code does not depend on the parameters of a format."""
        if e.op != "const" or self.depth or self.in_index:
            return self.evaluate(e, bits)
        return [resize(self.start, self.number(int(e.data), "amount", len(self.numbers)), bits)]

    def source(self, x: Layout | Table) -> int:
        """Return the argument number of the pointer to an operand; 0 is the result."""
        if x not in self.sources:
            self.sources.append(x)
        return 1 + self.sources.index(x)

    def element(self, pointer: int, at: Value, kind: Any, pointee: ir.Type) -> Value:
        """Return the address of an element of an operand, as a pointer to a type."""
        base = self._base(pointer, kind)
        return self.b.bitcast(self.b.gep(base, [at]), pointee.as_pointer())

    def _base(self, pointer: int, kind: Any) -> Value:
        key = "base", pointer
        if key not in self.loaded:
            raw = self.start.load(self.start.gep(self.function.args[0], [WORD(pointer)]))
            self.loaded[key] = self.start.bitcast(raw, element_type(kind).as_pointer())
        return self.loaded[key]

    def fail_unless(self, condition: Value) -> None:
        """Emit the report of an index out of bounds where a condition is false."""
        place = self.function.args[1]
        self.b.store(self.b.or_(self.b.load(place), self.b.zext(self.b.not_(condition), WORD)), place)

    # -- values

    def evaluate(self, e: Expr, bits: int) -> Values:
        """Emit a term at each jammed position, exact where lanes of `bits` hold it, else modulo 2^bits."""
        key = e, bits, self.in_index, bool(self.pairing)
        values = next((m[key] for m in reversed(self.memo) if key in m), None)
        if values is None:
            values = self.memo[-1][key] = self._evaluated(e, bits)
        return list(values)

    def _evaluated(self, e: Expr, bits: int) -> Values:
        if e.op == "const":
            return [resize(self.b, self.number(int(e.data), "index"), bits) if self.in_index else constant_of(bits, int(e.data))]
        if not self.in_index and not e.reads and e.free and e.op not in ("reduce", "table"):
            return [resize(self.b, x, bits) for x in self.index(e)]
        if e.op == "var":
            return [resize(self.b, x, bits) for x in self._variable(e)]
        if e.op == "load":
            return [resize(self.b, x, bits, signed=(e.interval[0] or 0) < 0) for x in self._load(e)]
        if e.op == "reduce":
            return emit_reduction(self, e, bits)
        return operators.emit_operator(self, e, bits)

    def index(self, e: Expr) -> Values:
        """Emit a term of variables alone in 64-bit words; its constants are arguments."""
        was_in_index, self.in_index = self.in_index, True
        values = self.evaluate(e, WORD.width)
        self.in_index = was_in_index
        return values

    def _variable(self, e: Expr) -> Values:
        if e not in self.loop_counters:
            return [self.number(e)]  # of a fold outside of the kernel
        base = self.loop_counters[e]
        if e is self.jam:
            return [self.b.add(base, WORD(q)) for q in range(self.schedule.positions)]
        if e is not self.lane:
            return [base]
        first = splat(self.b, self.b.mul(base, WORD(self.schedule.lanes)), self.schedule.lanes)
        lane_positions = self.b.add(first, ir.Constant(first.type, list(range(self.schedule.lanes))))
        last = splat(self.b, self.number(self.shape[self.schedule.lane] - 1, "last lane"), self.schedule.lanes)
        return [
            self.b.select(self.b.icmp_signed("<", lane_positions, last), lane_positions, last)
        ]  # lanes without an element are another one's

    def positions(self, *terms: Expr) -> int:
        """Return at how many jammed positions terms must be computed."""
        position_counts = [len(x) for a, x in self.accumulators.items() if any(a in e.reads for e in terms)]
        return (
            self.schedule.positions if self.jam is not None and any(self.jam in e.free for e in terms) else max(position_counts, default=1)
        )

    def varies(self, *terms: Expr) -> bool:
        """Tell whether lanes of terms may differ."""
        accumulator_values = [x[0] for a, x in self.accumulators.items() if any(a in e.reads for e in terms)]
        return any(self.lane in e.free for e in terms) or any(map(is_vector, accumulator_values))

    # -- loads

    def _load(self, e: Expr) -> Values:
        a = e.data
        if self.pairing:
            return self.pairing[e]
        if isinstance(a, Accumulator) and a in self.accumulators:
            return self.accumulators[a]
        if isinstance(a, FoldResult):
            return emit_fold(self, a)
        if type(a) is not Leaf:
            raise NotLowered("a load", f"of {type(a).__name__.lower()}")
        width_of(a.interval)  # others are no machine words in memory
        return self.elements(e, self._layout(e, str(np.dtype(storage_dtype(a.interval)))))

    def _layout(self, e: Expr, kind: str, pair: int | None = None) -> Layout:
        """Return the layout in which the lanes of a load are neighbours, where there is one."""
        axes = [n for n, i in enumerate(e.args) if self.lane in i.free]
        a = affine_of(e.args[axes[0]]) if len(axes) == 1 else None
        if a is None or a.coefficients.get(self.lane) != 1 or axes[0] == pair:
            return Layout(e.data, kind, pair=pair)
        offset = a.plus(Affine({self.lane: -1}))
        is_panel = offset.is_divisible(self.schedule.lanes, None) and (pair is not None or e.args[0] is not self.value.variables[0])
        return Layout(e.data, kind, axes[0], self.schedule.lanes if is_panel else 1, pair)

    def pair_layout(self, e: Expr, variable: Expr) -> Layout | None:
        """Return the layout in which neighbours along a variable of a sum are pairs; None where they cannot be."""
        axes = [n for n, i in enumerate(e.args) if variable in i.free]
        a = affine_of(e.args[axes[0]]) if len(axes) == 1 else None
        if a is None or a.coefficients.get(variable) != 1 or not a.is_divisible(2, variable) or not self._is_inside(e):
            return None
        if not iv.inside(e.interval, iv.of_width(16, True)) or any(affine_of(i) is None for i in e.args):
            return None
        if self.has_samples_innermost and self.lane in e.free and not e.data.shape[axes[0]] % 2:
            return self._layout(e, str(np.dtype(storage_dtype(e.data.interval))))
        layout = self._layout(e, "int16", axes[0])
        return layout if layout.lane is not None or self.lane not in e.free else None

    def _is_inside(self, e: Expr) -> bool:
        return all(iv.inside(i.interval, (0, n - 1)) for i, n in zip(e.args, e.data.shape, strict=True))

    def elements(self, e: Expr, layout: Layout) -> Values:
        """Return the elements that a load reads at each position: vectors where lanes differ, pairs of a layout of pairs."""
        source = self.source(layout)
        pairs = 2 if layout.pair is not None else 1
        if self.lane in e.free and layout.lane is None:
            return self._gathered(e, layout, source)
        lanes = pairs * (self.schedule.lanes if layout.lane is not None else 1)
        element = element_type(layout.kind)
        vector_type = (
            element if lanes == 1 else ir.VectorType(element, lanes) if layout.lane is not None else ir.IntType(pairs * element.width)
        )
        first, step = self._address(e, layout, source)
        count = 1 if step is None else self.schedule.positions
        values = []
        for q in range(count):
            at = first if not q or step is None else self.b.add(first, self.b.mul(WORD(q), step))
            place = self.element(source, at, layout.kind, vector_type)
            values.append(self.b.load(place, align=np.dtype(layout.kind).itemsize))
        return values

    def pairs(self, e: Expr, layout: Layout, variable: Expr) -> Values:
        """Return neighbours along a variable of a sum, of which it counts the pairs, side by side as numbers of 16 bits."""
        if layout.pair is not None or self.lane not in e.free:
            return self.elements(e, layout)
        source, kind = self.source(layout), ir.VectorType(element_type(layout.kind), self.schedule.lanes)
        first, step = self._address(e, layout, source)
        (axis,) = (n for n, i in enumerate(e.args) if variable in i.free)
        distance = self.number(layout.strides()[axis, 1], source, axis)
        values = []
        for q in range(1 if step is None else self.schedule.positions):
            at = first if not q or step is None else self.b.add(first, self.b.mul(WORD(q), step))
            neighbours = [
                self.b.load(self.element(source, x, layout.kind, kind), align=np.dtype(layout.kind).itemsize)
                for x in (at, self.b.add(at, distance))
            ]
            values.append(interleave(self.b, *neighbours, signed=np.dtype(layout.kind).kind == "i"))
        return values

    def _address(self, e: Expr, layout: Layout, source: int) -> tuple[Value, Value | None]:
        """Return where the first position's element lies, and how far it is to the next one's."""
        strides, numbers, tested_terms = layout.strides(), Affine(), list[Value]()
        for axis, index in enumerate(e.args):
            below = max(b for a, b in strides if a == axis)
            a = affine_of(index)
            if a is None or not self._is_known(index, e.data.shape[axis]):
                tested_terms.append(self.b.mul(self._tested(index, e.data.shape[axis]), self.number(strides[axis, below], source, axis)))
                continue
            scaled = Affine({v: c * self.unit.get(v, 1) for v, c in a.coefficients.items()}, a.constant)
            assert scaled.is_divisible(below, None)
            numbers = numbers.plus(
                Affine({v: c // below for v, c in scaled.coefficients.items()}, scaled.constant // below), strides[axis, below]
            )
        total = self.number(numbers.constant, source, "first")
        order = {v: n for n, v in enumerate(self.loop_counters)}
        for v in sorted(numbers.coefficients, key=lambda v: order.get(v, -1)):
            value = self.loop_counters[v] if v in self.loop_counters else self.number(v)
            total = self.b.add(total, self.b.mul(value, self.number(numbers.coefficients[v], source, v)))
        for x in tested_terms:
            total = self.b.add(total, x)
        step = numbers.coefficients.get(self.jam) if self.jam is not None else None
        return total, None if step is None else self.number(step, source, self.jam)

    def _is_known(self, index: Expr, extent: int) -> bool:
        return iv.inside(index.interval, (0, extent - 1))

    def _tested(self, index: Expr, extent: int) -> Value:
        """Return an index, 0 where it lies outside."""
        (x, *rest) = self.index(index)
        if rest or is_vector(x):
            raise NotLowered("a load", "at an index that differs in every lane and may lie outside")
        is_inside = self.b.icmp_unsigned("<", x, self.number(extent, "inside"))
        if not self._is_known(index, extent):
            self.fail_unless(is_inside)
        return self.b.select(is_inside, x, WORD(0))

    def _gathered(self, e: Expr, layout: Layout, source: int) -> Values:
        if not self._is_inside(e) or layout.pair is not None:
            raise NotLowered("a load", "at an index that differs in every lane and may lie outside")
        strides = layout.strides()
        places = [WORD(0)]
        for axis, index in enumerate(e.args):
            stride = self.number(strides[axis, 1], source, axis)
            places = map_positions(
                lambda x, i, s=stride: self.b.add(*align_lanes(self.b, x, self.b.mul(*align_lanes(self.b, i, s)))),
                places,
                self.index(index),
            )
        return [self.gather(source, x, layout.kind) for x in places]

    def gather(self, pointer: int, places: Value, kind: Any) -> Value:
        """Gather the elements of an operand at these element numbers, lane by lane."""
        if not is_vector(places):
            return self.b.load(self.element(pointer, places, kind, element_type(kind)))
        vector = ir.Constant(ir.VectorType(element_type(kind), places.type.count), ir.Undefined)
        for n in range(places.type.count):
            entry = self.b.load(self.element(pointer, self.b.extract_element(places, ir.IntType(32)(n)), kind, element_type(kind)))
            vector = self.b.insert_element(vector, entry, ir.IntType(32)(n))
        return vector
