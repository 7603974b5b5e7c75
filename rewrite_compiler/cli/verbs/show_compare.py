"""flexmatch show compare: several plans and co-simulations side by side, as a table or one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...intake import MAX_DOCUMENT_BYTES, FileBound, MalformedText, parse_json, read_bytes
from ..files import page_file, write_atomically
from ..options import add_page_option, emit_json, parse_arguments, parser
from ..output import print_lines

SCHEMA = "flexmatch.compare/1"
PLAN, COSIM, DEMO = "flexmatch.plan/1", "flexmatch.cosim/1", "flexmatch.demo/1"
REMEDY = "give what compile, cosim and demo write with --json"
Document = Mapping[str, Any]


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch show compare` and return its exit code.

    Raises:
        InputError: a document is none of these, or a plan of a report is not among them (C100).
    """
    verb_parser = parser("show compare", "Show plans and their co-simulations side by side: applications by accelerators.")
    verb_parser.add_argument("documents", nargs="+", type=Path, metavar="DOCUMENT.json", help=REMEDY)
    add_page_option(verb_parser)
    args = parse_arguments(verb_parser, arguments)
    from ...report.page.comparison import HEADS, comparison_page, entry_of, row_of, varying_parameters
    from ...report.tables import grid

    plans = paired([(str(path), read_document(path)) for path in args.documents])
    entries, place = [], str(args.documents[0])
    try:
        varying = varying_parameters(plan for _, plan, _ in plans)
        for current, plan, cosim in plans:
            place = current
            entries.append(entry_of(plan, cosim, varying))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:  # what other hands wrote
        raise InputError("C100", f"the document lacks what a comparison reads: {error}", place=place, help=REMEDY) from None
    rows = [row_of(e) for e in entries]
    emit_json({"schema": SCHEMA, "reports": [dict(zip(HEADS, row, strict=True)) for row in rows]}, args.json)
    if args.html is not None:
        write_atomically(page_file(args.html, comparison_page(entries)))
    print_lines(args, [*grid(HEADS, rows, HEADS[2:]), *([f"wrote     {args.html}"] if args.html else [])])
    return 0


def read_document(path: Path) -> Document:
    """Return a document that compile, cosim or demo wrote.

    Raises:
        InputError: the file is not JSON (F103), or another document (C100).
    """
    try:
        document = parse_json(read_bytes(path, FileBound("a document", MAX_DOCUMENT_BYTES, REMEDY)))
    except MalformedText as error:
        raise InputError("F103", f"the file is not JSON: {error}", place=str(path), help=REMEDY) from None
    if not isinstance(document, dict) or document.get("schema") not in (PLAN, COSIM, DEMO):
        raise InputError("C100", f'schema must be "{PLAN}", "{COSIM}" or "{DEMO}"', place=str(path), help=REMEDY)
    return document


def paired(documents: Sequence[tuple[str, Document]]) -> list[tuple[str, Document, Document | None]]:
    """Return (place, plan, its co-simulation) in the order of the plans; both are of one model and the same accelerators.

    Raises:
        InputError: C100, a co-simulation is of no plan among the documents.
    """
    parts = [(place, part) for place, d in documents for part in ((d.get("plan"), d.get("cosim")) if d["schema"] == DEMO else (d,))]
    documents_by_schema = {s: [(p, d) for p, d in parts if isinstance(d, dict) and d.get("schema") == s] for s in (PLAN, COSIM)}
    cosims = {_subject(place, d): (place, d) for place, d in documents_by_schema[COSIM]}
    plans = [(place, d, _subject(place, d)) for place, d in documents_by_schema[PLAN]]
    for subject, (place, _) in cosims.items():
        if subject not in {s for *_, s in plans}:
            raise InputError(
                "C100",
                "no plan here is of this report's model and accelerators",
                place=place,
                help=f"give its plan, too: show compare PLAN.json {place}",
            )
    return [(place, d, cosims[s][1] if s in cosims else None) for place, d, s in plans]


def _subject(place: str, document: Document) -> tuple[str, ...]:
    """Return the digest of a document's model and the names of its accelerators; InputError C100 where there are none."""
    try:
        names = [t if isinstance(t, str) else t["name"] for t in document["targets"]]
        return str(document["model"]["sha256"]), *map(str, names)
    except (KeyError, TypeError):
        raise InputError("C100", "the document does not say its model and accelerators", place=place, help=REMEDY) from None
