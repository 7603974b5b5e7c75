"""Instances of a rule: shapes and attributes, extents up to a limit, for which its left sides are typed and its guard holds.

Every shape of the operands and every value of the attributes within the bounds is tried, operands first. When there are
too many to try, instances are drawn with a fixed seed, and the count of instances says so.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ..errors import SpecError
from ..lang.expr import Expr
from ..ops.op import AttributeValue, Op, Shape, ShapeError
from ..ops.recurrent import GATES
from ..ops.static import ELEMENTS, Binding, Condition, HasType, Ints, Named, holds, list_of, value_of
from ..ops.term import Apply, Tensor, Variable
from ..rewrite.rule import Float, Rule, name_of

RANKS = (4, 5, 6)  # the largest rank of an operand: the first of these that has an instance
TRIED = 20_000  # candidates tried before instances are drawn instead
DRAWS = 10  # draws for each instance wanted
TRIED_IN_A_DRAW = 1_000
EMPTY = 20  # instances drawn with extents 0 and 1
FLOATS: dict[str, tuple[float, ...]] = {
    "epsilon": (0.5, 0.0),
    "value": (0.0, 1.0),
    "low": (0.0, -1.0, -math.inf),
    "high": (1.0, 0.5, math.inf),
}


@dataclass(frozen=True)
class Instance:
    """Shapes of a rule's operands and values of its attributes; `shapes` has every pattern of the left sides."""

    shapes: Mapping[int, Shape]
    values: Mapping[Any, Any]
    operands: Mapping[str, Shape]
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of elements of all left patterns."""
        return sum(math.prod(s) for s in self.shapes.values())

    @property
    def attributes(self) -> dict[str, Any]:
        """The values of the attributes by name."""
        return {name_of(k) if isinstance(k, Expr) else str(k): v for k, v in self.values.items()}

    def binding(self) -> Binding:
        """Return the instance as the match that guards and attributes are evaluated under."""
        return Binding(
            lambda t: self.shapes[id(t)], self.values, lambda t: self.dtypes.get(getattr(t, "name", ""), "float32"), lambda t: True
        )


@dataclass(frozen=True)
class Instances:
    """The instances to judge, how many there are (None: more than were tried) and the bounds."""

    chosen: tuple[Instance, ...]
    total: int | None
    limit: int
    rank: int
    empty: tuple[Instance, ...] = ()  # some with an operand without elements: only their types can be judged

    @property
    def strength(self) -> str:
        """The bounds of the certificate in words."""
        bounds = f"extents 1…{self.limit}, ranks 0…{self.rank}"
        if self.total == len(self.chosen):
            return f"all {self.total} instances with {bounds}"
        known = f"{self.total}" if self.total is not None else f"more than {len(self.chosen)}"
        return f"{len(self.chosen)} of {known} instances with {bounds}, drawn with seed 0"


def instances_of(rule: Rule, limit: int = 2, count: int = 100) -> Instances:
    """Return the instances of a rule, at most `count` of them."""
    for rank in RANKS:
        found = _within(rule, limit, rank, count)
        if found.chosen:
            break
    empty = [i for i in drawn(rule, range(2), found.rank, EMPTY) if any(0 in shape for shape in i.operands.values())]
    return replace(found, empty=tuple(_by_size(empty)))


def _within(rule: Rule, limit: int, rank: int, count: int) -> Instances:
    try:
        every = list(_Search(rule, range(1, limit + 1), rank, lambda candidates: candidates, TRIED).instances())
    except _TooMany:
        return Instances(tuple(_by_size(drawn(rule, range(1, limit + 1), rank, count))), None, limit, rank)
    if len(every) <= count:
        return Instances(tuple(_by_size(every)), len(every), limit, rank)
    return Instances(tuple(_by_size(random.Random(0).sample(every, count))), len(every), limit, rank)


def drawn(rule: Rule, extents: range, rank: int, count: int, seed: int = 0) -> list[Instance]:
    """Return at most `count` different random instances whose operands have these extents and at most `rank` axes."""
    source = random.Random(seed)
    found: dict[tuple[Any, ...], Instance] = {}
    for _ in range(count * DRAWS):
        search = _Search(rule, extents, rank, lambda c: source.sample(c, len(c)), TRIED_IN_A_DRAW)
        with suppress(_TooMany):
            for instance in itertools.islice(search.instances(), 1):
                found[(*instance.operands.items(), *map(str, instance.attributes.items()))] = instance
        if len(found) == count:
            break
    return list(found.values())


def _by_size(found: Sequence[Instance]) -> list[Instance]:
    return sorted(found, key=lambda i: i.size)


class _TooMany(Exception):
    """There are more candidates than are tried."""


@dataclass(frozen=True)
class _State:
    shapes: Mapping[int, Shape]
    values: Mapping[Any, Any]
    operands: Mapping[str, Shape]

    def typed(self, t: Tensor, shape: Shape) -> _State:
        return _State({**self.shapes, id(t): shape}, self.values, self.operands)

    def valued(self, key: Any, value: Any) -> _State:
        return _State(self.shapes, {**self.values, key: value}, self.operands)


class _Search:
    """Binds the variables of the left sides one after the other; `choose` says which candidates are followed."""

    def __init__(self, rule: Rule, extents: range, rank: int, choose: Callable[[Sequence[Any]], Sequence[Any]], budget: int) -> None:
        self.rule = rule
        self.extents = extents
        self.rank = rank
        self.choose = choose
        self.budget = budget
        self.dtypes = {name_of(c.tensor): c.dtypes[0] for c in rule.where if isinstance(c, HasType) and isinstance(c.tensor, Variable)}

    def instances(self) -> Iterator[Instance]:
        for state in self.terms([left for left, _ in self.rule.pairs], _State({}, {}, {}), lambda _: None):
            made = self.made(state)
            if all(holds(c, made.binding()) for c in self.rule.where):
                yield made

    def made(self, state: _State) -> Instance:
        return Instance(state.shapes, state.values, state.operands, self.dtypes)

    def is_excluded(self, instance: Instance) -> bool:
        """Tell whether a condition whose variables are all bound fails already."""
        return any(_fails(c, instance.binding()) for c in self.rule.where)

    def terms(self, ts: Sequence[Tensor], state: _State, hint: Callable[[list[Shape]], Sequence[Shape] | None]) -> Iterator[_State]:
        """Yield the states in which all of `ts` are typed, one after the other."""
        states: Iterator[_State] = iter([state])
        for n in range(len(ts)):
            states = self.extended(states, ts, n, hint)
        return states

    def extended(self, states: Iterator[_State], ts: Sequence[Tensor], n: int, hint: Callable[[list[Shape]], Any]) -> Iterator[_State]:
        for state in states:
            before = [state.shapes[id(t)] for t in ts[:n]]
            yield from self.term(ts[n], state, hint(before) if before else None)

    def term(self, t: Tensor, state: _State, candidates: Sequence[Shape] | None) -> Iterator[_State]:
        if id(t) in state.shapes:
            yield state
        elif isinstance(t, Variable):
            for shape in self.choose(all_shapes(self.extents, self.rank) if candidates is None else candidates):
                following = _State({**state.shapes, id(t): shape}, state.values, {**state.operands, t.name: shape})
                if not self.is_excluded(self.made(following)):
                    yield following
        elif isinstance(t, Apply):
            follow = OPERANDS.get(t.op.name)
            for with_operands in self.terms(t.operands, state, lambda s: follow(s, self) if follow else None):
                for complete in self.attributes(t, with_operands):
                    yield from self.checked(t, complete)

    def attributes(self, t: Apply, state: _State) -> Iterator[_State]:
        states: Iterator[_State] = iter([state])
        for a in t.op.attributes:
            key = free_attribute(t.attributes[a.name])
            if key is not None and key not in state.values:
                states = self.bound(states, t, a.name, key)
        return states

    def bound(self, states: Iterator[_State], t: Apply, name: str, key: Any) -> Iterator[_State]:
        for state in states:
            shapes = [state.shapes[id(x)] for x in t.operands]
            for value in self.choose(candidates_for(t.op, name, shapes, self.extents, self.rank)):
                yield state.valued(key, value)

    def checked(self, t: Apply, state: _State) -> Iterator[_State]:
        self.budget -= 1
        if self.budget < 0:
            raise _TooMany
        made = self.made(state)
        try:
            shapes = t.op.shapes([state.shapes[id(x)] for x in t.operands], attributes_of(t, made.binding()))
        except (ShapeError, IndexError):
            return
        following = state.typed(t, shapes[t.output])
        if not self.is_excluded(self.made(following)):
            yield following


def _fails(c: Condition, binding: Binding) -> bool:
    try:
        return not holds(c, binding)
    except KeyError:  # a variable is not bound yet
        return False


def free_attribute(value: object) -> Any:
    """Return the key under which a match binds an attribute, None when it is a literal or computed."""
    if isinstance(value, Named | Float):
        return value.name
    if isinstance(value, Expr) and value.op == "var" and value not in ELEMENTS:
        return value
    return None


def attributes_of(t: Apply, binding: Binding) -> dict[str, AttributeValue]:
    """Return the attributes of an application under a match; SpecError when one is not bound."""
    found: dict[str, AttributeValue] = {}
    for name, value in t.attributes.items():
        try:
            found[name] = _value(value, binding)
        except KeyError as missing:
            raise SpecError("R101", f"attribute {name} of {t.op.name} uses {missing}, which the left side does not bind") from None
    return found


def _value(value: object, binding: Binding) -> AttributeValue:
    if isinstance(value, Float):
        return binding.attributes[value.name]  # type: ignore[no-any-return]
    if isinstance(value, Ints):
        return list_of(value, binding)
    if isinstance(value, Expr):
        return value_of(value, binding)
    return value  # type: ignore[return-value]


@cache
def all_shapes(extents: range, rank: int) -> tuple[Shape, ...]:
    """Return every shape of at most `rank` axes with these extents, small ones first."""
    return tuple(s for r in range(rank + 1) for s in itertools.product(extents, repeat=r))


@cache
def factorings(size: int, rank: int) -> tuple[Shape, ...]:
    """Return every shape of at most `rank` axes with `size` elements; for none, those with extents 0 and 1."""
    if size == 0:
        return tuple(s for s in all_shapes(range(2), rank) if 0 in s)
    if rank == 0:
        return ((),) if size == 1 else ()
    found = [(n, *rest) for n in range(1, size + 1) if size % n == 0 for rest in factorings(size // n, rank - 1)]
    shorter = factorings(size, rank - 1)
    return (*shorter, *(s for s in found if len(s) == rank))


# -- candidates of operands that an operator's shape rule narrows to few; others would be refused there


def _vector_along_axis(shapes: list[Shape], _: _Search) -> Sequence[Shape]:
    return sorted({(n,) for n in shapes[0]})


def _channel_vector(shapes: list[Shape], _: _Search) -> Sequence[Shape]:
    return [shapes[0][1:2]] if len(shapes[0]) > 1 else []


def _filters(shapes: list[Shape], search: _Search) -> Sequence[Shape]:
    x, extents = shapes[0], search.extents
    if len(x) < 3:
        return []
    return list(itertools.product(extents, [c for c in range(x[1] + 1) if c == x[1] or (c and x[1] % c == 0)], *[extents for _ in x[2:]]))


def _recurrent(gates: int) -> Callable[[list[Shape], _Search], Sequence[Shape]]:
    def follow(shapes: list[Shape], search: _Search) -> Sequence[Shape]:
        x, *others = shapes
        if len(x) != 3:
            return []
        if not others:
            return [(gates * n, x[2]) for n in search.extents]
        rows, hidden = others[0][0], others[0][0] // gates
        following: list[Shape] = [(rows, hidden), (2 * rows,), (x[1], hidden)]
        return [following[min(len(others), 3) - 1]]

    return follow


def _weight(shapes: list[Shape], search: _Search) -> Sequence[Shape]:
    return [(n, shapes[0][-1]) for n in search.extents] if shapes[0] else []


def _trailing(shapes: list[Shape], _: _Search) -> Sequence[Shape]:
    return sorted({shapes[0][a:] for a in range(len(shapes[0]))})


OPERANDS: dict[str, Callable[[list[Shape], _Search], Sequence[Shape]]] = {
    "bias_add": _vector_along_axis,
    "scale": _vector_along_axis,
    "batch_norm": _channel_vector,
    "conv": _filters,
    "dense": _weight,
    "layer_norm": _trailing,
    **{name: _recurrent(gates) for name, gates in GATES.items()},
}


# -- candidates of attributes


def _each(values: Sequence[int], count: int) -> list[tuple[int, ...]]:
    return list(itertools.product(values, repeat=count))


def _spatial(shape: Shape) -> int:
    return max(len(shape) - 2, 0)


def _subsets(shape: Shape) -> list[tuple[int, ...]]:
    axes = range(len(shape))
    return [c for n in range(1, len(shape) + 1) for c in itertools.combinations(axes, n)]


def candidates_for(op: Op, name: str, shapes: Sequence[Shape], extents: range, rank: int) -> Sequence[Any]:
    """Return the values tried for a free attribute of an operator on operands of these shapes."""
    x = shapes[0] if shapes else ()
    table: dict[str, Callable[[], Sequence[Any]]] = {
        "perm": lambda: list(itertools.permutations(range(len(x)))),
        "axis": lambda: range(len(x)),
        "axes": lambda: _subsets(x),
        "shape": lambda: factorings(math.prod(x), rank) if op.name == "reshape" else all_shapes(extents, rank),
        "strides": lambda: _each((1, 2), _spatial(x)),
        "dilations": lambda: _each((1, 2), _spatial(x)),
        "kernel": lambda: _each((1, 2), _spatial(x)),
        "pads": lambda: _each((0, 1), 2 * (len(x) if op.name == "pad" else _spatial(x))),
        "group": lambda: range(1, extents.stop),
        "start": lambda: range(max(x, default=0) + 1),
        "stop": lambda: range(max(x, default=0) + 1),
        "step": lambda: (1, 2),
        **{flag: lambda: (0, 1) for flag in ("keepdims", "ceil", "count_include_pad", "linear_before_reset")},
        "activation": lambda: ("tanh", "sigmoid", "relu"),
        **{f: lambda v=v: v for f, v in FLOATS.items()},  # type: ignore[misc]
    }
    if name not in table:
        raise SpecError("R101", f"no values are known to try for the attribute {name} of {op.name}")
    return table[name]()
