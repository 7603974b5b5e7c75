"""Classical models: operators of ai.onnx.ml that contain matrix products, as functions of ONNX's own operators.

All others stay opaque on the host: trees, encoders, norms, and variants that ONNX leaves to the host engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.program import Data
from ..site.site import Site

DOMAIN = "ai.onnx.ml"
OPSET = 21
TRANSFORMS = {"NONE": "", "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}
MAX_EXPONENT = 16.0  # exponent of a Gaussian kernel up to which float32 keeps 1e-5 of a distance that is written as a product
NUMBERS = ("float32", "float64", "int32", "int64")


class FunctionBuilder:
    """The body of a function under construction: nodes of ONNX's own operator set."""

    def __init__(self, site: Site) -> None:
        from ..graph.writer import Names, Writer

        self.site = site
        self.writer = Writer(Names(("x", *site.outputs)), in_function=True)
        self.results: dict[int, str] = {}

    def step(self, op: str, *operands: str | Data, **attributes: Any) -> str:
        """Add a node and return the name of its result; arrays become constants."""
        names = [o if isinstance(o, str) else self.writer.literal("constant", o, str(o.dtype)) for o in operands]
        return self.writer.step(op.lower(), op, *names, **attributes)

    def numbers(self) -> str:
        """Return the operand as float32."""
        return "x" if self.site.type(self.site.value(0)).dtype == "float32" else self.step("Cast", "x", to=1)

    def product(self, x: str, rows: Data, bias: Data | None) -> str:
        """Return x · rowsᵀ + bias."""
        return self.step("Gemm", x, rows, *([] if bias is None else [bias]), transB=1)

    def function(self) -> Any:
        """Return the function with the results as its outputs."""
        from onnx import helper

        site = self.site
        outputs = [self.results.get(n, "") for n in range(len(site.outputs))]
        return helper.make_function(DOMAIN, site.op, ["x"], outputs, self.writer.nodes, [helper.make_opsetid("", OPSET)])


def float_attribute(site: Site, name: str) -> Data:
    """Return an attribute of numbers as an array."""
    return np.asarray(site.get(name, ()), np.float32)


def labels_of(site: Site) -> Data:
    """Return the class labels of a classifier [classes], strings (as objects) or int64."""
    names = site.get("classlabels_strings", ()) or site.get("classlabels_int64s", ()) or site.get("classlabels_ints", ())
    return np.asarray(names, object if names and isinstance(names[0], str) else np.int64)


def _transformed(parts: FunctionBuilder, scores: str) -> str | None:
    """Return scores after the post-transform; None when its definition may differ from the host's."""
    op = TRANSFORMS.get(parts.site.get("post_transform", "NONE"))
    return None if op is None else parts.step(op, scores, **({"axis": 1} if op == "Softmax" else {})) if op else scores


def _is_table(site: Site) -> bool:
    """Tell whether the operand is a numeric matrix [samples, features]."""
    return site.rank(0) == 2 and site.type(site.value(0)).dtype in NUMBERS


def _linear_regressor(site: Site) -> FunctionBuilder | None:
    parts = FunctionBuilder(site)
    weights = float_attribute(site, "coefficients").reshape(int(site.get("targets", 1)), -1)
    bias = float_attribute(site, "intercepts")
    scores = parts.product(parts.numbers(), weights, bias if bias.size else None)
    if site.get("post_transform", "NONE") != "NONE":
        return None
    parts.results[0] = scores
    return parts


def _linear_classifier(site: Site) -> FunctionBuilder | None:
    parts, labels, bias = FunctionBuilder(site), labels_of(site), float_attribute(site, "intercepts")
    weights = float_attribute(site, "coefficients").reshape(max(1, bias.size or labels.size), -1)
    classes = len(weights)
    scores = parts.product(parts.numbers(), weights, bias if bias.size else None)
    values = _transformed(parts, scores)
    if values is None or labels.size != max(2, classes) or (classes == 1 and TRANSFORMS[site.get("post_transform", "NONE")] == "Softmax"):
        return None
    parts.results[0] = _argmax_label(parts, scores, labels) if classes > 1 else _binary_label(parts, scores, labels)
    parts.results[1] = values if classes > 1 else _with_complement(parts, values)
    return parts


