"""Codelets: printed and parsed, evaluated to the same at every stage, fitted to the running example of the paper."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from example import example
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flexmatch
from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila.mnemonic import instruction_set
from rewrite_compiler.sched.codelet import Affine, Allocation, Codelet, Compute, Constant, Index, Loop, Stage, Surrogate, Transfer, bind
from rewrite_compiler.sched.codelet_text import parse, text
from rewrite_compiler.sched.evaluation import CAPABILITIES, evaluate, usage
from rewrite_compiler.sched.passes import assign, candidates, check_schedule, coins, decompose, place, tile
from rewrite_compiler.target.acg import Acg, ComputeNode, Edge, acg_of
from rewrite_compiler.target.capability import parse_capability
from rewrite_compiler.target.derivation import Fragment, StorageShape

QUICK = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
ADD = "codelet add(inp a[N], inp b[N], out c[N]) {\n  loop n(0, N, 1) {\n    compute ADD(a[n], b[n]) -> c[n];\n  }\n}\n"
BOUND = ADD.replace("[N]", "[12]:i16").replace("N, 1", "12, 1")
PLACED = """codelet add(inp a[12]:i16@MEM1, inp b[12]:i16@MEM1, out c[12]:i16@MEM1) {
  loop n(0, 12, 2) {
    transfer a[n:2] -> a_1@MEM2;
    transfer b[n:2] -> b_1@MEM2;
    transfer 0:i16[2] -> c_1@MEM2;
    compute PE2.ADD(a_1[0:2], b_1[0:2]) -> c_1[0:2];
    transfer c_1[0:2] -> c[n:2];
  }
}
"""
SCHEDULED = """codelet add(inp a[12]:i16@MEM1, inp b[12]:i16@MEM1, out c[12]:i16@MEM1) {
  loop n(0, 12, 6) {
    transfer a[n:6] -> a_1@MEM2;
    transfer b[n:6] -> b_1@MEM2;
    transfer 0:i16[6] -> c_1@MEM2;
    loop n_1(0, 6, 3) {
      compute PE2.ADD(a_1[n_1:2], b_1[n_1:2]) -> c_1[n_1:2];
      compute PE1.ADD(a_1[n_1 + 2], b_1[n_1 + 2]) -> c_1[n_1 + 2];
    }
    transfer c_1[0:6] -> c[n:6];
  }
}
"""
RELU = """codelet relu(inp x[25]:i32@VMEM, out y[25]:i32@VMEM) {
  loop i(0, 25, 5) {
    compute SIMD.RELU(x[i:4]) -> y[i:4];
    compute PE.RELU(x[i + 4]) -> y[i + 4];
  }
}
"""
FIGURES = {"abstract": ADD, "bound": BOUND, "placed": PLACED, "scheduled": SCHEDULED, "relu": RELU}


def unit(name: str, capability: str, storage: str) -> ComputeNode:
    c = parse_capability(capability)
    return ComputeNode(name, (Fragment(name.lower(), c, storage, (storage,) * len(c.operands)),))


def graph(depth: int = 1024) -> Acg:
    """Return two memories, a scalar and a 2-wide vector unit."""
    storages = {"MEM1": StorageShape("MEM1", 8, 1, 1 << 20, off_chip=True), "MEM2": StorageShape("MEM2", 32, 7, depth)}
    units = [unit("PE1", "(i16)=ADD((i16),(i16))", "MEM2"), unit("PE2", "(i16,2)=ADD((i16,2),(i16,2))", "MEM2")]
    edges = (Edge("MEM1", "MEM2", ("load",)), Edge("MEM2", "MEM1", ("store",)))
    return Acg("example", storages, {}, {u.name: u for u in units}, edges)


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_print_back(name: str) -> None:
    assert text(parse(FIGURES[name])) == FIGURES[name]


def test_the_figures_are_what_the_passes_make() -> None:
    g, types = graph(), dict.fromkeys("abc", "i16")
    abstract = parse(ADD)
    bound = bind(abstract, {"N": 12}, types)
    assert (abstract.stage, bound.stage, text(bound)) == (Stage.ABSTRACT, Stage.BOUND, BOUND)
    assert [(r.unit, r.width) for r in candidates(g, "ADD", ["i16", "i16"])] == [("PE2", 2), ("PE1", 1)]
    placed = assign(place(bound, g, ["PE1", "PE2"]), g)
    assert placed.stage is Stage.PLACED
    assert text(decompose(tile(placed, {"n": 2}, "MEM2"), [("PE2", 2)])) == PLACED
    scheduled = decompose(tile(placed, {"n": 6}, "MEM2"), [("PE2", 2), ("PE1", 1)])
    assert (scheduled.stage, text(scheduled)) == (Stage.TILED, SCHEDULED)
    inputs = {"a": np.arange(12) * 3000, "b": np.arange(12)[::-1] * 100}
    results = [evaluate(c, inputs)["c"].tolist() for c in (bound, placed, scheduled, parse(PLACED))]
    assert results == [results[0]] * 4
    assert usage(scheduled) == {"MEM1": 3 * 12 * 16, "MEM2": 3 * 6 * 16}


def test_25_relus_take_five_rounds_of_four_and_one() -> None:
    abstract = parse("codelet relu(inp x@VMEM[25]:i32, out y@VMEM[25]:i32) { loop i(25) { compute RELU(x[i]) -> y[i]; } }")
    assert text(decompose(abstract, [("SIMD", 4), ("PE", 1)])) == RELU
    assert coins(25, [4, 1]) == (5, 5)


def test_iterations_and_elements_are_told_apart() -> None:
    loops = parse("codelet f() { loop n(2, stride=6) {} loop i(25) {} loop j(0, 25, 5) {} }").body
    assert [(x.low, x.high, x.stride) for x in loops if isinstance(x, Loop)] == [(0, 12, 6), (0, 25, 1), (0, 25, 5)]


def test_the_running_example_as_an_ila() -> None:
    """Its graph, its scratchpad's size, its capabilities and its mnemonic follow from forty lines of model."""
    m = example()
    g = acg_of(m)
    spad = g.storages["spad"]
    assert (spad.element_bits, spad.capacity_bits, spad.capacity_bits // 8) == (224, 229_376, 28_672)
    assert {(e.source, e.sink): e.by for e in g.edges} == {("dram", "spad"): ("load",), ("spad", "dram"): ("store",)}
    texts = {str(f.capability) for u in g.units.values() for f in u.fragments}
    assert texts == {"(i32)=ADD((i32),(i32))", "(i32,2)=ADD((i32,2),(i32,2))", "(i32,2)=GEMM((i32,2,2),(i32,2),(i32,2))"}
    assert g.home(["add", "mmul"]) == "dram"
    widths = {f.width: f.name for f in instruction_set(m).mnemonics["ADD"].fields}
    assert widths == {8: "b", 1: "target"}
    assert flexmatch.disassemble(flexmatch.assemble("ADD #3,#0,#1,VECTOR", m), m) == "ADD #3,#0,#1,VECTOR\n"


# -- laws


@st.composite
def codelets(draw: st.DrawFn) -> tuple[Codelet, dict[str, Any]]:
    """Draw a nest of loops around a compute whose blocks move with the loops in any way, and inputs for it."""
    variables = ["i", "j", "k"][: draw(st.integers(1, 3))]
    extents = {v: draw(st.integers(1, 6)) for v in variables}
    capability = draw(st.sampled_from(["ADD", "SUB", "MAX", "MAC", "RELU"]))
    arity = {"RELU": 1, "MAC": 2}.get(capability, 2)
    surrogates, operands = list[Surrogate](), list[Index]()
    for n in range(arity):
        offsets = tuple(
            Affine(draw(st.integers(0, 2)), tuple((v, f) for v in variables if (f := draw(st.integers(-2, 3)))))
            for _ in range(draw(st.integers(1, 2)))
        )
        index, dims = placed_inside(offsets, extents)
        surrogates.append(Surrogate(f"x{n}", "inp", dims, "i8"))
        operands.append(Index(f"x{n}", index, (1,) * len(dims)))
    moving = draw(st.lists(st.sampled_from(variables), unique=True, max_size=2)) if capability == "MAC" else variables
    offsets, dims = placed_inside(tuple(Affine(0, ((v, draw(st.integers(1, 2))),)) for v in moving), extents)
    result = Index("y", offsets, (1,) * len(dims))
    surrogates.append(Surrogate("y", "out", dims, draw(st.sampled_from(["i8", "i32", "u16"]))))
    body: Any = (Compute(capability, (*operands, result) if capability == "MAC" else tuple(operands), result),)
    for v in reversed(variables):
        body = (Loop(v, 0, extents[v], 1, body),)
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return Codelet("f", tuple(surrogates), body), {s.name: random.integers(-128, 128, s.shape) for s in surrogates if s.kind == "inp"}


def placed_inside(offsets: tuple[Affine, ...], extents: dict[str, int]) -> tuple[tuple[Affine, ...], tuple[int, ...]]:
    """Move offsets so that the lowest is not negative, and return the dimensions that hold them."""
    moved = []
    dims = []
    for a in offsets:
        values = [a.value(dict(zip(extents, point, strict=True))) for point in itertools.product(*map(range, extents.values()))]
        moved.append(a + max(-min(values), 0))
        dims.append(max(values) + max(-min(values), 0) + 1)
    return tuple(moved), tuple(dims)


@QUICK
@given(codelets(), st.data())
def test_every_stage_computes_the_same(drawn: tuple[Codelet, dict[str, Any]], data: st.DataObject) -> None:
    """L2 on any tiles, those that do not divide their loops included; L1 on every stage."""
    c, inputs = drawn
    extents = {n.var: n.high for n in loops_of(c)}
    tiles = {v: data.draw(st.integers(1, int(high) + 1)) for v, high in extents.items()}
    expected = evaluate(c, inputs)["y"]
    tiled = tile(c, tiles, "M")
    assert np.array_equal(evaluate(tiled, inputs)["y"], expected)
    assert parse(text(c)) == c
    assert parse(text(tiled)) == tiled


def loops_of(c: Codelet) -> list[Loop]:
    found, body = [], c.body
    while body and isinstance(body[0], Loop):
        found.append(body[0])
        body = body[0].body
    return found


@QUICK
@given(st.integers(1, 40), st.integers(1, 12), st.permutations([4, 2, 1]), st.integers(1, 3), st.integers(0, 9))
def test_units_side_by_side_compute_the_same(n: int, size: int, widths: list[int], count: int, seed: int) -> None:
    units = [(f"U{w}", w) for w in [*widths[:count], *([1] if 1 not in widths[:count] else [])]]
    c = bind(parse(ADD), {"N": n}, dict.fromkeys("abc", "i16"))
    random = np.random.default_rng(seed)
    inputs = {name: random.integers(-(1 << 15), 1 << 15, n) for name in "ab"}
    done = decompose(tile(c, {"n": size}, "M"), units)
    assert np.array_equal(evaluate(done, inputs)["c"], evaluate(c, inputs)["c"])
    assert parse(text(done)) == done


@QUICK
@given(st.integers(0, 30), st.lists(st.integers(1, 8), unique=True, min_size=1, max_size=3).map(lambda w: sorted({*w, 1}, reverse=True)))
def test_coins_are_the_fewest_steps(n: int, widths: list[int]) -> None:
    steps = coins(n, widths)
    assert sum(s * w for s, w in zip(steps, widths, strict=True)) == n
    ranges = [range(n // w + 1) for w in widths]
    least = min(max(s) for s in itertools.product(*ranges) if sum(a * w for a, w in zip(s, widths, strict=True)) == n)
    assert max(steps) == least


def test_a_wrong_pass_is_noticed() -> None:
    """A planted fault (a block one element off, a store left out) changes what is computed."""
    c = bind(parse(ADD), {"N": 12}, dict.fromkeys("abc", "i16"))
    inputs = {"a": np.arange(12), "b": np.arange(12) * 7}
    good = text(tile(c, {"n": 5}, "M"))
    for right, wrong in (("a_1[n_1]", "a_1[0]"), ("-> c[n:5];", "-> c[0:5];"), ("b[n:2]", "b[n - 1:2]")):
        assert right in good
        assert evaluate(parse(good.replace(right, wrong)), inputs)["c"].tolist() != evaluate(c, inputs)["c"].tolist()


# -- refusals


def refusal(call: Any) -> str:
    with pytest.raises(SpecError) as caught:
        call()
    return str(caught.value)


def test_what_does_not_fit_is_refused() -> None:
    placed = assign(place(bind(parse(ADD), {"N": 12}, dict.fromkeys("abc", "i16")), graph(), ["PE1", "PE2"]), graph())
    check_schedule(tile(placed, {"n": 6}, "MEM2"), graph(depth=2))
    said = refusal(lambda: check_schedule(tile(placed, {"n": 12}, "MEM2"), graph(depth=2)))
    assert "The tiles of add take 576 bits of MEM2, which holds 448" in said
    assert "help: a is the largest: tile n by at most 9 (of 12)" in said
    assert "No edge of example leads from MEM1 to MEM3" in refusal(lambda: check_schedule(tile(placed, {"n": 6}, "MEM3"), graph()))
    other = bind(parse(ADD.replace("ADD", "DIV")), {"N": 12}, dict.fromkeys("abc", "i16"))
    assert "compute DIV: no unit of example has DIV on i16, i16\n  help: it has ADD on PE1, ADD on PE2" in refusal(
        lambda: assign(other, graph())
    )


def test_a_memory_is_full_to_the_last_bit() -> None:
    """Three operands of 18 bytes leave 16 of 448 bits, and of 19 lack 8."""
    placed = place(bind(parse(ADD), {"N": 24}, dict.fromkeys("abc", "i8")), graph(), ["PE1", "PE2"])
    check_schedule(tile(placed, {"n": 18}, "MEM2"), graph(depth=2))
    assert "take 456 bits of MEM2, which holds 448" in refusal(lambda: check_schedule(tile(placed, {"n": 19}, "MEM2"), graph(depth=2)))


def test_elements_between_those_that_a_tile_computes_stay() -> None:
    """Tiles of one n and two m write every third element: what other tiles wrote between is loaded before."""
    c = parse(
        "codelet f(inp a[3][4]:i8, out y[12]:i8) {\n  loop n(0, 3, 1) {\n    loop m(0, 4, 1) {\n"
        "      compute COPY(a[n][m]) -> y[n + 3*m];\n    }\n  }\n}\n"
    )
    a = np.arange(1, 13).reshape(3, 4)
    for tiles in ({"n": 1, "m": 2}, {"n": 3, "m": 2}, {"n": 2, "m": 3}):
        assert evaluate(tile(c, tiles, "M"), {"a": a})["y"].tolist() == a.T.reshape(-1).tolist()


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("codelet x(inp a[N]) {", "line 1, column 22: expected"),
        ("codelet x(inp a[N]) {\n  loop n(0,3) {} }", 'line 2, column 13: expected ,, not ") {} }"'),
        ("codelet x(inp a[N]) { compute ADD(a[n]) -> a[0]; }", 'a[n] uses "n", which is no loop around it'),
        ("codelet x(inp a[2]) { compute ADD(b[0]) -> a[0]; }", 'x uses "b" before it is declared'),
        ("codelet x(inp a[2][2]) { compute ADD(a[0]) -> a[0][0]; }", "a[0] must have 2 indices, not 1"),
        ("codelet x(foo a) {}", "line 1, column 11: expected ) or inp, out, local or param"),
    ],
)
def test_what_does_not_parse_is_refused_with_its_place(source: str, sentence: str) -> None:
    assert sentence in refusal(lambda: parse(source))


def test_what_cannot_be_bound_evaluated_or_tiled_is_refused() -> None:
    c = parse(ADD)
    types = dict.fromkeys("abc", "i16")
    assert "Dimension N of a has no size" in refusal(lambda: bind(c, {}, types))
    assert "Dimension N of a must be positive, not 0" in refusal(lambda: bind(c, {"N": 0}, types))
    assert "Operand c has no element type" in refusal(lambda: bind(c, {"N": 1}, {"a": "i8", "b": "i8"}))
    bound = bind(c, {"N": 3}, types)
    assert "add needs the input b" in refusal(lambda: evaluate(bound, {"a": np.zeros(3)}))
    assert "The input a must have the shape (3,), not (2,)" in refusal(lambda: evaluate(bound, {"a": np.zeros(2), "b": np.zeros(3)}))
    beyond = parse(text(bound).replace("b[n]", "b[n + 1]"))
    assert "elements 3…3 of b leave axis 0, which has 3" in refusal(lambda: evaluate(beyond, {"a": np.zeros(3), "b": np.zeros(3)}))
    before = parse(text(bound).replace("b[n]", "b[n - 1]"))
    assert "elements -1…-1 of b leave axis 0, which has 3" in refusal(lambda: evaluate(before, {"a": np.zeros(3), "b": np.zeros(3)}))
    unknown = parse(text(bound).replace("ADD", "AND"))
    assert 'The capability AND has no meaning\n  help: did you mean "ADD"?' in refusal(
        lambda: evaluate(unknown, {"a": np.zeros(3), "b": np.zeros(3)})
    )
    assert "A tile of n must be positive, not 0" in refusal(lambda: tile(bound, {"n": 0}, "M"))
    assert [x.stride for x in tile(bound, {"n": 1}, "M").body if isinstance(x, Loop)] == [1]
    assert "must be a nest of loops of stride 1" in refusal(lambda: tile(tile(bound, {"n": 2}, "M"), {"n": 1}, "M"))
    overlapping = (
        "codelet f(inp x[8]:i8, out y[8]:i8) { loop n(0, 4, 1) { compute COPY(x[n]) -> y[2*n]; compute COPY(x[n]) -> y[2*n + 1]; } }"
    )
    assert "must write and read one block of y to be tiled, not 2" in refusal(lambda: tile(parse(overlapping), {"n": 2}, "M"))
    assert "3 elements are no sum of steps of 2" in refusal(lambda: coins(3, [2]))
    strided = parse(text(bound).replace("a[n]", "a[2*n]"))
    assert "ADD must take elements of a one after the other along n" in refusal(lambda: decompose(strided, [("PE2", 2)]))


def test_a_constant_and_a_product() -> None:
    source = """codelet gemm(inp x[4]:i8, param w[3][4]:i8, out y[3]:i32) {
  transfer -3:i32[3] -> acc@M;
  compute U.GEMM(x[0:4], w[0:3][0:4], acc[0:3]) -> acc[0:3];
  transfer acc[0:3] -> y[0:3];
}
"""
    c = parse(source)
    assert text(c) == source
    assert c.body[0] == Transfer(Constant(-3, "i32", (3,)), Allocation("acc", "M"))
    x, w = np.array([1, -2, 3, 4]), np.arange(12).reshape(3, 4)
    assert evaluate(c, {"x": x, "w": w})["y"].tolist() == (w @ x - 3).tolist()
    assert set(CAPABILITIES) >= {"ADD", "GEMM", "RELU"}


def test_locals_of_a_loop_lie_beside_those_around_it_and_end_with_it() -> None:
    """Eight bytes around the loops, then eight in each: the second loop's take the place of the first one's."""
    c = parse(
        "codelet f(inp a[16]:i8@MEM1, out y[16]:i8@MEM1) {\n  transfer a[0:8] -> around@M;\n"
        "  loop n(0, 8, 8) {\n    transfer a[n:8] -> p@M;\n    transfer p[0:8] -> y[n:8];\n  }\n"
        "  loop m(0, 8, 8) {\n    transfer a[m:8] -> q@M;\n    transfer q[0:4] -> r@N;\n  }\n}\n"
    )
    assert usage(c) == {"M": 2 * 64, "MEM1": 2 * 128, "N": 32}
