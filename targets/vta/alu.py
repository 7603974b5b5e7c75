"""VTA's elementwise operations: accumulators loaded from int8 codes, one ALU instruction over all of them, results stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

from rewrite_compiler import Tensor, Where
from rewrite_compiler import ops as o
from rewrite_compiler.ila_models.vta.config import ENCODINGS, Config
from rewrite_compiler.ila_models.vta.fields import MUL
from rewrite_compiler.lang import Array, Expr, Fixed, array, maximum, minimum
from rewrite_compiler.rewrite import Float
from rewrite_compiler.target import Cost, Levels, Limit, Resources, StreamedDevice, pad_axis, split_bytes
from rewrite_compiler.target import Mapping as Operation

from .base import UOP_BYTES, Codes, accumulator, config, elements, int8, micro_ops, no_rooms, target
from .results import Region, fetch_words, grid, planes, store_bytes

RANKS = {2: "a b", 4: "a b c d"}  # matrices and images
INT8 = (-128, 127)
INSTRUCTION_BYTES = 16


@dataclass(frozen=True)
class Sweep:
    """Elementwise work on so many accumulator elements, cut into runs that the buffer holds; where its parts lie in DRAM."""

    design: Config
    operands: int
    count: int
    result_bytes: int

    @property
    def run(self) -> int:
        """Elements of the largest run: a micro-op must reach the second operand, a loop all of them."""
        c = self.design
        return min(c.depth("acc") // self.operands, max(c.depth("inp") - 1, 1), self.count)

    @property
    def runs(self) -> list[range]:
        """The elements of every run."""
        return [range(at, min(at + self.run, self.count)) for at in range(0, self.count, self.run)]

    @property
    def places(self) -> dict[str, int]:
        """The first byte of the operands, of the results and of the two micro-ops, and the end."""
        c = self.design
        word, byte = c.scalars("acc") * planes(c), c.scalars("inp")
        out = self.operands * self.count * word
        uop = elements(out + self.result_bytes * self.count * byte, UOP_BYTES) * UOP_BYTES
        return {"acc": 0, "out": out, "uop": uop, "end": uop + 2 * UOP_BYTES}


Steps = Callable[[Mapping[str, Fixed], Mapping[str, Any]], list[tuple[str, int | None]]]  # ALU operations, each with its immediate


def _drive(
    device: StreamedDevice, *, rank: int, steps: Steps, result_bytes: int, f: Mapping[str, Fixed], p: Mapping[str, str], **attributes: Any
) -> Codes:
    """Emit the operations on x and, where there is one, z [(samples,) …] of one shape; return the result codes."""
    operands = [attributes[n] for n in ("x", "z") if n in attributes]
    shape, c = operands[0].shape[operands[0].ndim - rank :], config(p)
    size = math.prod(shape)
    m = Sweep(c, len(operands), elements(size, c.scalars("acc")), result_bytes)
    device.attach("dram", m.places["end"])
    for n, x in enumerate(operands):
        words = pad_axis(x.reshape(*x.shape[: x.ndim - rank], -1), -1, m.count * c.scalars("acc"))
        device.place("dram", n * m.count * c.scalars("acc") * planes(c), split_bytes(words, planes(c)))
    lengths = sorted({len(run) for run in m.runs})
    device.place("dram", m.places["uop"], micro_ops(c.micro_op(0, n * (m.operands - 1)) for n in lengths))
    program = steps(f, attributes)
    for run in m.runs:
        _run(device, m, run, lengths.index(len(run)), program)
    results = fetch_words(device, c, m.places["out"], m.count, result_bytes)
    return results[..., :size].reshape(*results.shape[:-1], *shape)


def _run(device: StreamedDevice, m: Sweep, run: range, uop: int, steps: list[tuple[str, int | None]]) -> None:
    """Load the operands of some elements, work on them, store them."""
    c, loops = m.design, grid(1, len(run))
    device.issue("load_uop", dram_base=m.places["uop"] // UOP_BYTES + uop, y_size=1, x_size=1)
    for n in range(m.operands):
        device.issue("load_acc", sram_base=n * len(run), dram_base=n * m.count + run.start, y_size=1, x_size=len(run))
    for n, (name, immediate) in enumerate(steps):
        source = {"src_factor_in": int(len(run) > 1)} if immediate is None else {"use_imm": 1, "imm": immediate}
        device.issue(name, uop_end=1, **loops, **source, push_next=int(n == len(steps) - 1))
    first = m.places["out"] // c.scalars("inp") + run.start
    store_bytes(device, c, Region(1, len(run), first, 0), loops, m.count, m.result_bytes)
    device.wait()


def _cost(*, rank: int, operands: int, steps: int, result_bytes: int, p: Mapping[str, str], resources: Resources, **sizes: Any) -> Cost:
    """Words of four bytes in, the bytes that results need out; a step of the ALU for each element and operation."""
    c = config(p)
    size = math.prod(sizes[d] for d in RANKS[rank].split())
    m = Sweep(c, operands, elements(size, c.scalars("acc")), result_bytes)
    instructions = len(m.runs) * (1 + operands + steps + 2 * result_bytes)
    bytes_moved = {n: m.count * c.scalars("acc") * planes(c) for n in ("x", "z")[:operands]}
    bytes_moved |= {"y": m.count * c.scalars("inp") * result_bytes, "commands": len(m.runs) * UOP_BYTES + instructions * INSTRUCTION_BYTES}
    cycles = m.count * (steps + result_bytes - 1)
    return Cost("alu", cycles, resources.link("host", "wgt").cycles_for(sum(bytes_moved.values())), bytes_moved)


def _levels(*, rank: int, operands: int, steps: int, result_bytes: int, p: Mapping[str, str], **sizes: Any) -> Levels:
    """Operands are loaded into accumulators; a step reads its destination, and a second operand, and writes the destination."""
    c = config(p)
    size = math.prod(sizes[d] for d in RANKS[rank].split())
    operand_bytes = elements(size, c.scalars("acc")) * c.scalars("acc") * planes(c)
    swept = steps + result_bytes - 1
    second = {"z": (operand_bytes, operand_bytes)} if operands > 1 else {}
    return {"acc": {"x": (0, operand_bytes), **second, "y": (operand_bytes * (swept + result_bytes), operand_bytes * swept)}}


# -- the mappings: one a rank


@dataclass(frozen=True)
class Kind:
    """One elementwise operation: its meaning, formats, the bytes of a result, the instructions, and what they do to an element."""

    meaning: FunctionType
    axes: str
    derived: Mapping[str, Callable[..., Fixed]]
    result_bytes: int
    shared: tuple[str, ...]
    steps: Steps
    element: Callable[..., Expr]


def _same(x: Fixed) -> Fixed:
    return x


def _wide(x: Fixed) -> Fixed:
    return Fixed(32, x.fraction)


def run_limits(p: Mapping[str, str], element_count: int, words: int) -> Iterator[Limit]:
    """Capacities of the shortest run: the accumulator elements that it holds and names as sources, and its micro-ops."""
    c = config(p)
    yield Limit("accumulator elements of a run", element_count, c.depth("acc"))
    yield Limit("input elements, as many accumulator elements as a micro-op reaches", element_count, c.depth("inp"))
    yield Limit("micro-ops of a run", words, c.depth("uop"))


def _limits(p: Mapping[str, str], *, operands: int, multiplies: bool) -> Iterator[Limit]:
    """What a design cannot do: HLS ignores MUL, older encodings have no opcode for it."""
    yield from run_limits(p, operands, 1)
    yield Limit("multiplications of the ALU", int(multiplies and not has_multiplication(p)), 0)


def reach(c: Config) -> int:
    """Return how many accumulator elements a micro-op can name as destination and as source: its source has an input's index."""
    return min(c.depth("acc"), c.depth("inp"))


