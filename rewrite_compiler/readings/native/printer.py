"""The native reading: lowered code compiled by LLVM. Scalars are 64-bit words, arrays are numpy's memory.

Every expression's interval must fit a word, so nothing can overflow; code with an expression that does not, or with
reals, is refused by `NotNative` and runs in another reading. An index that its interval does not prove inside is checked.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.step import Step
from ...lowering.loop_ir import Allocate, Assign, Bind, Conjunction, Copy, For, If, Mutable, Raise, Routine, Statement, Store, Tree
from ...lowering.lower import lower_step
from ...lowering.vector_idioms import can_exit_early, recognise_idioms
from ..arrays.labelled_array import Data, storage_dtype
from ..oracle.emit_python import diagnostic
from .jit import cached_code, compile_text, key_of
from .operators import declare_function
from .protocol import ArrayInMemory
from .traps import Trap, trap_refusal
from .vector_conditions import is_vector, print_every
from .vector_copies import print_copy

WORD, BIT = ir.IntType(64), ir.IntType(1)
WORD_RANGE = iv.of_width(64, True)
ON_STACK, STATIC = 1 << 10, 1 << 31
SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
TRAPPING = frozenset({"load", "div", "mod", "tdiv", "tmod", "shl", "shr"})
COMPARISON_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
LOGICAL: dict[str, Callable[..., ir.Value]] = {
    "bitand": lambda b, x, y: b.and_(x, y),
    "bitor": lambda b, x, y: b.or_(x, y),
    "not": lambda b, x: b.not_(x),
}


class NotNative(SpecError):
    """Code that machine words cannot hold."""

    def __init__(self, sentence: str) -> None:
        super().__init__("I102", sentence)


class NativeFunction:
    """A step compiled to machine code on numpy memories."""

    def __init__(
        self,
        step: Step,
        *,
        strict: bool = False,
        noalias: frozenset[Leaf] = frozenset(),
        local: frozenset[Leaf] = frozenset(),
        level: int = 2,
    ) -> None:
        """Compile `step`, optimised to `level`.

        No memory in `apart` aliases one that is not; those in `local` are small ones in the function's frame, which the step
        writes before it reads them.

        Raises:
            NotNative: an expression of the step does not fit a machine word.
        """
        routine = lower_step(step, strict=strict)
        local_memories = {name: leaf for name, leaf in routine.memories.items() if leaf in local}
        parameters = {name: leaf for name, leaf in routine.memories.items() if leaf not in local}
        routine = replace(routine, memories=parameters)
        self._prepare(routine, Printer(routine, noalias, local_memories), level)

    def _prepare(self, routine: Routine, printer: Printer, level: int = 2) -> None:
        """Compile what a printer has printed."""
        text = str(printer.module)
        self.code = key_of(text, level)
        self._set_code(
            routine.memories.values(), printer.raises, [table_entries(t) for t in routine.tables.values()], compile_text(text, level)
        )

    def _set_code(self, memories: Iterable[Leaf], raises: Sequence[Raise], tables: list[Data], code: tuple[Any, int]) -> None:
        """Set the code, which its engine owns, and its parameters."""
        self.memories: tuple[Leaf, ...] = tuple(memories)
        self.numbers = {leaf: n for n, leaf in enumerate(self.memories)}
        self.kinds = [element_kind(leaf) for leaf in self.memories]
        self.sizes = [_static_size(leaf) for leaf in self.memories]
        self.raises, self.tables = raises, tables
        self.seconds = 0.0  # of all calls, where the caller adds them up
        self._engine, address = code
        self._run = SIGNATURE(address)
        self._values = np.zeros(max([1, *(len(r.values) for r in self.raises)]), np.int64)

    @classmethod
    def from_cache(cls, memories: Iterable[Leaf], code: tuple[str, int], raises: Sequence[Raise]) -> NativeFunction | None:
        """Return a function without tables from its cached code and its diagnostics; None where the code is not in the cache."""
        loaded_code = cached_code(*code)
        if loaded_code is None:
            return None
        function = cls.__new__(cls)
        function.code = code
        function._set_code(memories, raises, [], loaded_code)
        return function

    def __call__(self, memories: Sequence[Data]) -> None:
        """Run the step in place on `memories`, one array for each of `self.memories`.

        Raises:
            SpecError: the step stops with a diagnostic or a trap, as in the oracle.
        """
        self.bind(memories)()

    def bind(self, memories: Sequence[Data | None]) -> Call:
        """Return a reusable call on these memories; a None stands for one that is put in before the call."""
        return Call(self, memories)

    def run(self, places: Any, lengths: Any) -> None:
        """Call the code on arrays of addresses and lengths.

        Raises:
            SpecError: the code stops with a diagnostic or a trap.
        """
        answer = self._run(places, lengths, self._values.ctypes.data)
        if answer < 0:
            raise trap_refusal(answer)
        if answer:
            failure = self.raises[answer - 1]
            raise diagnostic(failure.code, failure.sentence, **{n: int(v) for (n, _), v in zip(failure.values, self._values, strict=False)})


class Call:
    """A call of a function on memories that may be exchanged between calls."""

    def __init__(self, function: NativeFunction, memories: Sequence[Data | None]) -> None:
        """Check and bind the memories that are not None.

        Raises:
            SpecError: a memory has another element type or number of elements, or is not contiguous.
        """
        self.function = function
        self.arrays: list[Data | None] = [None] * len(memories)
        tables = function.tables
        self.places = (ctypes.c_void_p * (len(memories) + len(tables)))()
        self.lengths = (ctypes.c_int64 * (len(memories) + len(tables)))()
        for n, data in enumerate(memories):
            if data is not None:
                self._put(n, data)
        for n, table in enumerate(tables, len(memories)):
            self.places[n], self.lengths[n] = table.ctypes.data, table.size

    def put(self, memories: Mapping[Leaf, Data]) -> None:
        """Rebind memories.

        Raises:
            SpecError: a memory has another element type or number of elements, or is not contiguous.
        """
        for leaf, data in memories.items():
            self._put(self.function.numbers[leaf], data)

    def put_rows(self, memories: Mapping[Leaf, Data]) -> None:
        """Rebind memories to arrays of their first rows only; the step must touch no others.

        Raises:
            SpecError: a memory has another element type, or is not contiguous.
        """
        for leaf, data in memories.items():
            n = self.function.numbers[leaf]
            if data.dtype != self.function.kinds[n] or not data.flags.c_contiguous:
                raise SpecError("I102", f"{leaf.name} must be elements of {self.function.kinds[n]} in one piece, not of {data.dtype}")
            self.arrays[n] = data
            self.places[n], self.lengths[n] = data.ctypes.data, data.size

    def __call__(self) -> None:
        """Run the step in place."""
        self.function.run(self.places, self.lengths)

    def _put(self, n: int, data: Data) -> None:
        f = self.function
        kind, size = f.kinds[n], f.sizes[n]
        if data.dtype != kind or not data.flags.c_contiguous or (size is not None and data.size != size):
            expected = f"{'any number of' if size is None else size} elements of {kind}"
            raise SpecError("I102", f"{f.memories[n].name} must be {expected} in one piece, not {data.size} of {data.dtype}")
        self.arrays[n] = data
        self.places[n], self.lengths[n] = data.ctypes.data, data.size


@lru_cache(maxsize=1024)
def native_function(step: Step, strict: bool, level: int) -> NativeFunction | str:
    """Return the step compiled and optimised to `level`, or the sentence that says why it has no machine code."""
    try:
        return NativeFunction(step, strict=strict, level=level)
    except NotNative as refusal:
        return refusal.problem.sentence


class Printer:
    """Prints a routine as one LLVM function of arrays of pointers and lengths and a place for a diagnostic's values."""

    def __init__(self, routine: Routine, noalias: frozenset[Leaf] = frozenset(), frame_memories: Mapping[str, Leaf] | None = None) -> None:
        """Print `routine`; no memory in `apart` aliases one that is not, and those of `own` are in its frame.

        Raises:
            NotNative: an expression does not fit a machine word, or an operator has no machine code.
        """
        module = ir.Module("step")
        pointers = ir.PointerType(ir.IntType(8).as_pointer())
        domain = module.add_metadata(["memories"])
        scope = module.add_metadata([module.add_metadata(["apart", domain])]) if noalias else None
        self.open(ir.Function(module, ir.FunctionType(WORD, [pointers, WORD.as_pointer(), WORD.as_pointer()]), "run"), scope)
        for n, (name, kind, static) in enumerate(_parameters(self, routine)):
            self._parameter(n, name, kind, static, is_apart=routine.memories.get(name) in noalias)
        for name, leaf in (frame_memories or {}).items():
            kind, count = element_kind(leaf), _static_size(leaf) or 0
            self.local(name, self.entry_builder.alloca(llvm_type(kind), count), kind, count)
        self.block(recognise_idioms(routine.body))
        self.close(ir.Constant(WORD, 0))

    def open(self, function: ir.Function, scope: Any = None) -> None:
        """Start a function with an empty symbol table; `scope` is the alias scope of the memories that alias no others."""
        self.module, self.function, self.entry = function.module, function, function.append_basic_block("entry")
        self.scope, self.b = scope, ir.IRBuilder(function.append_basic_block("body"))
        self.entry_builder = ir.IRBuilder(self.entry)
        self.names: dict[str, ir.Value] = {}
        self.slots: dict[str, ir.Value] = {}
        self.arrays: dict[str, ArrayInMemory] = {}
        self.raises: list[Raise] = []
        self.allocated: list[list[ir.Value]] = [[]]
        self.malloc = declare_function(self.module, "malloc", ir.FunctionType(ir.IntType(8).as_pointer(), [WORD]))
        self.free = declare_function(self.module, "free", ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()]))

    def close(self, answer: ir.Value) -> None:
        """End the function with its answer."""
        self.b.ret(answer)
        self.entry_builder.branch(self.function.blocks[1])

    def check_word(self, interval: iv.Interval, real: bool, subject: str) -> None:
        """Check that a machine word holds every value of an interval.

        Raises:
            NotNative: the value is real, or exceeds 64 bits.
        """
        if real:
            raise NotNative(f"{subject} is a real number")
        if not iv.inside(interval, WORD_RANGE):
            raise NotNative(f"{subject} takes values in {interval}, more than a word of 64 bits holds")

    def scalar(self, real: bool) -> ir.Type:
        """Return the type of a scalar."""
        return WORD

    def operator(self, t: Tree, a: list[ir.Value]) -> ir.Value:
        """Return the value of an operator on values.

        Raises:
            NotNative: the operator has no machine code.
        """
        if t.op not in OPERATORS:
            raise NotNative(f"{t.op} has no machine code")
        return OPERATORS[t.op](self, t, a)

    def _parameter(self, n: int, name: str, kind: Any, static: int | None, *, is_apart: bool) -> None:
        places, lengths, _ = self.function.args
        index = ir.Constant(WORD, n)
        raw = self.entry_builder.load(self.entry_builder.gep(places, [index]))
        size = self.entry_builder.load(self.entry_builder.gep(lengths, [index])) if static is None else ir.Constant(WORD, static)
        self.arrays[name] = ArrayInMemory(self.entry_builder.bitcast(raw, llvm_type(kind).as_pointer()), kind, size, static, is_apart)

    def local(self, name: str, base: ir.Value, kind: Any, count: int) -> None:
        """Add an array of `count` elements at `base` to the symbol table."""
        self.arrays[name] = ArrayInMemory(base, kind, ir.Constant(WORD, count), count)

    # -- statements

    def block(self, statements: Sequence[Statement]) -> None:
        """Print statements, then the release of the arrays that they allocated."""
        self.allocated.append([])
        for s in statements:
            STATEMENTS[type(s)](self, s)
        for pointer in self.allocated.pop():
            self.b.call(self.free, [pointer])

    def bind(self, s: Bind) -> None:
        """Print an immutable scalar: its value is named."""
        self.names[s.name] = self.value(s.value)

    def mutable(self, s: Mutable) -> None:
        """Print a mutable scalar: a slot on the stack."""
        self.check_word(s.interval, s.real, s.name)
        self.slots[s.name] = self.entry_builder.alloca(self.scalar(s.real))
        self.b.store(self.value(s.value), self.slots[s.name])

    def assign(self, s: Assign) -> None:
        """Print an assignment to a mutable scalar."""
        self.b.store(self.value(s.value), self.slots[s.name])

    def allocate(self, s: Allocate) -> None:
        """Print a local array: on the stack when it is small."""
        self.check_word(s.interval, s.real, s.name)
        kind = element_kind(s)
        size = self.value(s.size)
        if s.size.op == "const" and int(s.size.data) <= ON_STACK:
            base = self.entry_builder.alloca(llvm_type(kind), max(1, int(s.size.data)))
            self.arrays[s.name] = ArrayInMemory(base, kind, size, int(s.size.data))
            return
        raw = self.b.call(self.malloc, [self.b.add(self.b.mul(size, ir.Constant(WORD, kind.itemsize)), ir.Constant(WORD, 1))])
        self.fail_if(self.b.icmp_unsigned("==", raw, ir.Constant(raw.type, None)), Trap.MEMORY.answer)
        self.allocated[-1].append(raw)
        self.arrays[s.name] = ArrayInMemory(self.b.bitcast(raw, llvm_type(kind).as_pointer()), kind, size, None)

    def store(self, s: Store) -> None:
        """Print a store of an element."""
        a = self.arrays[s.array]
        value = self.value(s.value)
        place = self.place(a, s.index)
        self.with_alias_scope(a, self.b.store(value if llvm_type(a.kind) == value.type else self.b.trunc(value, llvm_type(a.kind)), place))

    def with_alias_scope(self, a: ArrayInMemory, access: ir.Instruction) -> Any:
        """Return a load or store with its alias metadata attached."""
        if self.scope is not None:
            access.set_metadata("alias.scope" if a.is_noalias else "noalias", self.scope)
        return access

    def copy(self, s: Copy) -> None:
        """Copy elements: as one vector where it can be one."""
        print_copy(self, s)

    def every(self, s: Conjunction) -> None:
        """Print a conjunction: as one vector where every part of it has vectors."""
        if is_vector(s, lambda name: self.arrays[name].static):
            print_every(self, s)
        else:
            self.loop(s.loop)

    def vector(self, array: str, start: Tree, kind: ir.VectorType) -> ir.Value:
        """Return consecutive elements as a vector, each widened to a scalar."""
        a = self.arrays[array]
        place = self.b.bitcast(self.b.gep(a.base, [self.value(start)]), ir.VectorType(llvm_type(a.kind), kind.count).as_pointer())
        words = self.with_alias_scope(a, self.b.load(place, align=a.kind.itemsize))
        if words.type == kind:
            return words
        return self.b.zext(words, kind) if a.kind.kind == "u" else self.b.sext(words, kind)

    def kind_of(self, a: ArrayInMemory) -> ir.Type:
        """Return the type of an array's elements."""
        return llvm_type(a.kind)

    def loop(self, s: For) -> None:
        """Print a counted loop; the body alone where it runs once."""
        if s.extent.op == "const" and int(s.extent.data) == 1:
            self.names[s.name] = ir.Constant(WORD, 0)
            self.block(s.body)
            return
        extent, preheader = self.value(s.extent), self.b.block
        head, body, exit_block = (self.function.append_basic_block(n) for n in ("head", "loop", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        counter = self.b.phi(WORD)
        counter.add_incoming(ir.Constant(WORD, 0), preheader)
        self.b.cbranch(self.b.icmp_signed("<", counter, extent), body, exit_block)
        self.b.position_at_end(body)
        self.names[s.name] = counter
        last = s.body[-1] if can_exit_early(s) else None
        self.block(s.body if last is None else s.body[:-1])
        if isinstance(last, If):
            then_block = self.function.append_basic_block("going")
            self.b.cbranch(self.condition(last.condition), then_block, exit_block)
            self.b.position_at_end(then_block)
            self.block(last.then)
        counter.add_incoming(self.b.add(counter, ir.Constant(WORD, 1)), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(exit_block)

    def branch(self, s: If) -> None:
        """Print a branch."""
        with self.b.if_else(self.condition(s.condition)) as (then, otherwise):
            with then:
                self.block(s.then)
            with otherwise:
                self.block(s.otherwise)

    def fail(self, s: Raise) -> None:
        """Print a diagnostic: its values are stored, and its number is the answer."""
        self.raises.append(s)
        for n, (_, value) in enumerate(s.values):
            self.b.store(self.value(value), self.b.gep(self.function.args[2], [ir.Constant(WORD, n)]))
        self.fail_if(ir.Constant(BIT, 1), len(self.raises))

    def fail_if(self, condition: ir.Value, answer: int) -> None:
        """Leave with an answer, the local arrays freed, where the condition holds."""
        with self.b.if_then(condition, likely=False):
            for pointer in (p for level in self.allocated for p in level):
                self.b.call(self.free, [pointer])
            self.b.ret(ir.Constant(WORD, answer))
            self.b.position_at_end(self.function.append_basic_block("unreached"))

    # -- expressions

    def value(self, t: Tree) -> ir.Value:
        """Return the value of a tree."""
        self.check_word(t.interval, t.real, t.op)
        if t.op == "const":
            return ir.Constant(self.scalar(t.real), float(t.data) if t.real else int(t.data))
        if t.op == "name":
            return self.b.load(self.slots[t.data]) if t.data in self.slots else self.names[t.data]
        if t.op == "load":
            return self.load(t)
        if t.op == "select":
            return self.select(t)
        return self.operator(t, [self.value(a) for a in t.args])

    def condition(self, t: Tree) -> ir.Value:
        """Return whether a tree is not 0."""
        if t.op in COMPARISON_SIGNS and not t.args[0].real and not t.args[1].real:
            return self.b.icmp_signed(COMPARISON_SIGNS[t.op], *map(self.value, t.args))
        if t.op in LOGICAL and all(iv.inside(a.interval, iv.TRUTH) for a in t.args):
            return LOGICAL[t.op](self.b, *map(self.condition, t.args))
        return self.b.icmp_signed("!=", self.value(t), ir.Constant(WORD, 0))

    def load(self, t: Tree) -> ir.Value:
        """Return an element, widened to a scalar."""
        a = self.arrays[t.data]
        word = self.with_alias_scope(a, self.b.load(self.place(a, t.args[0])))
        if word.type == self.scalar(t.real):
            return word
        return self.b.zext(word, WORD) if a.kind.kind == "u" else self.b.sext(word, WORD)

    def place(self, a: ArrayInMemory, index: Tree) -> ir.Value:
        """Return the address of an element, with a bounds check where the index's interval does not exclude a violation."""
        offset = self.value(index)
        if a.static is None or not iv.inside(index.interval, (0, a.static - 1)):
            self.fail_if(self.b.icmp_unsigned(">=", offset, a.size), Trap.OUTSIDE.answer)
        return a.base if isinstance(offset, ir.Constant) and offset.constant == 0 else self.b.gep(a.base, [offset])

    def select(self, t: Tree) -> ir.Value:
        """Return a select; with branches where an operand may trap."""
        condition = self.condition(t.args[0])
        if not any(_may_trap(x) for x in t.args[1:]):
            return self.b.select(condition, self.value(t.args[1]), self.value(t.args[2]))
        incoming = []
        with self.b.if_else(condition) as branches:
            for branch, x in zip(branches, t.args[1:], strict=True):
                with branch:
                    incoming.append((self.value(x), self.b.block))
        result = self.b.phi(self.scalar(t.real))
        for value, block in incoming:
            result.add_incoming(value, block)
        return result


def _parameters(p: Printer, routine: Routine) -> Iterator[tuple[str, Any, int | None]]:
    for name, leaf in routine.memories.items():
        p.check_word(leaf.interval, leaf.real, leaf.name)
        yield name, element_kind(leaf), _static_size(leaf)
    for name, t in routine.tables.items():
        if t.body.real:
            raise NotNative(f"table {t.name} holds reals")
        yield name, table_entries(t).dtype, math.prod(t.shape)


def element_kind(a: Leaf | Allocate) -> Any:
    """Return the numpy type of an array's elements; reals are float32."""
    return np.dtype(np.float32) if a.real else np.dtype(storage_dtype(a.interval))


def _static_size(leaf: Leaf) -> int | None:
    """Return the number of elements that a memory always has."""
    static_extents = [n for n in leaf.shape if isinstance(n, int)]
    size = math.prod(static_extents)
    return size if len(static_extents) == len(leaf.shape) and size < STATIC else None


def table_entries(t: Any) -> Data:
    """Return the entries of a table in row-major order."""
    from ..arrays.evaluator import table_data

    return np.ascontiguousarray(table_data(t))


def llvm_type(kind: Any) -> ir.Type:
    """Return the LLVM type of an element of a numpy type."""
    return ir.FloatType() if kind.kind == "f" else ir.IntType(8 * kind.itemsize)


def _may_trap(t: Tree) -> bool:
    return t.op in TRAPPING or any(_may_trap(a) for a in t.args)


# -- operators


def _constant(n: int) -> ir.Constant:
    return ir.Constant(WORD, n)


def _nonzero(p: Printer, t: Tree, y: ir.Value) -> None:
    low, high = t.args[1].interval
    if (low or 0) <= 0 <= (high or 0):
        p.fail_if(p.b.icmp_signed("==", y, _constant(0)), Trap.DIVISION.answer)


def _divide(p: Printer, t: Tree, a: list[ir.Value]) -> ir.Value:
    x, y = a
    divisor = t.args[1].data if t.args[1].op == "const" else 0
    if t.op in ("div", "mod") and divisor > 0 and divisor & divisor - 1 == 0:
        return p.b.ashr(x, _constant(divisor.bit_length() - 1)) if t.op == "div" else p.b.and_(x, _constant(divisor - 1))
    _nonzero(p, t, y)
    if t.op in ("tdiv", "tmod"):
        return p.b.sdiv(x, y) if t.op == "tdiv" else p.b.srem(x, y)
    remainder = p.b.srem(x, y)
    signs_differ = p.b.icmp_signed("<", p.b.xor(remainder, y), _constant(0))
    rounds_down = p.b.and_(p.b.icmp_signed("!=", remainder, _constant(0)), signs_differ)
    if t.op == "div":
        return p.b.sub(p.b.sdiv(x, y), p.b.zext(rounds_down, WORD))
    return p.b.select(rounds_down, p.b.add(remainder, y), remainder)


def _shift(p: Printer, t: Tree, a: list[ir.Value]) -> ir.Value:
    x, n = a
    low, high = t.args[1].interval
    if low is None or low < 0:
        p.fail_if(p.b.icmp_signed("<", n, _constant(0)), Trap.SHIFT.answer)
    is_long = p.b.icmp_signed(">", n, _constant(63))
    if t.op == "shr":
        return p.b.ashr(x, n if high is not None and high < 64 else p.b.select(is_long, _constant(63), n))
    if high is not None and high < 64:
        return p.b.shl(x, n)
    return p.b.select(is_long, _constant(0), p.b.shl(x, p.b.and_(n, _constant(63))))


def _compare(p: Printer, t: Tree, a: list[ir.Value]) -> ir.Value:
    return p.b.zext(p.b.icmp_signed(COMPARISON_SIGNS[t.op], *a), WORD)


def _extremum(p: Printer, t: Tree, a: list[ir.Value]) -> ir.Value:
    return p.b.select(p.b.icmp_signed("<" if t.op == "min" else ">", *a), *a)


def _wrap(p: Printer, t: Tree, a: list[ir.Value]) -> ir.Value:
    bits, is_signed = t.data
    if not is_signed:
        return p.b.and_(a[0], _constant((1 << bits) - 1))
    shift = _constant(64 - bits)
    return p.b.ashr(p.b.shl(a[0], shift), shift) if bits < 64 else a[0]


def _extract(p: Printer, t: Tree, a: list[ir.Value]) -> ir.Value:
    low, width = t.data
    if low > 63:
        return _constant(0)
    shifted = p.b.lshr(a[0], _constant(low))
    return p.b.and_(shifted, _constant((1 << min(width, 63)) - 1))


def _leading_zeros(p: Printer, t: Tree, a: list[ir.Value]) -> ir.Value:
    return p.b.add(p.b.ctlz(a[0], ir.Constant(BIT, 0)), _constant(t.data - 64))


OPERATORS: dict[str, Callable[[Printer, Tree, list[ir.Value]], ir.Value]] = {
    "add": lambda p, t, a: p.b.add(*a),
    "sub": lambda p, t, a: p.b.sub(*a),
    "mul": lambda p, t, a: p.b.mul(*a),
    "neg": lambda p, t, a: p.b.neg(*a),
    "not": lambda p, t, a: p.b.xor(a[0], _constant(1)),
    "bitand": lambda p, t, a: p.b.and_(*a),
    "bitor": lambda p, t, a: p.b.or_(*a),
    "bitxor": lambda p, t, a: p.b.xor(*a),
    **dict.fromkeys(("div", "mod", "tdiv", "tmod"), _divide),
    **dict.fromkeys(("shl", "shr"), _shift),
    **dict.fromkeys(COMPARISON_SIGNS, _compare),
    **dict.fromkeys(("min", "max"), _extremum),
    "wrap": _wrap,
    "extract": _extract,
    "clz": _leading_zeros,
}
STATEMENTS: dict[type, Callable[[Printer, Any], None]] = {
    Bind: Printer.bind,
    Mutable: Printer.mutable,
    Assign: Printer.assign,
    Allocate: Printer.allocate,
    Store: Printer.store,
    For: Printer.loop,
    Copy: Printer.copy,
    Conjunction: Printer.every,
    If: Printer.branch,
    Raise: Printer.fail,
}
