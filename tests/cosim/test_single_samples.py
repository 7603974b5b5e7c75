"""One sample on the simulator: single instructions as machine code, blocks by numpy, with the bits of the oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rewrite_compiler.apps.digits import data as digits
from rewrite_compiler.compile import calibrated, compile_model
from rewrite_compiler.cosim.cosimulate import dataset_for
from rewrite_compiler.cosim.engine import Engine
from rewrite_compiler.data import samples_for
from rewrite_compiler.ila.simulation.simulator import _Executable
from rewrite_compiler.ila_models import flexasr
from rewrite_compiler.target import simulated_device

FOLDER = Path(digits.__file__).parent


@pytest.mark.parametrize(("model", "accel"), [("mlp", "flexasr"), ("cnn", "hlscnn"), ("mlp", "vta")])
def test_a_sample_gives_the_bits_of_the_oracle(model: str, accel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_model(FOLDER / f"{model}.onnx", [accel])
    plan = calibrated(plan, samples_for(plan.source, FOLDER / "calibration.npz").inputs, "calibration.npz")  # no law of scaling is judged
    data = dataset_for(plan, FOLDER / "test.npz")
    take = lambda part: data.rows(part).inputs  # noqa: E731
    oracle, arrays = (
        Engine(plan, reading=r, compared=0, engine="simulator", audit=0).batch(take, slice(7, 8)).outputs for r in ("oracle", "arrays")
    )
    monkeypatch.setattr(_Executable, "_arrays", lambda *_: pytest.fail("an instruction without machine code"))
    found = Engine(plan, reading="native", compared=0, engine="simulator", audit=0).batch(take, slice(7, 8))
    assert not found.host_batching
    for name, x in found.outputs.items():
        np.testing.assert_array_equal(x, oracle[name])
        np.testing.assert_array_equal(x, arrays[name])


def test_a_device_of_one_sample_has_no_sample_axis() -> None:
    m = flexasr.build()
    rows = np.random.default_rng(5).integers(0, 256, (7, 16))
    device = simulated_device(m, reading="native", samples=1)
    device.store("gb_core_store_large", index=np.arange(7), vector=rows[None])
    assert device.load("gb_core_load_large", index=np.arange(7)).tolist() == [rows.tolist()]
    assert device.sim.state("large").shape == m.states["large"].leaf.shape
