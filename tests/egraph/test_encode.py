"""Programs as e-graphs: every operator, opaque ones, several results, many operands; and back again."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from in_process import engine_of, extracted, saturated
from programs import CASES, constant, opaque, program_of

from rewrite_compiler.egraph.graph.encode import opaque_key, program_items
from rewrite_compiler.egraph.graph.graph import PROGRAM, EClass, EGraph, ENode, from_json, to_json
from rewrite_compiler.ir.evaluate import random_inputs, run
from rewrite_compiler.ir.program import Builder, Program, Source, renumber_values
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ir.verify import verify
from rewrite_compiler.ops import OPS

FLOAT = TensorType((2, 3))
NAMES = ["x", 'say "hi"', "back\\slash", "new\nline", "nul\x00", "$a", ")", "(union", "v_x", "at", "é\u202ebidi", "<script>", "r1"]


def same(a: Program, b: Program) -> bool:
    """Tell whether two programs are equal up to the numbers of their values."""
    left, right = renumber_values(a), renumber_values(b)
    constants = left.constants.keys() == right.constants.keys() and all(
        np.array_equal(x, right.constants[v]) for v, x in left.constants.items()
    )
    keep = ("types", "inputs", "outputs", "nodes", "sources", "opaque")
    return constants and all(getattr(left, k) == getattr(right, k) for k in keep)


def test_the_cases_are_all_operators() -> None:
    assert CASES.keys() == OPS.keys()


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_operator_has_one_row_and_comes_back(op: str) -> None:
    p = program_of(op)
    graph = saturated(p)
    rows = [n for c in graph.classes.values() for n in c.nodes if n.op == f"o_{op}"]
    assert [(n.children, n.attributes, n.birth) for n in rows] == [
        (tuple(graph.values[v] for v in p.inputs), tuple(v for _, v in p.nodes[0].attributes), PROGRAM)
    ]
    assert rows[0].origins == (p.nodes[0].origins if OPS[op].kind != "layout" else frozenset())
    for v in (*p.inputs, *p.outputs):
        assert graph.classes[graph.values[v]].type == p.types[v]
    back, _ = extracted(p, graph)
    verify(back)
    if op == "full":  # without operands it is known at compile time
        assert [n.op for n in back.nodes] == ["reshape"]  # and an output is the result of a node
        np.testing.assert_array_equal(run(back, {})[back.outputs[0]], np.full((2, 3), 0.25, np.float32))
    else:
        assert same(back, p)


def two_opaque() -> Program:
    made = Builder("opaque")
    x = made.input("x", FLOAT)
    values, places = opaque(made, 'a "key"\nwith \\ lines\x00', [x], [FLOAT, TensorType((2, 3), "int64")])
    (second,) = opaque(made, "no operands", [], [FLOAT])
    made.sources.append(Source("sum", "Add"))
    (total,) = made.apply("add", [values, second], origins=(2,))
    return made.finish([total, places])


def test_opaque_operators_keep_their_key_operands_and_results() -> None:
    p = two_opaque()
    graph = saturated(p)
    rows = [n for c in graph.classes.values() for n in c.nodes if n.op == "Opaque"]
    assert {n.attributes[0]: n.origins for n in rows} == {opaque_key(n): n.origins for n in p.nodes if n.op == "opaque"}
    assert [len(c.nodes) for c in graph.classes.values() if c.type is None] == [1, 1]  # the tuples of results
    back, _ = extracted(p, graph)
    assert same(back, p)


def test_one_opaque_operator_on_two_shapes_keeps_the_shapes_and_names() -> None:
    made = Builder("where")
    x, y = made.input("x", FLOAT), made.input("y", TensorType((4, 5)))
    results = [opaque(made, "same", [v], [made.types[v]])[0] for v in (x, y)]
    made.names[results[0]], made.names[results[1]] = "first", "second"
    p = made.finish(results)
    back, _ = extracted(p, saturated(p))
    assert same(back, p)
    assert [back.names[v] for v in back.outputs] == ["first", "second"]


def test_an_unused_result_stays_with_its_operator() -> None:
    p = program_of("lstm")
    p = replace(p, outputs=p.outputs[1:2])
    back, _ = extracted(p, saturated(p))
    verify(back)
    assert [n.op for n in back.nodes] == ["lstm"]
    assert len(back.nodes[0].outputs) == 3
    assert back.outputs == back.nodes[0].outputs[1:2]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_variadic_concat_is_a_chain_that_computes_the_same(count: int) -> None:
    made = Builder("concat")
    made.sources.append(Source("cat", "Concat"))
    inputs = [made.input(f"x{n}", TensorType((2, n + 1))) for n in range(count)]
    p = made.finish(made.apply("concat", inputs, {"axis": 1}, origins=(0,)))
    back, _ = extracted(p, saturated(p))
    verify(back)
    assert [n.op for n in back.nodes] == ["concat"] * (count - 1)
    fed = random_inputs(p)
    placed = dict(zip(back.inputs, fed.values(), strict=True))
    np.testing.assert_array_equal(run(back, placed)[back.outputs[0]], run(p, fed)[p.outputs[0]])


def named(names: list[str]) -> Program:
    """The same small network under any names."""
    made = Builder(names[0])
    x = made.input(names[1], FLOAT)
    w = made.constant(constant(4, 3), names[2])
    b = made.constant(constant(4), names[3])
    made.sources += [Source(names[4], "MatMul"), Source(names[5], "Add")]
    (y,) = made.apply("dense", [x, w], origins=(0,), names=[names[6]])
    (z,) = made.apply("bias_add", [y, b], {"axis": 1}, origins=(1,), names=[names[7]])
    return made.finish([z])


def test_names_do_not_matter() -> None:
    plain = named(["n"] * 8)
    for first in range(len(NAMES)):
        turned = [*NAMES[first:], *NAMES[:first]]
        p = named(turned)
        assert program_items(p) == program_items(plain)
        back, _ = extracted(p, saturated(p))
        assert [back.names[v] for v in back.inputs] == [turned[1]]
        assert [back.names[v] for v in back.outputs] == [turned[7]]


def test_equal_source_nodes_share_a_row_with_both_origins() -> None:
    made = Builder("twice")
    x = made.input("x", FLOAT)
    made.sources += [Source("first", "Relu"), Source("second", "Relu"), Source("sum", "Add")]
    (a,), (b,) = made.apply("relu", [x], origins=(0,)), made.apply("relu", [x], origins=(1,))
    p = made.finish(made.apply("add", [a, b], origins=(2,)))
    graph = saturated(p)
    assert graph.values[a] == graph.values[b]
    back, _ = extracted(p, graph)
    assert [(n.op, n.origins) for n in back.nodes] == [("relu", {0, 1}), ("add", {2})]


def test_constness_follows_constants_only() -> None:
    made = Builder("fixed")
    x, w = made.input("x", FLOAT), made.constant(constant(2, 3))
    (c,) = made.apply("relu", [w])
    (d,) = made.apply("add", [c, w])
    (y,) = made.apply("add", [x, d])
    graph = saturated(made.finish([y, d]))
    assert [graph.classes[graph.values[v]].fixed for v in (x, w, c, d, y)] == [False, True, True, True, False]


def test_an_e_graph_survives_json() -> None:
    for op in ("conv", "lstm", "clip", "full"):
        graph = saturated(program_of(op))
        assert from_json(json.loads(json.dumps(to_json(graph)))) == graph


def test_zeros_of_both_signs_and_equal_numbers_of_other_kinds_survive_json() -> None:
    attributes = [
        ("full", ((1,), 0.0)),
        ("full", ((1,), -0.0)),
        ("clip", (0.0, 1.0)),
        ("clip", (-0.0, 1.0)),
        ("slice", (0, 1)),
        ("split", (0, True)),
    ]
    nodes = tuple(ENode(op, (), values, PROGRAM, frozenset()) for op, values in attributes)
    graph = EGraph({0: EClass(TensorType((1,), "float32"), False, nodes)}, {})
    assert str(from_json(json.loads(json.dumps(to_json(graph))))) == str(graph)


def test_rounds_without_rules_change_nothing() -> None:
    engine = engine_of(program_of("conv"))
    before = engine.snapshot()
    assert not engine.run_round("ir")
    assert engine.snapshot() == before
    assert engine.e_nodes == before.e_nodes
