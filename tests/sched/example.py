"""The running example of the paper as an ILA: DRAM, a scratchpad of 32 · 7 bits × 1024, scalar, 2-wide vector and 2 × 2 matrix unit."""

from __future__ import annotations

from typing import Any

from rewrite_compiler.ila import External, Fields, Ila, bit_fields
from rewrite_compiler.lang import Expr, Step, reduce_sum, update, when, wrap

ROWS, BANKS, BITS = 1024, 7, 32
WORD = "31:25 op, 24 target SCALAR|VECTOR, 23:16 b, 15:8 a, 7:0 dst"


def example() -> Ila:
    """Return the model."""
    m = Ila("covenant_example", __doc__ or "")
    m.input("data", 32)
    spad = m.memory("spad", (ROWS, BANKS), BITS, signed=True, doc="The global scratchpad.")
    dram = m.external("dram", BITS, signed=True)
    fields = bit_fields(WORD)
    layout = {name: fields[name] for name in ("op", "dst", "a", "b", "target")}

    def lanes(f: Fields, count: int) -> Step:
        return update(spad, count, lambda j: ((f.dst, j), wrap(spad[f.a, j] + spad[f.b, j], BITS)))

    def multiply(f: Fields) -> Step:
        def cell(n: Expr) -> tuple[Any, Expr]:
            return (f.dst, n), wrap(spad[f.dst, n] + reduce_sum(lambda k: spad[f.a + n, k] * spad[f.b, k], 2), BITS)

        return update(spad, 2, cell)

    m.encoded(
        "load", layout, {"op": 1}, lambda f: update(spad, BANKS, lambda j: ((f.dst, j), dram.leaf[_word(dram, f, j)])), doc="Load a row."
    )
    m.encoded(
        "store", layout, {"op": 2}, lambda f: update(dram.leaf, BANKS, lambda j: (_word(dram, f, j), spad[f.dst, j])), doc="Store a row."
    )
    m.encoded("add", layout, {"op": 3}, lambda f: when(f.target, lanes(f, 2), lanes(f, 1)), doc="Add on the scalar or the vector unit.")
    m.encoded("mmul", layout, {"op": 4}, multiply, doc="Multiply a 2 × 2 matrix with a vector.")
    return m


def _word(dram: External, f: Fields, lane: Expr) -> Expr:
    return dram.index((f.b * 256 + f.a) * BANKS + lane)
