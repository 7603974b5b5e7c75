"""flexmatch show offload ID PLAN: program fragment, ILA instructions and MMIO commands of one offload, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..options import add_steering_options, emit_json, parse_arguments, parser, plan_of, whole_number
from ..output import print_unwrapped

SCHEMA = "flexmatch.offload/1"


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch show offload` and return its exit code.

    Raises:
        UsageError: --call is beyond the offload's calls (F203).
    """
    verb_parser = parser("show offload", "Show what one offload means, its instructions and its commands, for inputs of zeros.")
    verb_parser.add_argument("offload", metavar="ID")
    verb_parser.add_argument("plan", metavar="PLAN")
    add_steering_options(verb_parser)
    verb_parser.add_argument("--call", type=whole_number(0), default=0, metavar="N", help="which call of a tiled offload (default 0)")
    verb_parser.add_argument("--trace", action="store_true", help="show every command, also the middle of long runs")
    args = parse_arguments(verb_parser, arguments)
    from ...emit.mmio.listing import fragment, offload_of, rows, side_by_side
    from ...emit.mmio.trace import traces_of

    plan = plan_of(args, Path(args.plan))
    o = offload_of(plan, args.offload)
    if args.call >= o.tiling.calls:
        from ...errors import UsageError

        raise UsageError("F203", f"--call must be below {o.tiling.calls}, the calls of {o.id}, not {args.call}")
    emitted = traces_of(plan)[o.target.name]
    program, commands = fragment(plan, o), rows(emitted.trace, emitted.ila, o.id, call=args.call, is_complete=args.trace)
    document = {
        "schema": SCHEMA, "id": o.id, "target": o.target.name, "operation": o.mapping.operation, "program": program,
        "call": args.call, "calls": o.tiling.calls, "commands": [vars(r) for r in commands],
    }  # fmt: skip
    emit_json(document, args.json)
    calls = f", call {args.call} of {o.tiling.calls}" if o.tiling.calls > 1 else ""
    print_unwrapped(args, "\n".join([f"{o.id}  {o.mapping.name}{calls}", "", *side_by_side(program, commands)]))
    return 0
