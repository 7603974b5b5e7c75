"""How long does the solver take for a matrix product on a device, by size of the instance, width and engine?

The program loads both operands, multiplies in passes over parts of K and adds to wrapping accumulators; the claim is the
product with factors and sums in another order. `integers` are unbounded, `words` are bits as wide as each interval needs,
`ranges` are integers whose products are a function with range axioms.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import z3
from record import Row, finish, options, spread

from rewrite_compiler.lang import Expr, Leaf, Step, array, loop, reduce_sum, seq, update, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lang.smt import Symbolic, prove_equal, symbols, within
from rewrite_compiler.lang.smt_bits import Bits, words
from rewrite_compiler.lang.smt_products import refute_by_ranges
from rewrite_compiler.lang.step import reads_of, updates_of

SIZES = ((1, 1, 1), (1, 2, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (6, 6, 6), (8, 8, 8), (2, 64, 2), (1, 256, 1))
WORDS_UP_TO = 2  # multiplications an element: more are beyond BUDGET on words
BUDGET = 20.0


def program(rows: int, length: int, columns: int, bits: int, kept: int) -> tuple[Step, Leaf, Leaf, Leaf]:
    """Return the instruction stream as one step: loads, then one pass for each part of the sums; and its memories."""
    word, wide = iv.of_width(bits, True), iv.of_width(kept, True)
    x, w = Leaf((rows, length), word, False, "x"), Leaf((columns, length), word, False, "w")
    held_x, held_w = Leaf((rows, length), word, False, "held_x"), Leaf((columns, length), word, False, "held_w")
    acc, part = Leaf((rows, columns), wide, False, "acc"), 2 if length % 2 == 0 else 1
    size = length // part

    def one_pass(p: Expr) -> Step:
        def total(t: Expr, n: Expr) -> Expr:
            return reduce_sum(lambda k: held_x[t, p * size + k] * held_w[n, p * size + k], size)

        return update(acc, (rows, columns), lambda t, n: ((t, n), wrap(acc[t, n] + total(t, n), kept)))

    loads = [update(to, source.shape, lambda i, j, s=source: ((i, j), s[i, j])) for to, source in ((held_x, x), (held_w, w))]
    clear = update(acc, (rows, columns), lambda t, n: ((t, n), 0))
    return seq(*loads, clear, loop(part, one_pass)), x, w, acc


def proved(size: tuple[int, int, int], bits: int, engine: str, kept: int = 32) -> tuple[str, float, float]:
    """Return the outcome, the seconds for building the terms and those for all in all."""
    rows, length, columns = size
    started = time.thread_time()
    step, x, w, acc = program(*size, bits, kept)
    fresh = words if engine == "words" else (lambda leaf: symbols(leaf.name, static_shape(leaf)))
    given = {x: fresh(x), w: fresh(w)}
    memories = given | {leaf: np.full(static_shape(leaf), 0, object) for leaf in _others(step, given)}
    reading = (Bits if engine == "words" else Symbolic)(memories)
    premises = [c for leaf, data in given.items() for c in within(data, leaf.interval)]
    reading.run(step)
    meant = array(lambda t, n: wrap(reduce_sum(lambda k: w[n, length - 1 - k] * x[t, length - 1 - k], length), 32), (rows, columns))
    pairs = list(zip(reading.array(meant).reshape(-1), reading.memories[acc].reshape(-1), strict=True))
    built = time.thread_time() - started
    if engine == "ranges":
        outcome = refute_by_ranges([z3.Or(*[a != b for a, b in pairs]), *premises], BUDGET).outcome
    else:
        outcome = prove_equal(pairs, premises, BUDGET).outcome
    return outcome, built, time.thread_time() - started


def _others(step: Step, given: Mapping[Leaf, object]) -> frozenset[Leaf]:
    return reads_of(step).union(u.memory for u in updates_of(step)) - given.keys()


def cases() -> list[tuple[tuple[int, int, int], int, str, int]]:
    """Return size, width, engine and bits of the accumulators; four products of 8 bits need 18."""
    engines = [(e, size, bits) for e in ("integers", "ranges", "words") for size in SIZES for bits in (8, 16)]
    found = [(s, b, e, 32) for e, s, b in engines if e != "words" or (s[1] <= WORDS_UP_TO and (s[0] == 1 or b == 8))]
    return [*found, *(((2, 4, 2), 8, "integers", kept) for kept in (16, 17, 18))]


def measure(runs: int) -> list[Row]:
    """Ask for every instance."""
    rows: list[Row] = []
    for size, bits, engine, kept in cases():
        found = [proved(size, bits, engine, kept) for _ in range(runs)]
        name = f"{size[0]}, {size[1]}, {size[2]} of {bits} bits, accumulators of {kept}: {engine}"
        times = {"building_cpu_seconds": spread([f[1] for f in found]), "cpu_seconds": spread([f[2] for f in found])}
        rows.append({"name": name, "runs": runs, "outcome": found[0][0], **times})
        print(f"{name:60}{found[0][0]:>12}{times['cpu_seconds']['median']:10.3f} s", flush=True)
        if (found[0][0] == "proved") != (kept >= 18):
            raise SystemExit(f"{name} is {found[0][0]}")
    return rows


def main() -> None:
    """Run the command line."""
    given = options(__doc__ or "", runs=3).parse_args()
    finish("solver", measure(given.runs), given.json)


if __name__ == "__main__":
    main()
