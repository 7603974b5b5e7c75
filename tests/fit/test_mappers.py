"""Mappers: quality against the optimum, reproducible, within the budget, and each with each model on each kind of problem."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from rewrite_compiler.errors import InputError
from rewrite_compiler.fit.api import map as mapping_of
from rewrite_compiler.fit.mappers.moves import exchanges
from rewrite_compiler.fit.mappers.run import MAPPERS, best_mapping
from rewrite_compiler.fit.mappers.search import Stop
from rewrite_compiler.fit.mapping.architectures import find_clusters
from rewrite_compiler.fit.mapping.schedule import violations
from rewrite_compiler.fit.mapping.space import Space
from rewrite_compiler.fit.models.model import Objective
from rewrite_compiler.fit.models.published import MODELS
from rewrite_compiler.fit.problems.layers import layer_problem

EDGE = find_clusters("edge")
# small enough to price every mapping: the optimum is known
SMALL = (
    "gemm:m=16,n=4,k=8", "gemm:m=12,n=3,k=6", "gemm:m=64,n=1,k=32", "conv:k=8,c=4,p=7,q=3", "conv:k=4,c=2,p=7,q=3,r=3,s=1",
    "einsum:adec,ebd->abc:a=4,b=2,c=2,d=2,e=2",
)  # fmt: skip
KINDS = ("gemm:m=64,n=16,k=32", "conv:k=8,c=8,p=14,q=14,r=3,s=3", "einsum:adec,ebd->abc:8")


@pytest.mark.parametrize("layer", SMALL)
def test_every_mapper_comes_near_the_optimum_with_a_tenth_of_the_evaluations(layer: str) -> None:
    problem, model = layer_problem(layer), MODELS["timeloop"]
    space = Space(problem, EDGE)
    assert space.count <= 10**6
    optimum = best_mapping(problem, EDGE, model, mapper="exhaustive", budget=10**7).cost.value(Objective.EDP)
    for name in MAPPERS.keys() - {"exhaustive"}:
        result = best_mapping(problem, EDGE, model, mapper=name, budget=space.count // 10)
        within = 1.01 if name == "anytime" else 1.05
        assert result.evaluated <= space.count // 10
        assert optimum <= result.cost.value(Objective.EDP) <= within * optimum, name


@pytest.mark.parametrize("layer", KINDS)
@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("mapper", sorted(MAPPERS.keys() - {"exhaustive"}))
def test_every_mapper_drives_every_model_on_every_kind_of_problem(mapper: str, model: str, layer: str) -> None:
    problem = layer_problem(layer)
    results = [best_mapping(problem, EDGE, MODELS[model], mapper=mapper, budget=400, seed=7) for _ in range(2)]
    assert results[0] == results[1]
    assert results[0].evaluated <= 400
    assert results[0].bound is not None
    assert results[0].bound <= results[0].cost.value(Objective.EDP)
    assert not violations(problem, EDGE, results[0].best, spans=True)
    front = results[0].front
    assert all(a.cycles < b.cycles and a.energy_fj > b.energy_fj for a, b in itertools.pairwise(front))


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("layer", ["gemm:m=8,n=4,k=8", "conv:k=4,c=2,p=7,q=3,r=3,s=1", "einsum:adec,ebd->abc:2"])
def test_the_exhaustive_mapper_is_complete(model: str, layer: str) -> None:
    result = best_mapping(layer_problem(layer), EDGE, MODELS[model], mapper="exhaustive", budget=10**7)
    assert result.gap == 0


def test_a_space_that_is_too_large_to_list_is_refused() -> None:
    with pytest.raises(InputError, match="The exhaustive mapper lists at most 20,000,000 tilings, not 27,225,000,000"):
        best_mapping(layer_problem("conv:k=64,c=64,p=56,q=56,r=3,s=3"), EDGE, MODELS["timeloop"], mapper="exhaustive")


def test_gaps_of_layers_of_a_residual_network() -> None:
    """The bound of the space is near: a budget of 4,000 leaves a gap of less than 2 % whatever is drawn, of products of matrices none."""
    layers = {
        "conv:k=64,c=64,p=56,q=56,r=3,s=3": 0.02, "conv:k=64,c=3,p=112,q=112,r=7,s=7,stride=2": 0.02,
        "conv:k=128,c=128,p=28,q=28,r=3,s=3": 0.02, "conv:k=256,c=128,p=14,q=14,stride=2": 1e-3,
    }  # fmt: skip
    for seed in range(3):
        for layer, most in layers.items():
            gap = best_mapping(layer_problem(layer), EDGE, MODELS["timeloop"], budget=4_000, seed=seed).gap
            assert gap is not None
            assert gap < most, (layer, seed)


def test_a_search_ends_when_rounds_find_nothing_better_unless_all_is_to_be_seen() -> None:
    layer, budget = layer_problem("gemm:m=256,n=768,k=768"), 24_000
    result = best_mapping(layer, EDGE, MODELS["timeloop"], budget=budget)
    assert (result.stop, result.evaluated < budget / 2) == (Stop.LIMITED, True)
    whole = best_mapping(layer, EDGE, MODELS["timeloop"], budget=budget, points=10)
    assert (whole.stop, whole.evaluated) == (Stop.BUDGET, budget)
    assert result.cost.value(Objective.EDP) <= 1.001 * whole.cost.value(Objective.EDP)


def test_a_search_finds_the_few_tilings_that_fit_small_memories() -> None:
    """No tiling that is drawn fits: the search begins with the smallest one, which is not the best."""
    tiny = replace(EDGE, levels=tuple(replace(c, capacity=c.capacity and 6) for c in EDGE.levels))
    layer = layer_problem("conv:k=64,c=64,p=56,q=56,r=3,s=3")
    result = best_mapping(layer, tiny, MODELS["timeloop"], budget=3_000)
    assert not violations(layer, tiny, result.best, spans=True)
    assert result.cost.utilisation > Fraction(1, 256)


@pytest.mark.parametrize("layer", ["gemm:m=8,n=4,k=6", "conv:k=4,c=2,p=2,q=2"])
def test_two_dimensions_trade_factors_in_every_way(layer: str) -> None:
    """Of all tilings those are next to one where two dimensions moved a factor each, one between two places, the other one back."""
    space = Space(layer_problem(layer), EDGE)
    point = space.sample(1, np.random.default_rng(3))
    here = [table[row] for table, row in zip(space.tables, point.factors[:, 0], strict=True)]

    def is_trade(rows: tuple[int, ...]) -> bool:
        there = [table[row] for table, row in zip(space.tables, rows, strict=True)]
        ratios = [[Fraction(int(b), int(a)) for a, b in zip(old, new, strict=True)] for old, new in zip(here, there, strict=True)]
        moves = [{k: f for k, f in enumerate(ratio) if f != 1} for ratio in ratios if set(ratio) != {1}]
        if [len(m) for m in moves] != [2, 2] or moves[0].keys() != moves[1].keys():
            return False
        grows = [max(m, key=m.__getitem__) for m in moves]
        return grows[0] != grows[1] and all(m[k].denominator == 1 for m, k in zip(moves, grows, strict=True))

    every = itertools.product(*(range(len(table)) for table in space.tables))
    trades = exchanges(space, point).factors.T.tolist()
    assert sorted(map(tuple, trades)) == [rows for rows in every if is_trade(rows)]
    assert trades


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("layer", ["gemm:m=8,n=1,k=512", "gemm:m=64,n=64,k=64", "conv:k=8,c=8,p=7,q=7,r=3,s=3"])
def test_the_slowest_of_units_and_links_decides(layer: str, model: str) -> None:
    """The first of the limits are the cycles; an architecture whose links are not limited has the steps of its units alone."""
    narrow = replace(EDGE, levels=tuple(replace(c, width=2 if c.name == "L2" else c.width) for c in EDGE.levels))
    for machine, parts in ((EDGE, {"units", "link below L2"}), (narrow, {"units", "link below L2", "link below DRAM"})):
        answer = mapping_of(layer, machine, model=model, budget=200)
        found = [(limit["cycles"], limit["part"]) for limit in answer["limits"]]
        assert found == sorted(found, key=lambda limit: -limit[0])
        assert found[0][0] == answer["cost"]["cycles"]
        assert {part for _, part in found} == parts
        units = round(answer["cost"]["utilisation"] * machine.units)
        assert (layer_problem(layer).points // units, "units") in found
    free = replace(EDGE, levels=tuple(replace(c, width=None) for c in EDGE.levels))
    assert [limit["part"] for limit in mapping_of(layer, free, model=model, budget=200)["limits"]] == ["units"]
