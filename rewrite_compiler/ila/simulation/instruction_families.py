"""Alike: plain instructions that differ in numbers only are one instruction of the number of a member.

Four processing elements have four times the same instructions, at other addresses and for another row of a memory. Their
loop is made, and compiled, once, with the numbers computed from the member.
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
class Plain:
    """What an instruction does, by the inputs of a command: when it is one, what it stores, what it gives."""

    decode: Expr
    stores: tuple[Update, ...]
    result: Comprehension | None
    is_range: bool  # it has operands in its address


@dataclass(frozen=True, eq=False)
class Family:
    """Plain instructions of one form; `form` is that of all of them, by `member`, which a single one does not have."""

    form: Plain
    members: tuple[Plain, ...]
    member: Leaf | None = None


class _Unlike(Exception):
    """Terms differ in more than numbers, or their numbers do not lie evenly."""


def plain_of(instruction: Instruction, stores: Sequence[Update], *, is_range: bool) -> Plain:
    """Return what an instruction that does no more than `stores` does, its operands by what gives them."""
    terms = {o.leaf: o.term for o in instruction.operands.values()}

    def placed(e: Expr) -> Expr:
        found = {x: _at(terms[x.data], x.args) for x in loads_of(e) if x.data in terms}
        return substitute(e, found) if found else e

    parts = [make_update(u.memory, u.variables, u.extents, tuple(map(placed, u.address)), placed(u.value)) for u in stores]
    result = None if instruction.result is None else _comprehension(instruction.result)
    if result is not None:
        body = placed(result.body)
        result = Comprehension(result.shape, body.interval, body.real, result.variables, body)
    return Plain(instruction.decode, tuple(parts), result, is_range)


def families(given: Sequence[Plain]) -> list[Family]:
    """Return the instructions in families, those of the first one first."""
    groups: dict[object, list[Plain]] = {}
    for p in given:
        groups.setdefault(_shape(p), []).append(p)
    numbers: dict[int, Leaf] = {n: Leaf((), (0, n - 1), False, f"member_of_{n}") for n in map(len, groups.values()) if n > 1}
    return [f for group in groups.values() for f in _family(group, numbers.get(len(group)))]


def _family(group: Sequence[Plain], member: Leaf | None) -> list[Family]:
    if member is None:
        return [Family(p, (p,)) for p in group]
    try:
        return [Family(_Form(member).plain(group), tuple(group), member)]
    except (_Unlike, SpecError):  # SpecError: of the ranges of numbers that a term of all members has
        return [Family(p, (p,)) for p in group]


class _Form:
    """Terms of several members as one term of the number of the member."""

    def __init__(self, member: Leaf) -> None:
        self.member = member[()]
        self.made: dict[tuple[Expr, ...], Expr] = {}

    def plain(self, group: Sequence[Plain]) -> Plain:
        first = group[0]
        decode = self.term([p.decode for p in group])
        stores = [self.store([p.stores[n] for p in group]) for n in range(len(first.stores))]
        result = first.result
        if result is not None:
            body = self.term([element(p.result, result.variables) for p in group if p.result is not None])
            result = Comprehension(result.shape, body.interval, body.real, result.variables, body)
        return Plain(decode, tuple(stores), result, first.is_range)

    def store(self, group: Sequence[Update]) -> Update:
        first = group[0]
        names = [dict(zip(u.variables, first.variables, strict=True)) for u in group]
        *address, value = (
            self.term([substitute(t, by) for t, by in zip(terms, names, strict=True)])
            for terms in zip(*((*u.address, u.value) for u in group), strict=True)
        )
        return make_update(first.memory, first.variables, first.extents, tuple(address), value)

    def term(self, terms: Sequence[Expr]) -> Expr:
        key = tuple(terms)
        if all(t is key[0] for t in key):
            return key[0]
        if key not in self.made:
            self.made[key] = self._built(key)
        return self.made[key]

    def _built(self, terms: tuple[Expr, ...]) -> Expr:
        first = terms[0]
        if all(t.op == "const" and not t.real for t in terms):
            return self._number([int(t.data) for t in terms])
        if first.op in ("const", "var", "reduce") or any(not _is_alike(first, t) for t in terms):
            raise _Unlike
        args = [self.term(parts) for parts in zip(*(t.args for t in terms), strict=True)]
        if first.op in SIMPLIFIED:
            return binary(first.op, *args)
        interval = first.interval
        for t in terms:
            interval = iv.hull(interval, t.interval)
        return node(first.op, args, first.data, interval, first.real)

    def _number(self, values: Sequence[int]) -> Expr:
        """Return numbers that lie evenly, or in rows that do, as a term of the member."""
        count, start = len(values), values[0]
        for row in (n for n in range(count, 0, -1) if count % n == 0):
            across = values[row] - start if row < count else 0
            along = values[1] - start if row > 1 else 0
            if all(x == start + across * (k // row) + along * (k % row) for k, x in enumerate(values)):
                inner = self.member if row == count else self.member % row
                return lift(start) + (self.member // row) * across + inner * along
        raise _Unlike


def _is_alike(a: Expr, b: Expr) -> bool:
    is_same = a.data is b.data or (a.op != "load" and a.data == b.data)
    return is_same and (a.op, a.real, len(a.args)) == (b.op, b.real, len(b.args))


def _shape(p: Plain) -> object:
    """Return what instructions of one family have in common: everything but numbers."""
    known: dict[Expr, int] = {}

    def hashed(e: Expr) -> int:
        if e not in known:
            data = {"const": None, "var": None, "load": id(e.data)}.get(e.op, e.data)
            known[e] = hash((e.op, data, *map(hashed, e.args)))
        return known[e]

    stores = tuple((id(u.memory), u.extents, *map(hashed, (*u.address, u.value))) for u in p.stores)
    return hashed(p.decode), stores, p.result and (p.result.shape, hashed(p.result.body)), p.is_range


def _comprehension(a: Array) -> Comprehension:
    return a if isinstance(a, Comprehension) else array(lambda *j: a[j], a.shape)


def element(a: Comprehension, index: Sequence[Expr]) -> Expr:
    """Return an element of an array as the term it is."""
    return substitute(a.body, dict(zip(a.variables, index, strict=True)))


def _at(term: Expr | Array, index: tuple[Expr, ...]) -> Expr:
    if isinstance(term, Comprehension):
        return element(term, index)
    return term if isinstance(term, Expr) else term[index]
