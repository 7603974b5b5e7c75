"""A value that an operand of an instruction cannot hold is named, whichever device a driver talks to."""

from __future__ import annotations

import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila_models import flexasr
from rewrite_compiler.target.device import simulated_device


@pytest.mark.parametrize("bias", [-1, 8, 9])
@pytest.mark.parametrize("reading", ["oracle", "arrays"])
def test_a_bias_outside_of_its_field_is_named(bias: int, reading: str) -> None:
    device = simulated_device(flexasr.build(), reading=reading)
    with pytest.raises(SpecError) as refused:
        device.issue("pe0_config_mem_mngr_first", adpfloat_bias_w=bias)
    sentence = f"operand adpfloat_bias_w of pe0_config_mem_mngr_first must be in 0…7, not {bias}"
    assert (refused.value.problem.code, refused.value.problem.sentence) == ("I102", sentence)
