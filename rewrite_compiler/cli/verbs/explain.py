"""flexmatch explain: the page of an error code, why a node of a model is offloaded or not, or what decides how a mapped layer runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError, did_you_mean
from ..error_codes import CODES
from ..files import page_file, write_atomically
from ..options import (
    STEERING,
    accelerators,
    add_steering_options,
    check_options_apply,
    compile_options,
    emit_json,
    parse_arguments,
    parser,
    plan_of,
)
from ..output import print_lines

if TYPE_CHECKING:
    from ...compile import Plan
    from ...compile.explanation.nodes import NodeRow

Explanation = tuple[dict[str, Any], list[str]]  # the document, and lines for people
SCHEMA = "flexmatch.explain/1"
MODELS, MAPPINGS, CODE = ("a model or plan",), ("a document of mappings",), "an error code"
SUBJECTS = {**dict.fromkeys(STEERING, MODELS), "why": MAPPINGS, "html": MAPPINGS}


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch explain` and return its exit code."""
    verb_parser = parser("explain", "Explain an error code, nodes of a model, or what map wrote of a layer.")
    what_help = "an error code, an application of `flexmatch list`, or a file: a model, a plan, what map wrote"
    verb_parser.add_model("what", metavar="CODE|MODEL|PLAN|MAP", help=what_help)
    verb_parser.add_argument(
        "node", nargs="?", metavar="NODE", help="its name, number from 0, operator or tensor, an offload, a glob such as '*conv*'; a layer"
    )
    verb_parser.add_argument("--why", metavar="LEVEL,TENSOR", help="say which loops bring a tensor to a memory, and which bring it again")
    verb_parser.add_output("--html", metavar="FILE", help="draw tiles, loops and reuse of mapped layers as one page, too")
    add_steering_options(verb_parser)
    args = parse_arguments(verb_parser, arguments)
    document, text = _explanation(args)
    emit_json(document, args.json)
    print_lines(args, text)
    return 0


def _explanation(args: argparse.Namespace) -> Explanation:
    """Explain what the first argument is: an error code, what `map` wrote, or a model."""
    if args.node is None and not Path(args.what).exists():
        check_options_apply(args, SUBJECTS, CODE)
        return _code(args.what)
    from .explain_map import mapping_explanation, mappings_in

    mappings = mappings_in(Path(args.what))
    check_options_apply(args, SUBJECTS, MODELS[0] if mappings is None else MAPPINGS[0])
    if mappings is None:
        return _model(args)
    document, text = mapping_explanation(mappings, args.what, args.node, args.why)
    if args.html is not None:
        from ...report.graphics.reuse import reuse_page

        write_atomically(page_file(args.html, reuse_page(document["layers"])))
    return {"schema": SCHEMA, **document}, text


def _model(args: argparse.Namespace) -> Explanation:
    """Explain one node of a model at length, several or all of them with a line each."""
    from ...compile import to_json
    from ...compile.explanation.nodes import node_rows, nodes_called

    plan = plan_of(args, Path(args.what))
    if args.node is None:
        return _node_table(args, node_rows(plan))
    names = nodes_called(plan, args.node)
    if not names:
        raise _unknown_node(plan, args.node)
    if len(names) > 1:
        return _node_table(args, [r for r in node_rows(plan) if r.node in names or {*r.offloads} & {*names}])
    document = _node(to_json(plan), names[0])
    return document, [
        *_node_lines(document),
        *_counterfactual_lines(args, document),
        *_derivation_lines(plan, document),
        *_range_lines(plan, document),
    ]


def _node_table(args: argparse.Namespace, rows: Sequence[NodeRow]) -> Explanation:
    """Show nodes with a line each, and say how to ask for more about one."""
    from ...report.tables import grid
    from ...report.terminal import table

    lines = grid(("#", "node", "operator", "went to"), [(str(r.number), r.node, r.op, _destination(r)) for r in rows], ("#",))
    hint = f"name one of them, such as {rows[0].node}: the rules that led there, or what is missing" if rows else "the model has no nodes"
    return {"schema": SCHEMA, "nodes": [{**vars(r), "offloads": list(r.offloads)} for r in rows]}, [*lines, *table([("more", hint)])]


def _destination(row: NodeRow) -> str:
    return ", ".join(row.offloads) if row.offloads else f"{'host' if row.place == 'host' else 'nowhere'}: {row.why}"


