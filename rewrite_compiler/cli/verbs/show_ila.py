"""flexmatch show ila: states, instructions, fields and semantics of an accelerator model, as text, HTML or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ..files import write_atomically
from ..options import emit_json, parse_arguments, parser
from ..output import print_text


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch show ila` and return its exit code.

    Raises:
        UsageError: no instruction or state has PART in its name (F203).
    """
    verb_parser = parser("show ila", "Show the states, instructions and fields of an accelerator, and what each instruction does.")
    verb_parser.add_argument("name", metavar="NAME[:key=value,…]|FILE")
    verb_parser.add_argument("only", nargs="?", default="", metavar="PART", help="only instructions and states whose names contain this")
    verb_parser.add_output("--html", metavar="FILE", help="write one self-contained page")
    verb_parser.add_output("--markdown", metavar="FILE", help="write a page of documentation")
    args = parse_arguments(verb_parser, arguments)
    files = [Path(f) for f in (args.html, args.markdown) if f is not None]
    from ...report.graphics.blocks import html_page, markdown, text_lines
    from ...report.graphics.ila import ila_blocks, ila_document
    from ...target.discovery import find_ila

    model = find_ila(args.name)
    names = (*model.instructions, *model.states)
    if args.only and not any(args.only in n for n in names):
        raise UsageError("F203", f'{model.name} has no instruction or state with "{args.only}" in its name', help="leave it out to see all")
    blocks = ila_blocks(model, args.only)
    emit_json(ila_document(model), args.json)
    pages = {}
    if args.html is not None:
        pages[Path(args.html)] = html_page(model.name, blocks).encode()
    if args.markdown is not None:
        pages[Path(args.markdown)] = markdown(blocks).encode()
    write_atomically(pages)
    if not args.quiet and args.json != "-":
        print_text("\n".join(f"wrote     {f}" for f in files) if files else "\n".join(text_lines(blocks)).strip("\n"))
    return 0
