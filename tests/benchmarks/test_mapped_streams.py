"""The benchmark of mapped cycles: streams timed by hand, and law U8 on layers that are drawn.

U8: the cycles of a best mapping are within a tenth of those of the issued stream, or what lies between has a name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from house import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.fit.problems.layers import layer_problem
from rewrite_compiler.target import find_target

ISSUED = [
    ("load_inp", {"y_size": 1, "x_size": 16, "push_next": 1}),  # 256 bytes at 8 a cycle
    ("gemm", {"reset": 1, "uop_end": 1, "iter_out": 4, "iter_in": 4}),
    ("gemm", {"uop_end": 2, "iter_out": 4, "iter_in": 4, "pop_prev": 1, "push_next": 1}),
    ("store", {"y_size": 1, "x_size": 16, "pop_prev": 1}),
]


@pytest.fixture(scope="module")
def streams() -> Iterator[ModuleType]:
    """The benchmark, whose folder is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        import mapped_streams

        yield mapped_streams
        sys.modules.pop("mapped_streams")


def test_a_stream_of_four_commands(streams: ModuleType) -> None:
    vta = find_target("vta")
    parts = streams.vta_cycles(vta, vta.mappings["dense"], ISSUED)
    assert {name: n for name, n in parts.items() if n} == {
        "starts and epilogues": 16, "waits: l2g (the token is not there)": 16, "products": 32, "last stores": 32,
    }  # fmt: skip
    assert streams.row(find_target("hlscnn"), *streams.CASES[0]) is None


@st.composite
def layers(draw: Any) -> tuple[str, str, tuple[tuple[int, ...], ...], int]:
    """A product of matrices, or a convolution of one or nine taps at one step or two, of few channels or many."""
    if draw(st.booleans()):
        t, k, n = (draw(st.sampled_from(sizes)) for sizes in ((1, 3, 16, 40, 64), (16, 48, 200, 256), (16, 32, 100, 256)))
        return "drawn", "dense", ((t, k), (n, k)), 0
    taps, stride, c = draw(st.sampled_from((1, 3))), draw(st.sampled_from((1, 2))), draw(st.sampled_from((3, 16, 32, 64)))
    height, k = (draw(st.sampled_from((7, 8, 14))) - 1) * stride + taps, draw(st.sampled_from((8, 16, 64)))
    return "drawn", "conv", ((1, c, height, height), (k, c, taps, taps)), stride


@pytest.mark.parametrize("name", ["vta", "hlscnn", "genesys"])
def test_a_mapping_has_the_cycles_of_its_stream_or_the_rest_has_a_name(streams: ModuleType, name: str) -> None:
    """Most drawn layers are not near: their mappings have the stream's products, or the link's cycles for elements that cross once."""

    @settings(max_examples=30, deadline=None)
    @given(layers())
    def law(layer: tuple[str, str, tuple[tuple[int, ...], ...], int]) -> None:
        found = streams.row(find_target(name), *layer)
        if found is None:
            assert (name, layer[1]) == ("hlscnn", "dense")
            return
        assert sum(found["named"].values()) == found["events"] > 0
        assert min(found["named"].values()) > 0
        assert found["is_near"] or found["is_explained"], found

    law()


def test_cycles_of_a_link_beyond_products_come_out_of_the_largest_other_parts(streams: ModuleType) -> None:
    parts = {"products": 50, "waits: l2g": 30, "last stores": 8}
    assert streams.named_parts(parts, 40, 25) == {"products": 40, "lanes without work": 10, "waits: l2g": 30, "last stores": 8}
    assert streams.named_parts(parts, 40, 75) == {"products": 40, "lanes without work": 5, "last stores": 8, "elements over the link": 35}
    assert streams.named_parts(parts, 40, 99)["elements over the link"] == 48  # no more than there is


@pytest.mark.parametrize(
    ("layer", "count"), [("gemm:m=3,n=4,k=5", 47), ("conv:k=2,c=3,p=4,q=4,r=1,s=1,stride=2", 86), ("conv:k=2,c=3,p=4,q=4,r=3,s=3", 194)]
)
def test_elements_are_counted_once_if_they_are_used(streams: ModuleType, layer: str, count: int) -> None:
    """12 + 20 + 15; 3·16 + 6 + 2·16, since steps of two leave every other element out; 3·36 + 54 + 2·16."""
    assert streams.different_elements(layer_problem(layer)) == count
