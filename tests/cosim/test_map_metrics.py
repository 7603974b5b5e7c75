"""Metrics of maps of classes, of numbers, of several labels and of order, by hand and batch by batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from rewrite_compiler.compile import compile_model
from rewrite_compiler.cosim import cosimulate
from rewrite_compiler.cosim.journal_records import _rows, _scores
from rewrite_compiler.cosim.metrics.metrics import METRICS, compare_paired, metric_of, predicted_classes
from rewrite_compiler.cosim.metrics.scores import concatenated_scores
from rewrite_compiler.data import load_data
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ir.types import TensorType

RANDOM = np.random.default_rng(11)
CLASSES, ROWS, COLUMNS, COUNT = 4, 5, 6, 30
LOGITS = RANDOM.normal(size=(COUNT, 1, CLASSES, ROWS, COLUMNS))
MAPS = RANDOM.integers(0, CLASSES, (COUNT, ROWS, COLUMNS))
NUMBERS, TRUE = RANDOM.normal(size=(COUNT, 3)), RANDOM.normal(size=(COUNT, 3))
TABLES = RANDOM.integers(0, 2, (COUNT, ROWS, COLUMNS)).astype(float)
SHARES, GIVEN = RANDOM.random((COUNT, CLASSES)), RANDOM.integers(0, 2, (COUNT, CLASSES))


def value(name: str, outputs: Any, truth: Any) -> float:
    metric = METRICS[name]
    return metric.value(metric.score(np.asarray(outputs), np.asarray(truth)))


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(FlexmatchError) as caught:
        work()
    return str(caught.value)


def test_maps_are_scored_place_by_place() -> None:
    predicted = LOGITS[:, 0].argmax(axis=1)
    assert value("pixel-accuracy", LOGITS, MAPS) == pytest.approx(np.mean(predicted == MAPS))
    shares = [np.sum((predicted == c) & (c == MAPS)) / np.sum((predicted == c) | (c == MAPS)) for c in range(CLASSES)]
    assert value("mean-iou", LOGITS, MAPS) == pytest.approx(np.mean(shares))
    for name in ("pixel-accuracy", "mean-iou"):
        assert value(name, np.moveaxis(LOGITS[:, 0], 1, -1), MAPS) == value(name, LOGITS, MAPS)  # classes last
        assert value(name, predicted[:, None], MAPS) == value(name, LOGITS, MAPS)  # a model that gives the classes
        assert value(name, np.eye(CLASSES)[MAPS], MAPS) == 1
        assert value(name, np.full_like(LOGITS, np.nan), MAPS) == 0


def test_void_places_are_left_out() -> None:
    half = MAPS.copy()
    half[:, :2] = 255
    assert value("pixel-accuracy", LOGITS, half) == pytest.approx(value("pixel-accuracy", LOGITS[:, :, :, 2:], MAPS[:, 2:]))
    assert value("mean-iou", LOGITS, half) == pytest.approx(value("mean-iou", LOGITS[:, :, :, 2:], MAPS[:, 2:]))


def test_numbers() -> None:
    errors = NUMBERS - TRUE
    assert value("mae", NUMBERS, TRUE) == pytest.approx(np.abs(errors).mean())
    assert value("rmse", NUMBERS, TRUE) == pytest.approx(math.sqrt((errors**2).mean()))
    assert value("r2", NUMBERS, TRUE) == pytest.approx(1 - (errors**2).sum() / ((TRUE - TRUE.mean()) ** 2).sum())
    assert value("r2", TRUE, TRUE) == 1
    assert value("r2", NUMBERS, np.ones_like(TRUE)) == -math.inf
    assert value("mae", [[np.nan]], [[1.0]]) == math.inf


def pairs_in_order(scores: Any, true: Any) -> float:
    """Return the share of pairs, one of each kind, in which the true one scores higher, equal ones counted half."""
    above, below = scores[true][:, None], scores[~true][None]
    return float(np.mean((above > below) + 0.5 * (above == below)))


def test_area_is_the_share_of_pairs_in_order() -> None:
    labels, score = RANDOM.integers(0, 2, COUNT), np.round(RANDOM.random(COUNT), 1)
    wanted = pairs_in_order(score, labels == 1)
    assert value("auc", score[:, None], labels) == pytest.approx(wanted)
    assert value("auc", np.stack([1 - score, score], axis=1), labels) == pytest.approx(wanted)
    classes = RANDOM.integers(0, CLASSES, COUNT)
    assert value("auc", SHARES, classes) == pytest.approx(np.mean([pairs_in_order(SHARES[:, c], classes == c) for c in range(CLASSES)]))
    assert value("auc", SHARES, GIVEN) == pytest.approx(np.mean([pairs_in_order(SHARES[:, c], GIVEN[:, c] == 1) for c in range(CLASSES)]))
    assert value("auc", score[:, None], np.zeros(COUNT, int)) == 0.5
    assert value("auc", [[np.nan], [0.0]], [1, 0]) == 0


def test_several_labels_a_sample() -> None:
    guessed = SHARES > 0.5
    shares = [2 * np.sum(guessed[:, c] & (GIVEN[:, c] == 1)) / (guessed[:, c].sum() + GIVEN[:, c].sum()) for c in range(CLASSES)]
    assert value("multilabel-f1", SHARES, GIVEN) == pytest.approx(np.mean(shares))


def test_axes_of_one_do_not_count_and_a_vector_is_in_the_order_of_the_output() -> None:
    assert value("mae", NUMBERS[:, None, :, None], TRUE) == value("mae", NUMBERS, TRUE)
    assert value("rmse", TABLES, TABLES.reshape(COUNT, -1)) == 0
    assert value("multilabel-f1", SHARES[:, :, None, None], GIVEN) == value("multilabel-f1", SHARES, GIVEN)
    assert value("top1", SHARES[:, :, None, None], GIVEN[:, 0]) == value("top1", SHARES, GIVEN[:, 0])
    assert value("perplexity", LOGITS[:, :, :, 0], MAPS[:, 0, :4]) == value("perplexity", LOGITS[:, 0, :, 0], MAPS[:, 0, :4])


CASES = [
    ("pixel-accuracy", LOGITS, MAPS),
    ("mean-iou", LOGITS, MAPS),
    ("mean-iou", LOGITS[:, 0].argmax(axis=1), MAPS),
    ("r2", NUMBERS, TRUE),
    ("auc", SHARES, GIVEN),
    ("multilabel-f1", SHARES, GIVEN),
]


@pytest.mark.parametrize(("name", "outputs", "truth"), CASES, ids=[f"{c[0]} {n}" for n, c in enumerate(CASES)])
def test_batches_and_records_give_the_whole(name: str, outputs: Any, truth: Any) -> None:
    metric = METRICS[name]
    parts = [metric.score(outputs[k : k + 7], truth[k : k + 7]) for k in range(0, COUNT, 7)]
    kept = concatenated_scores([_scores(_rows(s), s.ends) for s in parts])
    assert metric.value(kept) == pytest.approx(value(name, outputs, truth))
    found = compare_paired(metric, kept, metric.score(outputs[::-1], truth))
    assert found.interval is not None
    assert found.interval[0] <= found.difference <= found.interval[1]


def test_an_output_of_one_class_a_sample_is_the_prediction() -> None:
    classes = np.array([2, 0, 1])
    assert value("top1", classes, [2, 1, 1]) == pytest.approx(2 / 3)
    assert value("f1", classes, [2, 0, 1]) == 1
    assert predicted_classes(classes).tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("name", "outputs", "truth", "sentence"),
    [
        ("pixel-accuracy", LOGITS, MAPS[:, :3], "labels must be one class for each place of the output [samples, 1, 4, 5, 6], "
         "without its axis of classes, not [samples, 3, 6]\n"
         "  help: where axis 2 has the classes, 4 of them, give labels of shape [samples, 5, 6]"),
        ("pixel-accuracy", MAPS, MAPS[:, :3], "labels must be one class for each place of the output [samples, 5, 6], "
         "without its axis of classes, not [samples, 3, 6]\n"
         "  help: where each number of the output is a class, give labels of shape [samples, 5, 6]"),
        ("pixel-accuracy", LOGITS, MAPS + 3, "labels must be below the 4 classes of the model, or 255 for none, "
         f"not {(MAPS + 3)[MAPS > 0][0]}"),
        ("pixel-accuracy", LOGITS[:1], np.where(np.arange(30).reshape(1, 5, 6) == 17, 8, 255), "labels must be below the 4 classes "
         "of the model, or 255 for none, not 8"),
        ("top1", SHARES, MAPS, "labels of this metric must be one class a sample, [samples], not [samples, 5, 6]\n"
         "  help: --metric pixel-accuracy and mean-iou score a class for each place, multilabel-f1 and auc several for each sample"),
        ("multilabel-f1", SHARES, GIVEN + 1, "labels must be 0 or 1 for each of the 4 outputs of a sample, [samples, 4], "
         "not up to 2 in [samples, 4]\n  help: a class of several is one column of 0 and 1, the true one 1"),
        ("multilabel-f1", TABLES, np.moveaxis(TABLES, 1, 2).astype(int), "labels must be 0 or 1 for each of the 30 outputs of a sample, "
         "[samples, 5, 6], not up to 1 in [samples, 6, 5]\n"
         "  help: transpose them to [samples, 5, 6]: the axes behind the samples are in another order"),
        ("auc", SHARES, GIVEN[:, :2], "labels must be 0 or 1 for each of the 4 outputs of a sample, [samples, 4], "
         "not up to 1 in [samples, 2]\n  help: --metric top1 scores one class a sample"),
        ("auc", TABLES, GIVEN[:, 0], "outputs of this metric must be one score a class, [samples, classes], not [samples, 5, 6]\n"
         "  help: --metric pixel-accuracy and mean-iou score a class for each place of an output"),
        ("top1", TABLES, GIVEN[:, 0], "outputs of this metric must be one score a class, [samples, classes], not [samples, 5, 6]\n"
         "  help: --metric pixel-accuracy and mean-iou score a class for each place of an output"),
        ("top5", LOGITS, GIVEN[:, 0], "outputs of this metric must be one score a class, [samples, classes], not [samples, 1, 4, 5, 6]\n"
         "  help: --metric pixel-accuracy and mean-iou score a class for each place of an output"),
        ("perplexity", np.moveaxis(LOGITS[:, 0, :, 0], 1, 2), MAPS[:, 0, :4], "targets must be one token for each row of the logits "
         "[samples, 6, 4], not int64[samples, 4]\n  help: the last axis of the logits counts the tokens, the first one the samples"),
        ("r2", TABLES, np.moveaxis(TABLES, 1, 2), "true values must have the shape of the outputs [samples, 5, 6], not [samples, 6, 5]\n"
         "  help: transpose them to [samples, 5, 6]: the axes behind the samples are in another order"),
        ("rmse", TABLES, TABLES.reshape(COUNT, 3, 10), "true values must have the shape of the outputs [samples, 5, 6], "
         "not [samples, 3, 10]\n  help: reshape them to [samples, 5, 6], if their values are in that order"),
        ("auc", SHARES, np.full(COUNT, 9), "labels must be below the 4 classes of the model, not 9"),
        ("mae", NUMBERS, TRUE[:, 1:], "true values must have the shape of the outputs [samples, 3], not [samples, 2]\n"
         "  help: give 3 true values for each sample"),
    ],
)  # fmt: skip
def test_truth_that_does_not_fit(name: str, outputs: Any, truth: Any, sentence: str) -> None:
    assert refusal(lambda: value(name, outputs, truth)) == f"error[C100]: {sentence}"


def test_maps_are_labels_with_a_metric_of_their_own(tmp_path: Path) -> None:
    x = np.zeros((COUNT, 2), np.float32)
    np.savez(tmp_path / "maps.npz", x=x, labels=MAPS)
    data = load_data(tmp_path / "maps.npz", {"x": TensorType((2,))})
    assert data.labels is not None
    assert data.labels.shape == MAPS.shape
    assert metric_of("", data.task).name == "pixel-accuracy"
    assert data.take(np.array([3, 4])).labels.shape == (2, ROWS, COLUMNS)  # type: ignore[union-attr]
    np.savez(tmp_path / "bad.npz", x=x, labels=MAPS * 0.5)
    assert refusal(lambda: load_data(tmp_path / "bad.npz", {"x": TensorType((2,))})) == (
        f"{tmp_path / 'bad.npz'}: error[C100]: labels must be class numbers from 0, not float64[samples, 5, 6]\n"
        "  help: numbers that are no classes are called targets"
    )
    np.savez(tmp_path / "bad.npz", x=x, labels=np.where(MAPS[7, 0, 0] == MAPS, -1, MAPS)[7:8].repeat(COUNT, axis=0))
    assert refusal(lambda: load_data(tmp_path / "bad.npz", {"x": TensorType((2,))})).endswith(
        "not int64[samples, 5, 6] with -1 in sample 0"
    )


def test_text_is_no_output_for_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A classifier that gives text first: its numbers are scored, its text is kept between runs without code."""
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "cache"))
    node = helper.make_node(
        "LinearClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"], post_transform="SOFTMAX",
        coefficients=[float(n % 5) for n in range(12)], intercepts=[0.5, 0.25, 0.0],
    )  # fmt: skip
    ends = [("x", 1, (1, 4)), ("label", 8, (1,)), ("p", 1, (1, 3))]
    x, *outputs = (helper.make_tensor_value_info(*e) for e in ends)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    proto = helper.make_model(helper.make_graph([node], "text", [x], outputs), opset_imports=imports, ir_version=8)
    (tmp_path / "text.onnx").write_bytes(proto.SerializeToString())
    data = {"x": RANDOM.normal(size=(20, 4)).astype(np.float32), "labels": RANDOM.integers(0, 3, 20)}
    plan = compile_model(tmp_path / "text.onnx", ["flexasr"], calibrate=data)
    first, second = (cosimulate(plan, data) for _ in range(2))
    assert first.document["metric"] == "top1"
    assert first.document["reference"] == second.document["reference"]
    assert second.reference["label"].tolist() == first.reference["label"].tolist()
