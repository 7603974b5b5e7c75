"""The two sides of a rule at one instance: their shapes, their meaning as terms, and their values on data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...errors import SpecError
from ...ir.evaluate import run_op
from ...ir.program import Data
from ...lang.binders import Array, Leaf
from ...ops.op import Apply, Shape, Tensor, Variable
from ...ops.static import Binding
from .element_meaning import Elements, apply_symbolically, symbols
from .element_terms import clear_when_large
from .instance_search import Instance, attributes_of

LARGEST_DENOMINATOR = 64


def right_shape(t: Tensor, instance: Instance) -> Shape:
    """Return the shape of a right side.

    Raises:
        ShapeError: it has no meaning at this instance.
    """
    return _Shapes(instance).shape_of(t)


class _Shapes:
    def __init__(self, instance: Instance) -> None:
        self.shapes = dict(instance.shapes)
        self.binding = Binding(lambda t: self.shape_of(t), instance.values, instance.binding().dtype, lambda _: True)

    def shape_of(self, t: Tensor) -> Shape:
        """Return the shape of a pattern, left or right."""
        if id(t) not in self.shapes:
            if not isinstance(t, Apply):
                raise SpecError("R101", "a right side uses a tensor that the left side does not bind")
            operands = [self.shape_of(x) for x in t.operands]
            self.shapes[id(t)] = t.op.shapes(operands, attributes_of(t, self.binding))[t.output]
        return self.shapes[id(t)]


def binding_of(instance: Instance) -> Binding:
    """Return an instance as a match under which every pattern has its shape, right sides included; all tensors are constant."""
    return _Shapes(instance).binding


class Side:
    """Evaluates patterns at one instance: to terms over leaves, to symbolic elements, or to data."""

    def __init__(self, instance: Instance) -> None:
        self.binding = _Shapes(instance).binding
        self.terms: dict[Any, Any] = {}

    def term(self, t: Tensor, leaves: Mapping[str, Leaf]) -> Array:
        """Return the meaning of a pattern over leaves."""
        result: Array = self._build(t, leaves, lambda a, xs: a.op.meaning(*xs, **attributes_of(a, self.binding)))
        return result

    def elements(self, t: Tensor, operands: Mapping[str, Elements]) -> Elements:
        """Return the elements of a pattern over symbolic operands."""
        result: Elements = self._build(t, operands, lambda a, xs: apply_symbolically(a.op, xs, attributes_of(a, self.binding)))
        return result

    def data(self, t: Tensor, operands: Mapping[str, Data], real: Any) -> Data:
        """Return the value of a pattern on data, every operator rounded to `real`."""
        with np.errstate(all="ignore"):
            result: Data = self._build(t, operands, lambda a, xs: run_op(a.op, xs, attributes_of(a, self.binding), real))
        return result

    def _build(self, t: Tensor, operands: Mapping[str, Any], make: Any) -> Any:
        if isinstance(t, Variable):
            return operands[t.name]
        if not isinstance(t, Apply):
            raise SpecError("R101", f"a pattern of kind {type(t).__name__} has no meaning")
        key = (t.op.name, id(t.attributes), tuple(map(id, t.operands)))
        if key not in self.terms:
            outputs = make(t, [self._build(x, operands, make) for x in t.operands])
            self.terms[key] = outputs if isinstance(outputs, tuple | list) else (outputs,)
        return self.terms[key][t.output]


def symbolic_elements(pairs: Sequence[tuple[Tensor, Tensor]], instance: Instance, *, real: bool) -> list[tuple[Any, Any]]:
    """Return the elements of both sides as pairs of nodes, in row-major order.

    Raises:
        NoSymbolicMeaning: an operator has no symbolic meaning.
    """
    clear_when_large()
    side = Side(instance)
    operands = {name: symbols(name, shape, real=real) for name, shape in instance.operands.items()}
    sides = [(side.elements(left, operands).data, side.elements(right, operands).data) for left, right in pairs]
    return [pair for a, b in sides for pair in zip(a.flat, b.flat, strict=True)]


def leaves_of(instance: Instance, *, real: bool) -> dict[str, Leaf]:
    """Return one leaf for each operand."""
    return {name: Leaf(tuple(shape), (None, None), real, name) for name, shape in instance.operands.items()}


def same_values(left: Data, right: Data, *, exact: bool) -> Data:
    """Return where two results agree: bit for bit, or up to rounding; not-a-number agrees with itself."""
    if exact:
        return np.asarray((left == right) & (np.signbit(left) == np.signbit(right)) | (np.isnan(left) & np.isnan(right)))
    return np.asarray(np.isclose(left, right, rtol=1e-9, atol=1e-9, equal_nan=True))


def number_text(value: Any) -> str:
    """Return a number as people write it: a short fraction where it is one, else six digits."""
    number = float(value)
    if not math.isfinite(number) or (number == 0 and math.copysign(1, number) < 0):
        return f"{number:g}"
    fraction = Fraction(number).limit_denominator(LARGEST_DENOMINATOR)
    return str(fraction) if float(fraction) == number else f"{number:.6g}"


def array_text(data: Data) -> str:
    """Return an array as text: nested lists of short numbers."""
    if data.ndim == 0:
        return number_text(data[()])
    return "[" + ", ".join(array_text(part) for part in data) + "]"


def operands_from(instance: Instance, draw: Any) -> dict[str, Data]:
    """Return float64 data for each operand; `draw` gives an array of a shape."""
    return {name: np.asarray(draw(shape), np.float64).reshape(shape) for name, shape in instance.operands.items()}


def side_values(
    pairs: Sequence[tuple[Tensor, Tensor]], instance: Instance, operands: Mapping[str, Data], real: Any
) -> list[tuple[Data, Data]]:
    """Return the values of both sides of every equation, every operation rounded to `real`; none where an integer is to hold no number."""
    side = Side(instance)
    cast_operands = {name: x.astype(real) for name, x in operands.items()}
    try:
        return [(side.data(left, cast_operands, real), side.data(right, cast_operands, real)) for left, right in pairs]
    except (ArithmeticError, ValueError):  # an attribute divides by 0, or an integer is to hold no number
        return []
