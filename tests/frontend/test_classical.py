"""Operators of ai.onnx.ml: products become core operators, the rest stays with the host, answers are onnxruntime's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import imported, info, model, refusal

from rewrite_compiler.frontend.classical.trees import Edge, between_cycles
from rewrite_compiler.frontend.classical.types import TYPES
from rewrite_compiler.frontend.graph.emit import to_model, to_onnx
from rewrite_compiler.frontend.load import LoadedModel, load
from rewrite_compiler.hostrun import Session
from rewrite_compiler.ir.rebatch import Rebatched, rebatch_cheapest_axis
from rewrite_compiler.ir.types import TensorType

ML = "ai.onnx.ml"
ROWS, FEATURES = 40, 5
RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((ROWS, FEATURES)).astype(np.float32)
LABELS = ["ape", "bee", "cat", "dog"]


def numbers(count: int) -> list[float]:
    return [float(x) for x in RANDOM.standard_normal(count).astype(np.float32)]


def classical(
    op: str, results: int = 1, dtype: str = "float32", version: int = 3, shape: tuple[int, ...] = (ROWS, FEATURES), **more: Any
) -> Any:
    """Return a model of one node."""
    node = helper.make_node(op, ["x"], ["y", "z"][:results], name="only", domain=ML, **more)
    return model([node], {"x": TensorType(shape, dtype)}, ["y", "z"][:results], domains={ML: version}, opset=17)


def compared(proto: Any, x: Any = X) -> LoadedModel:
    """Import a model and require the host's answers: labels exactly, numbers within 1e-5 of the largest."""
    loaded = imported(proto)
    expected = Session(proto.SerializeToString()).run({"x": x})
    found = Session(to_onnx(loaded.program)).run({"x": x})
    for (name, wanted), v in zip(expected.items(), loaded.program.outputs, strict=True):
        given, kind = found[name], loaded.program.types[v]
        assert (given.shape, given.shape) == (wanted.shape, kind.shape)
        assert kind.dtype == ("string" if wanted.dtype == object else str(wanted.dtype))
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5 * max(1.0, float(np.abs(wanted).max())))
        else:
            assert given.tolist() == wanted.tolist()
    return loaded


def operators(loaded: LoadedModel) -> list[str]:
    p = loaded.program
    return [p.opaque_of(n).label if n.op == "opaque" else n.op for n in p.nodes]


# -- linear models


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("targets", [1, 3])
def test_a_linear_regressor_is_a_product(targets: int, dtype: str) -> None:
    proto = classical(
        "LinearRegressor", dtype=dtype, targets=targets, coefficients=numbers(targets * FEATURES), intercepts=numbers(targets)
    )
    if dtype == "float32":
        assert operators(compared(proto)) == ["dense", "bias_add"]
    else:  # which the host itself does not run
        assert operators(imported(proto)) == ["Cast", "dense", "bias_add"]


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize(("classes", "labels"), [(1, 2), (2, 2), (3, 3)])
@pytest.mark.parametrize("is_text", [False, True])
def test_a_linear_classifier_is_a_product_and_a_choice(classes: int, labels: int, post: str, is_text: bool) -> None:
    names: dict[str, Any] = {"classlabels_strings": LABELS[:labels]} if is_text else {"classlabels_ints": [7, 3, 9][:labels]}
    weights = {"coefficients": numbers(classes * FEATURES), "intercepts": numbers(classes)}
    found = operators(compared(classical("LinearClassifier", 2, post_transform=post, **weights, **names)))
    is_known = post in ("NONE", "LOGISTIC") or (post == "SOFTMAX" and classes > 1)
    assert found[0] == ("dense" if is_known else "ai.onnx.ml.LinearClassifier")
    assert ("ai.onnx.ml.LabelEncoder" in found) == (is_known and is_text)


def test_text_labels_in_the_first_operator_set() -> None:
    weights = {"coefficients": numbers(3 * FEATURES), "intercepts": numbers(3), "classlabels_strings": LABELS[:3]}
    assert "ai.onnx.ml.LabelEncoder" in operators(compared(classical("LinearClassifier", 2, version=1, **weights)))


