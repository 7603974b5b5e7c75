"""GeneSys as a target: its design parameters, and its resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila_models import genesys as model
from rewrite_compiler.ila_models.genesys import CALCULUS, SYNCS, Config
from rewrite_compiler.target import Clock, Link, Resources, Small, Target, Unit, fixed_byte, fixed_products, product_pattern, state_memory
from rewrite_compiler.target import Mapping as Operation

Codes = np.ndarray[Any, Any]
P = Mapping[str, str]  # parameters of the target
WORD = 4  # bytes of a sum
PORT_BYTES = 16  # of each port: the 128 bits of the published designs of this size
PARAMETERS: dict[str, tuple[str, ...]] = {
    "calculus": CALCULUS, "sync": SYNCS, "array_n": ("16", "32", "64"), "ibuf_depth": ("16384", "2048", "32768"),
    "wbuf_depth": ("1024", "4096", "16384"), "obuf_depth": ("16384", "2048", "32768"), "bbuf_depth": ("8192", "1024"),
    "vmem_depth": ("16384", "2048", "32768"),
}  # fmt: skip


def build(**values: str) -> Ila:
    """Return the model for parameter values as they are written."""
    return model.build(**vars(config(values)))


def config(p: P) -> Config:
    """Return the design that the target's parameters say; the array is square."""
    return _config(tuple(p.items()))


@lru_cache(maxsize=64)
def _config(parameters: tuple[tuple[str, str], ...]) -> Config:
    values: dict[str, Any] = {name: int(x) if x.isdigit() else x for name, x in parameters}
    return Config(**values, array_m=values["array_n"])


def resources(ila: Ila, parameters: P) -> Resources:
    """Return the architecture graph: the buffers, both arrays, and a port for each buffer."""
    n = config(parameters).array_n
    axes = dict.fromkeys(("ibuf", "wbuf", "bbuf", "obuf", "vmem1", "vmem2"), "depth lane") | {"wbuf": "depth lane lane"}
    inputs = [Link("host", name, PORT_BYTES, port="memory") for name in axes]
    results = [Link(name, "host", PORT_BYTES, port="memory") for name in ("obuf", "vmem1", "vmem2")]
    return Resources(
        Clock(1_000_000_000, "assumed: published designs of 16 × 16 run at 0.27 to 1.09 GHz"),
        tuple(state_memory(ila, name, text) for name, text in axes.items()),
        (Unit("systolic", ("dense", "conv2d"), ("int8",), {"n": n, "k": n}), Unit("simd", (*_SWEPT, "depthwise"), ("int32",), {"n": n})),
        (*inputs, *results),
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


def declare_product(
    kind: str, sizes: Sequence[Mapping[str, Any]], zeros: Sequence[int], *, bias: bool, relu: bool = False, codes: str = "",
    **declared: Any,
) -> Operation:  # fmt: skip
    """Declare a layer with constant weights of numbers, or of codes with the zero points of trials."""
    pattern = product_pattern(kind, bias=bias, relu=relu, codes=codes)
    trials = [pattern.trial(**at, **({"x_zero": zero} if codes else {})) for at, zero in zip(sizes, zeros, strict=False)]
    formats: dict[str, Any] = {"formats": dict.fromkeys("xw", fixed_byte), "derived": dict.fromkeys("by" if bias else "y", fixed_products)}
    return target.offers(pattern, trials=trials, **declared, **({} if codes else formats))
