"""flexmatch diff: one model on two targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import AnswerNo, UsageError
from ..config import FLAG
from ..options import add_steering_options, compile_options, emit_json, parse_arguments, parser, whole_number
from ..output import print_lines
from .cosim import add_calibration_options

SUBJECTS, DIFFERENCES = 8, 4  # states and instructions that are listed, and differences of each
TOTALS = ("device_calls", "device_cycles", "nanoseconds", "host_macs", "host_bytes", "bytes")  # bytes: over the links


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch diff` and return its exit code.

    Raises:
        UsageError: --accel is given, which diff takes from OLD and NEW, or --calibrate without --data (F203).
        AnswerNo: --fail-on-change is given and the plans differ (F213).
    """
    verb_parser = parser("diff", "Compile a model for two targets and tell what differs: offloads, cycles, bytes, with data the accuracy.")
    verb_parser.add_argument("old", metavar="OLD", help="an accelerator by name or path, with its parameters: NAME[:key=value,…]")
    verb_parser.add_argument(
        "new", metavar="NEW", help="the accelerator to compare with it: another one, or the same with other parameters"
    )
    verb_parser.add_model("model", metavar="MODEL.onnx")
    add_steering_options(verb_parser)
    verb_parser.add_argument("--data", metavar="FILE", help="samples, to compare the accuracy of both, too")
    add_calibration_options(verb_parser)
    verb_parser.add_argument("--metric", default="", metavar="NAME", help="the metric of the accuracy (default: by the data)")
    verb_parser.add_argument("--samples", type=whole_number(0), default=0, metavar="N", help="use N evenly spaced samples (default: all)")
    verb_parser.add_argument("--fail-on-change", action="store_true", help="answer no (exit 1) when anything differs")
    args = parse_arguments(verb_parser, arguments)
    if args.accel and args.origins["accel"] == FLAG:
        raise UsageError(
            "F203", "--accel has no place here: diff takes its two targets as OLD and NEW", help="flexmatch diff OLD NEW MODEL.onnx"
        )
    if args.data is None and (args.calibrate is not None or args.calibration_method):
        raise UsageError("F203", "--calibrate and --calibration-method need --data, whose samples diff runs", help="add --data FILE")
    from ...study.designs.diff import compile_both, diff_document, is_changed

    document = diff_document(
        compile_both(args.old, args.new, args.model, compile_options(args)),
        None if args.data is None else Path(args.data),
        calibrate=None if args.calibrate is None else Path(args.calibrate),
        method=args.calibration_method,
        metric=args.metric,
        samples=args.samples,
    )
    emit_json(document, args.json)
    print_lines(args, lines(document))
    if args.fail_on_change and is_changed(document):
        raise AnswerNo("F213", f"Plans of {args.old} and {args.new} must be equal, not different", place=args.model)
    return 0


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return a comparison of two plans as text."""
    from ...report.tables import grid
    from ...report.terminal import change, count_text, number, table

    old, new = document["targets"]["old"], document["targets"]["new"]
    rows = [
        ("old", _named(old)),
        ("new", _named(new)),
        *_specification(document),
        *(_row("appeared", o) for o in document["appeared"]),
        *(_row("vanished", o) for o in document["vanished"]),
        *(("changed", _changed(pair["old"], pair["new"])) for pair in document["changed"]),
        ("same", count_text(document["same"], "offload")),
    ]  # fmt: skip
    accuracy = document["accuracy"]
    if accuracy is not None:
        values = " → ".join(number(accuracy[side]) for side in ("old", "new"))
        rows.append(
            (
                accuracy["metric"],
                f"{values}{change(accuracy)} on {count_text(accuracy['samples'], 'sample')}; host {number(accuracy['host'])}",
            )
        )
        if accuracy["better"] or accuracy["worse"]:
            rows.append(("", f"{count_text(accuracy['better'], 'sample')} better, {count_text(accuracy['worse'], 'sample')} worse"))
    links = document["links"]
    names = dict.fromkeys((*links["old"], *links["new"]))
    by_link = [_sum({side: {f"  {n}": links[side].get(n, 0)} for side in links}, f"  {n}") for n in names]
    used = [key for key in TOTALS if any(document["totals"][side][key] for side in ("old", "new"))]
    sums = [*(_sum(document["totals"], key) for key in used), *by_link]
    totals = grid(("in all", "old", "new", "change"), sums, ("old", "new", "change"))
    return [*table(rows), *totals]


def _named(target: Mapping[str, Any]) -> str:
    parameters = ", ".join(f"{key}={value}" for key, value in target["parameters"].items())
    file = target["given"].partition(":")[0] if target["given"].partition(":")[0] != target["name"] else ""
    return " · ".join(filter(None, (f"{target['name']}  {parameters}".strip(), file, f"sha256 {target['sha256'][:12]}")))


def _specification(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the states and instructions that differ, in words; that only other files do where nothing of the model differs."""
    from ...report.terminal import count_text
    from ...study.designs.specification import word_differences

    changes = document["specification"]
    if not changes:
        is_same_files = document["targets"]["old"]["sha256"] == document["targets"]["new"]["sha256"]
        return [("model", "the same states and instructions" + ("" if is_same_files else "; other costs, drivers, numerics or limits"))]
    rows: list[tuple[str, str]] = []
    for c in changes[:SUBJECTS]:
        every = word_differences(c["old"], c["new"])
        differences = ", ".join(every[:DIFFERENCES]) + (" …" if len(every) > DIFFERENCES else "")
        rows.append(("" if rows else "model", f"{c['subject']}: {differences}"))
    remaining = len(changes) - len(rows)
    return [*rows, *([("", f"{count_text(remaining, 'other')} in --json FILE")] if remaining else [])]


def _row(label: str, o: Mapping[str, Any]) -> tuple[str, str]:
    return label, f"{o['operation']} of {', '.join(o['nodes'])}: {_paid(o)}"


def _paid(o: Mapping[str, Any]) -> str:
    calls = f"{o['device_calls']:,} call{'' if o['device_calls'] == 1 else 's'}"
    return calls if o["cost"] is None else f"{calls}, {o['cost']['cycles']:,} cycles, {o['cost']['bytes']:,} bytes"


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    return f"{new['operation']} of {', '.join(new['nodes'])}: {_paid(old)} → {_paid(new)}"


def _sum(sides: Mapping[str, Mapping[str, int]], key: str) -> tuple[str, str, str, str]:
    old, new = sides["old"][key], sides["new"][key]
    change = "" if old == new else f"{100 * (new - old) / old:+.1f}%" if old else "–"
    return key.replace("_", " "), f"{old:,}", f"{new:,}", change
