"""Synchronisation: tokens between queues from what commands read and write, and the command that ends a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ...ila import Ila
from ...ila.model import Queue
from ...ila.summary import Opaque, summarise
from ...readings.arrays.labelled_array import Data
from .program import Block
from .writer import NotEmitted, Writer


def ended(ila: Ila, w: Writer) -> list[Block]:
    """Return the commands of a stream with the one that raises the interrupt last, and the tokens that order its queues.

    Raises:
        NotEmitted: no command raises it, or two queues share no token.
    """
    finish = _finish(ila)
    if finish is None:
        raise NotEmitted(f"no instruction of {ila.name} raises the interrupt at the end of a stream")
    spans = tuple(r for c in w.commands for r in c.writes if r.memory in ila.externals)
    return synchronised(ila, [*w.commands, Block(finish, {}, reads=spans)])


@lru_cache(maxsize=16)
def _finish(ila: Ila) -> str | None:
    """Return the instruction that does nothing but raise the interrupt."""
    return next((name for name in ila.instructions if _raises_interrupt(ila, name)), None)


def _raises_interrupt(ila: Ila, name: str) -> bool:
    summary = summarise(ila, name)
    if isinstance(summary, Opaque) or ila.interrupt is None:
        return False
    writes = [(t.write.memory, t.value.value) for *_, t in summary.transitions()]
    return writes == [(ila.interrupt.name, 1)]


def synchronised(ila: Ila, commands: Sequence[Block]) -> list[Block]:
    """Return commands with the tokens that make each wait for what it depends on in another queue; none that order implies.

    Raises:
        NotEmitted: two queues that depend on each other share no token.
    """
    queue_of = {name: q for q in ila.queues for name in q.instructions}
    queues = [queue_of.get(c.instruction) for c in commands]
    waits: dict[tuple[str, str], int] = {}  # (queue, queue that it waited for) → the last command of the latter that it knows of
    tokens: list[dict[str, Data]] = [{} for _ in commands]
    for n, (c, q) in enumerate(zip(commands, queues, strict=True)):
        if q is None:
            continue
        for k in range(n - 1, -1, -1):
            other = queues[k]
            if other is None or other is q or waits.get((q.name, other.name), -1) >= k or not _depends(c, commands[k]):
                continue
            last = max(i for i in range(n) if queues[i] is other)  # it gives the token, so that no later one has to
            give, take = _token(other, q)
            tokens[last][give] = tokens[n][take] = np.ones(1, np.int64)
            waits[q.name, other.name] = last
    return [replace(c, columns={**c.columns, **t}) for c, t in zip(commands, tokens, strict=True)]


def _depends(c: Block, before: Block) -> bool:
    """Tell whether a command reads or writes what one before it writes, or writes what that one reads."""
    pairs = [*((a, b) for a in before.writes for b in (*c.reads, *c.writes)), *((a, b) for a in before.reads for b in c.writes)]
    return any(a.memory == b.memory and a.overlaps(b) for a, b in pairs)


def _token(giver: Queue, taker: Queue) -> tuple[str, str]:
    """Return the operands by which one queue gives a token to another."""
    pairs = [(give, take) for give, token in giver.gives.items() for take, other in taker.takes.items() if token == other]
    if not pairs:
        raise NotEmitted(f"no token leads from queue {giver.name} to queue {taker.name}")
    return pairs[0]
