"""Metrics: their values, pairs of runs, and intervals that hold what they say."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.cosim.metrics.loss_bound import band_of
from rewrite_compiler.cosim.metrics.metrics import METRICS, NORMAL_95, TruthSource, compare_paired, metric_of, truth_for
from rewrite_compiler.cosim.metrics.paired_test import difference_of_proportions, exact_difference, mcnemar
from rewrite_compiler.cosim.metrics.scores import Scores, concatenated_scores
from rewrite_compiler.cosim.metrics.scoring import score_samples
from rewrite_compiler.cosim.metrics.separation import roc_area, separation
from rewrite_compiler.data import load_data
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.load import load
from rewrite_compiler.hostrun import reference
from rewrite_compiler.ir.types import TensorType


def value(name: str, outputs: Any, truth: Any) -> float:
    metric = METRICS[name]
    return metric.value(metric.score(np.asarray(outputs), np.asarray(truth)))


LOGITS = np.array([[0.1, 0.7, 0.2], [0.3, 0.3, 0.1], [0.0, 0.1, 0.9], [np.nan, 0.5, 0.1]])


def test_top_k_counts_the_first_of_equal_classes() -> None:
    assert value("top1", LOGITS[:3], [1, 0, 2]) == 1
    assert value("top1", LOGITS[:3], [1, 1, 2]) == pytest.approx(2 / 3)
    assert value("top1", LOGITS[:, None], [1, 0, 2, 1]) == 0.75  # a NaN among the logits is never right
    ranked = np.arange(10.0)[None].repeat(10, axis=0)
    assert value("top5", ranked, range(10)) == 0.5


def test_perplexity_is_that_of_the_softmax() -> None:
    random = np.random.default_rng(0)
    logits, tokens = random.standard_normal((3, 4, 7)), random.integers(0, 7, (3, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    wanted = math.exp(-np.mean(np.log(np.take_along_axis(p, tokens[..., None], 2))))
    assert value("perplexity", logits, tokens) == pytest.approx(wanted, rel=1e-12)
    assert value("perplexity", np.log(p)[:, :, None] + 1000, tokens) == pytest.approx(wanted, rel=1e-12)
    assert value("perplexity", np.zeros((2, 5, 9)), np.ones((2, 5), int)) == pytest.approx(9)
    assert value("perplexity", np.zeros((2, 5, 9), np.uint8), np.ones((2, 5), int)) == pytest.approx(9)
    wide = np.random.default_rng(3).normal(0, 4, (3, 7, 5000)).astype(np.float32)
    places = np.arange(21).reshape(3, 7) * 200
    assert value("perplexity", wide, places) == pytest.approx(value("perplexity", wide.astype(np.float64), places), rel=1e-7)
    assert value("perplexity", np.full((1, 1, 2), np.nan), [[0]]) == math.inf


def test_errors_against_true_values() -> None:
    found, wanted = np.array([[1.0, 2.0], [3.0, 5.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    assert value("mse", found, wanted) == 0.25
    assert value("psnr", found, wanted) == pytest.approx(10 * math.log10(9 / 0.25))
    assert value("psnr", wanted, wanted) == math.inf
    assert value("max-relative-error", found, wanted) == 0.25
    assert value("max-relative-error", np.array([[np.nan, 1.0]]), wanted[:1]) == math.inf
    assert value("psnr", np.array([[np.nan, 1.0]]), wanted[:1]) == -math.inf


def test_cosine_and_f1_by_hand() -> None:
    assert value("cosine", [[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]], [[4.0, 3.0], [0.0, 0.0], [0.0, 2.0]]) == pytest.approx((0.96 + 1 + 0) / 3)
    assert value("cosine", [[np.nan, 1.0]], [[1.0, 1.0]]) == -1
    logits = np.eye(3)[[0, 1, 1, 2, 0]]
    # class 0: one hit, two guesses, one member; class 1: one, two, three; class 2: one, one, one
    assert value("f1", logits, [0, 1, 0, 2, 1]) == pytest.approx(np.mean([2 / 4, 2 / 4, 2 / 2]))
    assert value("f1", np.full((2, 3), np.nan), [0, 1]) == 0


def test_f1_of_parts_is_that_of_the_whole() -> None:
    random = np.random.default_rng(3)
    logits, labels = random.normal(size=(60, 5)), random.integers(0, 4, 60)
    metric = METRICS["f1"]
    parts = concatenated_scores([metric.score(logits[k : k + 7], labels[k : k + 7]) for k in range(0, 60, 7)])
    assert metric.value(parts) == value("f1", logits, labels)
    found = compare_paired(metric, parts, metric.score(logits[:, ::-1], labels))
    assert found.interval is not None
    assert found.interval[0] <= found.difference <= found.interval[1]


@settings(max_examples=60)
@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_is_the_exact_binomial(better: int, worse: int) -> None:
    n = better + worse
    chances = [math.comb(n, k) / 2**n for k in range(n + 1)]
    wanted = sum(p for k, p in enumerate(chances) if abs(k - n / 2) >= abs(better - n / 2) - 1e-9)
    assert mcnemar(better, worse) == pytest.approx(min(1, wanted))
    low, high = exact_difference(better, worse, n + 5)
    assert low <= (better - worse) / (n + 5) <= high
    if better:
        p = (low * (n + 5) / n + 1) / 2
        assert sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(better, n + 1)) == pytest.approx(0.025, abs=1e-6)
    if worse:
        p = (high * (n + 5) / n + 1) / 2
        assert sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(better + 1)) == pytest.approx(0.025, abs=1e-6)


@pytest.mark.parametrize(("better", "worse"), [(250, 251), (600, 700), (0, 900), (900, 0), (3, 1500), (40_000, 41_000)])
def test_many_changed_samples_by_the_beta_function(better: int, worse: int) -> None:
    """Against the sum over the binomial distribution in whole numbers, made from one term to the next."""
    n, term, total = better + worse, 1, 0
    for k in range(min(better, worse) + 1):
        total += term
        term = term * (n - k) // (k + 1)
    assert mcnemar(better, worse) == pytest.approx(float(Fraction(2 * total, 1 << n)), rel=1e-7)
    low, high = exact_difference(better, worse, n)
    assert low <= (better - worse) / n <= high
    assert high - low == pytest.approx(2 * 3.92 * math.sqrt(better * worse / n) / n, rel=0.2) or min(better, worse) < 10


OWN = """
import numpy as np
def near(outputs, truth):
    return (abs(outputs.reshape(len(truth), -1).max(1) - truth) < 1).astype(float)
