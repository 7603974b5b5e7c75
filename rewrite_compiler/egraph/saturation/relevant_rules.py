"""Relevance of rules: a rule can match only if the program, or the actions of other relevant rules, have its operators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...ir.program import Program
from ...ops import OPS
from ..graph.schema import op_constructor

OPERATOR = re.compile(r"\((o_\w+) ")
STAGED = re.compile(r"\((?:After|Chain)_(o_\w+)_[0-9a-f]{8} ")  # relations of `staged_match`
ALWAYS = ("full", "reshape", "transpose")  # of uniform constants and of layouts between regions


def constructors_of(p: Program) -> set[str]:
    """Return the names of the constructors of a program's e-nodes."""
    ops = {n.operator for n in p.nodes if n.operator is not None}
    return {op_constructor(op).name for op in (*ops, *(OPS[name] for name in ALWAYS))}


def relevant_commands(rules: Sequence[Sequence[str]], core: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return the commands of the relevant rules without duplicates, and all operators that can occur: a fixed point from `core`.

    The last command of a rule is the rule itself, those before it are stages of its query.
    """
    reachable, pending, relevant_numbers = set(core), dict(enumerate(map(_operators_of, rules))), set[int]()
    while new := [n for n, (query_operators, _) in pending.items() if query_operators <= reachable]:
        for n in new:
            reachable |= pending.pop(n)[1]
            relevant_numbers.add(n)
    return list(dict.fromkeys(command for n, commands in enumerate(rules) if n in relevant_numbers for command in commands)), reachable


def query_operators(command: str) -> set[str]:
    """Return the operators that e-nodes must have where the query of a command matches, those of the stages that it reads as well."""
    query, _, _ = command.partition("\n (")
    return {*OPERATOR.findall(query), *STAGED.findall(query)} if command.startswith("(rule ") else set()


def _operators_of(commands: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the operators in the query of a rule and in its actions."""
    *stages, text = commands
    query, _, actions = text.partition("\n (")
    return set(OPERATOR.findall("".join([*stages, query]))), set(OPERATOR.findall(actions))
