"""flexmatch show: a plan, with its accuracy when it was co-simulated, as text or one HTML page."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UsageError
from ...intake import MAX_DOCUMENT_BYTES, FileBound, MalformedText, parse_json, read_bytes
from ..files import check_outputs, page_file, write_atomically
from ..options import add_steering_options, emit_json, parse_arguments, parser, plan_of
from ..output import print_lines

if TYPE_CHECKING:
    from ...compile import Plan

COSIM = "flexmatch.cosim/1"
Verb = Callable[[Sequence[str]], int]


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch show` and return its exit code."""
    if arguments and arguments[0] in PARTS:
        return PARTS[arguments[0]]()(arguments[1:])
    verb_parser = parser("show", "Show a plan: what is offloaded, why, and why the rest is not; or another part of what is known.")
    verb_parser.add_argument(
        "plan", metavar="PLAN|MODEL|offload ID PLAN|egraph MODEL|target NAME|acg NAME|ila NAME|compare DOCUMENT …|config"
    )
    add_steering_options(verb_parser)
    verb_parser.add_argument("--cosim", metavar="FILE", help="the JSON that `flexmatch cosim --json FILE` wrote, for the accuracy")
    verb_parser.add_output("--html", metavar="FILE", help="write one self-contained page instead of text")
    verb_parser.add_output("--svg", metavar="FILE", help="write the graph as a drawing, too")
    verb_parser.add_output("--dot", metavar="FILE", help="write the graph for Graphviz, too")
    verb_parser.add_argument("--open", action="store_true", help="write the page (default: NAME.html here) and open it in a browser")
    args = parse_arguments(verb_parser, arguments)
    if args.open and args.html is None:
        args.html = f"{Path(args.plan).stem}.html"
        check_outputs([Path(args.html)], args.inputs)
    from ...compile import to_json
    from ...report.page.html import report_page
    from ...report.terminal import cosim_lines, plan_lines

    plan = plan_of(args, Path(args.plan))
    document = to_json(plan)
    cosim = None if args.cosim is None else read_cosim(Path(args.cosim), document)
    emit_json(document, args.json)
    _draw(args, plan, document)
    if args.html is not None:
        write_atomically(page_file(args.html, report_page(plan, cosim, document)))
        print_lines(args, [f"wrote     {args.html}"])
        return _open_page(Path(args.html)) if args.open else 0
    print_lines(args, [*plan_lines(document, verbose=args.verbose), *([] if cosim is None else ["", *cosim_lines(cosim)])])
    return 0


def _acg() -> Verb:
    from .show_acg import run

    return run


def _compare() -> Verb:
    from .show_compare import run

    return run


def _config() -> Verb:
    from .show_config import run

    return run


def _egraph() -> Verb:
    from .show_egraph import run

    return run


def _ila() -> Verb:
    from .show_ila import run

    return run


def _offload() -> Verb:
    from .show_offload import run

    return run


def _target() -> Verb:
    from .show_target import run

    return run


PARTS: Mapping[str, Callable[[], Verb]] = {
    "acg": _acg, "compare": _compare, "config": _config, "egraph": _egraph, "ila": _ila, "offload": _offload, "target": _target,
}  # fmt: skip


def _draw(args: argparse.Namespace, plan: Plan, document: Mapping[str, Any]) -> None:
    """Write the graph as files of its own, where that is asked for."""
    if args.svg is None and args.dot is None:
        return
    from ...report.graphics.drawing import graph_dot, graph_svg
    from ...report.graphics.graph import graph_of

    graph, targets = graph_of(plan, document), [t.name for t in plan.targets]
    name = Path(plan.model["path"]).name
    write_atomically({**page_file(args.svg, graph_svg(graph, targets)), **page_file(args.dot, graph_dot(name, graph, targets))})
    print_lines(args, [f"wrote     {f}" for f in (args.svg, args.dot) if f is not None])


def _open_page(path: Path) -> int:
    """Open a page in the browser of this machine; UsageError when there is none."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        raise UsageError("F100", f"{path} was written, and no browser could be started", help="open the file yourself")
    return 0


def read_cosim(path: Path, plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document of a co-simulation of the plan's model.

    Raises:
        InputError: the file is not JSON (F103), of another schema, or about another model (C100).
    """
    remedy = "run flexmatch cosim again"
    try:
        document = parse_json(read_bytes(path, FileBound("a report", MAX_DOCUMENT_BYTES, remedy)))
    except MalformedText as error:
        raise InputError("F103", f"the file is not JSON: {error}", place=str(path), help=remedy) from None
    if not isinstance(document, dict) or document.get("schema") != COSIM:
        raise InputError("C100", f'Schema of a report must be "{COSIM}"', place=str(path), help=remedy)
    from ...compile.plan.schema_check import REPORT, misfit

    mismatch = misfit(document, REPORT, "report")
    if mismatch:
        raise InputError("C100", mismatch, place=str(path), help=remedy)
    if document["model"]["sha256"] != plan["model"]["sha256"]:
        raise InputError("C100", "the report is about another model", place=str(path), help=remedy)
    return document