def bad(outputs, truth):
    return {}["no such key"]
def short(outputs, truth):
    return 1.0
near.lower_is_better = False
not_a_function = 3
def odd(outputs, truth):
    return [1.0, float("nan")]
def leaves(outputs, truth):
    raise SystemExit(3)
def writes(outputs, truth):
    outputs[:] = 7
    return outputs[:, 0]
"""


UNUSABLE = {
    "forgets": (
        "def forgets(outputs, truth):\n    outputs.max()", "None",
        "end the function with `return …`: one that ends without it returns None",
    ),
    "word": ("def word(outputs, truth):\n    return 'good'", "a str", ""),
    "words": ("def words(outputs, truth):\n    return ['a', 'b']", "a list", ""),
    "table": ("def table(outputs, truth):\n    return {'a': 1}", "a dict", ""),
    "lazy": ("def lazy(outputs, truth):\n    return (1 for _ in outputs)", "a generator", ""),
    "later": ("async def later(outputs, truth):\n    return 1", "a coroutine", ""),
    "imaginary": ("def imaginary(outputs, truth):\n    return outputs[:, 0] * 1j", "elements of complex128", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_metric_that_returns_no_numbers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, actual, remedy = UNUSABLE[name]
    (tmp_path / "mine.py").write_text(f"# of {name}\n{code}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FlexmatchError) as caught:
        metric_of(f"mine.py:{name}").score(np.zeros((2, 1)), np.zeros(2))
    problem = caught.value.problem
    assert (problem.place, problem.code) == ("mine.py:2", "C108")
    assert problem.sentence == f"metric {name} must return one number a sample, not {actual}"
    assert problem.help == remedy


@pytest.mark.parametrize(
    ("name", "sentence", "remedy"),
    [
        (":f", 'a metric of your own must be MODULE:FUNCTION, not ":f"', "for example ./metrics.py:accuracy"),
        ("mine:", 'a metric of your own must be MODULE:FUNCTION, not "mine:"', "for example ./metrics.py:accuracy"),
        ("mine:neer", 'mine.py has no function "neer"', 'did you mean "near"?'),
        ("mine:accuracy", 'mine.py has no function "accuracy"', "its functions are near, bad, short, odd, leaves, writes"),
    ],
)
def test_a_name_of_no_metric(name: str, sentence: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(OWN, "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FlexmatchError) as caught:
        metric_of(name)
    assert (caught.value.problem.code, caught.value.problem.sentence, caught.value.problem.help) == ("F203", sentence, remedy)


def test_a_metric_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(OWN, "utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("mine:near", "mine.py:near", f"{tmp_path}/mine.py:near"):
        metric = metric_of(name)
        assert (metric.name, metric.lower_is_better) == (name, False)
        assert metric.value(metric.score(np.array([[1.0, 2.0], [5.0, 1.0]]), np.array([2, 1]))) == 0.5
    assert refusal(lambda: metric_of("mine.py:bad").score(np.zeros((2, 1)), np.zeros(2))) == (
        "mine.py:6: error[C108]: metric bad failed: KeyError: 'no such key'"
    )
    assert refusal(lambda: metric_of("mine.py:short").score(np.zeros((2, 1)), np.zeros(2))) == (
        "mine.py:7: error[C108]: metric short must return one number a sample, shape [2], not []"
    )
    assert refusal(lambda: metric_of("mine.py:odd").score(np.zeros((2, 1)), np.zeros(2))) == (
        "mine.py:11: error[C108]: metric odd must return numbers, not NaN"
    )
    assert refusal(lambda: metric_of("mine.py:leaves").score(np.zeros((2, 1)), np.zeros(2))) == (
        "mine.py:14: error[C108]: metric leaves failed: SystemExit: 3"
    )
    outputs = np.ones((2, 1))
    assert metric_of("mine.py:writes").score(outputs, np.zeros(2)).values.tolist() == [7, 7]
    assert outputs.tolist() == [[1], [1]]  # the function wrote into its own
    assert refusal(lambda: metric_of("mine:none")).startswith('error[F203]: mine.py has no function "none"')
    assert refusal(lambda: metric_of("mine:not_a_function")).startswith('error[F203]: mine.py has no function "not_a_function"')
    assert refusal(lambda: metric_of("nothing_of_this_name:f")).startswith('error[F203]: there is no module "nothing_of_this_name"')
    (tmp_path / "broken.py").write_text("1 / 0\n", "utf-8")
    assert refusal(lambda: metric_of("broken:f")) == (
        "broken.py:1: error[R100]: the metric file cannot be imported: ZeroDivisionError: division by zero"
    )


def test_a_metric_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed is imported as Python does, with what it imports from its own package."""
    (tmp_path / "flexmatch_own").mkdir()
    (tmp_path / "flexmatch_own" / "__init__.py").write_text("from .inner import ones\n", "utf-8")
    (tmp_path / "flexmatch_own" / "inner.py").write_text("def ones(outputs, truth):\n    return [1] * len(outputs)\n", "utf-8")
    (tmp_path / "flexmatch_own" / "broken.py").write_text("import flexmatch_no_such\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("flexmatch_own:ones", "flexmatch_own.inner:ones"):
        assert metric_of(name).score(np.zeros((3, 1)), np.zeros(3)).values.tolist() == [1, 1, 1]
    assert refusal(lambda: metric_of("flexmatch_own.broken:f")) == (
        "error[R100]: the module flexmatch_own.broken of the metric cannot be imported: "
        "ModuleNotFoundError: No module named 'flexmatch_no_such'"
    )
    assert refusal(lambda: metric_of("flexmatch_own.absent:f")).startswith('error[F203]: there is no module "flexmatch_own.absent"')


def test_a_metric_that_fails_names_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "def own(outputs, truth):\n    if (truth == 3).any():\n        raise ValueError('three')\n    return outputs[:, 0]\n"
    Path("mine.py").write_text(text, "utf-8")
    np.savez("d.npz", x=np.zeros((6, 1), np.float32), labels=np.array([0, 1, 0, 1, 3, 3]))
    data = load_data(Path("d.npz"), {"x": TensorType((1,))}).take(np.array([0, 2, 4, 5]))
    assert refusal(lambda: score_samples(metric_of("mine:own"), data, np.zeros((4, 2)), np.zeros((4, 2)))) == (
        "mine.py:3: error[C108]: metric own failed: ValueError: three, in sample 4 of d.npz"
    )
    assert refusal(lambda: score_samples(METRICS["top1"], data, np.zeros((4, 2)), np.zeros((4, 2)))) == (
        "d.npz: sample 4: error[C100]: labels must be below the 2 classes of the model, not 3"
    )
    assert refusal(lambda: score_samples(METRICS["perplexity"], data, np.zeros((4, 2)), np.zeros((4, 2)))) == (
        "d.npz: error[C100]: metric perplexity needs targets, which the data does not have"
    )


def test_the_usual_metric_of_a_task() -> None:
    assert [metric_of("", t).name for t in ("classification", "language model", "none")] == ["top1", "perplexity", "max-relative-error"]
    assert metric_of("mse", "classification").name == "mse"


def refusal(make: Any) -> str:
    with pytest.raises(FlexmatchError) as caught:
        make()
    return str(caught.value)


def test_refusals_are_sentences(tmp_path: Path) -> None:
    assert refusal(lambda: metric_of("top2")) == (
        'error[F203]: there is no metric called "top2"\n'
        "  help: known: top1, top5, f1, perplexity, token-error-rate, ctc-error-rate, ctc-error-rate-blank-last, pixel-accuracy, mean-iou, "
        "multilabel-f1, auc, mse, rmse, mae, r2, psnr, cosine, max-relative-error, or MODULE:FUNCTION"
    )
    assert refusal(lambda: value("top1", LOGITS, [0, 1, 2, 3])) == "error[C100]: labels must be below the 3 classes of the model, not 3"
    assert refusal(lambda: value("perplexity", np.zeros((1, 2, 3)), [[0, 3]])) == "error[C100]: targets must be tokens 0 to 2, not 0 to 3"
    assert refusal(lambda: value("perplexity", np.zeros((1, 2, 3)), [[0, 1, 2, 0]])) == (
        "error[C100]: targets must be one token for each row of the logits [samples, 2, 3], not int64[samples, 4]\n"
        "  help: the last axis of the logits counts the tokens, the first one the samples"
    )
    assert refusal(lambda: value("mse", np.zeros((1, 2)), np.zeros((1, 3)))) == (
        "error[C100]: true values must have the shape of the outputs [samples, 2], not [samples, 3]\n"
        "  help: give 2 true values for each sample"
    )
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 1), np.float32))
    data = load_data(tmp_path / "d.npz", {"x": TensorType((1,))})
    assert refusal(lambda: truth_for(METRICS["top1"], data, LOGITS)) == (
        f"{data.place}: error[C100]: metric top1 needs labels, which the data does not have"
    )
    assert truth_for(METRICS["mse"], data, LOGITS) is LOGITS


