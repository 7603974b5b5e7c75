"""Parts of generated drivers by themselves: tokens between queues, limits of chains, and what selections may not do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rewrite_compiler.ila.model import Queue
from rewrite_compiler.sched.driver.completion import capacity_limits
from rewrite_compiler.sched.driver.program import Issued
from rewrite_compiler.sched.driver.synchronisation import synchronised
from rewrite_compiler.sched.driver.writer import NotEmitted
from rewrite_compiler.target.timing import Region

LOAD = Queue("load", frozenset({"load"}), {"pop_next": "computed"}, {"push_next": "loaded"})
COMPUTE = Queue("compute", frozenset({"compute"}), {"pop_prev": "loaded"}, {"push_prev": "computed"})
DEVICE: Any = SimpleNamespace(queues=(LOAD, COMPUTE))


def at(first: int, stop: int, memory: str = "inp") -> Region:
    return Region(memory, first, stop)


def tokens(*commands: Issued) -> list[list[str]]:
    return [sorted(c.fields) for c in synchronised(DEVICE, commands)]


def test_a_command_waits_for_the_last_one_of_another_queue_that_it_depends_on_once() -> None:
    """What the queue has waited for, and what came before that, needs no further token."""
    load = [Issued("load", {}, writes=(at(8 * n, 8 * n + 8),)) for n in range(3)]
    compute = [Issued("compute", {}, reads=(at(8 * n, 8 * n + 8),)) for n in range(3)]
    assert tokens(load[0], compute[0], compute[0]) == [["push_next"], ["pop_prev"], []]
    assert tokens(load[0], load[1], compute[1], compute[0]) == [[], ["push_next"], ["pop_prev"], []]
    assert tokens(load[0], load[1], compute[0], compute[1]) == [[], ["push_next"], ["pop_prev"], []]
    assert tokens(load[0], compute[0], load[1], compute[1]) == [["push_next"], ["pop_prev"], ["push_next"], ["pop_prev"]]
    assert tokens(load[0], compute[1]) == [[], []]


def test_what_is_read_is_not_written_before_it_was_read() -> None:
    load, compute = Issued("load", {}, writes=(at(0, 8),)), Issued("compute", {}, reads=(at(7, 9),))
    assert tokens(compute, load) == [["push_prev"], ["pop_next"]]
    elsewhere = Issued("compute", {}, reads=(at(7, 9, "wgt"),))
    assert tokens(elsewhere, load) == [[], []]
    assert tokens(Issued("compute", {}, writes=(at(7, 9),)), load) == [["push_prev"], ["pop_next"]]
    without_token: Any = SimpleNamespace(queues=(Queue("load", frozenset({"load"}), {}, {}), COMPUTE))
    with pytest.raises(NotEmitted, match="no token leads from queue compute to queue load"):
        synchronised(without_token, [compute, load])


def test_a_chain_needs_what_its_largest_stage_needs() -> None:
    def state(size: int) -> Any:
        return SimpleNamespace(leaf=SimpleNamespace(shape=(size, 4)))

    device: Any = SimpleNamespace(states={"acc": state(64), "inp": state(16)})
    chain: Any = [SimpleNamespace(needs=needs) for needs in ({"acc": 9, "inp": 3}, {"acc": 5, "vector": 2}, {"acc": 7, "inp": 4})]
    assert {x.what: (x.needs, x.most) for x in capacity_limits(device, chain)} == {
        "addresses of acc": (9, 64), "addresses of inp": (4, 16),
    }  # fmt: skip
