"""flexmatch schema: the JSON schema of a document."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UsageError, did_you_mean
from ..options import emit_json, parse_arguments, parser
from ..output import document_bytes, print_unwrapped
from ..schemas import ROWS, schema_of

SCHEMA = "flexmatch.schema/1"


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch schema` and return its exit code.

    Raises:
        UsageError: there is no document of that name (F203).
    """
    verb_parser = parser("schema", f"Print the JSON schema of a document: {', '.join(ROWS)}.")
    verb_parser.add_argument("name", metavar="DOCUMENT")
    args = parse_arguments(verb_parser, arguments)
    if args.name not in ROWS:
        remedy = " ".join(filter(None, (did_you_mean(args.name, ROWS), f"documents: {', '.join(ROWS)}")))
        raise UsageError("F203", f'there is no document called "{args.name}"', help=remedy)
    definition = schema_of(args.name)
    emit_json({"schema": SCHEMA, "name": args.name, "definition": definition}, args.json)
    print_unwrapped(args, document_bytes(definition).decode("utf-8").rstrip())
    return 0
