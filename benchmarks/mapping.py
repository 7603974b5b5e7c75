"""Mappings: evaluations a second, gaps on ResNet-18, and the figures of Union: contractions, aspect ratios, chiplets.

python benchmarks/mapping.py [speed|resnet18|contractions|aspect|chiplets …] prints tables; times are processor seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

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


def speed() -> None:
    """Evaluations of random tilings with random orders, all counters, in the chunks that mappers use."""
    flat = Clusters("flat", (Cluster("DRAM"), Cluster("L2", children=256, axis="X"), Cluster("L1")), 10**9)
    print("evaluations a processor second, all counters of 3 memories")
    for name, layer in (("product", "gemm:m=4096,n=16,k=16"), ("convolution", "conv:k=64,c=64,p=56,q=56,r=3,s=3")):
        space = Space(layer_problem(layer), flat)
        batches = [space.batch(space.sample(CHUNK, np.random.default_rng(k))) for k in range(8)]
        bypasses = Constraints().bypasses(space.problem, flat)
        rates = []
        for _ in range(5):
            start = time.process_time()
            for batch in batches:
                TIMELOOP.evaluate(flat, replace(batch), bypasses)
            rates.append(sum(b.rows for b in batches) / (time.process_time() - start))
        print(f"  {name:<12} {sorted(rates)[2]:>12,.0f}   (least {min(rates):,.0f}, most {max(rates):,.0f})")


def resnet18() -> None:
    """The 11 distinct layers on `edge`, 8 seeds: processor time, energy-delay products, the largest gap to the bound, and each layer's."""
    edge = find_clusters("edge")
    for budget in (2_000, 4_000, 20_000):
        gaps, seconds, products = [], [], []
        for seed in range(8):
            start = time.process_time()
            results = [best_mapping(layer_problem(layer), edge, TIMELOOP, budget=budget, seed=seed) for layer in RESNET18]
            seconds.append(time.process_time() - start)
            gaps.append([r.gap or 0.0 for r in results])
            products.append(sum(r.cost.value(Objective.EDP) for r in results))
        worst = " ".join(f"{100 * max(column):.1f}%" for column in zip(*gaps, strict=True))
        print(
            f"budget {budget:>6,}: {min(seconds):.2f}-{max(seconds):.2f} s, EDP {min(products):.4g}-{max(products):.4g}, "
            f"{100 * max(map(max, gaps)):.1f}%: {worst}"
        )


def groups(equation: str) -> tuple[str, str, str]:
    """Return free indices of either operand and the summed ones."""
    operands, result = equation.split("->")
    left, right = operands.split(",")
    summed = "".join(d for d in left if d in right and d not in result)
    return "".join(d for d in left if d not in summed), "".join(d for d in right if d not in summed), summed


def contractions() -> None:
    """Native contraction against transpose-transpose-GEMM-transpose on `cloud`, with and without one dimension an axis."""
    cloud = find_clusters("cloud")
    for name, (equation, size) in CONTRACTIONS.items():
        rows, columns, summed = groups(equation)
        m, n, k = (size ** len(group) for group in (rows, columns, summed))
        for label, constraints in (("one dimension an axis", Constraints(is_one_an_axis=True)), ("any", Constraints())):
            native = best_mapping(layer_problem(f"einsum:{equation}:{size}"), cloud, TIMELOOP, constraints=constraints)
            gemm = best_mapping(layer_problem(f"gemm:m={m},n={n},k={k}"), cloud, TIMELOOP, constraints=constraints)
            units = [int(r.cost.utilisation * cloud.units) for r in (native, gemm)]
            values = [r.cost.value(Objective.EDP) for r in (native, gemm)]
            print(f"{name:<10} {label:<22} M {m:,} N {n:,} K {k:,}: native {units[0]:,} units, EDP {values[0]:.3g}; "
                  f"GEMM {units[1]:,} units, EDP {values[1]:.3g} ({values[0] / values[1]:.2f} times less)")  # fmt: skip
    for layer, units_at_work, value in printed_axes():
        print(f"intensli2  the printed axes: {layer} {units_at_work:,} units, EDP {value:.3g}")


def printed_axes() -> list[tuple[str, int, float]]:
    """Return name, units and product of both of intensli2's mappings that the paper prints: the dimension on either axis is its own."""
    cloud, equation = find_clusters("cloud"), CONTRACTIONS["intensli2"][0]
    ways = {f"einsum:{equation}:16": {"L2": ("a",), "row": ("e",)}, "gemm:m=4096,n=16,k=16": {"L2": ("k",), "row": ("m",)}}
    rows = []
    for layer, parallel in ways.items():
        result = best_mapping(layer_problem(layer), cloud, TIMELOOP, budget=4_000, constraints=Constraints(parallel=parallel))
        rows.append((layer, int(result.cost.utilisation * cloud.units), float(result.cost.value(Objective.EDP))))
    return rows


def aspect() -> None:
    """Energy-delay product over the shape of the array, relative to the best shape; one dimension an axis."""
    for name, shapes in SHAPES.items():
        print(name, *(f"{y}x{x}" for y, x in shapes))
        for layer, text in {**LAYERS, "unbalanced": UNBALANCED}.items():
            values = [value for value, _ in by_shape(name, text, shapes)]
            print(f"  {layer:<11}", *(f"{v / min(values):7.2f}" for v in values))


def by_shape(name: str, layer: str, shapes: Sequence[tuple[int, int]], budget: int = 6_000) -> list[tuple[float, float]]:
    """Return energy-delay product and share of the units at work on every shape of an architecture's array."""
    base, constraints, rows = find_clusters(name), Constraints(is_one_an_axis=True), []
    for y, x in shapes:
        clusters = base.with_shape({"Y": y, "X": x})
        cost = best_mapping(layer_problem(layer), clusters, TIMELOOP, budget=budget, constraints=constraints).cost
        rows.append((float(cost.value(Objective.EDP)), float(cost.utilisation)))
    return rows


def chiplets() -> None:
    """Energy-delay product of 16 chiplets over the bandwidth that fills each, relative to the widest."""
    rates = (1, 2, 4, 6, 8, 12, 16)
    print("GB/s a chiplet", *rates)
    for layer, text in LAYERS.items():
        values = by_rate(text, rates)
        print(f"  {layer:<11}", *(f"{v / values[-1]:7.2f}" for v in values))


def by_rate(layer: str, rates: Sequence[int], budget: int = 6_000) -> list[float]:
    """Return the energy-delay product of 16 chiplets at every bandwidth that fills each of them."""
    edge, values = find_clusters("edge"), []
    for rate in rates:
        dram, l2, *inner = edge.levels
        package = (replace(dram, children=16), replace(l2, width=16 * rate), *inner)
        cost = best_mapping(layer_problem(layer), replace(edge, levels=package), TIMELOOP, budget=budget).cost
        values.append(float(cost.value(Objective.EDP)))
    return values


TABLES = {"speed": speed, "resnet18": resnet18, "contractions": contractions, "aspect": aspect, "chiplets": chiplets}


def main() -> None:
    """Print the tables that are asked for, or all."""
    for name in sys.argv[1:] or TABLES:
        print(f"\n{name}: {TABLES[name].__doc__}")
        TABLES[name]()


if __name__ == "__main__":
    main()
