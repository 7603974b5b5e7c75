"""Mappings: evaluations a second, `flexmatch map` from cold, gaps on ResNet-18, legal ones drawn a second, and Union's figures.

Times are processor seconds, from cold those of the clock, too; the figures (contractions, aspect ratios, chiplets) are the same on
every machine.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from record import Row, fresh_answers, in_groups, spread

from rewrite_compiler.fit.mappers.run import best_mapping
from rewrite_compiler.fit.mapping.architectures import find_clusters
from rewrite_compiler.fit.mapping.clusters import Cluster, Clusters
from rewrite_compiler.fit.mapping.constraints import Constraints
from rewrite_compiler.fit.mapping.space import CHUNK, Space
from rewrite_compiler.fit.models.model import Objective
from rewrite_compiler.fit.models.published import MODELS
from rewrite_compiler.fit.problems.layers import layer_problem

RESNET18 = (
    "conv:k=64,c=3,p=112,q=112,r=7,s=7,stride=2", "conv:k=64,c=64,p=56,q=56,r=3,s=3", "conv:k=128,c=64,p=28,q=28,r=3,s=3,stride=2",
    "conv:k=128,c=64,p=28,q=28,stride=2", "conv:k=128,c=128,p=28,q=28,r=3,s=3", "conv:k=256,c=128,p=14,q=14,r=3,s=3,stride=2",
    "conv:k=256,c=128,p=14,q=14,stride=2", "conv:k=256,c=256,p=14,q=14,r=3,s=3", "conv:k=512,c=256,p=7,q=7,r=3,s=3,stride=2",
    "conv:k=512,c=256,p=7,q=7,stride=2", "conv:k=512,c=512,p=7,q=7,r=3,s=3",
)  # fmt: skip
LAYERS = {
    "ResNet50-1": "conv:n=32,k=64,c=64,p=56,q=56", "ResNet50-2": "conv:n=32,k=64,c=64,p=56,q=56,r=3,s=3",
    "ResNet50-3": "conv:n=32,k=512,c=1024,p=14,q=14", "DLRM-1": "gemm:m=512,n=1024,k=1024", "DLRM-2": "gemm:m=512,n=64,k=1024",
    "DLRM-3": "gemm:m=512,n=2048,k=2048", "BERT-1": "gemm:m=256,n=768,k=768", "BERT-2": "gemm:m=256,n=768,k=3072",
    "BERT-3": "gemm:m=256,n=3072,k=768",
}  # fmt: skip
# equation and the groups of indices of the product of matrices that it becomes: rows, columns, summed
CONTRACTIONS = {"intensli2": ("dbea,ec->abcd", 16), "ccsd7": ("adec,ebd->abc", 16), "ccsd-t4": ("dfgb,geac->abcdef", 16)}
UNBALANCED = "gemm:m=4,n=2,k=2048"
SHAPES = {"edge": [(1, 256), (2, 128), (4, 64), (8, 32), (16, 16)], "cloud": [(2**k, 2048 >> k) for k in range(6)]}
TIMELOOP = MODELS["timeloop"]


def speed(runs: int) -> list[Row]:
    """Evaluations a second of random tilings with random orders, all counters of 3 memories, in the chunks that mappers use."""
    flat, rows = Clusters("flat", (Cluster("DRAM"), Cluster("L2", children=256, axis="X"), Cluster("L1")), 10**9), list[Row]()
    for name, layer in (("product", "gemm:m=4096,n=16,k=16"), ("convolution", "conv:k=64,c=64,p=56,q=56,r=3,s=3")):
        space = Space(layer_problem(layer), flat)
        batches = [space.batch(space.sample(CHUNK, np.random.default_rng(k))) for k in range(8)]
        bypasses = Constraints().bypasses(space.problem, flat)
        rates = []
        for _ in range(runs):
            start = time.process_time()
            for batch in batches:
                TIMELOOP.evaluate(flat, replace(batch), bypasses)
            rates.append(round(sum(b.rows for b in batches) / (time.process_time() - start)))
        rows.append({"layer": name, "mappings_a_second": spread(rates), "least": min(rates), "most": max(rates)})
    return rows


def cold(runs: int) -> list[Row]:
    """`flexmatch map LAYER` in a new process with nothing kept: seconds by the clock and of the processor."""
    rows = list[Row]()
    for layer in (*RESNET18, LAYERS["DLRM-2"]):
        by_clock, of_processor = [], []
        for _ in range(runs):
            with fresh_answers():
                start, before = time.perf_counter(), os.times()
                subprocess.run(["flexmatch", "map", layer, "--arch", "edge"], check=True, stdout=subprocess.DEVNULL)
                by_clock.append(round(time.perf_counter() - start, 3))
                of_processor.append(round(sum(os.times()[2:4]) - sum(before[2:4]), 3))
        rows.append({"layer": layer, "clock_seconds": spread(by_clock), "most": max(by_clock), "processor_seconds": spread(of_processor)})
    return rows


def resnet18(runs: int) -> list[Row]:
    """The 11 distinct layers on `edge` with as many seeds: processor time, energy-delay products, the largest gap of each layer."""
    edge, rows = find_clusters("edge"), list[Row]()
    for budget in (2_000, 4_000, 20_000):
        gaps, seconds, products = [], [], []
        for seed in range(runs):
            start = time.process_time()
            results = [best_mapping(layer_problem(layer), edge, TIMELOOP, budget=budget, seed=seed) for layer in RESNET18]
            seconds.append(round(time.process_time() - start, 3))
            gaps.append([r.gap or 0.0 for r in results])
            products.append(float(sum(r.cost.value(Objective.EDP) for r in results)))
        worst = [round(100 * max(column), 2) for column in zip(*gaps, strict=True)]
        rows.append({
            "budget": budget, "seeds": runs, "seconds": [min(seconds), max(seconds)], "edp": [min(products), max(products)],
            "largest_gap_percent": max(worst), "by_layer": worst,
        })  # fmt: skip
    return rows


def groups_of(equation: str) -> tuple[str, str, str]:
    """Return free indices of either operand and the summed ones."""
    operands, result = equation.split("->")
    left, right = operands.split(",")
    summed = "".join(d for d in left if d in right and d not in result)
    return "".join(d for d in left if d not in summed), "".join(d for d in right if d not in summed), summed


def drawn(runs: int) -> list[Row]:
    """Legal mappings a second of the mapper that draws, and what 5,000 evaluations of the default one reach beside 50,000 of it."""
    edge, rows = find_clusters("edge"), list[Row]()
    for layer in (*RESNET18, *LAYERS.values()):
        problem, ratios = layer_problem(layer), []
        legal, start = 0, time.process_time()
        results = [best_mapping(problem, edge, TIMELOOP, mapper="random", budget=50_000, seed=seed) for seed in range(max(runs // 4, 1))]
        seconds = time.process_time() - start
        for seed, result in enumerate(results):
            legal += result.legal
            best = best_mapping(problem, edge, TIMELOOP, budget=5_000, seed=seed)
            ratios.append(round(float(best.cost.value(Objective.EDP)) / float(result.cost.value(Objective.EDP)), 3))
        rows.append({"layer": layer, "legal_a_second": round(legal / seconds), "most_edp_beside_drawn": max(ratios)})
    return rows


def contractions(_: int) -> list[Row]:
    """Native contraction against transpose-transpose-GEMM-transpose on `cloud`, with and without one dimension an axis."""
    cloud, rows = find_clusters("cloud"), list[Row]()
    for name, (equation, size) in CONTRACTIONS.items():
        m, n, k = (size ** len(group) for group in groups_of(equation))
        for label, constraints in (("one dimension an axis", Constraints(is_one_an_axis=True)), ("any", Constraints())):
            native = best_mapping(layer_problem(f"einsum:{equation}:{size}"), cloud, TIMELOOP, constraints=constraints)
            gemm = best_mapping(layer_problem(f"gemm:m={m},n={n},k={k}"), cloud, TIMELOOP, constraints=constraints)
            units = [int(r.cost.utilisation * cloud.units) for r in (native, gemm)]
            values = [float(r.cost.value(Objective.EDP)) for r in (native, gemm)]
            rows.append({
                "contraction": name, "axes": label, "product": {"m": m, "n": n, "k": k},
                "native_units": units[0], "product_units": units[1], "native_edp": values[0], "product_edp": values[1],
                "ratio": round(values[0] / values[1], 3),
            })  # fmt: skip
    printed: list[Row] = [
        {"contraction": "intensli2", "axes": "as printed", "layer": layer, "units": units_at_work, "edp": value}
        for layer, units_at_work, value in printed_axes()
    ]
    return rows + printed


def printed_axes() -> list[tuple[str, int, float]]:
    """Return name, units and product of both of intensli2's mappings that the paper prints: the dimension on either axis is its own."""
    cloud, equation = find_clusters("cloud"), CONTRACTIONS["intensli2"][0]
    ways = {f"einsum:{equation}:16": {"L2": ("a",), "row": ("e",)}, "gemm:m=4096,n=16,k=16": {"L2": ("k",), "row": ("m",)}}
    rows = []
    for layer, parallel in ways.items():
        result = best_mapping(layer_problem(layer), cloud, TIMELOOP, budget=4_000, constraints=Constraints(parallel=parallel))
        rows.append((layer, int(result.cost.utilisation * cloud.units), float(result.cost.value(Objective.EDP))))
    return rows


