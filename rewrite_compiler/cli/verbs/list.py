"""flexmatch list: what there is to choose from, by kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import UsageError, did_you_mean
from ..options import emit_json, parse_arguments, parser
from ..output import print_lines

SCHEMA = "flexmatch.list/1"
# kind → the heads of its table and the keys of the document below them
KINDS = {
    "targets": {"accelerator": "name", "parameters": "parameters", "operations": "about", "proof": "proof"},
    "mappings": {"operation": "name", "what it computes": "about", "written at": "at", "proof": "proof"},
    "rules": {"rule": "name", "law": "about", "grade": "grade", "written at": "at"},
    "formats": {"number format": "name", "what it holds": "about"},
    "apps": {"application": "name", "what it is": "about"},
}


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch list` and return its exit code.

    Raises:
        UsageError: a kind is not one of KINDS (F203).
    """
    verb_parser = parser("list", "List accelerators, operations, rules, number formats and applications.")
    verb_parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"print only these: {', '.join(KINDS)} (the document has all)")
    args = parse_arguments(verb_parser, arguments)
    for kind in args.kinds:
        if kind not in KINDS:
            raise UsageError(
                "F203", f'there is nothing called "{kind}" to list', help=did_you_mean(kind, KINDS) or f"kinds: {', '.join(KINDS)}"
            )
    document = listing()
    emit_json(document, args.json)
    from ...report.tables import grid

    for n, kind in enumerate(args.kinds or KINDS):
        rows = [[_cell(row[key]) for key in KINDS[kind].values()] for row in document[kind]]
        print_lines(args, [*([""] if n else []), f"{kind}:", *grid([*KINDS[kind]], rows)])
    return 0


def _cell(value: Any) -> str:
    """Return a value as it stands in a table: of parameters the values that there are."""
    return value if isinstance(value, str) else "; ".join(f"{key}={', '.join(allowed)}" for key, allowed in value.items())


def listing() -> dict[str, Any]:
    """Return the document of everything by kind: each with its name, place and one line."""
    from ...apps import APPS, GALLERY
    from ...lang import IEEE, AdaptivFloat, Fixed, Int
    from ...prove.certificates.status import known_verdicts, verdicts_summary
    from ...rewrite.rule import short_place as at
    from ...rewrite.ruleset import every_rule
    from ...target import load_target, target_names

    targets = [load_target(name) for name in target_names()]
    verdicts = {t.name: known_verdicts(t) for t in targets}
    return {
        "schema": SCHEMA,
        "targets": [
            {
                "name": t.name,
                "about": ", ".join(dict.fromkeys(m.operation for m in t.mappings.values())),
                "parameters": {k: list(v) for k, v in t.parameters.items()},
                "proof": verdicts_summary(verdicts[t.name]),
            }
            for t in targets
        ],
        "mappings": [
            {"name": m.name, "about": _first(m.rule.doc), "at": at(m.rule.place), "proof": verdicts[t.name][name]}
            for t in targets
            for name, m in t.mappings.items()
        ],
        "rules": [
            {"name": r.name, "about": _first(r.doc), "at": at(r.place), "grade": r.full_grade, "phase": r.phase} for r in every_rule()
        ],
        "formats": [{"name": f.__name__, "about": _first(f.__doc__ or "")} for f in (AdaptivFloat, Fixed, Int, IEEE)],
        "apps": [{"name": a.name, "about": a.about} for a in (*APPS, *GALLERY)],
    }


def _first(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
