"""Laws of mappings: what is legal, how many there are, which orders differ, that bounds hold and better machines are no worse."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.errors import InputError
from rewrite_compiler.fit.mappers.cause import AGAIN, ANOTHER, effects
from rewrite_compiler.fit.mappers.exhaustive import every_order
from rewrite_compiler.fit.mappers.feasibility import check_feasible
from rewrite_compiler.fit.mappers.lower_bound import split_bounds
from rewrite_compiler.fit.mappers.moves import descend, other_orders, other_tilings
from rewrite_compiler.fit.mappers.outer_tiles import outer_tiles
from rewrite_compiler.fit.mappers.run import best_mapping
from rewrite_compiler.fit.mappers.search import Search, Stop
from rewrite_compiler.fit.mapping.architectures import find_clusters
from rewrite_compiler.fit.mapping.clusters import Cluster, Clusters, clusters_from
from rewrite_compiler.fit.mapping.columns import distinct_values, equal_columns, lexical_keys
from rewrite_compiler.fit.mapping.constraints import Constraints, constraints_from
from rewrite_compiler.fit.mapping.engine import Reading
from rewrite_compiler.fit.mapping.orders import covering_orders, order_classes, signatures
from rewrite_compiler.fit.mapping.schedule import LevelMap, Schedule, batch_of, counts_of, schedule_from, violations
from rewrite_compiler.fit.mapping.space import Genomes, Space, factorisations, prime_factors
from rewrite_compiler.fit.models.model import Objective
from rewrite_compiler.fit.models.published import MODELS, check_words
from rewrite_compiler.fit.problems.layers import layer_problem
from rewrite_compiler.fit.problems.problem import Problem, problem_from

ENERGIES = {"DRAM": 1000, "L2": 30, "L1": 5}
GEMM = layer_problem("gemm:m=8,n=4,k=6")
CONV = layer_problem("conv:k=2,c=2,p=4,q=2,r=3,s=1")
DEPTHWISE = layer_problem("conv:k=4,c=4,p=4,q=4,r=3,s=3,group=4,dilation=2")
MTTKRP = Problem({"i": 4, "j": 4, "k": 2, "l": 3}, {
    "B": ({"i": 1}, {"k": 1}, {"l": 1}), "C": ({"k": 1}, {"j": 1}), "D": ({"l": 1}, {"j": 1}), "A": ({"i": 1}, {"j": 1}),
}, "A", unit="mac3", tag="mttkrp")  # fmt: skip


def machine(l2: int = 64, l1: int = 8, rows: int = 2, columns: int = 2, width: int | None = None) -> Clusters:
    levels = (
        Cluster("DRAM"), Cluster("L2", l2, rows, "Y"), Cluster("row", children=columns, axis="X", is_virtual=True, width=width),
        Cluster("L1", l1),
    )  # fmt: skip
    return Clusters("small", levels, 10**9, ENERGIES, {"mac2": 2}, "this test")


def visits(problem: Problem, schedule: Schedule) -> dict[tuple[int, ...], int]:
    """Walk the nest: steps of every loop are as long as the tiles inside of it."""
    steps: list[tuple[str, int, int]] = []
    for m, (temporal, spatial) in zip(schedule.levels, counts_of(schedule, problem), strict=True):
        steps += [(d, m.temporal[d], temporal[d]) for d in problem.names] + [(d, m.spatial[d], spatial[d]) for d in problem.names]
    found: dict[tuple[int, ...], int] = {}
    for index in itertools.product(*(range(n) for *_, n in steps)):
        at = dict.fromkeys(problem.names, 0)
        for i, (d, step, _) in zip(index, steps, strict=True):
            at[d] += i * step
        point = tuple(at.values())
        found[point] = found.get(point, 0) + 1
    return found


@st.composite
def schedules(draw: Any) -> Schedule:
    sizes, levels = dict(GEMM.dimensions), []
    for c in machine().levels:
        tile = {d: draw(st.sampled_from([n, n, max(n // 2, 1), 1, n - 1 or 1, 2])) for d, n in sizes.items()}
        share = tile if c.children == 1 else {d: draw(st.sampled_from([n, n, max(n // 2, 1), 1])) for d, n in tile.items()}
        if c.name == "L1" and draw(st.integers(0, 3)):
            tile = share = dict.fromkeys(sizes, 1)
        levels.append(LevelMap(c.name, tuple(draw(st.permutations(sorted(sizes)))), tile, share))
        sizes = share
    return Schedule(tuple(levels))


@settings(max_examples=250, deadline=None)
@given(schedules())
def test_a_mapping_is_legal_iff_a_walk_visits_every_point_once_within_the_memories(schedule: Schedule) -> None:
    clusters = machine()
    points = visits(GEMM, schedule)
    once = len(points) == GEMM.points and set(points.values()) == {1} and all(
        i < n for point in points for i, n in zip(point, GEMM.dimensions.values(), strict=True)
    )  # fmt: skip
    size, fits = dict(GEMM.dimensions), True
    for m, c in zip(schedule.levels, clusters.levels, strict=True):
        fits &= all(m.temporal[d] <= n and m.spatial[d] <= m.temporal[d] for d, n in size.items())
        fits &= math.prod(m.temporal[d] // m.spatial[d] for d in size) <= c.children
        tiles = size["m"] * size["k"] + size["k"] * size["n"] + size["m"] * size["n"]
        fits &= c.is_virtual or c.capacity is None or tiles <= c.capacity
        size = dict(m.spatial)
    assert (not violations(GEMM, clusters, schedule)) == (once and fits)
    assert schedule_from(schedule.document(), GEMM, clusters) == schedule


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([GEMM, CONV, DEPTHWISE]), st.sampled_from(sorted(MODELS)), st.integers(0, 10**6))
def test_classes_of_orders_are_all_that_counters_tell_apart(problem: Problem, model: str, seed: int) -> None:
    """Every permutation of a level's turning loops costs what one of the classes costs, and bounds lie below all."""
    clusters = machine(10**6, 10**6)
    space = Space(problem, clusters, reading=MODELS[model].reading)
    factors = space.sample(200, np.random.default_rng(seed)).factors
    turns = space.turning(factors)[0]
    factors = factors[:, [int(np.argmax([bin(n).count("1") for n in turns.tolist()]))]]  # as many loops as there are
    batch = space.batch(every_order(Search(space, MODELS[model], Objective.ENERGY, 1, 0), factors))
    everything = Constraints().bypasses(problem, clusters)
    by_class = MODELS[model].evaluate(clusters, batch, everything)
    row = space.ordered_rows[0]
    turning = [k for k in range(len(problem.names)) if batch.temporal[row, k, 0] > 1]
    rest = [k for k in range(len(problem.names)) if k not in turning]
    orders = np.array([[*order, *rest] for order in itertools.permutations(turning)], np.intp)
    every = batch.selected(np.zeros(len(orders), np.intp))
    every.order[row] = orders.T
    costs = MODELS[model].evaluate(clusters, every, everything)
    counters = {tuple(int(c.reads[k]) for c in by_class.counters.values()) for k in range(batch.rows)}
    assert {tuple(int(c.reads[k]) for c in costs.counters.values()) for k in range(every.rows)} <= counters
    bound = MODELS[model].bound(clusters, batch, everything)
    assert (bound.values(Objective.EDP) <= by_class.values(Objective.EDP)).all()
    assert (bound.cycles <= by_class.cycles).all()