def has_multiplication(p: Mapping[str, str]) -> bool:
    """Tell whether a design's ALU multiplies."""
    return p["behaviour"] != "hls" and MUL >> ENCODINGS[p["encoding"]][1] == 0


def _codes(function: Callable[..., Expr]) -> Callable[..., Array]:
    """Return the numerics of a function of elements, formats and attributes."""

    def codes(*operands: Array, f: Mapping[str, Fixed], **attributes: Any) -> Array:
        return array(lambda *i: function(*(a[i] for a in operands), f=f, attributes=attributes), operands[0].shape)

    return codes


def _bounds(f: Mapping[str, Fixed], attributes: Mapping[str, Any]) -> tuple[int, int]:
    """Return the codes nearest to the bounds of a clip; an open one bounds nothing."""

    def code(bound: float) -> int:
        return round(min(max(bound * 2.0 ** f["x"].fraction, INT8[0]), INT8[1]))

    return code(attributes["low"]), code(attributes["high"])


def _declare(rank: int) -> None:
    dims = RANKS[rank]
    binary_axes, unary_axes = f"x: {dims}; z: {dims}; y: {dims}", f"x: {dims}; y: {dims}"

    def add(x: Tensor, z: Tensor) -> tuple[Tensor, Where]:
        """The sum of two tensors of one shape."""
        return o.add(x, z), Where(x.rank == rank, x.shape == z.shape)

    def mul(x: Tensor, z: Tensor) -> tuple[Tensor, Where]:
        """The product of two tensors of one shape."""
        return o.mul(x, z), Where(x.rank == rank, x.shape == z.shape)

    def relu(x: Tensor) -> tuple[Tensor, Where]:
        """The larger of each element and zero."""
        return o.relu(x), Where(x.rank == rank)

    def clip(x: Tensor, low: Float, high: Float) -> tuple[Tensor, Where]:
        """Each element limited to the codes nearest to two bounds."""
        return o.clip(x, low=low, high=high), Where(x.rank == rank)

    for kind in (
        Kind(function(add), binary_axes, {"y": _wide}, 2, ("x z",), lambda f, g: [("alu_add", None)], lambda x, z, f, attributes: x + z),
        Kind(function(mul), binary_axes, {"y": accumulator_of}, 2, (), lambda f, g: [("alu_mul", None)], lambda x, z, f, attributes: x * z),
        Kind(function(relu), unary_axes, {"y": _same}, 1, (), lambda f, g: [("alu_max", 0)], lambda x, f, attributes: maximum(x, 0)),
        Kind(function(clip), unary_axes, {"y": _same}, 1, (), _clipped, _clip_code),
    ):
        _register(kind, rank, dims)


