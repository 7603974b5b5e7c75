"""flexmatch check: everything that is wrong with a target, a model, a rule file or an accelerator model, in one go."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import FlexmatchError, UsageError
from ..findings import add_finding_options, write_problems
from ..options import check_options_apply, emit_json, parse_arguments, parser, shapes_of, whole_number
from ..output import is_live, print_lines
from .check_symbolic import check_symbolic

INACCURATE = 0.25  # mean relative error from which on a magnitude is outside of an operation's range
KINDS = ("drawn", "held", "rounded")
PLAN, SYMBOLIC = "a plan", "a plan with --symbolic"
WORDS = {"target": "an accelerator", "rules": "a rule file", "ila": "an accelerator model", "model": "a model"}
# options that not every subject uses
SUBJECTS = {
    "groups": [WORDS["target"]], "seed": [WORDS["target"]], "shape": [WORDS["model"]], "limits": [WORDS["model"], PLAN],
    "accel": [PLAN], "rules": [PLAN], "data": [PLAN], "recheck": [SYMBOLIC],
}  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch check` and return its exit code: 1 where anything is wrong.

    Raises:
        UsageError: an option is not for the subject (F203), or a file cannot be written (F100).
    """
    verb_parser = parser("check", "Find everything that is wrong; how far off operations are, and what a plan may lose by rounding.")
    verb_parser.add_model("subject", metavar="NAME|FILE", help="an accelerator (NAME:key=value,… too), a .py or .onnx file, or a plan")
    verb_parser.add_argument(
        "--groups", type=whole_number(1), default=0, metavar="N", help="groups of ten random inputs an operation (default 10)"
    )
    verb_parser.add_argument("--seed", type=whole_number(0), default=-1, metavar="N", help="where the random inputs start (default 20262)")
    verb_parser.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,32,32", help="bind the shape of a model's input")
    verb_parser.add_argument("--limits", action="append", default=[], metavar="KEY=VALUE", help="change a limit on models")
    verb_parser.add_argument("--symbolic", action="store_true", help="of a plan: judge every call of its offloads, for all codes")
    verb_parser.add_argument(
        "--accel", action="append", default=[], metavar="NAME", help="of a plan: an accelerator that is a file of yours"
    )
    verb_parser.add_argument("--rules", action="append", default=[], type=Path, metavar="FILE.py", help="of a plan: its rules")
    verb_parser.add_argument("--data", metavar="FILE", help="of a plan: samples on which rounding is bounded (default: one random input)")
    verb_parser.add_argument("--recheck", action="store_true", help="with --symbolic: judge again what was judged before")
    add_finding_options(verb_parser)
    args = parse_arguments(verb_parser, arguments)
    subject = SYMBOLIC if args.symbolic else _subject(args)
    if subject is not None:
        check_options_apply(args, _subjects(args.symbolic), subject)
    if args.symbolic:
        return check_symbolic(args)
    from ...limits import DEFAULT
    from ...study.checks.accuracy import GROUPS, SEED
    from ...study.checks.check import check, check_document
    from ...study.checks.plan_arithmetic import arithmetic_lines

    result = check(
        args.subject, groups=args.groups or GROUPS, seed=SEED if args.seed < 0 else args.seed, shapes=shapes_of(args),
        limits=DEFAULT.with_overrides(args.limits), progress=_progress if is_live(args) else lambda _: None, data=args.data,
        accel=args.accel, rules=args.rules,
    )  # fmt: skip
    document = check_document(result)
    emit_json(document, args.json)
    write_problems(args, result.problems)
    print_lines(args, [*(arithmetic_lines(result.arithmetic) if result.arithmetic else ()), *lines(document, verbose=args.verbose)])
    for p in result.problems:
        print(p, file=sys.stderr)
    return 0 if result.is_good else 1


def _subjects(is_symbolic: bool) -> dict[str, list[str]]:
    """Return which options are for which subjects; what is for plans is for those with --symbolic, too."""
    return {name: [SYMBOLIC if is_symbolic and s == PLAN else s for s in subjects] for name, subjects in SUBJECTS.items()}


