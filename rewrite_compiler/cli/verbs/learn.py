"""flexmatch learn: laws that models need and the rules lack, proved, as ready rule code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..options import accelerators, add_steering_options, compile_options, emit_json, parse_arguments, parser, whole_number
from ..output import print_unwrapped

SECONDS = 600


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch learn` and return its exit code: 1 when no law is proved.

    Raises:
        UsageError: no accelerator is given (F201).
    """
    verb_parser = parser("learn", "Propose laws that models need, let the court judge them, print those that are proved as a rule file.")
    verb_parser.add_model("models", metavar="MODEL.onnx", nargs="+")
    add_steering_options(verb_parser)
    verb_parser.add_argument(
        "--seconds", type=whole_number(1), default=SECONDS, metavar="N", help=f"processor time to spend (default {SECONDS})"
    )
    verb_parser.add_argument("--laws", type=whole_number(1), default=1, metavar="N", help="stop after N laws (default 1)")
    args = parse_arguments(verb_parser, arguments)
    names = accelerators(args)
    if not names:
        raise UsageError("F201", "no accelerator is given", help="add --accel NAME; `flexmatch list` shows the names")
    from ...study.laws.learn import learn, learned_document

    models = [Path(m) for m in args.models]
    document = learned_document(learn(models, names, compile_options(args), seconds=args.seconds, max_rules=args.laws), args.models)
    emit_json(document, args.json)
    print_unwrapped(args, "\n".join(lines(document)))
    return 0 if document["laws"] else 1


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return the proved laws as a rule file in the text form, the statistics of the search in comments."""
    output = [
        f"# {document['offloads']} offloads; {document['fragments']} fragments, {document['candidates']} right sides, "
        f"{document['judged']} judged, {len(document['laws'])} proved and of use"
    ]
    for law in document["laws"]:
        output += [f"# {law['verdict']}: {law['strength']} · {law['evidence']} · {law['gain']} more offloads, {law['saves']}", law["text"]]
    return output
