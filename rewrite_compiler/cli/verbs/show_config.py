"""flexmatch show config: every setting, its value, and where that came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import PREFIX, read_configuration
from ..options import Parser, add_steering_options, emit_json, parse_arguments, parser
from ..output import print_lines
from .cosim import add_simulation_options

SCHEMA = "flexmatch.config/1"


def run(arguments: Sequence[str]) -> int:
    """Run `flexmatch show config` and return its exit code."""
    verb_parser = config_parser()
    args = parse_arguments(verb_parser, arguments)
    settings = [{"key": key, "value": vars(args)[key], "origin": args.origins[key]} for key in sorted(verb_parser.settings)]
    file = read_configuration(Path.cwd()).name or None
    emit_json({"schema": SCHEMA, "file": file, "settings": settings}, args.json)
    from ...report.tables import grid

    rows = [(row["key"], _text(row["value"]), row["origin"]) for row in settings]
    print_lines(args, [f"file: {file or 'none'}; environment: {PREFIX}KEY", *grid(("setting", "value", "from"), rows)])
    return 0


def config_parser() -> Parser:
    """Return a parser with every option that configuration may set."""
    verb_parser = parser("show config", "Show every setting and where its value came from: flag, environment, file or default.")
    add_steering_options(verb_parser)
    add_simulation_options(verb_parser)
    return verb_parser


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