# -- pairs


def test_pairs_are_counted_sample_by_sample() -> None:
    top1 = METRICS["top1"]
    first, second = (Scores(np.array(v, float), np.ones(5)) for v in ([1, 1, 1, 0, 0], [1, 0, 1, 1, 1]))
    found = compare_paired(top1, first, second)
    assert (found.better, found.worse, found.same) == (2, 1, 2)
    assert found.difference == pytest.approx(0.2)
    assert found.method == "Tango's score interval for paired proportions"
    errors = METRICS["mse"]
    found = compare_paired(errors, first, second)
    assert (found.better, found.worse) == (1, 2)
    assert (found.interval, found.method) == (None, "fewer than 6 samples decide nothing")
    six = (Scores(np.append(s.values, 0.0), np.ones(6)) for s in (first, second))
    assert compare_paired(errors, *six).method == "percentile bootstrap over samples, 2000 resamples, seed 0"
    assert compare_paired(METRICS["max-relative-error"], first, second).interval is None


def test_infinite_scores_are_counted_without_a_warning() -> None:
    first, second = (Scores(np.array(v), np.ones(3)) for v in ([np.inf, 1.0, 2.0], [np.inf, np.inf, 1.0]))
    found = compare_paired(METRICS["max-relative-error"], first, second)
    assert (found.better, found.worse, found.same, found.difference) == (1, 1, 1, 0.0)


