"""Figures of Union's paper: its architectures, its nested example, units of its printed mappings, aspect ratios and chiplets as shapes."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from house import ROOT

from rewrite_compiler.fit.mapping.architectures import find_clusters
from rewrite_compiler.fit.mapping.clusters import Cluster, Clusters
from rewrite_compiler.fit.mapping.schedule import schedule_from, violations
from rewrite_compiler.fit.mapping.texts.forms import FORMS, schedule_of_text
from rewrite_compiler.fit.mapping.texts.loops import listing
from rewrite_compiler.fit.problems.layers import layer_problem

BUDGET = 1_500


@pytest.fixture(scope="module")
def figures() -> Iterator[ModuleType]:
    """The benchmark, whose folder is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        import mapping

        yield mapping
        sys.modules.pop("mapping")


def test_the_command_line_of_the_benchmark(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It helps, refuses a group that it does not have, and writes the rows of the one that is asked for."""
    arguments = ("mapping", figures.__doc__, 8, {"printed": lambda _: [{"units": n} for _, n, _ in figures.printed_axes()]}, figures.shown)
    for given, code, said in ((["--help"], 0, "measure this group"), (["--only", "spede"], 2, "'spede' (choose from")):
        monkeypatch.setattr("sys.argv", ["mapping.py", *given])
        with pytest.raises(SystemExit) as stop:
            figures.in_groups("mapping", figures.__doc__, 8, figures.GROUPS, figures.shown)
        assert stop.value.code == code
        assert said in "".join(capsys.readouterr())
    path = tmp_path / "record.json"
    monkeypatch.setattr("sys.argv", ["mapping.py", "--only", "printed", "--json", str(path)])
    figures.in_groups(*arguments)
    assert [row["units"] for row in json.loads(path.read_text("utf-8"))["rows"]] == [256, 1_024]
    assert "  units 1,024\n" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "units", "l2", "rate"), [("edge", 256, 100, 32), ("cloud", 2_048, 800, 256)])
def test_the_architectures_are_the_papers(name: str, units: int, l2: int, rate: int) -> None:
    """A word is a byte and the clock a gigahertz, so elements a cycle are gigabytes a second."""
    clusters = find_clusters(name)
    capacities = {c.name: c.capacity for c in clusters.levels if c.capacity}
    assert (clusters.units, clusters.hertz, capacities) == (units, 10**9, {"L2": l2 * 1024, "L1": 512})
    assert [width for _, width in clusters.limited_links] == [rate]


def test_the_nested_example_in_every_form() -> None:
    """A product on DRAM, L2 and 2 (Y) by 4 (X) units, each with L1: four levels, the one between both axes virtual."""
    clusters = Clusters(
        "example",
        (Cluster("C4"), Cluster("C3", 256, 2, "Y"), Cluster("C2", children=4, axis="X", is_virtual=True), Cluster("C1", 32)),
        10**9,
    )  # fmt: skip
    problem = layer_problem("gemm:m=16,n=8,k=8")
    levels = [
        {"cluster": "C4", "order": ["m", "n"], "temporal": {"m": 8, "n": 4, "k": 8}, "spatial": {"m": 8, "n": 4, "k": 8}},
        {"cluster": "C3", "order": ["k"], "temporal": {"m": 8, "n": 4, "k": 2}, "spatial": {"m": 4, "n": 4, "k": 2}},
        {"cluster": "C2", "order": [], "temporal": {"m": 4, "n": 4, "k": 2}, "spatial": {"m": 4, "n": 1, "k": 2}},
        {"cluster": "C1", "order": ["m", "k"], "temporal": {"m": 1, "n": 1, "k": 1}, "spatial": {"m": 1, "n": 1, "k": 1}},
    ]
    schedule = schedule_from(levels, problem, clusters)
    assert violations(problem, clusters, schedule) == ()
    assert listing(schedule, problem, clusters) == [
        "C4  holds all",
        "  for m in 0..1 step 8",
        "    for n in 0..1 step 4",
        "      C3  holds 256 elements",
        "        for k in 0..3 step 2",
        "          parallel m over 2 on axis Y",
        "            C2  virtual",
        "              parallel n over 4 on axis X",
        "                C1  holds 32 elements",
        "                  for m in 0..3 step 1",
        "                    for k in 0..1 step 1",
        "                      y += mac2 of a, b",
    ]
    for form in FORMS.values():
        assert schedule_of_text(form.text(schedule, problem, clusters), problem, clusters) == schedule


def test_units_of_the_printed_mappings(figures: ModuleType) -> None:
    """On 32 by 64 units a contraction of sixteens fills 16 by 16, its product of matrices 16 by 64, which has the lower product."""
    (_, native_units, native), (_, product_units, product) = figures.printed_axes()
    assert (native_units, product_units) == (256, 1_024)
    assert product < native


def test_aspect_ratios(figures: ModuleType) -> None:
    """A convolution pays for units that a flat array leaves idle; once all work the shape matters little; a flat product likes any."""
    shapes = figures.SHAPES["edge"]
    rows = figures.by_shape("edge", figures.LAYERS["ResNet50-1"], shapes, BUDGET)
    shares = [share for _, share in rows]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.25, 1.0)
    full = [value for value, share in rows if share == 1.0]
    assert max(full) < 1.1 * min(full)
    for value, share in rows:
        assert value * share == pytest.approx(min(full), rel=0.1)
    flat, *others = (value for value, _ in figures.by_shape("cloud", figures.UNBALANCED, [(1, 2048), (32, 64)], BUDGET))
    assert all(flat <= 1.001 * value for value in others)


def test_chiplets(figures: ModuleType) -> None:
    """The product falls with the bandwidth that fills a chiplet, then is flat, of the convolution with the most reuse first."""
    rates = (1, 2, 4, 8, 16)
    curves = {name: figures.by_rate(figures.LAYERS[name], rates, BUDGET) for name in ("ResNet50-2", "ResNet50-1", "DLRM-2")}
    flat_from = {}
    for name, values in curves.items():
        assert all(b <= 1.02 * a for a, b in itertools.pairwise(values)), name
        assert values[-1] == pytest.approx(min(values), rel=0.02)
        flat_from[name] = next(rate for rate, value in zip(rates, values, strict=True) if value < 1.05 * values[-1])
    assert flat_from["ResNet50-2"] <= 2 < min(flat_from["ResNet50-1"], flat_from["DLRM-2"])
    assert math.isclose(curves["ResNet50-1"][0], 2 * curves["ResNet50-1"][1], rel_tol=0.05)  # the link alone decides there
