"""An operation as a nest of loops: which element of each operand an iteration takes, read from the term of its numerics."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...errors import SpecError
from ...ila.polynomial import NotPolynomial, Poly, Symbols
from ...ila.summary import transition_of
from ...lang.binders import Comprehension, Leaf
from ...lang.substitution import substitute
from ...lang.traversal import terms_of
from ..codelet import Affine

Loops = tuple[tuple[str, int], ...]
CHAINED = "(sums)"  # what the computation before left in memory
NOWHERE = -1  # an axis of an operand that loops do not move
ZEROS = "(zeros)"  # what an instruction takes and the operation does not have


@dataclass(frozen=True)
class Reach:
    """An operand of an operation: its shape, and the element that an iteration takes, one offset an axis."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[Affine, ...]
    dims: tuple[str, ...] = ()  # what the axes are called
    folded: Reach | None = None  # the operand that it has the elements of, some of them several times

    def unfolded(self, loops: Loops) -> Reach:
        """Return the operand with an axis for each loop where several loops move along one axis; else itself."""
        if all(len(a.terms) <= 1 for a in self.axes):
            return self
        moving = [(v, n) for v, n in loops if self.moves_with(v)]
        names = tuple(v for v, _ in moving)
        return Reach(self.name, tuple(n for _, n in moving), tuple(Affine(0, ((v, 1),)) for v in names), names, self)

    @property
    def source(self) -> str:
        """The operand of the call whose codes it has; none for zeros."""
        return "" if self.name == ZEROS else self.name

    def factors(self, loop: str) -> tuple[int, ...]:
        """Return by how much a loop moves along each axis."""
        return tuple(dict(a.terms).get(loop, 0) for a in self.axes)

    def moves_with(self, loop: str) -> bool:
        """Tell whether a loop moves it."""
        return loop in self.moving

    @cached_property
    def moving(self) -> frozenset[str]:
        """The loops that move it."""
        return frozenset(v for a in self.axes for v, f in a.terms if f)


