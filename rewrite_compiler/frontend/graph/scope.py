"""Where nodes stand while a graph is lowered: the names they see, the operator sets they are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ir.program import Value


@dataclass
class Scope:
    """The names visible in one graph or function body."""

    values: dict[str, Value] = field(default_factory=dict)
    outer: Scope | None = None
    prefix: str = ""

    def find(self, name: str) -> Value | None:
        """Return the value of a name, looking outwards."""
        if name in self.values:
            return self.values[name]
        return self.outer.find(name) if self.outer else None


@dataclass(frozen=True)
class Body:
    """Where nodes stand: their scope, their operator sets, the source node they belong to, how deep, what is declared."""

    scope: Scope
    imports: Mapping[str, int]
    origin: int | None = None
    depth: int = 0
    declared: Mapping[str, Any] = field(default_factory=dict)
