"""Mappings as texts: every form prints back to the same mapping, a codelet computes what the problem says, and faults are named."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rewrite_compiler.errors import InputError
from rewrite_compiler.fit.mapping.architectures import find_clusters
from rewrite_compiler.fit.mapping.clusters import Cluster, Clusters
from rewrite_compiler.fit.mapping.constraints import constraints_from
from rewrite_compiler.fit.mapping.schedule import Schedule, schedule_from, schedule_of, violations
from rewrite_compiler.fit.mapping.space import Space
from rewrite_compiler.fit.mapping.texts.codelet import codelet_of
from rewrite_compiler.fit.mapping.texts.forms import FORMS, form_of, schedule_of_text
from rewrite_compiler.fit.mapping.texts.loops import listing
from rewrite_compiler.fit.problems.layers import layer_problem
from rewrite_compiler.fit.problems.problem import Problem
from rewrite_compiler.sched.codelet import Stage
from rewrite_compiler.sched.evaluation import evaluate

DEEP = Clusters(
    "deep",
    (
        Cluster("DRAM", children=2), Cluster("chip", children=3, is_virtual=True), Cluster("L3", 4096, 4, "X"),
        Cluster("lane", children=2, axis="X", is_virtual=True), Cluster("L2", 512, 4, "Y"), Cluster("L1", 64, 2, "X"),
    ),
    10**9,
)  # fmt: skip
LAYERS = {
    "product": "gemm:m=24,n=16,k=12", "image": "conv:k=8,c=4,p=6,q=4,r=3,s=3,stride=2,dilation=2",
    "groups": "conv:k=8,c=8,p=4,q=4,r=3,s=3,group=4", "contraction": "einsum:adec,ebd->abc:4",
}  # fmt: skip


def mappings(problem: Problem, clusters: Clusters, count: int, passes: bool) -> list[Schedule]:
    """Random mappings within the arrays, capacities aside; some pass a tensor by a memory."""
    inner = [c.name for c in clusters.levels[1:] if not c.is_virtual]
    bypass = {inner[0]: [next(iter(problem.spaces))]} if passes else {}
    constraints = constraints_from({"bypass": bypass}, problem, clusters)
    space = Space(problem, clusters, constraints)
    batch = space.batch(space.sample(count, np.random.default_rng(3)))
    return [schedule_of(batch, clusters, k, constraints.bypasses(problem, clusters)) for k in range(count)]


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_every_form_prints_back(name: str, passes: bool) -> None:
    problem = layer_problem(LAYERS[name])
    for clusters in (find_clusters("edge"), DEEP):
        for schedule in mappings(problem, clusters, 25, passes):
            assert {v.rule for v in violations(problem, clusters, schedule)} <= {3}
            for form in FORMS.values():
                text = form.text(schedule, problem, clusters)
                assert form_of(text, clusters) is form
                assert schedule_of_text(text, problem, clusters) == schedule, text


@pytest.mark.parametrize("name", LAYERS)
def test_the_codelet_of_a_mapping_computes_the_problem(name: str) -> None:
    small = {"product": "gemm:m=4,n=2,k=6", "image": "conv:k=2,c=2,p=2,q=3,r=2,s=2,stride=2,dilation=2"}
    problem = layer_problem(small.get(name, LAYERS[name].replace(":4", ":2").replace("k=8,c=8,p=4,q=4", "k=4,c=4,p=2,q=2")))
    rng = np.random.default_rng(5)
    for schedule in mappings(problem, DEEP, 4, True):
        codelet = codelet_of(schedule, problem, DEEP)
        assert codelet.stage >= Stage.PLACED
        inputs = {s.name: rng.integers(-9, 9, s.shape) for s in codelet.surrogates if s.kind == "inp"}
        expected = np.zeros(codelet.surrogate(problem.output).shape, np.int64)
        for point in itertools.product(*map(range, problem.dimensions.values())):
            at = dict(zip(problem.names, point, strict=True))
            places = {t: tuple(sum(c * at[d] for d, c in axis.items()) for axis in axes) for t, axes in problem.spaces.items()}
            expected[places[problem.output]] += np.prod([inputs[t][p] for t, p in places.items() if t != problem.output])
        assert np.array_equal(evaluate(codelet, inputs)[problem.output].astype(np.int64), expected)


def test_directives_without_levels_go_to_those_with_sub_clusters() -> None:
    """A published text: rows over clusters of 16 units, columns of the sum over the units of each; a stride in input elements."""
    problem, edge = layer_problem("gemm:m=64,n=8,k=32"), find_clusters("edge")
    text = "TemporalMap(4,4) N; SpatialMap(2,2) M; TemporalMap(16,16) K; Cluster(16,P); SpatialMap(1,1) K;"
    schedule = schedule_of_text(text, problem, edge)
    assert not violations(problem, edge, schedule)
    by_name = {m.cluster: m for m in schedule.levels}
    assert (by_name["L2"].order, dict(by_name["L2"].temporal)) == (("n", "m", "k"), {"m": 32, "n": 4, "k": 16})
    assert dict(by_name["row"].spatial) == {"m": 2, "n": 4, "k": 1}
    assert dict(by_name["L1"].temporal) == {"m": 1, "n": 1, "k": 1}
    with pytest.raises(InputError, match="must move by the 8 elements of its 4 windows"):
        schedule_of_text("TemporalMap(6+Sz(R),4) Y;", layer_problem("conv:k=2,c=2,p=8,q=8,r=3,s=3,stride=2"), edge)
    image = layer_problem("conv:k=2,c=2,p=8,q=8,r=3,s=3,stride=2")
    assert schedule_of_text("TemporalMap(1+Sz(R),2) Y;", layer_problem("conv:k=2,c=2,p=8,q=8,r=3,s=3"), edge) is not None
    strided = schedule_of_text("TemporalMap(6+Sz(R),8) Y; SpatialMap(1,1) X';", image, edge)
    assert dict(strided.levels[1].temporal) == {"n": 1, "k": 2, "p": 4, "q": 8, "c": 2, "r": 3, "s": 3}


FAULTS = {
    "loops": ("DRAM  holds all\n  for z in 0..3 step 2\n", "The mapping must have the level L2 of edge, which no line begins"),
    "no form": ("hello\n", 'The mapping begins with "hello", which is no form of one'),
    "no form, long": ("h" * 99, f'The mapping begins with "{"h" * 80}", which is no form of one'),
    "timeloop target": (
        "mapping:\n  - target: L3\n    type: temporal\n    factors: m=1\n",
        "A block of the mapping must have a target (DRAM, L2, row, L1) and a type (temporal, spatial, bypass, datatype), "
        'not "L3" and "temporal"',
    ),
    "timeloop rest": (
        "mapping:\n  - target: DRAM\n    type: temporal\n    factors: m=5\n    permutation: mnk\n",
        "The factor 5 of m at DRAM must divide the 24 steps of its tile (rule 4)",
    ),
    "timeloop digits": (
        "mapping:\n  - target: DRAM\n    type: temporal\n    factors: m=²\n",
        'A factor of DRAM must be a dimension (m n k) and a count, not "m=²"',
    ),
    "union": ("target_cluster: DRAM\n", "The levels of the mapping must be DRAM, L2, row, L1, not DRAM"),
    "maestro rest": ("SpatialMap(5,5) M;", 'Directive "SpatialMap(5,5) M" leaves a rest of the 24 steps of m at L2 (rule 4)'),
    "maestro offset": ("TemporalMap(2,1) M;", 'Directive "TemporalMap(2,1) M" must move by its size, or its tiles overlap or leave gaps'),
    "maestro input axis": ("TemporalMap(2,1) Y;", 'Directive "TemporalMap(2,1) Y" must name a dimension of the problem (M N K), not "Y"'),
    "maestro groups": (
        "SpatialMap(1,1) M; Cluster(16,P); SpatialMap(1,1) N; Cluster(4,P); SpatialMap(1,1) K;",
        "The 3 groups of directives must be at most the 2 levels of edge with sub-clusters; a line as // L1 says which level follows",
    ),
    "codelet": ("codelet f(", "The codelet cannot be read: line 1, column 11: expected ) or inp, out, local or param, not the end"),
    "codelet loop": (
        "codelet f(inp a[24]:i8@DRAM) { loop m(0, 24, 1) { } }", 'The loop "m" must name a dimension and a level of edge',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_text_that_is_no_mapping_is_refused(name: str) -> None:
    text, sentence = FAULTS[name]
    with pytest.raises(InputError) as refusal:
        schedule_of_text(text, layer_problem(LAYERS["product"]), find_clusters("edge"))
    assert refusal.value.problem.sentence == sentence


def test_a_codelet_with_another_transfer_is_refused() -> None:
    problem, edge = layer_problem(LAYERS["product"]), find_clusters("edge")
    (schedule,) = mappings(problem, edge, 1, False)
    text = FORMS["codelet"].text(schedule, problem, edge)
    line = next(line for line in text.splitlines() if "-> b_L2@L2" in line)
    with pytest.raises(InputError, match="The codelet is no mapping of the problem on edge: line"):
        schedule_of_text(text.replace(line, line.replace("b[", "b[1 + ")), problem, edge)


def test_loops_that_an_order_leaves_out_are_counted_and_shown() -> None:
    """They are the outermost of their level: without them the list of loops would visit a third of the points."""
    problem = layer_problem("conv:k=4,c=4,p=4,q=4,r=3,s=3")
    once = dict.fromkeys(problem.dimensions, 1)
    clusters = Clusters("two", (Cluster("DRAM"), Cluster("L1", 64)), 10**9)
    last = {"cluster": "L1", "order": [], "temporal": once, "spatial": once}
    short, full = (
        schedule_from([{"cluster": "DRAM", "order": order, "temporal": once, "spatial": once}, last], problem, clusters)
        for order in (["k", "c", "p"], ["s", "r", "q", "k", "c", "p"])
    )
    assert short == full
    assert violations(problem, clusters, short) == ()
    assert [line.split()[1] for line in listing(short, problem, clusters) if " for " in line] == ["s", "r", "q", "k", "c", "p"]
