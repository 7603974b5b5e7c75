"""Sets of sums Σ step·i along an axis, as columns: how many there are, and how many are new when the set moves.

Of one set the positions themselves are runs, each from a first position up to one that is out: sorted, and no two of them touch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from .columns import Column, Mask

MAX_STEP = 1 << 62
MAX_RUNS = 1 << 20  # of a set with gaps
MAX_POSITIONS = 1 << 26  # along an axis whose elements have to be counted one by one
Digit = tuple[Column, Column]  # step and count of each row
Runs = tuple[tuple[int, int], ...]


def distinct(digits: Sequence[Digit], rows: int) -> Column:
    """Return the number of distinct sums Σ step·i, 0 ≤ i < count, of each row."""
    if not digits:
        return np.ones(rows, np.int64)
    if len(digits) == 1:
        return digits[0][1]
    if len(digits) == 2:  # noqa: PLR2004 -- a pair
        return _pair(*digits)
    return _several(digits)


def _several(digits: Sequence[Digit]) -> Column:
    """Count sums digit by digit, the smallest step first: a step beyond all sums multiplies them, one within a dense set extends it.

    Rows where neither holds are counted one by one.
    """
    total, reach = np.ones_like(digits[0][1]), np.zeros_like(digits[0][1])
    is_dense, is_hard = reach == 0, reach > 0
    for step, n in _by_step(digits):
        step = np.where(n > 1, step, 0)
        is_beyond = step > reach
        is_hard |= (n > 1) & ~is_beyond & ~is_dense
        total = np.where(is_beyond, total * n, np.where(is_dense, reach + step * (n - 1) + 1, total))
        is_dense &= (n == 1) | ~is_beyond | (step == reach + 1)
        reach = reach + step * (n - 1)
    hard = np.flatnonzero(is_hard)
    if len(hard):
        table = np.stack([column[hard] for digit in digits for column in digit])
        total[hard] = _each_once(table, lambda row: distinct_sums(zip(row[::2], row[1::2], strict=True)))
    return np.asarray(total, np.int64)


def _by_step(digits: Sequence[Digit]) -> list[Digit]:
    """Return digits with steps that grow in every row, what does not turn last: a network of exchanges."""
    ordered = [(np.where(n > 1, step, MAX_STEP), n) for step, n in digits]
    for last in range(len(ordered) - 1, 0, -1):
        for k in range(last):
            (a, n), (b, m) = ordered[k], ordered[k + 1]
            swaps = a > b
            ordered[k] = (np.where(swaps, b, a), np.where(swaps, m, n))
            ordered[k + 1] = (np.where(swaps, a, b), np.where(swaps, n, m))
    return ordered


def _each_once(table: Column, value: Callable[[list[int]], int]) -> Column:
    """Return the value of every column of a table, each distinct one computed once."""
    spans = [int(n) + 1 for n in table.max(axis=1)]
    if int(table.min()) >= 0 and math.prod(spans) < MAX_STEP:
        keys = np.zeros(table.shape[1], np.int64)
        for row, span in zip(table, spans, strict=True):
            keys = keys * span + row
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(table, axis=1, return_index=True, return_inverse=True)
    return np.array([value(row) for row in table[:, first].T.tolist()], np.int64)[inverse.reshape(-1)]


def _pair(first: Digit, second: Digit) -> Column:
    """Count the sums of two progressions.

    The pairs (i, j) with one sum form a chain along (b/g, −a/g): sums are pairs without a predecessor in the box.
    """
    (a, n), (b, m) = first, second
    g = np.gcd(a, b)
    return np.asarray(n * m - np.maximum(n - b // g, 0) * np.maximum(m - a // g, 0), np.int64)


def distinct_sums(digits: Iterable[tuple[int, int]]) -> int:
    """Return the number of distinct sums Σ step·i, 0 ≤ i < count, over (step, count) pairs.

    Raises:
        InputError: there are gaps and too many positions to count (F230).
    """
    pairs = sorted((step, n) for step, n in digits if n > 1)
    count, reach, is_dense = 1, 0, True  # sums so far, the largest, and whether all below it occur
    for step, n in pairs:
        if step > reach:
            count, is_dense = count * n, is_dense and step == reach + 1
        elif is_dense:
            count = reach + step * (n - 1) + 1
        else:
            return sums_of(pairs).bit_count()
        reach += step * (n - 1)
    return count


def sums_of(pairs: Iterable[tuple[int, int]], sums: int = 1) -> int:
    """Return the set of sums, a bit each, of a set and (step, count) pairs.

    Raises:
        InputError: there are too many positions (F230).
    """
    pairs = list(pairs)
    reach = sums.bit_length() - 1 + sum(step * (n - 1) for step, n in pairs)
    if reach > MAX_POSITIONS:
        raise InputError("F230", f"An axis with gaps must have at most {MAX_POSITIONS:,} positions, not {reach + 1:,}")
    for step, n in pairs:
        copies = 1
        while copies < n:
            added = min(copies, n - copies)
            sums |= sums << step * added
            copies += added
    return sums


@dataclass(frozen=True)
class Sliding:
    """A set, the sums of `tile`, and its copies at the sums of `copies`: what they get when all of them move."""

    tile: Sequence[Digit]
    copies: Sequence[Digit]
    step: Column  # of the one progression that the set is
    count: Column
    is_progression: Mask
    elements: Column
    union: Column  # elements of all copies
    is_separate: bool = False  # no two sums of digits meet

    def arrivals(self, shift: Column, rows: NDArray[np.intp]) -> tuple[Column, Column]:
        """Return how many elements one copy, and all copies, get that they lacked before a shift, for some of the rows."""
        step, count = self.step[rows], self.count[rows]
        distance = np.abs(shift)
        advance = distance // step
        fresh = np.where(advance * step == distance, np.minimum(advance, count), count)
        copies = [(s[rows], n[rows]) for s, n in self.copies]
        total = fresh
        if copies and self.is_separate:
            total = math.prod((n for _, n in copies), start=fresh)
        elif copies:
            total = np.where(fresh > 0, distinct([*copies, (step, np.maximum(fresh, 1))], len(rows)), 0)
        hard = np.flatnonzero(~self.is_progression[rows])
        if len(hard):
            tile = [column[rows[hard]] for digit in self.tile for column in digit]
            fresh[hard] = _each_once(np.stack([*tile, distance[hard]]), lambda row: _arrivals_of((), row[:-1], row[-1]))
            split = 2 * len(copies)
            table = np.stack([*(column[hard] for digit in copies for column in digit), *tile, distance[hard]])
            total[hard] = _each_once(table, lambda row: _arrivals_of(row[:split], row[split:-1], row[-1]))
        return fresh, total


def sliding(tile: Sequence[Digit], copies: Sequence[Digit], rows: int, is_separate: bool) -> Sliding:
    """Return a set and its copies, and the one progression that it is in the rows where it is one."""
    ones = np.ones(rows, np.int64)
    union = math.prod((n for _, n in (*tile, *copies)), start=ones) if is_separate else distinct([*tile, *copies], rows)
    if len(tile) < 2:  # noqa: PLR2004 -- one digit is a progression
        step, count = tile[0] if tile else (ones, ones)
        return Sliding(tile, copies, step, count, ones == 1, count, union, is_separate)
    turning = sum((n > 1).astype(np.int64) for _, n in tile)
    count = distinct(tile, rows)
    is_dense = count == sum(step * (n - 1) for step, n in tile) + 1
    step = np.maximum(sum(np.where(n > 1, step, 0) for step, n in tile), 1)
    is_single = turning <= 1
    return Sliding(tile, copies, np.where(is_single, step, ones), count, is_single | is_dense, count, union)


def _arrivals_of(outer: Sequence[int], tile: Sequence[int], shift: int) -> int:
    """Count arrivals position by position."""
    members = sums_of(zip(tile[::2], tile[1::2], strict=True))
    before = members >> shift  # the set is its own mirror image: both directions bring as many
    fresh = members & ~before
    return sums_of(zip(outer[::2], outer[1::2], strict=True), fresh).bit_count() if fresh else 0


def joined(sets: Iterable[Runs]) -> Runs:
    """Return the positions that are in any of some sets."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(run for runs in sets for run in runs):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return tuple(merged)


