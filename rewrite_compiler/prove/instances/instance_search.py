"""The search for instances of a rule: shapes and attributes for which its left sides are typed and its guard holds.

It backtracks over every shape of the operands and every value of the attributes within the bounds, operands first; what
it leaves out is decided by `choose`.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, NamedTuple

from ...errors import SpecError
from ...lang.expr import Expr
from ...ops.op import Apply, AttributeValue, Op, Shape, ShapeError, Tensor, Variable, subterms
from ...ops.recurrent import GATES
from ...ops.static import (
    ELEMENTS,
    Binding,
    Condition,
    HasType,
    Ints,
    RealComparison,
    ShapeOf,
    TermIsTrue,
    holds,
    list_function,
    term_function,
)
from ...rewrite.rule import Float, Rule, condition_atoms, condition_variables, free_attribute, name_of

DRAWS = 10  # draws for each instance wanted
CANDIDATES_PER_DRAW = 1_000
APPLICATIONS = 1 << 12  # of which the attributes are kept as functions
WINDOW = 2  # the largest window that is tried where a rule does not ask for more
Operands = tuple[tuple[str, Shape], ...]
Extents = range | tuple[int, ...]
Choose = Callable[[Sequence[Any]], Iterable[Any]]  # the candidates that are followed, in their order
Component = tuple[str, int]  # the name of an attribute, and the place in its list (0 of a number or of a whole list)
WHOLE_LISTS = frozenset({"shape", "perm", "axes"})  # attributes whose elements do not vary one by one
FLOATS: dict[str, tuple[float, ...]] = {
    "epsilon": (0.5, 0.0),
    "value": (0.0, 1.0),
    "low": (0.0, -1.0, -math.inf),
    "high": (1.0, 0.5, math.inf),
}


@dataclass(frozen=True)
class Instance:
    """Shapes of a rule's operands and values of its attributes; `shapes` has every pattern of the left sides, by identity."""

    shapes: Mapping[int, Shape]
    values: Mapping[Any, Any]
    operands: Mapping[str, Shape]
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of elements of all left patterns."""
        return sum(math.prod(s) for s in self.shapes.values())

    @property
    def attributes(self) -> dict[str, Any]:
        """The values of the attributes by name."""
        return {attribute_name(k): v for k, v in self.values.items()}

    def binding(self) -> Binding:
        """Return the instance as the match that guards and attributes are evaluated under."""
        return _binding(self.shapes, self.values, self.dtypes)


def _binding(shapes: Mapping[int, Shape], values: Mapping[Any, Any], dtypes: Mapping[str, str]) -> Binding:
    return Binding(lambda t: shapes[id(t)], values, lambda t: dtypes.get(getattr(t, "name", ""), "float32"), lambda t: True)


PendingCondition = tuple[
    Condition, frozenset[Any]
]  # a condition, and what must be bound before it can be held: operands and keys of attributes


def _conditions(rule: Rule) -> dict[str, list[PendingCondition]]:
    """Return the conditions of a guard by the variables that they use; those on typed terms under no name."""
    by_variable: dict[str, list[PendingCondition]] = {}
    for c in rule.where:
        variables = [*condition_variables(c)]
        names = {name_of(v) for v in variables}
        entry = c, frozenset(v if isinstance(v, Expr) else name_of(v) for v in variables)
        for name in {"", *names} if _reads_terms(c) else names:
            by_variable.setdefault(name, []).append(entry)
    return by_variable


@lru_cache(maxsize=64)
def _rule_index(rule: Rule) -> tuple[Mapping[str, list[PendingCondition]], frozenset[str], Mapping[str, str]]:
    """Return the conditions of a rule by variable, the names of its operands, and the element types that its guard gives them."""
    names = frozenset(x.name for left, _ in rule.pairs for x in subterms(left) if isinstance(x, Variable))
    dtypes = {name_of(c.tensor): c.dtypes[0] for c in rule.where if isinstance(c, HasType) and isinstance(c.tensor, Variable)}
    return _conditions(rule), names, dtypes


@cache
def largest_window(rule: Rule) -> int:
    """Return the largest window extent that is tried: 2, or two more than a lower bound of the guard that is at least 2."""
    kernels = {
        id(x.attributes["kernel"]) for left, _ in rule.pairs for x in subterms(left) if isinstance(x, Apply) and "kernel" in x.attributes
    }
    lower_bounds = [int(low.data) for c in rule.where if isinstance(c, TermIsTrue) for low in _lower_bounds(c.term, kernels)]
    return max([WINDOW, *(n + 2 for n in lower_bounds if n >= WINDOW)])


@cache
def numbers_of(rule: Rule) -> tuple[float, ...]:
    """Return the finite numbers that are float attributes in the patterns of a rule."""
    patterns = (x for pair in rule.pairs for side in pair for x in subterms(side) if isinstance(x, Apply))
    values = (v for x in patterns for v in x.attributes.values())
    return tuple(dict.fromkeys(v for v in values if isinstance(v, float) and math.isfinite(v)))


@cache
def numbers_near(rule: Rule) -> tuple[float, ...]:
    """Return the numbers that a guard compares float attributes with, and those one less and one more."""
    numbers = [n for c in rule.where if isinstance(c, RealComparison) for n in c.numbers]
    return tuple(dict.fromkeys(m for n in numbers for m in (n, n - 1, n + 1)))


def _lower_bounds(e: Expr, kernels: set[int]) -> Iterator[Expr]:
    """Yield the constants that elements of some lists must be more than."""
    if e.op in ("lt", "le") and e.args[0].op == "const":
        element = ELEMENTS.get(e.args[1])
        if element is not None and id(element.base) in kernels:
            yield e.args[0]
    for a in e.args if e.op == "bitand" else ():
        yield from _lower_bounds(a, kernels)


def _reads_terms(c: Condition) -> bool:
    """Tell whether a condition uses the shape of something that is not a variable."""
    return any(isinstance(a, ShapeOf | HasType) and isinstance(a.tensor, Apply) for a in condition_atoms(c))


def attribute_name(key: Any) -> str:
    """Return the name of an attribute from the key that a match binds it under."""
    return name_of(key) if isinstance(key, Expr) else str(key)


class TooManyCandidates(Exception):
    """The search has met more candidates than it may try."""


class State(NamedTuple):
    """The bindings of a partial match; a tuple, because a search makes many."""

    shapes: Mapping[int, Shape]
    values: Mapping[Any, Any]
    operands: Mapping[str, Shape]

    def with_shape(self, t: Tensor, shape: Shape) -> State:
        """Return the state with the shape of a term."""
        return State({**self.shapes, id(t): shape}, self.values, self.operands)

    def with_value(self, key: Any, value: Any) -> State:
        """Return the state with the value of an attribute."""
        return State(self.shapes, {**self.values, key: value}, self.operands)


class Search:
    """A backtracking search that binds the variables of the left sides one after the other; `choose` says which candidates are followed.

    One budget counts typed applications, one the candidates held against the guard.
    """

    def __init__(self, rule: Rule, extents: range, rank: int, choose: Choose, budget: int) -> None:
        self.rule = rule
        self.extents: Extents = extents
        self.rank = rank
        self.choose = choose
        self.typing_budget = budget
        self.guard_budget: float = math.inf  # candidates that are still held against the guard
        self.whole_attributes: set[str] = set()  # attributes of one component
        self.conditions, self.names, self.dtypes = _rule_index(rule)
        self.windows = largest_window(rule)
        self.numbers = numbers_near(rule)

    def instances(self) -> Iterator[Instance]:
        """Yield the instances in the order of the candidates.

        Raises:
            SpecError: the guard uses a result that the left side does not have.
            TooManyCandidates: the budget is used up.
        """
        for state in self.typed_terms([left for left, _ in self.rule.pairs], State({}, {}, {}), lambda _: None):
            instance = self.instance_of(state)
            try:
                binding = instance.binding()
                is_instance = all(holds(c, binding) for c in self.rule.where)
            except KeyError:  # all that the left side has is typed
                raise SpecError("R101", "the guard uses a result that the left side does not have") from None
            if is_instance:
                yield instance

    def instance_of(self, state: State) -> Instance:
        """Return a state as an instance."""
        return Instance(state.shapes, state.values, state.operands, self.dtypes)

    def is_excluded(self, state: State, name: str = "") -> bool:
        """Tell whether a condition on a variable just bound, or on a term just typed, already fails."""
        conditions = self.ready_conditions(name, state)
        return bool(conditions) and self.any_fails(conditions, self.binding_of(state))

    def binding_of(self, state: State) -> Binding:
        """Return a state as the match that guards and attributes are evaluated under."""
        return _binding(state.shapes, state.values, self.dtypes)

    def ready_conditions(self, name: str, state: State, key: Any = None) -> Sequence[Condition]:
        """Return the conditions on a variable, or on typed terms, of which everything is bound; `key`: that of an attribute to be bound."""
        conditions = self.conditions.get(name)
        if not conditions:
            return ()
        bound_keys = {key, *state.values, *state.operands}
        return [c for c, needed in conditions if needed <= bound_keys]

    def any_fails(self, conditions: Sequence[Condition], binding: Binding) -> bool:
        """Tell whether one of some conditions fails.

        Raises:
            TooManyCandidates: more candidates were held against the guard than may be.
        """
        self.guard_budget -= 1
        if self.guard_budget < 0:
            raise TooManyCandidates
        return any(_fails(c, binding) for c in conditions)

    def typed_terms(self, ts: Sequence[Tensor], state: State, hint: Callable[[list[Shape]], Sequence[Shape] | None]) -> Iterator[State]:
        """Yield the states in which all of `ts` are typed, one after the other."""
        states: Iterator[State] = iter([state])
        for n in range(len(ts)):
            states = self.with_next_term(states, ts, n, hint)
        return states

    def with_next_term(self, states: Iterator[State], ts: Sequence[Tensor], n: int, hint: Callable[[list[Shape]], Any]) -> Iterator[State]:
        """Yield the states in which one more of `ts` is typed; `hint` narrows what follows the first."""
        for state in states:
            previous_shapes = [state.shapes[id(t)] for t in ts[:n]]
            yield from self.typed_term(ts[n], state, hint(previous_shapes) if previous_shapes else None)

    def typed_term(self, t: Tensor, state: State, candidates: Sequence[Shape] | None) -> Iterator[State]:
        """Yield the states in which a term is typed."""
        if id(t) in state.shapes:
            yield state
        elif isinstance(t, Variable):
            for shape in self.choose(self.operand_shapes(state) if candidates is None else candidates):
                successor = State({**state.shapes, id(t): shape}, state.values, {**state.operands, t.name: shape})
                if not self.is_excluded(successor, t.name):
                    yield successor
        elif isinstance(t, Apply):
            narrow = OPERANDS.get(t.op.name)
            for with_operands in self.typed_terms(t.operands, state, lambda s: narrow(s, self) if narrow else None):
                for typed_state in self.with_attributes(t, with_operands):
                    yield from self.typed_application(t, typed_state)

    def operand_shapes(self, state: State) -> Sequence[Shape]:
        """Return the shapes tried for an operand that nothing narrows."""
        return all_shapes(self.extents, self.rank)

    def attribute_values(self, t: Apply, name: str, shapes: tuple[Shape, ...]) -> Sequence[Any]:
        """Return the values tried for a free attribute of an application to operands of these shapes."""
        return candidates_for(t.op, name, shapes, self.extents, self.rank, self.windows, self.numbers)

    def with_attributes(self, t: Apply, state: State) -> Iterator[State]:
        """Yield the states in which the attributes of an application are bound."""
        states: Iterator[State] = iter([state])
        for name, key in _free_attributes(t):
            if key not in state.values:
                states = self.with_attribute(states, t, name, key)
        return states

    def with_attribute(self, states: Iterator[State], t: Apply, name: str, key: Any) -> Iterator[State]:
        """Yield the states in which one attribute is bound."""
        attribute = attribute_name(key)
        if name in WHOLE_LISTS:
            self.whole_attributes.add(attribute)
        for state in states:
            shapes = tuple(state.shapes[id(x)] for x in t.operands)
            candidates = self.attribute_values(t, name, shapes)
            conditions = self.ready_conditions(attribute, state, key)
            values = {**state.values, key: None}
            binding = _binding(state.shapes, values, self.dtypes)
            for value in self.choose(candidates):
                values[key] = value
                if not (conditions and self.any_fails(conditions, binding)):
                    yield state.with_value(key, value)

    def parts(self, key: Any, value: Any) -> list[tuple[Component, Any]]:
        """Return the components of a value of an attribute."""
        name = attribute_name(key)
        if isinstance(value, tuple) and name not in self.whole_attributes:
            return [((name, n), part) for n, part in enumerate(value)]
        return [((name, 0), value)]

    def typed_application(self, t: Apply, state: State) -> Iterator[State]:
        """Yield the state in which an application is typed, if its shape rule admits it.

        Raises:
            TooManyCandidates: more applications were typed than may be.
        """
        self.typing_budget -= 1
        if self.typing_budget < 0:
            raise TooManyCandidates
        try:
            attributes = attributes_of(t, self.binding_of(state))
        except (ShapeError, IndexError):
            return
        shapes = _typed(t.op, tuple([state.shapes[id(x)] for x in t.operands]), tuple(attributes.items()))
        if shapes is None:
            return
        successor = state.with_shape(t, shapes[t.output])
        if not self.is_excluded(successor):
            yield successor


@lru_cache(maxsize=1 << 16)
def _typed(op: Op, operands: tuple[Shape, ...], attributes: tuple[tuple[str, AttributeValue], ...]) -> tuple[Shape, ...] | None:
    """Return the shapes of an application, None where it has no meaning: most candidates have none, and many are tried again."""
    try:
        return op.shapes(operands, dict(attributes))
    except (ShapeError, IndexError):
        return None


def operands_key(operands: Mapping[str, Shape]) -> Operands:
    """Return the shapes of operands as a key."""
    return tuple(sorted(operands.items()))


def in_random_order(source: random.Random) -> Choose:
    """Return a choice of candidates in a random order, drawn lazily (Fisher-Yates)."""

    def choose(candidates: Sequence[Any]) -> Iterator[Any]:
        swaps: dict[int, int] = {}  # the candidate that has come to a place
        for last in range(len(candidates) - 1, -1, -1):
            place = int(source.random() * (last + 1))
            drawn = swaps.get(place, place)
            swaps[place] = swaps.get(last, last)
            yield candidates[drawn]

    return choose


def drawn_instances(
    rule: Rule,
    extents: range,
    rank: int,
    count: int,
    seed: int = 0,
    draws: int = DRAWS,
    guard_budget: float = math.inf,
    numbers: tuple[float, ...] = (),
) -> list[Instance]:
    """Return at most `count` different random instances, of `draws` for each, whose operands have these extents and at most `rank` axes.

    Float attributes are drawn from `numbers`, too.
    """
    source = random.Random(seed)
    instances: dict[tuple[Any, ...], Instance] = {}
    for _ in range(count * draws):
        search = Search(rule, extents, rank, in_random_order(source), CANDIDATES_PER_DRAW)
        search.guard_budget = guard_budget
        search.numbers += numbers
        with suppress(TooManyCandidates):
            for instance in itertools.islice(search.instances(), 1):
                instances[(*instance.operands.items(), *map(str, instance.attributes.items()))] = instance
        if len(instances) == count:
            break
    return list(instances.values())


def _fails(c: Condition, binding: Binding) -> bool:
    try:
        return not holds(c, binding)
    except KeyError:  # a variable is not bound yet
        return False


def attributes_of(t: Apply, binding: Binding) -> dict[str, AttributeValue]:
    """Return the attributes of an application under a match.

    Raises:
        SpecError: one uses a variable that the left side does not bind.
    """
    attributes: dict[str, AttributeValue] = {}
    for name, function in _attribute_functions(t):
        try:
            attributes[name] = function(binding)
        except KeyError as missing:
            raise SpecError("R101", f"attribute {name} of {t.op.name} uses {missing}, which the left side does not bind") from None
    return attributes


@lru_cache(maxsize=APPLICATIONS)
def _attribute_functions(t: Apply) -> tuple[tuple[str, Callable[[Binding], AttributeValue]], ...]:
    return tuple((name, _attribute_function(value)) for name, value in t.attributes.items())


def _attribute_function(value: object) -> Callable[[Binding], AttributeValue]:
    if isinstance(value, Float):
        return lambda b: b.attributes[value.name]
    if isinstance(value, Ints):
        return list_function(value)
    return term_function(value) if isinstance(value, Expr) else lambda _: value  # type: ignore[return-value]


@lru_cache(maxsize=APPLICATIONS)
def _free_attributes(t: Apply) -> tuple[tuple[str, Any], ...]:
    """Return the attributes of an application that a match binds, with the keys that it binds them under, in the operator's order."""
    keys = [(a.name, free_attribute(t.attributes[a.name])) for a in t.op.attributes]
    return tuple((name, key) for name, key in keys if key is not None)


