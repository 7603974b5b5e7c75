"""Patterns: the meanings of layers that many accelerators compute, with what follows them as epilogue: a bias, ReLU, codes.

A target declares the ones that it has with `Target.offers`, and adds its formats, limits, costs, numerics and driver.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ... import ops as o
from ...errors import SpecError
from ...ops.op import Tensor
from ...ops.static import HasType, IsConstant
from ...rewrite.rule import Where
from .codes import NO_PADS, window_counts

Meaning = Callable[..., tuple[Tensor, Where]]
RANKS = {1: "a", 2: "a b", 3: "a b c", 4: "a b c d"}  # the axes of tensors whose elements are all treated alike
LAYER, WINDOW = "b c i j r s u v", "b c i j u v"  # dimensions along which no call of a layer or a pool is divided
KINDS = {"x": "Tensor", "z": "Tensor", "w": "Tensor", "b": "Tensor", "x_zero": "Int", "strides": "Ints", "pads": "Ints", "group": "Int",
         "kernel": "Ints", "multiplier": "Ints", "shift": "Ints", "zeros": "Ints", "zero": "Int", "low": "Int", "high": "Int"}  # fmt: skip
BOUNDS = {"low": "Float", "high": "Float"}  # of real numbers


@dataclass(frozen=True)
class Pattern:
    """The meaning of an operation, and what follows from it: axes, dimensions that stay whole, types where they are a model's own."""

    name: str
    operation: str
    doc: str
    axes: str
    variables: Mapping[str, str]
    build: Meaning
    whole: str = ""
    types: Mapping[str, str] = field(default_factory=dict)

    def meaning(self, name: str = "") -> Meaning:
        """Return the function of the pattern's variables that `Target.accelerates` takes, under the pattern's name or another."""

        def meaning(**variables: Any) -> tuple[Tensor, Where]:
            return self.build(**variables)

        kinds = [inspect.Parameter(v, inspect.Parameter.KEYWORD_ONLY, annotation=kind) for v, kind in self.variables.items()]
        meaning.__name__, meaning.__doc__ = name or self.name, self.doc
        meaning.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined]
        return meaning

    def trial(self, **at: Any) -> dict[str, Any]:
        """Return the sizes and attributes of a call, those of a window's results with them.

        Of `kernel`, `strides` and `pads` one number stands for all sides; `b` is 1 and `j` is `i` where they are not given.
        """
        if "kernel" not in at:
            return at
        kernel, strides = (tuple(n) if isinstance(n := at.get(name, 1), tuple) else (n, n) for name in ("kernel", "strides"))
        pads = n if isinstance(n := at.get("pads", 0), tuple) else (n,) * 4
        sizes = {"b": 1, "j": at["i"], **at}
        u, v = window_counts((sizes["i"], sizes["j"]), kernel, strides, pads)
        attributes = {"kernel": kernel, "strides": strides, "pads": pads, "group": at["c"]}
        statics = {name: n for name, n in attributes.items() if name in self.variables}
        taps = {} if "kernel" in statics else {"r": kernel[0], "s": kernel[1], **({"o": 1} if "group" in statics else {})}
        extents = {name: n for name, n in sizes.items() if name not in attributes}
        return {**extents, **taps, "u": u, "v": v, **statics}

    def element_trial(self, *shape: int, **attributes: Any) -> dict[str, Any]:
        """Return the sizes of a call on tensors of one shape, with its attributes."""
        return {**dict(zip(self.whole.split(), shape, strict=True)), **attributes}


def _variables(*names: str, **others: str) -> dict[str, str]:
    return {name: {**KINDS, **others}[name] for name in names}


def _axes(**of: str) -> str:
    return "; ".join(f"{name}: {dims}" for name, dims in of.items())


def _suffixed(*parts: str) -> str:
    return "_".join(filter(None, parts))


def _known(label: str, kind: str, kinds: Iterable[str]) -> str:
    """Return the kind of a pattern.

    Raises:
        SpecError: I102, the table has none of that kind.
    """
    if kind not in kinds:
        raise SpecError("I102", f'the table of patterns has no {label} "{kind}"', help=f"it has {', '.join(kinds)}")
    return kind


# -- products with constant weights


