"""Every resource limit of the tool in one table; `--limits KEY=VALUE` overrides a row."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from .errors import UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MOST_DIGITS = 18  # of a limit: it is a word of 64 bits


def compact_repr(record: Any) -> str:
    """Return the constructor call of a dataclass instance with the fields that differ from their defaults."""
    arguments = []
    for f in fields(record):
        value = vars(record)[f.name]
        usual = f.default_factory() if callable(f.default_factory) else f.default
        if value != usual:
            arguments.append(f"{f.name}={value!r}")
    return f"{type(record).__name__}({', '.join(arguments)})"


@dataclass(frozen=True)
class Limits:
    """Upper bounds of one run's resources: bytes, counts or seconds, as the name of each field says."""

    model_bytes: int = 4 * GIB
    protobuf_bytes: int = 2 * GIB
    tensor_bytes: int = 2 * GIB
    folding_bytes: int = 64 * MIB
    nodes: int = 200_000
    operands: int = 32_768
    results: int = 8_192
    nesting: int = 64
    rank: int = 8
    e_nodes: int = 2_000_000
    rounds: int = 200
    saturation_seconds: int = 60
    saturation_bytes: int = 4 * GIB
    extraction_seconds: int = 60
    alternatives_seconds: int = 300
    solver_seconds: int = 5
    import_seconds: int = 10
    import_bytes: int = 4 * GIB
    host_seconds: int = 60
    data_bytes: int = 8 * GIB
    data_pixels: int = 1 << 28
    data_seconds: int = 300

    def __repr__(self) -> str:
        """Return the constructor call with the limits that differ from their defaults."""
        return compact_repr(self)

    def with_overrides(self, pairs: list[str]) -> Limits:
        """Return these limits with `KEY=VALUE` pairs applied.

        Raises:
            UsageError: a key names no limit, or a value is not a positive integer.
        """
        limit_names = {f.name for f in fields(self)}
        changes: dict[str, int] = {}
        for pair in pairs:
            key, _, value = pair.partition("=")
            if key not in limit_names:
                raise UsageError("F203", f'there is no limit called "{key}"', help=f"known limits: {', '.join(sorted(limit_names))}")
            if len(value) > MOST_DIGITS:
                raise UsageError("F203", f"limit {key} must have at most {MOST_DIGITS} digits, not {len(value)}")
            if not (value.isascii() and value.isdigit()) or int(value) == 0:
                raise UsageError("F203", f'limit {key} must be a positive integer, not "{value}"')
            changes[key] = int(value)
        return replace(self, **changes)


DEFAULT = Limits()
