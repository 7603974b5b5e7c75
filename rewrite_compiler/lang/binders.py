"""Terms with bound variables: array comprehensions, reductions, ordered folds, and tables.

`array(lambda i, j: …, (m, n))` is a comprehension, `fold` an ordered loop whose accumulators are scalars or arrays,
`Table` a function on at most 20 input bits that numeric readings compute once. An extent is an integer or a term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

from ..errors import SpecError
from . import intervals as iv
from .expr import Expr, Operand, binary, lift, node, select, var
from .intervals import Interval
from .out_of_range import OutOfRange

TABLE_BITS = 20
Extent = int | Expr
Index = Operand | tuple[Operand, ...]
_ANY_LENGTH_FROM: ContextVar[int | None] = ContextVar("any_length", default=None)
MONOIDS = ("sum", "max", "min")


@dataclass(frozen=True, eq=False)
class Array:
    """An array-valued term: its extents and the interval and sort of its elements."""

    shape: tuple[Extent, ...]
    interval: Interval
    real: bool

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def free(self) -> frozenset[Expr]:
        """Variables bound outside of this array."""
        return frozenset()

    @property
    def reads(self) -> frozenset[Leaf]:
        """The leaves its elements depend on."""
        return frozenset()

    def __getitem__(self, index: Index) -> Expr:
        """Return the element at `index`, one integer term an axis.

        Raises:
            SpecError: there are more or fewer indices than axes, or an index is real or always outside.
        """
        indices = tuple(lift(i) for i in (index if isinstance(index, tuple) else (index,)))
        if len(indices) != self.rank:
            raise SpecError("I103", f"{name_of(self)} has {self.rank} axes, not {len(indices)}")
        for axis, (i, extent) in enumerate(zip(indices, self.shape, strict=True)):
            _inside(self, axis, i, extent)
        free = self.free.union(*(i.free for i in indices))
        return node("load", indices, self, self.interval, self.real, free)


@dataclass(frozen=True, eq=False)
class Leaf(Array):
    """A named array that is given: an operand, a state memory, or a local of a step."""

    name: str

    @property
    def reads(self) -> frozenset[Leaf]:
        """Itself."""
        return frozenset((self,))


@dataclass(frozen=True, eq=False)
class Accumulator(Leaf):
    """The value of a fold's accumulator before the current step; it varies with the fold's variable."""

    variable: Expr

    @property
    def free(self) -> frozenset[Expr]:
        """The fold's variable."""
        return self.variable.free


@dataclass(frozen=True, eq=False)
class Comprehension(Array):
    """array[i, j, …] = body."""

    variables: tuple[Expr, ...]
    body: Expr

    @property
    def free(self) -> frozenset[Expr]:
        """Variables of the body and the extents that are bound outside."""
        return self.body.free.difference(self.variables).union(*(e.free for e in self.shape if isinstance(e, Expr)))

    @property
    def reads(self) -> frozenset[Leaf]:
        """The leaves of the body and the extents."""
        return self.body.reads.union(*(e.reads for e in self.shape if isinstance(e, Expr)))

    @cached_property
    def has_folds(self) -> bool:
        """Whether an element reads the result of a fold."""
        work, visited = [self.body], set[int]()
        while work:
            e = work.pop()
            if e.op == "load" and isinstance(e.data, FoldResult):
                return True
            work.extend(x for x in e.args if id(x) not in visited)
            visited.update(map(id, e.args))
        return False


@dataclass(frozen=True, eq=False)
class Fold:
    """accumulators := bodies(k, accumulators) for k = 0 … extent−1, in order, starting from `initial`."""

    variable: Expr
    extent: Expr
    initial: tuple[Array, ...]
    accumulators: tuple[Accumulator, ...]
    bodies: tuple[Array, ...]

    @property
    def free(self) -> frozenset[Expr]:
        """Variables bound outside of the fold."""
        inner = frozenset[Expr]().union(*(b.free for b in self.bodies)).difference(self.variable.free)
        return inner.union(self.extent.free, *(i.free for i in self.initial))

    @property
    def reads(self) -> frozenset[Leaf]:
        """The leaves it depends on, its own accumulators left out."""
        parts = (*self.initial, *self.bodies)
        return self.extent.reads.union(*(p.reads for p in parts)).difference(self.accumulators)


@dataclass(frozen=True, eq=False)
class FoldResult(Array):
    """One accumulator of a fold after its last step, or after every step (a leading axis) when `history`."""

    fold: Fold
    component: int
    history: bool

    @property
    def free(self) -> frozenset[Expr]:
        """Variables bound outside of the fold."""
        return self.fold.free

    @property
    def reads(self) -> frozenset[Leaf]:
        """The leaves the fold depends on."""
        return self.fold.reads


