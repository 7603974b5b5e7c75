"""Tables for terminals, laid out by rich; every cell is made printable before it is measured."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence
from io import StringIO

from ..errors import printable

WIDTH, MIN_WIDTH = 100, 40
GAP = 3  # between columns
# what stands for a character that the terminal's encoding lacks
ASCII = {"·": "-", "…": "...", "–": "-", "−": "-", "×": "x", "≤": "<=", "→": "->", "∘": "o", "Σ": "sum ", "²": "^2", "─": "-", "±": "+/-"}
NARROW = frozenset(map(chr, range(32, 127))) | ASCII.keys() | {"µ", "%"}  # one column wide each


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], figures: Collection[str] = (), indent: int = 2) -> list[str]:
    """Return a table as lines that fit the terminal, nothing without rows.

    Long words are folded; columns named in `figures` are set to the right.
    """
    cells = [[printable_text(cell) for cell in row] for row in rows]
    if not cells:
        return []
    names = [printable_text(head) for head in heads]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    is_plain = all(x == x.strip() and NARROW.issuperset(x) for line in (names, *cells) for x in line)
    if is_plain and sum(widths) + GAP * (len(widths) - 1) <= columns() - indent:
        return _short_grid(names, cells, widths, [head in figures for head in heads], indent)
    from rich.box import SIMPLE_HEAD  # here, because most commands show no table
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for head in heads:
        table.add_column(printable_text(head), justify="right" if head in figures else "left", overflow="fold", no_wrap=head in figures)
    for row in cells:
        table.add_row(*map(Text, row))
    output = StringIO()
    width = columns() - indent
    Console(
        file=output, width=width, color_system=None, force_terminal=False, force_jupyter=False, legacy_windows=False, _environ={}
    ).print(table)
    return [" " * indent + encodable_text(line.rstrip()) for line in output.getvalue().splitlines()]


def _short_grid(
    heads: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], is_right: Sequence[bool], indent: int
) -> list[str]:  # fmt: skip
    """Return a table whose cells fit as they are, as rich would: it takes long to load."""

    def line(cells: Sequence[str]) -> str:
        padded = (cell.rjust(n) if right else cell.ljust(n) for cell, n, right in zip(cells, widths, is_right, strict=True))
        return (" " * GAP).join(padded)

    rule = "─" * (sum(widths) + GAP * (len(widths) - 1))
    return [" " * indent + encodable_text(text.rstrip()) for text in (line(heads), rule, *map(line, rows))]


def columns() -> int:
    """Return the width of lines: 100 columns, or that of a narrower terminal or $COLUMNS, at least 40."""
    setting = os.environ.get("COLUMNS", "")
    if setting.isascii() and setting.isdigit():
        return max(MIN_WIDTH, min(WIDTH, int(setting)))
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout is not None and sys.stdout.isatty() else WIDTH
    except (OSError, ValueError):
        return WIDTH
    return max(MIN_WIDTH, min(WIDTH, width or WIDTH))


def printable_text(text: str) -> str:
    """Return text without control characters or line breaks, in characters that standard output can encode."""
    return encodable_text(printable(text, len(text) * 10))


def encodable_text(text: str) -> str:
    """Return text in characters of standard output's encoding, with stand-ins for others."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return "".join(c if _is_encodable(c, encoding) else ASCII.get(c, "?") for c in text)


def _is_encodable(c: str, encoding: str) -> bool:
    try:
        c.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
