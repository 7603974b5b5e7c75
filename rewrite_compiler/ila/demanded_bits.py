"""Demanded bits: which bits of an instruction word its decode and its operands depend on (a backward dataflow analysis)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..lang import intervals as iv
from ..lang.binders import Array, Leaf, static_shape
from ..lang.expr import Expr
from ..lang.traversal import bodies_of
from .model import Ila, Instruction

ALL = -1  # a mask of every bit of an integer of any size
Demand = tuple[Expr, int]


def demanded_bits(ila: Ila, instruction: Instruction) -> dict[str, int]:
    """Return, for each input, the mask of the bits that decode or operands of an instruction depend on.

    The mask is an over-approximation: a bit outside of it never matters.
    """
    terms = [instruction.decode]
    for operand in instruction.operands.values():
        terms += [operand.term] if isinstance(operand.term, Expr) else bodies_of(operand.term)
    masks = _masks(terms)
    return {name: _input_mask(leaf, masks) for name, leaf in ila.inputs.items()}


def _input_mask(leaf: Leaf, masks: Mapping[Expr, int]) -> int:
    """Join the masks of the lanes that are read of an input; an index that is no constant reads all lanes of its interval."""
    size = (iv.width_of(leaf.interval) or (8, False))[0]
    shape, total = static_shape(leaf), 0
    for e, mask in masks.items():
        if e.op == "load" and e.data is leaf:
            for index in _indices(e, shape):
                total |= (mask & (1 << size) - 1) << size * index
    return total


def _indices(load: Expr, shape: tuple[int, ...]) -> Iterator[int]:
    ranges = [range(max(x.interval[0] or 0, 0), min(n - 1 if x.interval[1] is None else x.interval[1], n - 1) + 1)
              for x, n in zip(load.args, shape, strict=True)]  # fmt: skip
    for index in itertools.product(*ranges):
        yield sum(i * math.prod(shape[k + 1 :]) for k, i in enumerate(index))


def _masks(terms: Iterable[Expr]) -> dict[Expr, int]:
    """Return the demanded bits of every term below `terms`, of which all bits are."""
    masks: dict[Expr, int] = {}
    work: list[Demand] = [(e, ALL) for e in terms]
    while work:
        e, mask = work.pop()
        previous = masks.get(e, 0)
        masks[e] = previous | mask
        if masks[e] != previous:
            work.extend(_operands(e, masks[e]))
    return masks


def _operands(e: Expr, mask: int) -> list[Demand]:
    """Return which bits of its operands the bits `mask` of a term depend on."""
    if e.op == "load":
        array: Array = e.data
        return [(x, ALL) for x in (*e.args, *bodies_of(array))]
    rule = RULES.get(e.op)
    return [(x, ALL) for x in e.args] if rule is None else [(x, m) for x, m in zip(e.args, rule(e, mask), strict=True)]


def _filled(mask: int) -> int:
    """All bits up to the highest of a mask."""
    return ALL if mask < 0 else (1 << mask.bit_length()) - 1


def _sum(e: Expr, mask: int) -> list[int]:
    """A sum of numbers that share no bit is their union; else carries run upwards."""
    a, b = map(possible_bits, e.args)
    return [mask, mask] if a >= 0 and b >= 0 and a & b == 0 else [_filled(mask)] * 2


def _by_constant(rule: Callable[[int, int], int | None]) -> Callable[[Expr, int], list[int]]:
    """Return the rule of an operator whose second operand is a constant; all bits where it is none."""

    def masks(e: Expr, mask: int) -> list[int]:
        n = e.args[1].value
        first = rule(mask, int(n)) if n is not None else None
        return [ALL, ALL] if first is None else [first, 0]

    return masks


def _modulo(mask: int, n: int) -> int | None:
    return mask & n - 1 if n > 0 and n & n - 1 == 0 else None


def _quotient(mask: int, n: int) -> int | None:
    return mask << n.bit_length() - 1 if n > 0 and n & n - 1 == 0 else None


def _conjunction(e: Expr, mask: int) -> list[int]:
    a, b = map(possible_bits, e.args)
    return [mask & b, mask & a]


def _wrapped(e: Expr, mask: int) -> list[int]:
    bits, signed = e.data
    extension = 1 << bits - 1 if signed and mask >> bits else 0
    return [mask & (1 << bits) - 1 | extension]


RULES: dict[str, Callable[[Expr, int], list[int]]] = {
    "extract": lambda e, mask: [(mask & (1 << e.data[1]) - 1) << e.data[0]],
    "wrap": _wrapped,
    "add": _sum,
    "sub": lambda e, mask: [_filled(mask)] * 2,
    "mul": lambda e, mask: [_filled(mask)] * 2,
    "shl": _by_constant(lambda mask, n: mask >> n),
    "shr": _by_constant(lambda mask, n: mask << n),
    "mod": _by_constant(_modulo),
    "div": _by_constant(_quotient),
    "bitand": _conjunction,
    "bitor": lambda e, mask: [mask, mask],
    "bitxor": lambda e, mask: [mask, mask],
    "not": lambda e, mask: [mask & 1],
    "select": lambda e, mask: [1, mask, mask],
}


def possible_bits(e: Expr) -> int:
    """Return the mask of the bits that may be 1 in a term; all where it may be negative or is not bounded."""
    low, high = e.interval
    if low is None or high is None or low < 0:
        return ALL
    return (1 << high.bit_length()) - 1 & _possible(e)


def _possible(e: Expr) -> int:
    if e.value is not None:
        return int(e.value)
    if e.op == "shl" and e.args[1].value is not None:
        return possible_bits(e.args[0]) << int(e.args[1].value)
    if e.op == "add":
        a, b = map(possible_bits, e.args)
        return a | b if a >= 0 and b >= 0 and a & b == 0 else ALL
    return ALL