@dataclass(frozen=True, eq=False)
class Operation:
    """Loops with their extents, those of the result first; the result and what each iteration reads."""

    loops: Loops
    result: Reach
    operands: tuple[Reach, ...]
    code_bits: int = 0  # of a result's code
    whole_shape: tuple[int, ...] = ()  # of the result, where axes of it are joined
    overwrites: bool = False  # whether it sets where the results of another will lie

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result as the numerics give it."""
        return self.whole_shape or self.result.shape

    @cached_property
    def reduced(self) -> frozenset[str]:
        """The loops over which results are summed up."""
        return frozenset(v for v, _ in self.loops if not self.result.moves_with(v))


def continuation(op: Operation, left: Sequence[Reach] = (), tile: Mapping[str, int] | None = None) -> Operation:
    """Return the operation that goes over the results of another, element by element, and what it left over; of a tile alone, if any."""
    loops = tuple((v, n if tile is None else min(tile[v], n)) for v, n in op.loops if op.result.moves_with(v))
    return Operation(
        loops, op.result, (Reach(CHAINED, op.result.shape, op.result.axes, op.result.dims), *left), op.code_bits, op.whole_shape
    )


def zeros(op: Operation) -> Iterator[Reach]:
    """Yield operands of zeros: one number, and those that move with loops of the result."""
    rank = len(op.result.axes)
    for axes in (c for n in range(rank + 1) for c in itertools.combinations(range(rank), n)):
        yield Reach(ZEROS, tuple(op.result.shape[n] for n in axes), tuple(op.result.axes[n] for n in axes))


def broadcast(op: Operation, start: Reach, tile: Mapping[str, int] | None = None) -> Operation:
    """Return the operation that sets the results of another to an operand along the loops that move it; of a tile alone, if any."""
    return replace(continuation(op, tile=tile), operands=(start,), overwrites=True)


def clearing(op: Operation, tile: Mapping[str, int] | None = None) -> Operation:
    """Return the operation that sets the results of another to zero; of a tile alone, if any."""
    return replace(continuation(op, tile=tile), operands=(), overwrites=True)


def operation_of(
    a: Comprehension, operands: Sequence[Leaf], result: str, dims: Mapping[str, Sequence[str]] | None = None, code_bits: int = 0
) -> Operation:  # fmt: skip
    """Return what an array of operands computes as a nest of loops, which are called by the names of the axes along which they go.

    Arrays in it are put in place of their elements. What is read outside of an operand, as of the border of an image, is a zero there.

    Raises:
        SpecError: I116, an address is no sum of loop variables with factors.
    """
    symbols = Symbols(frozenset())
    try:
        t = transition_of(_in_place(a), result, symbols, frozenset(operands))
        extents = {v: _number(p) for v, p in (*t.loops, *(x for r in t.reads for x in r.variables))}
        result_reach = Reach(result, tuple(_number({(): n}) if isinstance(n, int) else 0 for n in a.shape), _axes(t.write.address))
        reads = dict.fromkeys((r.access.memory, _axes(r.access.address)) for r in t.reads)
    except NotPolynomial as reason:
        raise SpecError("I116", f"The numerics of {result} are no nest of loops: {reason}", help="write its driver by hand") from None
    shapes = {leaf.name: tuple(int(n) for n in leaf.shape if isinstance(n, int)) for leaf in operands}
    reaches = [Reach(name, shapes[name], axes) for name, axes in reads]
    reaches_with_dims = (replace(r, dims=tuple((dims or {}).get(r.name, ()))) for r in (result_reach, *reaches))
    first, *others = reaches_with_dims
    return _named(_coalesced(Operation(tuple(extents.items()), first, tuple(others), code_bits)))


def _in_place(a: Comprehension) -> Comprehension:
    """Return an array of the elements of operands alone: those of arrays in it as their terms."""
    body = a.body
    while elements := [e for e in terms_of(body) if e.op == "load" and isinstance(e.data, Comprehension)]:
        terms = {e: substitute(e.data.body, dict(zip(e.data.variables, e.args, strict=True))) for e in elements[-1:]}
        body = substitute(body, terms)
    return a if body is a.body else Comprehension(a.shape, a.interval, a.real, a.variables, body)


def with_joined_axes(op: Operation) -> Operation:
    """Return an operation in which axes that follow each other, and along which all operands move alike, are one; itself where none are."""
    extents = dict(op.loops)
    for outer, inner in itertools.permutations(extents, 2):
        rows = [_row(r, outer, inner, extents[inner]) for r in (op.result, *op.operands)]
        if None not in rows and max(n for n in rows if n is not None) != NOWHERE:
            name = f"{outer}·{inner}"
            result, *operands = (_joined_axes(r, n, name) for r, n in zip((op.result, *op.operands), rows, strict=True) if n is not None)
            loops = tuple((name, extents[outer] * n) if v == inner else (v, n) for v, n in op.loops if v != outer)
            return with_joined_axes(Operation(loops, result, tuple(operands), op.code_bits, op.shape))
    return op


def _row(r: Reach, outer: str, inner: str, extent: int) -> int | None:
    """Return the axis along which one loop goes alone, before that of the other: NOWHERE if neither moves it, None if they do otherwise."""
    if not {outer, inner} & r.moving:
        return NOWHERE
    ends = [n for n, a in enumerate(r.axes) if {outer, inner} & {v for v, _ in a.terms}]
    is_row = len(ends) == 2 and ends[1] == ends[0] + 1 and r.shape[ends[1]] == extent
    return ends[0] if is_row and [r.axes[n] for n in ends] == [Affine(0, ((outer, 1),)), Affine(0, ((inner, 1),))] else None


def _joined_axes(r: Reach, n: int, loop: str) -> Reach:
    if n == NOWHERE:
        return r
    dims = ("·".join(r.dims[n : n + 2]),) if r.dims else ()
    shape = (*r.shape[:n], r.shape[n] * r.shape[n + 1], *r.shape[n + 2 :])
    return replace(
        r, shape=shape, axes=(*r.axes[:n], Affine(0, ((loop, 1),)), *r.axes[n + 2 :]), dims=(*r.dims[:n], *dims, *r.dims[n + 2 :])
    )


def _named(op: Operation) -> Operation:
    """Return an operation whose loops are called as the axis along which each goes alone, one by one; the others keep their names."""
    names: dict[str, str] = {}
    for r in (op.result, *op.operands):
        for axis, dim in zip(r.axes, r.dims, strict=False):
            loop = axis.terms[0][0] if len(axis.terms) == 1 and axis.terms[0][1] == 1 else ""
            if loop and loop not in names and dim not in (*names.values(), *dict(op.loops)):
                names[loop] = dim

    def renamed(r: Reach) -> Reach:
        axes = tuple(Affine(a.constant, tuple((names.get(v, v), f) for v, f in a.terms)) for a in r.axes)
        return replace(r, axes=axes)

    return replace(
        op,
        loops=tuple((names.get(v, v), n) for v, n in op.loops),
        result=renamed(op.result),
        operands=tuple(map(renamed, op.operands)),
    )


def _number(p: Poly) -> int:
    if not set(p) <= {()}:
        raise NotPolynomial("a length depends on a loop")
    return p.get((), 0)


def _axes(address: tuple[Poly, ...]) -> tuple[Affine, ...]:
    return tuple(_affine(p) for p in address)


def _affine(p: Poly) -> Affine:
    if any(len(monomial) > 1 for monomial in p):
        raise NotPolynomial("an address multiplies loop variables")
    return Affine(p.get((), 0), tuple(sorted((m[0], c) for m, c in p.items() if m)))


def _coalesced(op: Operation) -> Operation:
    """Return an operation whose loops that always move together, one by the whole length of the other, are one."""
    names = [v for v, _ in op.loops]
    extents = dict(op.loops)
    for outer in names:
        for inner in names:
            if outer != inner and _are_one(op, outer, inner, extents[inner]):
                return _coalesced(_joined(op, outer, inner, extents[outer] * extents[inner]))
    return op


def _are_one(op: Operation, outer: str, inner: str, extent: int) -> bool:
    reaches = (op.result, *op.operands)
    pairs = [pair for r in reaches for pair in zip(r.factors(outer), r.factors(inner), strict=True)]
    return any(b for _, b in pairs) and all(a == extent * b for a, b in pairs)


def _joined(op: Operation, outer: str, inner: str, extent: int) -> Operation:
    def without(r: Reach) -> Reach:
        return replace(r, axes=tuple(Affine(a.constant, tuple((v, f) for v, f in a.terms if v != outer)) for a in r.axes))

    loops = tuple((v, extent if v == inner else n) for v, n in op.loops if v != outer)
    return replace(op, loops=loops, result=without(op.result), operands=tuple(map(without, op.operands)))
