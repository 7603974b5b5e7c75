"""`explain` of what `map` wrote: where tensors live, what decides, what other sizes save, each figure against the mapping priced again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch, refused
from jsonschema import validate

from rewrite_compiler.apps import find_application
from rewrite_compiler.cli.schemas import schema_of
from rewrite_compiler.fit.api import map as mapping_of
from rewrite_compiler.fit.mapping.architectures import find_clusters

EDGE = find_clusters("edge")
COLUMN = "gemm:m=768,n=1,k=768"  # a product with one column: nothing of its matrix is used twice


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The document of a layer that its link limits."""
    path = tmp_path_factory.mktemp("maps") / "column.json"
    answer = flexmatch("map", COLUMN, "--arch", "edge", "--objective", "cycles", "--budget", "2000", "--json", path, "-q")
    assert (answer.code, answer.err) == (0, "")
    return path


def explained(*arguments: object) -> list[dict[str, Any]]:
    """Return the layers that `explain` tells of, in a document as its schema says."""
    answer = flexmatch("explain", *arguments, "--json", "-")
    assert (answer.code, answer.err) == (0, "")
    document = json.loads(answer.out)
    validate(document, schema_of("explain"))
    layers: list[dict[str, Any]] = document["layers"]
    return layers


def test_what_decides_a_layer_and_what_would_help(written: Path) -> None:
    (row,) = explained(written)
    (layer,) = json.loads(written.read_text("utf-8"))["layers"]
    cost = layer["cost"]
    assert (row["cycles"], row["energy_fj"], row["limits"]) == (cost["cycles"], cost["energy_fj"], layer["limits"])
    assert sum(e["energy_fj"] for e in row["energy"]) == cost["energy_fj"]
    for resident in row["residence"]:
        counters = cost["counters"][resident["level"]][resident["tensor"]]
        assert (resident["tile"], resident["arrivals"]) == (counters["tile"], counters["fills"] * counters["instances"])
        if resident["level"] == "L2":
            assert resident["uses"] == pytest.approx((counters["reads"] + counters["updates"]) / counters["fills"])
    saved = {tuple(c["parameters"].items()): c["saved"] for c in row["changes"]}
    assert saved[(("row.width", 64),)] == pytest.approx(0.5)  # the link alone decides
    assert not any(share for parameters, share in saved.items() if parameters != (("row.width", 64),))
    text = flexmatch("explain", written).out
    assert "time       link below L2 18,480 cycles decide, then units 2,304" in text
    assert "helps      row.width=64 saves 50.0% of the cycles; no larger memory helps" in text


def test_the_width_that_is_named_is_the_least_at_which_the_link_keeps_up(written: Path) -> None:
    (row,) = explained(written)
    (layer,) = json.loads(written.read_text("utf-8"))["layers"]
    (link,) = row["widths"]
    for width, first in ((link["enough"], "units"), (link["enough"] - 1, "link below L2")):
        wide = replace(EDGE, levels=tuple(replace(c, width=width if c.name == "row" else c.width) for c in EDGE.levels))
        priced = mapping_of(COLUMN, wide, objective="cycles", mapping=layer["mapping"])
        steps = next(limit["cycles"] for limit in priced["limits"] if limit["part"] == "units")
        assert (priced["cost"]["cycles"] == steps) == (first == "units")


def test_a_bad_mapping_is_told_apart_from_small_sizes(written: Path, tmp_path: Path) -> None:
    """Of a mapping that leaves units idle another one on the same sizes saves; the advice says so first."""
    document = json.loads(written.read_text("utf-8"))
    layer = document["layers"][0]
    sizes = {"m": 768, "n": 1, "k": 768}
    ones = dict.fromkeys(sizes, 1)
    order = ["m", "n", "k"]
    whole, single = {"temporal": sizes, "spatial": sizes}, {"temporal": ones, "spatial": ones}
    layer["mapping"] = [
        {"cluster": "DRAM", "order": order, **single}, *({"cluster": c, "order": order, **single} for c in ("L2", "row", "L1")),
    ]  # fmt: skip
    path = tmp_path / "idle.json"
    path.write_text(json.dumps(document))
    (row,) = explained(path)
    assert row["cycles"] == 768 * 768
    assert row["changes"][0]["parameters"] == {}
    assert row["changes"][0]["saved"] == pytest.approx(1 - 18480 / 768**2, abs=1e-6)
    assert "helps      another mapping saves 96.9% with the same sizes; row.width=64 saves" in flexmatch("explain", path).out
    layer["mapping"][0].update(whole)
    path.write_text(json.dumps({**document, "layers": [{**layer, "mapping": layer["mapping"][:1] + [
        {"cluster": c, "order": order, **whole} for c in ("L2", "row")] + [{"cluster": "L1", "order": order, **single}]}]}))  # fmt: skip
    answer = flexmatch("explain", path)
    assert answer.code == 3
    assert "Tiles at L2 take 591,360 elements, the memory holds 102,400" in answer.err
    assert str(path) in answer.err


def test_the_loops_that_bring_a_tensor(written: Path) -> None:
    (row,) = explained(written, "--why", "L1,a")
    (layer,) = json.loads(written.read_text("utf-8"))["layers"]
    asked = flexmatch("map", COLUMN, "--arch", "edge", "--mapping", written, "--objective", "cycles", "--why", "L1,a", "--json", "-")
    assert row["why"] == json.loads(asked.out)["layers"][0]["why"]
    assert row["why"]["fills"] == layer["cost"]["counters"]["L1"]["a"]["fills"]


