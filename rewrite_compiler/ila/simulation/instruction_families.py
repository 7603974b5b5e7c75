"""Instruction families by anti-unification: plain instructions that differ in numbers only become one, a function of the member.

The instructions of four processing elements, say, differ in addresses and in the row of a memory. One loop for the family is
generated and compiled, its numbers computed from the member's index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Array, Comprehension, Leaf, array
from ...lang.expr import Expr, binary, lift, node
from ...lang.step import Update, make_update
from ...lang.substitution import SIMPLIFIED, substitute
from ...lang.traversal import loads_of
from ..model import Instruction


@dataclass(frozen=True, eq=False)
class PlainInstruction:
    """A plain instruction over the inputs of a command: its decode, its stores, and what a read returns."""

    decode: Expr
    stores: tuple[Update, ...]
    result: Comprehension | None
    is_range: bool  # it has operands in its address


@dataclass(frozen=True, eq=False)
class Family:
    """Plain instructions of one form; `form` is their generalisation over the leaf `member`, which a single instruction lacks."""

    form: PlainInstruction
    members: tuple[PlainInstruction, ...]
    member: Leaf | None = None


class _NoCommonForm(Exception):
    """Terms differ in more than numbers, or their numbers are no affine function of the member."""


def plain_of(instruction: Instruction, stores: Sequence[Update], *, is_range: bool) -> PlainInstruction:
    """Return an instruction whose update is `stores` as a plain one, its operands replaced by the terms that decode them."""
    terms = {o.leaf: o.term for o in instruction.operands.values()}

    def substitute_operands(e: Expr) -> Expr:
        replacements = {x: _element_at(terms[x.data], x.args) for x in loads_of(e) if x.data in terms}
        return substitute(e, replacements) if replacements else e

    parts = [
        make_update(u.memory, u.variables, u.extents, tuple(map(substitute_operands, u.address)), substitute_operands(u.value))
        for u in stores
    ]
    result = None if instruction.result is None else _comprehension(instruction.result)
    if result is not None:
        body = substitute_operands(result.body)
        result = Comprehension(result.shape, body.interval, body.real, result.variables, body)
    return PlainInstruction(instruction.decode, tuple(parts), result, is_range)


def families(instructions: Sequence[PlainInstruction]) -> list[Family]:
    """Group plain instructions into families, in the order of their first members."""
    groups: dict[object, list[PlainInstruction]] = {}
    for p in instructions:
        groups.setdefault(_shape(p), []).append(p)
    numbers: dict[int, Leaf] = {n: Leaf((), (0, n - 1), False, f"member_of_{n}") for n in map(len, groups.values()) if n > 1}
    return [f for group in groups.values() for f in _family(group, numbers.get(len(group)))]


def _family(group: Sequence[PlainInstruction], member: Leaf | None) -> list[Family]:
    if member is None:
        return [Family(p, (p,)) for p in group]
    try:
        return [Family(_AntiUnifier(member).plain(group), tuple(group), member)]
    except (_NoCommonForm, SpecError):  # SpecError: of the ranges of numbers that a term of all members has
        return [Family(p, (p,)) for p in group]


class _AntiUnifier:
    """Generalises terms of several members to one term of the member's index."""

    def __init__(self, member: Leaf) -> None:
        self.member = member[()]
        self.cache: dict[tuple[Expr, ...], Expr] = {}

    def plain(self, group: Sequence[PlainInstruction]) -> PlainInstruction:
        first = group[0]
        decode = self.term([p.decode for p in group])
        stores = [self.store([p.stores[n] for p in group]) for n in range(len(first.stores))]
        result = first.result
        if result is not None:
            body = self.term([element(p.result, result.variables) for p in group if p.result is not None])
            result = Comprehension(result.shape, body.interval, body.real, result.variables, body)
        return PlainInstruction(decode, tuple(stores), result, first.is_range)

    def store(self, group: Sequence[Update]) -> Update:
        first = group[0]
        names = [dict(zip(u.variables, first.variables, strict=True)) for u in group]
        *address, value = (
            self.term([substitute(t, renaming) for t, renaming in zip(terms, names, strict=True)])
            for terms in zip(*((*u.address, u.value) for u in group), strict=True)
        )
        return make_update(first.memory, first.variables, first.extents, tuple(address), value)

    def term(self, terms: Sequence[Expr]) -> Expr:
        key = tuple(terms)
        if all(t is key[0] for t in key):
            return key[0]
        if key not in self.cache:
            self.cache[key] = self._generalise(key)
        return self.cache[key]

    def _generalise(self, terms: tuple[Expr, ...]) -> Expr:
        first = terms[0]
        if all(t.op == "const" and not t.real for t in terms):
            return self._affine_number([int(t.data) for t in terms])
        if first.op in ("const", "var", "reduce") or any(not _have_same_operator(first, t) for t in terms):
            raise _NoCommonForm
        args = [self.term(parts) for parts in zip(*(t.args for t in terms), strict=True)]
        if first.op in SIMPLIFIED:
            return binary(first.op, *args)
        interval = first.interval
        for t in terms:
            interval = iv.hull(interval, t.interval)
        return node(first.op, args, first.data, interval, first.real)

    def _affine_number(self, values: Sequence[int]) -> Expr:
        """Return numbers that are affine in the member's index, or in its row and column of a grid, as that term."""
        count, start = len(values), values[0]
        for row in (n for n in range(count, 0, -1) if count % n == 0):
            across = values[row] - start if row < count else 0
            along = values[1] - start if row > 1 else 0
            if all(x == start + across * (k // row) + along * (k % row) for k, x in enumerate(values)):
                inner = self.member if row == count else self.member % row
                return lift(start) + (self.member // row) * across + inner * along
        raise _NoCommonForm


def _have_same_operator(a: Expr, b: Expr) -> bool:
    is_same = a.data is b.data or (a.op != "load" and a.data == b.data)
    return is_same and (a.op, a.real, len(a.args)) == (b.op, b.real, len(b.args))


def _shape(p: PlainInstruction) -> object:
    """Return the key that the instructions of a family share: the hash of everything but the numbers."""
    hashes: dict[Expr, int] = {}

    def hashed(e: Expr) -> int:
        if e not in hashes:
            data = {"const": None, "var": None, "load": id(e.data)}.get(e.op, e.data)
            hashes[e] = hash((e.op, data, *map(hashed, e.args)))
        return hashes[e]

    stores = tuple((id(u.memory), u.extents, *map(hashed, (*u.address, u.value))) for u in p.stores)
    return hashed(p.decode), stores, p.result and (p.result.shape, hashed(p.result.body)), p.is_range


def _comprehension(a: Array) -> Comprehension:
    return a if isinstance(a, Comprehension) else array(lambda *j: a[j], a.shape)


def element(a: Comprehension, index: Sequence[Expr]) -> Expr:
    """Return the term of an array's element at an index."""
    return substitute(a.body, dict(zip(a.variables, index, strict=True)))


def _element_at(term: Expr | Array, index: tuple[Expr, ...]) -> Expr:
    if isinstance(term, Comprehension):
        return element(term, index)
    return term if isinstance(term, Expr) else term[index]
