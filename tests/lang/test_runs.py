"""Loops that copy are copies, and indices modulo a constant go on at the start, in machine code as in the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import joined
from rewrite_compiler.lang import Expr, Leaf, Step, array, extract, let, loop, reduce, seq, update, when, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.step import assign
from rewrite_compiler.lowering.loop_ir import Conjunction, Copy
from rewrite_compiler.lowering.lower import lower_step
from rewrite_compiler.lowering.vector_idioms import can_exit_early, recognise_idioms
from rewrite_compiler.readings.native.printer import NativeFunction
from rewrite_compiler.readings.oracle.emit_python import StepFunction

BYTE, SIZE = iv.of_width(8, False), 50
source, target = Leaf((SIZE,), BYTE, False, "source"), Leaf((SIZE,), BYTE, False, "target")
at = Leaf((), (0, SIZE - 1), False, "at")
near = Leaf((), (0, SIZE - 18), False, "near")
wide = Leaf((SIZE,), iv.of_width(16, False), False, "wide")


def test_local_arrays_whose_length_is_known_late_are_copied() -> None:
    kept = array(lambda i: source[i], near[()] + 8)
    step = let(kept, lambda x: seq(update(source, 8, lambda j: (j, 0)), update(target, 8, lambda j: (j + 1, x[j]))))
    native, oracle = NativeFunction(step), StepFunction(step)
    given = {source: np.arange(SIZE, dtype=np.uint8), target: np.zeros(SIZE, np.uint8), near: np.array(5, np.uint8)}
    lists = {m: data.reshape(-1).tolist() for m, data in given.items()}
    native([given[m] for m in native.memories])
    oracle([lists[m] for m in oracle.memories])
    assert given[target].tolist() == lists[target] == [0, *range(8), *[0] * (SIZE - 9)]


def pair(place: Expr) -> Expr:
    """Return the word of the two bytes at a place."""
    return source[place] + (source[place + 1] << 8)


STEPS: dict[str, Step] = {
    "wraps where it is written": update(target, 16, lambda j: ((at[()] + j) % SIZE, source[j])),
    "wraps where it is read": update(target, 16, lambda j: (j, source[(at[()] + j + 30) % SIZE])),
    "wraps twice": update(target, 16, lambda j: ((at[()] + j) % SIZE, source[(2 * at[()] + j) % SIZE])),
    "joins bytes": update(wide, 8, lambda j: (2 * j, source[(at[()] + 2 * j) % SIZE] + (source[(at[()] + 2 * j + 1) % SIZE] << 8))),
    "joins bytes side by side": update(wide, 8, lambda j: (near[()] + 1 + j, pair(near[()] + 2 * j))),
    "joins bytes at every second place": update(wide, 8, lambda j: (near[()] + 1 + 2 * j, pair(near[()] + 2 * j))),
    "joins bytes up to the end": update(wide, 8, lambda j: (near[()] + 3 + 2 * j, pair(near[()] + 2 * j))),
    "joins bytes the other way": update(wide, 8, lambda j: (2 * j, source[2 * j + 1] + (source[2 * j] << 8))),
    "in one memory": update(source, 16, lambda j: ((at[()] + j) % SIZE, source[j])),
    "a stride": update(target, 5, lambda j: ((at[()] + 3 * j) % SIZE, source[j])),
    "a word of another width": update(wide, 16, lambda j: (j + 2, source[j])),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("apart", [frozenset(), frozenset({source})], ids=["together", "apart"])
def test_machine_code_copies_as_the_oracle(name: str, apart: frozenset[Leaf]) -> None:
    step, random = STEPS[name], np.random.default_rng(len(name))
    native, oracle = NativeFunction(step, noalias=apart, level=1), StepFunction(step)
    for place in range(SIZE):
        memories = {m: random.integers(0, 256, SIZE).astype(np.uint16 if m is wide else np.uint8) for m in (source, target, wide)}
        memories |= {at: np.array(place, np.uint8), near: np.array(min(place, SIZE - 18), np.uint8)}
        lists = {m: data.reshape(-1).tolist() for m, data in memories.items()}
        native([memories[m] for m in native.memories])
        oracle([lists[m] for m in oracle.memories])
        assert all(memories[m].reshape(-1).tolist() == x for m, x in lists.items())


def test_low_bits_and_memories_of_any_size_are_copied() -> None:
    """Words are cut to bytes, and where a memory ends is asked once for all of them; beyond, as the oracle says it."""
    words, image = Leaf((SIZE,), iv.of_width(32, True), False, "words"), Leaf((1 << 48,), BYTE, False, "image")
    start = Leaf((), (0, 200), False, "start")
    steps = (
        update(image, 16, lambda j: (start[()] + j - 3, wrap(wrap(words[j + 5], 8, True), 8, False))),
        update(source, 16, lambda j: (j + 2, wrap(image[start[()] + j - 3] + 0, 8, False))),
        update(image, 16, lambda j: (start[()] + j - 3, wrap(words[j + 5], 6, False))),
        update(words, 4, lambda j: (j + 2, wrap(joined(lambda n: image[start[()] + 4 * j - 3 + n], 4), 32, True))),
        update(words, 4, lambda j: (j + 2, wrap(joined(lambda n: image[start[()] + 4 * j - 3 + n], 3), 32, True))),
    )
    random = np.random.default_rng(4)
    for step in steps:
        native, oracle = NativeFunction(step), StepFunction(step)
        for place in (3, 4, 30, 47, 48, 2, 199):
            given = {image: random.integers(0, 256, 60).astype(np.uint8), source: random.integers(0, 256, SIZE).astype(np.uint8)}
            given |= {words: random.integers(-(1 << 31), 1 << 31, SIZE).astype(np.int32), start: np.array(place, np.uint8)}
            lists = {m: data.reshape(-1).tolist() for m, data in given.items()}
            if not 3 <= place <= 47 and step is steps[-1]:
                continue  # of words of three bytes, the last one is not read
            if not 3 <= place <= 47:
                with pytest.raises(SpecError):
                    native([given[m] for m in native.memories])
                continue
            native([given[m] for m in native.memories])
            oracle([lists[m] for m in oracle.memories])
            assert all(given[m].reshape(-1).tolist() == x for m, x in lists.items())


def condition(place: Expr) -> Expr:
    """Return a condition on two elements, and on what is the same everywhere."""
    known = (source[place] >> 2) + 1 < (target[place + 3] & 31) + at[()]
    return (known | (extract(source[place], 1, 1) == 0)) & ~(target[place] == 7)


@pytest.mark.parametrize("count", [8, 16, 32, 5])
def test_conditions_side_by_side_are_those_one_by_one(count: int) -> None:
    random = np.random.default_rng(count)
    every = reduce("min", lambda j: condition(near[()] % 8 + j), count)
    step = assign(wide, every + 1, near[()])
    is_one = [isinstance(x, Conjunction) for x in recognise_idioms(lower_step(step).body)]
    assert any(is_one) == (count != 5)
    native, oracle = NativeFunction(step, level=1), StepFunction(step)
    answers = set()
    for turn in range(300):
        rare = (lambda n, t=turn: np.where(random.random(n) < 0.5 ** (t % 8), random.integers(0, 256, n), 0)) if turn % 2 else None
        given = {m: (rare(SIZE) if rare else random.integers(0, 256, SIZE)).astype(np.uint8) for m in (source, target)}
        given |= {wide: np.zeros(SIZE, np.uint16), at: np.array(random.integers(0, 60), np.uint8)}
        given |= {near: np.array(random.integers(0, 4), np.uint8)}
        lists = {m: data.reshape(-1).tolist() for m, data in given.items()}
        native([given[m] for m in native.memories])
        oracle([lists[m] for m in oracle.memories])
        assert given[wide].tolist() == lists[wide]
        answers |= set(lists[wide])
    assert answers == {0, 1, 2}


def test_a_loop_that_copies_is_one_statement() -> None:
    found = recognise_idioms(lower_step(update(target, 16, lambda j: (j + 4, source[j]))).body)
    assert [(type(x), x.count) for x in found if isinstance(x, Copy)] == [(Copy, 16)]


def test_words_of_bytes_are_copied_as_words() -> None:
    found = {
        name: [x for x in recognise_idioms(lower_step(STEPS[name]).body) if isinstance(x, Copy)] for name in STEPS if "joins bytes " in name
    }
    assert {name: [(x.count, x.stride, x.width) for x in copies] for name, copies in found.items()} == {
        "joins bytes side by side": [(8, 1, 2)],
        "joins bytes at every second place": [(8, 2, 2)],
        "joins bytes up to the end": [(8, 2, 2)],  # as a loop, since what follows the last word is outside
        "joins bytes the other way": [],
    }


def test_a_loop_ends_where_its_condition_stays_0() -> None:
    going, total = Leaf((), (0, 1), False, "going"), Leaf((), (0, 100), False, "total")
    step = loop(100, lambda k: when(going[()] == 1, when(k == 7, assign(going, 0), assign(total, k))))
    (body,) = lower_step(step).body
    assert can_exit_early(body)  # type: ignore[arg-type]
    (other,) = lower_step(loop(100, lambda k: when(k == going[()], assign(total, k)))).body
    assert not can_exit_early(other)  # type: ignore[arg-type]
    function = NativeFunction(step, local=frozenset())
    held = {going: np.array(1, np.uint8), total: np.array(0, np.uint8)}
    function([held[m] for m in function.memories])
    assert (int(held[going]), int(held[total])) == (0, 6)
