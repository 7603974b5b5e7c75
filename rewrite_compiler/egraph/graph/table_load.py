"""Bulk load: terms and facts as rows of tables, which egglog reads from files some thirty times faster than commands.

A row of a constructor is its name, the number of the class, the numbers of its operands, its attributes, and the source node of
work (−1: none); a row of a fact is its name, the number of the class, and what is known. Lists of integers have numbers of their
own. Class 7 is `(V 7)` where a term is made of it, and `(at 7)` where it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...ops.op import FLOAT, INT, INTS, AttributeValue
from .schema import SORTS, Constructor, literal

Cell = int | str | list[int]
Row = Sequence[Cell]
Item = str | Row  # a command, or a row
NO_ORIGIN = -1
LOAD = "(run-schedule (saturate (run load)))"

PRELUDE = """
(constructor V (i64) X)
(function ints (i64) Ints :no-merge)
(relation L_Input (i64)) (relation L_Constant (i64)) (relation L_Result (i64 i64 i64))
(relation L_Known (i64 i64 i64 String)) (relation L_Fixed (i64))
(ruleset load)
(rule ((L_Input n) (= s (to-string n))) ((union (V n) (Input s)) (set (at n) (V n))) :ruleset load :name "load-Input")
(rule ((L_Constant n) (= s (to-string n))) ((union (V n) (Constant s)) (set (at n) (V n))) :ruleset load :name "load-Constant")
(rule ((L_Result n w k)) ((union (V n) (Result (V w) k)) (set (at n) (V n))) :ruleset load :name "load-Result")
(rule ((L_Known n i z k) (= s (ints i))) ((Known (V n) s z k)) :ruleset load :name "load-Known")
(rule ((L_Fixed n)) ((Fixed (V n))) :ruleset load :name "load-Fixed")
"""


def cell(value: AttributeValue, kind: str) -> Cell:
    """Return an attribute value as a cell of a table; a float is its shortest text, so that it round-trips."""
    if kind == INTS:
        return [int(v) for v in value]  # type: ignore[union-attr]
    if kind == INT:
        return int(value)  # type: ignore[arg-type]
    return repr(float(value)) if kind == FLOAT else str(value)  # type: ignore[arg-type]


def loader_text(constructor: Constructor) -> str:
    """Return the egglog text of a constructor's load table and the rules that turn its rows into terms, with and without origins."""
    columns = ["i64" if k == INTS else SORTS[k] for k in constructor.attributes]
    operands = [f"x{n}" for n in range(constructor.operands)]
    names = [f"a{n}" for n in range(len(columns))]
    lists = {name: f"l{name}" for name, k in zip(names, constructor.attributes, strict=True) if k == INTS}
    arguments = " ".join([*(f"(V {x})" for x in operands), *(lists.get(a, a) for a in names)])
    body = " ".join(
        [f"(L_{constructor.name} {' '.join(['n', *operands, *names, 'g'])})", *(f"(= {x} (ints {a}))" for a, x in lists.items())]
    )
    head = f"(union (V n) ({constructor.name} {arguments})) (set (at n) (V n))"
    lines = [
        f"(relation L_{constructor.name} ({' '.join(['i64'] * (1 + constructor.operands) + columns + ['i64'])}))",
        f'(rule ({body}) ({head}) :ruleset load :name "load-{constructor.name}")',
    ]
    if constructor.is_work:
        origin = "(set (whole (V n)) (set-of g))" if constructor.results > 1 else f"(set (f_{constructor.name} {arguments}) (set-of g))"
        lines.append(f'(rule ({body} (<= 0 g)) ({origin}) :ruleset load :name "origin-{constructor.name}")')
    return "\n".join(lines)


class Loader:
    """Loads rows and runs commands in an egglog e-graph."""

    def __init__(self, bindings: Any) -> None:
        self.egglog = bindings.EGraph()
        self.lists: dict[tuple[int, ...], int] = {}
        self.loaded_lists = 0  # lists that the e-graph has numbers of

    def run(self, *texts: str) -> list[Any]:
        """Run commands; each text is parsed by itself, because every span keeps the whole text it was parsed from."""
        return list(self.egglog.run_program(*(command for text in texts for command in self.egglog.parse_program(text))))

    def load(self, items: Iterable[Item]) -> None:
        """Load the rows among the items, then run the commands among them."""
        tables: dict[str, list[str]] = {}
        commands: list[str] = []
        for item in items:
            if isinstance(item, str):
                commands.append(item)
            else:
                tables.setdefault(str(item[0]), []).append("\t".join([str(self._cell(c)) for c in item[1:]]))
        self.run(*self._new_lists())
        with ExitStack() as files:
            self.run(*(f'(input L_{name} "{files.enter_context(_file(rows))}")' for name, rows in tables.items()))
        self.run(LOAD, *commands)

    def _cell(self, c: Cell) -> int | str:
        return self.lists.setdefault(tuple(c), len(self.lists)) if isinstance(c, list | tuple) else c

    def _new_lists(self) -> list[str]:
        new = list(self.lists.items())[self.loaded_lists :]
        self.loaded_lists = len(self.lists)
        return [f"(set (ints {n}) {literal(x, INTS)})" for x, n in new]


@contextmanager
def _file(rows: Sequence[str]) -> Iterator[str]:
    """Yield the path of a file of rows: in memory where the system has such files, so that a killed process leaves none behind."""
    data = ("\n".join(rows) + "\n").encode()
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("rows"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_bytes(data)
        yield path.as_posix()
