"""Loop code as text, for people and for tests of passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .loop_ir import Allocate, Assign, Bind, BoundsCheck, Conjunction, Copy, For, If, Mutable, Raise, Routine, Statement, Store, Tree

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%", "rdiv": "/", "shl": "<<", "shr": ">>", "bitand": "&", "bitor": "|",
    "bitxor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
}  # fmt: skip
INDENT = "    "


def listing(routine: Routine) -> str:
    """Return the statements of a routine, one a line, blocks indented.

    `:=` gives a value once, `<-` assigns to a scalar that varies; memories and local arrays are flat.
    """
    return "\n".join(_lines(routine.body, ""))


def tree_text(t: Tree) -> str:
    """Return an expression tree in infix form; `name[i]` reads an element."""
    if t.op == "name":
        return str(t.data)
    if t.op == "const":
        return str(t.data if t.real else int(t.data))
    operands = [tree_text(a) for a in t.args]
    if t.op in ("load", "table"):
        return f"{t.data}[{', '.join(operands)}]"
    if t.op in INFIX:
        return f"({operands[0]} {INFIX[t.op]} {operands[1]})"
    parameters = t.data if isinstance(t.data, tuple) else () if t.data is None else (t.data,)
    return f"{t.op}({', '.join([*operands, *map(str, parameters)])})"


def _lines(statements: Iterable[Statement], indent: str) -> Iterator[str]:
    for s in statements:
        if isinstance(s, For):
            yield f"{indent}for {s.name} < {tree_text(s.extent)}"
            yield from _lines(s.body, indent + INDENT)
        elif isinstance(s, If):
            yield f"{indent}if {tree_text(s.condition)}"
            yield from _lines(s.then, indent + INDENT)
            yield from _otherwise(s.otherwise, indent)
        else:
            yield indent + _line(s)


def _otherwise(statements: Sequence[Statement], indent: str) -> Iterator[str]:
    if statements:
        yield f"{indent}else"
        yield from _lines(statements, indent + INDENT)


def _line(s: Bind | Mutable | Assign | Allocate | Store | Raise | Copy | Conjunction | BoundsCheck) -> str:
    match s:
        case Bind():
            return f"{s.name} := {tree_text(s.value)}"
        case Mutable() | Assign():
            return f"{'var ' if isinstance(s, Mutable) else ''}{s.name} <- {tree_text(s.value)}"
        case Allocate():
            return f"allocate {s.name}[{tree_text(s.size)}]"
        case Store():
            return f"{s.array}[{tree_text(s.index)}] <- {tree_text(s.value)}"
        case Raise():
            return f"raise {s.code}: {s.sentence}"
        case Copy():
            stride = "" if s.stride == 1 else f" by {s.stride}"
            return f"copy {s.array}[{tree_text(s.index)}{stride}] <- {s.source}[{tree_text(s.start)}], {s.count} elements"
        case Conjunction():
            return f"{s.name} <- min({s.name}, {tree_text(s.value)}), {s.count} elements"
        case BoundsCheck():
            return f"check {tree_text(s.first)} … {tree_text(s.last)} in {s.array}" + "".join(f" if {tree_text(t)}" for t in s.when)
