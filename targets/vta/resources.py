"""VTA's resources: buffers from the model's state; the tensor unit, its vector unit, DRAM and clock as data."""

from __future__ import annotations

from collections.abc import Mapping

from rewrite_compiler.ila import Ila
from rewrite_compiler.target import Clock, Link, Resources, Unit, state_memory

PORT_BYTES = 8  # of the memory port, a 64-bit AXI bus
UOPS = 2  # micro-ops in one word of the port


def resources(ila: Ila, parameters: Mapping[str, str]) -> Resources:
    """Return the architecture graph: four buffers, the GEMM core, the ALU, one memory port."""
    (_, block, inner), batch = (int(n) for n in ila.states["wgt"].leaf.shape), int(ila.states["inp"].leaf.shape[1])  # type: ignore[arg-type]
    sorts = {"inp": "depth lane lane", "wgt": "depth lane lane", "acc": "depth lane lane", "uop": "depth"}
    return Resources(
        Clock(100_000_000, "assumed: the specification gives no frequency"),
        tuple(state_memory(ila, name, axes) for name, axes in sorts.items()),
        (
            Unit("gemm", ("dense", "matmul", "conv2d"), ("int8",), {"t": batch, "n": block, "k": inner}, packs={"k": UOPS * inner}),
            Unit("alu", ("min", "max", "add", "mul", "shift"), ("int32",), {"t": batch, "n": block}),
        ),
        (*(Link("host", name, PORT_BYTES, port="DRAM") for name in sorts), Link("acc", "host", PORT_BYTES, port="DRAM")),
        ("host: the DRAM that both share; loads, stores and micro-ops take one port, one after the other",),
    )
