"""The architecture covenant graph: derived from models, completed by declared attributes, refused where the two disagree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import flexmatch
from hypothesis import given, settings
from hypothesis import strategies as st

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import DATA, Bits, Ila, ila
from rewrite_compiler.lang import assign, reduce_sum, update, wrap
from rewrite_compiler.report.graphics.acg import acg_document, acg_dot
from rewrite_compiler.study.checks.architecture import architecture_problems
from rewrite_compiler.target import Clock, Link, Memory, Resources, Unit, find_target
from rewrite_compiler.target.acg import acg_of, complete, disagreements
from rewrite_compiler.target.capability import Capability, Typed, parse_capability
from rewrite_compiler.target.derivation import HOST, derive

SHIPPED = ("vta", "vta:behaviour=hls", "vta:behaviour=ila", "hlscnn", "hlscnn:revision=orig", "hlscnn:revision=uni16", "flexasr")
CLOCK = Clock(1000, "made up")


def edges(structure: Any) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(e.source, e.sink): e.instructions for e in structure.edges}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_graph_is_that_of_the_model(name: str) -> None:
    """L3: every data state and external is one storage of equal capacity; every copying instruction is on one edge of its ends."""
    model = find_target(name).ila()
    s = derive(model)
    data = {x.name: x for x in model.states.values() if x.binding == DATA}
    assert data.keys() <= s.storages.keys() <= {x.name for x in model.states.values()}
    for state in data.values():
        storage = s.storages[state.name]
        assert storage.off_chip == (state.name in model.externals)
        if not storage.off_chip:
            elements = 1
            for n in state.leaf.shape:
                elements *= int(n)  # type: ignore[arg-type]
            assert storage.capacity_bits * storage.instances == elements * state.bits
    assert len(edges(s)) == len(s.edges)
    ends = {*s.storages, HOST}
    assert all({e.source, e.sink} <= ends and e.instructions for e in s.edges)
    assert all({f.result, *f.operands} <= s.storages.keys() and f.instruction in model.instructions for f in s.fragments)
    assert complete(s, find_target(name).resources()).storages == s.storages


def test_edges_and_capabilities_of_vta() -> None:
    s = derive(ila("vta"))
    assert {k: v for k, v in edges(s).items() if "dram" in k} == {
        ("dram", "uop"): ("load_uop",), ("dram", "wgt"): ("load_wgt",), ("dram", "inp"): ("load_inp",),
        ("dram", "acc"): ("load_acc", "load_acc_8bit"), ("acc", "dram"): ("store",),
    }  # fmt: skip
    by_name = {str(f.capability): f for f in s.fragments}
    gemm = by_name["(i32,16)=GEMM((i8,16),(i8,16,16),(i32,16))"]
    assert (gemm.instruction, gemm.operands, gemm.result) == ("gemm", ("inp", "wgt", "acc"), "acc")
    assert {"(i32,16)=ADD((i32,16),(i32,16))", "(i32,16)=SHR((i32,16),(i16))", "(i32,16)=MAX((i32,16),(i16))"} <= by_name.keys()
    element = s.storages["wgt"]
    assert (element.element_bits, element.depth, element.capacity_bits) == (2048, 1024, 1 << 21)


def test_a_sum_of_elements_is_no_copy() -> None:
    """Parts of a word are joined by a sum, too; elements that overlap are not."""
    m = Ila("sums")
    m.input("data", 16)
    x, y = m.memory("x", (8, 2), 8), m.memory("y", (8,), 16)
    layout = {"op": Bits(0, 1), "a": Bits(2, 4)}
    m.encoded("join", layout, {"op": 1}, lambda f: assign(y, x[f.a, 0] + (x[f.a, 1] << 8), f.a), doc="")
    m.encoded("total", layout, {"op": 2}, lambda f: assign(y, x[f.a, 0] + x[f.a, 1], f.a), doc="")
    s = derive(m)
    assert edges(s) == {("x", "y"): ("join",)}
    assert [f.instruction for f in s.fragments] == ["total"]


def toy(lanes: int = 8) -> Ila:
    """Return one scratchpad, an accumulator and a unit of lanes × lanes, filled over the bus."""
    m = Ila("toy")
    m.input("data", 8, 8)
    spad, acc = m.memory("spad", (64, lanes), 8, signed=True), m.memory("acc", (16, lanes), 32, signed=True)
    dram = m.external("dram", 8, signed=True)
    layout = {"op": Bits(0, 1), "to": Bits(4, 9), "at": Bits(16, 31)}

    def load(f: Any) -> Any:
        return update(spad, lanes, lambda j: ((f["to"], j), dram.leaf[dram.index(f["at"] * lanes + j)]))

    def multiply(f: Any) -> Any:
        def cell(n: Any) -> Any:
            total = reduce_sum(lambda k: spad[f["to"], k] * spad[(f["at"] + n) % 64, k], lanes)
            return (f["to"] % 16, n), wrap(acc[f["to"] % 16, n] + total, 32)

        return update(acc, lanes, cell)

    m.encoded("load", layout, {"op": 1}, load, doc="Load a row.")
    m.encoded("multiply", layout, {"op": 2}, multiply, doc="Multiply rows.")
    return m


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_lanes_of_a_model_are_those_of_its_capabilities(lanes: int) -> None:
    s = derive(toy(lanes))
    (f,) = s.fragments
    assert str(f.capability) == f"(i32,{lanes})=GEMM((i8,{lanes}),(i8,{lanes},{lanes}),(i32,{lanes}))"
    assert s.storages["spad"].element_bits == 8 * lanes


def test_paths_and_home() -> None:
    g = acg_of(toy())
    assert g.home(["multiply"]) == "dram"
    assert [[(e.source, e.sink) for e in path] for path in g.paths("dram", "multiply")] == [[("dram", "spad")]]
    vta = acg_of("vta")
    assert [[e.sink for e in path] for path in vta.paths("dram", "gemm")] == [["inp"], ["wgt"]]
    assert vta.home(["gemm", "alu"]) == "dram"
    with pytest.raises(SpecError, match='The graph of vta has no unit "core"\n  help: units: gemm, alu'):
        vta.paths("dram", "core")
    with pytest.raises(SpecError, match='The model must have a storage for "ibuf"'):
        vta.paths("ibuf", "gemm")
    with pytest.raises(SpecError, match="No edges lead from dram_out to inp, wgt of unit gemm"):
        vta.paths("dram_out", "gemm")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"memories": (Memory("spad", 64, 64), Memory("obuf2", 8, 64))}, 'The model must have a storage for "obuf2" that the graph names'),
        ({"memories": (Memory("spad", 64, 128),)}, "spad holds 512 bytes in the model, not 1,024"),
        ({"links": (Link("spad", "host", 8),)}, "The graph has an edge from spad to host, but no instruction copies that way"),
    ],
)
def test_what_the_model_does_not_have_is_refused(change: dict[str, Any], sentence: str) -> None:
    good = Resources(CLOCK, (Memory("spad", 64, 64),), (Unit("multiply", ("dense",), ("int8",), {"n": 8}),), (Link("host", "spad", 8),))
    graph = complete(derive(toy()), good)
    assert next(e.bits for e in graph.edges if e.sink == "spad") == 64
    problems = list(disagreements(derive(toy()), replace(good, **change)))
    assert [p.sentence for p in problems] == [sentence]
    with pytest.raises(SpecError, match=sentence):
        complete(derive(toy()), replace(good, **change))


TYPED = st.builds(Typed, st.sampled_from(["i8", "u8", "i16", "i32", "f32"]), st.lists(st.integers(1, 4096), max_size=3).map(tuple))
CAPABILITIES = st.builds(Capability, st.sampled_from(["GEMM", "ADD", "RELU", "A1_B"]), TYPED, st.lists(TYPED, max_size=4).map(tuple))


@settings(deadline=None, max_examples=40)
@given(CAPABILITIES)
def test_a_capability_is_parsed_as_it_is_printed(c: Capability) -> None:
    assert parse_capability(str(c)) == c
    assert parse_capability(str(c).replace(",", " ,\n ")) == c


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("(i32,64)=gemm((i8))", 'line 1, column 10: expected a name in capitals, not "gemm\\(\\(i8\\)\\)"'),
        ("", "line 1, column 1: expected \\(, not the end"),
        ("(i32,0)=A()", "line 1, column 6: expected a positive number"),
        ("(i32)=\nADD((x8))", "line 2, column 6: expected a type as i8 or f32"),
    ],
)
def test_what_is_no_capability_is_refused_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        parse_capability(text)


def test_a_mnemonic_that_is_decoded_otherwise_is_a_problem() -> None:
    """A decode that reads its own fields makes another instruction of some of their values; fields that overlap are named."""
    m = Ila("fields")
    m.input("data", 8)
    x = m.memory("x", (8,), 8)
    layout = {"op": Bits(0, 1), "a": Bits(2, 4), "b": Bits(5, 7)}
    m.encoded("low", layout, {"op": 1}, lambda f: assign(x, f.b, f.a), extra=m.word("data", 7, 7) == 0, doc="")
    m.encoded("high", layout, {"op": 1}, lambda f: assign(x, f.b, f.a), extra=m.word("data", 7, 7) == 1, doc="")
    assert not list(architecture_problems(m, None))
    m.encoded("plain", layout, {"op": 2}, lambda f: assign(x, f.b, f.a), doc="")
    plain = m.instructions["plain"]
    m.instructions["plain"] = replace(plain, operands={**plain.operands, "b": replace(plain.operands["b"], bits=Bits(4, 6))})
    (problem,) = architecture_problems(m, None)
    assert problem.sentence.startswith("PLAIN assembled with a=")


def test_what_show_acg_prints(tmp_path: Path) -> None:
    document, drawing = tmp_path / "acg.json", tmp_path / "acg.dot"
    answer = flexmatch("show", "acg", "vta", "--json", str(document), "--dot", str(drawing))
    assert answer.code == 0
    assert "edge dram → wgt       64 bits a cycle, by load_wgt" in answer.out
    found = json.loads(document.read_text("utf-8"))
    assert found["schema"] == "flexmatch.acg/1"
    assert {k: v for k, v in found.items() if k != "schema"} == acg_document(acg_of("vta"))
    assert drawing.read_text("utf-8") == acg_dot(acg_of("vta"))
