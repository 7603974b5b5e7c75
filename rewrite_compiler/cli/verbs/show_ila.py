"""flexmatch show ila: states, instructions, fields and semantics of an accelerator model, as text, HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ..files import check_outputs, write_whole
from ..options import emit_json, options, parser
from ..output import show


def run(arguments: Sequence[str]) -> int:
    """Run `show ila`."""
    made = parser("show ila", "Show the states, instructions and fields of an accelerator, and what each instruction does.")
    made.add_argument("name", metavar="NAME[:key=value,…]|FILE")
    made.add_argument("only", nargs="?", default="", metavar="PART", help="only instructions and states whose names contain this")
    made.add_argument("--html", metavar="FILE", help="write one self-contained page")
    made.add_argument("--markdown", metavar="FILE", help="write a page of documentation")
    given = options(made, arguments)
    files = [Path(f) for f in (given.html, given.markdown) if f is not None]
    check_outputs(files)
    from ...report.blocks import html_page, markdown, text_lines
    from ...report.ila import ila_blocks, ila_document
    from ...target.discovery import find_ila

    model = find_ila(given.name)
    names = (*model.instructions, *model.states)
    if given.only and not any(given.only in n for n in names):
        raise UsageError(
            "F203", f'{model.name} has no instruction or state with "{given.only}" in its name', help="leave it out to see all"
        )
    blocks = ila_blocks(model, given.only)
    emit_json(ila_document(model), given.json)
    written = {}
    if given.html is not None:
        written[Path(given.html)] = html_page(model.name, blocks).encode()
    if given.markdown is not None:
        written[Path(given.markdown)] = markdown(blocks).encode()
    write_whole(written)
    if not given.quiet and given.json != "-":
        show("\n".join(f"wrote     {f}" for f in files) if files else "\n".join(text_lines(blocks)).strip("\n"))
    return 0
