"""flexmatch show target: the resources of an accelerator, and its operations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..files import write_atomically
from ..options import emit_json, parse_arguments, parser
from ..output import print_lines

SCHEMA = "flexmatch.target/1"


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch show target` and return its exit code."""
    verb_parser = parser("show target", "Show the memories, units, links and clock of an accelerator, and its operations.")
    verb_parser.add_argument("name", metavar="NAME[:key=value,…]")
    verb_parser.add_output("--dot", metavar="FILE", help="write the architecture graph for Graphviz, too")
    args = parse_arguments(verb_parser, arguments)
    from ...report.graphics.architecture import architecture_dot, resource_rows
    from ...report.terminal import table
    from ...target import find_target, resource_document

    target = find_target(args.name)
    resources = target.resources()
    operations = [
        {"name": m.name, "operation": m.operation, "units": dict(m.units), "priced": m.price is not None} for m in target.mappings.values()
    ]
    document = {
        "schema": SCHEMA, "name": target.name, "parameters": target.values, "sha256": target.sha256, "operations": operations,
        "resources": None if resources is None else resource_document(resources),
        "macros": [{"name": m.name, "reason": m.reason, "steps": [*m.steps], "place": m.place} for m in target.macros.values()],
    }  # fmt: skip
    emit_json(document, args.json)
    if args.dot is not None and resources is not None:
        write_atomically({Path(args.dot): architecture_dot(target.name, resources).encode()})
    parameters = ", ".join(f"{key}={value}" for key, value in target.values.items()) or "no parameters"
    resource_lines = [("resources", "none declared: no cost is known")] if resources is None else list(resource_rows(resources))
    operation_names = ", ".join(dict.fromkeys(m.operation for m in target.mappings.values()))
    macros = [(f"macro {m.name}", f"{', '.join(m.steps)}: {m.reason}") for m in target.macros.values()]
    print_lines(args, [f"{target.name}  {parameters}", *table([("operations", operation_names), *resource_lines, *macros])])
    return 0
