"""How each operator carries samples from its operands to its results: one rule an operator.

A rule gets the places of the operands (None: the same for all samples) and either says where the samples are in the
results, which attributes change, and which operands must be repeated for each sample — or refuses with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from ..ops.elementwise import broadcast
from ..ops.op import ELEMENTWISE, AttributeValue, Op, Shape
from .placement import Place, places_with_lead


class Refused(Exception):
    """Samples cannot pass here; the message completes "… cannot be batched: "."""


class Contradiction(Refused):
    """The node is not what its operator says; no other arrangement of the samples helps."""


@dataclass(frozen=True)
class Case:
    """One node: its operand shapes for a single sample, the places of samples, its attributes, the result shapes."""

    op: str
    shapes: Sequence[Shape]
    places: Sequence[Place | None]
    attributes: Mapping[str, Any]
    results: Sequence[Shape]
    samples: int

    def check_only(self, *allowed: int) -> None:
        """Check that only the allowed operands carry samples.

        Raises:
            Refused: another operand does.
        """
        for n, place in enumerate(self.places):
            if place is not None and n not in allowed:
                raise Refused(f"its operand {n} differs between samples")

    def first_place(self) -> Place:
        """Return the place of the samples in the first operand, the only one that may carry any.

        Raises:
            Refused: another operand carries samples.
        """
        self.check_only(0)
        place = self.places[0]
        assert place is not None
        return place


@dataclass(frozen=True)
class SamplePassage:
    """Where the samples are in each result; attributes that change; operands to repeat for each sample."""

    results: tuple[Place, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    repeated: Mapping[int, Place] = field(default_factory=dict)


Rule = Callable[[Case], SamplePassage]


def _runs_along(c: Case, axis: int) -> NoReturn:
    raise Refused(f"it works along axis {axis} of {c.shapes[0]}, which carries the samples")


def _unary(c: Case) -> SamplePassage:
    return SamplePassage((c.first_place(),))


def elementwise(c: Case) -> SamplePassage:
    """Carry samples through an elementwise operator that broadcasts its operands.

    Raises:
        Refused: operands carry the samples at different places, or along an axis that is broadcast.
        Contradiction: the shape of the result is not the broadcast of the operands'.
    """
    result = broadcast(*c.shapes)
    if result != tuple(c.results[0]):
        raise Contradiction(f"its result has shape {tuple(c.results[0])}, not {result}")
    aligned = {_from_front(c, n, p, len(result)) for n, p in enumerate(c.places) if p is not None}
    if len(aligned) > 1:
        raise Refused("its operands carry the samples at different places")
    (place,) = aligned
    repeated = {}
    for n, (shape, operand_place) in enumerate(zip(c.shapes, c.places, strict=True)):
        axis = place.axis - len(result) + len(shape)
        extent = shape[axis] if axis >= 0 else 1
        if operand_place is not None and extent != result[place.axis]:
            raise Refused(f"axis {axis} of its operand {n} carries the samples and is broadcast to {result[place.axis]}")
        if operand_place is None and extent != 1:
            repeated[n] = Place(axis, place.outer)
    return SamplePassage((place,), repeated=repeated)


def _from_front(c: Case, n: int, place: Place, rank: int) -> Place:
    return Place(place.axis + rank - len(c.shapes[n]), place.outer)


def _dense(c: Case) -> SamplePassage:
    x, w = c.places
    last = len(c.shapes[0]) - 1
    if x is None and w is not None:
        return SamplePassage((Place(last, w.outer),)) if w.axis == 0 else _contracts(1)
    place = c.first_place()
    return SamplePassage((place,)) if place.axis != last else _contracts(0)


def _contracts(operand: int) -> NoReturn:
    raise Refused(f"it sums over the axis of its operand {operand} that carries the samples")


def _matmul(c: Case) -> SamplePassage:
    for n, place in enumerate(c.places):
        from_back = 0 if place is None else len(c.shapes[n]) - place.axis
        if from_back == 1 + n:
            _contracts(n)
        if place is not None and from_back <= 2:  # rows of a, columns of b
            c.check_only(n)
            return SamplePassage((_from_front(c, n, place, len(c.results[0])),))
    return elementwise(Case(c.op, [s[:-2] for s in c.shapes], c.places, {}, [c.results[0][:-2]], c.samples))


def _along_axis(c: Case) -> SamplePassage:
    """Carry samples through bias_add and scale: the second operand lies along one axis of the first."""
    axis = int(c.attributes["axis"])
    x, b = c.places
    if x is None or (b is not None and x != Place(axis, b.outer)):
        raise Refused("its operands carry the samples at different places")
    if b is None and x.axis == axis:
        return SamplePassage((x,), repeated={1: Place(0, x.outer)})
    return SamplePassage((x,))


def _leading_axes(count: int, c: Case) -> SamplePassage:
    """Carry samples in one of the first axes, which the operator treats one by one."""
    place = c.first_place()
    return SamplePassage((place,)) if place.axis < count else _runs_along(c, place.axis)


def _batch_norm(c: Case) -> SamplePassage:
    place = c.first_place()
    return SamplePassage((place,), repeated={n: Place(0, place.outer) for n in range(1, 5)} if place.axis == 1 else {})


def _layer_norm(c: Case) -> SamplePassage:
    return _leading_axes(int(c.attributes["axis"]), c)


def _along_one(c: Case) -> SamplePassage:
    place = c.first_place()
    return _runs_along(c, place.axis) if place.axis == c.attributes["axis"] else SamplePassage((place,))


def _reduction(c: Case) -> SamplePassage:
    place, axes = c.first_place(), c.attributes["axes"]
    if place.axis in axes:
        _runs_along(c, place.axis)
    removed_axes = 0 if c.attributes["keepdims"] else sum(a < place.axis for a in axes)
    return SamplePassage((Place(place.axis - removed_axes, place.outer),))


def _reshape(c: Case) -> SamplePassage:
    place, shape = c.first_place(), tuple(c.attributes["shape"])
    places = list(places_with_lead(shape, place.lead(c.shapes[0])))
    if not places:
        raise Refused(f"its result {shape} has no axis for the samples of {c.shapes[0]}")
    # of the spellings of one order: where as many elements of each sample stand together, for this is the batch axis
    inner = place.inner(c.shapes[0])
    best = min(places, key=lambda p: (p.inner(shape) != inner, p != place, p.outer))
    return SamplePassage((best,), {"shape": best.scaled(shape, c.samples)})


def _transpose(c: Case) -> SamplePassage:
    place = c.first_place()
    return SamplePassage((Place(tuple(c.attributes["perm"]).index(place.axis), place.outer),))


def _slice(c: Case) -> SamplePassage:
    place, a = c.first_place(), c.attributes
    if place.axis != a["axis"]:
        return SamplePassage((place,))
    extent = c.shapes[0][place.axis]
    if (a["start"], a["stop"], a["step"]) != (0, extent, 1):
        _runs_along(c, place.axis)
    return SamplePassage((place,), {"stop": extent * c.samples})


def _concat(c: Case) -> SamplePassage:
    places = {p for p in c.places if p is not None}
    if len(places) > 1:
        raise Refused("its operands carry the samples at different places")
    (place,) = places
    if place.axis == c.attributes["axis"]:
        _runs_along(c, place.axis)
    return SamplePassage((place,), repeated={n: place for n, p in enumerate(c.places) if p is None})


def _pad(c: Case) -> SamplePassage:
    place, pads = c.first_place(), c.attributes["pads"]
    if pads[place.axis] or pads[place.axis + len(c.shapes[0])]:
        _runs_along(c, place.axis)
    return SamplePassage((place,))


def _expand(c: Case) -> SamplePassage:
    shape = tuple(c.attributes["shape"])
    place = _from_front(c, 0, c.first_place(), len(shape))
    if c.shapes[0][place.axis - len(shape) + len(c.shapes[0])] != shape[place.axis]:
        raise Refused(f"axis {place.axis} of its result is broadcast and carries the samples")
    return SamplePassage((place,), {"shape": place.scaled(shape, c.samples)})


def _gather(c: Case) -> SamplePassage:
    axis, indices = int(c.attributes["axis"]), c.places[1]
    if c.places[0] is None and indices is not None:
        return SamplePassage((Place(axis + indices.axis, indices.outer),))
    place = c.first_place()
    if place.axis == axis:
        _runs_along(c, axis)
    return SamplePassage((place if place.axis < axis else Place(place.axis + len(c.shapes[1]) - 1, place.outer),))


def _recurrent(c: Case) -> SamplePassage:
    """Carry samples in the batch axis: axis 1 of the sequence, axis 0 of the states."""
    c.check_only(0, *range(4, len(c.shapes)))
    batch = {0: 1, **dict.fromkeys(range(4, len(c.shapes)), 0)}
    places = {n: p for n, p in enumerate(c.places) if p is not None}
    for n, p in places.items():
        if p.axis != batch[n]:
            raise Refused(f"axis {p.axis} of its operand {n} carries the samples and is not its batch axis")
    outers = {p.outer for p in places.values()}
    if len(outers) > 1:
        raise Refused("its operands carry the samples at different places")
    (outer,) = outers
    repeated = {n: Place(axis, outer) for n, axis in batch.items() if n not in places}
    return SamplePassage((Place(1, outer), *[Place(0, outer)] * (len(c.results) - 1)), repeated=repeated)


def _scaled(c: Case) -> SamplePassage:
    """Carry samples through a change of number format; scales may lie along another axis."""
    place = c.first_place()
    scales = len(c.attributes["multiplier"]) if "multiplier" in c.attributes else math.prod(c.shapes[1])
    if scales != 1 and place.axis == int(c.attributes["axis"]):
        _runs_along(c, place.axis)
    return SamplePassage((place,))


# rules of operators that are not elementwise; im2col keeps samples apart in its rows and, from channels, in its columns
RULES: dict[str, Rule] = {
    "dense": _dense,
    "matmul": _matmul,
    "bias_add": _along_axis,
    "scale": _along_axis,
    "conv": partial(_leading_axes, 1),
    "im2col": partial(_leading_axes, 2),
    "max_pool": partial(_leading_axes, 2),
    "average_pool": partial(_leading_axes, 2),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "softmax": _along_one,
    "log_softmax": _along_one,
    "reduce_mean": _reduction,
    "reduce_sum": _reduction,
    "reduce_max": _reduction,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "expand": _expand,
    "gather": _gather,
    "reverse": _along_one,
    **dict.fromkeys(("quantize", "dequantize", "requantize"), _scaled),
    "quantized_add": elementwise,
    "integer_conv": partial(_leading_axes, 1),
    "integer_dense": _dense,
    "lstm": _recurrent,
    "gru": _recurrent,
    "rnn": _recurrent,
}


def _per_tensor(c: Case) -> SamplePassage:
    """Carry samples through a change of number format with one scale for the whole tensor."""
    if any(math.prod(s) != 1 for s in c.shapes[1:]):
        raise Refused("it has a scale for each element of an axis")
    return _unary(c)


def _quantised_matmul(b: int, c: Case) -> SamplePassage:
    """Carry samples through the rows of a matrix product whose operand `b` is one matrix."""
    place = c.first_place()
    if len(c.shapes[b]) != 2:
        raise Refused(f"its operand {b} is not one matrix")
    return SamplePassage((place,)) if place.axis != len(c.shapes[0]) - 1 else _contracts(0)


def _one_axis_gone(c: Case) -> SamplePassage:
    """Carry samples past a reduction over one axis, when the shapes tell which one it is."""
    place, shape, result = c.first_place(), tuple(c.shapes[0]), tuple(c.results[0])
    axes = [a for a in range(len(shape)) if (*shape[:a], 1, *shape[a + 1 :]) == result]
    removable_axes = [a for a in range(len(shape)) if shape[:a] + shape[a + 1 :] == result]
    if len(axes + removable_axes) != 1:
        raise Refused(f"its shapes {shape} and {result} do not tell which axis it reduces")
    if place.axis in axes + removable_axes:
        _runs_along(c, place.axis)
    return SamplePassage((Place(place.axis - sum(a < place.axis for a in removable_axes), place.outer),))


def _by_row(c: Case) -> SamplePassage:
    """Carry samples through an operator that treats rows one by one and gives something for each in all its results."""
    place = c.first_place()
    return SamplePassage((place,) * len(c.results)) if place.axis == 0 else _runs_along(c, place.axis)


# source operators the engine does not interpret: those known to work element by element, with broadcasting …
ELEMENTWISE_SOURCES = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BiasGelu BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu Clip Cos "
    "Cosh Div Elu Equal Erf Exp FastGelu Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less "
    "LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow QLinearAdd QLinearMul QuickGelu Reciprocal Relu Round Selu Shrink "
    "Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor"
)
# … and those that treat the slices along axis 0 of their first operand one by one, whatever their attributes
BATCHED_SOURCES = (
    "ConvInteger ConvTranspose DepthToSpace GlobalAveragePool GlobalLpPool GlobalMaxPool GroupNormalization InstanceNormalization LRN "
    "LpPool QLinearAveragePool QLinearConv QLinearGlobalAveragePool SpaceToDepth"
)
# … and those of classical models
ROW_SOURCES = (
    "ArrayFeatureExtractor CategoryMapper Imputer LabelEncoder LinearClassifier LinearRegressor Normalizer OneHotEncoder SVMClassifier "
    "SVMRegressor TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor"
)
REDUCTION_SOURCES = "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin ReduceProd ReduceSum ReduceSumSquare"
SOURCE_RULES: dict[str, Rule] = {
    **dict.fromkeys(ROW_SOURCES.split(), _by_row),
    **dict.fromkeys(REDUCTION_SOURCES.split(), _one_axis_gone),
    **dict.fromkeys(ELEMENTWISE_SOURCES.split(), elementwise),
    **dict.fromkeys(BATCHED_SOURCES.split(), partial(_leading_axes, 1)),
    "QuantizeLinear": _per_tensor,
    "DequantizeLinear": _per_tensor,
    "MatMulInteger": partial(_quantised_matmul, 1),
    "QLinearMatMul": partial(_quantised_matmul, 3),
}


def rule_of(operator: Op | None, source: str) -> Rule | None:
    """Return the rule of a core operator, or else of a source operator, or None."""
    if operator is None:
        return SOURCE_RULES.get(source)
    return RULES.get(operator.name) or (elementwise if operator.kind == ELEMENTWISE else None)


# operators that may be given one more axis in front: which operands may have it (the others broadcast); None: any
EXTRA_AXIS_OPERANDS: dict[str, frozenset[int] | None] = {
    "matmul": None,
    "dense": frozenset((0,)),
    "integer_dense": frozenset((0,)),
    "MatMulInteger": frozenset((0,)),
    "QLinearMatMul": frozenset((0,)),
}


def may_add_axis(operator: Op | None, source: str, places: Sequence[Place | None]) -> bool:
    """Tell whether samples may get an axis of their own in front of the operands that have them."""
    name = operator.name if operator else source
    allowed = EXTRA_AXIS_OPERANDS.get(name)
    if name in EXTRA_AXIS_OPERANDS and allowed is not None:
        return all(p is None or n in allowed for n, p in enumerate(places))
    return name in EXTRA_AXIS_OPERANDS or rule_of(operator, source) is elementwise
