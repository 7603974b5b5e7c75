"""Bounded prefetch: work on parts by threads, a bounded number of parts ahead of the consumer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ..ir.program import Program

MOST_BYTES = 1 << 26  # of results that wait for their turn, where that is more than one for each thread
Part = TypeVar("Part")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Part], Result], parts: Sequence[Part], threads: int, limit: int
) -> Generator[Future[Result], None, None]:  # fmt: skip
    """Yield the future of `work` for each part, in order, with a bounded number of them started."""
    pool = ThreadPoolExecutor(threads)
    futures: dict[int, Future[Result]] = {}
    end = 0
    try:
        for n in range(len(parts)):
            while end < min(n + limit, len(parts)):
                futures[end] = pool.submit(work, parts[end])
                end += 1
            yield futures.pop(n)
    finally:
        pool.shutdown(cancel_futures=True)


def prefetch_limit(p: Program, samples: int, threads: int) -> int:
    """Return how many batches of so many samples may be started, by the size of their outputs."""
    size = samples * sum(p.types[v].nbytes for v in p.outputs)
    return max(threads + 1, MOST_BYTES // max(size, 1))
