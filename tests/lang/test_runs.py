"""Loops that copy are copies, and indices modulo a constant go on at the start, in machine code as in the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.lang import Leaf, Step, loop, update, when
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.code import Copy
from rewrite_compiler.lang.loops import lower_step
from rewrite_compiler.lang.native import NativeFunction
from rewrite_compiler.lang.python import StepFunction
from rewrite_compiler.lang.runs import ends_early, with_runs
from rewrite_compiler.lang.step import assign

BYTE, SIZE = iv.of_width(8, False), 50
source, target = Leaf((SIZE,), BYTE, False, "source"), Leaf((SIZE,), BYTE, False, "target")
at = Leaf((), (0, SIZE - 1), False, "at")
wide = Leaf((SIZE,), iv.of_width(16, False), False, "wide")

STEPS: dict[str, Step] = {
    "wraps where it is written": update(target, 16, lambda j: ((at[()] + j) % SIZE, source[j])),
    "wraps where it is read": update(target, 16, lambda j: (j, source[(at[()] + j + 30) % SIZE])),
    "wraps twice": update(target, 16, lambda j: ((at[()] + j) % SIZE, source[(2 * at[()] + j) % SIZE])),
    "joins bytes": update(wide, 8, lambda j: (2 * j, source[(at[()] + 2 * j) % SIZE] + (source[(at[()] + 2 * j + 1) % SIZE] << 8))),
    "in one memory": update(source, 16, lambda j: ((at[()] + j) % SIZE, source[j])),
    "a stride": update(target, 5, lambda j: ((at[()] + 3 * j) % SIZE, source[j])),
    "a word of another width": update(wide, 16, lambda j: (j + 2, source[j])),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("apart", [frozenset(), frozenset({source})], ids=["together", "apart"])
def test_machine_code_copies_as_the_oracle(name: str, apart: frozenset[Leaf]) -> None:
    step, random = STEPS[name], np.random.default_rng(len(name))
    native, oracle = NativeFunction(step, apart=apart, level=1), StepFunction(step)
    for place in range(SIZE):
        memories = {m: random.integers(0, 256, SIZE).astype(np.uint16 if m is wide else np.uint8) for m in (source, target, wide)}
        memories[at] = np.array(place, np.uint8)
        lists = {m: data.reshape(-1).tolist() for m, data in memories.items()}
        native([memories[m] for m in native.memories])
        oracle([lists[m] for m in oracle.memories])
        assert all(memories[m].reshape(-1).tolist() == x for m, x in lists.items())


def test_a_loop_that_copies_is_one_statement() -> None:
    found = with_runs(lower_step(update(target, 16, lambda j: (j + 4, source[j]))).body)
    assert [(type(x), x.count) for x in found if isinstance(x, Copy)] == [(Copy, 16)]


def test_a_loop_ends_where_its_condition_stays_0() -> None:
    going, total = Leaf((), (0, 1), False, "going"), Leaf((), (0, 100), False, "total")
    step = loop(100, lambda k: when(going[()] == 1, when(k == 7, assign(going, 0), assign(total, k))))
    (body,) = lower_step(step).body
    assert ends_early(body)  # type: ignore[arg-type]
    (other,) = lower_step(loop(100, lambda k: when(k == going[()], assign(total, k)))).body
    assert not ends_early(other)  # type: ignore[arg-type]
    function = NativeFunction(step, local=frozenset())
    held = {going: np.array(1, np.uint8), total: np.array(0, np.uint8)}
    function([held[m] for m in function.memories])
    assert (int(held[going]), int(held[total])) == (0, 6)
