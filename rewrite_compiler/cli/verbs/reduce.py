"""flexmatch reduce: a smaller model that shows the same problem."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..files import check_outputs, write_atomically
from ..options import accelerators, add_steering_options, compile_options, emit_json, parse_arguments, parser, whole_number
from ..output import print_lines


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch reduce` and return its exit code."""
    verb_parser = parser("reduce", "Leave nodes out of a model while it still shows a problem; every shape stays.")
    verb_parser.add_model("model", metavar="MODEL.onnx")
    checks = "crash|mismatch|not-offloaded|COMMAND"
    verb_parser.add_argument("--check", required=True, metavar=checks, help="the problem; a command gets the model's path and ends with 0")
    verb_parser.add_argument(
        "--node", default="", metavar="NODE", help="for not-offloaded: this node (default: the first on the host with work)"
    )
    verb_parser.add_argument("--tests", type=whole_number(1), default=200, metavar="N", help="run the check at most N times (default 200)")
    verb_parser.add_output("-o", "--output", metavar="FILE", help="write the model there (default: MODEL.reduced.onnx here)")
    add_steering_options(verb_parser)
    args = parse_arguments(verb_parser, arguments)
    model = Path(args.model)
    target = Path(args.output or f"{model.stem}.reduced.onnx")
    check_outputs([target], args.inputs)
    from ...compile import chosen_targets
    from ...report.terminal import count_text
    from ...study.laws.reduce import Question, reduce_model, reduction_document

    names = accelerators(args)
    chosen_targets(names)
    question = Question(args.check, tuple(names), args.node, compile_options(args), args.tests)
    reduced = reduce_model(model, question)
    write_atomically({target: reduced.onnx})
    emit_json(reduction_document(reduced, question, model, target), args.json)
    ops = f"{reduced.ops_before} → {reduced.ops_after} ops after {count_text(reduced.tests, 'test')}"
    print_lines(args, [f"{model.name}  {ops}", f"shows     {reduced.outcome}", f"wrote     {target}"])
    return 0
