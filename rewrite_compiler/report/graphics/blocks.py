"""A page as blocks — headings, paragraphs, tables, code — and its renderings: terminal text, Markdown, HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path


@dataclass(frozen=True)
class Heading:
    """A heading of depth 1 to 3."""

    level: int
    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: str


@dataclass(frozen=True)
class Rows:
    """A table: the heads of its columns, and rows of cells."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Lines:
    """Preformatted lines."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Drawing:
    """An SVG drawing, whose texts are escaped, and a sentence on it for pages without drawings."""

    svg: str
    sentence: str


Block = Heading | Paragraph | Rows | Lines | Drawing


def text_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield a page for the terminal."""
    for b in blocks:
        if isinstance(b, Heading):
            yield from (["", b.text, ("=" if b.level == 1 else "-") * len(b.text)] if b.level < 3 else ["", b.text])
        elif isinstance(b, Paragraph):
            yield b.text
        elif isinstance(b, Rows):
            yield from _columns(b)
        elif isinstance(b, Drawing):
            yield b.sentence
        else:
            yield from (f"    {line}" for line in b.lines)


def _columns(table: Rows) -> Iterator[str]:
    rows = [table.heads, *table.rows]
    widths = [max(len(r[n]) for r in rows) for n in range(len(table.heads))]
    for r in rows:
        yield "  " + "  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip()


def markdown(blocks: Iterable[Block]) -> str:
    """Return a page in Markdown."""
    parts = []
    for b in blocks:
        if isinstance(b, Heading):
            parts.append(f"{'#' * b.level} {b.text}")
        elif isinstance(b, Paragraph):
            parts.append(b.text)
        elif isinstance(b, Rows):
            rows = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in r)} |" for r in (b.heads, *b.rows)]
            parts.append("\n".join([rows[0], "|" + "---|" * len(b.heads), *rows[1:]]))
        elif isinstance(b, Drawing):
            parts.append(b.sentence)
        else:
            parts.append("\n".join(["```text", *b.lines, "```"]))
    return "\n\n".join(parts) + "\n"


def html_page(title: str, blocks: Iterable[Block]) -> str:
    """Return one self-contained page; all text is escaped and nothing is loaded."""
    style = (Path(__file__).parents[1] / "page" / "page.css").read_text("utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    body = "\n".join(map(_markup, blocks))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{style} pre {{ white-space: pre-wrap }}</style></head><body>\n{body}\n</body></html>\n"
    )


def _markup(b: Block) -> str:
    if isinstance(b, Heading):
        return f"<h{b.level}>{escape(b.text)}</h{b.level}>"
    if isinstance(b, Paragraph):
        return f"<p>{escape(b.text)}</p>"
    if isinstance(b, Drawing):
        return f"<p>{escape(b.sentence)}</p>{b.svg}"
    if isinstance(b, Lines):
        return f"<pre>{escape(chr(10).join(b.lines))}</pre>"
    head = "".join(f"<th>{escape(h)}</th>" for h in b.heads)
    rows = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in r) + "</tr>" for r in b.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
