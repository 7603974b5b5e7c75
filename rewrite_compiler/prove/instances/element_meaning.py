"""Symbolic evaluation of operators: all elements of an array at once, indices as numbers, data as symbols.

The meaning of one application of an operator is evaluated once and kept as a template: a gather table where it only moves
elements, nodes over its operands' elements where it computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.program import Data
from ...lang.binders import Array, Comprehension, Fold, FoldResult, Leaf, static_shape
from ...lang.expr import Expr, lift
from ...ops.op import AttributeValue, Op
from . import element_terms as nodes
from .element_terms import Node

MAX_TEMPLATES = 20_000  # templates


class NoSymbolicMeaning(Exception):
    """A term without a symbolic meaning: it reads tables, machine words, or places that depend on data."""


@dataclass(frozen=True)
class Elements:
    """The elements of a tensor as an object array of nodes, and whether they are real numbers."""

    data: Data
    real: bool


def symbols(name: str, shape: Sequence[int], *, real: bool = True) -> Elements:
    """Return a tensor of fresh symbols, numbered in row-major order."""
    elements = np.empty(math.prod(shape), object)
    elements[:] = [nodes.leaf(name, n, real=real) for n in range(len(elements))]
    return Elements(elements.reshape(tuple(shape)), real)


def apply_symbolically(operator: Op, operands: Sequence[Elements], attributes: Mapping[str, AttributeValue]) -> tuple[Elements, ...]:
    """Return the outputs of an operator on symbolic operands.

    Raises:
        NoSymbolicMeaning: its meaning is none over symbols.
    """
    key = (operator.name, tuple((x.data.shape, x.real) for x in operands), tuple(attributes.items()))
    templates = _templates.get(key)
    if templates is None or templates[0].generation != nodes.generation():
        if len(_templates) > MAX_TEMPLATES:
            _templates.clear()
        templates = _templates[key] = _template(operator, operands, attributes)
    flat = np.concatenate([x.data.reshape(-1) for x in operands]) if operands else np.empty(0, object)
    substitution = dict[Node, Node](zip(templates[0].elements, flat, strict=True))
    return tuple(t.instantiated(flat, substitution) for t in templates)


@dataclass(frozen=True)
class _Template:
    """One output over the elements of all operands, one after the other; `places` where it only moves them."""

    data: Data
    real: bool
    elements: tuple[Node, ...]
    generation: int
    places: Data | None

    def instantiated(self, flat: Data, substitution: dict[Node, Node]) -> Elements:
        """Return the output for operands whose elements are `flat`, one operand after the other."""
        if self.places is not None:
            return Elements(flat[self.places.reshape(-1)].reshape(self.places.shape), self.real)
        elements = np.empty(self.data.size, object)
        elements[:] = [nodes.substitute(x, substitution) for x in self.data.flat]
        return Elements(elements.reshape(self.data.shape), self.real)


_templates: dict[Any, tuple[_Template, ...]] = {}


def _template(operator: Op, operands: Sequence[Elements], attributes: Mapping[str, AttributeValue]) -> tuple[_Template, ...]:
    shapes = operator.shapes([tuple(x.data.shape) for x in operands], attributes)
    if operands and all(0 in shape for shape in shapes):  # nothing to compute, and indices of empty tensors have no place to point at
        sources_of_nothing = tuple(x for operand in operands for x in operand.data.flat)
        return tuple(_Template(np.empty(shape, object), operands[0].real, sources_of_nothing, nodes.generation(), None) for shape in shapes)
    leaves = [Leaf(tuple(x.data.shape), (None, None), x.real, f"x{n}") for n, x in enumerate(operands)]
    leaf_data = {
        leaf: symbols(f"operand {n}", x.data.shape, real=x.real).data for n, (leaf, x) in enumerate(zip(leaves, operands, strict=True))
    }
    elements = tuple(x for data in leaf_data.values() for x in data.flat)
    index_of = {x: n for n, x in enumerate(elements)}
    meaning = operator.meaning(*leaves, **attributes)
    templates = []
    for a in meaning if isinstance(meaning, tuple | list) else (meaning,):
        data = Reading(leaf_data).array(a)
        sources = [index_of.get(x, -1) for x in data.flat]
        places = np.array(sources, np.intp).reshape(data.shape) if -1 not in sources else None
        templates.append(_Template(data, a.real, elements, nodes.generation(), places))
    return tuple(templates)


class _Points:
    """The points at which a term is evaluated: the value of each bound variable there, and a memo of terms."""

    def __init__(self, bindings: Mapping[Expr, Data], count: int) -> None:
        self.bindings = dict(bindings)
        self.count = count
        self.values: dict[Expr, Any] = {}


class Reading:
    """Evaluates array terms to object arrays of nodes; folds are unrolled."""

    def __init__(self, leaves: Mapping[Leaf, Data]) -> None:
        self.arrays = dict[Array, Data](leaves.items())
        self.folds: dict[Fold, tuple[list[Data], list[Data]]] = {}
        self.steps: dict[Expr, int] = {}  # the variables of the folds that are running

    def array(self, a: Array) -> Data:
        """Return the elements of an array whose free variables are those of running folds.

        Raises:
            NoSymbolicMeaning: it is neither a comprehension nor the result of a fold, or a term in it has no symbolic meaning.
        """
        elements = self.arrays.get(a)
        if elements is None:
            elements = self._fold_result(a) if isinstance(a, FoldResult) else self._comprehension(a)
            if not a.free:
                self.arrays[a] = elements
        return elements

    def _comprehension(self, a: Array) -> Data:
        if not isinstance(a, Comprehension):
            raise NoSymbolicMeaning
        shape = static_shape(a)
        grid = np.indices(shape).reshape(len(shape), math.prod(shape))
        values = self.value(a.body, _Points(dict(zip(a.variables, grid, strict=True)), math.prod(shape)))
        return _spread(_as_nodes(values), math.prod(shape)).reshape(shape)

    def _fold_result(self, a: FoldResult) -> Data:
        last, history = self.folds.get(a.fold) or self._fold(a.fold)
        if not a.fold.free:
            self.folds[a.fold] = last, history
        return history[a.component] if a.history else last[a.component]

    def _fold(self, f: Fold) -> tuple[list[Data], list[Data]]:
        current, history = [self.array(first) for first in f.initial], list[list[Data]]()
        for k in range(self._extent(f.extent, _Points({}, 1))):
            self.steps[f.variable] = k
            self.arrays.update(zip(f.accumulators, current, strict=True))
            current = [self.array(body) for body in f.bodies]
            history.append(current)
        self.steps.pop(f.variable, None)
        return current, [np.stack([step[n] for step in history] or [x])[: len(history)] for n, x in enumerate(current)]

    def value(self, e: Expr, at: _Points) -> Any:
        """Return the value of a term at some points: integers where it reads no data, else nodes.

        Raises:
            NoSymbolicMeaning: it has no symbolic meaning.
        """
        if e.op == "const":
            return nodes.constant(e.data) if e.real else int(e.data)
        if e.op == "var":
            return self.steps[e] if e in self.steps else at.bindings[e]
        result = at.values.get(e)
        if result is None:
            result = at.values[e] = self._value(e, at)
        return result

    def _value(self, e: Expr, at: _Points) -> Any:
        if e.op == "load":
            return self._load(e, at)
        if e.op == "reduce":
            return self._reduce(e, at)
        operands = [self.value(a, at) for a in e.args]
        if not e.real and not any(map(_is_symbolic, operands)):
            return _control(e.op, operands)
        if e.op == "select" and not _is_symbolic(operands[0]):
            return _selection(operands[0], *map(_as_nodes, operands[1:]))
        function = _function(e)
        return function(*map(_as_nodes, operands))

    def _load(self, e: Expr, at: _Points) -> Any:
        index = [self.value(i, at) for i in e.args]
        if any(map(_is_symbolic, index)):
            raise NoSymbolicMeaning
        if not e.data.free <= self.steps.keys():
            return self._element_at(e.data, index, at)
        data = self.array(e.data)
        if 0 in data.shape:  # a branch that is never taken
            return nodes.constant(0)
        clamped_index = tuple(np.minimum(np.maximum(i, 0), n - 1) for i, n in zip(index, data.shape, strict=True))
        return data[clamped_index]

    def _element_at(self, a: Array, index: Sequence[Any], at: _Points) -> Any:
        if not isinstance(a, Comprehension):
            raise NoSymbolicMeaning
        places = {v: np.broadcast_to(np.asarray(i), at.count) for v, i in zip(a.variables, index, strict=True)}
        return self.value(a.body, _Points({**at.bindings, **places}, at.count))

    def _reduce(self, e: Expr, at: _Points) -> Any:
        monoid, variables = e.data
        extents = [self._extent(n, at) for n in e.args[1:]]
        iterations = math.prod(extents)
        if iterations == 0:
            if monoid != "sum":
                raise NoSymbolicMeaning
            return nodes.constant(0) if e.real or e.reads else 0
        grid = np.indices(extents).reshape(len(extents), iterations)
        bindings = {v: np.repeat(np.broadcast_to(np.asarray(i), at.count), iterations) for v, i in at.bindings.items()}
        bindings.update((v, np.tile(i, at.count)) for v, i in zip(variables, grid, strict=True))
        body = self.value(e.args[0], _Points(bindings, at.count * iterations))
        if not _is_symbolic(body) and not e.real:
            table = np.broadcast_to(np.asarray(body), at.count * iterations).reshape(at.count, iterations)
            return INTEGER_REDUCTIONS[monoid](table)
        return _reduced_rows(REDUCTIONS[monoid], _spread(_as_nodes(body), at.count * iterations).reshape(at.count, iterations))

    def _extent(self, e: Expr, at: _Points) -> int:
        values = np.unique(np.asarray(self.value(lift(e), at)))
        if values.dtype == object or len(values) != 1:
            raise NoSymbolicMeaning
        return int(values[0])


def _reduced_rows(function: Callable[[Sequence[Node]], Node], table: Data) -> Data:
    results = np.empty(len(table), object)
    results[:] = [function(row) for row in table.tolist()]
    return results


def _is_symbolic(x: Any) -> bool:
    return isinstance(x, Node) or (isinstance(x, np.ndarray) and x.dtype == object)


_numbers = np.frompyfunc(lambda x: nodes.constant(int(x)), 1, 1)


def _as_nodes(x: Any) -> Any:
    return x if _is_symbolic(x) else _numbers(x)


def _spread(x: Any, count: int) -> Data:
    if isinstance(x, np.ndarray):
        return np.broadcast_to(x, count)
    values = np.empty(count, object)
    values[:] = [x] * count
    return values


def _selection(condition: Any, a: Any, b: Any) -> Any:
    if not isinstance(condition, np.ndarray):
        return a if condition else b
    return np.where(condition != 0, _spread(a, len(condition)), _spread(b, len(condition)))


def _control(op: str, operands: Sequence[Any]) -> Any:
    function = INTEGER_OPERATORS.get(op)
    if function is None:
        raise NoSymbolicMeaning
    return function(*operands)


def _divisor(y: Any) -> Any:
    """Return y, and something else where it is 0 in a branch that is not taken."""
    return np.where(np.asarray(y) == 0, 1, y)


INTEGER_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "neg": lambda x: -x,
    "not": lambda x: 1 - x,
    "div": lambda x, y: x // _divisor(y),
    "mod": lambda x, y: x % _divisor(y),
    "min": np.minimum,
    "max": np.maximum,
    "bitand": lambda x, y: x & y,
    "bitor": lambda x, y: x | y,
    "select": lambda c, x, y: np.where(np.asarray(c) != 0, x, y),
    "eq": lambda x, y: np.asarray(x == y).astype(int),
    "ne": lambda x, y: np.asarray(x != y).astype(int),
    "lt": lambda x, y: np.asarray(x < y).astype(int),
    "le": lambda x, y: np.asarray(x <= y).astype(int),
}
INTEGER_REDUCTIONS: dict[str, Callable[[Data], Any]] = {
    "sum": lambda table: table.sum(axis=1),
    "max": lambda table: table.max(axis=1),
    "min": lambda table: table.min(axis=1),
}
REDUCTIONS = {"sum": nodes.total, "max": nodes.extremum("max"), "min": nodes.extremum("min")}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{op: np.frompyfunc(f, 2, 1) for op, f in nodes.BINARY.items()},
    **{op: np.frompyfunc(f, 1, 1) for op, f in nodes.UNARY.items()},
    "select": np.frompyfunc(nodes.select, 3, 1),
}


def _function(e: Expr) -> Callable[..., Any]:
    if e.op == "call":
        ufunc: Callable[..., Any] = np.frompyfunc(nodes.call(e.data), len(e.args), 1)
        return ufunc
    function = FUNCTIONS.get(e.op)
    if function is None:
        raise NoSymbolicMeaning
    return function
