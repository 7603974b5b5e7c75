"""The C reading: lowered code printed as C11. Integers are 64-bit words, reals are double, or float for host operators.

Every integer's interval must fit a word, so nothing overflows; what does not, and real functions that have no definition in
`functions`, are refused by `NoC`.
Compile with a C11 mode that keeps float arithmetic as written (gcc -std=c11).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Leaf, Table, entries_of
from ...lowering.bounds_checks import CHECKED, hoist_bounds_checks
from ...lowering.copy_propagation import propagate_copies
from ...lowering.dead_code import eliminate_dead_code
from ...lowering.decoded_copies import DecodedCopy, with_decoded_copies
from ...lowering.dot_narrowing import HALF_WORD, narrow_sums, split_wide_sums
from ...lowering.loop_invariants import hoist_invariants
from ...lowering.loop_ir import Allocate, Assign, Bind, BoundsCheck, For, If, Mutable, Raise, Routine, Statement, Store, Tree
from ...lowering.lower import lower_array
from ...lowering.trap_analysis import cannot_trap, is_inside, is_not_negative, is_not_zero, sizes_of, static_size
from ..arrays.labelled_array import Data, storage_dtype

if TYPE_CHECKING:
    from ...lowering.libm_code import StraightLineCode

WORD = iv.of_width(64, True)
ON_STACK = 1 << 10
CONSTANT_ENTRIES = 1 << 12
ENTRIES_A_LINE = 16
TYPES = {np.dtype(f"{kind}{size}"): f"{'u' if kind == 'u' else ''}int{8 * size}_t" for kind in "iu" for size in (1, 2, 4, 8)}


class NoC(SpecError):
    """A term that has no C form."""

    def __init__(self, sentence: str) -> None:
        super().__init__("I102", sentence)


@dataclass
class Tables:
    """The tables that printed functions share, by their definition: constants, or filled by a function when they are large."""

    names: dict[int, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    fills: list[PrintedFunction] = field(default_factory=list)
    definitions: list[Table] = field(default_factory=list)  # alive, so that identities stay theirs
    functions: set[str] = field(default_factory=set)  # real functions that are printed

    def name_of(self, table: Table) -> str:
        """Return the name of a table, printing it when it is new."""
        if id(table) not in self.names:
            self.names[id(table)] = self._print(table)
            self.definitions.append(table)
        return self.names[id(table)]

    def function_of(self, function: str) -> str:
        """Return the name of a real function in single precision, printing its definition when it is new.

        Raises:
            NoC: the function has no definition in `functions`.
        """
        from ...lang.libm.functions import DEFINITIONS
        from ...lowering.libm_code import straight_line_code

        if function not in DEFINITIONS:
            raise NoC(f"{function} has no C form")
        name = f"fm_{function}"
        if function not in self.functions:
            self.functions.add(function)
            self.texts.append(_real_function(name, straight_line_code(function), self))
        return name

    def _print(self, table: Table) -> str:
        size = math.prod(table.shape)
        if size <= CONSTANT_ENTRIES:
            from ..arrays.evaluator import table_data

            name = f"fm_table{len(self.texts)}"
            self.texts.append(c_array(name, np.ascontiguousarray(table_data(table)).reshape(-1)))
            return name
        entries = entries_of(table)
        fill = print_c(lower_array(entries), f"fm_fill{len(self.fills)}", self)
        name = f"fm_table{len(self.texts)}"
        self.texts.append(f"static {c_type(entries.interval, entries.real)} {name}[{size}];\n")
        self.fills.append(replace(fill, target=name))
        return name

    @property
    def fill_text(self) -> str:
        """The functions that fill large tables, and the one that calls them once."""
        calls = "".join(f"    {f.name}(&s, {f.target});\n" for f in self.fills)
        body = f"    static int done = 0;\n    fm_scratch s = {{0}};\n    if (done) return;\n{calls}    done = 1;\n" if calls else ""
        return "\n".join([*(f.text for f in self.fills), f"static void fm_fill_tables(void)\n{{\n{body}}}\n"])


@dataclass(frozen=True)
class PrintedFunction:
    """A C function: its text, its memories in the order of its parameters, the diagnostics it returns, whether it needs scratch."""

    name: str
    text: str
    memories: tuple[Leaf, ...]
    raises: tuple[Raise, ...]
    allocates: bool
    target: str = ""  # the table that it fills


@dataclass(frozen=True)
class Style:
    """How code is printed.

    With `unbounded`, integers without a known range (a real rounded down) are words too: the caller knows that they fit.
    Without `heap`, large local arrays are static, so only one call runs at a time.
    """

    real: str = "double"
    unbounded: bool = False
    heap: bool = True


def optimise(routine: Routine) -> Routine:
    """Return a routine after dead code elimination, loop-invariant motion and copy propagation."""
    return propagate_copies(hoist_invariants(eliminate_dead_code(routine)))


def print_c(
    routine: Routine, name: str, tables: Tables, style: Style | None = None, *, first_raise: int = 1, mirrors: Sequence[DecodedCopy] = ()
) -> PrintedFunction:  # fmt: skip
    """Return a routine as `static int name(fm_scratch *s, …)`: one pointer for each memory, and its length where that is not fixed.

    The function returns 0, a negative trap, or the number of a diagnostic, counted from `first_raise`.

    Raises:
        NoC: an integer exceeds 64 bits, or an operator has no C form.
    """
    style = style or Style()
    optimised = hoist_bounds_checks(split_wide_sums(with_decoded_copies(optimise(routine), mirrors)))
    printer = _Printer(optimised, tables, style, first_raise)
    printer.block(optimised.body, 1)
    parameters = ["fm_scratch *s"]
    for n, leaf in optimised.memories.items():
        is_used = n in printer.used_arrays
        const = "" if n in printer.written_arrays else "const "
        parameters.append(f"{const}{c_type(leaf.interval, leaf.real, style.real)} *{'' if const else 'restrict '}{n}")
        printer.lines += [] if is_used else [f"    (void){n};"]
        if static_size(leaf) is None:
            parameters.append(f"int64_t {n}_size")
            printer.lines += [] if n in printer.sized_arrays else [f"    (void){n}_size;"]
    head = f"static int {name}({', '.join(parameters)})\n{{\n"
    text = head + "\n".join([*printer.lines, "    return s->trap;", "}", ""])
    return PrintedFunction(name, text, tuple(optimised.memories.values()), tuple(printer.raises), printer.allocates)


def c_type(interval: iv.Interval, is_real: bool, real: str = "double") -> str:
    """Return the narrowest C type that stores the values of an interval.

    Raises:
        NoC: no word of 64 bits holds them.
    """
    if is_real:
        return real
    kind = storage_dtype(interval)
    if kind is object:
        raise NoC(f"values in {interval} need more than a word of 64 bits")
    return TYPES[np.dtype(kind)]


def c_array(name: str, data: Data) -> str:
    """Return the definition of a constant array.

    Raises:
        NoC: an element is not finite.
    """
    kind = TYPES.get(data.dtype) or {"f8": "double", "f4": "float"}[data.dtype.str[1:]]
    values = [real_literal(float(x), kind) for x in data] if data.dtype.kind == "f" else [_integer(int(x)) for x in data]
    rows = [", ".join(values[start : start + ENTRIES_A_LINE]) for start in range(0, len(values), ENTRIES_A_LINE)]
    return f"static const {kind} {name}[{max(1, len(values))}] = {{\n    " + ",\n    ".join(rows or ["0"]) + "\n};\n"


def real_literal(value: float, real: str) -> str:
    """Return a floating-point constant as an exact hexadecimal literal.

    Raises:
        NoC: the value is not finite.
    """
    if not math.isfinite(value):
        raise NoC(f"{value} is not a finite constant") if math.isnan(value) else _Infinite()
    single = real == "float"
    return f"{float(np.float32(value)).hex() if single else value.hex()}{'f' if single else ''}"


class _Infinite(NoC):
    def __init__(self) -> None:
        super().__init__("an infinite constant has no portable C form in an array")


def _integer(n: int) -> str:
    if n == -(1 << 63):
        return "INT64_MIN"
    return f"{n}" if abs(n) < 1 << 31 else f"INT64_C({n})" if n < 1 << 63 else f"UINT64_C({n})"


def _real_function(name: str, code: StraightLineCode, tables: Tables) -> str:
    """Print a real function in single precision."""
    printer = _Printer(Routine({}, code.tables, list(code.body)), tables, Style("float", True, False), 1)
    printer.block(code.body, 1)
    result = printer.value(code.result)
    head = f"static float {name}({', '.join(f'float {x}' for x in code.operands)})"
    return "\n".join([head, "{", *printer.lines, f"    return {result};", "}", ""])


class _Printer:
    def __init__(self, routine: Routine, tables: Tables, style: Style, first_raise: int) -> None:
        self.style, self.shared, real = style, tables, style.real
        self.tables = {name: tables.name_of(t) for name, t in routine.tables.items()}
        self.static, self.narrow = sizes_of(routine), narrow_sums(routine)
        self.kinds = {name: c_type(leaf.interval, leaf.real, real) for name, leaf in routine.memories.items()}
        self.real, self.first_raise = real, first_raise
        self.lines: list[str] = []
        self.raises: list[Raise] = []
        self.used_arrays: set[str] = set()
        self.sized_arrays: set[str] = set()
        self.written_arrays: set[str] = set()
        self.allocates = False
        self.checks = 0  # values that may set a trap

    def line(self, text: str, depth: int) -> None:
        self.lines.append("    " * depth + text)

    # -- statements

    def block(self, statements: Sequence[Statement], depth: int) -> None:
        has_heap_arrays = any(isinstance(s, Allocate) and not self.is_small(s) for s in statements)
        if has_heap_arrays:
            mark = f"mark{len(self.lines)}"
            self.line(f"const int {mark} = s->live_count;", depth)
        for s in statements:
            STATEMENTS[type(s)](self, s, depth)
        if has_heap_arrays:
            self.line(f"fm_drop(s, {mark});", depth)

    def is_small(self, s: Allocate) -> bool:
        return s.size.op == "const" and (int(s.size.data) <= ON_STACK or not self.style.heap)

    def kind(self, real: bool) -> str:
        return self.real if real else "int64_t"

    def bind(self, s: Bind, depth: int) -> None:
        self.line(f"const {self.kind(s.value.real)} {s.name} = {self.value(s.value)};", depth)

    def mutable(self, s: Mutable, depth: int) -> None:
        self.fits(s.interval, s.real, s.name)
        kind = "int32_t" if s.name in self.narrow.scalars else self.kind(s.real)
        self.line(f"{kind} {s.name} = {self.value(s.value)};", depth)

    def assign(self, s: Assign, depth: int) -> None:
        value = self.narrow_value(s.value) if s.name in self.narrow.scalars else self.value(s.value)
        self.line(f"{s.name} = {value};", depth)

    def allocate(self, s: Allocate, depth: int) -> None:
        kind = self.kinds[s.name] = c_type(HALF_WORD if s.name in self.narrow.halves else s.interval, s.real, self.real)
        if s.size.op != "const" and not self.style.heap:
            raise NoC("a local array of varying size has no C form without a heap")
        if self.is_small(s):
            size = max(1, int(s.size.data))
            self.line(f"{'static ' if size > ON_STACK else ''}{kind} {s.name}[{size}];", depth)
            return
        self.allocates = True
        self.line(f"const int64_t {s.name}_size = {self.value(s.size)};", depth)
        self.line(f"{kind} *{s.name} = fm_new(s, {s.name}_size, sizeof *{s.name});", depth)
        self.line(f"if (!{s.name}) return s->trap = FM_MEMORY;", depth)

    def store(self, s: Store, depth: int) -> None:
        self.written_arrays.add(s.array)
        kind = self.kinds[s.array]  # a cast of a value that fits changes nothing
        self.line(f"{self.place(s.array, s.index)} = ({kind})({self.value(s.value)});", depth)

    def loop(self, s: For, depth: int) -> None:
        end = f"{s.name}_end"
        self.line(f"for (int64_t {s.name} = 0, {end} = {self.value(s.extent)}; {s.name} < {end}; ++{s.name}) {{", depth)
        checks_before = self.checks
        self.block(s.body, depth + 1)
        self.line("}", depth)
        if self.checks > checks_before:
            self.line("if (s->trap) return s->trap;", depth)

    def choose(self, s: If, depth: int) -> None:
        then, otherwise, test = s.then, s.otherwise, self.condition(s.condition)
        if not then:
            then, otherwise, test = otherwise, [], f"!({test})"
        self.line(f"if ({test}) {{", depth)
        self.block(then, depth + 1)
        if otherwise:
            self.line("} else {", depth)
            self.block(otherwise, depth + 1)
        self.line("}", depth)

    def within(self, s: BoundsCheck, depth: int) -> None:
        lower_checks = [] if is_not_negative(s.first) else [f"{self.value(s.first)} < 0"]
        is_outside = " || ".join([*lower_checks, f"{self.value(s.last)} >= {self.size(s.array)}"])
        guards = "".join(f"{self.value(t)} > 0 && " for t in s.when)
        self.line(f"if ({guards}({is_outside})) return s->trap = FM_OUTSIDE;", depth)

    def fail(self, s: Raise, depth: int) -> None:
        for n, (_, value) in enumerate(s.values):
            self.line(f"s->value[{n}] = {self.value(value)};", depth)
        self.line(f"return s->trap = {self.first_raise + len(self.raises)};", depth)
        self.raises.append(s)

    # -- expressions

    def fits(self, interval: iv.Interval, real: bool, subject: str) -> None:
        """Refuse an integer that a word may not hold."""
        if real or iv.inside(interval, WORD) or (self.style.unbounded and None in interval):
            return
        raise NoC(f"{subject} takes values in {interval}, more than a word of 64 bits holds")

    def place(self, array: str, index: Tree) -> str:
        self.used_arrays.add(array)
        offset, size = self.value(index), self.static.get(array)
        name = self.tables.get(array, array)
        if index.op == CHECKED or is_inside(index, size):
            return f"{name}[{offset}]"
        self.checks += 1
        return f"{name}[fm_at(s, {offset}, {self.size(array)})]"

    def size(self, array: str) -> str:
        self.sized_arrays.add(array)
        size = self.static.get(array)
        return f"{array}_size" if size is None else str(size)

    def value(self, t: Tree) -> str:
        self.fits(t.interval, t.real, t.op)
        if t.op == "const":
            return self.constant(t)
        if t.op == "name":
            return f"(int64_t){t.data}" if t.data in self.narrow.scalars else str(t.data)
        if t.op == "load":
            return f"({self.kind(t.real)}){self.place(t.data, t.args[0])}"
        form = FORMS.get(t.op)
        if form is None:
            raise NoC(f"{t.op} has no C form")
        return form(self, t, [self.value(a) for a in t.args])

    def condition(self, t: Tree) -> str:
        """Return a truth value with short-circuit operators where skipping an operand cannot skip a trap."""
        if t.op in LOGICAL and all(a.interval == iv.TRUTH for a in t.args) and cannot_trap(t.args[1], self.static):
            return f"({f' {LOGICAL[t.op]} '.join(map(self.condition, t.args))})"
        return f"{self.value(t.args[0])} {COMPARISON_SIGNS[t.op]} {self.value(t.args[1])}" if t.op in COMPARISON_SIGNS else self.value(t)

    def narrow_value(self, t: Tree) -> str:
        """Return a value in words of 32 bits."""
        if t.op == "load":
            return f"(int32_t){self.place(t.data, t.args[0])}"
        return t.data if t.op == "name" else FORMS[t.op](self, t, [self.narrow_value(a) for a in t.args]) if t.args else self.constant(t)

    def constant(self, t: Tree) -> str:
        if not t.real:
            return _integer(int(t.data)) if t.data >= 0 else f"({_integer(int(t.data))})"
        value = float(t.data) if isinstance(t.data, Fraction) else t.data
        if math.isinf(value):
            return "INFINITY" if value > 0 else "(-INFINITY)"
        return f"({real_literal(value, self.real)})"


# -- operators


def _infix(sign: str) -> Callable[[_Printer, Tree, list[str]], str]:
    return lambda p, t, a: f"({a[0]} {sign} {a[1]})"


def _comparison(sign: str) -> Callable[[_Printer, Tree, list[str]], str]:
    return lambda p, t, a: f"(int64_t)({a[0]} {sign} {a[1]})"


def _divisor(p: _Printer, t: Tree, y: str) -> str:
    if is_not_zero(t.args[1]):
        return y
    p.checks += 1
    return f"fm_divisor(s, {y})"


def _power(t: Tree) -> int:
    """Return k when the divisor is the constant 2^k, else −1."""
    n = int(t.args[1].data) if t.args[1].op == "const" else 0
    return n.bit_length() - 1 if n > 0 and n & n - 1 == 0 else -1


def _floor_division(p: _Printer, t: Tree, a: list[str]) -> str:
    k = _power(t)
    if k >= 0 and t.op == "mod":
        return f"(int64_t)((uint64_t){a[0]} & UINT64_C({(1 << k) - 1}))"
    if is_not_negative(t.args[0]) and (t.args[1].interval[0] or 0) > 0:  # divided fastest without a sign
        return f"(int64_t)((uint64_t){a[0]} {'/' if t.op == 'div' else '%'} (uint64_t){a[1]})"
    if k >= 0:
        return f"fm_shr({a[0]}, {k})"
    return f"fm_{t.op}({a[0]}, {_divisor(p, t, a[1])})"


def _shift(p: _Printer, t: Tree, a: list[str]) -> str:
    is_amount_valid = is_not_negative(t.args[1])
    p.checks += not is_amount_valid
    amount = a[1] if is_amount_valid else f"fm_amount(s, {a[1]})"
    is_plain = t.op == "shr" and is_not_negative(t.args[0]) and iv.inside(t.args[1].interval, (0, 63))
    return f"({a[0]} >> {amount})" if is_plain else f"fm_{t.op}({a[0]}, {amount})"


def _extremum(p: _Printer, t: Tree, a: list[str]) -> str:
    if not t.real:
        return f"fm_{t.op}({a[0]}, {a[1]})"
    return f"fm_{p.real[0]}{t.op}({a[0]}, {a[1]})"


def _wrap(p: _Printer, t: Tree, a: list[str]) -> str:
    bits, is_signed = t.data
    if is_signed:
        return f"fm_signed({a[0]}, {bits})" if bits < 64 else a[0]
    return f"(int64_t)((uint64_t){a[0]} & UINT64_C({(1 << bits) - 1}))"


def _extract(p: _Printer, t: Tree, a: list[str]) -> str:
    low, width = t.data
    if low > 63:
        return "0"
    return f"(int64_t)(((uint64_t){a[0]} >> {low}) & UINT64_C({(1 << min(width, 63)) - 1}))"


def _call(p: _Printer, t: Tree, a: list[str]) -> str:
    if t.data == "sqrt":  # correctly rounded by IEEE 754; libraries differ in the others
        return f"{'sqrtf' if p.real == 'float' else 'sqrt'}({a[0]})"
    if p.real != "float":
        raise NoC(f"{t.data} has no C form")
    return f"{p.shared.function_of(t.data)}({', '.join(a)})"


def _rounding(p: _Printer, t: Tree, a: list[str]) -> str:
    if t.op == "floor":  # a float is a double, exactly
        return f"fm_floor({a[0]})"
    return f"(int64_t){'rintf' if p.real == 'float' else 'rint'}({a[0]})"


COMPARISON_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
LOGICAL = {"bitand": "&&", "bitor": "||"}
FORMS: Mapping[str, Callable[[_Printer, Tree, list[str]], str]] = {
    "add": _infix("+"), "sub": _infix("-"), "mul": _infix("*"), "rdiv": _infix("/"),
    "bitand": _infix("&"), "bitor": _infix("|"), "bitxor": _infix("^"),
    **{op: _comparison(sign) for op, sign in COMPARISON_SIGNS.items()},
    "neg": lambda p, t, a: f"(-{a[0]})",
    "not": lambda p, t, a: f"(1 - {a[0]})",
    "select": lambda p, t, a: f"({a[0]} ? {a[1]} : {a[2]})",
    "div": _floor_division, "mod": _floor_division,
    "tdiv": lambda p, t, a: f"({a[0]} / {_divisor(p, t, a[1])})",
    "tmod": lambda p, t, a: f"({a[0]} % {_divisor(p, t, a[1])})",
    "shl": _shift, "shr": _shift, "min": _extremum, "max": _extremum, "wrap": _wrap, "extract": _extract,
    "clz": lambda p, t, a: f"fm_clz({a[0]}, {t.data})",
    "real": lambda p, t, a: f"({p.real}){a[0]}",
    "floor": _rounding, "rint": _rounding, "call": _call, CHECKED: lambda p, t, a: a[0],
}  # fmt: skip
STATEMENTS: Mapping[type, Callable[[_Printer, Any, int], None]] = {
    Bind: _Printer.bind, Mutable: _Printer.mutable, Assign: _Printer.assign, Allocate: _Printer.allocate,
    Store: _Printer.store, For: _Printer.loop, If: _Printer.choose, Raise: _Printer.fail, BoundsCheck: _Printer.within,
}  # fmt: skip