def function(f: Callable[..., Any]) -> FunctionType:
    """Return a function that is to be named."""
    assert isinstance(f, FunctionType)
    return f


def _register(kind: Kind, rank: int, dims: str) -> None:
    multiplies, clips = kind.meaning.__name__ == "mul", kind.meaning.__name__ == "clip"
    kind.meaning.__name__ = f"{kind.meaning.__name__}_{rank}"
    inputs = {n: int8 for n in ("x", "z") if f"{n}:" in kind.axes}
    sizes = ((*(1,) * (rank - 1), 17), (3, 2, 5, 7)[:rank], (*(1,) * (rank - 1), 40_000))
    bounds = {"low": -0.25, "high": 3.0} if clips else {}
    trials = tuple({**dict(zip(dims.split(), s, strict=True)), **bounds} for s in sizes)
    mapping: Operation = target.accelerates(
        axes=kind.axes, formats=inputs, derived=kind.derived, operation="alu", whole=dims, shared=kind.shared, trials=trials
    )(kind.meaning)
    mapping.limits(partial(_limits, operands=len(inputs), multiplies=multiplies))
    mapping.driver(partial(_drive, rank=rank, steps=kind.steps, result_bytes=kind.result_bytes))
    mapping.numerics(_codes(kind.element))
    mapping.costs(partial(_cost, rank=rank, operands=len(inputs), steps=1 + clips, result_bytes=kind.result_bytes))
    mapping.residency(no_rooms)
    mapping.levels(partial(_levels, rank=rank, operands=len(inputs), steps=1 + clips, result_bytes=kind.result_bytes))


def accumulator_of(x: Fixed, z: Fixed) -> Fixed:
    """Return the format of products."""
    return accumulator(x, z)


def _clipped(f: Mapping[str, Fixed], attributes: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    low, high = _bounds(f, attributes)
    return [("alu_max", low), ("alu_min", high)]


def _clip_code(x: Expr, f: Mapping[str, Fixed], attributes: Mapping[str, Any]) -> Expr:
    low, high = _bounds(f, attributes)
    return minimum(maximum(x, low), high)


for _rank in RANKS:
    _declare(_rank)
