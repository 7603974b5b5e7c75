"""The loops that one command of a generated driver runs: no other choice of them takes fewer commands, steps or bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from test_drivers import accelerator, request

from rewrite_compiler.ila import Ila
from rewrite_compiler.sched.driver.emission import emitted
from rewrite_compiler.sched.driver.generation import Choice, Request, choice_of, schedule_of
from rewrite_compiler.sched.driver.matching import matches
from rewrite_compiler.sched.driver.operation import continuation
from rewrite_compiler.sched.driver.schedule import Failure, Schedule, schedules
from rewrite_compiler.sched.driver.writer import NotEmitted


def every_split(ila: Ila, r: Request, way: Sequence[Choice], chain: tuple[Schedule, ...] = ()) -> Iterator[tuple[Schedule, ...]]:
    """Yield the schedules of a way with every legal set of loops in a command and on the host."""
    if len(chain) == len(way):
        yield chain
        return
    choice, before = way[len(chain)], chain[-1] if chain else None
    first = r.row_operation if choice.is_flat else r.operation
    op = first if before is None else continuation(r.operation, before.match.left, chain[0].tile)
    for m in matches(op, choice.computation):
        for s in schedules(ila, m, choice.switches, before) if choice.is_of(m) else ():
            variant = s if isinstance(s, Failure) else choice.variant_of(s)
            if isinstance(variant, Schedule):
                yield from every_split(ila, r, way, (*chain, variant))


def costs(chain: tuple[Schedule, ...], r: Request) -> tuple[int, int, int] | None:
    """Return commands, steps of units and bytes over the border; None where commands cannot be ordered so."""
    try:
        program = emitted(chain, r.code)
    except NotEmitted:
        return None
    return program.commands, sum(program.steps.values()), sum(program.moved(r.mapping.axes.result).values())


@pytest.mark.parametrize(
    ("name", "operation", "sizes", "splits"),
    [
        ("vector", "add", {"t": 3, "n": 16}, 2),
        ("modes", "mul", {"t": 3, "n": 11}, 2),
        ("dma", "dense", {"t": 3, "k": 10, "n": 5}, 9),
        ("stages", "dense_bias_relu", {"t": 2, "k": 10, "n": 6}, 27),
        ("outer", "dense", {"t": 1, "k": 16, "n": 3}, 2),
        ("outer", "dense", {"t": 1, "k": 9, "n": 3}, 2),
    ],
)
def test_no_other_loops_in_a_command_are_cheaper(name: str, operation: str, sizes: dict[str, Any], splits: int) -> None:
    target = accelerator(name)
    ila, r = target.ila(), request(target, operation, **sizes)
    way = choice_of(ila, r)
    chosen = schedule_of(ila, r, way)
    assert not isinstance(chosen, Failure)
    found = [c for chain in every_split(ila, r, way) if (c := costs(chain, r)) is not None]
    assert len(found) == splits
    assert costs(chosen, r) == tuple(min(column) for column in zip(*found, strict=True))
