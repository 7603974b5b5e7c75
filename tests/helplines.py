"""Help lines that add nothing: whatever refusal a test sees is looked at."""

from __future__ import annotations

import re
from functools import wraps
from typing import Any

from rewrite_compiler.errors import FlexmatchError, Problem

EMPTY = frozenset({"a", "an", "and", "at", "for", "in", "is", "it", "its", "of", "on", "or", "that", "the", "this", "to", "with"})


def adds_nothing(problem: Problem) -> bool:
    """Tell whether a help line has no word that its sentence does not have."""
    return bool(problem.help) and not words(problem.help) - words(problem.sentence)


def words(text: str) -> set[str]:
    """Return the words of a text that mean something."""
    return {w for w in re.findall(r"[\w.+-]*\w", text.lower()) if w not in EMPTY}


def look_at_help() -> None:
    """Let every refusal of this process that is raised with an idle help line fail where it is made."""
    make = FlexmatchError.__init__

    @wraps(make)
    def looked_at(self: FlexmatchError, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        assert not adds_nothing(self.problem), f"the help line says what the sentence says: {self.problem}"

    FlexmatchError.__init__ = looked_at  # type: ignore[method-assign]