def test_a_page_draws_tiles_loops_and_reuse(written: Path, tmp_path: Path) -> None:
    """Tiles are as wide as their share of what a memory holds; loops are the mapping's; names are text."""
    document, path, page = json.loads(written.read_text("utf-8")), tmp_path / "named.json", tmp_path / "page.html"
    layer = document["layers"][0]
    layer["name"] = "<i>column"
    for levels in (layer["clusters"]["levels"], layer["mapping"]):
        key = "name" if "name" in levels[1] else "cluster"
        levels[1][key] = "L2  & <b>"
    layer["clusters"]["energies"]["L2  & <b>"] = layer["clusters"]["energies"].pop("L2")
    path.write_text(json.dumps(document))
    answer = flexmatch("explain", path, "--html", page, "--json", "-")
    assert (answer.code, answer.err) == (0, "")
    (row,) = json.loads(answer.out)["layers"]
    text = page.read_text("utf-8")
    assert "<h2>&lt;i&gt;column</h2>" in text
    assert "<i>" not in text
    assert "<b>" not in text
    tiles = {
        title: float(width)
        for width, title in re.findall(r'<rect x="[^"]*" y="[^"]*" width="([^"]*)" [^>]*><title>([^<]*elements at a time)</title>', text)
    }
    for resident in row["residence"]:
        if resident["capacity"]:
            words = f"{resident['tensor']}: {resident['tile']:,} of {resident['capacity']:,} elements at a time"
            assert tiles[words] == pytest.approx(max(420 * resident["tile"] / resident["capacity"], 0.5), rel=1e-3)
    loops = [f"for {loop['dimension']} in {loop['steps']:,} steps" for level in row["nest"] for loop in level["loops"]]
    assert re.findall(r"for \w+ in [0-9,]+ steps", text) == loops
    assert (
        math.prod([loop["steps"] for x in row["nest"] for loop in x["loops"]] + [p["parts"] for x in row["nest"] for p in x["parallel"]])
        == 768 * 768
    )


def test_layers_of_a_model_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    model = find_application("digits_cnn").model
    assert flexmatch("map", model, "--arch", "edge", "--budget", "300", "--json", path, "-q").code == 0
    layers = json.loads(path.read_text("utf-8"))["layers"]
    rows = explained(path)
    assert [(r["name"], r["cycles"]) for r in rows] == [(x["name"], x["cost"]["cycles"]) for x in layers]
    assert all(r["limits"] == x["limits"] and "changes" not in r for r, x in zip(rows, layers, strict=True))
    (row,) = explained(path, layers[1]["name"])
    assert row["name"] == layers[1]["name"]
    assert row["changes"]
    assert f"more flexmatch explain {path} {layers[0]['name']}" in " ".join(flexmatch("explain", path).out.split())
    names = [layer["name"] for layer in layers]
    said = f'error[F203]: the document has no layer "conv_1"\n  help: did you mean "{names[0]}"? layers: {", ".join(names)}'
    refused(flexmatch("explain", path, "conv_1"), 2, said)
    said = f"error[F203]: --why is for one layer, and {path} has 3\n  help: name one: {path} {names[0]}"
    refused(flexmatch("explain", path, "--why", "L1,x"), 2, said)


def _lacks(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["layers"][0].pop(key)


SPOILED: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (_lacks("clusters"), "A layer of the document lacks clusters: flexmatch map --json writes it"),
    (lambda d: d.update(layers=[]), "The document must hold layers with their mappings, as flexmatch map --json writes them"),
    (lambda d: d["layers"][0].update(repeats=0), "A layer of the document must be there once or more, not 0 times"),
    (lambda d: d["layers"][0]["cost"].update(model="zigzag"), 'The model must be one of timeloop, maestro, not "zigzag"'),
    (lambda d: d["layers"][0]["clusters"].update(levels=[]), "There must be levels of an architecture, not none"),
    (lambda d: d["layers"][0]["mapping"].pop(), "The levels of the mapping must be DRAM, L2, row, L1, not DRAM, L2, row"),
    (lambda d: d["layers"][0].update(objective="fame"), 'The objective of the document must be one that edge can price, not "fame"'),
]


@pytest.mark.parametrize(("spoil", "sentence"), SPOILED, ids=[sentence for _, sentence in SPOILED])
def test_a_spoiled_document_is_refused(written: Path, tmp_path: Path, spoil: Callable[[dict[str, Any]], Any], sentence: str) -> None:
    document = json.loads(written.read_text("utf-8"))
    spoil(document)
    path = tmp_path / "spoiled.json"
    path.write_text(json.dumps(document))
    answer = flexmatch("explain", path)
    assert answer.code == 3
    assert sentence in answer.err
    assert str(path) in answer.err


def test_options_of_other_subjects_are_refused(written: Path, tmp_path: Path) -> None:
    said = "error[F203]: --accel is for a model or plan, not for a document of mappings\n  help: leave it out: it would change nothing here"
    refused(flexmatch("explain", written, "--accel", "vta"), 2, said)
    said = "error[F203]: --why is for a document of mappings, not for an error code\n  help: leave it out: it would change nothing here"
    refused(flexmatch("explain", "F203", "--why", "L1,a"), 2, said)
    refused(flexmatch("explain", "F203", "--html", tmp_path / "a.html"), 2, said.replace("--why", "--html"))
    refused(flexmatch("explain", written, "--why", "L1"), 2, 'error[F203]: --why is LEVEL,TENSOR, not "L1"\n  help: as in L1,a')
