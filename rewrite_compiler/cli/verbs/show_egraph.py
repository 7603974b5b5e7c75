"""flexmatch show egraph: the e-classes around one node, with the rule that made each e-node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..files import page_file, write_atomically
from ..options import accelerators, add_steering_options, compile_options, emit_json, parse_arguments, parser, whole_number
from ..output import print_lines

STEPS = 2


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch show egraph` and return its exit code."""
    verb_parser = parser(
        "show egraph", "Show part of a model's e-graph: the classes around a node, their e-nodes, the rules that made them."
    )
    verb_parser.add_model("model", metavar="MODEL.onnx")
    add_steering_options(verb_parser)
    verb_parser.add_argument("--around", required=True, metavar="NODE", help="a node or value of the model")
    verb_parser.add_argument(
        "--steps", type=whole_number(0), default=STEPS, metavar="N", help=f"classes up to N edges away (default: {STEPS})"
    )
    verb_parser.add_argument("--rounds", type=whole_number(0), metavar="N", help="saturate N rounds only (default: to the end)")
    verb_parser.add_output("--html", metavar="FILE", help="write one self-contained page")
    verb_parser.add_output("--dot", metavar="FILE", help="write a graph for Graphviz")
    args = parse_arguments(verb_parser, arguments)
    files = [Path(f) for f in (args.html, args.dot) if f is not None]
    from ...report.page.egraph import egraph_dot, egraph_lines, egraph_page
    from ...study.laws.neighbourhood import neighbourhood

    plan_options = compile_options(args)
    if args.rounds is not None:
        plan_options = replace(plan_options, limits=replace(plan_options.limits, rounds=args.rounds))
    document = neighbourhood(args.model, accelerators(args), plan_options, args.around, args.steps)
    emit_json(document, args.json)
    if files:
        write_atomically({**page_file(args.html, egraph_page(document)), **page_file(args.dot, egraph_dot(document))})
    print_lines(args, [f"wrote     {f}" for f in files] if files else list(egraph_lines(document)))
    return 0
