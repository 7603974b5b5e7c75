"""VTA: a parameterisable int8 tensor accelerator with a processor-like ISA, load, compute and store queues and tokens."""

from rewrite_compiler.ila import Ila, Queue, designed

from .alu import OPERATIONS, declare_alu
from .compute import declare_compute
from .config import BEHAVIOURS, Config
from .fields import words
from .memories import declare_memories
from .transfers import declare_transfers

__all__ = ["BEHAVIOURS", "Config", "build"]

WORD_BYTES = 16


def build(**parameters: object) -> Ila:
    """Return the model of a design; `parameters` replace single parameters of it (fields of Config)."""
    c = designed("vta", Config(), parameters)
    m = Ila("vta", __doc__ or "", vars(c))
    m.input("data", 8, WORD_BYTES)
    m.interrupt = m.register("done", 1, doc="Set by FINISH.")
    declare_memories(m, c)
    fields = words(c)
    declare_transfers(m, c, fields)
    declare_compute(m, c, fields)
    declare_alu(m, c, fields)
    if c.behaviour != "ila":  # the published ILA executes in program order and ignores the dependency bits
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
