"""Timing: processor time of a program on this machine's host engine, one thread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

from ..ir.program import Data
from .session import Session

SEED = 11
BATCH_SECONDS, MAX_RUNS = 0.01, 2_000


def random_operands(shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> dict[str, Data]:
    """Return random positive operands from a fixed seed, uniform in 0.5 … 1.5."""
    random = np.random.default_rng(SEED)
    return {name: random.uniform(0.5, 1.5, shape).astype(dtypes[name]) for name, shape in shapes.items()}


def processor_seconds(run: Callable[[], object], rounds: int = 5) -> float:
    """Return the median processor time of one run in seconds, over several batches; the first run warms up and is not counted."""
    run()
    start = time.process_time()
    run()
    count = min(MAX_RUNS, max(1, int(BATCH_SECONDS / max(time.process_time() - start, 1e-6))))
    timings = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(count):
            run()
        timings.append((time.process_time() - start) / count)
    return statistics.median(timings)


def session_seconds(model: bytes, operands: Mapping[str, Data], rounds: int = 5) -> float:
    """Return the processor time of one run of an ONNX model in seconds."""
    session = Session(model)
    return processor_seconds(lambda: session.run(operands), rounds)