@pytest.mark.parametrize("reading", list(Reading))
@pytest.mark.parametrize("problem", [GEMM, CONV, DEPTHWISE, MTTKRP], ids=["gemm", "conv", "depthwise", "mttkrp"])
def test_orders_cover_the_classes_of_every_set_of_loops_that_turn(problem: Problem, reading: Reading) -> None:
    names, orders = problem.names, covering_orders(problem, problem.names, reading)
    assert (np.sort(orders, axis=1) == np.arange(len(names))).all()
    for count in range(1, len(names) + 1):
        for places in itertools.combinations(range(len(names)), count):
            every = signatures(problem, np.array(list(itertools.permutations(places)), np.intp), reading)
            inside = signatures(problem, orders[np.isin(orders, places)].reshape(len(orders), count), reading)
            assert {*map(tuple, every.tolist())} == {*map(tuple, inside.tolist())}


def test_neighbours_have_each_class_of_orders_once() -> None:
    space = Space(CONV, machine(10**6, 10**6))
    point = space.sample(1, np.random.default_rng(3))
    tilings, orders = other_tilings(space, point), other_orders(space, point)
    assert tilings.count == sum(len(table) - 1 for table in space.tables)
    assert ((tilings.factors != point.factors).sum(axis=0) == 1).all()
    assert orders.count == sum(len(space.classes_of(k, n)) for k, n in enumerate(space.turning(point.factors)[:, 0].tolist()))
    assert ((orders.orders != point.orders).sum(axis=0) <= 1).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_descent_ends_where_no_neighbour_is_better(seed: int) -> None:
    """Of several points at once; a neighbour whose bound rules it out is no better, either."""
    space = Space(layer_problem("conv:k=8,c=4,p=6,q=6,r=3,s=3"), machine(200, 48))
    search = Search(space, MODELS["timeloop"], Objective.EDP, 10**5, 0)
    points = space.sample(512, np.random.default_rng(seed))
    values = search.values(points)
    legal = np.flatnonzero(np.isfinite(values))[:2]
    search.best, search.best_value = None, np.inf
    descend(search, points.selected(legal), values[legal], 10**5)
    assert search.best is not None
    everything = Search(space, MODELS["timeloop"], Objective.EDP, 10**5, 0)
    for nearby in (other_tilings(space, search.best), other_orders(space, search.best)):
        assert everything.values(nearby).min() >= search.best_value < values[legal].min()


