"""Extraction: the integer program against trying every choice, with and without pruning, and what is left without a solution."""

from __future__ import annotations

import importlib
import random
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from small_graphs import acyclic_choices, cheapest, cost_of, random_graph, total

from rewrite_compiler.egraph.extraction import prune
from rewrite_compiler.egraph.extraction.bound import within_bound
from rewrite_compiler.egraph.extraction.bucket_elimination import cheapest_by_elimination
from rewrite_compiler.egraph.extraction.dominator_split import Part, needed_classes, parts
from rewrite_compiler.egraph.extraction.extract import Extraction, _Problem, cheapest_trees, extract
from rewrite_compiler.egraph.extraction.forced_levels import key_of
from rewrite_compiler.egraph.extraction.prune import Candidate, Candidates
from rewrite_compiler.egraph.graph.graph import PROGRAM, EClass, EGraph, ENode
from rewrite_compiler.errors import BudgetError
from rewrite_compiler.ir.types import TensorType

UNBUILDABLE = "error[F211]: extraction found no way to build an output of the program\n  help: report this: every program has itself"


def found(graph: EGraph, roots: tuple[int, ...]) -> Extraction | None:
    try:
        return extract(graph, roots, cost_of(graph))
    except BudgetError as error:
        sentence = str(error)
    assert sentence == UNBUILDABLE
    return None


def unpruned(options: Candidates, roots: Iterable[int]) -> Candidates:
    """Every candidate below the roots that can be built at all."""
    return prune._reachable(prune._buildable(options), tuple(roots))


def unbounded(graph: EGraph, cost: prune.CostOf, given: frozenset[int], roots: Iterable[int]) -> Candidates:
    """Every candidate, whatever it costs."""
    return prune.candidates(graph, cost, given)


@pytest.mark.parametrize("first", range(0, 800, 100))
def test_the_optimum_is_that_of_trying_every_choice(first: int) -> None:
    outcomes = []
    for seed in range(first, first + 100):
        graph, roots = random_graph(seed)
        best, extraction = cheapest(graph, roots, 2), found(graph, roots)
        outcomes.append(best is not None)
        assert (best is None) == (extraction is None), seed
        if best is None or extraction is None:
            continue
        assert total(graph, extraction.choice, roots, 2) == best, seed
        assert (extraction.status, extraction.gap) == ("optimal", 0.0)
        assert extraction.cost == extraction.bound == best, seed
    assert 25 < sum(outcomes) < 100  # both kinds of e-graph occur