def _subject(args: argparse.Namespace) -> str | None:
    """Return what is checked in words, where an option depends on it; None where none does, or the file cannot be loaded."""
    if not {*args.given} & {*SUBJECTS}:
        return None
    from ...compile import is_plan
    from ...study.checks.check import kind_of

    if Path(args.subject).is_file() and is_plan(Path(args.subject)):
        return PLAN
    try:
        return WORDS[kind_of(args.subject).value]
    except UsageError:
        raise
    except FlexmatchError:
        return None  # the check says why


def _progress(name: str) -> None:
    print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)


def lines(document: Mapping[str, Any], *, verbose: bool) -> list[str]:
    """Return a check as text: model, golden vectors, errors of every operation, how many problems."""
    output = []
    if document["ila"] is not None:
        c = document["ila"]
        output.append(f"model     {c['instructions']} instructions, decodes {'disjoint' if c['decodes_disjoint'] else 'overlap'}")
    if document["kind"] == "target":
        output.append(f"golden    {_golden(document['golden'])}")
        output += [f"macro     {m['name']}: {m['reason']}" for m in document["macros"]]
        output += _accuracies(document["mappings"], verbose=verbose)
    if document["rules"]:
        output.append(f"rules     {len(document['rules'])} judged")
    count = len(document["problems"])
    return [*output, f"problems  {count or 'none'}"]


def _golden(g: Mapping[str, Any] | None) -> str:
    if g is None:
        return "no vectors beside the target"
    other_designs = f"; not replayed, of other designs: {g['of_other_designs']}" if g["of_other_designs"] else ""
    return f"{g['equal']} of {g['run']} vectors equal{other_designs}"


def _accuracies(mappings: Sequence[Mapping[str, Any]], *, verbose: bool) -> list[str]:
    """Return the table of relative errors: operands as drawn, as the formats hold them, and the reference rounded, too."""
    if not mappings:
        return []
    from ...report.tables import grid

    heads = ("operation", "as drawn", "operands held", "result rounded", *(("sizes", "operands") if verbose else ()))
    rows = [(m["name"], *(_percent(m["relative_error"][kind]) for kind in KINDS), *(_drawn(m) if verbose else ())) for m in mappings]
    about = f"accuracy  relative error (Frobenius) in %, mean ± deviation over {mappings[0]['inputs']} inputs"
    return [about, *grid(heads, rows, heads[1:4], indent=10 if not verbose else 2), *_ranges(mappings)]


def _ranges(mappings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the worst of each operation where its moving operands are larger or smaller by powers of 2."""
    swept = {m["name"]: m["binades"] for m in mappings if m["binades"]}
    if not swept:
        return []
    lowest, highest = (f(int(k) for binades in swept.values() for k in binades) for f in (min, max))
    worst = {name: max(binades.items(), key=lambda b: b[1]) for name, binades in swept.items()}
    inaccurate_names = sorted((name for name in worst if worst[name][1] > INACCURATE), key=lambda name: -worst[name][1])
    about = f"range     operands of 2^{lowest} … 2^{highest} times the magnitudes drawn: "
    if not inaccurate_names:
        return [f"{about}no operation is more than {INACCURATE:.0%} off"]
    return [
        f"{about}more than {INACCURATE:.0%} off are",
        *(f"          {name}: {100 * worst[name][1]:,.0f}% at 2^{worst[name][0]}" for name in inaccurate_names),
    ]


def _drawn(m: Mapping[str, Any]) -> tuple[str, str]:
    """Return at which sizes an operation was measured, and what its operands were drawn from."""
    return ", ".join(f"{d}={n}" for d, n in m["sizes"].items()), ", ".join(f"{n} ~ {d}" for n, d in m["operands"].items())


def _percent(e: Mapping[str, float]) -> str:
    return f"{100 * e['mean']:.2f} ± {100 * e['deviation']:.2f}"
