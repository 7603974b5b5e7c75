"""The same run on a cluster: same bytes in the report, refusals as sentences."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

import flexmatch
from rewrite_compiler.cosim import Settings
from rewrite_compiler.cosim.cluster import connect
from rewrite_compiler.errors import FlexmatchError, InputError, UsageError
from rewrite_compiler.study.designs.sweep import axes_of, sweep
from rewrite_compiler.target import find_target

DIGITS = Path(__file__).parents[2] / "apps" / "digits"
CALIBRATION, DATA = DIGITS / "calibration.npz", DIGITS / "test.npz"

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Two worker processes on this machine."""
    with workers(2) as started:
        yield started.scheduler_address


def workers(count: int) -> Any:
    """Start worker processes on this machine."""
    return LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=logging.CRITICAL)


def without_run(document: Any) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k != "run"}


def test_a_cosimulation_on_workers_has_the_same_report(address: str) -> None:
    plan = flexmatch.compile(DIGITS / "mlp.onnx", ["flexasr"], calibrate=CALIBRATION)
    here = flexmatch.cosimulate(plan, DATA, settings=Settings(samples=20, batch=4))
    there = flexmatch.cosimulate(plan, DATA, settings=Settings(samples=20, batch=4, scheduler=address))
    assert without_run(there.document) == without_run(here.document)
    assert there.document["run"]["scheduler"] == address
    assert there.document["run"]["cpu_seconds_per_sample"] is None
    for name, expected in here.accelerated.items():
        assert there.accelerated[name].tobytes() == expected.tobytes()


def test_a_sweep_over_sets_of_accelerators_on_workers_has_the_same_rows(address: str) -> None:
    targets = [find_target("flexasr"), find_target("hlscnn")]
    axes = axes_of(["accel=flexasr,flexasr+hlscnn"], targets)
    settings = Settings(samples=8)
    here = sweep(DIGITS / "cnn.onnx", targets, DATA, axes, calibrate=CALIBRATION, settings=settings)
    there = sweep(DIGITS / "cnn.onnx", targets, DATA, axes, calibrate=CALIBRATION, settings=Settings(samples=8, scheduler=address))
    assert without_run(there) == without_run(here)
    assert [p["at"] for p in here["points"]] == [{"accel": "flexasr"}, {"accel": "flexasr+hlscnn"}]
    assert here["points"][0]["counts"].keys() == {"flexasr"}
    assert here["points"][1]["counts"].keys() == {"flexasr", "hlscnn"}


def refuses(n: int) -> int:
    """Refuse one item, as work on a worker may."""
    if n == 2:
        raise InputError("C100", "Sample must be finite", place="some.npz", help="remove it")
    return n


def breaks(n: int) -> int:
    """Fail as no work of ours does."""
    return 1 // (n - 2)


def test_refusals_come_back_from_workers(address: str) -> None:
    with connect(address) as cluster:
        found = cluster.map(refuses, range(4))
        assert [next(found), next(found)] == [0, 1]
        with pytest.raises(InputError) as caught:
            next(found)
        assert str(caught.value) == "some.npz: error[C100]: Sample must be finite\n  help: remove it"
        with pytest.raises(InputError) as caught:
            list(cluster.map(breaks, range(4)))
    sentence = "a worker failed: ZeroDivisionError: integer division or modulo by zero"
    assert str(caught.value) == f"{address}: error[C109]: {sentence}\n  help: look at the workers' logs; finished samples are kept"


def test_a_worker_refuses_a_plan_that_is_not_its_own(address: str, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes((DIGITS / "mlp.onnx").read_bytes())
    plan = flexmatch.compile(model, ["flexasr"], calibrate=CALIBRATION)
    model.write_bytes((DIGITS / "cnn.onnx").read_bytes())
    with pytest.raises(InputError) as caught:
        flexmatch.cosimulate(plan, DATA, settings=Settings(samples=16, batch=8, scheduler=address))
    assert caught.value.problem.sentence == f"{model} is not the model the plan was made of: its sha256 differs"


def test_no_scheduler_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.cosim.cluster.CONNECT_SECONDS", 1)
    with pytest.raises(UsageError) as caught, connect("tcp://127.0.0.1:9"):
        pass
    assert caught.value.problem.code == "C109"
    assert caught.value.problem.sentence.startswith("no scheduler answers: ")
    assert caught.value.problem.place == "tcp://127.0.0.1:9"


def test_no_address() -> None:
    with pytest.raises(UsageError) as caught, connect("nonsense://x"):
        pass
    assert caught.value.problem.code == "C109"


@pytest.mark.parametrize("kind", [InputError, UsageError, FlexmatchError])
def test_refusals_travel(kind: type[FlexmatchError]) -> None:
    sent = kind("F100", "Subject must be so, not «1»", place="a:3", help="do it")
    got = pickle.loads(pickle.dumps(sent))
    assert (type(got), got.problem, str(got)) == (kind, sent.problem, str(sent))
