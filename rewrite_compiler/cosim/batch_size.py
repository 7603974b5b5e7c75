"""How many samples are computed at once, and how often one of them is audited."""

from __future__ import annotations

from ..compile.plan.application_time import moving_nodes
from ..ir.program import Program

MOST_SAMPLES = 32
EVERY = 8  # largest batches: of their samples a random one is computed again, unless a rate is given
MOST_BYTES = 1 << 26  # of the largest tensor of a batch: memory is in proportion, and more was slower on images of 224 by 224


def batch_size(p: Program) -> int:
    """Return the largest power of two, up to MOST_SAMPLES, of samples whose largest tensor takes MOST_BYTES at most; at least one."""
    moving = [*p.inputs, *(v for n in moving_nodes(p) for v in n.outputs)]  # a transpose of weights is there once
    largest = max((p.types[v].nbytes for v in moving), default=0)
    samples = MOST_SAMPLES
    while samples > 1 and samples * largest > MOST_BYTES:
        samples //= 2
    return samples


def default_rate(batch: int) -> int:
    """Return how many batches of a size have EVERY times MOST_SAMPLES samples: small batches do not mean more audits."""
    return max(EVERY * MOST_SAMPLES // batch, 1)