def test_orders_of_more_loops_than_are_listed_are_drawn_and_never_called_all() -> None:
    problem = layer_problem("einsum:abcdefgh,abcdefghi->i:a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2,i=2")
    clusters = machine(10**6, 10**6)
    orders = Space(problem, clusters).orders[0]
    assert (np.sort(orders, axis=1) == np.arange(9)).all()
    result = best_mapping(problem, clusters, MODELS["timeloop"], Objective.EDP, budget=2_000)
    assert result.stop is not Stop.COMPLETE
    assert not violations(problem, clusters, result.best, spans=True)
    with pytest.raises(InputError, match="lists the orders of at most 8 loops"):
        best_mapping(problem, clusters, MODELS["timeloop"], Objective.EDP, "exhaustive")
    order = dict.fromkeys(("DRAM", "L2"), problem.names)
    assert Space(problem, clusters, Constraints(orders=order)).has_every_order


def test_a_product_has_three_orders_and_a_convolution_few() -> None:
    assert len(order_classes(GEMM, GEMM.names)) == 3
    conv = layer_problem("conv:n=2,k=64,c=64,p=56,q=56,r=3,s=3")
    assert len(order_classes(conv, conv.names)) < 700  # of 5,040


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 720), st.integers(1, 4))
def test_factorisations_are_all_and_different(n: int, slots: int) -> None:
    table = factorisations(n, slots)
    assert (table.prod(axis=1) == n).all()
    expected = {f for f in itertools.product([d for d in range(1, n + 1) if n % d == 0], repeat=slots) if math.prod(f) == n}
    assert {tuple(row) for row in table.tolist()} == expected
    assert len(table) == len(expected)


@pytest.mark.parametrize("problem", [GEMM, CONV], ids=["gemm", "conv"])
def test_the_count_is_what_a_list_of_all_has(problem: Problem) -> None:
    space = Space(problem, machine(10**6, 10**6))
    search = Search(space, MODELS["timeloop"], Objective.EDP, 1, 0)
    tilings = list(space.every_tiling())
    assert sum(t.shape[1] for t in tilings) == space.legal_tilings
    assert sum(every_order(search, t).count for t in tilings) == space.count


def test_samples_are_uniform_over_tilings() -> None:
    space = Space(layer_problem("gemm:m=4,n=2,k=1"), machine(10**6, 10**6))
    drawn = space.sample(40_000, np.random.default_rng(1)).factors
    _, counts = np.unique(drawn, axis=1, return_counts=True)
    assert len(counts) == space.legal_tilings
    assert abs(counts - 40_000 / len(counts)).max() < 6 * math.sqrt(40_000 / len(counts))


