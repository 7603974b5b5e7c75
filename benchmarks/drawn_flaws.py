"""Flaws drawn at random: mutations of the text of a target's numerics, of each kind about as many, at places drawn anew for each seed."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Case = tuple[str, str, str]  # application, accelerator, and the name under which it is drawn


@dataclass(frozen=True)
class Mutation:
    """A mutation of a file: its kind, the text at a position of the file, what replaces it, and the lines at which a culprit is right."""

    kind: str
    at: int
    old: str
    new: str
    lines: tuple[int, ...]


WIDTHS = ("signed", "wrap", "unsigned", "sat")
ROUNDING_MODES = ("floor", "ceil", "half_down", "half_even", "toward_zero")
NAMES = ("shift", "bias")  # of numbers of Python that numerics compute from formats
Text = Callable[[ast.AST], str]
Changes = Iterator[tuple[str, ast.expr, str]]  # kind, what is replaced, and by what


def mutations(source: str, functions: Sequence[str], tables: Sequence[str] = ()) -> list[Mutation]:
    """Return the mutations of some functions of a file, and of the first entries of some of its tables."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()

    def text(node: ast.AST) -> str:
        return ast.get_source_segment(source, node) or ""

    def mutation(kind: str, node: ast.expr, new: str, more_lines: tuple[int, ...]) -> Mutation:
        at = len(data[: starts[node.lineno - 1] + node.col_offset].decode())
        return Mutation(kind, at, text(node), new, (*range(node.lineno, (node.end_lineno or node.lineno) + 1), *more_lines))

    by_text: dict[tuple[int, str], Mutation] = {}
    for root in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name in functions):
        for kind, node, new in (m for n in ast.walk(root) for m in _of_node(n, text)):
            more = _readers(root, node) if kind in ("binary point", "bias") else ()
            m = mutation(kind, node, new, more)
            by_text.setdefault((m.at, m.new), m)
    for assign in (n for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Tuple)):
        if isinstance(assign.targets[0], ast.Name) and assign.targets[0].id in tables and isinstance(assign.value, ast.Tuple):
            readers = _lines_of(tree, assign.targets[0].id)
            for entry in assign.value.elts[:6]:
                for change in ("- 200", "+ 250", "* 2"):
                    m = mutation("table entry", entry, f"({text(entry)} {change})", readers)
                    by_text[m.at, m.new] = m
    return list(by_text.values())


def _readers(root: ast.FunctionDef, node: ast.expr) -> tuple[int, ...]:
    """Return the lines that read the number to which a function assigns what a mutation is in."""
    for assign in (n for n in ast.walk(root) if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)):
        if any(n is node for n in ast.walk(assign.value)) and isinstance(assign.targets[0], ast.Name) and assign.targets[0].id in NAMES:
            return _lines_of(root, assign.targets[0].id)
    return ()


def _lines_of(root: ast.AST, name: str) -> tuple[int, ...]:
    return tuple(n.lineno for n in ast.walk(root) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))


def _of_node(n: ast.AST, text: Text) -> Changes:
    if isinstance(n, ast.BinOp):
        yield from _of_operator(n, text)
    elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name):
        yield from _of_call(n, n.func.id, text)
    elif isinstance(n, ast.IfExp) and isinstance(n.body, ast.Constant) and n.body.value == 0:
        yield from (("stale state", n.body, value) for value in ("70", "-150", "300"))
    elif isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name) and n.targets[0].id in NAMES:
        kind = "binary point" if n.targets[0].id == "shift" else "bias"
        yield from ((kind, n.value, f"({text(n.value)}) {step}") for step in ("+ 1", "- 1", "+ 2"))
    elif isinstance(n, ast.Attribute) and n.attr in ("bias", "fraction"):
        yield from (("bias" if n.attr == "bias" else "binary point", n, f"({text(n)} {step})") for step in ("+ 1", "- 1"))


def _of_operator(n: ast.BinOp, text: Text) -> Changes:
    if isinstance(n.op, ast.RShift | ast.LShift):
        op = ">>" if isinstance(n.op, ast.RShift) else "<<"
        is_constant = "lift" in text(n.left) or isinstance(n.left, ast.Constant)
        for step in ("+ 1", "- 1"):
            yield "rounding" if is_constant else "shift", n, f"(({text(n.left)}) {op} ({text(n.right)} {step}))"
    elif isinstance(n.op, ast.Sub):
        yield "operands", n, f"(({text(n.right)}) - ({text(n.left)}))"


def _of_call(n: ast.Call, name: str, text: Text) -> Changes:
    args = [text(a) for a in n.args]
    if name in WIDTHS and len(args) >= 2:
        kind = "saturation width" if name == "sat" else "accumulator width"
        yield from ((kind, n, f"{name}({', '.join([args[0], f'({args[1]}) - {bits}', *args[2:]])})") for bits in range(4, 25))
        if name == "sat":
            yield from (("saturate to wrap", n, f"wrap({args[0]}, ({args[1]}) - {bits})") for bits in range(5))
    elif name == "clamp":
        yield "missing clamp", n, f"({args[0]})"
        yield from (("saturate to wrap", n, f"signed({args[0]}, {bits})") for bits in range(12, 17))
    elif name == "select" and len(args) == 3:
        yield "operands", n, f"select({args[0]}, {args[2]}, {args[1]})"
    elif name == "maximum" and len(args) == 2:
        yield "operands", n, f"(-maximum(-({args[0]}), -({args[1]})))"
        yield "missing clamp", n, f"({args[0]})"
    elif name == "fold" and len(n.args) >= 2 and isinstance(n.args[1], ast.Constant):
        yield from (("stale state", n.args[1], value) for value in ("1500", "3500", "-2500", "-6000"))
    elif name == "reduce_sum":
        yield from (("stale state", n, f"({text(n)} {change})") for change in ("+ 700", "- 900", "+ 5000", "- 12000", "+ (5 << 18)"))
    elif name == "shift_right" and len(args) == 3:
        yield from (("shift", n, f"shift_right({args[0]}, {args[1]} {step}, {args[2]})") for step in ("+ 1", "- 1"))
        yield from (("rounding", n, f'shift_right({args[0]}, {args[1]}, "{mode}")') for mode in ROUNDING_MODES)


def draw(seed: int, count: int, files: Sequence[tuple[str, list[Mutation]]]) -> list[tuple[str, Mutation]]:
    """Return mutations of files drawn at random, as many of each kind as there are, up to a count."""
    generator = random.Random(seed)
    by_kind: dict[str, list[tuple[str, Mutation]]] = {}
    for file, of_file in files:
        for m in of_file:
            by_kind.setdefault(m.kind, []).append((file, m))
    sample: list[tuple[str, Mutation]] = []
    while len(sample) < count and any(by_kind.values()):
        for kind in generator.sample(sorted(by_kind), len(by_kind)):
            if by_kind[kind] and len(sample) < count:
                sample.append(by_kind[kind].pop(generator.randrange(len(by_kind[kind]))))
    return sample
