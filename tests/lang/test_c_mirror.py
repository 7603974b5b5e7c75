"""Mirrors of printed C: entries of a table kept beside the codes give the sums that looking them up gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from test_c import Library, needs_gcc
from test_steps import by_oracle

from rewrite_compiler.lang import Leaf, Step, assign, loop, reduce_sum, seq, update
from rewrite_compiler.lang.binders import Table, static_shape
from rewrite_compiler.lowering.decoded_copies import DecodedCopy, decoded_copies
from rewrite_compiler.lowering.lower import lower_step
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype
from rewrite_compiler.readings.c.printer import Tables, optimise, print_c

CODES = Leaf((6, 16), (0, 255), False, "codes")
OTHERS = Leaf((6, 16), (0, 255), False, "others")
COUNT = Leaf((), (0, 6), False, "count")
ROWS = Leaf((6,), (-(1 << 40), 1 << 40), False, "rows")
SQUARES = Table("squares", lambda c: c * c // 3 - 9000, (0, 255))
MEMORIES = (CODES, OTHERS, COUNT, ROWS)

STORES = seq(
    update(CODES, 16, lambda k: ((2, k), OTHERS[1, k])),
    loop(COUNT[()], lambda i: assign(CODES, (CODES[i, 3] * 7 + i) % 256, i, 5)),
)
SUMS = update(
    ROWS,
    COUNT[()],
    lambda i: (i, reduce_sum(lambda j, k: SQUARES(CODES[j, k]) * SQUARES(OTHERS[i, k]), (COUNT[()], 16))),
)


def mirrors(*steps: Step) -> list[DecodedCopy]:
    return decoded_copies(optimise(lower_step(s)) for s in steps)


def test_factors_of_long_sums_have_mirrors() -> None:
    assert {(m.memory.name, m.table.name) for m in mirrors(STORES, SUMS)} == {("codes", "squares"), ("others", "squares")}
    assert mirrors(STORES) == []


def test_a_memory_that_says_itself_where_it_is_written_has_none() -> None:
    chained = update(CODES, 16, lambda k: ((1, CODES[0, k] % 16), k))
    assert {m.memory.name for m in mirrors(STORES, SUMS, chained)} == {"others"}


def test_short_sums_and_wide_entries_have_none() -> None:
    wide = Table("wide", lambda c: c * 1000003, (0, 255))
    few = update(ROWS, 6, lambda i: (i, reduce_sum(lambda k: SQUARES(CODES[i, k]) * CODES[i, k], 4)))
    large = update(ROWS, 6, lambda i: (i, reduce_sum(lambda k: wide(CODES[i, k]) * CODES[i, k], 16)))
    assert mirrors(few, large) == []


@needs_gcc
def test_stores_are_done_to_mirrors_too(tmp_path: Path) -> None:
    found, tables, steps = mirrors(STORES, SUMS), Tables(), {"stores": STORES, "sums": SUMS}
    library = Library([print_c(lower_step(s), n, tables, mirrors=found) for n, s in steps.items()], tables, tmp_path)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        held = {leaf: values(leaf, rng.integers(*leaf.interval, static_shape(leaf), endpoint=True)) for leaf in MEMORIES}  # type: ignore[arg-type]
        held |= {m.leaf: values(m.leaf, looked_up(m, held[m.memory])) for m in found}
        contents = {leaf: held[leaf].reshape(-1).tolist() for leaf in MEMORIES}
        for name in ("stores", "sums", "stores", "sums"):
            assert library.run(name, held) == 0
            contents = by_oracle(steps[name], contents)
            assert {leaf: held[leaf].reshape(-1).tolist() for leaf in MEMORIES} == contents
            assert all(np.array_equal(held[m.leaf], looked_up(m, held[m.memory])) for m in found)


def values(leaf: Leaf, x: np.ndarray | Sequence[int]) -> np.ndarray:
    return np.array(x, storage_dtype(leaf.interval)).reshape(static_shape(leaf))


def looked_up(m: DecodedCopy, codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.int64) ** 2 // 3 - 9000