def test_scaler_and_binarizer_are_core_operators() -> None:
    assert operators(compared(classical("Scaler", offset=numbers(FEATURES), scale=numbers(FEATURES)))) == ["sub", "mul"]
    assert operators(compared(classical("Scaler", offset=[0.5], scale=[2.0]))) == ["sub", "mul"]
    assert operators(compared(classical("Binarizer", threshold=0.25))) == ["Greater", "Cast"]


# -- support vector machines


def machine(classes: int, **more: Any) -> dict[str, Any]:
    vectors = 3 * classes
    return {
        "kernel_params": [0.3, 0.2, 3.0],
        "support_vectors": numbers(vectors * FEATURES),
        "coefficients": numbers(max(1, classes - 1) * vectors),
        "rho": numbers(max(1, classes * (classes - 1) // 2)),
        **more,
    }


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC"])
def test_a_support_vector_classifier_is_products_and_votes(classes: int, kernel: str, post: str) -> None:
    labels = {"classlabels_ints": [5, 2, 8, 1][:classes], "vectors_per_class": [3] * classes}
    found = operators(compared(classical("SVMClassifier", 2, kernel_type=kernel, post_transform=post, **machine(classes, **labels))))
    assert found.count("dense") == 2


def test_support_vectors_of_unequal_classes_and_text_labels() -> None:
    more = machine(3, classlabels_strings=LABELS[:3], vectors_per_class=[4, 2, 3], kernel_type="RBF")
    assert operators(compared(classical("SVMClassifier", 2, **more))).count("dense") == 2


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_a_support_vector_regressor_is_two_products(kernel: str) -> None:
    assert operators(compared(classical("SVMRegressor", n_supports=3, kernel_type=kernel, **machine(1)))).count("dense") == 2


def test_machines_that_float32_or_probabilities_forbid_stay_whole() -> None:
    sharp = machine(2, classlabels_ints=[0, 1], vectors_per_class=[3, 3], kernel_type="RBF")
    sharp["kernel_params"] = [50.0, 0.0, 0.0]
    assert operators(compared(classical("SVMClassifier", 2, **sharp))) == ["ai.onnx.ml.SVMClassifier"]
    likely = machine(3, classlabels_ints=[0, 1, 2], vectors_per_class=[3] * 3, prob_a=numbers(3), prob_b=numbers(3))
    assert operators(compared(classical("SVMClassifier", 2, **likely))) == ["ai.onnx.ml.SVMClassifier"]


def test_far_features_keep_their_digits_in_a_gaussian_kernel() -> None:
    """Squares of coordinates near 1000 would leave no digit of a distance near 1."""
    more = machine(1, n_supports=3, kernel_type="RBF")
    more["support_vectors"] = [float(np.float32(1000 + x)) for x in more["support_vectors"]]
    compared(classical("SVMRegressor", **more), X + np.float32(1000))


# -- what stays with the host


def tree(part: str, leaves: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0], "nodes_values": [0.1, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        f"{part}_treeids": [0, 0], f"{part}_nodeids": [1, 2], f"{part}_ids": [0, 1], f"{part}_weights": [1.0, 1.0], **leaves,
    }  # fmt: skip


INNER = {"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"], "nodes_truenodeids": [1, 2, 0]}
TWO_INNER = {**INNER, "target_treeids": [0], "target_nodeids": [2], "target_ids": [0], "target_weights": [1.0]}
HOST: dict[str, tuple[int, dict[str, Any]]] = {
    "TreeEnsembleClassifier": (2, tree("class", {"classlabels_int64s": [4, 2]})),
    "TreeEnsembleRegressor": (1, tree("target", {"n_targets": 2})),
    "Normalizer": (1, {"norm": "L2"}),
    "Imputer": (1, {"imputed_value_floats": [0.5], "replaced_value_float": 0.0}),
    "LinearRegressor": (1, {"post_transform": "SOFTMAX", "targets": 2, "coefficients": [0.5] * 10, "intercepts": [0.5, 1.5]}),
    "LabelEncoder": (1, {"keys_floats": [1.0, 2.0], "values_int64s": [1, 2]}),
    "OneHotEncoder": (1, {"cats_int64s": [0, 1, 2]}),
    "SVMRegressor": (1, {"n_supports": 3, "one_class": 1, "kernel_type": "RBF", **machine(1)}),
}


@pytest.mark.parametrize("op", HOST)
def test_other_operators_stay_whole_with_known_types(op: str) -> None:
    results, attributes = HOST[op]
    loaded = compared(classical(op, results, **attributes))
    assert operators(loaded) == [f"ai.onnx.ml.{op}"]
    both = rebatch_cheapest_axis(loaded.program, 2, loaded.program.inputs)
    assert isinstance(both, Rebatched)
    twice = Session(to_onnx(both.program)).run({"x": np.concatenate([X, X])})
    for name, once in Session(to_onnx(loaded.program)).run({"x": X}).items():
        assert np.array_equal(twice[name], np.concatenate([once, once]))


def test_a_classifier_of_one_label_stays_whole() -> None:
    attributes = {"coefficients": numbers(FEATURES), "intercepts": [0.5], "classlabels_strings": ["a"]}
    assert operators(imported(classical("LinearClassifier", 2, **attributes))) == ["ai.onnx.ml.LinearClassifier"]


def test_every_operator_with_a_type_is_one_of_onnx() -> None:
    assert all(onnx.defs.has(op, ML) for op in TYPES)


def test_a_plan_declares_the_operator_set_of_its_model() -> None:
    for version in (1, 3):
        loaded = compared(classical("TreeEnsembleClassifier", 2, version=version, **HOST["TreeEnsembleClassifier"][1]))
        assert {o.domain: o.version for o in to_model(loaded.program).opset_import}[ML] == version


def test_maps_are_a_matrix_in_the_order_of_their_keys() -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain=ML, classlabels_int64s=[4, 2, 9])
    proto = model([node], {"x": TensorType((4, 3))}, ["y"], domains={ML: 3})
    loaded = compared(proto, X[:4, :3])
    assert [n.op for n in loaded.program.nodes] == ["gather"]
    assert loaded.program.notes == ('output "y" is a matrix with the columns 2, 4, 9: the maps of ZipMap name its columns only',)


