"""GeneSys as a target: its design parameters, its number formats, its resources, and how tensors lie at its ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila_models import genesys as model
from rewrite_compiler.ila_models.genesys import CALCULUS, SYNCS, Config
from rewrite_compiler.lang import Fixed
from rewrite_compiler.target import Clock, Link, Resources, Small, Target, Unit, pad_axis, split_bytes, state_memory

from .program import ROWS, Layer

Codes = np.ndarray[Any, Any]
NAMED = ("calculus", "sync")  # parameters that are no numbers
PORT_BYTES = 16  # of each port: the 128 bits of the published designs of this size
PORT = "memory"
_PUBLISHED = {"array_n": (16, 32, 64), "ibuf_depth": (16384, 2048, 32768), "wbuf_depth": (1024, 4096, 16384),
              "obuf_depth": (16384, 2048, 32768), "bbuf_depth": (8192, 1024), "vmem_depth": (16384, 2048, 32768)}  # fmt: skip
PARAMETERS: dict[str, tuple[str, ...]] = {
    "calculus": CALCULUS, "sync": SYNCS, **{name: tuple(map(str, values)) for name, values in _PUBLISHED.items()},
}  # fmt: skip


def build(**values: str) -> Ila:
    """Return the model for parameter values as they are written."""
    return model.build(**vars(config(values)))


def config(p: Mapping[str, str]) -> Config:
    """Return the design that the target's parameters say; the array is square."""
    return _config(tuple(p.items()))


@lru_cache(maxsize=64)
def _config(parameters: tuple[tuple[str, str], ...]) -> Config:
    values: dict[str, Any] = {name: x if name in NAMED else int(x) for name, x in parameters}
    return Config(**values, array_m=values["array_n"])


def resources(ila: Ila, parameters: Mapping[str, str]) -> Resources:
    """Return the architecture graph: the buffers, both arrays, and a port for each buffer."""
    n = config(parameters).array_n
    axes = {"ibuf": "depth lane", "wbuf": "depth lane lane", "bbuf": "depth lane", "obuf": "depth lane", "vmem1": "depth lane",
            "vmem2": "depth lane"}  # fmt: skip
    results = ("obuf", "vmem1", "vmem2")
    return Resources(
        Clock(1_000_000_000, "assumed: published designs of 16 × 16 run at 0.27 to 1.09 GHz"),
        tuple(state_memory(ila, name, text) for name, text in axes.items()),
        (
            Unit("systolic", ("dense", "conv2d"), ("int8",), {"n": n, "k": n}),
            Unit("simd", (*_SWEPT, "depthwise"), ("int32",), {"n": n}),
        ),
        (*(Link("host", name, PORT_BYTES, port=PORT) for name in axes), *(Link(name, "host", PORT_BYTES, port=PORT) for name in results)),
        (
            "host: the memories behind the five ports; WBUF and BBUF share one, as do both vector memories",
            "assumed: one of the ports at a time, so that the costs are those of one",
        ),
    )


# results of a call of the SIMD array that is drawn on a small design: some tiles of it
_SWEPT = dict.fromkeys(("add", "relu", "clip", "sigmoid", "tanh", "requantise", "quantized_add", "max_pool", "average_pool"), 90)


def _small(n: int, ibuf: int, wbuf: int, rows: int, vectors: int) -> Small:
    depths = {"ibuf_depth": ibuf, "wbuf_depth": wbuf, "obuf_depth": rows, "bbuf_depth": 4, "vmem_depth": vectors}
    return Small({"array_n": str(n), **{name: str(size) for name, size in depths.items()}}, {"n": n, "k": n}, _SWEPT | {"depthwise": 72})


target = Target(
    "genesys",
    build,
    PARAMETERS,
    "GeneSys, a systolic array of int8 products summed in 32 bits, and a SIMD array of 32-bit lanes.",
    (*sorted(Path(__file__).parent.glob("*.py")), *sorted(Path(model.__file__).parent.glob("*.py"))),
    describe=resources,
    small=(_small(2, 16, 8, 8, 40), _small(1, 8, 4, 4, 12)),
)


def int8(largest: float) -> Fixed:
    """Return the 8-bit format with the finest power-of-two step in which `largest` does not saturate."""
    fraction = 7
    while largest > 0 and (largest * 2.0**fraction > 127 or largest * 2.0 ** (fraction + 1) <= 127):
        fraction += 1 if largest * 2.0**fraction <= 127 else -1
    return Fixed(8, fraction)


def sums(x: Fixed, w: Fixed) -> Fixed:
    """Return the format of sums of products."""
    return Fixed(32, x.fraction + w.fraction)


def blocks(size: int, lanes: int) -> int:
    """Return how many blocks of lanes hold a size."""
    return -(-size // lanes)


# -- layouts


def bordered_codes(x: Codes, pads: Sequence[int], code: int) -> Codes:
    """Return images [… i, j] with a code around them."""
    margins = [(0, 0)] * (x.ndim - 2) + [(pads[0], pads[2]), (pads[1], pads[3])]
    return np.pad(x, margins, constant_values=code)


def input_bytes(x: Codes, m: Layer) -> Codes:
    """Return images [(samples,) b, c, i, j] as the port holds them: channels innermost, whole blocks of them."""
    rows = np.moveaxis(pad_axis(x, -3, m.ic * m.design.array_n), -3, -1)
    return split_bytes(np.ascontiguousarray(rows).reshape(*x.shape[:-4], -1))


def weight_bytes(w: Codes, m: Layer) -> Codes:
    """Return weights [n, c, r, s] as the port holds them, tile by tile in blocks of four rows whose columns descend."""
    n, columns = m.design.array_n, m.design.array_m
    whole = pad_axis(pad_axis(w, 0, m.oc * columns), 1, m.ic * n)
    split = whole.reshape(m.oc // m.toc, m.toc, columns, m.ic // m.tic, m.tic, n, *m.kernel)
    rows = split.transpose(0, 3, 6, 7, 4, 1, 5, 2).reshape(m.oc // m.toc * (m.ic // m.tic), -1, n, columns)
    four = pad_axis(rows, 1, m.weight_rows).reshape(len(rows), -1, ROWS, n, columns)[..., ::-1]
    return split_bytes(np.ascontiguousarray(four.transpose(0, 1, 4, 3, 2)).reshape(-1))


def bias_bytes(b: Codes | None, m: Layer) -> Codes:
    """Return biases as little-endian words; zeros where there are none."""
    columns = m.oc * m.design.array_m
    return split_bytes(np.zeros(columns, np.int32) if b is None else pad_axis(b, 0, columns), 4)
