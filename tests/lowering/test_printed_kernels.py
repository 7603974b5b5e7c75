"""Kernels give the bits of the plain reading, whatever the widths, lanes, roundings and instructions; few serve all shapes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from rewrite_compiler.ila_models.flexasr.numerics import DECODE, TANH
from rewrite_compiler.kernels import Constants, Lowered, kernel
from rewrite_compiler.kernels.layout import Layout
from rewrite_compiler.lang import Array, Expr, Leaf, Table, array, fold, fold_arrays, reduce_sum, sat, select, shift_right, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.arithmetic import ROUNDINGS
from rewrite_compiler.lang.binders import Comprehension, scalar_array
from rewrite_compiler.prove.mappings.mappings import numeric_sizes
from rewrite_compiler.readings.arrays.labelled_array import Data, storage_dtype
from rewrite_compiler.readings.kernels.evaluate import evaluate_together
from rewrite_compiler.readings.native.jit import counts, host
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import Target
from rewrite_compiler.targets import flexasr, hlscnn, vta

RNG = np.random.default_rng(0)
# what a processor may have of what this one has
FEATURES = [{}, {"sse2"}, {"avx2", "sse2"}, {"avx512bw", "avx2"}, {"avx512bw", "avx512vnni", "avx2"}, {"avx2", "avxvnni"}]
KNOWN = [frozenset(f) for f in FEATURES if frozenset(f) <= host()[1]]


def full_range(leaf: Leaf, *lead: int) -> Data:
    """Return codes of a whole range, its ends often."""
    low, high = leaf.interval
    assert low is not None
    assert high is not None
    shape = (*lead, *leaf.shape)
    codes = RNG.integers(low, high + 1, shape)
    ends = RNG.integers(0, 4, shape)
    return np.where(ends == 0, low, np.where(ends == 1, high, codes)).astype(storage_dtype(leaf.interval))


def checked(term: Array, moving: Mapping[Leaf, Data], shared: Mapping[Leaf, Data], features: frozenset[str] | None = None) -> Lowered:
    """Compare with the plain reading, twice: what is shared is packed once; then as loaded from the cache, where nothing is printed."""
    samples = len(next(iter(moving.values())))
    made = Lowered([term], moving, samples, features)
    with patch.object(kernel, "Printer", side_effect=AssertionError("printed again")):
        cached = Lowered([term], moving, samples, features)
    wide = [{leaf: x.astype(np.int64) for leaf, x in part.items()} for part in (moving, shared)]
    expected = evaluate_together(term, *wide)
    for code in (made, made, cached):
        (found,) = code({**moving, **shared})
        assert np.array_equal(found, expected)
    assert made.show() == cached.show()
    return made


def printed_texts(code: Lowered) -> list[str]:
    """Return the LLVM text of every stage that has one."""
    kernels = [k for k in code.kernels.values() if isinstance(k, kernel.Kernel)]
    return [str(kernel.Printer(k.value, k.schedule, host()[1]).module) for k in kernels]


def folded(lanes: int, steps: int, bits: tuple[int, int], accumulator: int, rounding: str, filters: int = 5) -> tuple[Leaf, Leaf, Array]:
    """Return a fold of rounded sums of products that saturates: two operands and the term."""
    x = Leaf((steps * lanes,), iv.of_width(bits[0], True), False, "x")
    w = Leaf((filters, steps * lanes), iv.of_width(bits[1], True), False, "w")

    def step(n: Expr, k: Expr, total: Expr) -> Expr:
        q = shift_right(reduce_sum(lambda j: x[k * lanes + j] * w[n, k * lanes + j], lanes), 5, rounding)
        return sat(total + q, accumulator)

    return x, w, array(lambda n: fold(steps, 0, lambda k, t: step(n, k, t), accumulator), (filters,))


@pytest.mark.parametrize("features", KNOWN, ids=lambda f: "+".join(sorted(f)) or "plain")
@pytest.mark.parametrize("lanes", [1, 7, 8, 32, 64])
def test_lanes_and_instructions(lanes: int, features: frozenset[str]) -> None:
    for bits, accumulator in (((8, 8), 16), ((16, 8), 16), ((16, 16), 32), ((18, 8), 24)):
        x, w, term = folded(lanes, 3, bits, accumulator, "half_even")
        assert not checked(term, {x: full_range(x, 3)}, {w: full_range(w)}, features).notes


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_widths_and_roundings(rounding: str) -> None:
    for bits, accumulator in itertools.product([(4, 4), (12, 12), (16, 16), (24, 24)], [16, 33, 48]):
        x, w, term = folded(9, 2, bits, accumulator, rounding)
        assert not checked(term, {x: full_range(x, 2)}, {w: full_range(w)}).notes


@pytest.mark.parametrize(("samples", "filters"), [(1, 1), (1, 16), (2, 3), (17, 33), (40, 2)])
def test_lanes_lie_on_any_axis(samples: int, filters: int) -> None:
    x, w, term = folded(8, 2, (16, 8), 16, "floor", filters)
    checked(term, {x: full_range(x, samples)}, {w: full_range(w)})


def test_one_kernel_serves_many_shapes() -> None:
    texts = set()
    for filters, channels, size in ((16, 16, 10), (32, 48, 14), (48, 32, 13)):
        x = Leaf((channels, size, size), (-128, 127), False, "x")
        w = Leaf((filters, channels, 3, 3), (-128, 127), False, "w")

        def element(n: Expr, i: Expr, j: Expr, x: Leaf = x, w: Leaf = w) -> Expr:
            total = reduce_sum(lambda c, r, s: x[c, i + r, j + s] * w[n, c, r, s], (int(x.shape[0]), 3, 3))  # type: ignore[call-overload]
            return wrap(total, 32) >> 3

        term = array(element, (filters, size - 2, size - 2))
        made = checked(term, {x: full_range(x, 4)}, {w: full_range(w)})
        texts |= set(printed_texts(made))
    assert len(texts) == 1


def test_code_of_another_run_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    code = (
        "import numpy as np\n"
        "from rewrite_compiler.lang import Leaf, array, reduce_sum\n"
        "from rewrite_compiler.readings.native.jit import counts\n"
        "from rewrite_compiler.kernels import Lowered\n"
        "x, w = Leaf((6,), (-9, 9), False, 'x'), Leaf((5, 6), (-9, 9), False, 'w')\n"
        "made = Lowered([array(lambda n: reduce_sum(lambda k: x[k] * w[n, k], 6), 5)], [x], 2)\n"
        "made({x: np.ones((2, 6), np.int8), w: np.ones((5, 6), np.int8)})\n"
        "print(counts.compiled)"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert runs == ["1\n", "0\n"]


def different_stages() -> Iterator[Comprehension]:
    """Yield stages every two of which differ in one thing only."""
    x, y = Leaf((8,), (0, 7), False, "x"), Leaf((8,), (0, 8), False, "x")
    tables = [Table("t", lambda i, n=n: i * n, (0, 7)) for n in (1, 2)]
    bodies: list[Callable[[Expr], Expr]] = [
        lambda i: x[i], lambda i: y[i], lambda i: x[i] + 1, lambda i: x[i] + 2, lambda i: x[7 - i],
        lambda i: tables[0](x[i]), lambda i: tables[1](x[i]), lambda i: tables[0](x[i]) + tables[1](x[i]),
        *(lambda i, n=n, first=first: fold(n, first, lambda k, t: sat(t + x[i] * k, 8), 8) for n in (3, 4) for first in (0, 1)),
        *(lambda i, to=to: fold(3, 0, lambda k, t: wrap(t * 2 + x[i] * k, to), 8) for to in (7, 8)),
        lambda i: fold_arrays(3, [array(lambda j: 0, (8,))], lambda k, h: [array(lambda j: sat(h[j] + x[j] * k, 8), (8,))], [8])[0][i],
        lambda i: reduce_sum(lambda k: x[k] * x[i], 4), lambda i: reduce_sum(lambda k: x[k] * x[i], 5),
    ]  # fmt: skip
    for body in bodies:
        for size in (7, 8):
            yield array(body, (size,))


def test_stages_that_differ_are_other_entries_of_the_cache() -> None:
    features = [frozenset(f) for f in FEATURES]
    keys = [kernel.CachedStage(stage, f).key for stage in different_stages() for f in features]
    assert len(set(keys)) == len(keys)
    again = [kernel.CachedStage(stage, f).key for stage in different_stages() for f in features]
    assert keys == again


def test_an_entry_that_was_changed_is_printed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    x = Leaf((40,), (-9, 9), False, "x")
    term, operand = array(lambda i: x[i] * 3, (40,)), full_range(x, 2)
    checked(term, {x: operand}, {})
    (entry,) = (tmp_path / "kernels").iterdir()
    entry.write_bytes(entry.read_bytes().replace(b'"lanes": 16', b'"lanes": 32'))
    before = counts.rebuilt
    checked(term, {x: operand}, {})
    assert counts.rebuilt == before + 1
    for file in (tmp_path / "objects").iterdir():
        file.unlink()
    kernel._loaded_code.cache_clear()
    (found,) = Lowered([term], [x], 2)({x: operand})
    assert np.array_equal(found, operand.astype(np.int64) * 3)


def test_an_index_outside_is_what_the_plain_reading_says() -> None:
    x = Leaf((4,), (0, 9), False, "x")
    term = array(lambda i: x[i * 3], (3,))
    assert not checked(term, {x: full_range(x, 2)}, {}).notes


def test_zeros_around_are_not_read() -> None:
    x = Leaf((6, 5), (-100, 100), False, "x")
    padded = array(lambda i, j: select((i >= 2) & (i < 8) & (j >= 1) & (j < 6), x[i - 2, j - 1], 7), (9, 7))
    term = array(lambda i, j: reduce_sum(lambda r, s: padded[i + r, j + s], (3, 3)), (7, 5))
    assert not checked(term, {x: full_range(x, 3)}, {}).notes


def test_functions_of_codes_are_computed_once() -> None:
    x, w = Leaf((12,), (0, 255), False, "x"), Leaf((20, 12), (0, 255), False, "w")
    term = array(lambda n: TANH(wrap(reduce_sum(lambda k: DECODE(x[k]) * DECODE(w[n, k]), 12) >> 4, 20)), (20,))
    made = checked(term, {x: full_range(x, 3)}, {w: full_range(w)})
    assert [line.split(":")[0] for line in made.show().splitlines()] == ["x values [3, 12]", "w values [20, 12]", "array 1 [3, 20]"]


def test_folds_of_arrays_keep_their_states() -> None:
    x, r = Leaf((7, 6), (-8, 7), False, "x"), Leaf((6, 6), (-8, 7), False, "r")
    first = array(lambda j: 0, (6,))

    def step(t: Expr, h: Array) -> list[Array]:
        return [array(lambda j: sat(x[t, j] + (reduce_sum(lambda k: h[k] * r[j, k], 6) >> 2), 8), (6,))]

    every, last = (fold_arrays(7, [first], step, [8], history=is_every)[0] for is_every in (True, False))
    for term in (every, last):
        checked(term, {x: full_range(x, 4)}, {r: full_range(r)})
    both = Lowered([every, last], [x], 4)
    assert len(both.stages.sequences) == 1  # the same steps run once


def test_what_has_no_kernel_is_said() -> None:
    x = Leaf((4,), (-(1 << 62), 1 << 62), False, "x")
    made = checked(array(lambda i: (x[i] * 4) >> 3, (4,)), {x: full_range(x, 2)}, {})
    assert made.notes == [
        f"array 0: plain arrays: no kernel computes a value in {(-(1 << 64), 1 << 64)}, more than a word of 64 bits holds"
    ]  # fmt: skip


def test_a_table_of_two_codes_is_read() -> None:
    pair = Table("pair", lambda a, b: select(a > b, a - 2 * b, b), (0, 63), (-32, 31))
    x, y = Leaf((9,), (0, 63), False, "x"), Leaf((9,), (-32, 31), False, "y")
    assert not checked(array(lambda i: pair(x[i], y[i]), (9,)), {x: full_range(x, 2)}, {y: full_range(y)}).notes


def test_a_scalar_of_operands_is_computed_for_every_sample() -> None:
    x = Leaf((5,), (-8, 7), False, "x")
    checked(scalar_array(reduce_sum(lambda k: x[k], 5)), {x: full_range(x, 3)}, {})


def operations() -> list[tuple[Target, Operation]]:
    """Return every shipped operation that has numerics."""
    targets = [t.target.configured({}) for t in (flexasr, hlscnn, vta)]
    return [(t, m) for t in targets for m in t.mappings.values() if m.codes is not None]


@pytest.mark.parametrize("operation", [m for _, m in operations()], ids=lambda m: m.name)
def test_shipped_numerics(operation: Operation) -> None:
    sizes = next(iter(numeric_sizes(operation)))
    formats = operation.formats_for(dict.fromkeys(operation.axes.of, 1.0))
    leaves = [Leaf(tuple(sizes[d] for d in operation.axes.of[v.name]), formats[v.name].codes, False, v.name) for v in operation.operands]
    attributes = {name: sizes[name] for name, _ in operation.statics if name in sizes}
    found = operation.result_codes(leaves, formats, attributes)
    for term in found if isinstance(found, tuple) else (found,):
        assert not checked(term, {leaf: full_range(leaf, 2) for leaf in leaves}, {}).notes


def product(inner: int, outer: int, low: int, high: int) -> tuple[Leaf, Leaf, Array]:
    """Return operands and the term of a matrix product whose first operand has codes in these bounds."""
    x, w = Leaf((inner,), (low, high), False, "x"), Leaf((outer, inner), (-128, 127), False, "w")
    return x, w, array(lambda n: reduce_sum(lambda k: x[k] * w[n, k], inner), (outer,))


@pytest.mark.parametrize("bounds", [(-128, 127), (0, 255), (-(1 << 15), (1 << 15) - 1)])
@pytest.mark.parametrize("features", KNOWN)
@pytest.mark.parametrize("inner", [6, 7])
def test_lanes_of_samples_read_operands_as_they_lie(bounds: tuple[int, int], features: frozenset[str], inner: int) -> None:
    x, w, term = product(inner, 3, *bounds)
    for codes in (full_range(x, 32), np.ascontiguousarray(full_range(x, 32).T).T, full_range(x, 21)):
        assert "lanes on axis 0" in checked(term, {x: codes}, {w: full_range(w)}, features).show()


def test_threads_share_kernels_and_not_what_they_compute() -> None:
    x, w, _ = product(8, 16, -9, 9)
    padded = array(lambda k: select((k > 0) & (k < 9), x[k - 1], 0), (10,))
    term = array(lambda n, i: reduce_sum(lambda k: padded[i + k] * w[n, k], 8), (16, 3))
    given = [full_range(x, 32) for _ in range(8)]
    shared, made, constants = full_range(w), Lowered([term], [x], 32), Constants()
    expected = [made({x: codes, w: shared})[0].copy() for codes in given]
    with ThreadPoolExecutor(4) as threads:
        runs = list(threads.map(lambda n: made({x: given[n % 8], w: shared}, constants)[0], range(400)))
    assert all(np.array_equal(y, expected[n % 8]) for n, y in enumerate(runs))


def test_what_is_computed_of_constants_is_kept_by_who_asks() -> None:
    x, w = Leaf((8,), (-9, 9), False, "x"), Leaf((16, 8), (0, 255), False, "w")
    decoded = Table("decoded", lambda c: select(c < 128, c * c + shift_right(c, 1), -c - 7 * c * shift_right(c, 2) % 11), (0, 255))
    term = array(lambda n: reduce_sum(lambda k: x[k] * decoded(w[n, k]), 8), (16,))
    made, codes, shared, constants = Lowered([term], [x], 16), full_range(x, 16), full_range(w), Constants()
    (first,) = made({x: codes, w: shared}, constants)
    assert constants.values
    kept = dict(constants.values)
    assert np.array_equal(made({x: codes, w: shared}, constants)[0], first)
    assert all(constants.values[leaf] is y for leaf, y in kept.items())
    other = (255 - shared).astype(shared.dtype)
    assert np.array_equal(made({x: codes, w: other})[0], evaluate_together(term, {x: codes.astype(np.int64)}, {w: other.astype(np.int64)}))


def test_an_array_lies_as_vectors_read_it_only_where_these_end_with_it() -> None:
    """Pairs of an odd number of elements have a zero behind the last one, and lanes of a few a whole vector."""
    for n, is_laid_out in ((3, False), (4, True)):
        x = np.arange(1, n + 1, dtype=np.int16)
        packed = Layout(Leaf((n,), iv.of_width(16, True), False, "x"), "int16", pair=0).pack(x)
        assert (packed is x) is is_laid_out
        assert packed[: n + n % 2].tolist() == [*range(1, n + 1), *[0] * (n % 2)]
    for n, is_laid_out in ((24, False), (32, True)):
        x = np.arange(n, dtype=np.int16)
        packed = Layout(Leaf((n,), iv.of_width(16, True), False, "x"), "int16", lane=0).pack(x)
        assert (packed is x) is is_laid_out
        assert packed[:n].tolist() == x.tolist()
