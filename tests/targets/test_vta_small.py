"""VTA with small buffers: an operation is refused by its limits, or runs in strict simulation and gives its numerics."""

from __future__ import annotations

from functools import cache

import pytest

from rewrite_compiler.fit import Refusal, tile
from rewrite_compiler.ila import Ila
from rewrite_compiler.prove.mappings.mappings import code_difference
from rewrite_compiler.target import Target, find_target

# few inputs: an ALU's source has an input's index; 16 elements of each; 8 of inputs and accumulators
DESIGNS = (
    "vta:log_inp_buffer=10",
    "vta:log_batch=2,log_inp_buffer=10,log_acc_buffer=12,log_uop_buffer=10",
    "vta:log_batch=2,log_block=5,log_inp_buffer=10,log_wgt_buffer=12,log_acc_buffer=12",
)
ON_ALU = (
    "requantise_int8_2",
    "requantise_uint8_4",
    "quantized_add_int8_2",
    "quantized_add_uint8_4",
    "add_2",
    "mul_4",
    "clip_4",
    "max_pool_int8",
)
OTHERS = ("dense_bias_relu", "dense_uint8", "conv2d_bias_relu", "conv2d_bias_int8", "depthwise_uint8")

MOST, MOST_OF_WINDOWS = 20, 1 << 10  # of a dimension: several runs, but few


@cache
def built(name: str) -> tuple[Target, Ila]:
    target = find_target(name)
    return target, target.ila()


@pytest.mark.parametrize("variant", [*ON_ALU, *OTHERS])
@pytest.mark.parametrize("design", DESIGNS)
def test_an_operation_is_refused_or_right(design: str, variant: str) -> None:
    target, ila = built(design)
    m = target.mappings[variant]
    trials = list(m.trials) or [{"t": 5, "k": 40, "n": 33}, {"t": 70, "k": 16, "n": 16}]
    for trial in trials:
        attributes = {n: trial[n] for n, _ in m.statics}
        most = MOST if m.operation == "alu" else MOST_OF_WINDOWS
        sizes = {d: min(n, most) for d, n in trial.items() if d not in attributes}
        found = tile(m, sizes, attributes)
        if isinstance(found, Refusal):
            assert str(found.limit)
            continue
        for one in {tuple(t.items()): t for t, _ in found.regions()}.values():
            assert m.exceeded_limit(one, attributes) is None
            assert code_difference(m, ila, {**one, **attributes}) is None, one
