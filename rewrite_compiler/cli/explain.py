"""flexmatch explain: the page of an error code, or why a node of a model went where it did."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, did_you_mean
from .codes import CODES
from .common import accelerators, compile_options, emit_json, options, parser, plan_of, steering
from .output import say

if TYPE_CHECKING:
    from ..compile import Plan

SCHEMA = "flexmatch.explain/1"


def run(arguments: Sequence[str]) -> int:
    """Run the verb."""
    made = parser("explain", "Explain an error code, or one node of a model.")
    made.add_argument("what", metavar="CODE|MODEL|PLAN")
    made.add_argument("node", nargs="?", metavar="NODE")
    steering(made)
    given = options(made, arguments, "what")
    if given.node is None:
        document = _code(given.what)
        text = [f"{document['code']}  {document['means']}", f"  {document['remedy']}"]
    else:
        from ..compile import to_json

        plan = plan_of(given, Path(given.what))
        document = _node(to_json(plan), given.node)
        text = [*_node_lines(document), *_otherwise(given, document), *_replayed(plan, document), *_outside(plan, document)]
    emit_json(document, given.json)
    say(given, text)
    return 0


def _otherwise(given: argparse.Namespace, document: dict[str, Any]) -> list[str]:
    """Say what would offload a node of a model that stays on the host; every answer has been compiled."""
    from ..compile import is_plan
    from ..compile.counterfactual import counterfactuals

    if document["place"] != "host" or is_plan(Path(given.what)):
        return []
    found = counterfactuals(given.what, accelerators(given), given.node, compile_options(given))
    document["counterfactuals"] = [{**vars(c), "becomes": list(c.becomes)} for c in found]
    return [f"  {c}" for c in found] or ["  no option of this command offloads it: lowerings and the other accelerators were tried"]


def _replayed(plan: Plan, document: dict[str, Any]) -> list[str]:
    """Derive an offload again by its rules alone, check every step on random operands, and say what came out."""
    from ..compile.replay import replay

    if document["place"] != "offload":
        return []
    found = replay(plan, next(o for o in plan.offloads if o.id == document["offload"]["id"]))
    document["replay"] = {**vars(found), "rules": None if found.rules is None else list(found.rules), "agrees": found.agrees}
    return [f"  {found}"]


def _outside(plan: Plan, document: dict[str, Any]) -> list[str]:
    """Say which rules would match here, were they proved for operands of so many axes."""
    from ..compile.outside import outside

    document["outside"] = outside(plan, document["node"])
    return [f"  {sentence}" for sentence in document["outside"]]


def _code(text: str) -> dict[str, Any]:
    code = text.upper()
    if Path(text).exists():
        raise UsageError("F203", "NODE is missing", place=text, help=f"flexmatch explain {text} NODE says where a node of the model went")
    if code not in CODES:
        family = [c for c in CODES if c[0] == code[:1]] or list(CODES)
        listed = f"codes: {', '.join(family)}; for a node give MODEL NODE"
        guess = did_you_mean(code, CODES)
        raise UsageError("F203", f'there is no error code "{text}"', help=f"{guess} {listed}" if guess else listed)
    means, remedy = CODES[code]
    return {"schema": SCHEMA, "code": code, "means": means, "remedy": remedy}


def _node(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    base = {"schema": SCHEMA, "node": name}
    for o in plan["offloads"]:
        if name in o["nodes"] or name == o["id"]:
            return {**base, "place": "offload", "offload": o}
    for h in plan["host"]:
        if name == h["node"]:
            return {**base, "place": "host", "op": h["op"], "why_not": h["why_not"]}
    for a in plan["absorbed"]:
        if name == a["node"]:
            return {**base, "place": "absorbed", "by": a["by"]}
    known = [
        *(n for o in plan["offloads"] for n in (o["id"], *o["nodes"])),
        *(r["node"] for key in ("host", "absorbed") for r in plan[key]),
    ]
    listed = f"nodes: {', '.join(known[:20])}{' …' if len(known) > 20 else ''}"
    raise UsageError("F203", f'the model has no node called "{name}"', help=" ".join(filter(None, (did_you_mean(name, known), listed))))


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
