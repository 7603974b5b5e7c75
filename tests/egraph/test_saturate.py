"""Saturation in its child process: limits, crashes, and what is left of the e-graph after them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from in_process import extracted
from programs import constant

from rewrite_compiler import Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.egraph.graph.outcome import Saturation
from rewrite_compiler.egraph.saturation.saturate import Unsaturated, saturate
from rewrite_compiler.errors import BudgetError, SpecError
from rewrite_compiler.ir.evaluate import random_inputs, run
from rewrite_compiler.ir.program import Builder, Program, Source
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ir.verify import verify
from rewrite_compiler.limits import DEFAULT, MIB

MORE = "raise the limit with --limits, or use fewer rules"


@rule
def commute(x: Tensor, y: Tensor) -> Law:
    """x + y = y + x"""
    return o.add(x, y), o.add(y, x)


@rule
def associate(x: Tensor, y: Tensor, z: Tensor) -> Law:
    """(x + y) + z = x + (y + z)"""
    return o.add(o.add(x, y), z), o.add(x, o.add(y, z))


@rule
def relu_twice(x: Tensor) -> Law:
    """relu(relu(x)) = relu(x)"""
    return o.relu(o.relu(x)), o.relu(x)


EXPLOSIVE = (commute, associate, relu_twice)


def sum_of(terms: int) -> Program:
    """A sum with a needless relu on top; under associativity and commutativity it has about 3ⁿ spellings."""
    made = Builder("sum")
    inputs = [made.input(f"x{n}", TensorType((2,))) for n in range(terms)]
    total = inputs[0]
    for n, x in enumerate(inputs[1:]):
        made.sources.append(Source(f"add{n}", "Add"))
        (total,) = made.apply("add", [total, x], origins=(n,))
    made.sources += [Source("relu", "Relu"), Source("again", "Relu")]
    (y,) = made.apply("relu", made.apply("relu", [total], origins=(terms - 1,)), origins=(terms,))
    return made.finish([y])


def usable(p: Program, s: Saturation) -> Program:
    """Require that the e-graph still gives a program that computes the same."""
    back, _ = extracted(p, s.graph)
    verify(back)
    fed = random_inputs(p)
    placed = {v: fed[p.inputs[[p.names[i] for i in p.inputs].index(back.names[v])]] for v in back.inputs}
    assert run(back, placed)[back.outputs[0]] == pytest.approx(run(p, fed)[p.outputs[0]], rel=1e-12)
    return back


def test_a_small_sum_saturates() -> None:
    p = sum_of(4)
    s = saturate(p, EXPLOSIVE, [])
    assert (s.reason, s.detail) == ("saturated", "")
    assert s.graph.e_nodes > 40
    assert [n.op for n in usable(p, s).nodes] == ["add"] * 3 + ["relu"]


def test_an_explosion_stops_before_the_limit_and_still_gives_a_program() -> None:
    p = sum_of(10)
    limit = 5_000
    s = saturate(p, EXPLOSIVE, [], replace(DEFAULT, e_nodes=limit))
    assert s.reason == "e_nodes"
    assert s.detail == f"{s.graph.e_nodes} e-nodes after round {s.rounds}; the next round could exceed the limit of {limit}"
    assert 100 < s.graph.e_nodes <= limit
    assert len(usable(p, s).nodes) == 10  # the second relu is gone


def test_rounds_are_limited() -> None:
    p = sum_of(8)
    s = saturate(p, EXPLOSIVE, [], replace(DEFAULT, rounds=2))
    assert (s.reason, s.detail, s.rounds) == ("rounds", "the limit of 2 rounds", 2)
    usable(p, s)


def test_a_limit_of_processor_time_leaves_the_last_whole_round() -> None:
    p = sum_of(14)
    # without other limits: a fast machine must not reach one of them first
    s = saturate(p, EXPLOSIVE, [], replace(DEFAULT, saturation_seconds=2, saturation_bytes=1 << 40, e_nodes=1 << 40))
    assert (s.reason, s.detail) == ("seconds", "the limit of 2 s of processor time")
    assert s.rounds >= 1
    usable(p, s)


def test_a_child_that_gets_no_processor_is_ended_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.egraph.saturation.saturate.STALL", 0)
    with pytest.raises(Unsaturated, match="saturation ended before its first round: the limit of 0 s by the clock"):
        saturate(sum_of(3), EXPLOSIVE, [], DEFAULT)


def test_a_memory_limit_leaves_the_last_whole_round() -> None:
    p = sum_of(14)
    s = saturate(p, EXPLOSIVE, [], replace(DEFAULT, saturation_bytes=288 * MIB, e_nodes=1 << 40, saturation_seconds=120))
    assert s.reason == "memory", s.detail
    assert s.rounds >= 1
    usable(p, s)


@rule
def false_shapes(x: Tensor) -> Law:
    """relu(x) = transpose(x): false, and of another shape"""
    return o.relu(x), o.transpose(x, (1, 0)), Where(x.rank == 2)


@rule
def false_operand(x: Tensor) -> Law:
    """relu(x) = x · x: false, and only for square matrices a product at all"""
    return o.relu(x), o.transpose(o.matmul(x, x), (0, 1)), Where(x.rank == 2)


@rule
def false_union(x: Tensor, y: Tensor) -> Law:
    """x + y = y: false, and of another shape when y is broadcast"""
    return o.add(x, y), y


def matrix(shape: tuple[int, ...] = (2, 3)) -> Program:
    made = Builder("relu")
    made.sources += [Source("relu", "Relu"), Source("add", "Add")]
    x, y = made.input("x", TensorType(shape)), made.input("y", TensorType(shape[1:]))
    (z,) = made.apply("relu", made.apply("relu", [x], origins=(0,)), origins=(0,))
    return made.finish(made.apply("add", [z, y], origins=(1,)))


def test_a_rule_that_joins_tensors_of_two_shapes_ends_saturation_with_an_alarm() -> None:
    p = matrix()
    s = saturate(p, [false_union], [])
    assert (s.reason, s.rounds) == ("crashed", 0)
    assert "Illegal merge attempted for function" in s.detail
    assert [n.op for n in usable(p, s).nodes] == ["relu", "relu", "add"]


def test_a_rule_that_builds_what_has_no_meaning_ends_saturation_with_an_alarm() -> None:
    p = matrix()
    s = saturate(p, [false_operand], [])
    assert (s.reason, s.rounds) == ("crashed", 0)
    assert "Inner dimensions of matmul must agree: a has 3 and b has 2" in s.detail
    assert [n.op for n in usable(p, s).nodes] == ["relu", "relu", "add"]


def test_a_rule_that_builds_another_shape_is_refused_where_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("in_process.price", lambda c, node: (9,) if node.op == "o_relu" else (1,))
    p = matrix()
    with pytest.raises(SpecError) as caught:
        extracted(p, saturate(p, [false_shapes], []).graph, [false_shapes])
    problem = caught.value.problem
    sentence = "the sides of false-shapes differ in shape: transpose gives float32[3, 2] where float32[2, 3] is needed"
    assert (problem.code, problem.sentence, problem.place, problem.help) == ("R105", sentence, false_shapes.place, "add a guard")


def fake_python(folder: Path, text: str) -> str:
    """Write an executable that stands for the interpreter of the child process."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_child_that_dies_at_once_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, "exit 3"))
    with pytest.raises(BudgetError) as caught:
        saturate(matrix(), [], [])
    problem = caught.value.problem
    assert (problem.code, problem.sentence) == ("F210", "saturation ended before its first round: the child process ended with code 3")
    assert problem.help == MORE


