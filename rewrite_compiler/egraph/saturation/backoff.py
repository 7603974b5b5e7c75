"""Back-off scheduler: a rule of a user that makes too many e-nodes in a round is held back, each time twice as long (as in egg).

The other rules can saturate before it fills the e-graph. It is delayed, not stopped: when the other rules change nothing, rules that
are held back run again, until a limit is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MOST_E_NODES = 300  # e-nodes of one round; doubled each time
HOLD_ROUNDS = 5  # rounds that a rule is held back for; doubled each time


@dataclass
class _State:
    rounds_left: int = 0  # rounds for which it is still held back
    times: int = 0
    rounds_held: int = 0  # that it was held back in all
    growth: int = 0  # e-nodes by which the e-graph grew in its rounds


class Backoff:
    """The back-off state of rules that a user added, each in a ruleset of its own."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names  # ruleset → rule
        self.states = {ruleset: _State() for ruleset in names}

    @property
    def rulesets(self) -> list[str]:
        """The egglog declarations of the rulesets, one a rule."""
        return [f"(ruleset {name})" for name in self.names]

    def runnable_rulesets(self) -> list[str]:
        """Return the rulesets that run in this round, and count down those that are held back."""
        runnable = []
        for name, state in self.states.items():
            if state.rounds_left:
                state.rounds_left -= 1
                state.rounds_held += 1
            else:
                runnable.append(name)
        return runnable

    def record_growth(self, ruleset: str, e_nodes: int) -> None:
        """Record the e-nodes of a ruleset's round, and hold the rule back if they are too many."""
        state = self.states[ruleset]
        state.growth += e_nodes
        if e_nodes > MOST_E_NODES << state.times:
            state.rounds_left = HOLD_ROUNDS << state.times
            state.times += 1

    def release_all(self) -> bool:
        """Release all rules that are held back; tell whether there was one."""
        held_back = [state for state in self.states.values() if state.rounds_left]
        for state in held_back:
            state.rounds_left = 0
        return bool(held_back)

    def growth_by_rule(self) -> dict[str, int]:
        """Return the number of e-nodes by which the rounds of each rule made the e-graph grow."""
        return {self.names[ruleset]: state.growth for ruleset, state in self.states.items()}

    def rounds_held(self) -> dict[str, int]:
        """Return the number of rounds for which each rule was held back, by its name."""
        return {self.names[ruleset]: state.rounds_held for ruleset, state in self.states.items() if state.rounds_held}
