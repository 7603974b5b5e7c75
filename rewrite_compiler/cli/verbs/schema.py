"""flexmatch schema: the JSON schema of a document."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UsageError, did_you_mean
from ..options import emit_json, options, parser
from ..output import document_bytes, show_raw
from ..schemas import ROWS, schema_of

SCHEMA = "flexmatch.schema/1"


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("schema", f"Print the JSON schema of a document: {', '.join(ROWS)}.")
    made.add_argument("name", metavar="DOCUMENT")
    given = options(made, arguments)
    if given.name not in ROWS:
        known = " ".join(filter(None, (did_you_mean(given.name, ROWS), f"documents: {', '.join(ROWS)}")))
        raise UsageError("F203", f'there is no document called "{given.name}"', help=known)
    definition = schema_of(given.name)
    emit_json({"schema": SCHEMA, "name": given.name, "definition": definition}, given.json)
    show_raw(given, document_bytes(definition).decode("utf-8").rstrip())
    return 0
