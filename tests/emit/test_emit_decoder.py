"""A decoder that halves its decodes finds the instruction that asking one after the other finds."""

from __future__ import annotations

import itertools
import random

import pytest

from rewrite_compiler.emit.c.decoder import decode_tree
from rewrite_compiler.ila import ila
from rewrite_compiler.lang import Expr, Leaf, Step, assign, seq, when
from rewrite_compiler.lang.step import When, children
from rewrite_compiler.readings.oracle.emit_python import StepFunction

ADDRESS = Leaf((), (0, 255), False, "addr")
FLAG = Leaf((), (0, 1), False, "flag")
FOUND = Leaf((), (0, 64), False, "found")


def some(draw: random.Random) -> Expr:
    """Return a decode: a register, a window, a window of a mask, or no address at all."""
    a, low = ADDRESS[()], draw.randrange(256)
    forms = [
        a == low,
        (a >= low) & (a < low + draw.randrange(40)),
        (a >> 3) == low >> 3,
        (a // 5 <= low // 5) & (low // 5 - 3 < a // 5),
        a % 16 == low % 16,
        FLAG[()] == low % 2,
    ]
    found = draw.choices(forms, (6, 3, 2, 2, 1, 0.3))[0]
    return found & (FLAG[()] == draw.randrange(2)) if draw.random() < 0.5 else found


def instructions_found(step: Step) -> list[int]:
    """Return the instruction that a decoder finds at every address, without and with the flag."""
    run = StepFunction(step)
    numbers = []
    for address, flag in itertools.product(range(256), (0, 1)):
        held = {ADDRESS: [address], FLAG: [flag], FOUND: [0]}
        run([held[leaf] for leaf in run.memories])
        numbers.append(held[FOUND][0])
    return numbers


@pytest.mark.parametrize("seed", range(6))
def test_the_last_decode_that_holds_is_found(seed: int) -> None:
    draw = random.Random(seed)
    decodes = [some(draw) for _ in range(24)]
    asked = seq(*(when(d, assign(FOUND, n)) for n, d in enumerate(decodes, 1)))
    halved = decode_tree(decodes, [ADDRESS, FLAG], FOUND)
    assert instructions_found(halved) == instructions_found(asked)


def depth(step: Step) -> int:
    """Return the most conditions that are asked on one way through a step."""
    if isinstance(step, When):
        return 1 + max(depth(step.then), depth(step.otherwise))
    return sum(depth(x) for x in children(step))


def test_registers_at_addresses_are_found_by_halving() -> None:
    decodes = [(ADDRESS[()] == 4 * n) & FLAG[()] for n in range(60)]
    assert depth(decode_tree(decodes, [ADDRESS, FLAG], FOUND)) <= 9
    target = ila("flexasr")
    all_of_them = [i.decode for i in target.instructions.values()]
    found = Leaf((), (0, len(all_of_them)), False, "found")
    assert depth(decode_tree(all_of_them, list(target.inputs.values()), found)) <= len(all_of_them) // 4
