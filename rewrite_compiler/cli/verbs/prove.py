"""flexmatch prove: judge rules, mappings and accelerator models; exit 1 when anything is refuted or open."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError, did_you_mean
from ...report.figures import rounding_text
from ...report.terminal import columns
from ..findings import Finding, add_finding_options, write_findings
from ..options import Parser, accelerators, emit_json, parse_arguments, parser, python_files, whole_number
from ..output import is_live, print_unwrapped, wrap_line
from ..watch import add_watch_option, watch

if TYPE_CHECKING:
    from ...prove.certificates.document import Verdicts

JOBS = 2
REFUTED = {"rules": "R102", "mappings": "I105"}  # the code of one that is refuted
ADDED_ZEROS = ("operations in the same order, added zeros left out", "operations but for added zeros")  # in full, as one line has it


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch prove` and return its exit code: 1 when anything is refuted or open.

    Raises:
        UsageError: --only names no rule and no mapping (F203).
    """
    verb_parser = _options()
    args = parse_arguments(verb_parser, arguments)
    if args.watch:
        return watch("prove", arguments, [*args.files, *python_files(args)])
    from ...prove.certificates.cache import Cache, court_cache
    from ...prove.certificates.document import judge_library, to_json
    from ...rewrite.ruleset import every_rule, rules_at, unique_rules
    from ...target import find_target, target_names

    only_names = [n for n in args.only.split(",") if n]
    rules = unique_rules(r for f in args.files for r in rules_at(f)) if args.files else every_rule()
    rules_by_name = {r.name: r for r in rules}
    owners = [n for n in target_names() if any(w.partition(".")[0] == n for w in only_names)]
    names = accelerators(args) or owners or ([] if args.only or args.files else target_names())
    targets = {n: find_target(n) for n in names}
    mappings = {m.name for t in targets.values() for m in t.mappings.values()}
    for n in only_names:
        if n not in rules_by_name and n not in mappings:
            remedy = did_you_mean(n, {*rules_by_name, *mappings}) or "`flexmatch list` shows the names"
            raise UsageError("F203", f'there is no rule called "{n}"', help=remedy)
    for name in (n for n in names if n.partition(":")[0] not in target_names()):
        targets[name].ila()  # a model of the user's own that cannot be built is refused before anything is judged
    cache = Cache(None) if args.no_cache else court_cache(recheck=args.recheck)
    verdicts = judge_library(
        [] if args.no_rules else [r for r in rules_by_name.values() if not only_names or r.name in only_names],
        [*targets.items()],
        cache,
        only={*only_names} & mappings if only_names else None,
        instances=args.instances or None,
        jobs=args.jobs,
        progress=_progress if is_live(args) else None,
    )
    document = to_json(verdicts)
    emit_json(document, args.json)
    write_findings(args, "prove", findings(verdicts, document))
    cached = [f"{cache.hits} verdicts from the cache; --recheck judges again"] if cache.hits and is_live(args) else []
    print_unwrapped(
        args, "\n".join([*lines(document, verbose=args.verbose), *(f"judged otherwise: {x}" for x in cache.changed_verdicts), *cached])
    )
    return 0 if verdicts.is_good else 1


def _options() -> Parser:
    """Return the parser of the verb."""
    verb_parser = parser("prove", "Judge every shipped rule, and the mappings and models of accelerators (default: all shipped).")
    verb_parser.add_argument(
        "files", nargs="*", type=Path, metavar="RULES.py", help="judge the rules of these files instead of the shipped ones"
    )
    verb_parser.add_argument(
        "--accel", action="append", default=[], metavar="NAME", help="judge only this accelerator's mappings and model"
    )
    verb_parser.add_argument("--only", default="", metavar="NAME,…", help="judge only these rules and mappings (TARGET.NAME)")
    verb_parser.add_argument(
        "--instances", type=whole_number(1), default=0, metavar="N", help="try each rule at so many drawn instances beside its proof"
    )
    verb_parser.add_argument("--jobs", type=whole_number(1), default=JOBS, metavar="N", help=f"judge in N processes (default {JOBS})")
    verb_parser.add_argument("--no-cache", action="store_true", help="judge again what was judged before, and keep nothing")
    verb_parser.add_argument(
        "--recheck", action="store_true", help="judge again what was judged before, and say what is judged otherwise now"
    )
    verb_parser.add_argument("--no-rules", action="store_true", help="judge no rules")
    add_finding_options(verb_parser)
    add_watch_option(verb_parser)
    return verb_parser


