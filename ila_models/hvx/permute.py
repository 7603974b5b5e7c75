"""HVX permutations: packs, deals, shuffles, alignment, rotation, tables, and the shuffles of pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from rewrite_compiler.lang import Expr, lift, select

from .encoding import Row
from .lanes import Constant, Scalar, Vector, either, lanes_of
from .state import VECTOR

Lanes = Callable[[Expr], Expr]
PairBytes = Callable[[Expr, Expr], Expr]  # half, byte → value
BITS = VECTOR.bit_length() - 1  # of the number of a byte


def _pack(row: Row, u: Vector, v: Vector) -> Lanes:
    """The lanes of the second vector, then of the first."""
    half = lanes_of(row.type) // 2
    return lambda n: either(n >= half, v, u).lane(n % half)


def _pack_parts(part: int, row: Row, u: Vector, v: Vector) -> Lanes:
    """The even or odd narrow lanes of the second vector, then of the first."""
    half = lanes_of(row.type) // 2

    def lane(n: Expr) -> Expr:
        source = either(n >= half, v, u)
        return Vector(source.m, source.number, row.type).lane(2 * (n % half) + part)

    return lane


def _deal(row: Row, a: Vector, *pair: Vector) -> Lanes:
    """Even lanes, then odd ones."""
    half = lanes_of(row.type) // 2
    return lambda n: a.lane(2 * (n % half) + n // half)


def _shuffle(row: Row, a: Vector) -> Lanes:
    """Lanes of the first and of the second half in turns."""
    half = lanes_of(row.type) // 2
    return lambda n: a.lane(n // 2 + half * (n % 2))


def _deal_every_other(_: Row, u: Vector, v: Vector) -> Lanes:
    """Bytes 0 mod 4 of the second vector, then 2 mod 4, then those of the first."""
    quarter = VECTOR // 4
    return lambda n: either(n >= VECTOR // 2, v, u).byte(4 * (n % quarter) + 2 * (n // quarter % 2))


def _shuffle_parts(part: int, _: Row, u: Vector, v: Vector) -> Lanes:
    """Even (odd) lanes of the second vector in even places, of the first in odd ones."""
    return lambda n: either(n % 2, v, u).lane(2 * (n // 2) + part)


def _align(row: Row, u: Vector, v: Vector, by: Scalar | Constant) -> Lanes:
    """Bytes k … k + 127 of the second vector followed by the first; from the left where the operation says so."""
    k = by.value % VECTOR
    first = VECTOR - k if row.operation == "vlalign" else k

    def byte(n: Expr) -> Expr:
        at = n + first
        return either(at >= VECTOR, v, u).byte(at % VECTOR)

    def last(n: Expr) -> Expr:  # all of the first vector, where nothing of the second is left
        return select(k == 0, u.byte(n), byte(n))

    return last if row.operation == "vlalign" else byte


def _rotate(_: Row, a: Vector, by: Scalar) -> Lanes:
    return lambda n: a.byte((n + by.value) % VECTOR)


def _table_bytes(_: Row, u: Vector, v: Vector, by: Scalar | Constant) -> Lanes:
    """Entries of a table of 256 bytes of which the instruction has one block of 32; 0 where the index is of another."""
    block = by.value % 8

    def lane(n: Expr) -> Expr:
        index = u.byte(n)
        return select(index >> 5 == block, v.lane(2 * (index % 64) + (block >> 1) % 2), 0)

    return lane


def _table_halves(_: Row, u: Vector, v: Vector, by: Scalar) -> Lanes:
    """Entries of a table of 256 halves of which the instruction has one block of 16."""
    block = by.value % 16

    def lane(n: Expr) -> Expr:
        index = u.byte(n)
        return select(index >> 4 == block, v.lane(2 * (index % 32) + (block >> 1) % 2), 0)

    return lane


def _pair_shuffle(steps: tuple[int, ...], u: Vector, v: Vector, by: Scalar) -> PairBytes:
    """The second vector (low) and the first (high), of which each bit of the scalar exchanges parts at that distance.

    An exchange at the distance of a bit swaps that bit of a byte's number with its half, so that the place from which a byte
    comes is traced back from the last step on.
    """

    def byte(half: Expr, n: Expr) -> Expr:
        bits = [n // (1 << b) % 2 for b in range(BITS)]
        place = half
        for b in reversed(steps):
            asked = by.value // (1 << b) % 2
            place, bits[b] = select(asked, bits[b], place), select(asked, place, bits[b])
        at = lift(0)
        for b, bit in enumerate(bits):
            at = at + bit * (1 << b)
        return either(place, v, u).byte(at)

    return byte


def _combine(u: Vector, v: Vector) -> PairBytes:
    return lambda half, n: either(half, v, u).byte(n)


PERMUTATIONS: Mapping[str, Callable[..., Lanes]] = {
    "vpack": _pack,
    "vpacke": partial(_pack_parts, 0),
    "vpacko": partial(_pack_parts, 1),
    "vdeal": _deal,
    "vshuff": _shuffle,
    "vdeale": _deal_every_other,
    "vshuffe": partial(_shuffle_parts, 0),
    "vshuffo": partial(_shuffle_parts, 1),
    "valign": _align,
    "vlalign": _align,
    "vror": _rotate,
    "vlut32": _table_bytes,
    "vlut16": _table_halves,
}
PAIRS: Mapping[str, Callable[..., PairBytes]] = {
    "vshuff": partial(_pair_shuffle, tuple(range(BITS))),
    "vdeal": partial(_pair_shuffle, tuple(reversed(range(BITS)))),
    "vcombine": _combine,
}
