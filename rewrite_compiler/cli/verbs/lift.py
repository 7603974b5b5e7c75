"""flexmatch lift: the operations that an accelerator's model computes, as a target file, each certified before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import UsageError, did_you_mean
from ..files import check_outputs, write_atomically
from ..options import emit_json, parse_arguments, parser
from ..output import print_lines
from ..progress import phase

SCHEMA = "flexmatch.lift/1"


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch lift` and return its exit code: 1 when no operation is lifted.

    Raises:
        UsageError: an operation is not among those that are looked for (F203).
    """
    verb_parser = parser("lift", "Write the operations that a model computes: meaning, numerics, limits; all are certified first.")
    verb_parser.add_argument("target", metavar="TARGET", help="NAME or FILE.py, with parameters as NAME:key=value,…")
    verb_parser.add_argument("--only", action="append", default=[], metavar="OPERATION", help="look for this operation; repeat it")
    verb_parser.add_output("-o", "--output", metavar="FILE", help="write there (default: NAME_lifted.py)")
    args = parse_arguments(verb_parser, arguments)
    from ...study.lift.lift import Lifted, lift, target_file
    from ...study.lift.patterns import PATTERNS
    from ...target import find_target

    names = [p.name for p in PATTERNS]
    for name in args.only:
        if name not in names:
            remedy = did_you_mean(name, names) or f"operations: {', '.join(names)}"
            raise UsageError("F203", f'no operation "{name}" is looked for', help=remedy)
    target = find_target(args.target)
    path = Path(args.output or f"{target.name}_lifted.py")
    check_outputs([path], args.inputs)
    with phase(args, f"looking for operations that {target.name} computes") as progress:
        text, rows = lift(target, args.only, progress)
    document = {
        "schema": SCHEMA,
        "target": target.name,
        "lifted": [
            {"name": r.name, "instructions": list(r.instructions), "strength": r.strength} for r in rows if isinstance(r, Lifted)
        ],
        "refused": [{"name": r.name, "reason": r.reason} for r in rows if not isinstance(r, Lifted)],
        "written": None,
    }  # fmt: skip
    if document["lifted"]:
        document["written"] = str(path)
        write_atomically({path: target_file(text, args.target, path.parent).encode()})
    emit_json(document, args.json)
    print_lines(args, lines(document))
    return 0 if document["lifted"] else 1


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return what became of each operation as text."""
    lifted = [f"lifted    {x['name']} by {', then '.join(x['instructions'])}: {x['strength']}" for x in document["lifted"]]
    refused = [f"not       {x['name']}: {x['reason']}" for x in document["refused"]]
    return [*lifted, *refused, *([f"wrote     {document['written']}"] if document["written"] else [])]
