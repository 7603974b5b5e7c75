"""flexmatch show egraph: the e-classes around one node, with the rule that made each e-node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..files import check_outputs, page_file, write_whole
from ..options import accelerators, compile_options, emit_json, input_files, options, parser, steering, whole_number
from ..output import say

STEPS = 2


def run(arguments: Sequence[str]) -> int:
    """Run `show egraph`."""
    made = parser("show egraph", "Show part of a model's e-graph: the classes around a node, their e-nodes, the rules that made them.")
    made.add_argument("model", metavar="MODEL.onnx")
    steering(made)
    made.add_argument("--around", required=True, metavar="NODE", help="a node or value of the model")
    made.add_argument("--steps", type=whole_number(0), default=STEPS, metavar="N", help=f"classes up to N edges away (default: {STEPS})")
    made.add_argument("--rounds", type=whole_number(0), metavar="N", help="saturate N rounds only (default: to the end)")
    made.add_argument("--html", metavar="FILE", help="write one self-contained page")
    made.add_argument("--dot", metavar="FILE", help="write a graph for Graphviz")
    given = options(made, arguments, "model")
    files = [Path(f) for f in (given.html, given.dot) if f is not None]
    check_outputs(files, input_files(given, ("model",)))
    from ...report.egraph import egraph_dot, egraph_lines, egraph_page
    from ...study.neighbourhood import neighbourhood

    chosen = compile_options(given)
    if given.rounds is not None:
        chosen = replace(chosen, limits=replace(chosen.limits, rounds=given.rounds))
    document = neighbourhood(given.model, accelerators(given), chosen, given.around, given.steps)
    emit_json(document, given.json)
    if files:
        write_whole({**page_file(given.html, egraph_page(document)), **page_file(given.dot, egraph_dot(document))})
    say(given, [f"wrote     {f}" for f in files] if files else list(egraph_lines(document)))
    return 0