# -- attributes that do not fit


LENGTHS: list[tuple[str, dict[str, Any], str, str]] = [
    ("LinearRegressor", {"coefficients": [1.0] * 4, "intercepts": [0.0]}, '"coefficients" of LinearRegressor must have 5 elements, not 4',
     "give it one number for each of 5 features of 1 target"),
    ("LinearRegressor", {"coefficients": [1.0] * 10, "targets": 2, "intercepts": [0.0]},
     '"intercepts" of LinearRegressor must have 2 elements, not 1', "give it one number a target, or none"),
    ("LinearRegressor", {"coefficients": [1.0], "targets": 0}, '"targets" of LinearRegressor must be 1 or more, not 0',
     "it is the number of results"),
    ("LinearClassifier", {"coefficients": [1.0] * 9, "classlabels_ints": [0, 1], "intercepts": [0.0, 0.0]},
     '"coefficients" of LinearClassifier must have 10 elements, not 9', "give it one number for each of 5 features of 2 classes"),
    ("SVMClassifier", {**machine(2), "vectors_per_class": [3, 2], "classlabels_ints": [0, 1]},
     '"support_vectors" of SVMClassifier must have 25 elements, not 30', "give it 5 features for each of 5 support vectors"),
    ("SVMClassifier", {**machine(2), "vectors_per_class": [7, -1], "classlabels_ints": [0, 1]},
     '"vectors_per_class" of SVMClassifier must be 0 or more, not -1', "it counts the support vectors of each class"),
    ("Scaler", {"scale": [1.0, 2.0]}, '"scale" of Scaler must have 1 or 5 elements, not 2',
     "give it one number for all, or one for each of 5 features"),
    ("TreeEnsembleRegressor", {**HOST["TreeEnsembleRegressor"][1], "nodes_values": [0.5]},
     '"nodes_values" of TreeEnsembleRegressor must have 3 elements, not 1', "give it one a node, as nodes_nodeids has"),
    ("TreeEnsembleRegressor", {**HOST["TreeEnsembleRegressor"][1], "nodes_featureids": [9, 0, 0]},
     '"nodes_featureids" of TreeEnsembleRegressor must have features 0…4, not 9',
     "the operand has 5 features: train and export with the same columns"),
    ("TreeEnsembleRegressor", {**tree("target", TWO_INNER), "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 2, 0]},
     '"nodes_truenodeids" of TreeEnsembleRegressor must lead from node 1 of tree 0 on to a leaf, not back to node 0',
     "a sample that comes there never reaches a leaf: export the trees again"),
    ("TreeEnsembleClassifier", {**tree("class", {"classlabels_int64s": [4, 2]}), **INNER, "nodes_falsenodeids": [2, 1, 0]},
     '"nodes_falsenodeids" of TreeEnsembleClassifier must lead from node 1 of tree 0 on to a leaf, not back to node 1',
     "a sample that comes there never reaches a leaf: export the trees again"),
    ("LabelEncoder", {"keys_floats": [1.0, 2.0], "values_int64s": [1]}, '"values_int64s" of LabelEncoder must have 2 elements, not 1',
     "give it one value a key of keys_floats"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attributes", "sentence", "remedy"), LENGTHS, ids=[f"{c[0]} {n}" for n, c in enumerate(LENGTHS)])
def test_an_attribute_that_does_not_fit_is_named(op: str, attributes: dict[str, Any], sentence: str, remedy: str) -> None:
    results = 2 if op.endswith("Classifier") else 1
    assert refusal(classical(op, results, **attributes)) == f'app.onnx:node "only": error[F130]: attribute {sentence}\n  help: {remedy}'


def test_two_ways_may_lead_to_one_node() -> None:
    """LightGBM's sets of values do: tests of equality share the node for what is in the set."""
    nodes = {
        "nodes_treeids": [0] * 4, "nodes_nodeids": [0, 1, 2, 3], "nodes_featureids": [1, 1, 0, 0], "nodes_values": [0.5, 1.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"], "nodes_truenodeids": [2, 2, 0, 0], "nodes_falsenodeids": [1, 3, 0, 0],
    }  # fmt: skip
    leaves = {"target_treeids": [0, 0], "target_nodeids": [2, 3], "target_ids": [0, 0], "target_weights": [1.0, 2.0]}
    compared(classical("TreeEnsembleRegressor", n_targets=1, **nodes, **leaves))


# -- models as people export them


EXPORTED = ["linear_55", "linear_784", "logistic_200", "logistic_54", "svm_54", "tree_depth6"]
EXPORTED += ["train_linear_55", "train_logistic_54", "train_svm_54"]


@pytest.mark.shared
@pytest.mark.parametrize("name", EXPORTED)
def test_exported_models_have_the_recorded_answers(shared_dir: Path, name: str) -> None:
    folder = shared_dir / "golden/verigood/onnx_ml"
    loaded = load(folder / f"{name}.onnx")
    with np.load(folder / f"{name}.npz") as held:
        recorded = dict(held)
    p, samples = loaded.program, 1
    if loaded.batch_inputs:
        samples = len(recorded["in_x"])
        both = rebatch_cheapest_axis(p, samples, p.inputs)
        assert isinstance(both, Rebatched)
        p = both.program
    found = Session(to_onnx(p)).run({p.names[v]: recorded[f"in_{p.names[v]}"] for v in p.inputs})
    for output, y in found.items():
        expected = recorded[f"out_{output}"]
        assert np.array_equal(y, expected) if expected.dtype.kind == "i" else np.abs(y - expected).max() <= 1e-5


def test_outputs_keep_their_declarations() -> None:
    """A declared matrix that a classifier gives is checked as any output is."""
    node = helper.make_node("Normalizer", ["x"], ["y"], name="only", domain=ML, norm="L1")
    proto = model([node], {"x": TensorType((4, 3))}, [info("y", TensorType((4, 2)))], domains={ML: 3})
    assert refusal(proto).startswith('app.onnx: error[F134]: output "y" is declared as float32[4, 2] and the model computes float32[4, 3]')


@pytest.mark.parametrize("last", [None, 7])
def test_a_tree_of_many_levels_is_looked_at_once(last: int | None) -> None:
    """A chain of nodes: to look at all that are left for each leaf would take minutes."""
    count = 60_000
    edges: list[Edge] = [((0, n), "nodes_truenodeids", (0, n + 1)) for n in range(count)]
    if last is not None:
        edges.append(((0, count), "nodes_falsenodeids", (0, last)))
    assert len(between_cycles(edges)) == (0 if last is None else count + 1)