def _argmax_label(parts: FunctionBuilder, scores: str, labels: Data) -> str:
    """Return the label of the largest score, the first of equal ones."""
    number = parts.step("ArgMax", scores, axis=1, keepdims=0)
    return _text_labels(parts, number, labels) if labels.dtype == object else parts.step("Gather", labels, number, axis=0)


def _text_labels(parts: FunctionBuilder, number: str, labels: Data) -> str:
    """Return the string label of each class number."""
    if parts.site.version == 1:
        return parts.step("LabelEncoder", number, domain=DOMAIN, classes_strings=list(labels))
    return parts.step("LabelEncoder", number, domain=DOMAIN, keys_int64s=list(range(labels.size)), values_strings=list(labels))


def _binary_label(parts: FunctionBuilder, score: str, labels: Data) -> str:
    """Return the second label where the score is positive, else the first."""
    is_second = parts.step("Greater", parts.step("Squeeze", score, np.asarray([1])), np.asarray(0, np.float32))
    if labels.dtype == object:
        return _text_labels(parts, parts.step("Cast", is_second, to=7), labels)
    return parts.step("Where", is_second, labels[1:2], labels[:1])


def _with_complement(parts: FunctionBuilder, score: str) -> str:
    """Return the columns 1 − p and p."""
    return parts.step("Concat", parts.step("Sub", np.asarray(1, np.float32), score), score, axis=1)


def _scaler(site: Site) -> FunctionBuilder:
    parts = FunctionBuilder(site)
    centred = parts.step("Sub", parts.numbers(), float_attribute(site, "offset")) if site.get("offset", ()) else parts.numbers()
    parts.results[0] = (
        parts.step("Mul", centred, float_attribute(site, "scale")) if site.get("scale", ()) else parts.step("Identity", centred)
    )
    return parts


def _binarizer(site: Site) -> FunctionBuilder:
    parts = FunctionBuilder(site)
    is_above = parts.step("Greater", parts.numbers(), np.asarray(site.get("threshold", 0.0), np.float32))
    parts.results[0] = parts.step("Cast", is_above, to=1)
    return parts


def _kernel(parts: FunctionBuilder, vectors: Data) -> str | None:
    """Return the kernel matrix [samples, support vectors], or None for an unknown kernel."""
    site, x = parts.site, parts.numbers()
    gamma, coefficient, degree = (np.asarray(v, np.float32) for v in (*site.get("kernel_params", ()), 0.0, 0.0, 0.0)[:3])
    kind = site.get("kernel_type", "LINEAR")
    if kind == "LINEAR":
        return parts.product(x, vectors, None)
    if kind == "RBF":
        return _gaussian_kernel(parts, x, vectors, float(gamma))
    scaled = parts.step("Add", parts.step("Mul", parts.product(x, vectors, None), gamma), coefficient)
    if kind == "POLY":
        return parts.step("Pow", scaled, degree)
    return parts.step("Tanh", scaled) if kind == "SIGMOID" else None


def _gaussian_kernel(parts: FunctionBuilder, x: str, vectors: Data, gamma: float) -> str | None:
    """Return exp(−γ·|x − s|²), the square expanded around the centre of the vectors to limit cancellation."""
    centre = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred_vectors = vectors - centre
    squares = np.square(centred_vectors, dtype=np.float64).sum(axis=1)
    if gamma * squares.max(initial=0.0) > MAX_EXPONENT:
        return None
    centred = parts.step("Sub", x, centre)
    sample_norms = parts.step("ReduceSum", parts.step("Mul", centred, centred), np.asarray([1]), keepdims=1)
    distances = parts.step("Add", parts.product(centred, -2 * centred_vectors, squares.astype(np.float32)), sample_norms)
    return parts.step("Exp", parts.step("Mul", distances, np.asarray(-gamma, np.float32)))