def common(a: Runs, b: Runs) -> Runs:
    """Return the positions that are in both sets."""
    shared, i, k = list[tuple[int, int]](), 0, 0
    while i < len(a) and k < len(b):
        start, stop = max(a[i][0], b[k][0]), min(a[i][1], b[k][1])
        if start < stop:
            shared.append((start, stop))
        i, k = (i + 1, k) if a[i][1] <= b[k][1] else (i, k + 1)
    return tuple(shared)


def without(a: Runs, b: Runs) -> Runs:
    """Return the positions of a set that are not in another one."""
    if not a:
        return ()
    edges = [a[0][0], *(edge for run in b for edge in run), a[-1][1]]
    gaps = [(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if start < stop]
    return common(a, tuple(gaps))


def run_size(runs: Runs) -> int:
    """Return the number of positions."""
    return sum(stop - start for start, stop in runs)


def shifted(runs: Runs, distance: int) -> Runs:
    """Return a set moved along."""
    return tuple((start + distance, stop + distance) for start, stop in runs)


def runs_of(sets: Sequence[tuple[Runs, int]]) -> Runs:
    """Return the sums of a position of each set times its coefficient; of one set alone its positions, for coefficients leave gaps.

    Raises:
        InputError: there are gaps and too many positions to count (F230).
    """
    if len(sets) == 1:
        return sets[0][0]
    total: Runs = ((0, 1),)
    for runs, coefficient in sorted(sets, key=lambda s: s[1]):
        total = joined(_swept(run, start * coefficient, stop - start, coefficient) for start, stop in runs for run in total)
    return total


def _swept(run: tuple[int, int], start: int, count: int, step: int) -> Runs:
    """Return a run at so many places, a step apart."""
    first, stop = run[0] + start, run[1] + start
    if count == 1 or step <= stop - first:
        return ((first, stop + step * (count - 1)),)
    if count > MAX_RUNS:
        raise InputError("F230", f"An axis with gaps must have at most {MAX_RUNS:,} runs of positions, not {count:,}")
    return tuple((first + step * k, stop + step * k) for k in range(count))
