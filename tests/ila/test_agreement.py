"""All readings agree on random and extreme inputs of chosen instructions; `benchmarks/agreement.py` runs all of them, longer."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from house import ROOT

INSTRUCTIONS = [
    ("flexasr", "gb_control_start"),
    ("flexasr", "gb_layer_reduce_start"),
    ("flexasr", "gb_layer_norm_start"),
    ("hlscnn ext8", "vir_mem_wr"),
    ("hlscnn ext8", "accel_conv_trigger"),
    ("hlscnn ext16", "accel_conv_trigger"),
    ("hlscnn uni16", "accel_conv_trigger"),
    ("vta", "load_inp"),
    ("vta", "gemm"),
    ("vta", "store"),
    ("vta hls", "gemm"),
    ("genesys", "sa_loop_cfg"),
    ("hvx", "vmpyo_w_w_h_shl1_rnd_sat"),
]


@pytest.fixture(scope="module")
def agreement() -> Any:
    """The campaign."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("agreement")


@pytest.mark.parametrize(("model", "name"), INSTRUCTIONS)
def test_readings_agree(model: str, name: str, agreement: Any) -> None:
    ila = agreement.MODELS[model]()
    found = agreement.Campaign(ila, ila.instructions[name], samples=4, seed=11, commands=3).run(12)
    assert (found.mismatches, found.first) == (0, "")
    assert 12 <= found.inputs - found.refused < 24


def test_a_difference_is_seen(agreement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ila = agreement.MODELS["vta"]()
    campaign = agreement.Campaign(ila, ila.instructions["gemm"], samples=2, seed=11)
    right = campaign.together

    def wrong(reading: str, *given: Any) -> Any:
        found = right(reading, *given)
        return [[x ^ 1 for x in f] if reading == "native" and not isinstance(f, str) else f for f in found]

    monkeypatch.setattr(campaign, "together", wrong)
    found = campaign.run(8)
    assert found.mismatches > 0
    assert found.first.startswith("native, 2 samples: sample 0 of control state ")
