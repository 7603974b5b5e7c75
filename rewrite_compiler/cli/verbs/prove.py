"""flexmatch prove: judge rules, mappings and accelerator models; exit 1 when anything is refuted or open."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import UsageError, did_you_mean
from ...report.terminal import columns
from ..options import accelerators, emit_json, options, parser, whole_number
from ..output import fold, is_live, show_raw

JOBS = 2
ADDED_ZEROS = ("operations in the same order, added zeros left out", "operations but for added zeros")  # in full, as one line has it


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("prove", "Judge every shipped rule, and the mappings and models of accelerators (default: all shipped).")
    made.add_argument("files", nargs="*", type=Path, metavar="RULES.py", help="judge the rules of these files instead of the shipped ones")
    made.add_argument("--accel", action="append", default=[], metavar="NAME", help="judge only this accelerator's mappings and model")
    made.add_argument("--only", default="", metavar="NAME,…", help="judge only these rules and mappings (TARGET.NAME)")
    made.add_argument(
        "--instances",
        type=whole_number(1),
        default=0,
        metavar="N",
        help="try each rule at so many drawn instances beside its proof",
    )
    made.add_argument("--jobs", type=whole_number(1), default=JOBS, metavar="N", help=f"judge in N processes (default {JOBS})")
    made.add_argument("--no-cache", action="store_true", help="judge again what was judged before, and keep nothing")
    made.add_argument("--recheck", action="store_true", help="judge again what was judged before, and say what is judged otherwise now")
    made.add_argument("--no-rules", action="store_true", help="judge no rules")
    given = options(made, arguments)
    from ...prove.certificates.cache import Cache, court_cache
    from ...prove.certificates.document import prove, to_json
    from ...rewrite.ruleset import collect, every_rule, rules_at
    from ...target import find_target, target_names

    wanted = [n for n in given.only.split(",") if n]
    judged = collect(r for f in given.files for r in rules_at(f)) if given.files else every_rule()
    known = {r.name: r for r in judged}
    owners = [n for n in target_names() if any(w.partition(".")[0] == n for w in wanted)]
    names = accelerators(given) or owners or ([] if given.only or given.files else target_names())
    targets = {n: find_target(n) for n in names}
    mappings = {m.name for t in targets.values() for m in t.mappings.values()}
    for n in wanted:
        if n not in known and n not in mappings:
            remedy = did_you_mean(n, {*known, *mappings}) or "`flexmatch list` shows the names"
            raise UsageError("F203", f'there is no rule called "{n}"', help=remedy)
    kept = Cache(None) if given.no_cache else court_cache(anew=given.recheck)
    verdicts = prove(
        [] if given.no_rules else [r for r in known.values() if not wanted or r.name in wanted],
        [*targets.values()],
        _progress if is_live(given) else lambda _: None,
        instances=given.instances or None,
        jobs=given.jobs,
        kept=kept,
        specs={t.name: n for n, t in targets.items()},
        only={*wanted} & mappings if wanted else None,
    )
    document = to_json(verdicts)
    emit_json(document, given.json)
    cached = [f"{kept.hits} verdicts from the cache; --recheck judges again"] if kept.hits and is_live(given) else []
    show_raw(given, "\n".join([*lines(document, verbose=given.verbose), *(f"judged otherwise: {x}" for x in kept.changed), *cached]))
    return 0 if verdicts.is_good else 1


def _progress(name: str) -> None:
    print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)


def lines(document: Mapping[str, Any], *, verbose: bool) -> list[str]:
    """Return the verdicts for people: totals, then a line for each rule, mapping and model."""
    found = []
    for kind in ("rules", "mappings"):
        proofs = document[kind]
        proved = sum(p["verdict"] == "proved" for p in proofs)
        found.append(f"{kind:<10}{proved} of {len(proofs)} proved")
        width = max((len(p["name"]) for p in proofs), default=0)
        for p in proofs:
            found += [_line(p, width), *_details(p, verbose=verbose)]
    for c in document["ilas"]:
        disjoint = "decodes disjoint" if c["decodes_disjoint"] else "decodes overlap"
        found.append(f"{c['name']:<10}{c['instructions']} instructions, {disjoint}, {len(c['holes'])} ranges of commands without effect")
        found += [f"  {p}" for p in c["problems"]]
    return found


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
    found = []
    if verbose or p["verdict"] != "proved":
        found.append(f"    {p['at']}: {p['name']}: " + " · ".join(filter(None, (p["verdict"], p["strength"], p["evidence"]))))
    if verbose and (figures := _figures(p)):
        found.append(figures)
    if p["counterexample"]:
        found.append(p["counterexample"])
    if p["suggestion"]:
        found.append(f"proved under the guard {p['suggestion']}")
    return [fold(f"    {line.strip()}") for line in found]


def _figures(p: Mapping[str, Any]) -> str:
    """Return the measured differences of a rule that its grade does not make 0."""
    return " · ".join(
        f"{m['dtype']} {m['ulp']:g} ulp ({m['share_of_rounding']:.2g} of what rounding can do)" for m in p["measured"] if m["ulp"]
    )
