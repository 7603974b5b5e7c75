"""Repair keeps a change only when the paired interval on the samples held back says that it helps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.verbs.repair import lines
from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.cosim.metrics.loss_bound import band_of
from rewrite_compiler.cosim.metrics.metrics import PairedComparison, metric_of
from rewrite_compiler.data import samples_for
from rewrite_compiler.report.figures import interval_text
from rewrite_compiler.study.diagnosis.repair import Repair, _is_distinguishable, repair
from rewrite_compiler.study.diagnosis.trials import with_formats_of

MLP = find_application("digits_mlp")


@pytest.fixture(scope="module")
def flawed() -> Plan:
    """Return a plan with a binary point moved so far that about one sample in twelve turns."""
    plan = compile_model(MLP.model, ["vta"], calibrate=MLP.calibration)
    o = plan.offloads[0]
    f = o.formats["x"]
    moved = o.mapping.with_format(o.formats, "x", replace(f, fraction=f.parameters["fraction"] + 2))
    return with_formats_of(plan, {o.id: moved})


def repaired(plan: Plan, count: int, metric: str, within: str) -> Repair:
    data = samples_for(plan.source, MLP.data)
    return repair(plan, data.take(np.arange(count)), metric_of(metric), band_of(within))


def test_a_change_that_the_samples_tell_from_now_is_kept(flawed: Plan) -> None:
    document = repaired(flawed, 40, "cosine", "0.005").document
    chosen = next(p for p in document["proposals"] if p["what"] == document["chosen"])
    low, high = chosen["against_now"]
    assert low > 0.0
    assert high >= low
    assert (chosen["distinguishable"], document["undecided"]) == (True, None)
    text = [" ".join(line.split()) for line in lines(document)]
    assert any(line.startswith(chosen["what"][:20]) and line.endswith(interval_text((low, high))) for line in text)
    host_interval = interval_text(document["before"]["verify"]["interval"])
    assert any(line.startswith("now ") and line.endswith(f"(held back: 95% interval of the difference {host_interval})") for line in text)


def test_a_change_that_the_samples_do_not_tell_from_now_is_not(flawed: Plan) -> None:
    """Two samples of the 32 that are held back turn: the interval of two of 32 holds 0, so what turns them back is no repair."""
    found = repaired(flawed, 64, "top1", "1pt")
    undecided = found.document["undecided"]
    assert found.plan is None
    assert found.document["chosen"] is None
    proposal = next(p for p in found.document["proposals"] if p["what"] == undecided["what"])
    assert proposal["verify"]["within"]
    assert proposal["verify"]["loss"] < found.document["before"]["verify"]["loss"]
    low, high = undecided["interval"]
    assert low < 0.0 < high
    text = " ".join(" ".join(lines(found.document)).split())
    assert (
        "nothing: fraction of x of dense_0: 8 → 6 is not distinguishable from now on 32 samples (95 % interval of the difference -" in text
    )


def test_a_maximum_has_no_interval_and_so_no_repair(flawed: Plan) -> None:
    error = repaired(flawed, 16, "max-relative-error", "1000000").document["before"]["verify"]["loss"]
    found = repaired(flawed, 16, "max-relative-error", f"{error / 1.5:.9f}")
    undecided = found.document["undecided"]
    assert found.plan is None
    assert (undecided["interval"], undecided["method"]) == (None, "a maximum has no interval")


@pytest.mark.parametrize(("ends", "is_told"), [
    (None, False), ((0.2, 3.0), True), ((-3.0, -0.1), True), ((-0.5, 0.5), False), ((0.0, 2.0), False), ((-2.0, 0.0), False),
])  # fmt: skip
def test_samples_tell_a_change_where_the_interval_excludes_0(ends: tuple[float, float] | None, is_told: bool) -> None:
    assert _is_distinguishable(PairedComparison(1.0, ends, "", 1, 1, 1)) is is_told
    assert not _is_distinguishable(None)