@given(
    table=st.integers(1, 5).flatmap(
        lambda rows: st.lists(
            st.lists(st.integers(-3, 3) | st.integers(-(2**61), 2**61 - 1), min_size=rows, max_size=rows), min_size=1, max_size=9
        )
    )
)
def test_keys_order_columns_as_they_are_read(table: list[list[int]]) -> None:
    """Of numbers that one word holds together, and of larger ones; columns of one key are found together, the smallest first."""
    columns = np.array(table, np.int64).T
    keys = lexical_keys(columns).tolist()
    assert [[a < b for b in keys] for a in keys] == [[a < b for b in table] for a in table]
    places = [sorted(k for k, column in enumerate(table) if column == value) for value in sorted(map(list, {*map(tuple, table)}))]
    assert [group.tolist() for group in equal_columns(np.array(keys, np.int64))] == places
    assert distinct_values(columns[0]).tolist() == sorted({*columns[0].tolist()})


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("problem", [GEMM, CONV], ids=["gemm", "conv"])
def test_bounds_lose_nothing(problem: Problem, model: str) -> None:
    """Exhaustive search with bounds finds what pricing every mapping finds, with fewer evaluations."""
    clusters = machine()
    space = Space(problem, clusters, reading=MODELS[model].reading)
    result = best_mapping(problem, clusters, MODELS[model], Objective.EDP, "exhaustive", budget=10**7)
    search = Search(space, MODELS[model], Objective.EDP, 10**7, 0)
    for factors in space.every_tiling():
        search.values(every_order(search, factors))
    assert result.stop is Stop.COMPLETE
    assert result.cost.value(Objective.EDP) == search.best_value == result.bound
    assert result.evaluated < search.evaluated / 2
    assert not violations(problem, clusters, result.best, spans=True)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(8, 40),
    st.integers(6, 12),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from(sorted(MODELS)),
    st.sampled_from(list(Objective)),
)
def test_better_machines_are_no_worse(l2: int, l1: int, columns: int, width: int, model: str, objective: Objective) -> None:
    problem = layer_problem("gemm:m=4,n=6,k=4")

    def best(clusters: Clusters, constraints: Constraints | None = None) -> int:
        found = best_mapping(problem, clusters, MODELS[model], objective, "exhaustive", 10**7, constraints=constraints)
        return found.cost.value(objective)

    base = best(machine(l2, l1, 2, columns, width))
    for better in (
        (2 * l2, l1, 2, columns, width),
        (l2, l1 + 4, 2, columns, width),
        (l2, l1, 2, columns + 1, width),
        (l2, l1, 2, columns, width + 1),
    ):
        assert best(machine(*better)) <= base
    assert best(machine(l2, l1, 2, columns, width), Constraints(is_one_an_axis=True)) >= base


def test_documents_go_round() -> None:
    clusters = machine(width=3)
    assert clusters_from(clusters.document()) == clusters
    for problem in (GEMM, CONV, DEPTHWISE, MTTKRP):
        assert problem_from(problem.document()) == problem


REFUSED = [
    ({"parallel": {"row": ["c", "q"]}}, "Constraint parallel [c, q] names c: the problem has m n k"),
    ({"tiles": {"L3": {"k": 2}}}, "Constraint tiles names L3: the architecture has DRAM L2 row L1"),
    ({"utilisation": {"min": 2}}, "The min of utilisation must be from 0 to 1, not 2"),
    ({"utilisation": {"max": 1.001}}, "The max of utilisation must be from 0 to 1, not 1.001"),
    ({"utilisation": {"max": -0.001}}, "The max of utilisation must be from 0 to 1, not -0.001"),
    ({"utilisation": {"max": True}}, "The max of utilisation must be from 0 to 1, not True"),
    ({"one_dimension_an_axis": 1}, "one_dimension_an_axis must be true or false, not 1"),
    ({"orders": {"L2": ["m", "m"]}}, 'Constraint orders of L2 must be a list of different names, not ["m", "m"]'),
    ({"bypass": {"L2": ["d"]}}, "Constraint bypass ['d'] at L2 is not possible: the tensors are a b y"),
    ({"bypass": {"row": ["a"]}}, "Constraint bypass ['a'] at row is not possible: it is virtual and holds none"),
    ({"schema": "flexmatch.constraints/2"}, "The schema must be \"flexmatch.constraints/1\", not 'flexmatch.constraints/2'"),
    ({"bypass": {"DRAM": ["a"]}}, "Constraint bypass ['a'] at DRAM is not possible: the outermost memory holds every tensor"),
    (
        {"colour": 1},
        'The constraints must not have the key "colour", only tiles, orders, parallel, bypass, one_dimension_an_axis, utilisation, schema',
    ),
]


ARCHITECTURES = [
    ({"levels": []}, "There must be levels of an architecture, not none"),
    ({"name": 5}, "The name of an architecture must be a text, not 5"),
    ({"schema": "flexmatch.clusters/2"}, "The schema must be \"flexmatch.clusters/1\", not 'flexmatch.clusters/2'"),
    ({"levels": [{"name": "D"}, {"name": "R", "virtual": "yes"}, {"name": "L"}]}, "virtual of R must be true or false, not 'yes'"),
]
PROBLEMS = [
    ({"dimensions": {}}, "There must be dimensions, not none"),
    ({"tensors": {}}, "There must be tensors, not none"),
    ({"dimensions": {"": 4, "m": 8, "n": 4, "k": 6}}, "A dimension must be a text, not ''"),
    ({"unit": ""}, "The problem's unit must be a text, not ''"),
    ({"schema": "flexmatch.problem/2"}, "The schema must be \"flexmatch.problem/1\", not 'flexmatch.problem/2'"),
]