def test_equal_runs_differ_by_nothing() -> None:
    scores = Scores(np.zeros(50), np.ones(50))
    for name in ("perplexity", "mse", "psnr"):
        found = compare_paired(METRICS[name], scores, scores)
        assert (found.difference, found.interval, found.same) == (0.0, (0.0, 0.0), 50)
    low, high = compare_paired(METRICS["top1"], scores, scores).interval or (0, 0)
    assert low == -high
    assert 0.05 < high < 0.1


def test_the_bootstrap_covers_the_difference() -> None:
    random = np.random.default_rng(5)
    inside = 0
    for _ in range(40):
        first = random.exponential(1.0, 80)
        second = first + random.normal(0.1, 0.5, 80)
        low, high = compare_paired(METRICS["mse"], Scores(first, np.ones(80)), Scores(second, np.ones(80))).interval or (0, 0)
        inside += low <= 0.1 <= high
    assert 34 <= inside <= 40


def test_the_proportion_interval_covers_the_difference() -> None:
    random = np.random.default_rng(1)
    for n, better, worse in [(100, 0.05, 0.05), (300, 0.03, 0.08), (1000, 0.01, 0.012), (40, 0.3, 0.1)]:
        inside = 0
        for _ in range(500):
            b, w, _same = random.multinomial(n, [better, worse, 1 - better - worse])
            low, high = difference_of_proportions(int(b), int(w), n, NORMAL_95)
            inside += low <= better - worse <= high
        assert 0.92 <= inside / 500 <= 0.99