@pytest.fixture
def solver_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave every choice to the integer program."""
    module = importlib.import_module("rewrite_compiler.egraph.extraction.extract")
    monkeypatch.setattr(module, "cheapest_by_elimination", lambda *_: None)
    monkeypatch.setattr(module, "within_bound", unbounded)


@pytest.mark.parametrize("first", range(0, 400, 100))
@pytest.mark.usefixtures("solver_alone")
def test_the_integer_program_alone_finds_the_optimum(first: int) -> None:
    for seed in range(first, first + 100):
        graph, roots = random_graph(seed)
        best, extraction = cheapest(graph, roots, 2), found(graph, roots)
        assert (extraction and extraction.cost) == best, seed
        assert extraction is None or extraction.status == "optimal"


def test_elimination_of_everything_at_once_finds_the_optimum() -> None:
    """No pruning to parts first: the tables themselves have the cycles and the shared operands."""
    answered = 0
    for seed in range(400):
        graph, roots = random_graph(seed)
        options = prune.pruned(prune.candidates(graph, cost_of(graph)), roots)
        if any(r not in options for r in roots):
            continue
        choice, best = cheapest_by_elimination(options, roots, 0), cheapest(graph, roots, 2)
        assert choice is not None, seed
        whole = {c: o.node for c, o in choice.items()}
        assert total(graph, whole, roots, 2) == best, seed
        answered += 1
    assert answered > 150


def magnitudes(r: random.Random) -> int:
    """What levels of real programs look like: nothing, a few calls, hundreds of millions of products."""
    return r.choice((0, 1, 2, r.randrange(1, 10**3), r.randrange(10**8, 10**9)))


@pytest.mark.parametrize("first", range(0, 150, 50))
def test_four_levels_of_very_different_size_stay_exact(first: int) -> None:
    for seed in range(first, first + 50):
        graph, roots = random_graph(seed, 4, magnitudes)
        best, extraction = cheapest(graph, roots, 4), found(graph, roots)
        assert (extraction and extraction.cost) == best, seed


@pytest.mark.usefixtures("solver_alone")
def test_the_integer_program_alone_compares_levels_of_very_different_size() -> None:
    """Levels too large to be one sum are held digit by digit, those that cost nothing forbid what does."""
    for seed in range(60):
        graph, roots = random_graph(seed, 4, magnitudes)
        best, extraction = cheapest(graph, roots, 4), found(graph, roots)
        assert (extraction and extraction.cost) == best, seed
        assert extraction is None or extraction.status == "optimal"


def test_levels_that_are_settled_cost_nothing_more() -> None:
    answered = 0
    for seed in range(40):
        graph, roots = random_graph(seed, 4, magnitudes)
        options = prune.pruned(prune.candidates(graph, cost_of(graph)), roots)
        if any(r not in options for r in roots):
            continue
        choice, bound, status = _Problem(options, frozenset(roots)).solve(1, 4, time.monotonic() + 60)
        assert choice is not None, seed
        used = total(graph, {c: o.node for c, o in choice.items()}, roots, 4)
        assert (status, bound) == ("optimal", (0, *used[1:])), seed
        answered += 1
    assert answered > 10


def huge(r: random.Random) -> int:
    """Levels whose product no machine word holds."""
    return r.choice((0, 1, r.randrange(10**8, 10**9), r.randrange(10**14, 10**15)))


def test_elimination_finds_the_optimum_of_levels_that_need_several_words() -> None:
    for seed in range(150):
        graph, roots = random_graph(seed, 4, huge)
        options = prune.pruned(prune.candidates(graph, cost_of(graph)), roots)
        if any(r not in options for r in roots):
            continue
        choice = cheapest_by_elimination(options, roots, 0)
        assert choice is not None, seed
        assert total(graph, {c: o.node for c, o in choice.items()}, roots, 4) == cheapest(graph, roots, 4), seed


def test_pruning_keeps_an_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [random_graph(seed) for seed in range(1000, 1100)]
    pruned = [found(*g) for g in graphs]
    module = importlib.import_module("rewrite_compiler.egraph.extraction.extract")
    monkeypatch.setattr(module, "within_bound", unbounded)
    monkeypatch.setattr(module, "pruned", unpruned)
    monkeypatch.setattr(module, "parts", lambda options, roots: [Part(options, tuple(roots))])
    whole = [found(*g) for g in graphs]
    assert [x and x.cost for x in pruned] == [x and x.cost for x in whole]


def test_pruning_leaves_fewer_candidates() -> None:
    graphs = [random_graph(seed) for seed in range(100)]
    counts = [
        [sum(map(len, left.values())) for left in (prune.pruned(every, roots), within_bound(g, cost_of(g), frozenset(), roots), every)]
        for g, roots in graphs for every in [prune.candidates(g, cost_of(g))]
    ]  # fmt: skip
    assert all(small <= large and bounded <= large for small, bounded, large in counts)
    small, bounded, large = map(sum, zip(*counts, strict=True))
    assert small < large
    assert bounded < large


@pytest.mark.usefixtures("solver_alone")
def test_without_a_solver_the_cheapest_trees_are_a_valid_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Problem, "solve_level", lambda *_: (None, "limited"))
    for seed in range(200):
        graph, roots = random_graph(seed)
        best, extraction = cheapest(graph, roots, 2), found(graph, roots)
        assert (best is None) == (extraction is None), seed
        if best is None or extraction is None:
            continue
        assert extraction.cost == total(graph, extraction.choice, roots, 2) >= best
        assert extraction.status in ("greedy", "optimal")  # optimal: nothing was left to choose
        assert all(b <= c for b, c in zip(extraction.bound, extraction.cost, strict=True))


@pytest.mark.usefixtures("solver_alone")
def test_a_solver_that_stops_after_the_first_level_gives_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = _Problem.solve_level
    seen: list[_Problem] = []

    def once(self: _Problem, costs: Any, deadline: float) -> tuple[list[float] | None, str]:
        first = all(p is not self for p in seen)
        seen.append(self)
        return solved(self, costs, deadline) if first else (None, "limited")

    monkeypatch.setattr(_Problem, "solve_level", once)
    limited = 0
    for seed in range(300):
        graph, roots = random_graph(seed, draw=lambda r: r.randint(1, 5))
        best, extraction = cheapest(graph, roots, 2), found(graph, roots)
        if best is None or extraction is None:
            continue
        limited += extraction.status == "limited"
        assert extraction.cost == total(graph, extraction.choice, roots, 2)
        assert extraction.bound[0] == best[0] == extraction.cost[0]
        assert extraction.bound <= best
        assert extraction.gap == (extraction.cost[1] - extraction.bound[1]) / max(extraction.cost[1], 1)
        assert extraction.status == "limited" or extraction.cost == best
    assert limited > 10


@pytest.mark.usefixtures("solver_alone")
def test_a_solver_that_loses_count_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a choice costs is summed again in integers: a bound that differs is no proof."""
    solve = _Problem.solve

    def one_less(self: _Problem, first: int, levels: int, deadline: float) -> tuple[Any, tuple[int, ...], str]:
        choice, bound, status = solve(self, first, levels, deadline)
        return choice, (*bound[:first], bound[first] - 1, *bound[first + 1 :]), status

    monkeypatch.setattr(_Problem, "solve", one_less)
    statuses = {x.status for seed in range(150) if (x := found(*random_graph(seed))) is not None and x.gap}
    assert statuses == {"limited"}


