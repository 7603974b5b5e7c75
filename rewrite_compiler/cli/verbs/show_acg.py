"""flexmatch show acg: the architecture covenant graph of an accelerator, read from its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..files import write_atomically
from ..options import emit_json, parse_arguments, parser
from ..output import print_lines

SCHEMA = "flexmatch.acg/1"


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch show acg` and return its exit code."""
    verb_parser = parser("show acg", "Show storages, edges and capabilities of an accelerator, as its model has them.")
    verb_parser.add_argument("name", metavar="NAME[:key=value,…]|FILE")
    verb_parser.add_output("--dot", metavar="FILE", help="write the graph for Graphviz, too")
    args = parse_arguments(verb_parser, arguments)
    from ...report.graphics.acg import acg_document, acg_dot, acg_rows
    from ...report.terminal import table
    from ...target.acg import acg_of

    graph = acg_of(args.name)
    emit_json({"schema": SCHEMA, **acg_document(graph)}, args.json)
    if args.dot is not None:
        write_atomically({Path(args.dot): acg_dot(graph).encode()})
    sizes = f"{len(graph.storages)} storages, {len(graph.edges)} edges, {len(graph.units)} units"
    print_lines(args, [f"{graph.name}  {sizes}", *table(list(acg_rows(graph)))])
    return 0
