"""Element terms: scalar terms over symbolic elements, hash-consed, compared by structure and by polynomial normal form.

Two nodes that are the same object are the same term. What is compared never depends on the values of functions: `exp`,
quotients and choices are atoms, equal when what they are applied to is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...lang.expr import COMPARISONS, INTEGER

MAX_NODES = 300_000  # nodes after which all are forgotten
MAX_MONOMIALS = 20_000  # monomials beyond which a normal form is given up
LARGEST_EXACT = float(np.finfo(np.float16).max)
DIVISIONS = frozenset({"rdiv", "div", "mod", "tdiv", "tmod"})
ROUNDED = frozenset({"add", "sub", "mul", "rdiv"})
RING = frozenset({"add", "sum", "sub", "mul", "neg", "const", "leaf"})

Atom = tuple[Any, ...]
Monomial = tuple[int, ...]  # the numbers of its atoms in order, repeated by degree
Polynomial = dict[Monomial, Fraction | int]


class Node:
    """One scalar term: an operator on nodes, a number, or a symbolic element."""

    __slots__ = ("args", "data", "op", "ordered", "polynomial", "without_zeros")

    def __init__(self, op: str, data: Any, args: tuple[Node, ...]) -> None:
        self.op = op
        self.data = data
        self.args = args
        self.ordered: Node | None = None
        self.without_zeros: Node | None = None
        self.polynomial: Polynomial | None = None

    @property
    def number(self) -> int | Fraction | None:
        """The value of a constant, None of any other node."""
        return self.data if self.op == "const" else None


class NormalFormTooLarge(Exception):
    """A normal form has more monomials than are kept."""


_nodes: dict[tuple[Any, ...], Node] = {}
_serial: dict[Any, int] = {}  # numbers of nodes in an order of operands, and of atoms


class _Generation:
    """Counts how often all nodes were forgotten."""

    number = 0


def clear_when_large() -> None:
    """Clear the table of nodes when it is large; nodes made before are not compared with later ones."""
    if len(_nodes) > MAX_NODES:
        _nodes.clear()
        _serial.clear()
        _Generation.number += 1


def generation() -> int:
    """Return a number that changes when nodes are forgotten."""
    return _Generation.number


def node(op: str, args: Sequence[Node], data: Any = None) -> Node:
    """Return the one node of an operator on nodes with its data (hash-consing)."""
    key = (op, data, *args)
    interned = _nodes.get(key)
    if interned is None:
        interned = _nodes[key] = Node(op, data, tuple(args))
    return interned


def leaf(name: str, place: int, *, real: bool = True) -> Node:
    """Return the symbolic element at a row-major place of an operand."""
    return node("leaf", (), (name, place, real))


def constant(x: int | Fraction) -> Node:
    """Return a number."""
    return node("const", (), x.numerator if x.denominator == 1 else x)


def is_exact(x: int | Fraction) -> bool:
    """Tell whether every float type holds a number: what is computed of such numbers is rounded once, as the result is."""
    return -LARGEST_EXACT <= x <= LARGEST_EXACT and float(np.float16(float(x))) == x


def _is_computed(op: str, x: int | Fraction, y: int | Fraction) -> bool:
    """Tell whether an operator on two numbers becomes a number: not where it has none, nor where floating point rounds on the way."""
    if op in DIVISIONS and y == 0:
        return False
    return op not in ROUNDED or (is_exact(x) and is_exact(y))


def binary(op: str) -> Callable[[Node, Node], Node]:
    """Return the function that applies an operator of two operands."""

    def apply(a: Node, b: Node) -> Node:
        x, y = a.number, b.number
        if x is not None and y is not None and _is_computed(op, x, y):
            return constant(Fraction(x) / y if op == "rdiv" else INTEGER[op](x, y))  # type: ignore[arg-type]
        if op == "mul" and (x == 0 or y == 0):
            return constant(0)
        return node(op, (a, b))

    return apply


def unary(op: str, data: Any = None) -> Callable[[Node], Node]:
    """Return the function that applies an operator of one operand; only signs and truth values of numbers are computed."""

    def apply(a: Node) -> Node:
        if a.number is None or op not in ("neg", "not", "real"):
            return node(op, (a,), data)
        return {"neg": constant(-a.number), "not": constant(1 - a.number), "real": a}[op]

    return apply


def call(name: str) -> Callable[..., Node]:
    """Return the function that applies a named real function, which stays uninterpreted."""
    return lambda *operands: node("call", operands, name)


def select(condition: Node, a: Node, b: Node) -> Node:
    """Return the node of a choice."""
    if condition.number is not None:
        return a if condition.number else b
    return node("select", (condition, a, b))


def total(values: Sequence[Node]) -> Node:
    """Return the sum of nodes in their order; numbers are added up where that rounds once only, a sum of 0 is left out."""
    numbers = [x.data for x in values if x.op == "const" and x.data]
    constant_sum = sum(numbers)
    terms = [x for x in values if x.op != "const"]
    if len(numbers) > 1 and not (all(map(is_exact, (*numbers, constant_sum))) and len({n > 0 for n in numbers}) == 1):
        return node("sum", [x for x in values if x.number != 0])
    if not terms:
        return constant(constant_sum)
    partial_sum = terms[0] if len(terms) == 1 else node("sum", terms)
    return partial_sum if constant_sum == 0 else node("add", (partial_sum, constant(constant_sum)))


def extremum(op: str) -> Callable[[Sequence[Node]], Node]:
    """Return the function that gives the largest or smallest of some nodes, compared from the first on."""
    pair = binary(op)

    def apply(values: Sequence[Node]) -> Node:
        result = values[0]
        for x in values[1:]:
            result = pair(result, x)
        return result

    return apply


def substitute(root: Node, substitution: dict[Node, Node]) -> Node:
    """Return a node with other nodes substituted for its leaves; the substitution also memoises the results."""
    result = substitution.get(root)
    if result is None:
        if root.op == "const":
            return root
        result = substitution[root] = _with_args(root, [substitute(x, substitution) for x in root.args])
    return result


def _with_args(original: Node, args: list[Node]) -> Node:
    if original.op == "select":
        return select(*args)
    if original.op == "sum":
        return total(args)
    if original.op in BINARY:
        return BINARY[original.op](*args)
    if original.op in UNARY:
        return UNARY[original.op](*args)
    return node(original.op, args, original.data)


BINARY: dict[str, Callable[[Node, Node], Node]] = {
    op: binary(op) for op in ("add", "sub", "mul", "rdiv", "div", "mod", "tdiv", "tmod", "min", "max", *COMPARISONS)
}
UNARY: dict[str, Callable[[Node], Node]] = {op: unary(op) for op in ("neg", "not", "real", "floor", "rint")}


# -- structure


def identical(a: Node, b: Node) -> bool:
    """Tell whether two nodes are the same term."""
    return a is b


def same_operations(a: Node, b: Node, *, drop_zeros: bool = False) -> bool:
    """Tell whether two nodes are the same operations in the same order: operands of one + or · may be exchanged.

    With `drop_zeros` an added 0 counts as no operation.
    """
    return _canonical(a, drop_zeros) is _canonical(b, drop_zeros)


def _canonical(x: Node, drop_zeros: bool) -> Node:
    canonical = x.without_zeros if drop_zeros else x.ordered
    if canonical is None:
        canonical = _canonical_order(x, [_canonical(a, drop_zeros) for a in x.args], drop_zeros)
        if drop_zeros:
            x.without_zeros = canonical
        else:
            x.ordered = canonical
    return canonical


def _canonical_order(x: Node, args: list[Node], drop_zeros: bool) -> Node:
    op = "add" if x.op == "sum" else x.op
    if op == "add" and drop_zeros:
        args = [a for a in args if a.number != 0] or args[:1]
    if op in ("add", "mul") and len(args) == 2:
        args.sort(key=_number)
    return args[0] if op == "add" and len(args) == 1 else x if not args else node(op, args, x.data)


def _number(key: Any) -> int:
    return _serial.setdefault(key, len(_serial))


def is_ring_term(root: Node) -> bool:
    """Tell whether a node is built from elements and numbers by +, − and · alone: a polynomial over any ring."""
    pending, visited = [root], set[Node]()
    while pending:
        x = pending.pop()
        if x in visited:
            continue
        visited.add(x)
        if x.op not in RING:
            return False
        pending.extend(x.args)
    return True


# -- normal forms


def normal_forms_agree(a: Node, b: Node) -> bool:
    """Tell whether two nodes are one polynomial in elements, functions, quotients, choices and extrema; False where that is too large."""
    try:
        return polynomial(a) == polynomial(b)
    except (NormalFormTooLarge, RecursionError):
        return False


def polynomial(x: Node) -> Polynomial:
    """Return the polynomial normal form of a node: coefficients by monomial.

    Raises:
        NormalFormTooLarge: it has more monomials than are kept.
    """
    if x.polynomial is None:
        x.polynomial = FORMS.get(x.op, _application)(x)
        if len(x.polynomial) > MAX_MONOMIALS:
            raise NormalFormTooLarge
    return x.polynomial


def _constant_form(x: Node) -> Polynomial:
    return {(): x.data} if x.data else {}


def _atom(kind: Atom) -> Polynomial:
    return {(_number(kind),): 1}


def _sum(parts: Iterable[tuple[Polynomial, int | Fraction]]) -> Polynomial:
    result: Polynomial = {}
    for part, factor in parts:
        for monomial, c in part.items():
            coefficient = result.get(monomial, 0) + c * factor
            if coefficient:
                result[monomial] = coefficient
            else:
                del result[monomial]
    return result


def _product(x: Node) -> Polynomial:
    a, b = (polynomial(p) for p in x.args)
    if len(a) * len(b) > MAX_MONOMIALS:
        raise NormalFormTooLarge
    result: Polynomial = {}
    for m, c in a.items():
        for n, d in b.items():
            key = tuple(sorted(m + n))
            result[key] = result.get(key, 0) + c * d
    return {m: c for m, c in result.items() if c}


def _quotient(x: Node) -> Polynomial:
    a, b = (polynomial(p) for p in x.args)
    if b.keys() == {()}:
        return _sum([(a, 1 / Fraction(b[()]))])
    return _atom(("rdiv", _frozen(a), _frozen(b)))


def _extreme(x: Node) -> Polynomial:
    """An extremum is the set of its operands: it does not matter in which order or how often they are compared."""
    operands, pending = set[Any](), [*x.args]
    while pending:
        a = pending.pop()
        if a.op == x.op:
            pending.extend(a.args)
        else:
            operands.add(_frozen(polynomial(a)))
    return polynomial(x.args[0]) if len(operands) == 1 else _atom((x.op, frozenset(operands)))


def _comparison(x: Node) -> Polynomial:
    return _atom((x.op, _frozen(_sum([(polynomial(x.args[0]), 1), (polynomial(x.args[1]), -1)]))))


def _application(x: Node) -> Polynomial:
    return _atom((x.op, x.data, *(_frozen(polynomial(a)) for a in x.args)))


def _frozen(p: Polynomial) -> frozenset[Any]:
    return frozenset(p.items())


Form = Callable[[Node], Polynomial]
FORMS: dict[str, Form] = {
    "const": _constant_form,
    **dict.fromkeys(("add", "sum"), lambda x: _sum((polynomial(a), 1) for a in x.args)),
    "sub": lambda x: _sum([(polynomial(x.args[0]), 1), (polynomial(x.args[1]), -1)]),
    "neg": lambda x: _sum([(polynomial(x.args[0]), -1)]),
    "mul": _product,
    "rdiv": _quotient,
    "max": _extreme,
    "min": _extreme,
    **dict.fromkeys(COMPARISONS, _comparison),
}
