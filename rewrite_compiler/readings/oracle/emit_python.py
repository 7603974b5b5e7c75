"""The oracle: lowered code printed as Python source and compiled. Exact integers; reals are Python floats."""

from __future__ import annotations

import math
from collections.abc import Callable, MutableSequence, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ...errors import SpecError
from ...lang.binders import Array, Leaf, Table, entries_of, scalar_array
from ...lang.step import Step
from ...lowering.loop_ir import Allocate, Assign, Bind, Conjunction, Copy, For, If, Mutable, Raise, Routine, Statement, Store, Tree
from ...lowering.lower import lower_array, lower_step

Memory = MutableSequence[Any]
EAGER_ENTRIES = 1 << 12
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%", "rdiv": "/", "shl": "<<", "shr": ">>",
    "bitand": "&", "bitor": "|", "bitxor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
}  # fmt: skip


def trunc_div(x: int, y: int) -> int:
    """Return x / y rounded toward zero."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def diagnostic(code: str, sentence: str, **values: Any) -> SpecError:
    """Return the refusal of a failed `require`, its values filled in."""
    return SpecError(code, sentence.format(**values) if values else sentence)


HELPERS: dict[str, Any] = {
    "tdiv": trunc_div,
    "tmod": lambda x, y: x - y * trunc_div(x, y),
    "floor": math.floor,
    **{f: getattr(math, f) for f in ("exp", "log", "sqrt", "tanh", "erf", "sin", "cos", "pow")},
}


class StepFunction:
    """A step compiled to a Python function on flat memories."""

    def __init__(self, step: Step, *, strict: bool = False) -> None:
        """Compile `step`; with `strict`, its diagnostics too."""
        self.routine = lower_step(step, strict=strict)
        self.source, self._run = compile_routine(self.routine)
        self.memories: tuple[Leaf, ...] = tuple(self.routine.memories.values())

    def __call__(self, memories: Sequence[Memory]) -> None:
        """Run the step on `memories`, one flat sequence for each of `self.memories`."""
        self._run(*memories)


def evaluate(array: Array, operands: dict[Leaf, Memory], size: int) -> list[Any]:
    """Return the elements of an array term, row-major; `size` is their number."""
    routine = lower_array(array)
    _, run = compile_routine(routine)
    out: list[Any] = [0] * size
    run(*(out if leaf.name == "out" and leaf not in operands else operands[leaf] for leaf in routine.memories.values()))
    return out


def compile_routine(routine: Routine) -> tuple[str, Callable[..., None]]:
    """Return the Python source of a routine and the function it defines; its arguments are the memories in order."""
    names = ", ".join(routine.memories)
    lines = [f"def run({names}):"]
    _block(routine.body, lines, 1)
    source = "\n".join(lines) + "\n"
    namespace: dict[str, Any] = {**HELPERS, "Diagnostic": diagnostic}
    namespace.update({name: table_entries(t) for name, t in routine.tables.items()})
    exec(compile(source, "<oracle>", "exec"), namespace)  # text of our own making: every identifier is numbered by the lowering
    return source, namespace["run"]


class LazyTable(dict[int, Any]):
    """The entries of a large table, each computed when it is first read."""

    def __init__(self, table: Table) -> None:
        """Compile the table's function of one flat index."""
        super().__init__()
        self.table = table
        operands = [Leaf((), d, False, f"p{n}") for n, d in enumerate(table.domains)]
        routine = lower_array(scalar_array(table.function(*(p[()] for p in operands))))
        self.order = [None if leaf not in operands else operands.index(leaf) for leaf in routine.memories.values()]
        self.run = compile_routine(routine)[1]

    def __missing__(self, flat: int) -> Any:
        out, arguments, remaining_index = [0], list[list[int]](), flat
        for extent, domain in zip(reversed(self.table.shape), reversed(self.table.domains), strict=True):
            arguments.insert(0, [remaining_index % extent + (domain[0] or 0)])
            remaining_index //= extent
        self.run(*(out if n is None else arguments[n] for n in self.order))
        self[flat] = out[0]
        return out[0]


