"""The tokens of command queues as counter registers: a command whose token is missing is not accepted."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ila import Ila, Instruction
from ...lang import intervals as iv
from ...lang.binders import Leaf
from ...lang.expr import Expr, wrap
from ...lang.step import Step, assign, seq, when

TOKEN_BITS = 16


@dataclass(frozen=True, eq=False)
class Tokens:
    """The token counters of a model by name, and the flag that a command was not accepted."""

    ila: Ila
    counts: dict[str, Leaf] = field(default_factory=dict)
    is_waiting: Leaf = field(default_factory=lambda: Leaf((), iv.TRUTH, False, "waiting"))

    def __post_init__(self) -> None:
        """Create a counter for each token of the queues."""
        for q in self.ila.queues:
            for token in (*q.takes.values(), *q.gives.values()):
                self.counts.setdefault(token, Leaf((), iv.of_width(TOKEN_BITS, False), False, token))

    def guard(self, i: Instruction, step: Step) -> Step:
        """Return `step` guarded by its tokens: without them, or at a full counter, it only sets `waiting`."""
        queue = next((q for q in self.ila.queues if i.name in q.instructions), None)
        if queue is None:
            return step
        changes = [(i.operands[o].leaf[()], self.counts[token], -1) for o, token in queue.takes.items()]
        changes += [(i.operands[o].leaf[()], self.counts[token], 1) for o, token in queue.gives.items()]
        token_updates = [assign(t, wrap(t[()] + change * o, TOKEN_BITS, False)) for o, t, change in changes]
        return when(_ready(changes), seq(*token_updates, step), assign(self.is_waiting, 1))


def _ready(changes: list[tuple[Expr, Leaf, int]]) -> Expr:
    maximum = (1 << TOKEN_BITS) - 1
    tests = [~o | (t[()] > 0 if change < 0 else t[()] < maximum) for o, t, change in changes]
    condition = tests[0]
    for test in tests[1:]:
        condition = condition & test
    return condition