@pytest.mark.parametrize(("change", "sentence"), ARCHITECTURES, ids=[s for _, s in ARCHITECTURES])
def test_documents_that_are_no_architecture(change: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        clusters_from({**machine().document(), **change})
    assert (caught.value.problem.code, caught.value.problem.sentence) == ("F231", sentence)


@pytest.mark.parametrize(("change", "sentence"), PROBLEMS, ids=[s for _, s in PROBLEMS])
def test_documents_that_are_no_problem(change: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        problem_from({**GEMM.document(), **change})
    assert (caught.value.problem.code, caught.value.problem.sentence) == ("F230", sentence)


@pytest.mark.parametrize(("document", "sentence"), REFUSED, ids=[s for _, s in REFUSED])
def test_constraints_that_name_what_is_not_there(document: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        constraints_from(document, GEMM, machine())
    assert (caught.value.problem.code, caught.value.problem.sentence) == ("F232", sentence)


def test_shares_of_a_constraint_have_both_ends_and_any_level_below_the_first_may_pass_a_tensor_on() -> None:
    found = constraints_from({"utilisation": {"min": 0, "max": 1}, "bypass": {"L1": ["a"], "L2": ["b"]}}, GEMM, machine())
    assert (found.least_utilisation, found.most_utilisation) == (0.0, 1.0)
    assert found.bypass == {"L1": ("a",), "L2": ("b",)}


def test_constraints_that_no_mapping_satisfies_are_named_minimally() -> None:
    document = {
        "tiles": {"L1": {"k": 6, "n": 4}, "L2": {"m": 8}}, "parallel": {"row": ["m"]}, "one_dimension_an_axis": True,
    }  # fmt: skip
    constraints = constraints_from(document, GEMM, machine())
    with pytest.raises(InputError) as caught:
        check_feasible(Space(GEMM, machine(64, 14), constraints), MODELS["timeloop"])
    sentence = caught.value.problem.sentence
    assert sentence.startswith(
        "No mapping satisfies the constraints: with tile k = 6 at L1 and tile n = 4 at L1, at L1 b alone takes 24 of 14 elements; "
    )
    assert "parallel" not in sentence
    for _, lacking in replace(constraints, tiles={("L1", "k"): 6, ("L1", "n"): 4}, parallel={}, is_one_an_axis=False).atoms():
        check_feasible(Space(GEMM, machine(64, 14), lacking), MODELS["timeloop"])


def test_constraints_hold() -> None:
    document = {"tiles": {"L1": {"k": 2}}, "orders": {"DRAM": ["n", "m", "k"]}, "parallel": {"row": ["m"], "L2": ["n"]}}
    document |= {"bypass": {"L2": ["b"]}, "utilisation": {"min": 0.5}, "one_dimension_an_axis": True}
    constraints = constraints_from(document, GEMM, machine())
    found = best_mapping(GEMM, machine(), MODELS["timeloop"], mapper="exhaustive", budget=10**7, constraints=constraints)
    counts = dict(zip((m.cluster for m in found.best.levels), counts_of(found.best, GEMM), strict=True))
    assert counts["L1"][0]["k"] == 2
    assert {d for d, n in counts["row"][1].items() if n > 1} <= {"m"}
    assert found.cost.utilisation >= 0.5
    assert ("L2", "b") not in found.cost.counters
    assert found.best.levels[1].bypass == {"b"}
    assert [d for d in ("n", "m", "k") if d in found.best.levels[0].order] == list(found.best.levels[0].order)


LEVELS = {
    "array below L2": lambda a, b: (
        Cluster("DRAM"), Cluster("L2", None, a, "Y"), Cluster("row", children=b, axis="X", is_virtual=True), Cluster("L1"),
    ),
    "chips": lambda a, b: (Cluster("DRAM", children=a), Cluster("L2", children=b, axis="X"), Cluster("L1")),
    "units below L1": lambda a, b: (Cluster("DRAM"), Cluster("L2", children=a, axis="Y"), Cluster("L1", children=b, axis="X")),
    "narrow links inside": lambda a, b: (
        Cluster("DRAM", children=a), Cluster("L2", None, b, "Y"), Cluster("row", None, 2, "X", 1, is_virtual=True), Cluster("L1"),
    ),
    "narrow links to units": lambda a, b: (Cluster("DRAM", children=a), Cluster("L2"), Cluster("L1", None, b, "X", width=1)),
}  # fmt: skip


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("model", sorted(MODELS))
@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([GEMM, CONV, layer_problem("conv:k=4,c=6,p=4,q=6,r=3,s=2,stride=2")]),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 99),
)
def test_no_mapping_goes_below_the_bound_of_its_split(levels: str, model: str, problem: Problem, a: int, b: int, seed: int) -> None:
    """Every mapping that is drawn costs at least the bound of the way in which it splits the dimensions over the units."""
    clusters = Clusters("random", LEVELS[levels](a, b), 10**9, ENERGIES, {"mac2": 2}, "this test")
    space = Space(problem, clusters, reading=MODELS[model].reading)
    points = space.sample(200, np.random.default_rng(seed))
    costs = MODELS[model].evaluate(clusters, space.batch(points), Constraints().bypasses(problem, clusters))
    parts = np.array([t[:, space.spatial].prod(axis=1)[f] for t, f in zip(space.tables, points.factors, strict=True)])
    for objective in Objective:
        bounds = split_bounds(space, objective)
        assert bounds is not None
        of_split = {tuple(c): float(v) for c, v in zip(bounds.parts.T.tolist(), bounds.values, strict=True)}
        values = costs.values(objective)
        assert all(of_split[tuple(c)] <= v for c, v in zip(parts.T.tolist(), values.tolist(), strict=True)), objective


@pytest.mark.parametrize("model", sorted(MODELS))
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([GEMM, CONV, layer_problem("conv:k=4,c=6,p=4,q=6,r=3,s=2,stride=2"), layer_problem("gemm:m=4,n=6,k=16")]),
    st.integers(1, 4),
    st.sampled_from([8, 24, 60, 150]),
    st.sampled_from([3, 6, 12, 40]),
    st.integers(0, 99),
)
def test_no_mapping_that_fits_goes_below_the_bound_of_its_tiles(
    model: str, problem: Problem, children: int, l2: int, l1: int, seed: int
) -> None:  # fmt: skip
    """Of small memories: what does not fit comes again, and every mapping that is drawn pays for that."""
    levels = (Cluster("DRAM"), Cluster("L2", l2, children, "X", 3), Cluster("L1", l1))
    clusters = Clusters("random", levels, 10**9, {"DRAM": 100, "L2": 7, "L1": 1}, {"mac2": 2}, "this test")
    space = Space(problem, clusters, reading=MODELS[model].reading)
    tiles = outer_tiles(space, MODELS[model])
    bypasses = Constraints().bypasses(problem, clusters)
    points = space.sample(3000, np.random.default_rng(seed))
    points = points.selected(np.flatnonzero(MODELS[model].fits(clusters, space.batch(points), bypasses)))
    if tiles is None:
        assert not points.count
        return
    costs = MODELS[model].evaluate(clusters, space.batch(points), bypasses)
    parts = np.array([t[:, space.spatial].prod(axis=1)[f] for t, f in zip(space.tables, points.factors, strict=True)])
    for objective in Objective:
        bounds, loose = split_bounds(space, objective, tiles), split_bounds(space, objective)
        assert bounds is not None
        assert loose is not None
        assert (bounds.values >= loose.values * (1 - 1e-12)).all()
        of_split = {tuple(c): float(v) for c, v in zip(bounds.parts.T.tolist(), bounds.values, strict=True)}
        values = costs.values(objective)
        assert all(of_split[tuple(c)] <= v * (1 + 1e-12) for c, v in zip(parts.T.tolist(), values.tolist(), strict=True)), objective


