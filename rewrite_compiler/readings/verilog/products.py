"""Cut points of an equivalence: a product that both sides compute is one symbol, so that the solver multiplies nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import z3

from ..smt.evaluator import refute
from ..smt.solver import Outcome

SAMPLES, SEED = 3, 11
PAIR_SECONDS = 0.5
SPREAD = 0x9E3779B1  # multiplies an index, so that words of a memory differ


def abstract_products(goal: z3.BoolRef, premises: Sequence[z3.BoolRef]) -> list[z3.BoolRef] | None:
    """Return the constraints with symbols for products of two variables, or None without any; what refutes them refutes the originals.

    Two products have one symbol where their operands are the same terms, or have the same values on samples and are proved equal.
    """
    constraints = [goal, *premises]
    products = [(product, [_operand(x) for x in product.children()]) for product in _products(constraints)]
    if not products:
        return None
    values = _Values([x for _, operands in products for x in operands])
    candidates_by_values: dict[tuple[tuple[int, ...], ...], list[tuple[list[z3.BitVecRef], z3.BitVecRef]]] = {}
    replaced: list[tuple[z3.BitVecRef, z3.BitVecRef]] = []
    for product, operands in products:
        ordered = sorted(operands, key=values.of)
        candidates = candidates_by_values.setdefault((values.of(ordered[0]), values.of(ordered[1])), [])
        symbol = next((s for others, s in candidates if _are_equal(ordered, others, premises, replaced)), None)
        if symbol is None:
            symbol = z3.FreshConst(z3.BitVecSort(ordered[0].size() + ordered[1].size()), "product")
            candidates.append((ordered, symbol))
        replaced.append((product, _resized(symbol, product.size())))
    return [z3.substitute(c, *replaced) for c in constraints]


def _are_equal(
    operands: Sequence[z3.BitVecRef], others: Sequence[z3.BitVecRef], premises: Sequence[z3.BoolRef], replaced: Sequence[Any]
) -> bool:
    """Tell whether signed operands are the same, or proved equal with the products in them replaced."""
    for x, other in zip(operands, others, strict=True):
        width = max(x.size(), other.size())
        different = z3.substitute(_resized(x, width) != _resized(other, width), *replaced)
        if not x.eq(other) and refute([different, *premises], PAIR_SECONDS).outcome != Outcome.PROVED:
            return False
    return True


def _products(constraints: Sequence[z3.ExprRef]) -> Iterator[z3.BitVecRef]:
    """Yield the products of two terms of which none is a number, those inside of others first."""
    visited, work = set[int](), [(x, False) for x in constraints]
    while work:
        x, is_left = work.pop()
        if is_left and _is_product(x):
            yield x
        if x.get_id() not in visited:
            visited.add(x.get_id())
            work += [(x, True), *((child, False) for child in x.children())]


def _is_product(x: z3.ExprRef) -> bool:
    is_multiplied = x.decl().kind() == z3.Z3_OP_BMUL and x.num_args() == 2
    return is_multiplied and not any(z3.is_bv_value(_operand(child)) for child in x.children())


def _operand(x: z3.BitVecRef) -> z3.BitVecRef:
    """Return the narrowest signed word of which x is an extension, as far as its form says."""
    kind, parts = x.decl().kind(), x.children()
    if kind == z3.Z3_OP_SIGN_EXT:
        return _operand(parts[0])
    if kind == z3.Z3_OP_ZERO_EXT:
        return z3.ZeroExt(1, parts[0])
    if kind == z3.Z3_OP_CONCAT:
        *high, low = parts
        if len(high) == 1 and z3.is_bv_value(high[0]) and high[0].as_long() == 0:
            return z3.ZeroExt(1, low)
        if all(p.eq(_sign(low)) for p in high):
            return _operand(low)
    return x


def _sign(x: z3.BitVecRef) -> z3.BitVecRef:
    """Return the highest bit of a term, as the solver writes it: of a range the word's bit, of a choice one of two."""
    if x.decl().kind() == z3.Z3_OP_EXTRACT:
        top = x.params()[0]
        return z3.Extract(top, top, x.arg(0))
    if x.decl().kind() == z3.Z3_OP_ITE:
        condition, then, otherwise = x.children()
        return z3.If(condition, _sign(then), _sign(otherwise))
    return z3.Extract(x.size() - 1, x.size() - 1, x)


def _resized(x: z3.BitVecRef, bits: int) -> z3.BitVecRef:
    """Return the low bits of a signed word, or its extension."""
    return z3.SignExt(bits - x.size(), x) if bits > x.size() else z3.Extract(bits - 1, 0, x)


class _Values:
    """Values of signed terms on samples: constants are random, the words of a memory a function of their index."""

    def __init__(self, terms: Sequence[z3.BitVecRef]) -> None:
        generator = random.Random(SEED)
        free = [*constants_of(terms)]
        self._samples = [[(x, _drawn(x, generator)) for x in free] for _ in range(SAMPLES)]
        self._values: dict[int, tuple[int, ...]] = {}

    def of(self, term: z3.BitVecRef) -> tuple[int, ...]:
        """Return the values of a term; of one without a number on a sample, its own identity."""
        if term.get_id() not in self._values:
            values = [z3.simplify(z3.substitute(term, *sample)) for sample in self._samples]
            numbers = tuple(v.as_signed_long() for v in values if z3.is_bv_value(v))
            self._values[term.get_id()] = numbers if len(numbers) == SAMPLES else (term.get_id(),)
        return self._values[term.get_id()]


def _drawn(x: z3.ExprRef, generator: random.Random) -> z3.ExprRef:
    if isinstance(x, z3.ArrayRef):
        index = z3.FreshConst(x.sort().domain(), "index")
        bits, width = x.sort().range().size(), index.size()
        mixed = (index + generator.getrandbits(16)) * (SPREAD + 2 * generator.getrandbits(16))
        mixed = mixed ^ z3.LShR(mixed, width // 2)
        return z3.Lambda([index], z3.Extract(bits - 1, 0, mixed) if bits <= width else z3.ZeroExt(bits - width, mixed))
    return z3.BoolVal(generator.random() < 0.5) if z3.is_bool(x) else z3.BitVecVal(generator.getrandbits(x.size()), x.size())


def constants_of(terms: Sequence[z3.ExprRef]) -> Iterator[z3.ExprRef]:
    """Yield the free constants of terms."""
    visited, work = set[int](), [*terms]
    while work:
        x = work.pop()
        if x.get_id() in visited:
            continue
        visited.add(x.get_id())
        if z3.is_const(x) and x.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            yield x
        work.extend(x.children())