@dataclass(frozen=True)
class _Product:
    """One kind of product: its axes, dimensions that stay whole, attributes, and its meaning over numbers and over codes."""

    doc: str
    x: str
    w: str
    b: str
    y: str
    whole: str
    attributes: tuple[str, ...]
    of_numbers: Callable[..., Any]
    of_codes: Callable[..., Any]


def _conv(x: Tensor, w: Tensor, strides: Any, pads: Any, group: Any = 1) -> Any:
    return o.conv(x, w, strides, pads, (1, 1), group=group)


def _integer_conv(x: Tensor, w: Tensor, x_zero: Any, strides: Any, pads: Any, group: Any = 1) -> Any:
    return o.integer_conv(x, w, strides, pads, (1, 1), group=group, x_zero=x_zero, w_zero=0)


def _integer_dense(x: Tensor, w: Tensor, x_zero: Any) -> Any:
    return o.integer_dense(x, w, x_zero=x_zero, w_zero=0)


_PRODUCTS = {
    "dense": _Product("A matrix product with constant weights", "t k", "n k", "n", "t n", "", (), o.dense, _integer_dense),
    "conv2d": _Product(
        "A 2-D convolution without groups or dilation", "b c i j", "n c r s", "n", "b n u v", LAYER, ("strides", "pads"), _conv,
        _integer_conv,
    ),
    "depthwise": _Product(
        "A 2-D convolution, each channel with a filter of its own", "b c i j", "c o r s", "c", "b c u v", f"o {LAYER}",
        ("strides", "pads", "group"), _conv, _integer_conv,
    ),
}  # fmt: skip


def product_pattern(kind: str, *, bias: bool = False, relu: bool = False, codes: str = "") -> Pattern:
    """Return a layer with constant weights ("dense", "conv2d", "depthwise"), its epilogue a bias and ReLU.

    With `codes`, "int8" or "uint8", it multiplies a quantised model's codes less a zero point by int8 weights; results are int32 sums.
    """
    p = _PRODUCTS[_known("product", kind, _PRODUCTS)]

    def build(x: Tensor, w: Tensor, b: Tensor | None = None, **attributes: Any) -> tuple[Tensor, Where]:
        total = p.of_codes(x, w, **attributes) if codes else p.of_numbers(x, w, **attributes)
        y = total if b is None else o.bias_add(total, b, 1)
        types = [HasType(x, (codes,)), HasType(w, ("int8",))] if codes else []
        constants = [IsConstant(t) for t in (w, b) if t is not None]
        return o.relu(y) if relu else y, Where(x.rank == len(p.x.split()), *_grouped(x, w, **attributes), *types, *constants)

    operands = {"x": p.x, "w": p.w, **({"b": p.b} if bias else {})}
    doc = f"{p.doc}{', whose sums start at the bias' * bias}{', and the larger of each result and zero' * relu}"
    types = {"x": codes, "w": "int8", **({"b": "int32"} if bias else {}), "y": "int32"} if codes else {}
    return Pattern(
        _suffixed(kind, "bias" * bias, "relu" * relu, codes),
        kind,
        f"{doc}{', of codes less their zero point' * bool(codes)}.",
        _axes(**operands, y=p.y),
        _variables(*operands, *(("x_zero",) if codes else ()), *p.attributes),
        build,
        # parts of sums cannot be added behind a maximum
        p.whole or "k" * relu,
        types,
    )


def _grouped(x: Tensor, w: Tensor, group: Any = None, **attributes: Any) -> list[Any]:
    return [] if group is None else [x.shape[1] == group, w.shape[0] == group, group > 1]


# -- pools


_POOLS = ("max_pool", "average_pool")


def pool_pattern(kind: str, codes: str = "") -> Pattern:
    """Return a pool of images, "max_pool", or "average_pool" without elements around the image, of numbers or of a model's own codes."""

    def build(x: Tensor, kernel: Any, strides: Any, pads: Any = NO_PADS) -> tuple[Tensor, Where]:
        how: dict[str, Any] = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": (1, 1), "ceil": 0}
        y = o.max_pool(x, **how) if kind == "max_pool" else o.average_pool(x, count_include_pad=0, **how)
        return y, Where(x.rank == 4, *([HasType(x, (codes,))] if codes else []))

    is_padded = _known("pool", kind, _POOLS) == "max_pool"
    doc = (
        "The largest element of each window without dilation."
        if is_padded
        else "The mean of each window without elements around the image."
    )
    variables = _variables("x", "kernel", "strides", *(("pads",) if is_padded else ()))
    types = dict.fromkeys("xy", codes) if codes else {}
    return Pattern(_suffixed(kind, codes), kind, doc, _axes(x="b c i j", y="b c u v"), variables, build, WINDOW, types)


