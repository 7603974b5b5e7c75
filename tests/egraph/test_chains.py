"""Rules on two layers of a recurrence: matched in stages they find what they find at once."""

from __future__ import annotations

from collections import Counter

from in_process import engine_of

from rewrite_compiler import Rule
from rewrite_compiler.egraph.graph.encode import program_items
from rewrite_compiler.egraph.graph.graph import EGraph
from rewrite_compiler.egraph.saturation.engine import Engine
from rewrite_compiler.egraph.saturation.rule_text import rule_text
from rewrite_compiler.egraph.saturation.staged_match import STAGE, rule_commands
from rewrite_compiler.ir.program import Builder, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.rewrite.ruleset import shipped_rules

FOLDS = [r for r in shipped_rules() if r.phase == "fold"]
STEPS = 6


def steps_of_a_layer() -> Program:
    """An LSTM step by step, each a layer of one step."""
    b = Builder("steps")
    s, h, c = b.input("s", TensorType((STEPS, 1, 3))), b.input("h", TensorType((1, 2))), b.input("c", TensorType((1, 2)))
    weights = [b.input(name, TensorType(shape)) for name, shape in {"w": (8, 3), "r": (8, 2), "b": (16,)}.items()]
    for t in range(STEPS):
        (x,) = b.apply("slice", [s], {"axis": 0, "start": t, "stop": t + 1})
        _, h, c = b.apply("lstm", [x, *weights, h, c])
    return b.finish([h, c])


def folded(engine: Engine) -> EGraph:
    for _ in range(10):
        engine.run_untyped("fold", 10)
    return engine.snapshot()


def contents(graph: EGraph) -> Counter[str]:
    return Counter(n.op for c in graph.classes.values() for n in c.nodes)


def test_stages_find_what_the_whole_pattern_finds() -> None:
    p = steps_of_a_layer()
    at_once = folded(Engine([], [rule_text(r, n) for n, r in enumerate(FOLDS)], program_items(p)))
    in_stages = folded(engine_of(p, FOLDS))
    assert contents(in_stages) == contents(at_once)
    assert in_stages.values == at_once.values


def test_rules_with_one_chain_share_its_stages() -> None:
    def stages(*names: str) -> list[tuple[str, ...]]:
        chosen: dict[str, Rule] = {r.name: r for r in FOLDS if r.name in names}
        return [rule_commands(chosen[name], 0)[:-1] for name in names]

    forwards, blocks, backwards = stages("continue-lstm", "double-lstm", "continue-lstm-backwards")
    assert len(forwards) == 4
    assert all(STAGE in c for c in forwards[2:])
    assert forwards == blocks == backwards
    assert stages("continue-gru")[0] != forwards


def test_other_rules_have_no_stages() -> None:
    assert all(rule_commands(r, 3) == (rule_text(r, 3),) for r in shipped_rules() if r.phase != "fold")
