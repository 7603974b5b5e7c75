"""Evidence: how the e-graph grew, the rules that matched with their lines, and the certificates of what a plan rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..compile import Plan
from ..prove.cache import Cache, court_cache
from ..prove.court import model_case, rule_case, target_cases
from ..rewrite.ruleset import every_rule, rules_at
from .charts import growth
from .markup import figure, note, section, table, text
from .terminal import counted, rule_table

UNKNOWN = "not judged here"
JUDGE_RULE = "flexmatch prove --only"
JUDGE_TARGET = "flexmatch prove --no-rules --accel"


@dataclass(frozen=True)
class Certificate:
    """What the court said of a rule, an operation or a model: its verdict, what that covers, and by what evidence."""

    name: str
    kind: str
    verdict: str
    covers: str
    evidence: str


def certificates_of(plan: Plan, kept: Cache | None = None) -> tuple[Certificate, ...]:
    """Return the certificates of the rules, operations and models behind a plan, as far as this machine's court has judged them."""
    kept = kept or court_cache()
    used = {r.rule for o in plan.offloads for r in o.because}
    return (*_rules(plan, used, kept), *_targets(plan, used, kept))


def _rules(plan: Plan, used: set[str], kept: Cache) -> Iterator[Certificate]:
    files = [Path(p) for p in plan.settings.get("rules", ())]
    known = {r.name: r for r in (*every_rule(), *(r for f in files if f.is_file() for r in rules_at(f)))}
    for name in sorted(used & known.keys()):
        yield _certificate(name, "rule", kept.get(rule_case(known[name], None).key), f"{JUDGE_RULE} {name}")


def _targets(plan: Plan, used: set[str], kept: Cache) -> Iterator[Certificate]:
    for t in plan.targets:
        how = f"{JUDGE_TARGET} {t.name}"
        for case in target_cases(t, t.name):
            if case.name in used:
                yield _certificate(case.name, "operation", kept.get(case.key), how)
        model = kept.get(model_case(t, t.name).key)
        if model is None:
            yield _certificate(t.name, "model", None, how)
        else:
            disjoint = "proved" if model["decodes_disjoint"] else "refuted"
            yield Certificate(t.name, "model", disjoint, f"{model['instructions']} instructions", "no command is decoded by two of them")


def _certificate(name: str, kind: str, found: Mapping[str, Any] | None, how: str) -> Certificate:
    if found is None:
        return Certificate(name, kind, UNKNOWN, "", f"{how} judges it")
    return Certificate(name, kind, found["verdict"], found["strength"], found["evidence"])


def search(plan: Mapping[str, Any]) -> str:
    """Return how the e-graph grew, why it stopped, and which rules matched."""
    e = plan["egraph"]
    sizes, fired = e.get("growth", ()), e.get("fired", ())
    stop = e["stop"]["reason"] if e["stop"]["reason"] == "saturated" else f"stopped: {e['stop']['detail']}"
    said = f"{stop} after {counted(e['rounds'], 'round')}, {e['e_nodes']:,} e-nodes with those of the operations"
    drawn = growth("e-nodes before the first round and after each one", sizes) if sizes else ""
    behind = {name: n for (name, _, _), n in rule_table(plan["offloads"]).items()}
    rows = [
        (text(f["rule"]), text(f["at"]), figure(f"{f['matches']:,}"), figure(str(behind.get(f["rule"], 0))))
        for f in sorted(fired, key=lambda f: -f["matches"])
    ]
    caption = f"{len(rows)} of {counted(e.get('rules', 0), 'rule')} and operations matched something"
    heads = ("rule", "written at", "matches", "offloads behind which it stands")
    return section("The e-graph", note(said) + drawn + (table(caption, heads, rows) if rows else ""), "egraph")


def certificates(found: Sequence[Certificate]) -> str:
    """Return what is proved of what the plan rests on."""
    if not found:
        return ""
    proved = sum(c.verdict == "proved" for c in found)
    rows = [(text(c.name), text(c.kind), text(c.verdict), text(c.covers), text(c.evidence)) for c in found]
    about = "A rule of --rules is judged before it is used, every shipped one by the tests. Below is what the court of this machine keeps."
    made = table(f"{proved} of {len(found)} proved here", ("name", "what", "verdict", "covers", "evidence"), rows)
    return section("Certificates", note(about) + made, "certificates")
