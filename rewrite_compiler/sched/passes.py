"""Passes that fit a codelet to an architecture graph: each returns a codelet that computes the same.

place: operands at the storage that is farthest from the units. assign: to each compute the unit with most elements a step. tile: loops
of blocks that one storage holds, with the transfers between. decompose: blocks of one dimension over several units side by side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import SpecError
from ..target.acg import Acg
from ..target.capability import Capability
from .codelet import Affine, Allocation, Codelet, Compute, Constant, Index, Loop, Node, Transfer, walk
from .evaluation import usage


def place(c: Codelet, graph: Acg, units: Sequence[str]) -> Codelet:
    """Return a codelet with its operands at the home of these units.

    Raises:
        SpecError: I106, no storage reaches all of them.
    """
    home = graph.home(units)
    return replace(c, surrogates=tuple(replace(s, loc=s.loc or home) for s in c.surrogates))


@dataclass(frozen=True)
class Candidate:
    """A unit that has a capability, and what it computes in one step."""

    unit: str
    capability: Capability
    storage: str

    @property
    def width(self) -> int:
        """Elements of the result in one step."""
        return self.capability.result.elements


def candidates(graph: Acg, capability: str, dtypes: Sequence[str]) -> list[Candidate]:
    """Return the units that have a capability on operands of these types, most elements a step first, then by name."""
    rows = [
        Candidate(u.name, f.capability, f.result)
        for u in graph.units.values()
        for f in u.fragments
        if f.capability.name == capability and [t.dtype for t in f.capability.operands] == list(dtypes)
    ]
    return sorted(rows, key=lambda r: (-r.width, r.unit))


def assign(c: Codelet, graph: Acg) -> Codelet:
    """Return a codelet with a unit for each compute: the one with most elements a step of those that have the capability.

    Raises:
        SpecError: I106, no unit has the capability on these types.
    """
    types = {s.name: s.dtype or "" for s in c.surrogates}

    def unit(n: Compute) -> str:
        dtypes = [types[i.surrogate] for i in n.operands]
        rows = candidates(graph, n.capability, dtypes)
        if not rows:
            raise _no_unit(graph, n.capability, dtypes)
        return rows[0].unit

    return replace(c, body=_mapped(c.body, lambda n: replace(n, unit=unit(n))))


def _no_unit(graph: Acg, capability: str, dtypes: Sequence[str]) -> SpecError:
    names = sorted({f"{f.capability.name} on {u.name}" for u in graph.units.values() for f in u.fragments})
    remedy = f"it has {', '.join(names[:8])}" if names else "its model has no instruction that computes"
    return SpecError("I106", f"compute {capability}: no unit of {graph.name} has {capability} on {', '.join(dtypes)}", help=remedy)


def _mapped(body: tuple[Node, ...], change: Callable[[Compute], Compute]) -> tuple[Node, ...]:
    """Return a body with every compute changed."""
    parts: list[Node] = []
    for n in body:
        if isinstance(n, Loop):
            parts.append(replace(n, body=_mapped(n.body, change)))
        else:
            parts.append(change(n) if isinstance(n, Compute) else n)
    return tuple(parts)


# -- tiles


@dataclass(frozen=True)
class _Segment:
    """A range of a loop variable that is covered by tiles of one size."""

    var: str
    low: int
    high: int
    tile: int


def tile(c: Codelet, tiles: Mapping[str, int], storage: str) -> Codelet:
    """Return a codelet whose loops run over tiles: their operands are brought to `storage`, computed there, and results taken back.

    A size that a tile does not divide has a shorter tile at its end. Loops without a tile are taken in one.

    Raises:
        SpecError: I102, the body is no perfect nest of loops, or a tile is not positive.
    """
    loops, computes = _nest(c)
    parts = [list(_segments(n, tiles.get(n.var, int(n.high) - int(n.low)))) for n in loops]
    nests = [_tiled_nest(c, segments, computes, storage, k) for k, segments in enumerate(itertools.product(*parts))]
    return replace(c, body=tuple(nests) if loops else c.body)


def _nest(c: Codelet) -> tuple[list[Loop], tuple[Compute, ...]]:
    loops, body = list[Loop](), c.body
    while len(body) == 1 and isinstance(body[0], Loop):
        loops.append(body[0])
        body = body[0].body
    computes = tuple(n for n in body if isinstance(n, Compute))
    if len(computes) != len(body) or any(n.stride != 1 for n in loops):
        sentence = f"{c.name} must be a nest of loops of stride 1 around computes to be tiled"
        raise SpecError("I102", sentence, help="tile a codelet first, and decompose its inner loops afterwards")
    for name in {n.result.surrogate for n in computes}:
        blocks = {i for n in computes for i in (*n.operands, n.result) if i.surrogate == name}
        if len(blocks) > 1:
            sentence = f"{c.name} must write and read one block of {name} to be tiled, not {len(blocks)} that may overlap"
            raise SpecError("I102", sentence, help="split it into codelets, one after the other")
    return loops, computes


def _segments(n: Loop, size: int) -> Iterator[_Segment]:
    low, high = int(n.low), int(n.high)
    if size < 1:
        raise SpecError("I102", f"A tile of {n.var} must be positive, not {size}", help=f"1 to {high - low}")
    size = min(size, high - low)
    end = high - (high - low) % size
    yield _Segment(n.var, low, end, size)
    if end < high:
        yield _Segment(n.var, end, high, high - end)


def _tiled_nest(c: Codelet, segments: Sequence[_Segment], computes: Sequence[Compute], storage: str, number: int) -> Node:
    """Return the loops of one combination of tile sizes."""
    tiles = {s.var: s.tile for s in segments}
    names: dict[Index, str] = {}
    loads, stores = list[Node](), list[Node]()
    inner: list[Node] = []
    for n in computes:
        operands = tuple(_local(i, names, number, tiles) for i in n.operands)
        inner.append(Compute(n.capability, operands, _local(n.result, names, number, tiles), n.unit))
    for i, local in names.items():
        block = _block(i, tiles)
        is_read = any(i in n.operands for n in computes) or not _is_dense(i, tiles)
        source: Index | Constant = block if is_read else Constant(0, _dtype(c, i.surrogate), block.sizes)
        loads.append(Transfer(source, Allocation(local, storage)))
        if any(i == n.result for n in computes):
            stores.append(Transfer(Index(local, tuple(Affine() for _ in block.sizes), block.sizes), block))
    body: tuple[Node, ...] = tuple(inner)
    for s in reversed(segments):
        body = (Loop(_inner(s.var), 0, s.tile, 1, body),)
    body = (*loads, *body, *stores)
    for s in reversed(segments):
        body = (Loop(s.var, s.low, s.high, s.tile, body),)
    return body[0]


def _inner(var: str) -> str:
    return f"{var}_1"


def _local(i: Index, names: dict[Index, str], number: int, tiles: Mapping[str, int]) -> Index:
    """Return an index of a tile as one of its local: only the inner variables move in it."""
    relatives = [k for k in names if k.surrogate == i.surrogate]
    suffix = "" if i in names or not relatives else f"_{len(relatives)}"
    names.setdefault(i, f"{i.surrogate}_{number + 1}{suffix}")
    offsets = tuple(Affine(_reach(a, tiles)[0], tuple((_inner(v), f) for v, f in a.terms)) for a in i.offsets)
    return Index(names[i], offsets, i.sizes)


def _reach(a: Affine, tiles: Mapping[str, int]) -> tuple[int, int]:
    """Return how far an offset moves down and up inside of a tile."""
    moves = [f * (tiles[v] - 1) for v, f in a.terms]
    return -sum(m for m in moves if m < 0), sum(m for m in moves if m > 0)


def _block(i: Index, tiles: Mapping[str, int]) -> Index:
    """Return what a tile takes of a surrogate: along each axis from its lowest element to its highest."""
    reaches = [_reach(a, tiles) for a in i.offsets]
    offsets = tuple(a + -down for a, (down, _) in zip(i.offsets, reaches, strict=True))
    sizes = tuple(size + down + up for size, (down, up) in zip(i.sizes, reaches, strict=True))
    return Index(i.surrogate, offsets, sizes)


def _is_dense(i: Index, tiles: Mapping[str, int]) -> bool:
    """Tell whether an index reaches every element of its block: each axis moves with one variable, by no more than its size."""
    moving = [[(v, f) for v, f in a.terms if tiles[v] > 1] for a in i.offsets]
    variables = [v for terms in moving for v, _ in terms]
    is_separate = len(variables) == len(set(variables)) and all(len(terms) <= 1 for terms in moving)
    return is_separate and all(abs(f) <= size for terms, size in zip(moving, i.sizes, strict=True) for _, f in terms)


def _dtype(c: Codelet, name: str) -> str:
    return c.surrogate(name).dtype or "i32"


# -- units side by side


def coins(n: int, widths: Sequence[int]) -> tuple[int, ...]:
    """Return how many steps of each width cover n elements, with the fewest steps of the busiest unit, then the fewest in all.

    Raises:
        SpecError: I102, no widths add up to n.
    """
    best: list[tuple[int, ...] | None] = [None] * (n + 1)
    best[0] = (0,) * len(widths)
    for total in range(1, n + 1):
        options = []
        for k, width in enumerate(widths):
            previous = best[total - width] if total >= width else None
            if previous is not None:
                options.append((*previous[:k], previous[k] + 1, *previous[k + 1 :]))
        best[total] = min(options, key=lambda steps: (max(steps), sum(steps)), default=None)
    steps = best[n]
    if steps is None:
        raise SpecError("I102", f"{n} elements are no sum of steps of {', '.join(map(str, widths))}", help="add a unit of width 1")
    return steps


def decompose(c: Codelet, units: Sequence[tuple[str, int]]) -> Codelet:
    """Return a codelet whose innermost loops compute on several units side by side, each with its width of elements a step.

    What is left over at the end of a loop goes to as few steps as possible.

    Raises:
        SpecError: I102, a compute takes its elements not one after the other, or the widths do not add up to what is left.
    """
    return replace(c, body=tuple(p for n in c.body for p in _decomposed(n, units)))


def _decomposed(n: Node, units: Sequence[tuple[str, int]]) -> tuple[Node, ...]:
    if not isinstance(n, Loop):
        return (n,)
    if not all(isinstance(p, Compute) for p in n.body) or n.stride != 1:
        return (replace(n, body=tuple(q for p in n.body for q in _decomposed(p, units))),)
    step = sum(width for _, width in units)
    low, high = int(n.low), int(n.high)
    rounds = (high - low) // step
    blocks = list(itertools.accumulate((width for _, width in units), initial=0))
    body = tuple(_vector(p, n.var, Affine(at), unit, width) for p in n.body for at, (unit, width) in zip(blocks, units, strict=False))
    parts: list[Node] = [replace(n, high=low + rounds * step, stride=step, body=body)] if rounds > 1 else []
    parts += [_at(p, n.var, low) for p in body] if rounds == 1 else []
    position = low + rounds * step
    counts = coins(high - position, [width for _, width in units])
    for (unit, width), count in zip(units, counts, strict=True):
        for _ in range(count):
            parts += [_vector(_at(p, n.var, position), n.var, Affine(), unit, width) for p in n.body if isinstance(p, Compute)]
            position += width
    return tuple(parts)


def _vector(n: Node, var: str, at: Affine, unit: str, width: int) -> Compute:
    """Return a compute on `width` elements from the loop variable plus `at` on."""
    assert isinstance(n, Compute)

    def widened(i: Index) -> Index:
        factors = [dict(a.terms).get(var, 0) for a in i.offsets]
        if any(f for f in factors[:-1]) or (factors and factors[-1] not in (0, 1)):
            sentence = f"{n.capability} must take elements of {i.surrogate} one after the other along {var}"
            raise SpecError("I102", sentence, help="put a loop innermost that moves the last axis by one")
        is_last = bool(factors) and (factors[-1] == 1 or not any(i.offsets[-1].terms))
        if not is_last:
            return i
        return Index(i.surrogate, (*i.offsets[:-1], i.offsets[-1] + at), (*i.sizes[:-1], i.sizes[-1] * width))

    return Compute(n.capability, tuple(map(widened, n.operands)), widened(n.result), unit)


def _at(n: Compute, var: str, value: int) -> Compute:
    """Return a compute at one value of a loop variable."""

    def fixed(a: Affine) -> Affine:
        factor = dict(a.terms).get(var, 0)
        return Affine(a.constant + factor * value, tuple((v, f) for v, f in a.terms if v != var))

    def moved(i: Index) -> Index:
        return Index(i.surrogate, tuple(map(fixed, i.offsets)), i.sizes)

    return Compute(n.capability, tuple(map(moved, n.operands)), moved(n.result), n.unit)


# -- validation


def check_schedule(c: Codelet, graph: Acg) -> None:
    """Refuse a codelet that does not fit the storages and edges of a graph.

    Raises:
        SpecError: I114, a storage holds less than the codelet takes of it; I106, a transfer goes where no edge does.
    """
    for name, bits in usage(c).items():
        storage = graph.storages.get(name)
        if storage is not None and not storage.off_chip and bits > storage.capacity_bits:
            sentence = f"The tiles of {c.name} take {bits:,} bits of {name}, which holds {storage.capacity_bits:,}"
            raise SpecError("I114", sentence, help=_cut(c, name, bits, storage.capacity_bits))
    places = {s.name: s.loc for s in c.surrogates}
    for n in walk(c.body):
        if isinstance(n, Transfer):
            _check_transfer(n, places, graph)


def _check_transfer(n: Transfer, places: dict[str, str | None], graph: Acg) -> None:
    if isinstance(n.sink, Allocation):
        places[n.sink.name] = n.sink.loc
    if not isinstance(n.source, Index):
        return
    source = places[n.source.surrogate]
    sink = n.sink.loc if isinstance(n.sink, Allocation) else places[n.sink.surrogate]
    if source != sink and not any((e.source, e.sink) == (source, sink) for e in graph.edges):
        sentence = f"No edge of {graph.name} leads from {source} to {sink}, where {n.source.surrogate} is to go"
        raise SpecError("I106", sentence, help="bring it there over other storages")


def _cut(c: Codelet, storage: str, bits: int, capacity: int) -> str:
    """Return which tile to cut, and to what: along the longest axis of the largest block in a storage."""
    transfers = (n for n in walk(c.body) if isinstance(n, Transfer) and isinstance(n.sink, Allocation) and n.sink.loc == storage)
    blocks = [n.source for n in transfers if isinstance(n.source, Index) and n.source.sizes]
    if not blocks:
        return "place an operand elsewhere"
    largest = max(blocks, key=lambda i: i.elements)
    axis = largest.sizes.index(max(largest.sizes))
    terms, most = largest.offsets[axis].terms, max(largest.sizes[axis] * capacity // bits, 1)
    return f"{largest.surrogate} is the largest: tile {terms[0][0] if terms else 'it'} by at most {most} (of {largest.sizes[axis]})"
