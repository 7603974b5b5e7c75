"""The problem of an operation, read from its meaning: binders are dimensions, the reads' indices their projections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ...lang.binders import Array, Comprehension, Leaf
from ...lang.expr import Expr
from ...ops.op import OPS, complete_attributes
from .problem import Problem, check_size

# what people call the dimensions of the commonest operations, in the order of binders: the result's axes, then the sum's
NAMES: Mapping[tuple[str, int], tuple[str, ...]] = {
    ("conv", 7): ("n", "k", "p", "q", "c", "r", "s"),
    ("conv", 8): ("n", "g", "k", "p", "q", "c", "r", "s"),
    ("dense", 3): ("m", "n", "k"),
    ("matmul", 3): ("m", "n", "k"),
    ("matmul", 4): ("b", "m", "n", "k"),
}
INTEGER = ((-128, 127), False)  # interval and sort of the operands that stand for any
Affine = Mapping[int, int]  # coefficient by binder


def problem_of(operation: str, shapes: Sequence[tuple[int, ...]], **attributes: Any) -> Problem:
    """Return the problem of an operation at operand shapes; zeros around a convolution's input count as elements of it.

    Raises:
        InputError: the meaning is no sum of products of operands at affine places (F233).
    """
    if operation not in OPS:
        raise InputError("F233", f'There is no operation "{operation}"; a problem can be given as JSON')
    op = OPS[operation]
    full = complete_attributes(op, attributes)
    op.shapes(shapes, full)  # refuses what the operation is not defined on
    leaves = [Leaf(shape, *INTEGER, name) for shape, name in zip(shapes, op.operands, strict=False)]
    meaning = op.meaning(*leaves, **full)
    if not isinstance(meaning, Comprehension):
        raise InputError("F233", f"{operation} has no problem: its meaning is not one array of sums")
    reader = _Reader(operation)
    problem = reader.problem(meaning)
    check_size(problem)
    return problem


@dataclass
class _Reader:
    """Binders by number with their extents, and the places that operands are read at."""

    operation: str
    extents: list[int] = field(default_factory=list)
    is_summed: list[bool] = field(default_factory=list)
    binders: dict[Expr, Affine] = field(default_factory=dict)
    reads: dict[str, list[Affine]] = field(default_factory=dict)
    quotients: dict[tuple[Expr, int], int] = field(default_factory=dict)

    def problem(self, meaning: Comprehension) -> Problem:
        self._split_quotients(meaning)
        for variable, extent in zip(meaning.variables, meaning.shape, strict=True):
            self._bind(variable, extent, False)
        output = [self.binders[v] for v in meaning.variables]
        body = meaning.body
        if body.op == "reduce" and body.data[0] == "sum":
            for variable, extent in zip(body.data[1], body.args[1:], strict=True):
                self._bind(variable, extent, True)
            body = body.args[0]
        self._product(body)
        names = self._names()
        spaces = {name: self._axes(places, names) for name, places in self.reads.items()}
        sizes = {names[k]: n for k, n in enumerate(self.extents)}
        used = {d for axes in spaces.values() for axis in axes for d in axis}
        if len(spaces) < 2:  # noqa: PLR2004 -- a product has two factors
            raise InputError("F233", f"{self.operation} has no problem: it multiplies no two operands")
        y = "y" if "y" not in spaces else "result"
        dims = {d: n for d, n in sizes.items() if d in used or d in {e for axis in self._axes(output, names) for e in axis}}
        is_depthwise = self.operation == "conv" and "g" in sizes and sizes.get("c") == 1
        return Problem(dims, {**spaces, y: self._axes(output, names)}, y, tag="depthwise" if is_depthwise else self.operation)

    def _names(self) -> list[str]:
        table = NAMES.get((self.operation, len(self.extents)))
        if table is not None:
            return list(table)
        return [f"{'r' if is_summed else 'i'}{k}" for k, is_summed in enumerate(self.is_summed)]

    def _axes(self, places: Sequence[Affine], names: Sequence[str]) -> tuple[dict[str, int], ...]:
        return tuple({names[k]: c for k, c in part.items()} for place in places for part in self._separate(place))

    def _separate(self, place: Affine) -> Sequence[Affine]:
        """Split an axis whose positions are digits of a number: no two points of its dimensions meet."""
        turning = {k: c for k, c in place.items() if c and self.extents[k] > 1}
        reach, parts = 0, []
        for k, c in sorted(turning.items(), key=lambda item: item[1]):
            if c <= reach:
                return [turning]
            parts.append({k: 1})
            reach += c * (self.extents[k] - 1)
        return parts[::-1] or [{k: 1 for k, c in place.items() if c}]

    def _split_quotients(self, meaning: Comprehension) -> None:
        """Find the binders that are divided: they become two, the quotient and the rest."""
        work, visited = [meaning.body], set[int]()
        while work:
            e = work.pop()
            if id(e) in visited:
                continue
            visited.add(id(e))
            if e.op == "div" and e.args[0].op == "var" and e.args[1].op == "const":
                self.quotients[e.args[0], int(e.args[1].data)] = -1
            work.extend(e.args)

    def _bind(self, variable: Expr, extent: Any, summed: bool) -> None:
        if not isinstance(extent, int) and extent.op != "const":
            raise self._error(extent, "has no fixed extent")
        n = extent if isinstance(extent, int) else int(extent.data)
        divisor = next((d for v, d in self.quotients if v is variable), None)
        if divisor is None or n % divisor:
            self.binders[variable] = {self._dimension(n, summed): 1}
            return
        quotient, rest = self._dimension(n // divisor, summed), self._dimension(divisor, summed)
        self.binders[variable] = {quotient: divisor, rest: 1}
        self.quotients[variable, divisor] = quotient

    def _dimension(self, n: int, summed: bool) -> int:
        self.extents.append(n)
        self.is_summed.append(summed)
        return len(self.extents) - 1

    def _product(self, e: Expr) -> None:
        if e.op == "mul":
            for factor in e.args:
                self._product(factor)
        elif e.op == "load":
            self._load(e.data, [self._affine(i) for i in e.args])
        elif e.op != "const":
            raise self._error(e, "is no product of operands")

    def _load(self, source: Array, places: list[Affine]) -> None:
        """Enter a read; of a comprehension around an operand, the read inside of it."""
        if isinstance(source, Leaf):
            if source.name in self.reads:
                raise self._error(None, f"reads {source.name} twice")
            self.reads[source.name] = places
            return
        if not isinstance(source, Comprehension):
            raise self._error(None, "reads the result of a loop")
        body = source.body.args[1] if source.body.op == "select" else source.body
        if body.op != "load":
            raise self._error(body, "is no read of an operand")
        outside = dict(self.binders)
        self.binders.update(zip(source.variables, places, strict=True))
        self._load(body.data, [self._affine(i) for i in body.args])
        self.binders = outside

    def _affine(self, e: Expr) -> Affine:
        """Return the coefficients of an index; constants only move the whole tensor."""
        if e in self.binders:
            return self.binders[e]
        if e.op == "const":
            return {}
        if e.op == "div" and e.args[1].op == "const" and self.quotients.get((e.args[0], int(e.args[1].data)), -1) >= 0:
            return {self.quotients[e.args[0], int(e.args[1].data)]: 1}
        if e.op in ("add", "sub"):
            a, b = (self._affine(x) for x in e.args)
            sign = 1 if e.op == "add" else -1
            return {k: a.get(k, 0) + sign * b.get(k, 0) for k in {**a, **b}}
        if e.op == "mul" and any(x.op == "const" for x in e.args):
            term, factor = e.args if e.args[1].op == "const" else e.args[::-1]
            return {k: c * int(factor.data) for k, c in self._affine(term).items()}
        raise self._error(e, "is not affine")

    def _error(self, e: Expr | None, reason: str) -> InputError:
        subject = f"{e!r} " if e is not None else "it "
        return InputError("F233", f"{self.operation} has no problem: {subject}{reason}")