def test_a_layer_larger_than_its_memory_has_a_bound_with_what_comes_again() -> None:
    problem, edge = layer_problem("conv:k=128,c=128,p=28,q=28,r=3,s=3"), find_clusters("edge")
    result = best_mapping(problem, edge, MODELS["timeloop"], budget=2000)
    assert result.gap is not None
    assert result.gap < 0.02
    space = Space(problem, edge)
    tiles = outer_tiles(space, MODELS["timeloop"])
    assert tiles is not None
    with_tiles, without = split_bounds(space, Objective.EDP, tiles), split_bounds(space, Objective.EDP)
    assert with_tiles is not None
    assert without is not None
    assert with_tiles.least > without.least


def test_what_a_model_or_an_architecture_does_not_price_is_refused_by_name() -> None:
    n, k, rows, _ = DEPTHWISE.spaces["x"]
    rows_dilated = replace(DEPTHWISE, spaces={**DEPTHWISE.spaces, "x": (n, k, rows, {"q": 1, "s": 1})})
    for problem, model, sentence in (
        (DEPTHWISE, "maestro", "maestro does not price depthwise convolution with dilation; timeloop does"),
        (rows_dilated, "maestro", "maestro does not price depthwise convolution with dilation; timeloop does"),
        (MTTKRP, "timeloop", "energy: mac3 has no energy in small (mttkrp)"),
    ):
        with pytest.raises(InputError) as caught:
            best_mapping(problem, machine(), MODELS[model])
        assert (caught.value.problem.code, caught.value.problem.sentence) == ("F233", sentence)
    assert best_mapping(MTTKRP, machine(l1=16), MODELS["timeloop"], Objective.CYCLES, budget=500).cost.energy_fj is None