class Table:
    """A function of integers on a small finite domain, computed once by numeric readings."""

    def __init__(self, name: str, function: Callable[..., Expr], *domains: Interval) -> None:
        """Define `name` on the product of `domains`, at most 2^20 entries.

        Raises:
            SpecError: a domain is unbounded, the entries are too many, or the function uses a free variable.
        """
        self.name = name
        self.domains = domains
        self.numbers: tuple[int, ...] = ()  # the entries, where the table is a list of numbers
        self.shape = tuple(_size(name, d) for d in domains)
        if math.prod(self.shape) > 1 << TABLE_BITS:
            raise SpecError("I102", f"table {name} has {math.prod(self.shape)} entries, more than 2^{TABLE_BITS}")
        self.function = function
        self.parameters = tuple(var(f"{name}_{n}", d) for n, d in enumerate(domains))
        self.body = lift(function(*self.parameters))
        if self.body.free.difference(self.parameters):
            raise SpecError("I102", f"table {name} uses a variable that is not one of its parameters")

    def __call__(self, *operands: Operand) -> Expr:
        """Return the entry at `operands`, as a term.

        Raises:
            SpecError: an operand may lie outside of its domain.
        """
        terms = tuple(lift(x) for x in operands)
        for term, domain in zip(terms, self.domains, strict=True):
            if not iv.inside(term.interval, domain):
                raise SpecError("I103", f"table {self.name} is defined on {domain}, not on {term.interval}")
        return node("table", terms, self, self.body.interval, self.body.real)


def number_at(name: str, numbers: Sequence[int], place: Expr) -> Expr:
    """Return the number of a list that belongs to a place: the one that there is, or an entry of the table of this name."""
    return lift(int(numbers[0])) if len(set(numbers)) == 1 else _table_of(name, tuple(map(int, numbers)))(place)


@lru_cache(maxsize=1024)
def _table_of(name: str, numbers: tuple[int, ...]) -> Table:
    table = Table(name, partial(_by_halves, numbers, 0), (0, len(numbers) - 1))
    table.numbers = numbers
    return table


def _by_halves(numbers: tuple[int, ...], first: int, place: Expr) -> Expr:
    if len(set(numbers)) == 1:
        return lift(numbers[0])
    middle = len(numbers) // 2
    low, high = _by_halves(numbers[:middle], first, place), _by_halves(numbers[middle:], first + middle, place)
    return select(place < first + middle, low, high)


def entries_of(table: Table) -> Comprehension:
    """Return a table as an array of the shape of its domains: entry [i, …] is function(low + i, …)."""
    low = [d[0] or 0 for d in table.domains]
    return array(lambda *i: table.function(*(x + b for x, b in zip(i, low, strict=True))), table.shape)


def array(function: Callable[..., Operand], shape: Sequence[Extent] | Extent) -> Comprehension:
    """Return the comprehension whose element at (i, j, …) is function(i, j, …).

    Raises:
        SpecError: the array has more than 9 axes.
    """
    extents = as_shape(shape)
    variables = tuple(index_variable(n, e) for n, e in zip("ijklmnopq", extents, strict=False))
    if len(variables) != len(extents):
        raise SpecError("I102", f"an array has at most 9 axes, not {len(extents)}")
    body = lift(function(*variables))
    return Comprehension(extents, body.interval, body.real, variables, body)


def index_variable(name: str, extent: Extent) -> Expr:
    """Return a fresh variable that runs from 0 to extent − 1."""
    high = lift(extent).interval[1]
    return var(name, (0, None if high is None else max(high - 1, 0)))


def reduce(monoid: str, function: Callable[..., Operand], extent: Sequence[Extent] | Extent) -> Expr:
    """Return the sum, max or min of function(c, …) over the extents; a max or min of nothing is refused by readings.

    Raises:
        SpecError: `monoid` is none of these.
    """
    if monoid not in MONOIDS:
        raise SpecError("I102", f'there is no monoid "{monoid}"', help=f"known: {', '.join(MONOIDS)}")
    extents = as_shape(extent)
    variables = tuple(index_variable(f"c{n}", e) for n, e in enumerate(extents))
    return reduction(monoid, variables, tuple(lift(e) for e in extents), lift(function(*variables)))


def reduction(monoid: str, variables: tuple[Expr, ...], extents: tuple[Expr, ...], body: Expr) -> Expr:
    """Return the reduction of `body` over `variables`, which it uses already and which run to `extents`."""
    count: Interval = (1, 1)
    for e in extents:
        count = iv.mul(count, e.interval)
    interval = iv.scale(body.interval, count) if monoid == "sum" else body.interval
    if monoid == "sum" and (_ANY_LENGTH_FROM.get() or math.inf) <= (count[0] or 0):
        interval = iv.EVERYTHING
    free = body.free.difference(variables).union(*(e.free for e in extents))
    return node("reduce", (body, *extents), (monoid, variables), iv.EVERYTHING if body.real else interval, body.real, free)


@contextmanager
def unbounded_sums(least: int) -> Iterator[None]:
    """Make sums of `least` terms or more as if of any number, so that none fits a word because it happens to be short."""
    token = _ANY_LENGTH_FROM.set(least)
    try:
        yield
    finally:
        _ANY_LENGTH_FROM.reset(token)