# -- element by element

_ELEMENTWISE: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("xz", o.add),
    "mul": ("xz", o.mul),
    "relu": ("x", o.relu),
    "clip": ("x", o.clip),
    "sigmoid": ("x", o.sigmoid),
    "tanh": ("x", o.tanh),
}
_ELEMENTWISE_DOCS = {
    "add": "The sum of two tensors of one shape",
    "mul": "The product of two tensors of one shape",
    "relu": "The larger of each element and zero",
    "clip": "Each element limited to the codes nearest to two bounds",
    "sigmoid": "The sigmoid of each element",
    "tanh": "The hyperbolic tangent of each element",
}


def element_pattern(kind: str, rank: int, *, relu: bool = False, codes: str = "") -> Pattern:
    """Return what is done to each element of tensors of a rank; its epilogue may be ReLU, and `codes` the type of a model's own."""
    operands, of_numbers = _ELEMENTWISE[_known("element-wise operation", kind, _ELEMENTWISE)]
    bounds = ("low", "high") if kind == "clip" else ()

    def build(x: Tensor, z: Tensor | None = None, **attributes: Any) -> tuple[Tensor, Where]:
        tensors = [t for t in (x, z) if t is not None]
        y = of_numbers(*tensors, **attributes)
        types = [HasType(t, (codes,)) for t in tensors] if codes else []
        return o.relu(y) if relu else y, Where(x.rank == rank, *([] if z is None else [x.shape == z.shape]), *types)

    doc = f"{_ELEMENTWISE_DOCS[kind]}{', and the larger of it and zero' * relu}{f', of {codes}' * bool(codes)}."
    name = _suffixed(kind, "relu" * relu, codes, str(rank))
    types = dict.fromkeys((*operands, "y"), codes) if codes else {}
    return _same_shape(name, kind, doc, operands, rank, (*bounds,), build, types, BOUNDS)


def requantise_pattern(codes: str, rank: int) -> Pattern:
    """Return the codes, "int8" or "uint8", of int32 sums of a rank."""

    def build(x: Tensor, **attributes: Any) -> tuple[Tensor, Where]:
        return o.requantize(x, axis=1, to=codes, **attributes), Where(x.rank == rank, HasType(x, ("int32",)))

    doc = "The codes of int32 sums: a factor for all of them or one for each channel, nearest, limited."
    attributes = ("multiplier", "shift", "zero", "low", "high")
    return _same_shape(f"requantise_{codes}_{rank}", "requantise", doc, "x", rank, attributes, build, {"x": "int32", "y": codes})


def quantized_add_pattern(codes: str, rank: int) -> Pattern:
    """Return the codes, "int8" or "uint8", of the sum of two tensors of a rank."""

    def build(x: Tensor, z: Tensor, **attributes: Any) -> tuple[Tensor, Where]:
        y = o.quantized_add(x, z, to=codes, **attributes)
        return y, Where(x.rank == rank, HasType(x, (codes,)), HasType(z, (codes,)))

    doc = "The codes of the sum of two tensors of codes, each with a scale and a zero point of its own."
    attributes = ("multiplier", "shift", "zeros", "zero", "low", "high")
    return _same_shape(f"quantized_add_{codes}_{rank}", "quantized_add", doc, "xz", rank, attributes, build, dict.fromkeys("xzy", codes))


def _same_shape(
    name: str, operation: str, doc: str, operands: str, rank: int, attributes: tuple[str, ...], build: Meaning, types: Mapping[str, str],
    kinds: Mapping[str, str] = KINDS,
) -> Pattern:  # fmt: skip
    """Return a pattern of tensors of one shape, of which a call takes whole ones."""
    dims = RANKS[rank]
    axes = _axes(**dict.fromkeys((*operands, "y"), dims))
    return Pattern(name, operation, doc, axes, _variables(*operands, *attributes, **kinds), build, dims, types)
