"""Narrowing of sums of products to words of 32 bits, of which vector units add several at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..lang import intervals as iv
from .dead_code import names_read, statements_of
from .loop_ir import Allocate, Assign, Bind, For, If, Mutable, Routine, Statement, Tree, constant

WORD, HALF_WORD = iv.of_width(32, True), iv.of_width(16, True)
SUMS = ("add", "sub")
BYTE, HALF = 1, 2  # bytes of an element


@dataclass(frozen=True)
class NarrowSums:
    """Scalars that are kept in 32 bits, and local arrays of bytes that are stored in 16 bits as the factors beside them."""

    scalars: frozenset[str]
    halves: frozenset[str]


def split_wide_sums(routine: Routine) -> Routine:
    """Return the routine with wide sums of 32-bit products split into partial sums of 32 bits, one for each innermost loop."""
    return Routine(routine.memories, routine.tables, _block(routine.body))


def _block(statements: Sequence[Statement]) -> list[Statement]:
    return [statement for s in statements for statement in _narrowed(s)]


def _narrowed(s: Statement) -> list[Statement]:
    if isinstance(s, If):
        return [If(s.condition, _block(s.then), _block(s.otherwise))]
    if not isinstance(s, For):
        return [s]
    *bindings, last = s.body or [s]
    term = _short_term(last)
    if term is None or s.extent.op != "const" or not all(isinstance(x, Bind) for x in bindings):
        return [For(s.name, s.extent, _block(s.body))]
    assert isinstance(last, Assign)
    total_interval, part = last.value.interval, f"{s.name}_sum"
    part_interval = iv.hull(iv.mul(term.interval, (0, int(s.extent.data))), (0, 0))
    if iv.inside(total_interval, WORD) or not iv.inside(part_interval, WORD):
        return [s]
    total, partial_sum = (Tree("name", (), n, x, False) for n, x in ((last.name, total_interval), (part, part_interval)))
    loop = For(s.name, s.extent, [*bindings, Assign(part, Tree("add", (partial_sum, term), None, part_interval, False))])
    return [
        Mutable(part, constant(0), part_interval, False),
        loop,
        Assign(last.name, Tree("add", (total, partial_sum), None, total_interval, False)),
    ]


def _short_term(s: Statement) -> Tree | None:
    """Return what a statement adds to its scalar, where that is a product in a word of 32 bits."""
    if not isinstance(s, Assign) or s.value.op != "add" or s.value.real:
        return None
    total, term = s.value.args
    is_sum = total.op == "name" and total.data == s.name and term.op == "mul"
    return term if is_sum and _is_narrow(term, s.name) and s.name not in names_read(term) else None


def narrow_sums(routine: Routine) -> NarrowSums:
    """Return the accumulators of a routine whose every intermediate value fits 32 bits."""
    statements = list(statements_of(routine.body))
    accumulators = {
        s.name for s in statements if isinstance(s, Mutable) and not s.real and iv.inside(s.interval, WORD) and s.value.op == "const"
    }
    assignments = [s for s in statements if isinstance(s, Assign) and s.name in accumulators]
    wide = {s.name for s in assignments if s.value.op not in SUMS or not _is_narrow(s.value, s.name)}
    narrow = [s for s in assignments if s.name not in wide]
    local = {s.name: _size(s.interval, s.real) for s in statements if isinstance(s, Allocate)}
    sizes = local | {n: _size(leaf.interval, leaf.real) for n, leaf in routine.memories.items()}
    halves = {name for s in narrow for name in _bytes_by_halves(s.value, sizes)}
    return NarrowSums(frozenset(s.name for s in narrow), frozenset(halves & local.keys()))


def _is_narrow(t: Tree, name: str) -> bool:
    """Tell whether a value is computed in words of 32 bits from elements, constants and the scalar itself."""
    if t.real or not iv.inside(t.interval, WORD):
        return False
    if t.op in ("load", "const"):
        return True
    return t.data == name if t.op == "name" else t.op in ("add", "sub", "mul") and all(_is_narrow(a, name) for a in t.args)


def _bytes_by_halves(t: Tree, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield arrays of bytes whose elements are multiplied with elements of 16 bits."""
    if t.op != "mul" or {a.op for a in t.args} != {"load"}:
        yield from (name for a in t.args if t.op != "load" for name in _bytes_by_halves(a, sizes))
        return
    arrays = [a.data for a in t.args]
    if sorted(sizes.get(a, 0) for a in arrays) == [BYTE, HALF]:
        yield from (a for a in arrays if sizes[a] == BYTE)


def _size(interval: iv.Interval, real: bool) -> int:
    return 0 if real else iv.storage_bytes(interval)
