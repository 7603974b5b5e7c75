"""Demanded bits: no bit outside of the mask changes decode or operands, and the mask is as small as the rules say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.demanded_bits import demanded_bits, possible_bits
from rewrite_compiler.ila.model import Instruction
from rewrite_compiler.lang import NOTHING, Expr, Leaf, as_real, clz, concat, extract, floor, lift, select, wrap
from rewrite_compiler.lang.binders import scalar_array
from rewrite_compiler.readings.oracle.emit_python import evaluate

Word = Callable[[Expr], Expr]

CASES: dict[str, tuple[Word, int]] = {
    "a field": (lambda w: extract(w, 4, 3), 0x0070),
    "a field of a field": (lambda w: extract(extract(w, 4, 8), 2, 2), 0x00C0),
    "a signed field": (lambda w: wrap(extract(w, 4, 4), 4), 0x00F0),
    "an extension reads the sign": (lambda w: extract(wrap(wrap(w, 4), 16, False), 8, 2), 0x0008),
    "an unsigned word has no sign": (lambda w: extract(wrap(w, 4, False) + 15, 4, 2), 0x000F),
    "below the sign": (lambda w: extract(wrap(wrap(w, 8), 16, False), 0, 4), 0x000F),
    "a sum carries upwards": (lambda w: extract(w + 5, 4, 2), 0x003F),
    "a union carries nothing": (lambda w: extract((extract(w, 8, 4) << 4) + extract(w, 0, 4), 4, 4), 0x0F00),
    "numbers that share a bit": (lambda w: extract((extract(w, 8, 4) << 3) + extract(w, 0, 4), 4, 4), 0x0F0F),
    "a difference": (lambda w: extract(wrap(w - 3, 16, False), 2, 1), 0x0007),
    "a product": (lambda w: extract(w * 3, 2, 1), 0x0007),
    "shifted left": (lambda w: extract(w << 3, 4, 2), 0x0006),
    "shifted right": (lambda w: extract(w >> 3, 4, 2), 0x0180),
    "a remainder of a power of two": (lambda w: w % 16, 0x000F),
    "a remainder of another number": (lambda w: w % 12, 0xFFFF),
    "a quotient of a power of two": (lambda w: extract(w // 8, 0, 2), 0x0018),
    "a quotient of another number": (lambda w: extract(w // 6, 0, 2), 0xFFFF),
    "and with a mask": (lambda w: w & 0x0F0C, 0x0F0C),
    "or with a mask": (lambda w: extract(w | 0x0F0C, 2, 2), 0x000C),
    "a choice": (lambda w: select(extract(w, 15, 1) == 1, extract(w, 0, 2), extract(w, 4, 2)), 0x8033),
    "joined": (lambda w: extract(concat((extract(w, 8, 4), 4), (extract(w, 0, 4), 4)), 4, 2), 0x0300),
    "leading zeros": (lambda w: clz(extract(w, 2, 4), 4), 0x003C),
    "a real number": (lambda w: floor(as_real(extract(w, 2, 4)) / 3), 0x003C),
}


def mask_of(word: Word) -> tuple[int, Leaf, Expr]:
    """Return the demanded bits of a word of 16 bits, its input, and the term that is decided by it."""
    m = Ila("small")
    leaf = m.input("word", 16)
    term = word(leaf[()])
    decode = term == 1
    return demanded_bits(m, Instruction("one", "", "here", decode, {}, {}, NOTHING, None))["word"], leaf, decode


@pytest.mark.parametrize("name", CASES)
def test_no_bit_outside_of_the_mask_matters(name: str) -> None:
    word, expected = CASES[name]
    mask, leaf, _ = mask_of(word)
    term = word(leaf[()])
    random = np.random.default_rng(1)
    for x, noise in random.integers(1 << 16, size=(40, 2)).tolist():
        same = x & mask | noise & ~mask & 0xFFFF
        assert evaluate(scalar_array(term), {leaf: [x]}, 1) == evaluate(scalar_array(term), {leaf: [same]}, 1)
    assert mask & expected == expected  # every bit that matters


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"numbers that share a bit", "leading zeros", "a real number"}))
def test_the_mask_is_no_larger_than_the_rules_say(name: str) -> None:
    assert mask_of(CASES[name][0])[0] == CASES[name][1]


def test_lanes_that_an_index_may_read_are_demanded() -> None:
    m = Ila("lanes")
    data, at = m.input("data", 8, 4), m.input("at", 4)

    def mask(index: Expr | int) -> dict[str, int]:
        return demanded_bits(m, Instruction("one", "", "here", data[index] == 1, {}, {}, NOTHING, None))

    assert mask(0) == {"data": 0x000000FF, "at": 0}
    assert mask(3) == {"data": 0xFF000000, "at": 0}
    assert mask(extract(at[()], 0, 1) + 1) == {"data": 0x00FFFF00, "at": 0x1}
    assert mask(extract(at[()], 0, 1) + 2) == {"data": 0xFFFF0000, "at": 0x1}
    assert mask(at[()] % 4) == {"data": 0xFFFFFFFF, "at": 0x3}


def test_bits_that_may_be_1() -> None:
    word = Leaf((), (0, 9), False, "w")[()]
    terms = (lift(6), word, word << 2, word + 16, word + 1, word - 1)
    assert [possible_bits(x) for x in terms] == [6, 0b1111, 0b111100, 0b11111, 0b1111, -1]