@settings(max_examples=50)
@given(st.integers(0, 8), st.integers(0, 8), st.integers(1, 20))
def test_the_ends_of_the_interval_are_where_the_score_test_turns(better: int, worse: int, rest: int) -> None:
    """The likeliest shares under a difference are found by search here, not by the closed form."""
    n = better + worse + rest
    for end in difference_of_proportions(better, worse, n, NORMAL_95):
        if abs(end) > 0.999999:
            continue
        share = np.linspace(max(0, -end), (1 - end) / 2, 20_001)[1:-1]
        with np.errstate(divide="ignore"):
            likelihood = worse * np.log(share) + better * np.log(share + end) + rest * np.log(1 - 2 * share - end)
        q = share[np.argmax(np.where(np.isnan(likelihood), -np.inf, likelihood))]
        z = abs(better - worse - n * end) / math.sqrt(n * (2 * q + end * (1 - end)))
        assert z == pytest.approx(NORMAL_95, abs=2e-3)


# -- recorded scores of real models


@pytest.mark.shared
def test_the_recorded_perplexity_of_the_language_model(shared_dir: Path) -> None:
    folder = shared_dir / "models" / "wlm"
    model = load(folder / "wlm_h128_lstm_dyn18.onnx").program
    data = load_data(folder / "wlm_h128_lstm_dyn18.toml", {model.names[v]: model.types[v] for v in model.inputs}).evenly(100)
    source = reference(folder / "wlm_h128_lstm_dyn18.onnx")
    outputs = [next(iter(source.run({k: x[0] for k, x in one.inputs.items()}).values())) for one in data.batches(1)]
    metric = metric_of("", data.task)
    assert round(metric.value(metric.score(np.stack(outputs), truth_for(metric, data, np.stack(outputs)))), 2) == 127.49


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "data_name", "recorded"),
    [
        ("resnet20_ts17", "cifar10_test_600", 0.91833),
        ("mnist-8", "mnist_500", 0.986),
        ("kws_dscnn_mlperf_float", "kws_mfcc_500", 0.906),
        ("kws_dscnn_mlperf_int8qdq", "kws_mfcc_500", 0.906),
        ("mobilenetv2-12-int8", "imagenet_sample_50", 0.84),
    ],
)
def test_the_recorded_accuracy_of_classifiers(shared_dir: Path, name: str, data_name: str, recorded: float) -> None:
    folder = shared_dir / "models" / "trained"
    model = load(folder / f"{name}.onnx").program
    data = load_data(folder / f"{name}.{data_name}.toml", {model.names[v]: model.types[v] for v in model.inputs})
    source = reference(folder / f"{name}.onnx")
    outputs = np.stack([next(iter(source.run({k: x[0] for k, x in one.inputs.items()}).values())) for one in data.batches(1)])
    metric = metric_of("", data.task)
    assert round(metric.value(metric.score(outputs, truth_for(metric, data, outputs))), 5) == recorded


