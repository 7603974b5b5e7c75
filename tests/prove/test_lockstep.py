"""Several runs of a driver on one device give what each gives alone; runs that part are told."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.lang import array, reduce_sum
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.prove.mappings.lockstep import DivergentRuns, evaluated_together, run_together
from rewrite_compiler.prove.mappings.mappings import code_difference
from rewrite_compiler.readings.arrays.labelled_array import Data
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.target import Mapping, Target, find_target, simulated_device

SIZES: dict[str, dict[str, Any]] = {
    "flexasr.linear_tanh": {"t": 3, "k": 33, "n": 70},
    "flexasr.lstm": {"t": 2, "s": 1, "i": 5, "g": 4 * 6, "e": 8 * 6, "h": 6},
    "vta.conv2d_bias": dict(
        zip("bncijrsuv", (1, 16, 5, 6, 7, 3, 2, 4, 6), strict=True), strides=(1, 1), pads=(0, 0, 0, 0)
    ),
}  # fmt: skip


def case(name: str) -> tuple[Target, Mapping, dict[str, Any], list[dict[str, Data]]]:
    """Return an operation with random codes of three runs."""
    target = find_target(name.split(".")[0])
    m = target.mappings[name.split(".")[1]]
    random, formats = np.random.default_rng(0), m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    shapes = {v.name: tuple(SIZES[name][d] for d in m.axes.of[v.name]) for v in m.operands}
    draws = [{n: random.integers(*formats[n].codes, shape, endpoint=True) for n, shape in shapes.items()} for _ in range(3)]  # type: ignore[arg-type]
    return target, m, {"formats": formats, "attributes": {n: SIZES[name][n] for n, _ in m.statics}}, draws


@pytest.mark.parametrize("name", SIZES)
def test_runs_together_give_what_each_gives_alone(name: str) -> None:
    target, m, given, draws = case(name)
    together = run_together(
        simulated_device(target.ila(), samples=len(draws)), [partial(m.run_driver, operands=codes, **given) for codes in draws]
    )
    for codes, found in zip(draws, together, strict=True):
        alone = m.run_driver(simulated_device(target.ila()), codes, **given)
        pairs = zip(alone, found, strict=True) if isinstance(alone, tuple) else [(alone, found)]
        assert all(np.array_equal(a, b) for a, b in pairs)
    assert any(not np.array_equal(np.asarray(together[0][0]), np.asarray(x[0])) for x in together[1:])


def test_runs_that_send_other_commands_are_apart() -> None:
    def driver(device: Any, last: int) -> None:
        for n in range(last):
            device.issue("pe0_config_act_mngr", num_inst=n)
        device.wait()

    device = simulated_device(find_target("flexasr").ila(), samples=2)
    with pytest.raises(DivergentRuns):
        run_together(device, [partial(driver, last=n) for n in (1, 2)])


def test_what_a_run_raises_is_raised() -> None:
    def driver(device: Any, last: int) -> None:
        if last:
            raise ValueError("no such buffer")
        device.load("gb_core_load_large", index=np.arange(1))

    device = simulated_device(find_target("flexasr").ila(), samples=2)
    with pytest.raises(ValueError, match=r"^no such buffer$"):
        run_together(device, [partial(driver, last=n) for n in (0, 1)])


def test_a_driver_that_reads_its_codes_is_judged_run_by_run() -> None:
    """Commands that depend on codes part the runs; the verdict is that of each run alone."""
    target, m, _, _ = case("flexasr.linear_tanh")

    def drive(device: Any, x: Data, w: Data, b: Data, f: Any) -> Any:
        for _ in range(int(x.reshape(-1)[0]) % 7):
            device.issue("pe0_config_act_mngr", num_inst=1)
        return m.drive(device, x=x, w=w, b=b, f=f)  # type: ignore[misc]

    assert code_difference(replace(m, drive=drive), target.ila(), SIZES["flexasr.linear_tanh"]) is None


def test_terms_of_all_samples_are_those_of_each() -> None:
    x, w = (Leaf((4, 3), (-8, 7), False, n) for n in "xw")
    product = array(lambda i, j: reduce_sum(lambda k: x[i, k] * w[j, k], 3), (4, 4))
    random = np.random.default_rng(0)
    given = {leaf: random.integers(-8, 8, (5, 4, 3)) for leaf in (x, w)}
    found = evaluated_together(product, given)
    assert all(np.array_equal(found[n], evaluate(product, {leaf: a[n] for leaf, a in given.items()})) for n in range(5))
    constant = array(lambda i: i * 2, (3,))
    assert evaluated_together(constant, given).tolist() == [[0, 2, 4]] * 5