@lru_cache(maxsize=256)
def table_entries(table: Table) -> Sequence[Any] | LazyTable:
    """Return the entries of a table, row-major over its domains; those of a large one are computed on demand."""
    size = math.prod(table.shape)
    if table.numbers:
        return table.numbers
    return LazyTable(table) if size > EAGER_ENTRIES else tuple(evaluate(entries_of(table), {}, size))


def _block(statements: Sequence[Statement], lines: list[str], depth: int) -> None:
    pad = "    " * depth
    for s in statements:
        if isinstance(s, Bind | Mutable | Assign):
            lines.append(f"{pad}{s.name} = {expression(s.value)}")
        elif isinstance(s, Allocate):
            lines.append(f"{pad}{s.name} = [0] * {expression(s.size)}")
        elif isinstance(s, Store):
            lines.append(f"{pad}{s.array}[{expression(s.index)}] = {expression(s.value)}")
        elif isinstance(s, For):
            lines.append(f"{pad}for {s.name} in range({expression(s.extent)}):")
            _block(s.body, lines, depth + 1)
        elif isinstance(s, If):
            _branches(s, lines, depth)
        elif isinstance(s, Copy):
            start, index = expression(s.start), expression(s.index)
            lines.append(f"{pad}{s.array}[{index} : {index} + {s.count}] = {s.source}[{start} : {start} + {s.count}]")
        elif isinstance(s, Conjunction):
            _block((s.loop,), lines, depth)
        else:
            assert isinstance(s, Raise)  # bounds of whole loops are for C
            values = "".join(f", {name}={expression(value)}" for name, value in s.values)
            lines.append(f"{pad}raise Diagnostic({s.code!r}, {s.sentence!r}{values})")
    if not statements:
        lines.append(f"{pad}pass")


def _branches(s: If, lines: list[str], depth: int) -> None:
    pad = "    " * depth
    lines.append(f"{pad}if {expression(s.condition)}:")
    _block(s.then, lines, depth + 1)
    if s.otherwise:
        lines.append(f"{pad}else:")
        _block(s.otherwise, lines, depth + 1)


def expression(t: Tree) -> str:
    """Return the Python text of an expression tree."""
    if t.op == "name":
        return str(t.data)
    if t.op == "const":
        return _literal(t)
    a = [expression(x) for x in t.args]
    if t.op in INFIX:
        return f"({a[0]} {INFIX[t.op]} {a[1]})"
    if t.op in ("min", "max"):
        return _extremum(t, a)
    if t.op == "call":
        return f"{t.data}({', '.join(a)})"
    return PREFIX[t.op](t, a)


def _literal(t: Tree) -> str:
    if not t.real:
        return repr(int(t.data))
    value = float(t.data) if isinstance(t.data, Fraction) else t.data
    return repr(value) if math.isfinite(value) else f"float('{value}')"


def _extremum(t: Tree, a: list[str]) -> str:
    if all(x.op in ("name", "const") for x in t.args):
        return f"({a[0]} if {a[0]} {'<' if t.op == 'min' else '>'} {a[1]} else {a[1]})"
    return f"{t.op}({a[0]}, {a[1]})"


def _wrap(t: Tree, a: list[str]) -> str:
    bits, is_signed = t.data
    mask, half = (1 << bits) - 1, 1 << bits - 1
    return f"((({a[0]} + {half}) & {mask}) - {half})" if is_signed else f"({a[0]} & {mask})"


PREFIX: dict[str, Callable[[Tree, list[str]], str]] = {
    "load": lambda t, a: f"{t.data}[{a[0]}]",
    "select": lambda t, a: f"({a[1]} if {a[0]} else {a[2]})",
    "neg": lambda t, a: f"(-{a[0]})",
    "not": lambda t, a: f"(1 - {a[0]})",
    "real": lambda t, a: f"float({a[0]})",
    "floor": lambda t, a: f"floor({a[0]})",
    "rint": lambda t, a: f"round({a[0]})",
    "tdiv": lambda t, a: f"tdiv({a[0]}, {a[1]})",
    "tmod": lambda t, a: f"tmod({a[0]}, {a[1]})",
    "extract": lambda t, a: f"(({a[0]} >> {t.data[0]}) & {(1 << t.data[1]) - 1})",
    "wrap": _wrap,
    "clz": lambda t, a: f"({t.data} - ({a[0]}).bit_length())",
}
