"""Regions: where a program is cut, which regions are one form, and that nothing is lost against the program as a whole."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.compile.matching.match import extract_match, saturate_program
from rewrite_compiler.compile.matching.match import match as matched
from rewrite_compiler.egraph.graph.graph import PROGRAM, EGraph, ENode
from rewrite_compiler.egraph.regions.join import Representatives, _Joiner, layouts_of
from rewrite_compiler.egraph.regions.recurrent_skeleton import _Steps
from rewrite_compiler.egraph.regions.regions import FormKey, UseDefFacts, form_of, region_of, regions_of
from rewrite_compiler.egraph.saturation.saturate import saturate_regions
from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.program import Builder, Node, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import find_target

HEADS, WIDTH, ROWS = 2, 16, 8


class Network:
    """A program under construction, with drawn weights."""

    def __init__(self) -> None:
        self.b = Builder("network")
        self.random = np.random.default_rng(0)

    def weight(self, *shape: int) -> int:
        return self.b.constant(self.random.normal(0, 0.2, shape).astype(np.float32))

    def apply(self, op: str, *inputs: int, **attributes: object) -> int:
        (v,) = self.b.apply(op, inputs, attributes, origins=(len(self.b.nodes),))  # type: ignore[arg-type]
        return v

    def linear(self, x: int, out: int) -> int:
        product = self.apply("matmul", x, self.weight(self.b.types[x].shape[-1], out))
        return self.apply("add", product, self.weight(out))

    def norm(self, x: int) -> int:
        return self.apply("layer_norm", x, self.weight(WIDTH), self.weight(WIDTH), axis=2, epsilon=1e-5)

    def heads(self, x: int, perm: tuple[int, ...]) -> int:
        return self.apply("transpose", self.apply("reshape", x, shape=(1, ROWS, HEADS, WIDTH // HEADS)), perm=perm)

    def attention(self, x: int, mask: int) -> int:
        q, k, v = (self.heads(self.linear(x, WIDTH), perm) for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
        weights = self.apply("softmax", self.apply("add", self.apply("matmul", q, k), mask), axis=3)
        mixed = self.apply("transpose", self.apply("matmul", weights, v), perm=(0, 2, 1, 3))
        return self.linear(self.apply("reshape", mixed, shape=(1, ROWS, WIDTH)), WIDTH)


def encoder(layers: int) -> Program:
    """Return post-norm transformer layers with a mask that all of them read."""
    n = Network()
    x = n.b.input("x", TensorType((1, ROWS, WIDTH)))
    mask = n.b.input("mask", TensorType((1, 1, 1, ROWS)))
    for _ in range(layers):
        x = n.norm(n.apply("add", x, n.attention(x, mask)))
        x = n.norm(n.apply("add", x, n.linear(n.apply("relu", n.linear(x, 2 * WIDTH)), WIDTH)))
    n.b.sources = []
    return n.b.finish([x])


def residual(blocks: int) -> Program:
    """Return residual blocks of two convolutions with batch normalisation."""
    n = Network()
    x = n.b.input("x", TensorType((1, 4, 6, 6)))
    for _ in range(blocks):
        y = x
        for last in (False, True):
            y = n.apply("conv", y, n.weight(4, 4, 3, 3), strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
            statistics = [n.weight(4), n.weight(4), n.weight(4), n.b.constant(np.full(4, 0.5, np.float32))]
            y = n.apply("batch_norm", y, *statistics, epsilon=1e-5)
            y = y if last else n.apply("relu", y)
        x = n.apply("relu", n.apply("add", x, y))
    return n.b.finish([x])


def forms(p: Program) -> int:
    return len({form_of(p, r) for r in regions_of(p)})


@pytest.mark.parametrize("make", [encoder, residual])
def test_equal_layers_give_the_forms_of_a_few(make: object) -> None:
    build = make  # type: ignore[assignment]
    found = [forms(build(n)) for n in (8, 16, 64)]  # type: ignore[operator]
    assert found == [found[0]] * 3
    assert found[0] <= forms(build(4)) + 1  # type: ignore[operator]
    assert len(regions_of(build(64))) > 6 * found[0]  # type: ignore[operator]


def test_every_node_is_in_one_region_and_reads_what_is_before_it() -> None:
    p = encoder(4)
    regions, known = regions_of(p), {*p.inputs, *p.constants}
    assert Counter(id(n) for r in regions for n in r.nodes) == Counter(id(n) for n in p.nodes)
    for r in regions:
        assert {*r.inputs, *r.constants} <= known
        known.update(v for n in r.nodes for v in n.outputs)
    assert set(p.outputs) <= known


@pytest.mark.parametrize("target", ["flexasr", "hlscnn", "vta"])
@pytest.mark.parametrize("p", [encoder(4), residual(8)], ids=["encoder", "residual"])
def test_regions_lose_nothing_against_the_whole(p: Program, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules, mappings = shipped_rules(), list(find_target(target).mappings.values())
    parts = matched(p, rules, mappings, DEFAULT)
    assert parts.saturation.regions > parts.saturation.forms > 1
    monkeypatch.setattr(importlib.import_module("rewrite_compiler.egraph.saturation.saturate"), "regions_of", lambda p: [None])
    whole = extract_match(p, saturate_program(p, rules, mappings, DEFAULT), rules, mappings, DEFAULT)
    assert whole.saturation.regions == 1
    assert parts.extraction.cost == whole.extraction.cost
    assert (parts.extraction.status, parts.extraction.gap) == ("optimal", 0.0)
    names = {m.name for m in mappings}
    offloads = [Counter((n.op, n.origins) for n in m.program.nodes if n.op in names) for m in (parts, whole)]
    assert offloads[0] == offloads[1]


def one_region(*, op: str = "sub", axis: int = 1, number: float = 0.5, size: int = 4, turned: bool = False, both: bool = False) -> FormKey:
    """Return the form of a small program that is one region."""
    n = Network()
    x, y = (n.b.input(name, TensorType((1, 4, size))) for name in "xy")
    z = n.apply("relu", x)
    moved = n.apply("softmax", n.apply(op, *((y, z) if turned else (z, y))), axis=axis)
    scaled = n.apply("mul", moved, n.b.constant(np.full((1,), number, np.float32)))
    last = n.apply("add", scaled, n.b.constant(np.arange(size, dtype=np.float32)))
    p = n.b.finish([last, moved] if both else [last])
    return form_of(p, region_of(UseDefFacts(p), p.nodes))


DIFFERENT: dict[str, dict[str, Any]] = {
    "an operator": {"op": "add"}, "an attribute": {"axis": 2}, "a constant": {"number": 0.25}, "the sign of a zero": {"number": -0.0},
    "a zero": {"number": 0.0}, "a type": {"size": 5},
    "the order of operands": {"turned": True},
    "what others read": {"both": True},
}  # fmt: skip


def test_regions_that_differ_in_one_thing_are_not_one_form() -> None:
    forms = {name: one_region(**change) for name, change in {"nothing": {}, **DIFFERENT}.items()}
    assert len(set(forms.values())) == len(forms)
    assert one_region() == forms["nothing"]


def test_the_fewest_regions_are_saturated_one_by_one() -> None:
    found = saturate_regions(residual(3), shipped_rules(), [])
    assert (found.regions, found.forms, found.reason) == (2, 2, "saturated")


def test_a_program_of_copied_regions_computes_the_same() -> None:
    p = residual(4)
    extracted = matched(p, shipped_rules(), [], DEFAULT).program
    data = {p.inputs[0]: np.random.default_rng(1).normal(size=(1, 4, 6, 6))}
    expected = run(p, data)[p.outputs[0]]
    found = run(extracted, {extracted.inputs[0]: data[p.inputs[0]]})[extracted.outputs[0]]
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_an_unrolled_recurrence_is_one_region() -> None:
    n = Network()
    x, h = n.b.input("x", TensorType((12, 1, 4))), n.b.input("h", TensorType((1, 4)))
    w, r = n.weight(4, 4), n.weight(4, 4)
    for t in range(12):
        step = n.apply("reshape", n.apply("slice", x, axis=0, start=t, stop=t + 1, step=1), shape=(1, 4))
        h = n.apply("tanh", n.apply("add", n.apply("dense", step, w), n.apply("dense", h, r)))
    assert len(regions_of(n.b.finish([h]))) == 1


def test_regions_under_a_limit_still_give_the_program() -> None:
    p = encoder(4)
    found = saturate_regions(p, shipped_rules(), [], replace(DEFAULT, rounds=1))
    assert (found.reason, found.regions > 1) == ("rounds", True)
    assert set(p.outputs) <= found.graph.values.keys()


def test_nodes_read_the_last_of_a_chain_of_aliases() -> None:
    """Values that steps replace by others, which further steps replace, too."""
    t = TensorType((2, 3))
    steps = _Steps([t] * 5)
    steps.add(Node("relu", (3,), (4,)), frozenset({7}))
    steps.add(Node("add", (0, 4), (1,)), frozenset())
    steps.aliases = {3: 2, 2: 0}
    assert [n.inputs for n in steps.renamed()] == [(0,), (0, 4)]


def test_a_layout_that_is_there_is_one_of_its_own_shape() -> None:
    """A value that a reshape makes of rows has these as rows; one that is made of another shape has none yet."""
    p = encoder(1)
    joiner = _Joiner(p, Representatives(p, (), (), ()), EGraph({}, {}))
    (rows,) = layouts_of(TensorType((2, 6, 8)))

    def made_of(*shape: int) -> tuple[int, int]:
        operand = joiner.new(TensorType(shape), False, [])
        node = ENode(rows.op, (operand,), (rows.inverse,), 0, frozenset())
        return operand, joiner.layout(joiner.new(TensorType((2, 6, 8)), False, [node]), rows, "float32")

    for shape, is_there in (((12, 8), True), ((48, 2), False), ((8, 12), False)):
        operand, layout = made_of(*shape)
        assert joiner.types[layout] == TensorType((12, 8))
        assert (layout == operand) is is_there


def test_a_layout_that_is_there_was_made_by_the_inverse_move() -> None:
    """A transposition of an image with equal extents keeps its shape whichever axes it exchanges."""
    p = encoder(1)
    joiner = _Joiner(p, Representatives(p, (), (), ()), EGraph({}, {}))
    image = TensorType((2, 4, 4, 4))
    last, _ = layouts_of(image)
    for perm, is_there in ((last.inverse, True), (last.forward, False), ((0, 3, 2, 1), False)):
        operand = joiner.new(TensorType(last.shape), False, [])
        layout = joiner.layout(joiner.new(image, False, [ENode(last.op, (operand,), (perm,), 0, frozenset())]), last, "float32")
        assert (layout == operand) is is_there
        assert joiner.nodes[layout] == ({} if is_there else {ENode(last.op, (layout - 1,), (last.forward,), PROGRAM, frozenset()): None})


def test_only_constants_of_a_joined_graph_are_fixed() -> None:
    p = encoder(2)
    graph = saturate_program(p, shipped_rules(), [find_target("vta").mappings["dense"]], DEFAULT).graph
    for v, c in graph.values.items():
        assert graph.classes[c].fixed is (v in p.constants)
