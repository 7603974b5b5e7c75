"""Printer of terms and steps: infix arithmetic, `sum(i < n: …)` binders, `name[i, j]` loads; `parser` reads it back."""

from __future__ import annotations

from .binders import Array, Comprehension, FoldResult, Leaf, Table
from .expr import PRINTERS, Expr
from .step import Let, Loop, Require, Seq, Step, Together, Update, When

INFIX = {
    "add": ("+", 6), "sub": ("-", 6), "mul": ("*", 7), "div": ("//", 7), "mod": ("%", 7), "rdiv": ("/", 7),
    "shl": ("<<", 5), "shr": (">>", 5), "bitand": ("&", 4), "bitxor": ("^", 3), "bitor": ("|", 2),
    "eq": ("==", 1), "ne": ("!=", 1), "lt": ("<", 1), "le": ("<=", 1),
}  # fmt: skip


def show(e: Expr, level: int = 0) -> str:
    """Return a term as text, in parentheses where its operator binds less than `level`."""
    if e.op == "const":
        return str(e.data)
    if e.op == "var":
        return f"{e.data[0]}_{e.data[1]}"
    if e.op in INFIX:
        sign, rank = INFIX[e.op]
        text = f"{show(e.args[0], rank)} {sign} {show(e.args[1], rank + 1)}"
        return f"({text})" if rank < level else text
    if e.op == "reduce":
        monoid, variables = e.data
        ranges = ", ".join(f"{show(v)} < {show(n)}" for v, n in zip(variables, e.args[1:], strict=True))
        return f"{monoid}({ranges}: {show(e.args[0])})"
    if e.op == "load":
        return f"{show_array(e.data)}[{', '.join(show(i) for i in e.args)}]"
    return _call(e)


def show_array(a: Array) -> str:
    """Return an array term as text."""
    if isinstance(a, Leaf):
        return a.name
    if isinstance(a, Comprehension):
        ranges = ", ".join(f"{show(v)} < {_extent(n)}" for v, n in zip(a.variables, a.shape, strict=True))
        return f"array({ranges}: {show(a.body)})"
    if isinstance(a, FoldResult):
        f = a.fold
        parts = "; ".join(
            f"{x.name}{_width(x)} = {show_array(i)} then {show_array(b)}"
            for x, i, b in zip(f.accumulators, f.initial, f.bodies, strict=True)
        )
        return f"{'scan' if a.history else 'fold'}({show(f.variable)} < {show(f.extent)}: {parts}).{a.component}"
    return "array"


def _width(a: Leaf) -> str:
    low, high = a.interval
    return "" if low is None or high is None else f" in [{low}, {high}]"


def show_step(step: Step, indent: int = 0) -> str:
    """Return a step as indented lines."""
    return "\n".join("    " * indent + line for line in _lines(step))


def _lines(step: Step) -> list[str]:
    if isinstance(step, Update):
        ranges = ", ".join(f"{show(v)} < {show(n)}" for v, n in zip(step.variables, step.extents, strict=True))
        place = f"{step.memory.name}[{', '.join(show(a) for a in step.address)}]" if step.address else step.memory.name
        return [f"{place} := {show(step.value)}" + (f"   for all {ranges}" if ranges else "")]
    if isinstance(step, Together):
        return [f"{'and ' if n else ''}{_lines(u)[0]}" for n, u in enumerate(step.updates)]
    if isinstance(step, Seq):
        return [line for part in step.steps for line in _lines(part)] or ["nothing"]
    if isinstance(step, Loop):
        return [f"for {show(step.variable)} < {show(step.extent)}:", *_indented(step.body)]
    if isinstance(step, When):
        else_lines = ["else:", *_indented(step.otherwise)] if not _is_nothing(step.otherwise) else []
        return [f"when {show(step.condition)}:", *_indented(step.then), *else_lines]
    if isinstance(step, Let):
        return [f"let {step.local.name} = {show_array(step.array)}", *_lines(step.body)]
    if isinstance(step, Require):
        values = "; ".join(f"{name} = {show(x)}" for name, x in step.values)
        diagnostic = f"{step.code}{'!' if step.always else ''} {step.sentence}" + (f"   with {values}" if values else "")
        return [f"require {show(step.condition)}: {diagnostic}"]
    return ["nothing"]


def _indented(step: Step) -> list[str]:
    return ["    " + line for line in _lines(step)]


def _is_nothing(step: Step) -> bool:
    return isinstance(step, Seq) and not step.steps


def _extent(n: object) -> str:
    return show(n) if isinstance(n, Expr) else str(n)


def _call(e: Expr) -> str:
    operands = ", ".join(show(a) for a in e.args)
    if isinstance(e.data, Table):
        return f"{e.data.name}({operands})"
    if e.op == "extract":
        low, width = e.data
        return f"{show(e.args[0], 9)}[{low}:{low + width}]"
    if e.op == "wrap":
        bits, signed = e.data
        return f"wrap({operands}, {'i' if signed else 'u'}{bits})"
    if e.op == "call":
        return f"{e.data}({operands})"
    if e.op == "clz":
        return f"clz({operands}, {e.data})"
    return f"{e.op}({operands})"


PRINTERS[:] = [show]
