"""E-graphs of small programs, without the worker process."""

from __future__ import annotations

from collections.abc import Sequence

from rewrite_compiler import Rule
from rewrite_compiler.egraph.extraction.decode import extracted_program
from rewrite_compiler.egraph.extraction.extract import extract
from rewrite_compiler.egraph.graph.encode import program_items
from rewrite_compiler.egraph.graph.graph import EGraph, ENode
from rewrite_compiler.egraph.saturation.engine import Engine
from rewrite_compiler.egraph.saturation.staged_match import rule_commands
from rewrite_compiler.ir.program import Program, Value


def engine_of(p: Program, rules: Sequence[Rule] = ()) -> Engine:
    commands = dict.fromkeys(c for n, r in enumerate(rules) for c in rule_commands(r, n))
    return Engine([], commands, program_items(p))


def saturated(p: Program, rules: Sequence[Rule] = (), rounds: int = 20) -> EGraph:
    engine = engine_of(p, rules)
    for _ in range(rounds):
        if not engine.run_round("ir"):
            break
    engine.run_round("late")
    return engine.snapshot()


def price(c: int, node: ENode) -> tuple[int]:
    """Every e-node costs 1, so that a program is its own cheapest choice when there is no other."""
    return (1,)


def extracted(p: Program, graph: EGraph, rules: Sequence[Rule] = (), seconds: float = 2.0) -> tuple[Program, dict[Value, ENode]]:
    """Return the program of the fewest operators that is found in the time given."""

    def cost(c: int, node: ENode) -> tuple[int]:
        return (0,) if graph.classes[c].fixed else price(c, node)

    choice = extract(graph, [graph.values[v] for v in p.outputs], cost, seconds).choice
    return extracted_program(p, graph, choice, {}, rules)
