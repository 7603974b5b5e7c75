"""VTA: a parameterisable int8 tensor accelerator with a processor-like ISA, load, compute and store queues and tokens."""

from __future__ import annotations

from rewrite_compiler.errors import UsageError
from rewrite_compiler.ila import Ila, Queue

from .compute import OPERATIONS, declare_compute
from .config import Config
from .fields import ENCODINGS, Encoding
from .memories import declare_memories
from .transfers import declare_transfers

BEHAVIOURS = ("fsim", "hls", "ila")
WORD_BYTES = 16


def build(encoding: str = "current", behaviour: str = "fsim", **sizes: int) -> Ila:
    """Return the model; `behaviour` chooses between functional simulator, HLS hardware and published ILA where they differ.

    `sizes` are the binary logarithms of `Config`: widths, batch, block and buffers.
    """
    for name, value, known in (("encoding", encoding, tuple(ENCODINGS)), ("behaviour", behaviour, BEHAVIOURS)):
        if value not in known:
            raise UsageError("F203", f'parameter {name} of vta must be one of {", ".join(known)}, not "{value}"')
    unknown = sorted(sizes.keys() - Config.__dataclass_fields__.keys())
    if unknown:
        names = ", ".join(("encoding", "behaviour", *Config.__dataclass_fields__))
        raise UsageError("F203", f'vta has no parameter "{unknown[0]}"', help=f"known: {names}")
    c = Config(**sizes)
    m = Ila("vta", __doc__ or "", {"encoding": encoding, "behaviour": behaviour, **vars(c)})
    m.input("data", 8, WORD_BYTES)
    m.interrupt = m.register("done", 1, doc="Set by FINISH.")
    declare_memories(m, c)
    declare_transfers(m, c, Encoding(encoding, c))
    declare_compute(m, c, Encoding(encoding, c))
    if behaviour != "ila":  # the published ILA executes in program order and ignores the dependency bits
        m.queues.extend(_queues(m))
    return m


def _queues(m: Ila) -> list[Queue]:
    load = frozenset({"load_inp", "load_wgt"})
    compute = frozenset({"load_uop", "load_acc", "load_acc_8bit", "gemm", "finish", *OPERATIONS}) & m.instructions.keys()
    return [
        Queue("load", load, {"pop_next": "g2l"}, {"push_next": "l2g"}, ("pop_prev", "push_prev")),
        Queue("compute", compute, {"pop_prev": "l2g", "pop_next": "s2g"}, {"push_prev": "g2l", "push_next": "g2s"}),
        Queue("store", frozenset({"store"}), {"pop_prev": "g2s"}, {"push_prev": "s2g"}, ("pop_next", "push_next")),
    ]