def findings(verdicts: Verdicts, document: Mapping[str, Any]) -> list[Finding]:
    """Return each rule, mapping and model of a document as a finding, at the whole place that the verdict has."""
    places = [p.at for p in (*verdicts.rules, *verdicts.mappings)]
    proofs = [(p, REFUTED[kind] if p["verdict"] == "refuted" else "R103") for kind in ("rules", "mappings") for p in document[kind]]
    judged = [Finding(p["name"], at, _problem_text(p), code, p["seconds"]) for at, (p, code) in zip(places, proofs, strict=True)]
    models = [Finding(f"model of {c['name']}", "", "\n".join(c["problems"]), "I100" if c["problems"] else "") for c in document["ilas"]]
    return [*judged, *models]


def _problem_text(p: Mapping[str, Any]) -> str:
    """Return why a proof failed, nothing where it did not."""
    if p["verdict"] == "proved":
        return ""
    return "\n".join(filter(None, (" · ".join(filter(None, (p["verdict"], p["strength"], p["evidence"]))), p["counterexample"])))


def _progress(name: str) -> None:
    print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)


def lines(document: Mapping[str, Any], *, verbose: bool) -> list[str]:
    """Return the verdicts as text: totals, then a line for each rule, mapping and model."""
    output = []
    for kind in ("rules", "mappings"):
        proofs = document[kind]
        proved = sum(p["verdict"] == "proved" for p in proofs)
        output.append(f"{kind:<10}{proved} of {len(proofs)} proved")
        width = max((len(p["name"]) for p in proofs), default=0)
        for p in proofs:
            output += [_line(p, width), *_details(p, verbose=verbose)]
    for c in document["ilas"]:
        disjoint = "decodes disjoint" if c["decodes_disjoint"] else "decodes overlap"
        output.append(f"{c['name']:<10}{c['instructions']} instructions, {disjoint}, {len(c['holes'])} ranges of commands without effect")
        output += [f"  {p}" for p in c["problems"]]
    return output


def _line(p: Mapping[str, Any], width: int) -> str:
    """Return name, verdict, strength, evidence and time of a proof as one line, the evidence cut where the terminal ends."""
    is_proved = p["verdict"] == "proved"
    strength = re.sub(r"(?<=symbolic) at .*\), random codes (at \d+ sizes)", r", codes \1", p["strength"]).partition(":")[0]
    evidence = re.sub(r"^both sides (are|have) (the )?|^sizes ", "", p["evidence"]).replace(*ADDED_ZEROS)
    strength, evidence = (strength, evidence) if is_proved else ("–", "–")
    start = f"  {p['name']:<{width}}  {p['verdict']:<8}  {strength:<19}  "
    end = f"  kept {p['kept']}" if p["kept"] else f"  {p['seconds']:.2f} s"
    return start + textwrap.shorten(evidence, max(columns() - len(start) - len(end), 1), placeholder="…") + end


def _details(p: Mapping[str, Any], *, verbose: bool) -> list[str]:
    """Return what else there is to say of a proof: of one that failed why, of others when asked."""
    details = []
    if verbose or p["verdict"] != "proved":
        details.append(f"    {p['at']}: {p['name']}: " + " · ".join(filter(None, (p["verdict"], p["strength"], p["evidence"]))))
    if verbose and (figures := _figures(p)):
        details.append(figures)
    if p["counterexample"]:
        details.append(p["counterexample"])
    if p["suggestion"]:
        details.append(f"proved under the guard {p['suggestion']}{', which leaves out ' + p['left_out'] if p['left_out'] else ''}")
    return [wrap_line(f"    {line.strip()}") for line in details]


def _figures(p: Mapping[str, Any]) -> str:
    """Return the measured differences of a rule that its grade does not make 0, and how far apart the error bounds of its sides are."""
    return " · ".join(
        f"{m['dtype']} {rounding_text(m['ulp'], m['share_of_rounding'], m['error_bound_ratio'])}"
        for m in p["measured"]
        if m["ulp"] or m["error_bound_ratio"] is not None
    )
