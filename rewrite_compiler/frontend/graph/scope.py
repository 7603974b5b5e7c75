"""Lexical scopes of an import: visible names and operator sets of a graph or function body."""

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
    sequences: dict[str, tuple[Value, ...]] = field(default_factory=dict)

    def find_sequence(self, name: str) -> tuple[Value, ...] | None:
        """Return the tensors of a sequence, searching enclosing scopes; None when no sequence has this name."""
        if name in self.sequences:
            return self.sequences[name]
        return self.outer.find_sequence(name) if self.outer else None

    def find(self, name: str) -> Value | None:
        """Return the value of a name, searching enclosing scopes; None when it is undefined."""
        if name in self.values:
            return self.values[name]
        return self.outer.find(name) if self.outer else None


@dataclass(frozen=True)
class NodeContext:
    """The context of nodes: their scope, operator sets, source node, nesting depth, and declared types by name."""

    scope: Scope
    imports: Mapping[str, int]
    origin: int | None = None
    depth: int = 0
    declared: Mapping[str, Any] = field(default_factory=dict)
