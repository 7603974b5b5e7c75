"""VTA's costs, estimated from its units and its memory port: one GEMM or ALU step a cycle, loads and stores in turn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rewrite_compiler.target import Cost, Resources

from .base import UOP_BYTES, config, elements
from .dense import dense, dense_bias, dense_bias_relu, dense_relu

INSTRUCTION_BYTES = 16
BYTE = 8


def dense_cost(t: int, k: int, n: int, p: Mapping[str, str], resources: Resources, *, bias: bool, relu: bool) -> Cost:
    """One product: the accumulators start at zero or at the bias; one byte of them is stored at a time."""
    c = config(p)
    rows, inner, columns = elements(t, c.batch), elements(k, c.block), elements(n, c.block)
    results, planes = rows * columns, c.width("acc") // BYTE
    moved = {
        "x": rows * inner * c.scalars("inp"), "w": columns * inner * c.scalars("wgt"), "y": planes * results * c.scalars("acc"),
        "commands": UOP_BYTES * inner + INSTRUCTION_BYTES * (6 + 2 * (planes - 1) + int(relu) + 1),
    }  # fmt: skip
    if bias:
        moved["b"] = results * c.scalars("acc") * planes  # read again for every row
    steps = results * inner + results * (planes - 1 + int(relu) + int(not bias))
    return Cost("gemm", steps, resources.link("host", "wgt").cycles_for(sum(moved.values())), moved)


for mapping, has_bias, has_relu in (
    (dense, False, False),
    (dense_relu, False, True),
    (dense_bias, True, False),
    (dense_bias_relu, True, True),
):
    mapping.costs(partial(dense_cost, bias=has_bias, relu=has_relu))
