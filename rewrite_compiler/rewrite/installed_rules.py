"""Rules of installed packages, by entry point of the group `rewrite_compiler.rules`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from .entry_points import installed_entries
from .rule import Rule

GROUP = "rewrite_compiler.rules"


def installed_names() -> list[str]:
    """Return the names under which installed packages offer rules."""
    return sorted({e.name for e in installed_entries(GROUP)})


def is_installed(path: Path) -> bool:
    """Tell whether something is the name of installed rules and not a file."""
    return not path.suffix and path.name == str(path) and not path.exists() and str(path) in installed_names()


def installed_rules(name: str) -> tuple[Rule, ...]:
    """Return the rules of an entry point: a module, a rule, or several."""
    entry = next(e for e in installed_entries(GROUP) if e.name == name)
    return tuple({id(r): r for r in rules_of(entry.load())}.values())  # a module may name a rule twice


def rules_of(value: object) -> Iterator[Rule]:
    """Yield the rules that a value holds: a rule, a sequence of them, or a module, in order of definition."""
    if isinstance(value, Rule):
        yield value
    elif isinstance(value, tuple | list):
        yield from (v for v in value if isinstance(v, Rule))
    elif isinstance(value, ModuleType):
        for member in vars(value).values():
            yield from rules_of(member) if isinstance(member, Rule | tuple | list) else ()
