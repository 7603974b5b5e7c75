"""Rulesets: the shipped rules, and rules from modules."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from ..errors import InputError, SpecError
from ..limits import Limits
from .installed_rules import installed_rules, is_installed, rules_of
from .rule import Rule
from .user_file import module_at

SHIPPED = "rewrite_compiler.rules"
TEXT_FORM = ".rules"
LOWERING = "lowering"  # the name of the shipped rules that are used only when asked for


def rules_in(module: ModuleType) -> Iterator[Rule]:
    """Yield the rules a module defines, in order of definition."""
    yield from rules_of(module)


def shipped_rules() -> tuple[Rule, ...]:
    """Return the shipped rules that are always used."""
    return tuple(r for r in every_rule() if LOWERING not in r.marks)


def lowering_rules() -> tuple[Rule, ...]:
    """Return the shipped rules that are used only when asked for."""
    return tuple(r for r in every_rule() if LOWERING in r.marks)


def every_rule() -> tuple[Rule, ...]:
    """Return every shipped rule, lowerings included."""
    package = importlib.import_module(SHIPPED)
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    return unique_rules(r for n in names for r in rules_in(importlib.import_module(f"{SHIPPED}.{n}")))


HOW_TO_BEGIN = ("decorate a function with @rule", "write rule NAME(x: tensor) { left = right }")


def rules_at(path: Path, limits: Limits | None = None) -> tuple[Rule, ...]:
    """Return the rules of a user's file (Python, or the text form ending in .rules), of an entry point, or of `lowering`.

    Raises:
        InputError: R101, the file defines no rule.
        SpecError: R104, two rules have one name.
    """
    if str(path) == LOWERING and not path.exists():
        return lowering_rules()
    if is_installed(path):
        return installed_rules(str(path))
    rules = _rules_of_text(path) if path.suffix == TEXT_FORM else _rules_of_code(path, limits)
    if not rules:
        raise InputError("R101", "the rule file defines no rule", place=str(path), help=HOW_TO_BEGIN[path.suffix == TEXT_FORM])
    return unique_rules(rules)


def _rules_of_text(path: Path) -> tuple[Rule, ...]:
    from .text_file import rules_of_file

    try:
        return rules_of_file(path)
    except RecursionError:  # a chain of operators or members is as deep as it is long
        sentence = "a term of the rule file has too many operators or members one after another"
        raise InputError("R100", sentence, place=str(path), help="name parts of it by let") from None


def _rules_of_code(path: Path, limits: Limits | None) -> tuple[Rule, ...]:
    rules = tuple(rules_in(module_at(path, "rule", "F101", limits)))
    _check_functions(path)
    return rules


def _check_functions(path: Path) -> None:
    """Refuse a file in which a decorated function takes the place of another, which Python would say nothing of."""
    first: dict[str, int] = {}
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            if node.name in first:
                place, remedy = f"{path}:{node.lineno}", f"the first is at line {first[node.name]}"
                raise SpecError("R104", f'there are two rules called "{node.name}"', place=place, help=remedy)
            first[node.name] = node.lineno


def unique_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return rules as a set with unique names.

    Raises:
        SpecError: two have one name.
    """
    by_name: dict[str, Rule] = {}
    for r in rules:
        if r.name in by_name and by_name[r.name] is not r:
            raise SpecError(
                "R104", f'there are two rules called "{r.name}"', place=r.place, help=f"the first is at {by_name[r.name].place}"
            )
        by_name[r.name] = r
    return tuple(by_name.values())
