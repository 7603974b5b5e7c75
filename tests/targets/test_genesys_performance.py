"""GeneSys's performance model against the published simulator's figures, and the tiler against the published tiling rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pace import within_steps
from shared import SHARED
from vectors import GOLDEN

from rewrite_compiler.errors import SpecError
from rewrite_compiler.targets._genesys_performance.design import Design
from rewrite_compiler.targets._genesys_performance.performance import layer_costs, network_costs
from rewrite_compiler.targets._genesys_performance.systolic import SystolicLayer, fits, published_tile, systolic_costs
from rewrite_compiler.targets._genesys_performance.tiler import search_tile

DATA = json.loads((GOLDEN / "genesys" / "performance.json").read_text("utf-8"))
TABLES = sorted((SHARED / "golden/verigood/genesys").glob("resnet*_[0-9][0-9].json")) if SHARED else []


@cache
def design(name: str) -> Design:
    return Design.of(DATA["designs"][name])


def differences(costs: Mapping[str, float] | None, expected: Mapping[str, Any] | None) -> dict[str, tuple[Any, Any]]:
    """Return what differs by more than the six decimals of the tables; the tile is compared apart."""
    costs, expected = costs or {}, {k: x for k, x in (expected or {}).items() if k != "tile"}
    assert costs.keys() == expected.keys()
    return {k: (costs[k], x) for k, x in expected.items() if costs[k] != pytest.approx(x, rel=1e-6, abs=1e-6)}


def check_layer(row: Mapping[str, Any]) -> None:
    d, layer = design(row["design"]), row["layer"]
    assert differences(layer_costs(d, layer, row["next"] or ""), row["expect"]) == {}
    if "tile" in row["expect"]:
        assert vars(published_tile(d, SystolicLayer.of(layer))) == row["expect"]["tile"]


@pytest.mark.parametrize("row", DATA["layers"], ids=lambda row: f"{row['design']}-{row['layer']['op']}")
def test_layer(row: Mapping[str, Any]) -> None:
    check_layer(row)


@pytest.mark.parametrize("name", DATA["resnet18_totals"])
def test_network(name: str) -> None:
    assert differences(network_costs(design(name), DATA["resnet18"]).total, DATA["resnet18_totals"][name]) == {}


@pytest.mark.shared
def test_layers_of_the_shared_folder(shared_dir: Path) -> None:
    for row in json.loads((shared_dir / "golden/verigood/genesys/layers_random.json").read_text("utf-8")):
        check_layer(row)


@pytest.mark.shared
@pytest.mark.parametrize("table", TABLES, ids=lambda p: p.stem)
def test_tables_of_the_shared_folder(table: Path) -> None:
    network, name = table.stem.split("_")
    rows = json.loads(table.with_name(f"{network}_layers.json").read_text("utf-8"))
    expected, performance = json.loads(table.read_text("utf-8")), network_costs(design(name), rows)
    assert differences(performance.total, expected["total"]) == {}
    for costs, layer in zip(performance.layers, expected["layers"], strict=True):
        assert differences(costs, layer) == {}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", DATA["designs"])
def test_searched_tiles_are_never_worse(name: str, exact: bool) -> None:
    d = design(name)
    searched = network_costs(d, DATA["resnet18"], lambda d, layer: search_tile(d, layer, exact=exact), exact=exact)
    assert searched.total["cycles"] < network_costs(d, DATA["resnet18"], exact=exact).total["cycles"]
    for row, tile in zip(DATA["resnet18"], searched.tiles, strict=True):
        assert tile is None or fits(d, tile, SystolicLayer.of(row).stride)


def test_exact_tiles_do_every_multiplication() -> None:
    """A whole number of tiles covers the layer: at least its operations, which a fraction of a tile may miss."""
    for row in (r for r in DATA["resnet18"] if r["op"] == "conv"):
        layer, d = SystolicLayer.of(row), design("08")
        needed = 2 * layer.oc * layer.ic * layer.kh * layer.kw * layer.oh * layer.ow
        assert systolic_costs(d, layer, published_tile(d, layer), exact=True)["ops"] >= needed


def test_thirteen_designs_take_little_time() -> None:
    within_steps(10_000_000, lambda: [network_costs(design(name), DATA["resnet18"]) for name in DATA["designs"]])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ARRAY_N": 0}, "parameter ARRAY_N of a GeneSys design must be at least 1, not 0"),
        ({"IBUF_AXI_DATA_WIDTH": None}, "parameter IBUF_AXI_DATA_WIDTH of a GeneSys design must be at least 1, not None"),
        (
            {"WBUF_CAPACITY_BITS": 1024},
            "WBUF_CAPACITY_BITS of a GeneSys design must hold one block of weights (1024 bits) in each half, not 512",
        ),
    ],
)
def test_a_design_that_cannot_be_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError) as refusal:
        Design.of(DATA["designs"]["01"] | change)
    assert refusal.value.problem.sentence == sentence


def test_layers_that_cannot_be_are_refused() -> None:
    d = design("01")
    for row, sentence in (
        ({"op": "softmax", "c": 4}, 'the performance model has no operator "softmax"'),
        ({"op": "conv", "oc": 0, "ic": 3}, "oc of a conv layer must be a positive integer, not 0"),
        ({"op": "relu", "c": 4, "h": 2.5, "w": 1}, "h of a relu layer must be a positive integer, not 2.5"),
    ):
        with pytest.raises(SpecError) as refusal:
            layer_costs(d, row)
        assert refusal.value.problem.sentence == sentence
