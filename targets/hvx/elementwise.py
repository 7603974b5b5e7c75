"""HVX's element-wise operations: saturating sums of bytes, and bytes limited to bounds, a vector at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, Fixed, array, maximum, minimum, sat
from rewrite_compiler.rewrite import Float
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis, split_bytes

from .base import Codes, finish, int8, memory_bytes, set_register, target

RANKS = {1: "a", 2: "a b", 3: "a b c", 4: "a b c d"}
RESULT, CONSTANTS, SPLAT = 8, 9, 9  # vector registers, and a scalar one
WORD_BYTES = 4
BYTE = (-128, 127)
Formats = Mapping[str, Fixed]
Steps = tuple[tuple[str, int | None], ...]  # instructions, each with a constant as its second source, or with the second operand


def _steps(operation: str, f: Formats, low: float = 0, high: float = 0) -> Steps:
    """Return what is done to each vector; the bounds of a clip are the codes nearest to them, and an open one bounds nothing."""

    def code(bound: float) -> int:
        scaled = bound * 2.0 ** f["x"].fraction
        return min(max(round(scaled), BYTE[0]), BYTE[1]) if math.isfinite(scaled) else BYTE[int(bound > 0)]

    clip: Steps = (("vmax_b_b_b", code(low)), ("vmin_b_b_b", code(high)))
    return {"add": (("vadd_b_b_b_sat", None),), "relu": (("vmax_b_b_b", 0),), "clip": clip}[operation]


def _vectors(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // VECTOR)


def _drive(device: StreamedDevice, *, rank: int, operation: str, f: Formats, low: float = 0, high: float = 0, **operands: Any) -> Codes:
    """Emit the operation on x and, for a sum, z [(samples,) …]; each lies in memory behind the one before, the result last."""
    tensors: list[Codes] = [operands[name] for name in ("x", "z") if name in operands]
    steps = _steps(operation, f, low, high)
    shape = tensors[0].shape[tensors[0].ndim - rank :]
    count = _vectors(shape)
    device.attach("dram", (len(tensors) + 1) * count * VECTOR)
    for n, x in enumerate(tensors):
        flat = x.reshape(*x.shape[: x.ndim - rank], -1)
        device.place("dram", n * count * VECTOR, pad_axis(split_bytes(flat), -1, count * VECTOR))
    for n in range(len(tensors) + 1):
        set_register(device, n, n * count * VECTOR)
    for n, (_, constant) in enumerate(steps):
        if constant is not None:
            set_register(device, SPLAT, constant % (1 << 8))
            device.issue("vsplat_b_r", vd=CONSTANTS + n, rt=SPLAT)
    for _ in range(count):
        for n in range(len(tensors)):
            device.issue("vmem_load_step", vd=n, rt=n, step=1)
        for n, (name, constant) in enumerate(steps):
            device.issue(name, vd=RESULT, vu=RESULT if n else 0, vv=1 if constant is None else CONSTANTS + n)
        device.issue("vmem_store_step", vs=RESULT, rt=len(tensors), step=1)
    finish(device)
    y = join_bytes(device.fetch("dram", len(tensors) * count * VECTOR, count * VECTOR)[..., None])
    return y[..., : math.prod(shape)].reshape(*y.shape[:-1], *shape)


def _limits(*, operands: int, rank: int, p: Mapping[str, str], **sizes: int) -> Iterator[Limit]:
    shape = tuple(sizes[d] for d in RANKS[rank].split())
    yield Limit("bytes of memory", (operands + 1) * _vectors(shape) * VECTOR, memory_bytes(p))


def _cost(*, operands: int, steps: int, rank: int, p: Mapping[str, str], resources: Resources, **sizes: Any) -> Cost:
    """A packet holds one load and one store beside an operation, so that loads decide, or the operations."""
    count = _vectors(tuple(sizes[d] for d in RANKS[rank].split()))
    moved = dict.fromkeys(("x", "z")[:operands], count * VECTOR) | {"y": count * VECTOR}
    moved["commands"] = WORD_BYTES * (2 + 2 * (operands + steps) + count * (operands + steps + 1))
    return Cost("vector", count * max(operands, steps), resources.link("host", "v").cycles_for(sum(moved.values())), moved)


def _codes(*operands: Array, operation: str, f: Formats, low: float = 0, high: float = 0) -> Array:
    """Saturated sums of codes, or the larger of code and zero, or codes within bounds."""
    if operation == "add":
        return array(lambda *i: sat(operands[0][i] + operands[1][i], 8), operands[0].shape)
    least, *most = (constant for _, constant in _steps(operation, f, low, high) if constant is not None)
    return array(lambda *i: minimum(maximum(operands[0][i], least), most[0] if most else BYTE[1]), operands[0].shape)


def _declare(rank: int) -> None:
    dims = RANKS[rank]
    trials = tuple(dict(zip(dims.split(), s, strict=True)) for s in ((*(1,) * (rank - 1), 17), (3, 2, 11, 7)[:rank], (2, 3, 5, 9)[:rank]))
    bounds = ({"low": -0.25, "high": 3.0}, {"low": -math.inf, "high": 3.0}, {"low": 0.0, "high": 6.0})

    def add(x: Tensor, z: Tensor) -> tuple[Tensor, Where]:
        """The sum of two tensors of one shape, all in one format."""
        return o.add(x, z), Where(x.rank == rank, x.shape == z.shape)

    def relu(x: Tensor) -> tuple[Tensor, Where]:
        """The larger of each element and zero."""
        return o.relu(x), Where(x.rank == rank)

    def clip(x: Tensor, low: Float, high: Float) -> tuple[Tensor, Where]:
        """Each element limited to the codes nearest to two bounds."""
        return o.clip(x, low=low, high=high), Where(x.rank == rank)

    binary: dict[str, Any] = {"axes": f"x: {dims}; z: {dims}; y: {dims}", "formats": dict.fromkeys("xzy", int8), "shared": ("x z y",)}
    unary: dict[str, Any] = {"axes": f"x: {dims}; y: {dims}", "formats": {"x": int8}, "derived": {"y": lambda x: x}}
    for f, declared, operands, steps in ((add, binary, 2, 1), (relu, unary, 1, 1), (clip, unary, 1, 2)):
        operation = f.__name__
        f.__name__ = f"{operation}_{rank}"
        at = [{**sizes, **bound} for sizes, bound in zip(trials, bounds, strict=True)] if f is clip else trials
        mapping = target.accelerates(operation=operation, whole=dims, trials=at, **declared)(f)
        mapping.limits(partial(_limits, operands=operands, rank=rank))
        mapping.driver(partial(_drive, rank=rank, operation=operation), moves=True)
        mapping.numerics(partial(_codes, operation=operation))
        mapping.costs(partial(_cost, operands=operands, steps=steps, rank=rank))


for _rank in RANKS:
    _declare(_rank)
