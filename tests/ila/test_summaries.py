"""Summaries of instructions: read from updates, proved against them, replayed; a wrong one is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewrite_compiler.ila import Bits, Ila, ila, mmio
from rewrite_compiler.ila.polynomial import Poly, coefficient, text_of
from rewrite_compiler.ila.summary import Access, Choice, Group, Node, Opaque, Repeat, Summary, Transition, summarise
from rewrite_compiler.ila.summary_check import _of_node, check_summary
from rewrite_compiler.lang import Expr, assign, loop, reduce_sum, require, seq, signed, update, when, wrap

SMALL_VTA = {"log_wgt_buffer": 12, "log_inp_buffer": 8, "log_acc_buffer": 10, "log_uop_buffer": 6}
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("vta", SMALL_VTA), ("vta", {**SMALL_VTA, "behaviour": "hls"}), ("vta", {**SMALL_VTA, "behaviour": "ila"}),
    ("hlscnn", {"spad_bytes": 4096, "soc_bytes": 4096}), ("flexasr", {}),
]  # fmt: skip
OPAQUE = {
    "gb_control_start": "an address of large is no polynomial of loop variables",
    **{f"pe{n}_start": "an address of cluster_table is no polynomial of loop variables" for n in range(4)},
}


@pytest.mark.parametrize(("name", "parameters"), MODELS, ids=[f"{n} {p.get('behaviour', '')}".strip() for n, p in MODELS])
def test_every_instruction_is_summarised_or_says_why_not(name: str, parameters: dict[str, Any]) -> None:
    m = ila(name, **parameters)
    for i in m.instructions:
        s = summarise(m, i)
        if isinstance(s, Opaque):
            assert s.reason.startswith(OPAQUE[i])
        elif not i.startswith(("pe1", "pe2", "pe3")):  # what pe0 does, in another row
            verdict = check_summary(m, s, enough=6)
            assert verdict.holds, i
            assert verdict.equalities == sum(1 for _ in _of_node(s.node))


def summary(m: Ila, name: str) -> Summary:
    s = summarise(m, name)
    assert isinstance(s, Summary)
    return s


def test_a_load_is_what_the_specification_says() -> None:
    """load_wgt writes rows of x_size elements, x_stride apart in DRAM."""
    s = summary(ila("vta", behaviour="hls"), "load_wgt")
    transfer = next(t for _, _, t in s.transitions() if t.reads[0].access.memory == "dram")
    assert [f"{v} < {text_of(p)}" for v, p in transfer.loops] == ["i < y_size", "j < x_size", "k < 16", "l < 16"]
    assert str(transfer.write) == "wgt[i·x_size + j + sram_base mod 1024, k, l]"
    assert str(transfer.reads[0].access) == "dram[256·i·x_stride + 256·dram_base - dram_start + 256·j + 16·k + l]"
    assert coefficient(transfer.reads[0].access.address[0], "i") == {("x_stride",): 256}


def test_gemm_is_three_loops_with_factors() -> None:
    s = summary(ila("vta"), "gemm")
    (_, loops, clearing), (_, _, adding) = s.transitions()
    assert [text_of(p) for _, p in loops][:2] == ["iter_out", "iter_in"]
    assert (clearing.reads, {r.access.memory for r in adding.reads}) == ((), {"acc", "inp", "wgt"})
    weight = next(r for r in adding.reads if r.access.memory == "wgt")
    assert [text_of(p) for _, p in weight.variables] == ["16"]
    assert coefficient(weight.access.address[0], "k4") == {("wgt_factor_out",): 1}


def with_node(node: Node, wrong: Node, position: int) -> tuple[Node, int]:
    """Return a node with its `position`-th transition replaced, and how many there are before the end."""
    if isinstance(node, Transition):
        return (wrong if position == 0 else node), position - 1
    if isinstance(node, Repeat):
        body, position = with_node(node.body, wrong, position)
        return replace(node, body=body), position
    if isinstance(node, Choice):
        then, position = with_node(node.then, wrong, position)
        otherwise, position = with_node(node.otherwise, wrong, position)
        return replace(node, then=then, otherwise=otherwise), position
    assert isinstance(node, Group)
    parts = []
    for part in node.nodes:
        changed, position = with_node(part, wrong, position)
        parts.append(changed)
    return replace(node, nodes=tuple(parts)), position


def bumped(p: Poly) -> Iterator[Poly]:
    """Yield polynomials that are wrong by one coefficient or by one."""
    yield from ({**p, m: c + 1} for m, c in p.items() if c != -1)
    yield {**p, (): p.get((), 0) + 1}


def wrong_transitions(t: Transition) -> Iterator[Transition]:
    for n, (v, p) in enumerate(t.loops):
        yield from (replace(t, loops=(*t.loops[:n], (v, q), *t.loops[n + 1 :])) for q in bumped(p))
    for q in bumped(t.write.address[0]):
        yield replace(t, write=replace(t.write, address=(q, *t.write.address[1:])))
    yield replace(t, write=replace(t.write, moduli=(3, *t.write.moduli[1:])))
    for n, r in enumerate(t.reads):
        for q in bumped(r.access.address[-1]):
            access = Access(r.access.memory, (*r.access.address[:-1], q), r.access.moduli)
            yield replace(t, reads=(*t.reads[:n], replace(r, access=access), *t.reads[n + 1 :]))


@pytest.mark.parametrize("name", ["load_wgt", "store", "gemm", "alu_add"])
def test_a_wrong_polynomial_is_noticed(name: str) -> None:
    m = ila("vta", **{**SMALL_VTA, "behaviour": "hls"})
    s, planted = summary(m, name), 0
    for position, (_, _, t) in enumerate(s.transitions()):
        for wrong in wrong_transitions(t):
            node, _ = with_node(s.node, wrong, position)
            assert check_summary(m, replace(s, node=node), draws=20).failure
            planted += 1
    assert planted > 15


def test_a_wrong_structure_is_noticed() -> None:
    """What no polynomial says is replayed: order, conditions and values."""
    m = ila("vta", **SMALL_VTA)
    s = summary(m, "gemm")

    def swapped(node: Node) -> Node:
        if isinstance(node, Choice):
            return replace(node, then=node.otherwise, otherwise=node.then)
        assert isinstance(node, Group)
        return replace(node, nodes=tuple(map(swapped, node.nodes)))

    assert check_summary(m, replace(s, node=swapped(s.node))).failure
    assert "differs after a replay" in check_summary(m, replace(s, node=Group(()))).failure
    for position, (_, _, t) in enumerate(s.transitions()):
        node, _ = with_node(s.node, replace(t, value=wrap(t.value + 1, 32)), position)
        assert not t.reads or check_summary(m, replace(s, node=with_node(s.node, replace(t, reads=t.reads[1:]), position)[0])).failure
        assert "acc differs after a replay with" in check_summary(m, replace(s, node=node)).failure


FIELDS = {"op": Bits(0, 3), "a": Bits(4, 7), "b": Bits(8, 11), "n": Bits(12, 13), "m": Bits(14, 15), "s": Bits(16, 18)}


@st.composite
def generated(draw: st.DrawFn) -> Ila:
    """Draw a model whose instruction copies, sums or scales rows in loops with strides from fields, registers and numbers."""
    m = Ila("generated")
    m.input("data", 8, 4)
    x, y = (m.memory(n, (64, 4), 8, signed=True) for n in "xy")
    pitch = m.register("pitch", 3)
    strides = [lambda f: f.s, lambda f: pitch[()], lambda f: draw_constant]
    draw_constant = draw(st.integers(0, 5))
    first, second = (draw(st.sampled_from(strides)) for _ in "ab")
    kind = draw(st.sampled_from(["copy", "sum", "ordered", "guarded"]))

    def step(f: Any) -> Any:
        def row(base: Expr, i: Expr, j: Expr) -> Expr:
            return (base + i * first(f) * 2 + j * second(f)) % 64

        if kind == "ordered":
            return loop((f.n, f.m), lambda i, j: update(x, 4, lambda c: ((row(f.a, i, j), c), wrap(x[row(f.b, j, i), c] + 1, 8))))
        if kind == "sum":
            total = reduce_sum(lambda k: y[row(f.b, k, k), 0] * y[k, 1], f.n)
            return seq(require(f.m > 0, "I102", "m must not be 0"), assign(x, wrap(total, 8), f.a, 0))
        copy = update(x, (4, f.n), lambda c, i: ((row(f.a, i, i) * 0 + (f.a * 4 + i) % 64, c), y[row(f.b, i, i), c]))
        return when(f.m > pitch[()], copy, assign(x, 3, f.a, 1)) if kind == "guarded" else copy

    m.encoded("work", FIELDS, {"op": 1}, step, doc="")
    return m


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(generated())
def test_generated_instructions_are_summarised_and_proved(m: Ila) -> None:
    assert check_summary(m, summary(m, "work"), enough=5).holds


def test_control_that_depends_on_data_is_named() -> None:
    m = Ila("odd")
    m.input("data", 8)
    x, go = m.memory("x", (4,), 8), m.register("go", 2)
    m.encoded("by_data", {"op": Bits(0, 1)}, {"op": 1}, lambda f: when(x[0] > 3, assign(x, 0, 1)), doc="")
    m.encoded(
        "by_square", {"op": Bits(0, 1), "a": Bits(2, 3)}, {"op": 2}, lambda f: loop(f.a, lambda k: assign(x, 0, (k ^ go[()]) % 4)), doc=""
    )
    reasons = [s.reason for i in m.instructions if isinstance(s := summarise(m, i), Opaque)]
    assert reasons[0] == "its control depends on the data x"
    assert reasons[1].startswith("an address of x is no polynomial of loop variables")


def test_lanes_of_a_command_are_read_and_replayed() -> None:
    m = Ila("lanes", "One memory that a host fills.")
    bus = mmio(m, address_bits=16, data_bytes=4)
    x = m.memory("x", (8, 4), 8, signed=True)
    store = m.instruction("store", bus.write_range(0x1000, 8, 4), lanes="vector")
    store(lambda index, vector: update(x, 4, lambda j: ((index[()], j), signed(vector[j], 8))))
    lanes = summarise(m, "store")
    assert isinstance(lanes, Summary)
    ((_, _, t),) = lanes.transitions()
    assert [r.access.memory for r in t.reads] == ["vector"]
    verdict = check_summary(m, lanes)
    assert verdict.holds
    assert verdict.replays
    wrong_summaries = [replace(lanes, node=with_node(lanes.node, w, 0)[0]) for w in wrong_transitions(t)]
    assert wrong_summaries
    assert all(check_summary(m, wrong).failure for wrong in wrong_summaries)