def test_a_child_that_is_killed_after_two_rounds_leaves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first child is killed in its third round; a second one repeats the two that were whole."""
    mark = tmp_path / "first"
    stop = '{"reason":"saturated","detail":""}'
    rounds = "\n".join(f"""echo '{{"rounds":{n},"stop":{stop}}}'""" for n in range(3))
    first = f"if [ ! -e {mark} ]; then touch {mark}; cat >/dev/null; {rounds}\nkill -9 $$; fi"
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, f'{first}\nexec {sys.executable} "$@"'))
    p = sum_of(6)
    s = saturate(p, EXPLOSIVE, [])
    assert (s.reason, s.detail, s.rounds) == ("crashed", "the child process ended with code -9", 2)
    monkeypatch.undo()
    assert s.graph == saturate(p, EXPLOSIVE, [], replace(DEFAULT, rounds=2)).graph
    usable(p, s)


def test_a_half_written_answer_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """cat >/dev/null; printf '{"rounds":0,"stop":{}}\\n{"rounds":1,"st'; exit 1"""
    monkeypatch.setattr(sys, "executable", fake_python(tmp_path, text))
    with pytest.raises(BudgetError) as caught:
        saturate(matrix(), [], [])
    assert caught.value.problem.sentence == "saturation ended in its mapping phase: the child process ended with code 1"


def linear_program() -> Program:
    """Two linear layers written with a matrix product and an addition."""
    made = Builder("net")
    x = made.input("x", TensorType((2, 8)))
    for n in range(2):
        made.sources += [Source(f"mul{n}", "MatMul"), Source(f"add{n}", "Add"), Source(f"relu{n}", "Relu")]
        (x,) = made.apply("matmul", [x, made.constant(constant(8, 8, seed=n))], origins=(3 * n,))
        (x,) = made.apply("add", [x, made.constant(constant(8, seed=n + 2))], origins=(3 * n + 1,))
        (x,) = made.apply("relu", [x], origins=(3 * n + 2,))
    return made.finish([x])


SNAPSHOT = """
import hashlib, json
from rewrite_compiler.egraph.saturation.saturate import Unsaturated, saturate
from rewrite_compiler.egraph.graph.graph import to_json
from rewrite_compiler.rewrite.ruleset import shipped_rules
from test_saturate import linear_program
graph = saturate(linear_program(), shipped_rules(), []).graph
print(hashlib.sha256(json.dumps(to_json(graph)).encode()).hexdigest(), graph.e_nodes)
"""


def test_the_e_graph_does_not_depend_on_hash_seeds() -> None:
    here = str(Path(__file__).parent)
    seen = {
        subprocess.run(
            [sys.executable, "-c", SNAPSHOT], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": here}, capture_output=True,
            text=True, check=True,
        ).stdout
        for seed in ("0", "4242")
    }  # fmt: skip
    assert len(seen) == 1
    assert int(seen.pop().split()[1]) > 20


def test_births_name_the_rule_and_origins_the_source_nodes() -> None:
    from rewrite_compiler.rewrite.ruleset import shipped_rules

    rules: tuple[Rule, ...] = shipped_rules()
    p = linear_program()
    graph = saturate(p, rules, []).graph
    biased = {n.origins: rules[n.birth].name for c in graph.classes.values() for n in c.nodes if n.op == "o_bias_add"}
    assert biased[frozenset({1})] == biased[frozenset({4})] == "add-as-bias-1"
    dense = {n.origins: rules[n.birth].name for c in graph.classes.values() for n in c.nodes if n.op == "o_dense"}
    assert dense == {frozenset({0}): "matmul-as-dense", frozenset({3}): "matmul-as-dense"}
