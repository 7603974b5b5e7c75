"""The child process of saturation: reads one request as JSON, saturates under limits, writes JSON lines.

    python -m rewrite_compiler.egraph.saturation.worker < request

egglog has no limit inside a round and aborts the process when memory runs out; here that ends a child. Each completed
round is reported, so that the parent can ask for just those rounds again.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
from typing import Any

from ...child_process import die_with_parent
from ..graph.graph import to_json
from ..graph.outcome import StopReason
from ..graph.schema import Constructor
from .backoff import Backoff
from .engine import Engine

FOLD_ROUNDS = 32  # rounds of fold rules between two checks of the limits
GROWTH_MARGIN = 2.0  # the next round's growth ratio was at most 1.96 times the last one's on every measured set


def main() -> int:
    """Read a request from standard input, saturate, and write its answer; return the exit status."""
    die_with_parent()
    request = json.load(sys.stdin)
    if request.get("parent", os.getppid()) != os.getppid():  # it ended before it was asked for
        return 1
    limit_resources(int(request["limits"]["saturation_bytes"]), int(request["limits"]["saturation_seconds"]))
    gc.disable()  # it ends with its answer, and nearly all it makes is kept until then
    Schedule(request).run()
    return 0


def limit_resources(size: int, seconds: int) -> None:
    """Limit this process to `size` bytes of address space, and to so many more seconds of a processor, whatever else runs there."""
    try:
        import resource
    except ImportError:  # not on this system: the parent's wall clock remains
        return
    used = math.ceil(time.process_time())
    for kind, most in ((resource.RLIMIT_AS, size), (resource.RLIMIT_CPU, used + seconds), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


class Schedule:
    """The phases of saturation: `ir` rounds until nothing changes, one `late` round, one mapping round."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.start_time = time.process_time()
        devices = [Constructor(name, operands, tuple(kinds), True) for name, operands, kinds in request["devices"]]
        self.backoff = Backoff(request["added"])
        self.engine = Engine(devices, [*self.backoff.rulesets, *request["rules"]], request["items"], request["operators"])
        self.limits = request["limits"]
        self.phases = request["phases"]
        self.rounds = 0
        self.stop: dict[str, str] = {"reason": StopReason.SATURATED, "detail": ""}
        self.growth: list[int] = []  # e-nodes before the first round and after each one

    def run(self) -> None:
        """Run all requested phases and send the e-graph with its statistics."""
        if "ir" in self.phases:
            self.saturate()
        if "late" in self.phases:
            self.engine.run_round("late")
        if "map" in self.phases:
            self.engine.run_untyped("map")  # what a mapping makes is equal to what has a type already
        graph, matches = to_json(self.engine.snapshot()), dict(sorted(self.engine.matches.items()))
        rule_seconds = {name: round(s, 3) for name, s in sorted(self.engine.seconds.items()) if name in matches}
        statistics = {
            "seconds": time.process_time() - self.start_time,
            "rule_seconds": rule_seconds,
            "held": self.backoff.rounds_held(),
            "grown": self.backoff.growth_by_rule(),
        }
        self.send({"graph": graph, "matches": matches, **statistics})

    def saturate(self) -> None:
        """Run rounds of the ir rules until nothing changes or the next round could exceed a limit."""
        previous = current = self.engine.e_nodes
        self.growth.append(current)
        self.send({})
        while not (reason := self.reason_to_stop(previous, current)) and (self.round() or self.backoff.release_all()):
            self.rounds += 1
            previous, current = current, self.engine.e_nodes
            self.growth.append(current)
            self.send({})
        if reason:
            self.stop = {"reason": reason[0], "detail": reason[1]}

    def round(self) -> bool:
        """Run one round of the shipped rules, of each added one that may run, and the fold rules; tell whether anything changed."""
        step = self.engine.run_round if self.backoff.names else self.engine.run_untyped  # what others make is typed at once
        changed = step("ir")
        for name in self.backoff.runnable_rulesets():
            size = self.engine.e_nodes
            if step(name):
                changed = True
            self.backoff.record_growth(name, self.engine.e_nodes - size)
        changed = self.fold() or changed
        if changed:
            self.engine.type_new_classes()
        return changed

    def fold(self) -> bool:
        """Run the fold rules until nothing changes or the limit of e-nodes is exceeded; tell whether they changed anything."""
        changed = False
        while "fold" in self.phases and self.engine.run_untyped("fold", FOLD_ROUNDS) and self.engine.e_nodes <= self.limits["e_nodes"]:
            changed = True
        return changed

    def reason_to_stop(self, previous: int, current: int) -> tuple[StopReason, str] | None:
        """Return the limit that forbids another round, with a sentence; None if there is none.

        Growth is extrapolated geometrically from the e-nodes before and after the last round.
        """
        predicted = GROWTH_MARGIN * current * current / max(previous, 1)
        if current > previous and predicted > self.limits["e_nodes"]:
            return (
                StopReason.E_NODES,
                f"{current} e-nodes after round {self.rounds}; the next round could exceed the limit of {self.limits['e_nodes']}",
            )
        if self.rounds >= self.limits["rounds"]:
            return StopReason.ROUNDS, f"the limit of {self.limits['rounds']} rounds"
        return None

    def send(self, results: dict[str, Any]) -> None:
        """Write one JSON line: the completed rounds and growth, and more at the end."""
        line = {"rounds": self.rounds, "stop": self.stop, "growth": self.growth, **results}
        sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
