"""HVX's element-wise operations: saturating sums of bytes, and the larger of each byte and zero, a vector at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.lang import Array, array, maximum, sat
from rewrite_compiler.target import Cost, Limit, Resources, StreamedDevice, join_bytes, pad_axis, split_bytes

from .base import Codes, finish, int8, memory_bytes, set_register, target

RANKS = {1: "a", 2: "a b", 3: "a b c", 4: "a b c d"}
ZEROS, RESULT = 9, 8  # vector registers
OPERATIONS = {"add": "vadd_b_b_b_sat", "relu": "vmax_b_b_b"}
WORD_BYTES = 4


def _vectors(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // VECTOR)


def _drive(device: StreamedDevice, *, rank: int, operation: str, **operands: Any) -> Codes:
    """Emit the operation on x and, for a sum, z [(samples,) …]; each lies in memory behind the one before, the result last."""
    tensors: list[Codes] = [operands[name] for name in ("x", "z") if name in operands]
    shape = tensors[0].shape[tensors[0].ndim - rank :]
    count = _vectors(shape)
    device.attach("dram", (len(tensors) + 1) * count * VECTOR)
    for n, x in enumerate(tensors):
        flat = x.reshape(*x.shape[: x.ndim - rank], -1)
        device.place("dram", n * count * VECTOR, pad_axis(split_bytes(flat), -1, count * VECTOR))
    for n in range(len(tensors) + 1):
        set_register(device, n, n * count * VECTOR)
    if len(tensors) == 1:
        device.issue("vsplat_r", vd=ZEROS, rt=0)  # the address of the first operand is 0
    sources = [*range(len(tensors)), ZEROS][:2]
    for _ in range(count):
        for n in range(len(tensors)):
            device.issue("vmem_load_step", vd=n, rt=n, step=1)
        device.issue(OPERATIONS[operation], vd=RESULT, vu=sources[0], vv=sources[1])
        device.issue("vmem_store_step", vs=RESULT, rt=len(tensors), step=1)
    finish(device)
    y = join_bytes(device.fetch("dram", len(tensors) * count * VECTOR, count * VECTOR)[..., None])
    return y[..., : math.prod(shape)].reshape(*y.shape[:-1], *shape)


def _limits(*, operands: int, rank: int, p: Mapping[str, str], **sizes: int) -> Iterator[Limit]:
    shape = tuple(sizes[d] for d in RANKS[rank].split())
    yield Limit("bytes of memory", (operands + 1) * _vectors(shape) * VECTOR, memory_bytes(p))


def _cost(*, operands: int, rank: int, p: Mapping[str, str], resources: Resources, **sizes: Any) -> Cost:
    """A packet holds one load and one store beside an operation, so that loads decide."""
    count = _vectors(tuple(sizes[d] for d in RANKS[rank].split()))
    moved = dict.fromkeys(("x", "z")[:operands], count * VECTOR) | {"y": count * VECTOR}
    moved["commands"] = WORD_BYTES * (4 + 2 * operands + count * (operands + 2))
    return Cost("vector", count, resources.link("host", "v").cycles_for(sum(moved.values())), moved)


def _codes(*operands: Array, relu: bool) -> Array:
    """Saturated sums of codes, or the larger of code and zero."""
    if relu:
        return array(lambda *i: maximum(operands[0][i], 0), operands[0].shape)
    return array(lambda *i: sat(operands[0][i] + operands[1][i], 8), operands[0].shape)


def _declare(rank: int) -> None:
    dims = RANKS[rank]
    trials = tuple(dict(zip(dims.split(), s, strict=True)) for s in ((*(1,) * (rank - 1), 17), (3, 2, 11, 7)[:rank], (2, 3, 5, 9)[:rank]))

    def add(x: Tensor, z: Tensor) -> tuple[Tensor, Where]:
        """The sum of two tensors of one shape, all in one format."""
        return o.add(x, z), Where(x.rank == rank, x.shape == z.shape)

    def relu(x: Tensor) -> tuple[Tensor, Where]:
        """The larger of each element and zero."""
        return o.relu(x), Where(x.rank == rank)

    binary: dict[str, Any] = {"axes": f"x: {dims}; z: {dims}; y: {dims}", "formats": dict.fromkeys("xzy", int8), "shared": ("x z y",)}
    unary: dict[str, Any] = {"axes": f"x: {dims}; y: {dims}", "formats": {"x": int8}, "derived": {"y": lambda x: x}}
    for f, declared, operands in ((add, binary, 2), (relu, unary, 1)):
        operation = f.__name__
        f.__name__ = f"{operation}_{rank}"
        mapping = target.accelerates(operation=operation, whole=dims, trials=trials, **declared)(f)
        mapping.limits(partial(_limits, operands=operands, rank=rank))
        mapping.driver(partial(_drive, rank=rank, operation=operation), moves=True)
        mapping.numerics(partial(_codes, relu=operation == "relu"))
        mapping.costs(partial(_cost, operands=operands, rank=rank))


for _rank in RANKS:
    _declare(_rank)