def _support_vectors(site: Site) -> Data | None:
    """Return the support vectors [vectors, features]; None for a machine that has none."""
    vectors = float_attribute(site, "support_vectors")
    return vectors.reshape(-1, site.shape(0)[1]) if vectors.size else None


def _svm_regressor(site: Site) -> FunctionBuilder | None:
    parts, vectors = FunctionBuilder(site), _support_vectors(site)
    if vectors is None or site.get("one_class", 0) or site.get("post_transform", "NONE") != "NONE":
        return None
    kernel = _kernel(parts, vectors)
    if kernel is None:
        return None
    parts.results[0] = parts.product(kernel, float_attribute(site, "coefficients").reshape(1, -1), float_attribute(site, "rho"))
    return parts


def _svm_classifier(site: Site) -> FunctionBuilder | None:
    parts, vectors, labels = FunctionBuilder(site), _support_vectors(site), labels_of(site)
    per_class = site.get("vectors_per_class", ())
    if vectors is None or site.get("prob_a", ()) or len(per_class) < 2 or labels.size != len(per_class):
        return None
    kernel = _kernel(parts, vectors)
    if kernel is None:
        return None
    pairs = _pairwise_weights(float_attribute(site, "coefficients").reshape(len(per_class) - 1, -1), per_class)
    scores = parts.product(kernel, pairs, float_attribute(site, "rho"))
    values = _binary_scores(parts, scores) if len(per_class) == 2 else _transformed(parts, scores)
    if values is None:
        return None
    parts.results[0] = _binary_label(parts, scores, labels[::-1]) if len(per_class) == 2 else _majority_label(parts, scores, labels)
    parts.results[1] = values
    return parts


def _pairwise_weights(coefficients: Data, per_class: Sequence[int]) -> Data:
    """Return the dual coefficients of the decision between each two classes: [pairs, support vectors]."""
    ends = list(itertools.accumulate(per_class, initial=0))
    rows = []
    for i, j in itertools.combinations(range(len(per_class)), 2):
        row = np.zeros(ends[-1], np.float32)
        row[ends[i] : ends[i + 1]] = coefficients[j - 1, ends[i] : ends[i + 1]]
        row[ends[j] : ends[j + 1]] = coefficients[i, ends[j] : ends[j + 1]]
        rows.append(row)
    return np.stack(rows)


def _binary_scores(parts: FunctionBuilder, score: str) -> str | None:
    """Return the two score columns of a machine of two classes."""
    transform = TRANSFORMS.get(parts.site.get("post_transform", "NONE"))
    if transform == "Sigmoid":
        return _with_complement(parts, parts.step("Sigmoid", score))
    return parts.step("Concat", parts.step("Neg", score), score, axis=1) if transform == "" else None


def _majority_label(parts: FunctionBuilder, scores: str, labels: Data) -> str:
    """Return the label that wins most pairwise decisions, the first of equal ones; votes are integers."""
    count = labels.size
    pairs = list(itertools.combinations(range(count), 2))
    won, lost = (np.asarray([[c == p[k] for c in range(count)] for p in pairs], np.int32)[None] for k in (0, 1))
    is_first = parts.step("Unsqueeze", parts.step("Greater", scores, np.asarray(0, np.float32)), np.asarray([2]))
    votes = parts.step("ReduceSum", parts.step("Where", is_first, won, lost), np.asarray([1]), keepdims=0)
    return _argmax_label(parts, votes, labels)


DEFINITIONS: dict[str, Callable[[Site], FunctionBuilder | None]] = {
    "LinearRegressor": _linear_regressor,
    "LinearClassifier": _linear_classifier,
    "Scaler": _scaler,
    "Binarizer": _binarizer,
    "SVMRegressor": _svm_regressor,
    "SVMClassifier": _svm_classifier,
}


def definition(site: Site) -> Any:
    """Return an operator of ai.onnx.ml as a function of ONNX's own operators, or None."""
    build = DEFINITIONS.get(site.op)
    parts = build(site) if build is not None and _is_table(site) and all(site.shape(0)) else None
    return None if parts is None else parts.function()
