"""GeneSys configuration: the arrays, the depths of the buffers, and which of two readings the instruction words follow."""

from dataclasses import dataclass

from rewrite_compiler.ila import check_design, choice, demand, within

CALCULUS = ("xls", "csr")  # numbering of the functions: the published table, or that of the compiler
SYNCS = ("current", "older")  # where the group lies in SYNC_INST: bits 21:16, or 23:18
WORD_BITS = 32
BLOCK_ROWS = 4  # weights lie in blocks of so many rows


@dataclass(frozen=True)
class Config:
    """An array of array_n input channels by array_m output channels; depths in rows of all banks."""

    calculus: str = choice(*CALCULUS)
    sync: str = choice(*SYNCS)
    array_n: int = within(1, 128, 16)
    array_m: int = within(1, 128, 16)
    ibuf_depth: int = within(4, 1 << 16, 16384)
    wbuf_depth: int = within(4, 1 << 18, 1024)
    obuf_depth: int = within(4, 1 << 16, 16384)
    bbuf_depth: int = within(4, 1 << 16, 8192)
    vmem_depth: int = within(4, 1 << 16, 16384)
    simd_instructions: int = within(16, 1 << 12, 1024)

    def __post_init__(self) -> None:
        check_design("genesys", self)
        sentence = f"parameter array_m of genesys must be array_n ({self.array_n}), whose lanes read its rows, not {self.array_m}"
        demand(self.array_m == self.array_n, sentence)
        depth = f"parameter wbuf_depth of genesys must be a multiple of {BLOCK_ROWS}, not {self.wbuf_depth}"
        demand(self.wbuf_depth % BLOCK_ROWS == 0, depth)

    @property
    def lanes(self) -> int:
        """Lanes of the SIMD array."""
        return self.array_n