def _unknown_node(plan: Plan, name: str) -> UsageError:
    """Return the refusal of a name that nothing in a model has."""
    names = list(dict.fromkeys([*(o.id for o in plan.offloads), *(s.name for s in plan.source.sources)]))
    node_list = f"nodes: {', '.join(names[:20])}{' …' if len(names) > 20 else ''}"
    sentence = f'the model has no node, operator or tensor called "{name}"'
    return UsageError("F203", sentence, help=" ".join(filter(None, (did_you_mean(name, names), node_list))))


def _counterfactual_lines(args: argparse.Namespace, document: dict[str, Any]) -> list[str]:
    """Say what would offload a node of a model that stays on the host; every answer has been compiled."""
    from ...compile import is_plan
    from ...compile.counterfactuals import counterfactuals

    if document["place"] != "host" or is_plan(Path(args.what)):
        return []
    answers = counterfactuals(args.what, accelerators(args), document["node"], compile_options(args))
    document["counterfactuals"] = [{**vars(c), "becomes": list(c.becomes)} for c in answers]
    return [f"  {c}" for c in answers] or ["  no option of this command offloads it: lowerings and the other accelerators were tried"]


def _derivation_lines(plan: Plan, document: dict[str, Any]) -> list[str]:
    """Derive an offload again by its rules alone, check every step on random operands, and say what came out."""
    from ...compile.explanation.derivation_check import check_derivation

    if document["place"] != "offload":
        return []
    derivation = check_derivation(plan, next(o for o in plan.offloads if o.id == document["offload"]["id"]))
    document["replay"] = {
        **vars(derivation),
        "rules": None if derivation.rules is None else list(derivation.rules),
        "agrees": derivation.agrees,
    }
    return [f"  {derivation}"]


def _range_lines(plan: Plan, document: dict[str, Any]) -> list[str]:
    """Say which rules would match here, were they proved for operands of so many axes."""
    from ...compile.formats.operating_range import domain_exclusions

    document["outside"] = domain_exclusions(plan, document["node"])
    return [f"  {sentence}" for sentence in document["outside"]]


def _code(text: str) -> Explanation:
    code = text.upper()
    if code not in CODES and not text.isalnum():  # a path: a code is a letter and digits
        raise UsageError("F101", "there is no such file", place=text, help="give a plan or a model, or an error code")
    if code not in CODES:
        family = [c for c in CODES if c[0] == code[:1]] or list(CODES)
        code_list = f"codes: {', '.join(family)}; for a node give MODEL NODE"
        guess = did_you_mean(code, CODES)
        raise UsageError("F203", f'there is no error code "{text}"', help=f"{guess} {code_list}" if guess else code_list)
    meaning, remedy = CODES[code]
    return {"schema": SCHEMA, "code": code, "means": meaning, "remedy": remedy}, [f"{code}  {meaning}", f"  {remedy}"]


def _node(plan: Mapping[str, Any], name: str) -> dict[str, Any]:
    base = {"schema": SCHEMA, "node": name}
    for o in plan["offloads"]:
        if name in o["nodes"] or name == o["id"]:
            return {**base, "place": "offload", "offload": o}
    for h in plan["host"]:
        if name == h["node"]:
            return {**base, "place": "host", "op": h["op"], "why_not": h["why_not"]}
    return {**base, "place": "absorbed", "by": next((a["by"] for a in plan["absorbed"] if name == a["node"]), "")}


def _grade_text(reason: Mapping[str, Any]) -> str:
    """Return the grade of a rule, with the ratio of the sides' error bounds where it promises no more: A(2.5)."""
    ratio = reason["error_bound_ratio"]
    return reason["grade"] if ratio is None else f"{reason['grade']}({ratio:.3g})"


def _node_lines(document: Mapping[str, Any]) -> list[str]:
    name = document["node"]
    if document["place"] == "host":
        return [f"{name} ({document['op']}) stays on the host", f"  because {document['why_not']}"]
    if document["place"] == "absorbed":
        return [f"{name} left no operation of its own: {document['by']}"]
    o = document["offload"]
    chain = [f"  {r['rule']:<32} {r['at']:<28} grade {_grade_text(r)}, {r['covers']}" for r in o["because"]]
    shape = ", ".join(f"{d}={n}" for d, n in o["shape"].items())
    headline = f"{name} stands for {', '.join(o['nodes'])}" if name == o["id"] else f"{name} is part of {o['id']}"
    calls = f"{o['device_calls']} device call{'s' if o['device_calls'] > 1 else ''}"
    return [f"{headline}: {o['operation']} on {o['target']}, {shape}, {calls}, by", *chain]
