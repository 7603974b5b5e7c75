"""Polynomials over loop variables and control terms: how addresses and lengths of an update depend on fields and registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from ..lang.binders import Leaf
from ..lang.expr import Expr, lift
from ..lang.printer import show

Poly = Mapping[tuple[str, ...], int]  # sorted names of a monomial → its coefficient, none of them 0
ZERO: Poly = {}


class NotPolynomial(Exception):
    """A term depends on loop variables in another way than by sums and products."""


@dataclass(frozen=True, eq=False)
class Symbols:
    """What names in polynomials stand for: loop variables, and atoms, control terms without a structure of their own.

    An atom that has loop variables below it is a word of a control memory at an index that they decide (a table), or the quotient or
    remainder of a polynomial by a term without loop variables (a quasi-affine term).
    """

    control: frozenset[Leaf]
    variables: dict[str, Expr] = field(default_factory=dict)
    atoms: dict[str, Expr] = field(default_factory=dict)
    names: dict[Expr, str] = field(default_factory=dict)

    def declare(self, variable: Expr) -> str:
        """Name a loop variable."""
        if variable not in self.names:
            self._enter(self.variables, str(variable.data[0]), variable)
        return self.names[variable]

    def atom(self, e: Expr) -> str:
        """Name a control term."""
        if e not in self.names:
            is_register = e.op == "load" and isinstance(e.data, Leaf) and not e.args
            self._enter(self.atoms, e.data.name if is_register else show(e).replace("[]", ""), e)
        return self.names[e]

    def _enter(self, table: dict[str, Expr], name: str, e: Expr) -> None:
        taken_names = self.variables.keys() | self.atoms.keys()
        unique = next(n for n in (name, *(f"{name}{k}" for k in range(2, len(taken_names) + 3))) if n not in taken_names)
        table[unique], self.names[e] = e, unique

    def term(self, name: str) -> Expr:
        """Return what a name stands for."""
        return self.variables[name] if name in self.variables else self.atoms[name]


def polynomial(e: Expr, symbols: Symbols) -> Poly:
    """Return a term as a polynomial.

    Raises:
        NotPolynomial: loop variables decide it in another way, or it depends on data.
    """
    rule = _RULES.get(e.op)
    if e.value is not None:
        return {(): int(e.value)} if e.value else ZERO
    if e in symbols.names:
        return {(symbols.names[e],): 1}
    if rule is not None:
        parts = rule(e, symbols)
        if parts is not None:
            return parts
    if e.reads - symbols.control:
        names = ", ".join(sorted(leaf.name for leaf in e.reads - symbols.control))
        raise NotPolynomial(f"depends on the data {names}")
    if e.free and not (_is_table(e) or _is_quasi_affine(e, symbols)):
        raise NotPolynomial(f"is no polynomial of loop variables: {show(e)}")
    return {(symbols.atom(e),): 1}


def _is_table(e: Expr) -> bool:
    """Tell whether a term is a word, or a bit field of one, of a memory that holds control state."""
    while e.op in ("extract", "wrap"):
        e = e.args[0]
    return e.op == "load" and isinstance(e.data, Leaf)


def _is_quasi_affine(e: Expr, symbols: Symbols) -> bool:
    if e.op not in ("div", "mod") or e.args[1].free:
        return False
    polynomial(e.args[0], symbols)
    return True


def _sum(e: Expr, symbols: Symbols) -> Poly:
    return add(*(polynomial(a, symbols) for a in e.args))


def _product(e: Expr, symbols: Symbols) -> Poly:
    return multiply(*(polynomial(a, symbols) for a in e.args))


def _difference(e: Expr, symbols: Symbols) -> Poly:
    a, b = (polynomial(a, symbols) for a in e.args)
    return add(a, scale(b, -1))


def _shifted(e: Expr, symbols: Symbols) -> Poly | None:
    n = e.args[1].value
    return None if n is None else scale(polynomial(e.args[0], symbols), 1 << int(n))


_RULES = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "neg": lambda e, symbols: scale(polynomial(e.args[0], symbols), -1),
    "shl": _shifted,
}


def add(*parts: Poly) -> Poly:
    """Return the sum of polynomials."""
    total: dict[tuple[str, ...], int] = {}
    for part in parts:
        for monomial, c in part.items():
            total[monomial] = total.get(monomial, 0) + c
    return {m: c for m, c in total.items() if c}


def scale(p: Poly, factor: int) -> Poly:
    """Return a polynomial times a number."""
    return {m: c * factor for m, c in p.items() if factor}


def multiply(a: Poly, b: Poly) -> Poly:
    """Return the product of two polynomials."""
    return add(*({tuple(sorted((*m, *n))): c * d} for m, c in a.items() for n, d in b.items()))


def term_of(p: Poly, symbols: Symbols) -> Expr:
    """Return a polynomial as a term."""
    products = (reduce(lambda x, name: x * symbols.term(name), monomial, lift(c)) for monomial, c in p.items())
    return reduce(lambda x, y: x + y, products, lift(0))


def coefficient(p: Poly, variable: str) -> Poly:
    """Return the factor of a variable: the polynomial by which it is multiplied, in monomials in which it stands once."""
    return {tuple(n for n in m if n != variable): c for m, c in p.items() if m.count(variable) == 1}


def text_of(p: Poly) -> str:
    """Return a polynomial as text."""
    parts = [_monomial(m, c) for m, c in sorted(p.items(), key=lambda entry: (-len(entry[0]), entry[0]))]
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _monomial(names: Iterable[str], c: int) -> str:
    factors = [n if n.isidentifier() else f"({n})" for n in names]
    number = [] if abs(c) == 1 and factors else [str(abs(c))]
    return ("-" if c < 0 else "") + "·".join([*number, *factors])
