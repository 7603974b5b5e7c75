"""How long does the solver take for a matrix product on a device, by size of the instance, width and engine?

The program loads both operands, multiplies in passes over parts of K and adds to wrapping accumulators; the claim is the
product with factors and sums in another order. `integers` are unbounded, `words` are bits as wide as each interval needs,
`ranges` are integers whose products are a function with range axioms, `bits` are words that are blasted at once, `arrays`
are words in z3's arrays instead of a term an element.

Besides: a fold of rounded and saturated blocks that several instructions share, the step of an induction on K, and three
claims that are false.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import z3
from record import Row, finish, options, spread

from rewrite_compiler.lang import Array, Expr, Leaf, Step, array, fold, loop, reduce_sum, sat, seq, shift_right, update, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lang.step import reads_of, updates_of
from rewrite_compiler.readings.smt.bitvector_evaluator import BitvectorEvaluator, evaluator_for, fresh_words
from rewrite_compiler.readings.smt.bitvector_operators import to_common_width, width_of
from rewrite_compiler.readings.smt.evaluator import SymbolicEvaluator, fresh_variables, interval_constraints, prove_equal
from rewrite_compiler.readings.smt.symbolic_state import INDEX_BITS, SymbolicState
from rewrite_compiler.readings.smt.uninterpreted_products import refute_by_ranges

SIZES = ((1, 1, 1), (1, 2, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (6, 6, 6), (8, 8, 8), (2, 64, 2), (1, 256, 1))
WORDS_UP_TO = 2  # multiplications an element: more are beyond BUDGET on words
BUDGET = 20.0
FOLDS = ((1, 2, 1), (2, 4, 2), (2, 9, 2))  # rows, blocks, columns
NEEDED = 18  # bits of a sum of four products of 8 bits

Question = tuple[list[tuple[Any, Any]], list[z3.BoolRef]]


def program(rows: int, length: int, columns: int, bits: int, sum_bits: int) -> tuple[Step, Leaf, Leaf, Leaf]:
    """Return the instruction stream as one step: loads, then one pass for each part of the sums; and its memories."""
    word, wide = iv.of_width(bits, True), iv.of_width(sum_bits, True)
    x, w = Leaf((rows, length), word, False, "x"), Leaf((columns, length), word, False, "w")
    held_x, held_w = Leaf((rows, length), word, False, "held_x"), Leaf((columns, length), word, False, "held_w")
    acc, part = Leaf((rows, columns), wide, False, "acc"), 2 if length % 2 == 0 else 1
    size = length // part

    def one_pass(p: Expr) -> Step:
        def total(t: Expr, n: Expr) -> Expr:
            return reduce_sum(lambda k: held_x[t, p * size + k] * held_w[n, p * size + k], size)

        return update(acc, (rows, columns), lambda t, n: ((t, n), wrap(acc[t, n] + total(t, n), sum_bits)))

    loads = [update(to, source.shape, lambda i, j, s=source: ((i, j), s[i, j])) for to, source in ((held_x, x), (held_w, w))]
    clear = update(acc, (rows, columns), lambda t, n: ((t, n), 0))
    return seq(*loads, clear, loop(part, one_pass)), x, w, acc


def proved(size: tuple[int, int, int], bits: int, engine: str, sum_bits: int = 32) -> tuple[str, float, float]:
    """Return the outcome, the seconds for building the terms and those for all in all."""
    rows, length, columns = size
    started = time.thread_time()
    step, x, w, acc = program(*size, bits, sum_bits)
    meaning = array(lambda t, n: wrap(reduce_sum(lambda k: w[n, length - 1 - k] * x[t, length - 1 - k], length), 32), (rows, columns))
    pairs, premises = (on_arrays if engine == "arrays" else on_terms)(step, (x, w), acc, meaning, engine)
    return answered(pairs, premises, engine, started)


def on_terms(step: Step, leaves: Sequence[Leaf], result: Leaf, meaning: Array, engine: str) -> Question:
    """Return what a step leaves beside what is meant, a term an element, and what is known of the operands."""
    is_words = engine in ("words", "bits")
    fresh = fresh_words if is_words else (lambda leaf: fresh_variables(leaf.name, static_shape(leaf)))
    operands = {leaf: fresh(leaf) for leaf in leaves}
    memories = operands | {leaf: np.full(static_shape(leaf), 0, object) for leaf in _others(step, operands)}
    reading = (BitvectorEvaluator if is_words else SymbolicEvaluator)(memories)
    reading.run(step)
    pairs = list(zip(reading.array(meaning).reshape(-1), reading.memories[result].reshape(-1), strict=True))
    return pairs, [c for leaf, data in operands.items() for c in interval_constraints(data, leaf.interval)]


def on_arrays(step: Step, given: Sequence[Leaf], result: Leaf, meaning: Array, _: str) -> Question:
    """Return the same with every memory as an array of z3; elements are words of their own bits, so nothing else is known."""
    leaves = {*given, *_others(step, {})}
    reading = SymbolicState({}, {leaf: z3.Array(leaf.name, z3.BitVecSort(INDEX_BITS), z3.BitVecSort(bits_in(leaf))) for leaf in leaves}, 0)
    reading.execute(step)
    left = array(lambda *i: result[i], static_shape(result))
    return list(zip(reading.array(meaning).reshape(-1), reading.array(left).reshape(-1), strict=True)), []


def bits_in(leaf: Leaf) -> int:
    """Return the bits of an element."""
    return width_of(leaf.interval) - ((leaf.interval[0] or 0) >= 0)


def answered(pairs: Sequence[tuple[Any, Any]], premises: Sequence[z3.BoolRef], engine: str, started: float) -> tuple[str, float, float]:
    """Return what an engine says, the seconds that the terms have taken, and all of them."""
    built = time.thread_time() - started
    if engine == "ranges":
        outcome = refute_by_ranges([z3.Or(*[a != b for a, b in pairs]), *premises], BUDGET).outcome
    elif engine == "bits":
        blasted = z3.Then("simplify", "bit-blast", "sat").solver()
        blasted.set("timeout", int(BUDGET * 1000))
        answer = blasted.check(z3.Or(*map(differs, pairs)), *premises)
        outcome = "proved" if answer == z3.unsat else "refuted" if answer == z3.sat else "unknown"
    else:
        outcome = prove_equal(pairs, premises, BUDGET).outcome
    return outcome, built, time.thread_time() - started


def differs(pair: tuple[Any, Any]) -> z3.BoolRef:
    """Return that two words differ."""
    a, b = to_common_width(*pair)
    return a != b


def shared_fold(rows: int, blocks: int, columns: int, parts: int) -> tuple[Step, Leaf, Leaf, Leaf, Array]:
    """Return a fold of rounded and saturated blocks of two lanes that `parts` instructions share, and the whole fold."""
    word = iv.of_width(16, True)
    x, w = Leaf((rows, blocks, 2), word, False, "x"), Leaf((columns, blocks, 2), iv.of_width(8, True), False, "w")
    acc, size = Leaf((rows, columns), word, False, "acc"), blocks // parts

    def added(t: Expr, n: Expr, b: Expr, total: Expr) -> Expr:
        lanes = x[t, b, 0] * w[n, b, 0] + x[t, b, 1] * w[n, b, 1]
        return sat(total + sat(shift_right(lanes, 6, "half_up"), 16), 16)

    def part(p: Expr) -> Step:
        def element(t: Expr, n: Expr) -> tuple[tuple[Expr, Expr], Expr]:
            return (t, n), fold(size, acc[t, n], lambda b, total: added(t, n, p * size + b, total), word)

        return update(acc, (rows, columns), element)

    clear = update(acc, (rows, columns), lambda t, n: ((t, n), 0))
    whole = array(lambda t, n: fold(blocks, 0, lambda b, total: added(t, n, b, total), word), (rows, columns))
    return seq(clear, loop(parts, part)), x, w, acc, whole


def split(size: tuple[int, int, int], engine: str) -> tuple[str, float, float]:
    """Ask whether a fold that instructions share is the whole one."""
    started = time.thread_time()
    step, x, w, acc, whole = shared_fold(*size, 3 if size[1] % 3 == 0 else 2)
    return answered(*on_terms(step, (x, w), acc, whole, engine), engine, started)


def induction(bits: int, engine: str) -> tuple[str, float, float]:
    """Ask for the step on which every K rests: where the accumulator is the sum modulo 2^32, it is so after another product."""
    started = time.thread_time()
    leaves = [Leaf((), iv.of_width(n, True), False, name) for n, name in ((bits, "x"), (bits, "w"), (48, "total"))]
    x, w, total = (leaf[()] for leaf in leaves)
    reading, premises = evaluator_for([total], leaves, bits=engine == "words")
    pair = reading.value(wrap(wrap(total, 32) + x * w, 32)), reading.value(wrap(w * x + total, 32))
    return answered([pair], premises, engine, started)


def order(engine: str) -> tuple[str, float, float]:
    """Ask for what is false: that saturating sums may be taken in another order."""
    started = time.thread_time()
    leaves = [Leaf((), iv.of_width(16, True), False, name) for name in "abc"]
    a, b, c = (leaf[()] for leaf in leaves)
    reading, premises = evaluator_for([a], leaves, bits=engine == "words")
    pair = reading.value(sat(sat(a + b, 16) + c, 16)), reading.value(sat(a + sat(b + c, 16), 16))
    return answered([pair], premises, engine, started)


def _others(step: Step, leaves: Mapping[Leaf, object]) -> frozenset[Leaf]:
    return reads_of(step).union(u.memory for u in updates_of(step)) - leaves.keys()


@dataclass(frozen=True)
class Asked:
    """A question: what is to be said of it, and by what."""

    name: str
    run: Callable[[], tuple[str, float, float]]
    outcome: str = "proved"


def cases() -> list[Asked]:
    """Return every question; four products of 8 bits need 18 bits."""
    questions = []
    for engine in ("integers", "ranges", "words", "bits", "arrays"):
        is_words = engine in ("words", "bits", "arrays")
        for size in SIZES:
            for bits in (8, 16):
                if not is_words or (size[1] <= WORDS_UP_TO and (size[0] == 1 or bits == 8)):
                    questions.append(Asked(f"{named(size)} of {bits} bits: {engine}", partial(proved, size, bits, engine)))
    for engine in ("integers", "words"):
        for sum_bits in (16, 17, 18):
            name = f"2, 4, 2 of 8 bits, accumulators of {sum_bits}: {engine}"
            if engine == "integers" or sum_bits < NEEDED:
                questions.append(
                    Asked(name, partial(proved, (2, 4, 2), 8, engine, sum_bits), "proved" if sum_bits >= NEEDED else "refuted")
                )
        questions += [Asked(f"a fold of {named(s)} that instructions share: {engine}", partial(split, s, engine)) for s in FOLDS]
        questions += [Asked(f"the step of an induction, {n} bits: {engine}", partial(induction, n, engine)) for n in (8, 16)]
        questions.append(Asked(f"saturating sums in another order: {engine}", partial(order, engine), "refuted"))
    return questions


def named(size: tuple[int, int, int]) -> str:
    """Return a size as text."""
    return ", ".join(map(str, size))


def measure(runs: int) -> list[Row]:
    """Ask for every instance."""
    rows: list[Row] = []
    for question in cases():
        results = [question.run() for _ in range(runs)]
        times = {"building_cpu_seconds": spread([f[1] for f in results]), "cpu_seconds": spread([f[2] for f in results])}
        rows.append({"name": question.name, "runs": runs, "outcome": results[0][0], **times})
        print(f"{question.name:60}{results[0][0]:>12}{times['cpu_seconds']['median']:10.4f} s", flush=True)
        if results[0][0] != question.outcome:
            raise SystemExit(f"{question.name} is {results[0][0]}")
    return rows


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=3).parse_args()
    finish("solver", measure(args.runs), args.json)


if __name__ == "__main__":
    main()