def reduce_sum(function: Callable[..., Operand], extent: Sequence[Extent] | Extent) -> Expr:
    """Return Σ function(c, …)."""
    return reduce("sum", function, extent)


def reduce_max(function: Callable[..., Operand], extent: Sequence[Extent] | Extent) -> Expr:
    """Return the largest function(c, …)."""
    return reduce("max", function, extent)


def fold(
    extent: Sequence[Extent] | Extent, initial: Operand, function: Callable[..., Operand], width: Interval | int | None = None
) -> Expr:
    """Return acc after acc := function(k, …, acc) for k = 0 … extent−1, the last index fastest.

    Each acc must fit `width`, an interval or the bits of a signed word.

    Raises:
        SpecError: an accumulator may leave its width.
    """
    first, *inner = as_shape(extent)

    def body(k: Expr, acc: Expr) -> Operand:
        return fold(inner, acc, lambda *rest: function(k, *rest), width) if inner else function(k, acc)

    (result,) = fold_arrays(first, [scalar_array(initial)], lambda k, a: [scalar_array(body(k, a[()]))], [width])
    return result[()]


def fold_arrays(
    extent: Extent,
    initial: Sequence[Array],
    function: Callable[..., Sequence[Array]],
    widths: Sequence[Interval | int | None] | None = None,
    *,
    history: bool = False,
) -> list[FoldResult]:
    """Return the accumulators of an ordered loop over `extent` steps, function(k, *accumulators) being one step.

    An accumulator keeps the shape of its initial array; with `history` the value after every step is kept along a new
    leading axis. `widths` are intervals or the bits of signed words.

    Raises:
        SpecError: an accumulator may leave its width.
    """
    extent = lift(*as_shape(extent))
    k = index_variable("k", extent)
    ranges = [iv.of_width(w, True) if isinstance(w, int) else w or iv.EVERYTHING for w in (widths or [None] * len(initial))]
    accumulators = tuple(Accumulator(a.shape, w, a.real, f"acc{n}", k) for n, (a, w) in enumerate(zip(initial, ranges, strict=True)))
    bodies = tuple(function(k, *accumulators))
    for n, (body, first, width) in enumerate(zip(bodies, initial, ranges, strict=True)):
        _fits(n, (body, first), width)
    loop = Fold(k, extent, tuple(initial), accumulators, bodies)
    lead = (extent,) if history else ()
    return [FoldResult((*lead, *a.shape), a.interval, a.real, loop, n, history) for n, a in enumerate(accumulators)]


def scalar_array(x: Operand) -> Comprehension:
    """Return a term as an array without axes."""
    term = lift(x)
    return Comprehension((), term.interval, term.real, (), term)


def leaf(name: str, shape: Sequence[Extent], interval: Interval = iv.EVERYTHING, *, real: bool = False) -> Leaf:
    """Return a named operand array."""
    return Leaf(tuple(shape), interval, real, name)


def name_of(a: Array) -> str:
    """Return the name of an array in messages."""
    return a.name if isinstance(a, Leaf) else "an array"


def as_shape(shape: Sequence[Extent] | Extent) -> tuple[Extent, ...]:
    """Return a shape as a tuple of extents; constant terms become integers, negative extents 0."""
    extents = (shape,) if isinstance(shape, int | Expr) else tuple(shape)
    return tuple(map(_extent, extents))


def _extent(e: Extent) -> Extent:
    if not isinstance(e, Expr):
        return max(e, 0)
    low, _ = e.interval
    is_length = e.real or (low is not None and low >= 0)
    return _extent(int(e.value)) if e.value is not None else e if is_length else binary("max", e, 0)


def static_shape(a: Array) -> tuple[int, ...]:
    """Return the extents of an array whose shape is known.

    Raises:
        SpecError: an extent is a term.
    """
    extents = [n for n in a.shape if isinstance(n, int)]
    if len(extents) != a.rank:
        raise SpecError("I102", f"the shape of {name_of(a)} must be known, not {a.shape}")
    return tuple(extents)


def _inside(a: Array, axis: int, index: Expr, extent: Extent) -> None:
    if index.real:
        raise SpecError("I103", f"axis {axis} of {name_of(a)} is indexed by a real term")
    top = lift(extent).interval[1]
    low, high = index.interval
    if (high is not None and high < 0) or (low is not None and top is not None and low >= top):
        raise SpecError("I103", f"axis {axis} of {name_of(a)} has {extent} elements; index {index!r} is always outside")


def _fits(component: int, values: Sequence[Array], width: Interval) -> None:
    interval = iv.hull(*(a.interval for a in values))
    if iv.inside(interval, width):
        return
    terms = tuple(a.body for a in values if isinstance(a, Comprehension) and not a.real)
    sentence = f"accumulator {component} of a fold takes values in {interval}, outside of its width {width}"
    raise OutOfRange(sentence, terms, width, help="wrap() or sat() it in every step")


def _size(name: str, domain: Interval) -> int:
    if domain[0] is None or domain[1] is None:
        raise SpecError("I102", f"table {name} needs a bounded domain, not {domain}")
    return domain[1] - domain[0] + 1
