"""Staged matching of rules on a chain: two applications of a multi-output operator, one of which reads results of the other.

Layers of one recurrence share their weights, and a join on these enumerates all pairs of layers, which is too slow at 500 steps. So
one auxiliary relation holds the pairs by def-use, a second one adds their operands, and the rule begins with the second relation.
Rules with the same chain share its relations.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache

from ...rewrite.rule import Rule
from ..graph.schema import string_literal
from .rule_text import RuleBuilder, TupleAtom, compile_rule, rule_command

STAGE = "stage-"  # what the names of stages begin with: they are no rules


@cache
def rule_commands(rule: Rule, number: int) -> tuple[str, ...]:
    """Return the commands of a rule, those of its stages first; duplicates among several rules are to be run once."""
    t = compile_rule(rule, number)
    chain = _chain(t) if rule.phase == "fold" else None
    if chain is None:
        return (rule_command(t, rule.phase),)
    last, first = chain
    links = {e: result for e, result in t.results.items() if e in last.arguments and result[0] == first.name}
    stages, atom = _stages(last, first, links)
    replaced = {last.atom, first.atom, *(f"(= {e} (Result {m} {k}))" for e, (m, k) in links.items())}
    remaining_atoms = [a for a in t.body if a not in replaced]
    text = " ".join([*remaining_atoms, *t.head])
    used_links = [f"(= {e} (Result {m} {k}))" for e, (m, k) in links.items() if re.search(rf"\b{e}\b", text)]
    t.body = [atom, *used_links, *remaining_atoms]
    return *stages, rule_command(t, rule.phase)


def _chain(t: RuleBuilder) -> tuple[TupleAtom, TupleAtom] | None:
    """Return the two applications of a chain, the reader first; None unless the pattern has exactly one."""
    rows = {row.name: row for row in t.rows}
    pairs = {
        (row.name, m): (row, rows[m])
        for row in t.rows for e in row.arguments
        if (m := t.results.get(e, ("", 0))[0]) in rows and rows[m].constructor == row.constructor
    }  # fmt: skip
    return next(iter(pairs.values())) if len(pairs) == 1 else None


def _stages(last: TupleAtom, first: TupleAtom, links: dict[str, tuple[str, int]]) -> tuple[list[str], str]:
    """Return the commands of the stages, with canonical variables, and the atom that replaces the chain in the rule."""
    variables = list(
        dict.fromkeys(a for a in (last.name, first.name, *last.arguments, *first.arguments) if _is_variable(a) and a not in links)
    )
    names = {a: f"x{n}" for n, a in enumerate((*variables, *links))}
    sorts = {**dict.fromkeys((last.name, first.name), "X"), **last.sorts, **first.sorts}

    def renamed(text: str) -> str:
        return re.sub(r"\w+", lambda m: names.get(m.group(), m.group()), text)

    pair, chain_arguments = renamed(f"{last.name} {first.name}"), renamed(" ".join(variables))
    results = " ".join(renamed(f"(= {e} (Result {m} {k}))") for e, (m, k) in links.items())
    atoms = f"{renamed(last.atom)} {renamed(first.atom)}"
    key = f"{last.constructor.name}_{hashlib.sha256(f'{results} {atoms} {chain_arguments}'.encode()).hexdigest()[:8]}"
    return [
        f"(relation After_{key} (X X))",
        f"(relation Chain_{key} ({' '.join(sorts[a] for a in variables)}))",
        _rule(f"after_{key}", f"{results} {renamed(last.atom)}", f"(After_{key} {pair})"),
        _rule(f"chain_{key}", f"(After_{key} {pair}) {atoms}", f"(Chain_{key} {chain_arguments})"),
    ], f"(Chain_{key} {' '.join(variables)})"


def _rule(name: str, body: str, head: str) -> str:
    return f"(rule ({body}) ({head}) :ruleset fold :name {string_literal(STAGE + name)})"


def _is_variable(argument: str) -> bool:
    return argument.isidentifier()