def test_orders_of_one_genome() -> None:
    space = Space(GEMM, machine())
    genomes = Genomes(np.zeros((3, 1), np.intp), np.zeros((2, 1), np.intp))
    assert space.batch(genomes).rows == 1


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("problem", [GEMM, CONV, layer_problem("gemm:m=12,n=1,k=8")], ids=["gemm", "conv", "vector"])
def test_the_bound_of_a_space_lies_below_its_best_mapping(problem: Problem, objective: Objective) -> None:
    for clusters in (machine(), machine(200, 16, 2, 3, 2)):
        for name, model in MODELS.items():
            if model.conforms(problem, clusters) is None:
                best = best_mapping(problem, clusters, model, objective, "exhaustive", 10**7)
                floor = split_bounds(Space(problem, clusters, reading=model.reading), objective)
                assert floor is not None
                assert 0 < floor.least <= best.cost.value(objective), name
    constraints = Constraints(bypass={"L2": tuple(problem.spaces)[:1]}, parallel={"row": ()})
    best = best_mapping(problem, machine(), MODELS["timeloop"], objective, "exhaustive", 10**7, constraints=constraints)
    floor = split_bounds(Space(problem, machine(), constraints), objective)
    assert floor is not None
    assert 0 < floor.least <= best.cost.value(objective)


def test_a_limited_link_begins_at_the_memory_outside_whatever_virtual_levels_lie_between() -> None:
    levels = (
        Cluster("DRAM"), Cluster("L2", None, 2, "Y"), Cluster("row", None, 2, "X", width=3, is_virtual=True), Cluster("L1", None, width=5),
        Cluster("register", width=7),
    )  # fmt: skip
    assert Clusters("three links", levels, 1).limited_links == (("L2", 3), ("L2", 5), ("L1", 7))


def test_every_loop_outside_of_one_that_changes_a_tile_brings_it_again() -> None:
    one = dict.fromkeys(CONV.names, 1)
    clusters = Clusters("two", (Cluster("DRAM"), Cluster("L2")), 1)
    schedule = Schedule(tuple(LevelMap(name, ("q", "p", "k", "r", "s", "c"), one, one) for name in clusters.names))
    rows = effects(CONV, clusters, schedule, "L2", "w")
    assert [(r.dimension, r.effect) for r in rows] == [("c", ANOTHER), ("r", ANOTHER), ("k", ANOTHER), ("p", AGAIN), ("q", AGAIN)]


