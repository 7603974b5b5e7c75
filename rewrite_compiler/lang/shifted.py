"""Shifted products: Σ ⌊a·b / 2^s⌋ of 16-bit factors as two sums that processors have, where b is known.

With b = 2^s·h + l and −2^(s−1) ≤ l < 2^(s−1) it is ⌊a·b / 2^s⌋ = a·h + ⌊a·l / 2^s⌋, and the last term is the high half of
a · (l·2^(16−s)), whose factors have 16 bits. Nothing is rounded away: the sums are the same integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .named import Data
from .straight import Code, Op

HALF = 16
MOST = 1 << 31


def shifted_sum(code: Code) -> tuple[int, list[int], int] | None:
    """Return the operator that adds up all products of a code, each shifted down alike, these in order, and the shift; else None."""
    products = [n for n, op in enumerate(code) if op.name == "product"]
    shifts = {op.args[0]: n for n, op in enumerate(code) if op.name == "shr" and code[op.args[0]].name == "product"}
    amounts = {code[code[n].args[1]].data for n in shifts.values() if code[code[n].args[1]].name == "const"}
    known = all(code[code[n].args[1]].name == "const" for n in shifts.values())
    if len(products) < 2 or len(products) % 2 or set(products) != set(shifts) or len(amounts) != 1 or not known:
        return None
    products.sort(key=lambda n: code[n].data[1])
    first, (shift,) = code[products[0]].data, amounts
    in_order = all(code[n].data[:3] == (first[0], first[1] + k, first[2] + k) for k, n in enumerate(products))
    is_exact = 0 < shift < HALF and len(products) * (1 << 15) * ((1 << 15 - shift) + 1) < MOST
    if not in_order or first[2] or not is_exact or any(op.width > 32 for op in code):
        return None
    totals = [n for n, op in enumerate(code) if op.name == "add" and sorted(_leaves(code, n)) == sorted(shifts.values())]
    return (totals[0], products, shift) if len(totals) == 1 else None


def _leaves(code: Code, n: int) -> list[int]:
    op = code[n]
    return [x for a in op.args for x in _leaves(code, a)] if op.name == "add" else [n]


def split_code(code: Code, found: tuple[int, list[int], int]) -> Code:
    """Return the code with two sums in place of the shifted products."""
    total, products, _ = found
    table, offset, _, _ = code[products[0]].data
    pairs = len(products) // 2
    dot, high = Op("dot", (), (table, offset, 0, pairs)), Op("high", (), (table, offset, pairs, pairs))
    made: list[Op] = []
    places: dict[int, int] = {}

    def kept(n: int) -> int:
        if n not in places:
            op = code[n]
            new = Op("add", (_put(made, dot), _put(made, high))) if n == total else None
            new = new or Op(op.name, tuple(kept(a) for a in op.args), op.data, op.bits, op.width)
            places[n] = _put(made, new)
        return places[n]

    kept(len(code) - 1)
    return tuple(made)


def _put(made: list[Op], op: Op) -> int:
    made.append(op)
    return len(made) - 1


def split_words(packed: Data, shift: int) -> Data:
    """Return columns [tiles, steps, products, lanes], a factor a word, as words of two: all h, then all l·2^(16−s)."""
    factors = packed.astype(np.int16).astype(np.int32)
    low = (factors + (1 << shift - 1)) % (1 << shift) - (1 << shift - 1)
    parts = ((factors - low) >> shift, low << HALF - shift)
    return np.concatenate([_paired(x) for x in parts], axis=2)


def _paired(x: Data) -> Data:
    halves: Sequence[Data] = (x[:, :, 0::2], x[:, :, 1::2])
    return np.ascontiguousarray(halves[0] & 0xFFFF | halves[1] << HALF).astype(np.int32)
