"""GeneSys: a systolic array for products and a SIMD array for the rest, tile by tile behind one stream of instructions."""

from rewrite_compiler.ila import Ila, designed

from .block import declare_block, declare_groups
from .config import CALCULUS, SYNCS, Config
from .memories import declare_memories
from .simd import declare_simd
from .systolic import declare_systolic

__all__ = ["CALCULUS", "SYNCS", "Config", "build"]

WORD_BYTES = 4


def build(**parameters: object) -> Ila:
    """Return the model of a design; `parameters` replace single parameters of it (fields of Config)."""
    c = designed("genesys", Config(), parameters)
    m = Ila("genesys", __doc__ or "", vars(c))
    m.input("data", 8, WORD_BYTES)
    m.interrupt = m.register("done", 1, doc="Set by the end of the last block.")
    declare_memories(m, c)
    declare_groups(m)
    declare_systolic(m, c)
    declare_simd(m, c)
    declare_block(m, c)
    return m
