"""The operations that are looked for: meaning, axes, and what an element of the result is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...lang.arithmetic import maximum, minimum
from ...lang.binders import Array, Leaf, array, reduce_sum
from ...lang.expr import Expr
from ...sched.driver.operation import Operation, operation_of
from ...target.axes import Axes

ROWS = "x: t n; w: t n; y: t n"
SAME = "x.rank == 2, w.rank == 2, x.shape[0] == w.shape[0], x.shape[1] == w.shape[1]"
BIAS = "bias"
Element = Callable[..., Expr]


@dataclass(frozen=True)
class Pattern:
    """An operation on operands x, w and others: `element(leaves, *index)` is one of its result y; of a product, scales add up.

    `sizes` are those of the nest that is matched. Texts are Python of a target file: the `guard` with `{lanes}` of the blocked
    dimension, the `meaning`, the places of an operand's axes that are not the loop of that name, extents of dimensions of the result
    and of sums. `small` and `large` are sizes and attributes at which it is certified.
    """

    name: str
    axes: str
    guard: str
    meaning: str
    element: Element
    sizes: Mapping[str, int]
    extents: Mapping[str, str]
    small: Mapping[str, Any]
    large: Mapping[str, Any]
    probes: tuple[Mapping[str, Any], ...] = ()  # sizes no two of which are alike in both, by which registers are told apart
    is_product: bool = False
    blocked: str = ""  # the dimension of sums that lanes divide
    attributes: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    whole: str = ""

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """The axes of each operand and of the result."""
        return dict(Axes.parse(self.axes).of)

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands."""
        return tuple(n for n in self.dims if n != "y")

    @property
    def operation(self) -> Operation:
        """What it computes as a nest of loops."""
        shapes = {name: tuple(self.sizes[d] for d in dims) for name, dims in self.dims.items()}
        leaves = {name: Leaf(shapes[name], (-8, 7), False, name) for name in self.operands}
        return operation_of(array(lambda *i: self.element(leaves, *i), shapes["y"]), list(leaves.values()), "y", self.dims)


Leaves = Mapping[str, Array]


def _dense(of: Leaves, t: Expr, n: Expr) -> Expr:
    x, w = of["x"], of["w"]
    return reduce_sum(lambda k: x[t, k] * w[n, k], x.shape[1])


def _conv2d(of: Leaves, b: Expr, n: Expr, u: Expr, v: Expr) -> Expr:
    x, w = of["x"], of["w"]
    return reduce_sum(lambda c, r, s: x[b, c, u + r, v + s] * w[n, c, r, s], w.shape[1:])


DENSE = Pattern(
    "dense", "x: t k; w: n k; y: t n", "x.rank == 2, x.shape[1] % {lanes} == 0, IsConstant(w)", "o.dense(x, w)", _dense,
    sizes={"t": 2, "n": 12, "k": 48}, extents={"t": "x.shape[0]", "n": "w.shape[0]", "k": "x.shape[1]"},
    small={"t": 1, "n": 3, "k": 1}, large={"t": 2, "n": 11, "k": 3}, is_product=True, blocked="k", whole="k",
    probes=({"t": 5, "n": 10, "k": 24}, {"t": 3, "n": 19, "k": 35}),
)  # fmt: skip
CONV2D = Pattern(
    "conv2d", "x: b c i j; w: n c r s; y: b n u v",
    "x.rank == 4, w.rank == 4, x.shape[1] % {lanes} == 0, pads == (0, 0, 0, 0), IsConstant(w)",
    "o.conv(x, w, strides=strides, pads=pads, dilations=(1, 1), group=1)", _conv2d,
    sizes={"b": 1, "c": 48, "i": 5, "j": 6, "n": 12, "r": 2, "s": 3, "u": 4, "v": 4},
    extents={
        "b": "x.shape[0]", "n": "w.shape[0]", "u": "(x.shape[2] - w.shape[2]) // strides[0] + 1",
        "v": "(x.shape[3] - w.shape[3]) // strides[1] + 1", "c": "x.shape[1]", "r": "w.shape[2]", "s": "w.shape[3]",
    },
    small={"b": 1, "c": 1, "i": 4, "j": 3, "n": 3, "r": 2, "s": 1, "u": 3, "v": 3, "strides": (1, 1), "pads": (0, 0, 0, 0)},
    large={"b": 1, "c": 2, "i": 5, "j": 5, "n": 18, "r": 3, "s": 3, "u": 2, "v": 2, "strides": (2, 2), "pads": (0, 0, 0, 0)},
    is_product=True, blocked="c", attributes=("strides", "pads"), whole="c i j r s u v",
    places={"i": "{u} * strides[0] + {r}", "j": "{v} * strides[1] + {s}"},
    probes=(
        {"b": 2, "n": 10, "c": 24, "i": 11, "j": 13, "r": 3, "s": 2, "u": 5, "v": 4, "strides": (2, 3)},
        {"b": 3, "n": 19, "c": 11, "i": 9, "j": 17, "r": 4, "s": 5, "u": 6, "v": 7, "strides": (1, 2)},
    ),
)  # fmt: skip


def _of_rows(name: str, meaning: str, element: Element, *, is_product: bool = False) -> Pattern:
    """Return an operation of two operands, element by element."""
    return Pattern(
        name, ROWS, SAME, meaning, element, sizes={"t": 2, "n": 12}, extents={"t": "x.shape[0]", "n": "x.shape[1]"},
        small={"t": 1, "n": 3}, large={"t": 2, "n": 11}, is_product=is_product,
        probes=({"t": 3, "n": 20}, {"t": 5, "n": 33}),
    )  # fmt: skip


def _biased(p: Pattern, axis: int) -> Pattern:
    """Return a sum of products that starts from one number for each index of an axis of the result."""
    (_, channels), element = p.dims["y"][: axis + 1], p.element
    return replace(
        p, name=f"{p.name}_bias", axes=p.axes.replace("; y:", f"; {BIAS}: {channels}; y:"), guard=f"{p.guard}, IsConstant({BIAS})",
        meaning=f"o.bias_add({p.meaning}, {BIAS}, {axis})", element=lambda of, *i: of[BIAS][i[axis]] + element(of, *i),
    )  # fmt: skip


def _rectified(p: Pattern) -> Pattern:
    """Return the larger of each result and zero."""
    element = p.element
    return replace(
        p, name=f"{p.name}_relu", meaning=f"o.relu({p.meaning})", element=lambda of, *i: maximum(element(of, *i), 0),
    )  # fmt: skip


def _with_epilogues(p: Pattern) -> Iterator[Pattern]:
    """Yield a sum of products alone, from a bias on, and both with the larger of result and zero."""
    for base in (p, _biased(p, 1)):
        yield from (base, _rectified(base))


PATTERNS = (
    *_with_epilogues(DENSE),
    *_with_epilogues(CONV2D),
    _of_rows("add", "o.add(x, w)", lambda of, *i: of["x"][i] + of["w"][i]),
    _of_rows("sub", "o.sub(x, w)", lambda of, *i: of["x"][i] - of["w"][i]),
    _of_rows("mul", "o.mul(x, w)", lambda of, *i: of["x"][i] * of["w"][i], is_product=True),
    _of_rows("max_", "o.max_(x, w)", lambda of, *i: maximum(of["x"][i], of["w"][i])),
    _of_rows("min_", "o.min_(x, w)", lambda of, *i: minimum(of["x"][i], of["w"][i])),
)
