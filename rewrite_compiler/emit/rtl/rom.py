"""Tables of a model as read-only memories: filled once, by runs of equal entries, which a step function has few of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...ir.program import Data
from ...lang.binders import Table
from ...readings.arrays.evaluator import table_data
from ...readings.verilog.printer import NoVerilog, Place, literal, word_bits
from ...readings.verilog.reader import Expression, Statement, constant

MAX_RUNS = 1 << 16  # of one table, which are so many lines
WORD = Expression("name", name="word")


@dataclass(eq=False)
class Roms:
    """The read-only memories of a module, by table; a table of another name than all others has its own name."""

    places: dict[Table, Place] = field(default_factory=dict)

    def place_of(self, table: Table) -> Place:
        """Return the memory of a table, declared when it is first asked for.

        Raises:
            NoVerilog: the entries are real, or make more runs than a text may have lines.
        """
        if table not in self.places:
            if table.body.real:
                raise NoVerilog(f"the table {table.name} has no Verilog form: its entries are real")
            entries = table_data(table)
            if run_starts(entries).size > MAX_RUNS:
                raise NoVerilog(f"the table {table.name} has no Verilog form: it has more than {MAX_RUNS:,} runs of equal entries")
            names = {p.name for p in self.places.values()}
            stem = f"rom_{re.sub(r'[^0-9A-Za-z]', '_', table.name)}"
            name = next(n for k in range(len(names) + 1) if (n := stem + f"_{k + 1}" * (k > 0)) not in names)
            self.places[table] = Place(name, "memory", word_bits((int(entries.min()), int(entries.max()))))
        return self.places[table]


def run_starts(entries: Data) -> Data:
    """Return the index of the first entry of every run of equal ones."""
    return np.concatenate(([0], np.flatnonzero(np.diff(entries)) + 1))


def fill_lines(table: Table, place: Place) -> Iterator[str]:
    """Yield the statements that fill the memory of a table, one a run."""
    entries = table_data(table)
    starts = run_starts(entries)
    for start, end, value in zip(starts.tolist(), [*starts[1:].tolist(), entries.size], entries[starts].tolist(), strict=True):
        text = f"{place.name}[word] = {literal(value)};"
        yield f"for (word = {start}; word < {end}; word = word + 1) {text}" if end > start + 1 else text.replace("word", str(start))


def filled_entries(statements: Sequence[Statement], sizes: Mapping[str, int]) -> dict[str, Data]:
    """Return what statements of the emitted form leave in memories of these sizes; a statement of another form leaves nothing."""
    contents = {name: np.zeros(size, np.int64) for name, size in sizes.items()}
    counts = {name: np.zeros(size, np.int64) for name, size in sizes.items()}
    for s in statements:
        run = _run(s)
        if run is not None and run[0] in contents and 0 <= run[1] < run[2] <= sizes[run[0]]:
            name, start, end, value = run
            contents[name][start:end] = value
            counts[name][start:end] += 1
    return {name: contents[name] for name in sizes if (counts[name] == 1).all()}


def _run(s: Statement) -> tuple[str, int, int, int] | None:
    """Return (memory, start, end, value) of a statement that fills a run, or None."""
    if s.kind == "set":
        target, value = s.terms[0], constant(s.terms[1])
        index = constant(target.args[0]) if target.op == "at" else None
        return None if index is None or value is None else (target.name, index, index + 1, value)
    if s.kind != "for":
        return None
    (start,), (following,), (body,) = s.bodies
    first, end = constant(start.terms[1]), constant(s.terms[0].args[-1]) if s.terms[0].op == "<" and s.terms[0].args[0] == WORD else None
    step = Expression("+", (WORD, Expression("number", value=1, width=32, signed=True)))
    if first is None or end is None or start.terms[0] != WORD or following.terms != (WORD, step) or body.kind != "set":
        return None
    target, value = body.terms[0], constant(body.terms[1])
    return None if value is None or target.op != "at" or target.args != (WORD,) else (target.name, first, end, value)
