"""Back-off: an added rule that explodes waits for the others, goes on when they are done, and is told."""

from __future__ import annotations

from dataclasses import replace

from test_lint import SHIPPED, associate_freely, bias_as_sum, zero_bias_at_once

from rewrite_compiler.egraph.saturation.backoff import HOLD_ROUNDS, MOST_E_NODES, Backoff
from rewrite_compiler.egraph.saturation.explosion_lint import TRIAL, small_program
from rewrite_compiler.egraph.saturation.saturate import saturate
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType


def test_a_rule_is_held_back_for_longer_each_time() -> None:
    added = Backoff({"added7": "mine", "added8": "other"})
    assert added.rulesets == ["(ruleset added7)", "(ruleset added8)"]
    added.record_growth("added7", MOST_E_NODES)
    assert added.runnable_rulesets() == ["added7", "added8"]
    added.record_growth("added7", MOST_E_NODES + 1)
    assert [added.runnable_rulesets() for _ in range(HOLD_ROUNDS)] == [["added8"]] * HOLD_ROUNDS
    added.record_growth("added7", MOST_E_NODES + 1)  # twice as many may come now
    assert added.runnable_rulesets() == ["added7", "added8"]
    added.record_growth("added7", 2 * MOST_E_NODES + 1)
    assert [added.runnable_rulesets() for _ in range(2)] == [["added8"]] * 2
    assert added.release_all()
    assert not added.release_all()
    assert added.runnable_rulesets() == ["added7", "added8"]
    assert added.rounds_held() == {"mine": HOLD_ROUNDS + 2}


def test_a_rule_is_held_back_for_twice_as_many_rounds_each_time() -> None:
    added = Backoff({"added7": "mine"})
    for times in range(4):
        added.record_growth("added7", (MOST_E_NODES << times) + 1)
        rounds = [added.runnable_rulesets() for _ in range((HOLD_ROUNDS << times) + 1)]
        assert rounds == [*[[]] * (HOLD_ROUNDS << times), ["added7"]]
    assert added.growth_by_rule() == {"mine": MOST_E_NODES * 15 + 4}


def test_the_shipped_rules_come_to_their_end_beside_rules_that_explode() -> None:
    limits = replace(TRIAL, e_nodes=10_000)
    found = saturate(small_program(), [*SHIPPED, zero_bias_at_once, bias_as_sum, associate_freely], [], limits)
    assert found.reason in ("e_nodes", "rounds")
    assert found.rounds_held == {"associate-freely": 2}
    assert found.e_nodes_added["associate-freely"] > MOST_E_NODES
    assert found.e_nodes_added.keys() == {"zero-bias-at-once", "bias-as-sum", "associate-freely"}
    assert sum(found.e_nodes_by_birth.values()) == found.graph.e_nodes
    assert all(s >= 0 for s in found.rule_seconds.values())
    assert found.rule_seconds.keys() == found.matches.keys()


def test_slices_that_are_put_together_again_are_nothing() -> None:
    """The rules of phase fold run even where no other rule has matched."""
    b = Builder("halves")
    x = y = b.input("x", TensorType((4, 6)))
    for _ in range(3):
        halves = [b.apply("slice", [y], {"axis": 0, "start": n, "stop": n + 2})[0] for n in (0, 2)]
        (y,) = b.apply("concat", halves, {"axis": 0})
    found = saturate(b.finish([y]), SHIPPED, [])
    assert found.reason == "saturated"
    assert found.graph.values[y] == found.graph.values[x]
