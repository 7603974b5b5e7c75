"""VTA as a target: its design parameters, its number format, and how tensors lie in its memories."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila_models import vta as model
from rewrite_compiler.ila_models.vta.config import BEHAVIOURS, ENCODINGS, ITERATION_BITS, Config
from rewrite_compiler.lang import Fixed
from rewrite_compiler.target import Blocks, Limit, Small, Target, split_bytes, tile, untile

from .resources import resources

Codes = np.ndarray[Any, Any]
MOST_ITERATIONS = (1 << ITERATION_BITS) - 1
MOST_ELEMENTS = (1 << 16) - 1  # of one row of a LOAD or STORE
UOP_BYTES = 4


def _values(default: int, alternatives: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, (default, *(n for n in alternatives if n != default))))


_DEFAULT = Config()
PARAMETERS: dict[str, tuple[str, ...]] = {
    "encoding": tuple(ENCODINGS),
    "behaviour": BEHAVIOURS,
    "log_batch": _values(_DEFAULT.log_batch, range(3)),
    "log_block": _values(_DEFAULT.log_block, range(3, 6)),
    "log_uop_buffer": _values(_DEFAULT.log_uop_buffer, range(10, 16)),
    "log_inp_buffer": _values(_DEFAULT.log_inp_buffer, range(10, 19)),
    "log_wgt_buffer": _values(_DEFAULT.log_wgt_buffer, range(12, 21)),
    "log_acc_buffer": _values(_DEFAULT.log_acc_buffer, range(12, 20)),
}


def build(encoding: str, behaviour: str, **sizes: str) -> Ila:
    """Return the model for parameter values as they are written."""
    return model.build(encoding=encoding, behaviour=behaviour, **{name: int(n) for name, n in sizes.items()})


def config(p: Mapping[str, str]) -> Config:
    """Return the design that the target's parameters say."""
    return _config(tuple((name, int(x) if name.startswith("log_") else x) for name, x in p.items()))


@lru_cache(maxsize=64)
def _config(parameters: tuple[tuple[str, Any], ...]) -> Config:
    return Config(**dict(parameters))


def _small(*, block: int, uop: int, inp: int, wgt: int, acc: int, batch: int = 0) -> Small:
    """Return a small design from the logarithms of its batch, its block and its buffers' bytes."""
    buffers = {f"log_{sort}_buffer": str(n) for sort, n in (("uop", uop), ("inp", inp), ("wgt", wgt), ("acc", acc))}
    return Small({"log_batch": str(batch), "log_block": str(block), **buffers})


def blocks(p: Mapping[str, str]) -> Blocks:
    """Return the design of blocks of one: its buffers hold as many elements, whose bytes are those of one scalar."""
    c = config(p)
    scalars = {sort: c.width(sort).bit_length() - 4 for sort in ("inp", "wgt", "acc")}  # logarithms of bytes
    buffers = {f"log_{sort}_buffer": str(c.log_depth(sort) + n) for sort, n in scalars.items()}
    return Blocks({"log_batch": "0", "log_block": "0", **buffers}, {**dict.fromkeys("nck", c.block), **dict.fromkeys("bt", c.batch)})


target = Target(
    "vta",
    build,
    PARAMETERS,
    "VTA, an int8 tensor accelerator: blocks of a matrix product, accumulated in 32 bits.",
    (*sorted(Path(__file__).parent.glob("*.py")), *sorted(Path(model.__file__).parent.glob("*.py"))),
    describe=resources,
    blocks=blocks,
    small=(
        _small(block=1, uop=7, inp=6, wgt=6, acc=7),
        _small(block=1, uop=7, inp=4, wgt=6, acc=7),
        _small(block=0, uop=6, inp=5, wgt=5, acc=5),
        _small(batch=1, block=1, uop=8, inp=7, wgt=7, acc=9),
    ),
)


def int8(largest: float) -> Fixed:
    """Return the 8-bit format with the finest power-of-two step in which `largest` does not saturate."""
    if not largest > 0:
        return Fixed(8, 7)
    mantissa, exponent = math.frexp(largest)
    return Fixed(8, 7 - exponent - (mantissa > 127 / 128))


def accumulator(x: Fixed, w: Fixed) -> Fixed:
    """Return the format of sums of products: a step is the product of both steps."""
    return Fixed(32, x.fraction + w.fraction)


def elements(size: int, extent: int) -> int:
    """Return how many elements of so many rows or columns hold a size."""
    return -(-size // extent)


def to_elements(x: Codes, rows: int, columns: int) -> Codes:
    """Return codes [(samples,) r, c] as elements of rows × columns, [(samples,) scalars]: rows outer, missing scalars 0."""
    return tile(x, {-2: rows, -1: columns}).reshape(*x.shape[:-2], -1)


def from_elements(scalars: Codes, shape: tuple[int, int], rows: int, columns: int) -> Codes:
    """Return codes [(samples,) r, c] from scalars of elements of rows × columns."""
    r, c = shape
    blocks = scalars.reshape(*scalars.shape[:-1], elements(r, rows), elements(c, columns), rows, columns)
    return untile(blocks, (-2, -1))[..., :r, :c]


def micro_ops(words: Iterable[int]) -> Codes:
    """Return micro-ops as bytes."""
    return split_bytes(np.array(list(words), np.uint32), UOP_BYTES)


def no_rooms() -> tuple[()]:
    """Return that a call leaves alone what others keep: inputs, accumulators and micro-ops are loaded anew by every call."""
    return ()


def buffer_limits(c: Config, rows: int, inner: int, columns: int) -> Iterator[Limit]:
    """Capacities of a product of so many elements along rows, inner dimension and columns that stays on chip (section 9)."""
    for label, needs, sort in (
        ("input elements", rows * inner, "inp"),
        ("weight elements", columns * inner, "wgt"),
        ("accumulator elements", rows * columns, "acc"),
        ("micro-ops", inner, "uop"),
    ):
        yield Limit(label, needs, min(c.depth(sort), MOST_ELEMENTS))
    yield Limit("iterations of a loop", max(rows, columns), MOST_ITERATIONS)