def test_a_score_that_is_no_number_is_worst_in_each_class() -> None:
    """Of a sample with the label it is below all others, of one without it above."""
    scores, labels = np.array([[0.2], [0.8], [np.nan], [0.4], [0.9]]), np.array([0, 1, 0, 0, 1])
    worst = separation(scores, labels)
    assert worst.details is not None
    assert worst.details[:, 0].tolist() == [0.2, 0.8, math.inf, 0.4, 0.9]
    assert roc_area(worst) == 4 / 6
    assert roc_area(separation(scores, np.array([0, 1, 1, 0, 1]))) == 4 / 6


def test_a_loss_of_the_bound_itself_is_within_it_whatever_rounding_does() -> None:
    loss = 0.8 - 0.7
    assert loss > 0.1
    assert all(band_of(text).holds(loss, 0.8) for text in ("0.1", "10pt", "12.5%"))
    assert not any(band_of(text).holds(loss + 1e-9, 0.8) for text in ("0.1", "10pt", "12.5%"))


def test_zeros_agree_and_what_is_beyond_all_numbers_is_infinite() -> None:
    relative, perplexity = METRICS["max-relative-error"], METRICS["perplexity"]
    zeros, one = np.zeros((1, 3)), np.array([[0.0, 1.0, 0.0]])
    assert relative.value(relative.score(zeros, zeros)) == 0
    assert relative.value(relative.score(one, zeros)) == math.inf
    assert relative.value(relative.score(zeros, one)) == 1
    assert [perplexity.finish(mean, 0.0) for mean in (0.0, 709.0, 1e6, math.inf)] == [1.0, math.inf, math.inf, math.inf]
    assert perplexity.finish(708.0, 0.0) == math.exp(708)


@pytest.mark.parametrize(
    ("metric", "labels", "targets", "truth"),
    [
        ("mse", None, None, "reference"), ("mse", "labels", None, "reference"), ("mse", "labels", "targets", "targets"),
        ("top1", "labels", "targets", "labels"), ("perplexity", "labels", "targets", "targets"), ("top1", None, "targets", ""),
        ("perplexity", "labels", None, ""), ("own", "labels", "targets", "labels"), ("own", None, "targets", "targets"),
        ("own", None, None, "reference"),
    ],
)  # fmt: skip
def test_a_metric_has_the_truth_that_it_asks_for(metric: str, labels: str | None, targets: str | None, truth: str) -> None:
    """One's own takes labels, else targets; an error takes targets, else what the host computes."""
    chosen = replace(METRICS["mse"], truth_source=TruthSource.ANY) if metric == "own" else METRICS[metric]
    data: Any = SimpleNamespace(labels=labels, targets=targets, place="data.npz")
    if truth:
        assert truth_for(chosen, data, "reference") == truth  # type: ignore[arg-type]
    else:
        assert "which the data does not have" in refusal(lambda: truth_for(chosen, data, "reference"))  # type: ignore[arg-type]