@pytest.mark.parametrize(("access", "operation"), [(1 << 63, 0), (0, 1 << 63), ((1 << 63) // (18 * 192), (1 << 63) // 192 // 2)])
def test_energies_beyond_words_are_refused(access: int, operation: int) -> None:
    """Accesses, operations and their sum: 192 steps of three tensors on two levels make 18 accesses each at most."""
    clusters = Clusters("dear", (Cluster("DRAM"), Cluster("L1")), 1, {"DRAM": 1, "L1": access}, {"mac2": operation}, "this test")
    check_words(GEMM, replace(clusters, energies={"DRAM": 1}, operations={"mac2": 1}))
    with pytest.raises(InputError, match=r"The energy of 192 steps may exceed 2\^63 femtojoules"):
        check_words(GEMM, clusters)


def test_every_constraint_is_one_that_can_be_relaxed() -> None:
    """Dropped one after the other, no two at once, they leave none."""
    constraints = Constraints(
        {("L1", "k"): 2}, {"DRAM": ("n", "m")}, {"row": ("m",)}, {"L2": ("b",)},
        is_one_an_axis=True, least_utilisation=0.25, most_utilisation=0.5,
    )  # fmt: skip
    names = []
    while constraints.atoms():
        assert all(len(lacking.atoms()) == len(constraints.atoms()) - 1 for _, lacking in constraints.atoms())
        name, constraints = constraints.atoms()[0]
        names.append(name)
    assert names == [
        "tile k = 2 at L1", "order [n, m] at DRAM", "parallel [m] at row", "bypass [b] at L2", "one dimension an axis",
        "utilisation of 0.25 or more", "utilisation of 0.5 or less",
    ]  # fmt: skip
    assert constraints == Constraints()


def test_tiles_that_fit_alone_must_fit_together() -> None:
    constraints = constraints_from({"tiles": {"L1": {"m": 2, "n": 2, "k": 2}}}, GEMM, machine())
    check_feasible(Space(GEMM, machine(64, 12), constraints), MODELS["timeloop"])
    with pytest.raises(InputError, match="at L1 tiles take 12 of 11 elements"):
        check_feasible(Space(GEMM, machine(64, 11), constraints), MODELS["timeloop"])


@pytest.mark.parametrize("model", MODELS)
def test_models_price_no_more_parts_than_there_are_sub_clusters(model: str) -> None:
    """Along Y two rows share what L2 holds."""
    clusters = machine(1000, 1000)
    shares = [{**GEMM.dimensions, "m": 8 // parts} for parts in (1, 2, 4)]
    schedules = [
        Schedule((
            LevelMap("DRAM", (), GEMM.dimensions, GEMM.dimensions), LevelMap("L2", (), GEMM.dimensions, share),
            LevelMap("row", (), share, share), LevelMap("L1", (), share, share),
        )) for share in shares
    ]  # fmt: skip
    fits = MODELS[model].fits(clusters, batch_of(GEMM, clusters, schedules), (frozenset(), frozenset(), frozenset("aby"), frozenset()))
    assert fits.tolist() == [True, True, False]


@pytest.mark.parametrize(
    "constraints",
    [Constraints(), Constraints(least_utilisation=0.5), Constraints(most_utilisation=0.5), Constraints(is_one_an_axis=True),
     Constraints(least_utilisation=0.5, most_utilisation=0.5, is_one_an_axis=True)],
)  # fmt: skip
def test_tilings_keep_the_constraints_on_all_dimensions_together(constraints: Constraints) -> None:
    """On four rows of four units: shares of the units at work, and one dimension along each axis."""
    space = Space(GEMM, machine(rows=4, columns=4), constraints)
    sizes = [range(len(t)) for t in space.tables]
    factors = np.array(list(itertools.product(*sizes)), np.intp).T
    keeps = space.keeps_rules(factors)
    for column, keep in zip(factors.T.tolist(), keeps.tolist(), strict=True):
        split = [[int(table[row, k]) for table, row in zip(space.tables, column, strict=True)] for k in space.spatial]
        units = math.prod(map(math.prod, split))
        expected = all(math.prod(parts) <= 4 for parts in split)
        expected &= constraints.least_utilisation <= units / 16 <= constraints.most_utilisation
        expected &= not constraints.is_one_an_axis or all(sum(n > 1 for n in parts) <= 1 for parts in split)
        assert keep == expected
    assert 0 < keeps.sum() < len(keeps)


def test_a_dimension_has_primes_that_divisors_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.fit.mapping.space.MAX_DIVISOR", 10)
    assert [prime_factors(n) for n in (1, 2, 97, 720, 8 * 97)] == [[], [(2, 1)], [(97, 1)], [(2, 4), (3, 2), (5, 1)], [(2, 3), (97, 1)]]
    for n in (101, 11 * 13, 4 * 101):
        with pytest.raises(InputError, match="must be found by divisors up to 10"):
            prime_factors(n)


def test_orders_are_all_that_are_told_apart_where_loops_are_few_or_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    order = tuple(GEMM.names)
    cases = (({}, 3, True), ({}, 2, False), ({"DRAM": order}, 2, False), ({"DRAM": order, "L2": order}, 2, True), ({"L2": order}, 3, True))
    for orders, most, has_every in cases:
        monkeypatch.setattr("rewrite_compiler.fit.mapping.space.MAX_LOOPS", most)
        assert Space(GEMM, machine(), Constraints(orders=orders)).has_every_order is has_every
