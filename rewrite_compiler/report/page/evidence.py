"""Sections of the page about evidence: growth of the e-graph, rules that matched, certificates behind a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...compile import Plan
from ...prove.certificates.cache import Cache, court_cache
from ...prove.certificates.judge import model_case, rule_case, target_cases
from ...prove.certificates.shipped_certificates import (
    OPEN,
    Certificate,
    certificate_of_model,
    certificate_of_operation,
    certificate_of_record,
    certificate_of_rule,
)
from ...rewrite.ruleset import every_rule, rules_at
from ..figures import rounding_text
from ..graphics.charts import growth_curve
from ..graphics.markup import Cell, figure, folded, note, table, text
from ..terminal import count_text, rule_table

JUDGE_RULE = "flexmatch prove --only"
JUDGE_TARGET = "flexmatch prove --no-rules --accel"


def certificates_of(plan: Plan, cache: Cache | None = None) -> tuple[Certificate, ...]:
    """Return the certificates of the rules, operations and models behind a plan: this machine's, else the shipped ones."""
    cache = cache or court_cache()
    rule_names = {r.rule for o in plan.offloads for r in o.because}
    return (*_rules(plan, rule_names, cache), *_targets(plan, rule_names, cache))


def _rules(plan: Plan, rule_names: set[str], cache: Cache) -> Iterator[Certificate]:
    files = [Path(p) for p in plan.settings.get("rules", ())]
    rules = {r.name: r for r in (*every_rule(), *(r for f in files if f.is_file() for r in rules_at(f)))}
    for name in sorted(rule_names & rules.keys()):
        r = rules[name]
        yield _certificate("rule", name, cache.get(rule_case(r, None).key), certificate_of_rule(r), f"{JUDGE_RULE} {name}")


def _targets(plan: Plan, rule_names: set[str], cache: Cache) -> Iterator[Certificate]:
    for t in plan.targets:
        command = f"{JUDGE_TARGET} {t.name}"
        for case in target_cases(t, t.name):
            if case.name in rule_names:
                shipped = certificate_of_operation(t, case.message["name"])
                yield _certificate("operation", case.name, cache.get(case.key), shipped, command)
        yield _certificate("model", t.name, cache.get(model_case(t, t.name).key), certificate_of_model(t), command)


def _certificate(kind: str, name: str, record: Mapping[str, Any] | None, shipped: Certificate | None, command: str) -> Certificate:
    if record is not None:
        return certificate_of_record(kind, name, record)
    return shipped or Certificate(kind, name, OPEN, "", f"{command} judges it")


def saturation_section(plan: Mapping[str, Any]) -> str:
    """Return the section about saturation: its growth, why it stopped, and which rules matched how often."""
    e = plan["egraph"]
    sizes, fired = e.get("growth", ()), e.get("fired", ())
    stop = e["stop"]["reason"] if e["stop"]["reason"] == "saturated" else f"stopped: {e['stop']['detail']}"
    summary = f"{stop} after {count_text(e['rounds'], 'round')}, {e['e_nodes']:,} e-nodes with those of the operations"
    chart = growth_curve("e-nodes before the first round and after each one", sizes) if sizes else ""
    offload_counts = {name: n for (name, _, _), n in rule_table(plan["offloads"]).items()}
    rows = [
        (text(f["rule"]), text(f["at"]), figure(f"{f['matches']:,}"), figure(str(offload_counts.get(f["rule"], 0))))
        for f in sorted(fired, key=lambda f: -f["matches"])
    ]
    caption = f"{len(rows)} of {count_text(e.get('rules', 0), 'rule')} and operations matched something"
    heads = ("rule", "written at", "matches", "offloads behind which it stands")
    return folded("The e-graph", note(summary) + chart + (table(caption, heads, rows) if rows else ""), "egraph")


def certificates_section(certificates: Sequence[Certificate]) -> str:
    """Return the section about certificates: verdict, what it covers, evidence and measured rounding of each."""
    if not certificates:
        return ""
    proved = sum(c.verdict == "proved" for c in certificates)
    rows = [(text(c.name), text(c.kind), text(c.verdict), text(c.strength), text(c.evidence), _ulp(c)) for c in certificates]
    about = "A rule of --rules is judged before it is used; what ships has the certificates it was released with."
    certificate_table = table(
        f"{proved} of {len(certificates)} proved", ("name", "what", "verdict", "covers", "evidence", "float32 differs by at most"), rows
    )
    return folded("Certificates", note(about) + certificate_table, "certificates")


def _ulp(c: Certificate) -> Cell:
    """Return what was seen of rounding: units in the last place, and how far apart the error bounds of the sides are."""
    if c.ulp is None:
        return text("–")
    return text(rounding_text(c.ulp, c.share_of_rounding or 0.0, c.error_bound_ratio))
