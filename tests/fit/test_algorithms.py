"""Algorithms: the products that contractions and convolutions become compute the same, and Union's three are best as products."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite_compiler.errors import InputError
from rewrite_compiler.fit.algorithm_choice import algorithm_documents
from rewrite_compiler.fit.mapping.architectures import find_clusters
from rewrite_compiler.fit.problems.algorithms import algorithms
from rewrite_compiler.fit.problems.layers import layer_problem
from rewrite_compiler.fit.problems.problem import Problem

UNION = [  # equation, extent, rows, columns and summed of the product, as the paper has them
    ("dbea,ec->abcd", 64, 262_144, 64, 64), ("dbea,ec->abcd", 16, 4_096, 16, 16), ("adec,ebd->abc", 64, 4_096, 64, 4_096),
    ("adec,ebd->abc", 16, 256, 16, 256), ("dfgb,geac->abcdef", 32, 32_768, 32_768, 32), ("dfgb,geac->abcdef", 16, 4_096, 4_096, 16),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "size", "m", "n", "k"), UNION)
def test_the_products_of_the_three_contractions(equation: str, size: int, m: int, n: int, k: int) -> None:
    problem = layer_problem(f"einsum:{equation}:{size}")
    native, product = algorithms(problem)
    assert native.problem == problem
    assert (product.name, dict(product.problem.dimensions)) == ("ttgt", {"m": m, "n": n, "k": k})
    assert product.problem.points == problem.points


CONVOLUTIONS = {  # the sizes of both products, and the elements that go around them
    # windows: x is read and written. Channels: w is turned, and each result sums 9 products
    "conv:k=8,c=4,p=6,q=6,r=3,s=3": ((36, 8, 36), 4 * 64 + 36 * 36, (64, 72, 4), 2 * 8 * 4 * 9 + 9 * 8 * 36 + 8 * 36),
}


@pytest.mark.parametrize("layer", CONVOLUTIONS)
def test_the_products_of_a_convolution(layer: str) -> None:
    _, windows, channels = algorithms(layer_problem(layer))
    sizes, moved, by_channels, summed = CONVOLUTIONS[layer]
    assert (windows.name, tuple(windows.problem.dimensions[d] for d in "mnk"), windows.layout_elements) == ("im2col", sizes, moved)
    assert (channels.name, tuple(channels.problem.dimensions[d] for d in "mnk"), channels.layout_elements) == ("ttgt", by_channels, summed)


def test_a_convolution_of_one_tap_is_a_contraction() -> None:
    _, product = algorithms(layer_problem("conv:k=8,c=4,p=6,q=6"))
    assert (product.name, dict(product.problem.dimensions), product.layout_elements) == ("ttgt", {"m": 36, "n": 8, "k": 4}, 0)


def test_a_depthwise_convolution_is_one_product_a_channel() -> None:
    _, windows, channels = algorithms(layer_problem("conv:k=4,c=4,p=6,q=6,r=3,s=3,group=4"))
    assert dict(windows.problem.dimensions) == {"b": 4, "m": 36, "n": 1, "k": 9}
    assert dict(channels.problem.dimensions) == {"b": 4, "m": 64, "n": 9, "k": 1}


def test_what_is_no_product_of_matrices_is_refused() -> None:
    summed = Problem({"i": 2, "j": 3, "k": 4}, {"A": ({"i": 1}, {"k": 1}), "B": ({"j": 1},), "Z": ({"i": 1}, {"j": 1})}, "Z")
    three = Problem({"i": 2, "j": 3}, {"A": ({"i": 1},), "B": ({"j": 1},), "C": ({"j": 1},), "Z": ({"i": 1}, {"j": 1})}, "Z", "mac3")
    for problem, sentence in (
        (summed, "A product of matrices sums over indices of both A and B"),
        (three, "Only a product of two operands is a product of matrices, not of 3"),
    ):
        with pytest.raises(InputError) as caught:
            algorithms(problem)
        assert (caught.value.problem.code, caught.value.problem.sentence) == ("F233", sentence)


@pytest.mark.parametrize("equation", ["dbea,ec->abcd", "adec,ebd->abc", "dfgb,geac->abcdef"])
def test_a_product_beats_the_loops_of_a_contraction_on_the_cloud(equation: str) -> None:
    """With one dimension an axis, 16 a dimension and layouts that cost nothing, as the paper has it: ordering, and units at work."""
    cloud = find_clusters("cloud")

    def answers(free_layout: bool) -> list[dict[str, Any]]:
        limits = {"one_dimension_an_axis": True}
        return algorithm_documents(layer_problem(f"einsum:{equation}:16"), cloud, "edp", free_layout, budget=3_000, constraints=limits)

    native, product = answers(True)
    assert product["value"] < native["value"]
    units = [round(way["mapping"]["cost"]["utilisation"] * cloud.units) for way in (native, product)]
    assert units[0] == 256  # sixteen along either axis
    assert units[1] >= (1_024 if equation == "dbea,ec->abcd" else 512)
    priced = answers(False)
    assert priced[0] == native
    assert priced[1]["energy_fj"] == product["energy_fj"] + priced[1]["layout_elements"] * cloud.energies["DRAM"]
