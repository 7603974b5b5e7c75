"""flexmatch prove: judge rules, mappings and accelerator models; exit 1 when anything is refuted or open."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError, did_you_mean
from .common import accelerators, emit_json, options, parser, whole_number
from .output import is_live, say

JOBS = 2


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("prove", "Judge every shipped rule, and the mappings and models of accelerators (default: all shipped).")
    made.add_argument("files", nargs="*", type=Path, metavar="RULES.py", help="judge the rules of these files instead of the shipped ones")
    made.add_argument("--accel", action="append", default=[], metavar="NAME", help="judge only this accelerator's mappings and model")
    made.add_argument("--only", default="", metavar="RULE,…", help="judge only these rules")
    made.add_argument(
        "--instances",
        type=whole_number(1),
        default=0,
        metavar="N",
        help="judge so many drawn instances of each rule instead of every shape",
    )
    made.add_argument("--all", action="store_true", help="judge every value of the attributes at every shape: up to hours")
    made.add_argument("--jobs", type=whole_number(1), default=JOBS, metavar="N", help=f"judge in N processes (default {JOBS})")
    made.add_argument("--no-cache", action="store_true", help="judge again what was judged before")
    made.add_argument("--no-rules", action="store_true", help="judge no rules")
    given = options(made, arguments)
    from ..prove.cache import Cache, court_cache
    from ..prove.document import prove, to_json
    from ..prove.instances import ALL
    from ..rewrite.ruleset import rules_at, shipped_rules
    from ..target import find_target, target_names

    names = accelerators(given) or ([] if given.only or given.files else target_names())
    wanted = [n for n in given.only.split(",") if n]
    judged = [r for f in given.files for r in rules_at(f)] if given.files else shipped_rules()
    known = {r.name: r for r in judged}
    for n in wanted:
        if n not in known:
            raise UsageError("F203", f'there is no rule called "{n}"', help=did_you_mean(n, known) or "`flexmatch list` shows the names")
    rules = [] if given.no_rules else [r for r in known.values() if not wanted or r.name in wanted]
    count = ALL if given.all else given.instances or None
    kept = Cache(None) if given.no_cache else court_cache()
    targets = {n: find_target(n) for n in names}
    verdicts = prove(
        rules,
        [*targets.values()],
        _progress if is_live(given) else lambda _: None,
        instances=count,
        jobs=given.jobs,
        kept=kept,
        specs={t.name: n for n, t in targets.items()},
    )
    document = to_json(verdicts)
    emit_json(document, given.json)
    cached = [f"{kept.hits} verdicts from the cache; --no-cache judges again"] if kept.hits and is_live(given) else []
    say(given, [*lines(document, verbose=given.verbose), *cached])
    return 0 if verdicts.is_good else 1


def _progress(name: str) -> None:
    print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)


def lines(document: Mapping[str, Any], *, verbose: bool) -> list[str]:
    """Return the verdicts for people: totals, then everything that is not proved."""
    found = []
    for kind in ("rules", "mappings"):
        proofs = document[kind]
        proved = sum(p["verdict"] == "proved" for p in proofs)
        found.append(f"{kind:<10}{proved} of {len(proofs)} proved")
        for p in proofs:
            if verbose or p["verdict"] != "proved":
                found.append(f"  {p['at']}: {p['name']}: {p['verdict']} · {p['strength']} · {p['evidence']}")
                found += [f"    {line}" for line in (_figures(p),) if line]
                if p["counterexample"]:
                    found.append(f"    {p['counterexample']}")
                if p["suggestion"]:
                    found.append(f"    proved under the guard {p['suggestion']}")
    for c in document["ilas"]:
        disjoint = "decodes disjoint" if c["decodes_disjoint"] else "decodes overlap"
        found.append(f"{c['name']:<10}{c['instructions']} instructions, {disjoint}, {len(c['holes'])} ranges of commands without effect")
        found += [f"  {p}" for p in c["problems"]]
    return found


def _figures(p: Mapping[str, Any]) -> str:
    """Return the measured differences of a rule that its grade does not make 0."""
    return " · ".join(
        f"{m['dtype']} {m['ulp']:g} ulp ({m['share_of_rounding']:.2g} of what rounding can do)" for m in p["measured"] if m["ulp"]
    )
