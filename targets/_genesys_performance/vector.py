"""GeneSys's SIMD array: the cycles, stalls and accesses of element-wise layers and pools."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rewrite_compiler.errors import SpecError

from .design import Design
from .systolic import Costs, padded

STAGES = 6
DIVISION = 9  # cycles of a division: an average pool ends with one
ELEMENTWISE, POOLS = ("relu", "elem_add"), ("max_pool", "global_avg_pool")


@dataclass(frozen=True)
class VectorLayer:
    """An element-wise layer or a pool: channels, kernel, outputs."""

    op: str
    channels: int
    oh: int
    ow: int
    kh: int = 1
    kw: int = 1
    stride: int = 1

    @staticmethod
    def of(layer: Mapping[str, object]) -> VectorLayer:
        """Return the layer of a table's row.

        Raises:
            SpecError: I102, there is no such operator, or a size is not a positive integer.
        """
        op = str(layer["op"])
        if op not in (*ELEMENTWISE, *POOLS):
            known = ", ".join(("conv", "gemm", *ELEMENTWISE, *POOLS, "coarse_flatten"))
            raise SpecError("I102", f'the performance model has no operator "{op}"', help=f"known: {known}")
        names = {"c": "channels", "h": "oh", "w": "ow"}
        sizes = {name: value for name, value in layer.items() if name != "op"}
        for name, value in sizes.items():
            if not isinstance(value, int) or value < 1:
                raise SpecError("I102", f"{name} of a {op} layer must be a positive integer, not {value}")
        return VectorLayer(op, **{names.get(name, name): value for name, value in sizes.items()})  # type: ignore[arg-type]

    @property
    def operands(self) -> int:
        """Tensors that an output reads."""
        return 2 if self.op == "elem_add" else 1

    @property
    def averages(self) -> bool:
        """Whether every output ends with a division."""
        return self.op == "global_avg_pool"

    def inputs(self, oh: float, ow: float) -> float:
        """Return the positions of inputs that so many outputs need."""
        return ((oh - 1) * self.stride + self.kh) * ((ow - 1) * self.stride + self.kw)


def vector_costs(d: Design, layer: VectorLayer, feeds_systolic: bool) -> Costs:
    """Return the costs of a layer; results are as narrow as inputs of the systolic array where they go there."""
    channels, out_bits = padded(layer.channels, d.columns), d.input_bits if feeds_systolic else d.sum_bits
    oh, ow, tile_channels = _tile(d, layer, channels)
    blocks = tile_channels / d.columns
    tiles = (layer.oh / oh) * (layer.ow / ow) * (channels / tile_channels)
    steps = oh * ow * blocks * layer.kh * layer.kw
    divisions = oh * ow * blocks if layer.averages else 0
    cycles = steps + DIVISION * divisions
    load = math.ceil(layer.inputs(oh, ow) * tile_channels * d.sum_bits / d.vector_port)
    store = math.ceil(oh * ow * tile_channels * out_bits / d.vector_port)
    outputs = channels * layer.oh * layer.ow
    costs: Costs = {
        "SIMD compute": math.ceil((cycles + STAGES - 1 + d.columns - 1) * tiles),
        "SIMD stall": (layer.operands * load + store) * tiles,
        "ops": outputs * layer.kh * layer.kw + (DIVISION * outputs if layer.averages else 0),
        "DRAM ifmap": layer.operands * layer.inputs(oh, ow) * tile_channels * tiles * d.sum_bits,
        "DRAM ofmap": oh * ow * tile_channels * tiles * out_bits,
        "InsMem": 32 * math.ceil((steps + divisions) * tiles),
        "VMEM": _vector_accesses(d, layer, outputs, out_bits),
    }
    if layer.op == "relu":
        costs["IMM"] = layer.oh * layer.ow * math.ceil(blocks) * (channels / tile_channels) * d.sum_bits
    return costs


def _vector_accesses(d: Design, layer: VectorLayer, outputs: int, out_bits: int) -> int:
    if layer.op in ELEMENTWISE:
        return (layer.operands * d.sum_bits + out_bits) * outputs
    reads = outputs * layer.kh * layer.kw
    pool = 2 * reads * d.sum_bits + (reads - outputs) * d.sum_bits + outputs * out_bits
    return pool + (3 * outputs * d.sum_bits if layer.averages else 0)


def _tile(d: Design, layer: VectorLayer, channels: int) -> tuple[int, int, int]:
    """Return rows, columns and channels of the published tile: the first equal part that fits, then as many channels as fit."""
    for part in range(1, max(layer.oh, layer.ow) + 1):
        if layer.oh % part or layer.ow % part:
            continue
        oh, ow = layer.oh // part, layer.ow // part
        most = int(d.vector_room / (layer.inputs(oh, ow) * d.sum_bits))
        if most >= d.columns:
            return oh, ow, min(most, channels) // d.columns * d.columns
    sizes = f"{layer.oh} × {layer.ow} outputs of a {layer.kh} × {layer.kw} {layer.op}"
    raise SpecError("I114", f"no equal part of {sizes} fits the vector memory of {d.vector_room} bits")
