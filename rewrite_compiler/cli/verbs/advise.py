"""flexmatch advise: which single change of an accelerator helps most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..options import accelerators, add_steering_options, compile_options, emit_json, parse_arguments, parser, whole_number
from ..output import print_lines

SHOWN = 10
LEAST_TENTHS = 1.0  # µs that are shown with one digit behind the point


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch advise` and return its exit code.

    Raises:
        UsageError: not exactly one accelerator is given (F201).
    """
    verb_parser = parser("advise", "Rank single changes of an accelerator by what they save on whole models.")
    verb_parser.add_model("models", metavar="MODEL.onnx", nargs="+")
    add_steering_options(verb_parser)
    verb_parser.add_argument("--top", type=whole_number(1), default=SHOWN, metavar="N", help=f"show the best N changes (default: {SHOWN})")
    args = parse_arguments(verb_parser, arguments)
    names = accelerators(args)
    if len(names) != 1:
        raise UsageError("F201", f"Accelerators must be exactly one, not {len(names)}", help="give one --accel NAME")
    from ...study.designs.advise import advice_document, advise

    document = advice_document(advise([Path(m) for m in args.models], names[0], compile_options(args)))
    emit_json(document, args.json)
    print_lines(args, lines(document, args.top))
    return 0


def lines(document: Mapping[str, Any], top: int) -> list[str]:
    """Return the best changes as text: what each saves at the first level of the objective where it does, in time and in bytes."""
    from ...report.tables import grid
    from ...report.terminal import count_text, table

    target, base = document["target"], document["base"]["totals"]
    useful = [c for c in document["changes"] if _first_difference(c)[1] > 0 or c["saved_nanoseconds"] > 0]
    rows = [
        ("models", ", ".join(document["models"])),
        ("now", f"{count_text(base['offloads'], 'offload')} · {base['nanoseconds'] / 1000:,.1f} µs · {base['bytes']:,} bytes"),
        ("tried", f"{count_text(len(document['changes']), 'change')}, {len(useful)} of them save something"),
    ]
    heads = ("", "change", "from", "to", "saves", "µs saved", "bytes saved")
    best = grid(heads, [_row(c) for c in useful[:top]], ("", "µs saved", "bytes saved"))
    return [f"{target['name']}  objective {document['objective']}", *table(rows), *(best or ["no single change saves anything"])]


def _first_difference(change: Mapping[str, Any]) -> tuple[str, int]:
    """Return the first level of the objective that a change moves, and by how much it is less; ("", 0) where none is."""
    return next(((level.replace("_", " "), n) for level, n in change["saved"].items() if n), ("", 0))


def _effect(change: Mapping[str, Any]) -> str:
    """Return what a change saves at that level, less than nothing where it costs; one that moves no level saves time alone."""
    level, saved = _first_difference(change)
    return f"{saved:,} {level}" if saved else "time only"


def _row(change: Mapping[str, Any]) -> tuple[str, ...]:
    time, saved_bytes = change["saved_nanoseconds"] / 1000, change["saved_bytes"]
    subject = f"{change['kind']} {change['name']}"
    return (
        f"{change['rank']}.",
        subject,
        str(change["from"]),
        str(change["to"]),
        _effect(change),
        f"{time:+,.1f}" if abs(time) >= LEAST_TENTHS or not time else f"{time:+.2g}",  # little is not +0.0
        f"{saved_bytes:+,}",
    )