@cache
def all_shapes(extents: Extents, rank: int) -> tuple[Shape, ...]:
    """Return every shape of at most `rank` axes with these extents, small ones first."""
    return tuple(s for r in range(rank + 1) for s in itertools.product(extents, repeat=r))


@cache
def factorings(size: int, rank: int) -> tuple[Shape, ...]:
    """Return every shape of at most `rank` axes with `size` elements; for none, those with extents 0 and 1."""
    if size == 0:
        return tuple(s for s in all_shapes(range(2), rank) if 0 in s)
    if rank == 0:
        return ((),) if size == 1 else ()
    factored = [(n, *tail) for n in range(1, size + 1) if size % n == 0 for tail in factorings(size // n, rank - 1)]
    shorter = factorings(size, rank - 1)
    return (*shorter, *(s for s in factored if len(s) == rank))


# -- candidates of operands that an operator's shape rule narrows to few; others would be refused there


def _vector_along_axis(shapes: list[Shape], _: Search) -> Sequence[Shape]:
    return sorted({(n,) for n in shapes[0]})


def _channel_vector(shapes: list[Shape], _: Search) -> Sequence[Shape]:
    return [shapes[0][1:2]] if len(shapes[0]) > 1 else []


def _filters(shapes: list[Shape], search: Search) -> Sequence[Shape]:
    x, extents = shapes[0], search.extents
    if len(x) < 3:
        return []
    return list(itertools.product(extents, [c for c in range(x[1] + 1) if c == x[1] or (c and x[1] % c == 0)], *[extents for _ in x[2:]]))


def _recurrent(gates: int) -> Callable[[list[Shape], Search], Sequence[Shape]]:
    def follow(shapes: list[Shape], search: Search) -> Sequence[Shape]:
        x, *others = shapes
        if len(x) != 3:
            return []
        if not others:
            return [(gates * n, x[2]) for n in search.extents]
        rows, hidden = others[0][0], others[0][0] // gates
        next_shapes: list[Shape] = [(rows, hidden), (2 * rows,), (x[1], hidden)]
        return [next_shapes[min(len(others), 3) - 1]]

    return follow


def _gate_sum(shapes: list[Shape], search: Search) -> Sequence[Shape]:
    x, *others = shapes
    if len(x) != 2:
        return []
    if len(others) < 2:
        return [(x[0], n) for n in search.extents] if not others else [(n, x[1]) for n in search.extents]
    rows = others[1][0]
    return [(rows, others[0][1])] if len(others) == 2 else [(rows,)]


def _weight(shapes: list[Shape], search: Search) -> Sequence[Shape]:
    return [(n, shapes[0][-1]) for n in search.extents] if shapes[0] else []


def _trailing(shapes: list[Shape], _: Search) -> Sequence[Shape]:
    return sorted({shapes[0][a:] for a in range(len(shapes[0]))})


OPERANDS: dict[str, Callable[[list[Shape], Search], Sequence[Shape]]] = {
    "bias_add": _vector_along_axis,
    "scale": _vector_along_axis,
    "batch_norm": _channel_vector,
    "conv": _filters,
    "dense": _weight,
    "gate_sum": _gate_sum,
    "layer_norm": _trailing,
    **{name: _recurrent(gates) for name, gates in GATES.items()},
}


# -- candidates of attributes


def _each(values: Sequence[int], count: int) -> list[tuple[int, ...]]:
    return list(itertools.product(values, repeat=count))


def _groups(shapes: Sequence[Shape], extents: Extents) -> Sequence[int]:
    """The channels say how many groups there are; any other number would be refused."""
    x, w = shapes
    if len(x) < 2 or len(w) < 2:
        return range(1, max(extents) + 1)
    return range(1, max(extents) + 1) if 0 in (x[1], w[1]) else [x[1] // w[1]] if x[1] % w[1] == 0 else []


def _spatial(shape: Shape) -> int:
    return max(len(shape) - 2, 0)


def _subsets(shape: Shape) -> list[tuple[int, ...]]:
    axes = range(len(shape))
    return [c for n in range(1, len(shape) + 1) for c in itertools.combinations(axes, n)]


@cache
def candidates_for(
    op: Op, name: str, shapes: tuple[Shape, ...], extents: Extents, rank: int, windows: int = WINDOW, numbers: tuple[float, ...] = ()
) -> Sequence[Any]:
    """Return the values tried for a free attribute of an operator on operands of these shapes; windows are at most that large.

    `numbers` are tried for floats beside the usual ones.

    Raises:
        SpecError: no values are known for an attribute of this name.
    """
    x = shapes[0] if shapes else ()
    table: dict[str, Callable[[], Sequence[Any]]] = {
        "perm": lambda: list(itertools.permutations(range(len(x)))),
        "axis": lambda: range(len(x)),
        "axes": lambda: _subsets(x),
        "shape": lambda: factorings(math.prod(x), rank) if op.name == "reshape" else all_shapes(extents, rank),
        "strides": lambda: _each((1, 2), _spatial(x)),
        "dilations": lambda: _each((1, 2), _spatial(x)),
        "kernel": lambda: _each(range(1, windows + 1), _spatial(x)),
        "pads": lambda: _each((0, 1), 2 * (len(x) if op.name == "pad" else _spatial(x))),
        "group": lambda: _groups(shapes, extents),
        "start": lambda: range(max(x, default=0) + 1),
        "stop": lambda: range(max(x, default=0) + 1),
        "step": lambda: (1, 2),
        **{flag: lambda: (0, 1) for flag in ("keepdims", "ceil", "count_include_pad", "linear_before_reset")},
        **{zero: lambda: (0, 3) for zero in ("zero", "x_zero", "w_zero")},
        "activation": lambda: ("tanh", "sigmoid", "relu"),
        **{f: lambda v=v: tuple(dict.fromkeys((*v, *numbers))) for f, v in FLOATS.items()},  # type: ignore[misc]
    }
    if name not in table:
        raise SpecError("R101", f"no values are known to try for the attribute {name} of {op.name}")
    return table[name]()
