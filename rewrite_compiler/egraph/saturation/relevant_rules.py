"""Which rules can ever match: those whose operators the program has, or other such rules make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...ir.program import Program
from ...ops import OPS
from ..graph.schema import op_constructor

OPERATOR = re.compile(r"\((o_\w+) ")
ALWAYS = ("full", "reshape", "transpose")  # of uniform constants and of layouts between regions


def present(p: Program) -> set[str]:
    """Return the constructors that a program is loaded as."""
    found = {n.operator for n in p.nodes if n.operator is not None}
    return {op_constructor(op).name for op in (*found, *(OPS[name] for name in ALWAYS))}


def relevant(rules: Sequence[Sequence[str]], core: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return the commands, each once, of the rules that can match where a program has some operators, and all operators there can be.

    The last command of a rule is the rule itself, those before it are stages of its query.
    """
    there, waiting, used = set(core), dict(enumerate(map(_read_and_made, rules))), set[int]()
    while new := [n for n, (read, _) in waiting.items() if read <= there]:
        for n in new:
            there |= waiting.pop(n)[1]
            used.add(n)
    return list(dict.fromkeys(command for n, commands in enumerate(rules) if n in used for command in commands)), there


def _read_and_made(commands: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the operators in the query of a rule and in its actions."""
    *stages, text = commands
    query, _, actions = text.partition("\n (")
    return set(OPERATOR.findall("".join([*stages, query]))), set(OPERATOR.findall(actions))
