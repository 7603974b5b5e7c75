"""The reference run: once for a model, its data and this machine."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flexmatch
from rewrite_compiler.compile import Plan
from rewrite_compiler.cosim import Settings
from rewrite_compiler.cosim.cosimulate import dataset_for
from rewrite_compiler.cosim.metrics import float_reference as reference
from rewrite_compiler.cosim.metrics.float_reference import CachedReference, Reference
from rewrite_compiler.disk_cache import DiskCache, private_cache_folder
from rewrite_compiler.errors import InputError
from rewrite_compiler.frontend.graph.emit import to_onnx

DIGITS = Path(__file__).parents[2] / "apps" / "digits"
DATA = DIGITS / "test.npz"


@pytest.fixture(scope="module")
def plan() -> Plan:
    made: Plan = flexmatch.compile(DIGITS / "mlp.onnx", ["flexasr"], calibrate=DIGITS / "calibration.npz")
    return made


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    return tmp_path


def outcome(plan: Plan, **settings: Any) -> tuple[dict[str, Any], bool]:
    document = dict(flexmatch.cosimulate(plan, DATA, settings=Settings(**settings)).document)
    run = document.pop("run")
    assert run["reference_cpu_seconds_per_sample"] > 0
    return document, run["reference_kept"]


def test_the_second_run_takes_the_outputs_of_the_first(plan: Plan, cache: Path) -> None:
    first = outcome(plan, samples=12, batch=4)
    second = outcome(plan, samples=12, batch=4)
    assert first == (second[0], False)
    assert second[1]


def test_the_reference_runs_beside_where_there_are_threads(plan: Plan, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    right = Reference.run

    def run(self: Reference, inputs: Any) -> Any:
        threads.add(threading.current_thread())
        return right(self, inputs)

    monkeypatch.setattr(Reference, "run", run)
    documents = []
    for n in (1, 2):
        monkeypatch.setenv("FLEXMATCH_CACHE", str(cache / str(n)))
        documents.append(outcome(plan, samples=12, batch=4, threads=n)[0])
        assert (threads == {threading.main_thread()}) is (n == 1)
        threads.clear()
    assert documents[0] == documents[1]


def test_a_reference_that_fails_beside_names_the_sample(plan: Plan, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Reference, inputs: Any) -> Any:
        raise InputError("F160", "no")

    monkeypatch.setattr(Reference, "run", run)
    with pytest.raises(InputError, match=r"test\.npz: sample 0: error\[F160\]: no"):
        outcome(plan, samples=12, batch=4, threads=2)


@pytest.mark.parametrize("other", [{"samples": 8, "batch": 4}, {"samples": 12, "batch": 6}], ids=str)
def test_other_samples_and_batches_are_other_runs(plan: Plan, cache: Path, other: dict[str, int]) -> None:
    outcome(plan, samples=12, batch=4)
    assert not outcome(plan, **other)[1]


def test_other_data_are_another_run(plan: Plan, cache: Path) -> None:
    outcome(plan, samples=8)
    document = flexmatch.cosimulate(plan, DIGITS / "calibration.npz", settings=Settings(samples=8)).document
    assert not document["run"]["reference_kept"]


def test_what_another_emitter_gives_the_host_is_another_run(plan: Plan, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome(plan, samples=8)
    monkeypatch.setattr(reference, "to_onnx", lambda p: to_onnx(p) + b"\0")
    assert not outcome(plan, samples=8)[1]


def test_a_damaged_entry_is_made_again(plan: Plan, cache: Path) -> None:
    first = outcome(plan, samples=8)
    (entry,) = (cache / "reference").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    assert outcome(plan, samples=8) == first
    assert outcome(plan, samples=8)[1]


def test_large_outputs_are_not_kept(plan: Plan, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MOST_BYTES", 100)
    outcome(plan, samples=8)
    assert not outcome(plan, samples=8)[1]
    assert not list((cache / "reference").iterdir())


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """The digits with their labels as true values, one token a sample, which perplexity scores."""
    with np.load(DATA) as data:
        arrays = {name: data[name] for name in data.files}
    file = tmp_path / "tokens.npz"
    np.savez(file, **{**arrays, "targets": arrays.pop("labels")[:, None]})  # type: ignore[arg-type]
    return file


def perplexity(plan: Plan, data: Path, **settings: Any) -> tuple[dict[str, Any], bool]:
    chosen = Settings(**{"metric": "perplexity", "samples": 12, "batch": 4, "keep_outputs": False, **settings})
    document = dict(flexmatch.cosimulate(plan, data, settings=chosen).document)
    return document, document.pop("run")["reference_kept"]


def test_of_large_outputs_the_scores_are_cached(plan: Plan, cache: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MOST_BYTES", 100)
    first = perplexity(plan, tokens)
    monkeypatch.setattr(Reference, "run", None)
    assert perplexity(plan, tokens) == (first[0], True)
    assert first[0]["reference"]["value"] != first[0]["accelerated"]["value"]


@pytest.mark.parametrize("change", ["metric", "outputs", "data", "samples"])
def test_cached_scores_are_those_of_one_metric_and_one_data_set(
    plan: Plan, cache: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(reference, "MOST_BYTES", 100)
    perplexity(plan, tokens)
    if change == "data":
        with np.load(tokens) as data:
            arrays = {name: data[name] for name in data.files}
        np.savez(tokens, **{**arrays, "targets": (arrays["targets"] + 1) % 10})  # type: ignore[arg-type]
    other: dict[str, dict[str, Any]] = {
        "metric": {"metric": "token-error-rate"}, "outputs": {"keep_outputs": True}, "data": {}, "samples": {"samples": 8},
    }  # fmt: skip
    assert not perplexity(plan, tokens, **other[change])[1]


def test_a_metric_that_compares_with_the_reference_runs_it(plan: Plan, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MOST_BYTES", 100)
    for _ in range(2):
        assert not outcome(plan, samples=8, metric="mse", keep_outputs=False)[1]


def test_the_outputs_are_the_bits_of_a_run(plan: Plan, cache: Path) -> None:
    data = dataset_for(plan, DATA).evenly(10)
    parts = [slice(0, 4), slice(4, 8), slice(8, 10)]
    live = Reference(plan.source, data.rows(parts[0]).inputs)
    expected = [live.run(data.rows(p).inputs) for p in parts]
    for is_kept in (False, True):
        run = CachedReference(plan, data, 4)
        assert run.is_cached is is_kept
        found = [run.run(p) for p in parts]
        assert all(np.array_equal(a[n], b[n]) for a, b in zip(found, expected, strict=True) for n in b)
    assert DiskCache(private_cache_folder("reference")).get("nothing") is None
