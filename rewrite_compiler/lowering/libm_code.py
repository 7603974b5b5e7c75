"""Real functions as straight-line code: every subterm of a definition once, choices as `select`, shared by all compiled readings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ..lang.binders import Table
from ..lang.expr import Expr
from ..lang.libm.functions import definition
from .loop_ir import Bind, Tree, constant, folded_sum_or_product


@dataclass(frozen=True)
class StraightLineCode:
    """Straight-line code of a real function: the names of its operands, the tables it reads, its bindings in order, its result."""

    operands: tuple[str, ...]
    tables: dict[str, Table]
    body: list[Bind]
    result: Tree


@cache
def straight_line_code(function: str) -> StraightLineCode:
    """Return the straight-line code of a real function of `lang.libm` (exp, log, tanh, …)."""
    operands, meaning = definition(function)
    names = tuple(str(x.data[0]) for x in operands)
    trees = {x: Tree("name", (), n, x.interval, True) for x, n in zip(operands, names, strict=True)}
    code = StraightLineCode(names, {}, [], constant(0))
    for e in _topological(meaning):
        if e not in trees:
            trees[e] = _named(code, _tree(code, e, trees))
    return StraightLineCode(names, code.tables, code.body, trees[meaning])


def _topological(root: Expr) -> Iterator[Expr]:
    """Yield every subterm of `root` once, operands before what uses them."""
    work, visited = [root], set[Expr]()
    while work:
        e = work[-1]
        pending = [a for a in e.args if a not in visited]
        work.extend(pending)
        if not pending:
            work.pop()
            visited.add(e)
            yield e


def _tree(code: StraightLineCode, e: Expr, trees: dict[Expr, Tree]) -> Tree:
    if e.op == "const":
        return constant(e.data, e.real)
    args = tuple(trees[a] for a in e.args)
    if e.op != "table":
        return Tree(e.op, args, e.data, e.interval, e.real)
    name = next((n for n, t in code.tables.items() if t is e.data), f"table{len(code.tables)}")
    code.tables[name] = e.data
    (low, _), at = e.data.domains[0], args[0]
    index = folded_sum_or_product("add", at, constant(-low)) if low else at
    return Tree("load", (index,), name, e.interval, e.real)


def _named(code: StraightLineCode, t: Tree) -> Tree:
    if t.op == "const":
        return t
    name = f"t{len(code.body)}"
    code.body.append(Bind(name, t))
    return Tree("name", (), name, t.interval, t.real)