def test_parts_share_nothing_but_what_is_built_anyway() -> None:
    counts = []
    for seed in range(300):
        graph, roots = random_graph(seed)
        options = prune.pruned(prune.candidates(graph, cost_of(graph)), roots)
        if any(r not in options for r in roots):
            continue
        made = parts(options, roots)
        needed = needed_classes(options, roots)
        choices = [set(reached_by(choice, roots)) for choice in acyclic_choices(graph, roots)]
        assert needed == set.intersection(*choices) & options.keys(), seed
        assert sorted(c for p in made for c in p.roots) == sorted(needed), seed
        counts.append(len(made))
    assert max(counts) > 3


def reached_by(choice: Mapping[int, ENode], roots: Iterable[int]) -> list[int]:
    done: list[int] = []
    work = list(roots)
    while work:
        c = work.pop()
        if c not in done:
            done.append(c)
            work.extend(choice[c].children)
    return done


@pytest.mark.usefixtures("solver_alone")
def test_parts_of_one_form_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer computes its result from a shared half or from two halves of its own; which is cheaper needs the solver."""
    solve, solved = _Problem.solve, []
    monkeypatch.setattr(_Problem, "solve", lambda self, *rest: solved.append(self) or solve(self, *rest))
    layers, nodes = 5, {0: [ENode("leaf", (), (0,), PROGRAM, frozenset())]}
    for n in range(layers):
        top, left, right, shared = (4 * n + k for k in (4, 1, 2, 3))
        below = [((shared,), 1), ((4 * n,), 2)]
        for c, ways in {top: [((left, right), 1)], left: below, right: below, shared: [((4 * n,), 1)]}.items():
            nodes[c] = [ENode(f"{k}", children, (cost,), PROGRAM, frozenset()) for k, (children, cost) in enumerate(ways)]
    graph = EGraph({c: EClass(TensorType(()), False, tuple(ways)) for c, ways in nodes.items()}, {})
    extraction = extract(graph, (4 * layers,), cost_of(graph))
    assert (extraction.cost, extraction.bound, extraction.status) == ((4 * layers,), (4 * layers,), "optimal")
    assert len(solved) == 1


def part_of(rows: Mapping[int, list[tuple[tuple[int, ...], tuple[int, ...]]]], *roots: int) -> Part:
    node = ENode("some", (), (), PROGRAM, frozenset())
    return Part({c: [Candidate(node, frozenset(d), cost) for d, cost in found] for c, found in rows.items()}, roots)


def test_parts_of_one_form_have_one_key_and_others_another() -> None:
    """Cost 0 is settled; 1 and 2 are open."""
    base = {0: [((), (9, 1, 2))], 1: [((0,), (9, 3, 4)), ((), (9, 5, 6))], 2: [((0, 1), (9, 0, 0))]}
    key = key_of(part_of(base, 2), 1)
    moved = {c + 7: [(tuple(d + 7 for d in children), (5, *cost[1:])) for children, cost in found] for c, found in base.items()}
    assert key_of(part_of(moved, 9), 1) == key
    others = [
        part_of({**base, 0: [((), (9, 2, 2))]}, 2), part_of({**base, 0: [((), (9, 1, 3))]}, 2), part_of(base, 1), part_of(base, 2, 1),
        part_of({**base, 2: [((0,), (9, 0, 0))]}, 2), part_of({**base, 1: [((), (9, 3, 4)), ((0,), (9, 5, 6))]}, 2),
        part_of({**base, 1: [((0,), (9, 3, 4))]}, 2),
    ]  # fmt: skip
    assert len({key, *(key_of(p, 1) for p in others)}) == len(others) + 1
    assert key_of(part_of(base, 2), 0) != key_of(part_of({**base, 0: [((), (8, 1, 2))]}, 2), 0)


def cover(seed: int, items: int, sets: int, each: int, costs: tuple[int, int]) -> tuple[EGraph, int]:
    """Return a set cover, whose linear relaxation is far from its optimum: items that each need one of some sets."""
    r = random.Random(seed)
    ways = {s: [ENode(f"set {s}", (), (r.randint(*costs),), PROGRAM, frozenset())] for s in range(sets)}
    top = sets + items
    for i in range(sets, top):
        ways[i] = [ENode(f"{i} by {k}", (k,), (0,), PROGRAM, frozenset()) for k in sorted(r.sample(range(sets), each))]
    ways[top] = [ENode("all", tuple(range(sets, top)), (0,), PROGRAM, frozenset())]
    return EGraph({c: EClass(TensorType(()), False, tuple(found)) for c, found in ways.items()}, {}), top


# the cheapest choice; HiGHS with a relative gap of 5 % stops at 438, 424 and 702
COVERS = {(0, 36, 24, 3, (40, 60)): 432, (7, 36, 24, 3, (40, 60)): 411, (12, 30, 24, 4, (90, 110)): 688}


@pytest.mark.parametrize("instance", COVERS)
@pytest.mark.usefixtures("solver_alone")
def test_a_choice_a_little_off_the_optimum_is_not_called_optimal(instance: tuple[int, int, int, int, tuple[int, int]]) -> None:
    graph, top = cover(*instance)
    extraction = extract(graph, (top,), cost_of(graph))
    assert (extraction.cost, extraction.bound, extraction.status) == ((COVERS[instance],), (COVERS[instance],), "optimal")


def test_what_costs_nothing_more_than_it_must_needs_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Problem, "solve", lambda *_: pytest.fail("the solver is asked"))
    leaf, dear = ENode("leaf", (), (0, 1), PROGRAM, frozenset()), ENode("dear", (0,), (7, 0), PROGRAM, frozenset())
    free, top = ENode("free", (0,), (0, 3), PROGRAM, frozenset()), ENode("top", (1, 2), (2, 1), PROGRAM, frozenset())
    ways = {0: (leaf,), 1: (dear, free), 2: (ENode("other", (1,), (0, 9), PROGRAM, frozenset()), dear), 3: (top,)}
    graph = EGraph({c: EClass(TensorType(()), False, nodes) for c, nodes in ways.items()}, {})
    extraction = extract(graph, (3,), cost_of(graph))
    assert (extraction.cost, extraction.bound, extraction.status) == ((2, 14), (2, 14), "optimal")


def test_trees_pay_for_shared_parts_each_time() -> None:
    shared = {
        0: [Candidate(ENode("two", (1, 1), (0,), -1, frozenset()), frozenset({1}), (0,)),
            Candidate(ENode("both", (1, 2), (0,), -1, frozenset()), frozenset({1, 2}), (0,))],
        1: [Candidate(ENode("a", (), (3,), -1, frozenset()), frozenset(), (3,))],
        2: [Candidate(ENode("b", (1,), (1,), -1, frozenset()), frozenset({1}), (1,))],
    }  # fmt: skip
    assert cheapest_trees(shared)[0].node.op == "two"


def test_an_extraction_is_the_same_each_time() -> None:
    for seed in range(30):
        graph, roots = random_graph(seed)
        assert found(graph, roots) == found(graph, roots)


def e_class(*nodes: ENode, fixed: bool = False) -> EClass:
    return EClass(TensorType(()), fixed, nodes)


def test_a_cheap_cycle_is_not_chosen() -> None:
    """a = f(b) and b = g(a) cost nothing together; the leaf that both need costs 9."""
    a = e_class(ENode("f", (1,), (0,), -1, frozenset()), ENode("h", (2,), (1,), -1, frozenset()))
    b = e_class(ENode("g", (0,), (0,), -1, frozenset()), ENode("k", (2,), (5,), -1, frozenset()))
    graph = EGraph({0: a, 1: b, 2: e_class(ENode("leaf", (), (9,), -1, frozenset()))}, {})
    extraction = extract(graph, (0, 1), cost_of(graph))
    assert {n.op for n in extraction.choice.values()} == {"h", "g", "leaf"}
    assert extraction.cost == (10,)


def test_constants_are_free_and_evaluated_with_the_fewest_operators() -> None:
    weight = e_class(ENode("Constant", (), (0,), -1, frozenset()), fixed=True)
    folded = e_class(ENode("far", (2,), (0,), -1, frozenset()), ENode("near", (1,), (0,), -1, frozenset()), fixed=True)
    again = e_class(ENode("twice", (3,), (0,), -1, frozenset()), fixed=True)
    use = e_class(ENode("use", (3,), (1,), -1, frozenset()))
    graph = EGraph({0: use, 1: weight, 2: again, 3: folded}, {})
    extraction = extract(graph, (0,), cost_of(graph))
    assert [n.op for n in extraction.choice.values()] == ["Constant", "near", "use"]
    assert list(extraction.choice) == [1, 3, 0]  # operands first


def test_a_root_that_only_contains_itself_is_reported() -> None:
    graph = EGraph({0: e_class(ENode("f", (1,), (0,), -1, frozenset())), 1: e_class(ENode("g", (0,), (0,), -1, frozenset()))}, {})
    assert found(graph, (0,)) is None
    assert not list(acyclic_choices(graph, (0,)))


def test_a_program_of_constants_costs_nothing() -> None:
    graph = EGraph({0: e_class(ENode("Constant", (), (0, 0), -1, frozenset()), fixed=True)}, {})
    extraction = extract(graph, (0,), cost_of(graph))
    assert (extraction.cost, extraction.bound, extraction.status, extraction.gap) == ((0, 0), (0, 0), "optimal", 0.0)
