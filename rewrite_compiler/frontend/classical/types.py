"""Operators of ai.onnx.ml: lengths of their attributes, and the types of their results, which onnx does not infer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...errors import InputError
from ...ir.types import TensorType
from ..site.context import Unsupported
from ..site.site import Site
from .operators import DOMAIN, labels_of
from .trees import check_trees


@dataclass(frozen=True)
class Length:
    """The allowed lengths of an attribute, and the reason for them."""

    attribute: str
    allowed: tuple[int, ...]
    why: str


def _samples(site: Site) -> int:
    return site.shape(0)[0] if site.rank(0) > 1 else 1


def _features(site: Site) -> int:
    return site.shape(0)[-1] if site.rank(0) else 1


def _count(site: Site, name: str) -> int:
    return len(site.get(name, ()))


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}es" if noun.endswith("s") else f"{n} {noun}s"


def _check_least(site: Site, name: str, value: int, least: int, why: str) -> None:
    if value < least:
        raise InputError("F130", f'attribute "{name}" of {site.op} must be {least} or more, not {value}', help=why)


def _linear(site: Site, rows: int, row_noun: str) -> Iterator[Length]:
    columns = _features(site)
    why = f"one number for each of {_counted(columns, 'feature')} of {_counted(rows, row_noun)}"
    yield Length("coefficients", (rows * columns,), why)
    yield Length("intercepts", (0, rows), f"one number a {row_noun}, or none")


def _regressor(site: Site) -> Iterator[Length]:
    _check_least(site, "targets", site.get("targets", 1), 1, "it is the number of results")
    yield from _linear(site, int(site.get("targets", 1)), "target")


def _classifier(site: Site) -> Iterator[Length]:
    labels = labels_of(site).size
    rows = 1 if labels == 2 and _count(site, "intercepts") == 1 else labels
    if labels:
        yield from _linear(site, rows, "class")


def _along_features(*names: str) -> Callable[[Site], Iterator[Length]]:
    def lengths(site: Site) -> Iterator[Length]:
        for name in names:
            yield Length(name, (0, 1, _features(site)), f"one number for all, or one for each of {_counted(_features(site), 'feature')}")

    return lengths


def _support_vector_machine(site: Site, rows: int, decisions: int) -> Iterator[Length]:
    """Yield the lengths of the attributes of a support vector machine."""
    vectors = sum(site.get("vectors_per_class", ())) or int(site.get("n_supports", 0))
    if vectors and _count(site, "support_vectors"):
        vector_count = _counted(vectors, "support vector")
        yield Length("support_vectors", (vectors * _features(site),), f"{_counted(_features(site), 'feature')} for each of {vector_count}")
        yield Length("coefficients", (vectors * rows,), f"{_counted(rows, 'number')} for each of {vector_count}")
        yield Length("rho", (decisions,), "one number a decision")
    yield Length("kernel_params", (0, 3), "gamma, the added constant and the degree")


def _svm_classifier(site: Site) -> Iterator[Length]:
    classes = labels_of(site).size
    pairs = classes * (classes - 1) // 2
    if _count(site, "support_vectors"):
        yield Length("vectors_per_class", (classes,), "one count a class")
        _check_least(
            site, "vectors_per_class", min(site.get("vectors_per_class", ()), default=0), 0, "it counts the support vectors of each class"
        )
        yield from _support_vector_machine(site, classes - 1, pairs)
        for name in ("prob_a", "prob_b"):
            yield Length(name, (0, pairs), "one number for each two classes, or none")


def _svm_regressor(site: Site) -> Iterator[Length]:
    yield from _support_vector_machine(site, 1, 1)


NODES = ("nodes_treeids", "nodes_featureids", "nodes_modes", "nodes_values", "nodes_truenodeids", "nodes_falsenodeids")


def _trees(part: str) -> Callable[[Site], Iterator[Length]]:
    def lengths(site: Site) -> Iterator[Length]:
        nodes, leaves = _count(site, "nodes_nodeids"), _count(site, f"{part}_ids") or _count(site, f"{part}_weights")
        tensors = [f"{name}_as_tensor" for name in ("nodes_values", f"{part}_weights") if f"{name}_as_tensor" in site.attributes]
        for name in NODES:
            if f"{name}_as_tensor" not in tensors:
                yield Length(name, (nodes,), "one a node, as nodes_nodeids has")
        for name in ("nodes_hitrates", "nodes_missing_value_tracks_true"):
            yield Length(name, (0, nodes), "one a node, as nodes_nodeids has, or none")
        for name in (f"{part}_treeids", f"{part}_nodeids", f"{part}_ids", f"{part}_weights"):
            if f"{name}_as_tensor" not in tensors:
                yield Length(name, (leaves,), f"one a leaf, as {part}_ids has")
        results = labels_of(site).size if part == "class" else int(site.get("n_targets", 1))
        yield Length("base_values", (0, 1, results), "one number a result, or none")

    return lengths


def _encoder(site: Site) -> Iterator[Length]:
    keys = [name for name in site.attributes if name.startswith("keys_") and name != "keys_tensor"]
    values = [name for name in site.attributes if name.startswith("values_") and name != "values_tensor"]
    if keys and values:
        yield Length(values[0], (_count(site, keys[0]),), f"one value a key of {keys[0]}")


def _zip_map(site: Site) -> Iterator[Length]:
    name = "classlabels_strings" if _count(site, "classlabels_strings") else "classlabels_int64s"
    yield Length(name, (_features(site),), "one label a column of its operand")


LENGTHS: dict[str, Callable[[Site], Iterator[Length]]] = {
    "LinearRegressor": _regressor,
    "LinearClassifier": _classifier,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "Scaler": _along_features("offset", "scale"),
    "Imputer": _along_features("imputed_value_floats", "imputed_value_int64s"),
    "TreeEnsembleClassifier": _trees("class"),
    "TreeEnsembleRegressor": _trees("target"),
    "LabelEncoder": _encoder,
    "ZipMap": _zip_map,
}


def check_lengths(site: Site) -> None:
    """Check the lengths of a classical operator's attributes against its operand and its other attributes.

    Raises:
        InputError: an attribute has another length, a tree reads a feature that the operand does not have, or leads back to a node.
    """
    if site.domain != DOMAIN or not site.has(0):
        return
    for length in LENGTHS[site.op](site) if site.op in LENGTHS else ():
        count = _count(site, length.attribute)
        if count not in length.allowed:
            counts = " or ".join(str(n) for n in dict.fromkeys(length.allowed) if n)
            sentence = f'attribute "{length.attribute}" of {site.op} must have {counts} elements, not {count}'
            raise InputError("F130", sentence, help=f"give it {length.why}")
    _check_features(site)
    check_trees(site)


def _check_features(site: Site) -> None:
    """Refuse a tree that reads a feature beyond the operand's: the host would read out of bounds."""
    features = _features(site)
    wrong = next((int(n) for n in site.get("nodes_featureids", ()) if not 0 <= n < features), None)
    if wrong is not None:
        sentence = f'attribute "nodes_featureids" of {site.op} must have features 0…{features - 1}, not {wrong}'
        raise InputError("F130", sentence, help=f"the operand has {_counted(features, 'feature')}: train and export with the same columns")


