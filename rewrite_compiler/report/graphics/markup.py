"""HTML fragments: sections, tables, definitions, from escaped text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

Cell = tuple[str, str]  # class, markup


def section(title: str, body: str, key: str = "") -> str:
    """Return a section of the page under a heading; `key` is its anchor."""
    address = f' id="{key}"' if key else ""
    return f"<section{address}><h2>{escape(title)}</h2>{body}</section>"


def folded(title: str, body: str, key: str = "") -> str:
    """Return a section that is collapsed until a reader opens it, a link leads to it, or it is printed."""
    address = f' id="{key}"' if key else ""
    return f"<section{address}><details><summary><h2>{escape(title)}</h2></summary>{body}</details></section>"


def text(words: str) -> Cell:
    """Return a table cell of escaped text; long names may be broken behind a dot or underscore."""
    return "", re.sub(r"(?<=[a-z0-9][._])(?=[a-z0-9])", "<wbr>", escape(words))


def figure(words: str) -> Cell:
    """Return a table cell with a number, set to the right."""
    return "n", escape(words)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Return a table; the caption is markup, heads are text."""
    head = "".join(f'<th scope="col">{escape(h)}</th>' if h else "<td></td>" for h in heads)
    body = "\n".join(f"<tr>{''.join(_cell(*cell) for cell in row)}</tr>" for row in rows)
    table_markup = f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="wide">{table_markup}</div>'


def _cell(kind: str, markup: str) -> str:
    return f'<td class="{kind}">{markup}</td>' if kind else f"<td>{markup}</td>"


def definitions(rows: Iterable[tuple[str, str]]) -> str:
    """Return a definition list of (label, text) pairs."""
    return f"<dl>{''.join(f'<dt>{escape(label)}</dt><dd>{escape(words)}</dd>' for label, words in rows)}</dl>"


def note(words: str) -> str:
    """Return a paragraph of escaped text."""
    return f"<p>{escape(words)}</p>"


def lines(texts: Iterable[str]) -> str:
    """Return preformatted lines."""
    return f"<pre>{escape(chr(10).join(texts))}</pre>"


def legend(keys: Iterable[tuple[str, str]]) -> str:
    """Return a legend: a coloured square of each class beside what the colour means."""
    return " ".join(f'<span><span class="k {kind}"></span> {escape(words)}</span>' for kind, words in keys)
