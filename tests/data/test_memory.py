"""Samples in memory: the forms in which a program hands them over, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewrite_compiler.data.in_memory import samples_in_memory
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ir.types import TensorType

FEATURES = {"x": TensorType((1, 3))}
TWO = {"age": TensorType((1, 1)), "size": TensorType((1, 1))}


class Series:
    """A column of a table."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def to_numpy(self) -> Any:
        return self.x


class Table:
    """What tables of pandas and polars have in common; numbers are float64 there unless somebody says otherwise."""

    def __init__(self, x: Any, columns: tuple[Any, ...]) -> None:
        self.x, self.columns = x, columns

    def to_numpy(self) -> Any:
        return self.x

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, list):
            return Table(self.x[:, [self.columns.index(n) for n in name]], tuple(name))
        return Series(self.x[:, self.columns.index(name)])


def test_a_table_gives_the_features_of_one_input_or_one_column_each() -> None:
    x = np.arange(6.0).reshape(2, 3)
    whole = samples_in_memory(Table(x, ("a", "b", "c")), FEATURES).arrays
    assert (list(whole), whole["x"].dtype) == (["x"], np.float32)
    assert np.array_equal(whole["x"], x)
    columns = samples_in_memory((Table(x, ("size", "b", "age")), [0, 1]), TWO).arrays
    assert (columns["age"].tolist(), columns["size"].tolist(), columns["labels"].tolist()) == ([2, 5], [0, 3], [0, 1])


def test_a_column_of_labels_is_no_feature() -> None:
    x = np.array([[0.0, 1, 7, 2], [3, 4, 8, 5]])
    whole = samples_in_memory(Table(x, (0, 1, "labels", 2)), FEATURES).arrays  # pandas numbers columns that have no name
    assert (whole["x"].tolist(), whole["labels"].tolist()) == ([[0, 1, 2], [3, 4, 5]], [7, 8])
    columns = samples_in_memory(Table(x, ("size", "targets", "labels", "age")), TWO).arrays
    assert {name: a.tolist() for name, a in columns.items()} == {"size": [0, 3], "age": [2, 5], "labels": [7, 8], "targets": [1, 4]}
    as_input = samples_in_memory(Table(x[:, 2:3], ("labels",)), {"labels": TensorType((1, 1))}).arrays
    assert as_input["labels"].tolist() == [7, 8]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.booleans())
def test_batches_are_the_whole_in_order(sizes: list[int], with_batch_axis: bool) -> None:
    shape = (1, 3) if with_batch_axis else (3,)
    x, labels = np.arange(3.0 * sum(sizes), dtype=np.float32).reshape(-1, *shape), np.arange(sum(sizes))
    ends = np.cumsum(sizes)
    batches = ([x[end - n : end], labels[end - n : end]] for n, end in zip(sizes, ends, strict=True))
    singles = ((one, label) for one, label in zip(x, labels, strict=True))
    for form in (batches, singles):
        joined = samples_in_memory(form, FEATURES).arrays
        assert np.array_equal(joined["x"].reshape(-1, 3), x.reshape(-1, 3))
        assert np.array_equal(joined["labels"], labels)


def test_the_hash_tells_values_types_shapes_and_names_apart() -> None:
    x = np.zeros((2, 3), np.float32)
    variants = [{"x": x}, {"x": x + 1}, {"x": x.astype(np.int32)}, {"x": x.reshape(3, 2)}, {"y": x}, {"x": x, "y": x}]
    assert len({samples_in_memory(v, FEATURES).sha256 for v in variants}) == len(variants)


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        (np.zeros((2, 1)), "one array is given and the model has 2 inputs\n  help: name them: \"age\", \"size\""),
        ([np.zeros((2, 3)), "x"], "one array is given and the model has 2 inputs\n  help: name them: \"age\", \"size\""),
        ([{"age": np.zeros((2, 1))}, {"age": np.zeros((2, 2))}], "samples of \"age\" must have one shape, not (1,) and (2,)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(samples: Any, sentence: str) -> None:
    with pytest.raises(FlexmatchError) as caught:
        samples_in_memory(samples, TWO)
    assert sentence in str(caught.value)