def _like(dtype: str = "") -> Callable[[Site], list[TensorType]]:
    return lambda site: [TensorType(site.shape(0), dtype or site.type(site.value(0)).dtype)]


def _label(site: Site) -> TensorType:
    return TensorType((_samples(site),), "int64" if labels_of(site).dtype == "int64" else "string")


def _classes(site: Site) -> list[TensorType]:
    return [_label(site), TensorType((_samples(site), labels_of(site).size))]


def _decisions(site: Site) -> list[TensorType]:
    """Return the types of a support vector classifier's results: a column a class, or one a pair of classes without probabilities."""
    classes = labels_of(site).size
    pairs = classes * (classes - 1) // 2 if classes > 2 and site.get("support_vectors", ()) and not site.get("prob_a", ()) else classes
    return [_label(site), TensorType((_samples(site), pairs))]


def _columns(attribute: str) -> Callable[[Site], list[TensorType]]:
    return lambda site: [TensorType((_samples(site), int(site.get(attribute, 1))))]


def _encoded(site: Site) -> list[TensorType]:
    """Return the type of a LabelEncoder's result: that of its values."""
    names = {"values_strings": "string", "values_int64s": "int64", "values_floats": "float32"}
    value_dtype = next((dtype for name, dtype in names.items() if name in site.attributes), None)
    if value_dtype is None and "classes_strings" in site.attributes:
        value_dtype = "int64" if site.type(site.value(0)).dtype == "string" else "string"
    if value_dtype is None and "values_tensor" in site.attributes:
        value_dtype = site.context.tensor(site.attributes["values_tensor"], "the values of LabelEncoder")[1]
    return [TensorType(site.shape(0), value_dtype or "string")]


def _one_hot(site: Site) -> list[TensorType]:
    classes = _count(site, "cats_int64s") or _count(site, "cats_strings")
    return [TensorType((*site.shape(0), classes))]


def _picked(site: Site) -> list[TensorType]:
    count = site.type(site.value(1)).size
    return [TensorType((*(site.shape(0)[:-1] or (1,)), count), site.type(site.value(0)).dtype)]


def _joined(site: Site) -> list[TensorType]:
    return [TensorType((_samples(site), sum(site.get("inputdimensions", ()))))]


def _mapped(site: Site) -> list[TensorType]:
    return _like("int64" if site.type(site.value(0)).dtype == "string" else "string")(site)


TYPES: dict[str, Callable[[Site], Sequence[TensorType]]] = {
    "LinearRegressor": _columns("targets"),
    "LinearClassifier": _classes,
    "SVMClassifier": _decisions,
    "SVMRegressor": lambda site: [TensorType((_samples(site), 1))],
    "TreeEnsembleClassifier": _classes,
    "TreeEnsembleRegressor": _columns("n_targets"),
    "TreeEnsemble": lambda site: [TensorType((_samples(site), int(site.get("n_targets", 1))), site.type(site.value(0)).dtype)],
    "Scaler": _like("float32"),
    "Normalizer": _like("float32"),
    "Binarizer": _like(),
    "Imputer": _like(),
    "LabelEncoder": _encoded,
    "CategoryMapper": _mapped,
    "OneHotEncoder": _one_hot,
    "ArrayFeatureExtractor": _picked,
    "FeatureVectorizer": _joined,
}


def classical_types(site: Site) -> Sequence[TensorType] | None:
    """Return the types of the results of an operator of ai.onnx.ml, or None when it gives no tensors."""
    rule = TYPES.get(site.op)
    try:
        return None if rule is None else rule(site)
    except Unsupported:
        return None