def aspect(_: int) -> list[Row]:
    """Energy-delay product over the shape of the array, relative to the best shape; one dimension an axis."""
    rows: list[Row] = []
    for name, shapes in SHAPES.items():
        for layer, text in {**LAYERS, "unbalanced": UNBALANCED}.items():
            values = [value for value, _ in by_shape(name, text, shapes)]
            relative = {f"{y}x{x}": round(v / min(values), 3) for (y, x), v in zip(shapes, values, strict=True)}
            rows.append({"architecture": name, "layer": layer, "relative_edp": relative})
    return rows


def by_shape(name: str, layer: str, shapes: Sequence[tuple[int, int]], budget: int = 6_000) -> list[tuple[float, float]]:
    """Return energy-delay product and share of the units at work on every shape of an architecture's array."""
    base, constraints, rows = find_clusters(name), Constraints(is_one_an_axis=True), []
    for y, x in shapes:
        clusters = base.with_shape({"Y": y, "X": x})
        cost = best_mapping(layer_problem(layer), clusters, TIMELOOP, budget=budget, constraints=constraints).cost
        rows.append((float(cost.value(Objective.EDP)), float(cost.utilisation)))
    return rows


def chiplets(_: int) -> list[Row]:
    """Energy-delay product of 16 chiplets over the bandwidth in GB/s that fills each, relative to the widest."""
    rates, rows = (1, 2, 4, 6, 8, 12, 16), list[Row]()
    for layer, text in LAYERS.items():
        values = by_rate(text, rates)
        rows.append({"layer": layer, "relative_edp": {str(rate): round(v / values[-1], 3) for rate, v in zip(rates, values, strict=True)}})
    return rows


def by_rate(layer: str, rates: Sequence[int], budget: int = 6_000) -> list[float]:
    """Return the energy-delay product of 16 chiplets at every bandwidth that fills each of them."""
    edge, values = find_clusters("edge"), []
    for rate in rates:
        dram, l2, *inner = edge.levels
        package = (replace(dram, children=16), replace(l2, width=16 * rate), *inner)
        cost = best_mapping(layer_problem(layer), replace(edge, levels=package), TIMELOOP, budget=budget).cost
        values.append(float(cost.value(Objective.EDP)))
    return values


GROUPS = {f.__name__: f for f in (speed, cold, resnet18, drawn, contractions, aspect, chiplets)}


def shown(row: Row) -> str:
    """Return a row as a line."""

    def text(value: object) -> str:
        if isinstance(value, dict):
            return " ".join(f"{key} {text(x)}" for key, x in value.items())
        if isinstance(value, list):
            return " ".join(map(text, value))
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)

    return "  " + "; ".join(f"{key.replace('_', ' ')} {text(value)}" for key, value in row.items() if key != "group")


if __name__ == "__main__":
    in_groups("mapping", __doc__ or "", 8, GROUPS, shown)
