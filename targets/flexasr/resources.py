"""FlexASR's resources: memories from the model's state; units, links and clock as data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rewrite_compiler.ila import Ila
from rewrite_compiler.target import Clock, Link, Resources, Unit, state_memory

CODES = ("adaptivfloat8",)
BANKS = 16  # of the large buffer (specification, section 2)
TRANSFER_CYCLES = 7  # of one 16-byte vector over AXI, one request outstanding (specification, section 10)


def resources(ila: Ila, parameters: Mapping[str, str]) -> Resources:
    """Return the architecture graph: the global buffer, four processing elements of a 16 × 16 core, one AXI port."""
    elements = int(ila.states["weight"].leaf.shape[0])  # type: ignore[arg-type]
    lanes = int(ila.states["large"].leaf.shape[1])  # type: ignore[arg-type]
    axi = partial(Link, width_bytes=lanes, cycles=TRANSFER_CYCLES, port="AXI")
    return Resources(
        Clock(500_000_000, "assumed: the specification gives cycles, no frequency"),
        (
            state_memory(ila, "large", "depth lane", banks=BANKS),
            state_memory(ila, "small", "depth lane"),
            state_memory(ila, "weight", "instance depth lane"),
            state_memory(ila, "input_buffer", "instance depth lane"),
            state_memory(ila, "act_buffer", "instance depth lane"),
        ),
        (
            Unit("core", ("linear", "matmul", "lstm", "gru", "rnn"), CODES, {"n": lanes, "k": lanes}, elements),
            Unit("activation", ("relu", "sigmoid", "tanh", "add", "mul"), ("fixed20",), {"n": lanes}, elements),
            Unit("global", ("layer_norm", "max_pool", "mean_pool", "attention"), CODES, {"n": lanes}),
        ),
        (
            *(axi("host", name) for name in ("large", "small", "weight", "input_buffer", "act_buffer")),
            axi("large", "host"),
            axi("act_buffer", "host"),
            Link("large", "core", lanes),
            Link("core", "large", lanes),
        ),
        ("one AXI port takes all transfers, one after the other",),
    )
