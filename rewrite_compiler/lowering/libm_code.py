"""Real functions as straight code: every term of a definition once, choices as `select`, so that compiled readings are alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ..lang.binders import Table
from ..lang.expr import Expr
from ..lang.libm.functions import definition
from .loop_ir import Bind, Tree, apply, constant


@dataclass(frozen=True)
class Straight:
    """The code of a real function: the names of its operands, the tables it reads, its values in order, the last of them its result."""

    operands: tuple[str, ...]
    tables: dict[str, Table]
    body: list[Bind]
    result: Tree


@cache
def straight(function: str) -> Straight:
    """Return the code of a defined real function."""
    operands, meaning = definition(function)
    names = tuple(str(x.data[0]) for x in operands)
    made = {x: Tree("name", (), n, x.interval, True) for x, n in zip(operands, names, strict=True)}
    found = Straight(names, {}, [], constant(0))
    for e in _in_order(meaning):
        if e not in made:
            made[e] = _named(found, _tree(found, e, made))
    return Straight(names, found.tables, found.body, made[meaning])


def _in_order(root: Expr) -> Iterator[Expr]:
    """Yield every term below `root` after its operands."""
    work, seen = [root], set[Expr]()
    while work:
        e = work[-1]
        waiting = [a for a in e.args if a not in seen]
        work.extend(waiting)
        if not waiting:
            work.pop()
            seen.add(e)
            yield e


def _tree(code: Straight, e: Expr, made: dict[Expr, Tree]) -> Tree:
    if e.op == "const":
        return constant(e.data, e.real)
    args = tuple(made[a] for a in e.args)
    if e.op != "table":
        return Tree(e.op, args, e.data, e.interval, e.real)
    name = next((n for n, t in code.tables.items() if t is e.data), f"table{len(code.tables)}")
    code.tables[name] = e.data
    (low, _), at = e.data.domains[0], args[0]
    index = apply("add", at, constant(-low)) if low else at
    return Tree("load", (index,), name, e.interval, e.real)


def _named(code: Straight, t: Tree) -> Tree:
    if t.op == "const":
        return t
    name = f"t{len(code.body)}"
    code.body.append(Bind(name, t))
    return Tree("name", (), name, t.interval, t.real)
