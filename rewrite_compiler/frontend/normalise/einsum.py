"""Lowering of Einsum: permutations of one operand, and contractions of two operands as permutations and matrix products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from ...ir.program import Value
from ...ops.op import ShapeError
from ..site.context import Unsupported
from ..site.site import Lowering, Site

FIRST_ELLIPSIS_AXIS = 0x100  # the axes of an ellipsis are these characters on: no letters of an equation


@dataclass(frozen=True)
class Equation:
    """The axis labels of each operand and of the result."""

    operands: tuple[str, ...]
    result: str


def parse_equation(text: str, ranks: Sequence[int]) -> Equation:
    """Parse an Einsum equation for operands of some ranks; ellipses are expanded to labels.

    Raises:
        ShapeError: the equation does not fit the ranks.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(f'Einsum "{text}" has {len(terms)} terms for {len(ranks)} operands')
    ellipsis_rank = max((rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term), default=0)
    ellipsis_axes = "".join(chr(FIRST_ELLIPSIS_AXIS + k) for k in range(ellipsis_rank))
    operands = tuple(t.replace("...", ellipsis_axes[ellipsis_rank - (rank - len(t) + 3) :]) for t, rank in zip(terms, ranks, strict=True))
    count = Counter(chain(*operands))
    result = (
        right.replace("...", ellipsis_axes)
        if arrow
        else ellipsis_axes + "".join(sorted(c for c, n in count.items() if n == 1 and c not in ellipsis_axes))
    )
    fit = all(len(o) == rank for o, rank in zip(operands, ranks, strict=True)) and "." not in "".join([*operands, result])
    if not fit or len(set(result)) != len(result) or not set(result) <= count.keys():
        raise ShapeError(f'Einsum "{text}" does not fit operands of ranks {", ".join(map(str, ranks))}')
    return Equation(operands, result)


def _einsum(site: Site) -> list[Value]:
    site.require_float()
    values = site.values()
    e = parse_equation(str(site.get("equation", "")), [len(site.type(v).shape) for v in values])
    sizes: dict[str, int] = {}
    for v, axes in zip(values, e.operands, strict=True):
        if len(set(axes)) != len(axes):
            raise Unsupported("it takes a diagonal")
        for axis, size in zip(axes, site.type(v).shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise Unsupported("its operands have different extents along one axis")
    if len(values) == 1 and set(e.result) == set(e.operands[0]):
        return [_permuted(site, values[0], e.operands[0], e.result)]
    if len(values) != 2:
        raise Unsupported("it is neither a transposition nor a product of two operands")
    return [_product(site, values, e, sizes)]


def _product(site: Site, values: Sequence[Value], e: Equation, sizes: dict[str, int]) -> Value:
    """Lower a contraction of two operands to one batched matrix product over the axes that both and the result share."""
    a, b = e.operands
    batch = "".join(c for c in e.result if c in a and c in b)
    summed = "".join(c for c in a if c in b and c not in e.result)
    rows, columns = ("".join(c for c in e.result if c in x and c not in batch) for x in (a, b))
    if set(a) | set(b) != set(batch + summed + rows + columns) or len(batch + summed + rows) != len(a) or not summed:
        raise Unsupported("it sums an axis of one operand, or none of both")

    def extent(axes: str) -> int:
        size = 1
        for c in axes:
            size *= sizes[c]
        return size

    lead = tuple(sizes[c] for c in batch)
    outer = (extent(rows),) if batch or not rows else tuple(sizes[c] for c in rows)  # without a batch all rows are of one product
    left = site.reshape(_permuted(site, values[0], a, batch + rows + summed), (*lead, *outer, extent(summed)))
    right = site.reshape(_permuted(site, values[1], b, batch + summed + columns), (*lead, extent(summed), extent(columns)))
    product_axes = batch + rows + columns
    product = site.reshape(site.apply("matmul", left, right), tuple(sizes[c] for c in product_axes))
    return _permuted(site, product, product_axes, e.result)


def _permuted(site: Site, v: Value, axes: str, target: str) -> Value:
    return site.transpose(v, [axes.index(c) for c in target])


TABLE: dict[str, Lowering] = {"Einsum": _einsum}
