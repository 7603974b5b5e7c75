"""flexmatch explain: the page of an error code, or why a node of a model went where it did."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError, did_you_mean
from ..error_codes import CODES
from ..options import accelerators, compile_options, emit_json, options, parser, plan_of, steering
from ..output import say

if TYPE_CHECKING:
    from ...compile import Plan
    from ...compile.explanation.nodes import NodeRow

Explanation = tuple[dict[str, Any], list[str]]  # the document, and lines for people
SCHEMA = "flexmatch.explain/1"


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("explain", "Explain an error code, the nodes of a model, or one of them.")
    made.add_argument("what", metavar="CODE|MODEL|PLAN")
    made.add_argument(
        "node", nargs="?", metavar="NODE", help="its name, number from 0, operator or tensor, an offload, or a glob such as '*conv*'"
    )
    steering(made)
    given = options(made, arguments, "what")
    document, text = _code(given.what) if given.node is None and not Path(given.what).exists() else _model(given)
    emit_json(document, given.json)
    say(given, text)
    return 0


def _model(given: argparse.Namespace) -> Explanation:
    """Explain one node of a model at length, several or all of them with a line each."""
    from ...compile import to_json
    from ...compile.explanation.nodes import node_rows, nodes_called

    plan = plan_of(given, Path(given.what))
    if given.node is None:
        return _listed(given, node_rows(plan))
    names = nodes_called(plan, given.node)
    if not names:
        raise _unknown(plan, given.node)
    if len(names) > 1:
        return _listed(given, [r for r in node_rows(plan) if r.node in names or {*r.offloads} & {*names}])
    document = _node(to_json(plan), names[0])
    return document, [*_node_lines(document), *_otherwise(given, document), *_replayed(plan, document), *_outside(plan, document)]


def _listed(given: argparse.Namespace, rows: Sequence[NodeRow]) -> Explanation:
    """Show nodes with a line each, and say how to ask for more about one."""
    from ...report.tables import grid
    from ...report.terminal import table

    lines = grid(("#", "node", "operator", "went to"), [(str(r.number), r.node, r.op, _where(r)) for r in rows], ("#",))
    more = f"name one of them, such as {rows[0].node}: the rules that led there, or what is missing" if rows else "the model has no nodes"
    return {"schema": SCHEMA, "nodes": [{**vars(r), "offloads": list(r.offloads)} for r in rows]}, [*lines, *table([("more", more)])]


def _where(row: NodeRow) -> str:
    return ", ".join(row.offloads) if row.offloads else f"{'host' if row.place == 'host' else 'nowhere'}: {row.why}"


def _unknown(plan: Plan, name: str) -> UsageError:
    """Return the refusal of a name that nothing in a model has."""
    known = list(dict.fromkeys([*(o.id for o in plan.offloads), *(s.name for s in plan.source.sources)]))
    listed = f"nodes: {', '.join(known[:20])}{' …' if len(known) > 20 else ''}"
    sentence = f'the model has no node, operator or tensor called "{name}"'
    return UsageError("F203", sentence, help=" ".join(filter(None, (did_you_mean(name, known), listed))))


def _otherwise(given: argparse.Namespace, document: dict[str, Any]) -> list[str]:
    """Say what would offload a node of a model that stays on the host; every answer has been compiled."""
    from ...compile import is_plan
    from ...compile.counterfactuals import counterfactuals

    if document["place"] != "host" or is_plan(Path(given.what)):
        return []
    found = counterfactuals(given.what, accelerators(given), document["node"], compile_options(given))
    document["counterfactuals"] = [{**vars(c), "becomes": list(c.becomes)} for c in found]
    return [f"  {c}" for c in found] or ["  no option of this command offloads it: lowerings and the other accelerators were tried"]


def _replayed(plan: Plan, document: dict[str, Any]) -> list[str]:
    """Derive an offload again by its rules alone, check every step on random operands, and say what came out."""
    from ...compile.explanation.derivation_check import replay

    if document["place"] != "offload":
        return []
    found = replay(plan, next(o for o in plan.offloads if o.id == document["offload"]["id"]))
    document["replay"] = {**vars(found), "rules": None if found.rules is None else list(found.rules), "agrees": found.agrees}
    return [f"  {found}"]


def _outside(plan: Plan, document: dict[str, Any]) -> list[str]:
    """Say which rules would match here, were they proved for operands of so many axes."""
    from ...compile.formats.operating_range import outside

    document["outside"] = outside(plan, document["node"])
    return [f"  {sentence}" for sentence in document["outside"]]


def _code(text: str) -> Explanation:
    code = text.upper()
    if code not in CODES:
        family = [c for c in CODES if c[0] == code[:1]] or list(CODES)
        listed = f"codes: {', '.join(family)}; for a node give MODEL NODE"
        guess = did_you_mean(code, CODES)
        raise UsageError("F203", f'there is no error code "{text}"', help=f"{guess} {listed}" if guess else listed)
    means, remedy = CODES[code]
    return {"schema": SCHEMA, "code": code, "means": means, "remedy": remedy}, [f"{code}  {means}", f"  {remedy}"]


def _node(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    base = {"schema": SCHEMA, "node": name}
    for o in plan["offloads"]:
        if name in o["nodes"] or name == o["id"]:
            return {**base, "place": "offload", "offload": o}
    for h in plan["host"]:
        if name == h["node"]:
            return {**base, "place": "host", "op": h["op"], "why_not": h["why_not"]}
    return {**base, "place": "absorbed", "by": next((a["by"] for a in plan["absorbed"] if name == a["node"]), "")}


def _node_lines(document: Mapping[str, Any]) -> list[str]:
    name = document["node"]
    if document["place"] == "host":
        return [f"{name} ({document['op']}) stays on the host", f"  because {document['why_not']}"]
    if document["place"] == "absorbed":
        return [f"{name} left no operation of its own: {document['by']}"]
    o = document["offload"]
    chain = [f"  {r['rule']:<32} {r['at']:<28} grade {r['grade']}, {r['covers']}" for r in o["because"]]
    shape = ", ".join(f"{d}={n}" for d, n in o["shape"].items())
    what = f"{name} stands for {', '.join(o['nodes'])}" if name == o["id"] else f"{name} is part of {o['id']}"
    calls = f"{o['device_calls']} device call{'s' if o['device_calls'] > 1 else ''}"
    return [f"{what}: {o['operation']} on {o['target']}, {shape}, {calls}, by", *chain]
