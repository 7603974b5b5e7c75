"""Parts of generated drivers by themselves: tokens between queues, limits of chains, and what selections may not do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.ila.model import Queue
from rewrite_compiler.lang import Expr, wrap
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.lang.expr import lift, node
from rewrite_compiler.sched.driver import pushing, schedule, start, transport, writer
from rewrite_compiler.sched.driver.completion import capacity_limits
from rewrite_compiler.sched.driver.program import Block
from rewrite_compiler.sched.driver.synchronisation import synchronised
from rewrite_compiler.sched.driver.writer import NotEmitted
from rewrite_compiler.sched.instructions.control import reset_state
from rewrite_compiler.sched.instructions.copies import parts_of
from rewrite_compiler.sched.instructions.selection import Nest, Operand, Selection, _Unifier, side_effect
from rewrite_compiler.target import load_target
from rewrite_compiler.target.timing import Region

LOAD = Queue("load", frozenset({"load"}), {"pop_next": "computed"}, {"push_next": "loaded"})
COMPUTE = Queue("compute", frozenset({"compute"}), {"pop_prev": "loaded"}, {"push_prev": "computed"})
DEVICE: Any = SimpleNamespace(queues=(LOAD, COMPUTE))


def at(first: int, stop: int, memory: str = "inp") -> Region:
    return Region(memory, first, stop)


def tokens(*commands: Block) -> list[list[str]]:
    return [sorted(c.columns) for c in synchronised(DEVICE, commands)]


def test_a_command_waits_for_the_last_one_of_another_queue_that_it_depends_on_once() -> None:
    """What the queue has waited for, and what came before that, needs no further token."""
    load = [Block("load", {}, writes=(at(8 * n, 8 * n + 8),)) for n in range(3)]
    compute = [Block("compute", {}, reads=(at(8 * n, 8 * n + 8),)) for n in range(3)]
    assert tokens(load[0], compute[0], compute[0]) == [["push_next"], ["pop_prev"], []]
    assert tokens(load[0], load[1], compute[1], compute[0]) == [[], ["push_next"], ["pop_prev"], []]
    assert tokens(load[0], load[1], compute[0], compute[1]) == [[], ["push_next"], ["pop_prev"], []]
    assert tokens(load[0], compute[0], load[1], compute[1]) == [["push_next"], ["pop_prev"], ["push_next"], ["pop_prev"]]
    assert tokens(load[0], compute[1]) == [[], []]


def test_what_is_read_is_not_written_before_it_was_read() -> None:
    load, compute = Block("load", {}, writes=(at(0, 8),)), Block("compute", {}, reads=(at(7, 9),))
    assert tokens(compute, load) == [["push_prev"], ["pop_next"]]
    elsewhere = Block("compute", {}, reads=(at(7, 9, "wgt"),))
    assert tokens(elsewhere, load) == [[], []]
    assert tokens(Block("compute", {}, writes=(at(7, 9),)), load) == [["push_prev"], ["pop_next"]]
    without_token: Any = SimpleNamespace(queues=(Queue("load", frozenset({"load"}), {}, {}), COMPUTE))
    with pytest.raises(NotEmitted, match="no token leads from queue compute to queue load"):
        synchronised(without_token, [compute, load])


def test_a_chain_needs_what_its_largest_stage_needs() -> None:
    def state(size: int) -> Any:
        return SimpleNamespace(leaf=SimpleNamespace(shape=(size, 4)))

    device: Any = SimpleNamespace(states={"acc": state(64), "inp": state(16)})
    chain: Any = [SimpleNamespace(needs=needs) for needs in ({"acc": 9, "inp": 3}, {"acc": 5, "vector": 2}, {"acc": 7, "inp": 4})]
    assert {x.what: (x.needs, x.most) for x in capacity_limits(device, chain)} == {
        "addresses of acc": (9, 64), "addresses of inp": (4, 16),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "is_linear"), [(lambda i, j: 5 + 2 * i + 3 * j, True), (lambda i, j: 5 + i * j, False), (lambda i, j: i * i, False)]
)
def test_fields_are_linear_functions_of_the_loops_of_a_host(value: Any, is_linear: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first command, one step of each loop, and the last command say so."""

    def selection(ila: Any, match: Any, places: Any, inside: Any, steps: Any, switches: Any) -> Selection:
        return Selection({"first": value(steps.get("i", 0), steps.get("j", 0)), "fixed": 9}, (), ())

    monkeypatch.setattr(schedule, "_selection", selection)
    monkeypatch.setattr(schedule, "free_names", lambda ila, name: {"first"})
    monkeypatch.setattr(schedule, "_ordered", lambda match, places, outside: outside)
    match: Any = SimpleNamespace(computation=SimpleNamespace(instruction="gemm", summary=SimpleNamespace(symbols=None)))
    found = schedule.unified(DEVICE, match, (match,), {}, (("i", 4), ("j", 3)), {})
    if is_linear:
        assert isinstance(found, schedule.Schedule)
        assert [found.at({"i": i, "j": j}) for i, j in ((0, 0), (3, 2))] == [{"first": 5}, {"first": 17}]
    else:
        assert found == schedule.Failure(0, "fields are no linear functions of the host's loops")


def moving(*loops: str, size: int = 1, dictated: bool = True) -> Any:
    """Return a place whose window some loops move."""
    slot = SimpleNamespace(reach=SimpleNamespace(moves_with=lambda v: v in loops))
    base, region = None if dictated else 0, SimpleNamespace(addresses=size)
    return SimpleNamespace(base=base, memory="inp", region=region, slot=slot, moves_from_outside=lambda v: v in loops)


def test_a_tile_of_results_is_done_before_the_next_whatever_is_loaded_again() -> None:
    match: Any = SimpleNamespace(computation=SimpleNamespace(carries=lambda memory: False))
    loops = (("m", 4), ("k", 6), ("n", 5))

    def ordered(result: Any, *operands: Any) -> str:
        return "".join(v for v, _ in schedule._ordered(match, (result, *operands), loops))

    result = moving("m", "n")
    assert ordered(result, moving("m", size=100)) == "mnk"
    assert ordered(result, moving("n", size=100)) == "nmk"
    assert ordered(result, moving("k", size=100))[-1] == "k"
    assert ordered(moving(), moving("k", size=100), moving("k", "n")) == "knm"
    assert ordered(moving(), moving("n", dictated=False, size=100), moving("m", size=2))[0] == "m"


@pytest.mark.parametrize("difference", ["none", "who dictates it", "the base", "the elements"])
def test_a_command_starts_accumulators_where_another_goes_on(difference: str) -> None:
    slot = SimpleNamespace(access=SimpleNamespace(address=("row", "lane")))

    def place(is_dictated: bool = False, base: int = 8, elements: tuple[int, ...] = (0, 1, 2)) -> Any:
        region = SimpleNamespace(
            addresses_from=lambda origin: np.arange(3)[:, None] + np.array(origin), elements=lambda steps: np.array(elements)
        )
        return SimpleNamespace(addressing=SimpleNamespace(is_dictated=is_dictated), base=base, slot=slot, region=region)

    others = {"none": place(), "who dictates it": place(True), "the base": place(base=9), "the elements": place(elements=(0, 2, 1))}
    assert start._is_same_window(place(), others[difference]) is (difference == "none")


def test_settings_that_a_diagnostic_refuses_are_none() -> None:
    count, row = Leaf((), (0, 15), False, "count"), Leaf((16,), (0, 255), False, "row")
    symbols: Any = SimpleNamespace(control=[count, row], atoms={})
    domain = (count[()] < 5, row[count[()]] < 9)  # the second one depends on a memory
    contents = {"symbols": symbols, "transitions": list, "domain": domain, "instruction": SimpleNamespace(name="gemm")}
    summary: Any = type("Summary", (), contents)()
    assert side_effect(summary, (), {"count": 4}) == side_effect(summary, (), {}) == ""
    assert side_effect(summary, (), {"count": 5}) == "a diagnostic of gemm refuses these settings"


def test_operands_that_share_a_field_of_a_table_move_alike() -> None:
    """The table counts rows of three; a second operand that reads the same field would get these rows, too."""
    field = Leaf((), (0, 255), False, "field")[()]
    access: Any = SimpleNamespace(memory="inp", address=[{("at",): 1}])
    for strides, is_alike in (((3,), True), ((4,), False)):
        unifier: Any = object.__new__(_Unifier)
        unifier.nest = Nest((("k", 4),), Operand("acc", 0, (3,)), ())
        unifier.accesses = [(access, Operand("acc", 0, (3,))), (access, Operand("inp", 0, strides))]
        unifier.loops, unifier.table_loop, unifier.table_atoms, unifier.furthest = [("t", {})], "t", {"at"}, (-1, "")
        unifier.symbols = SimpleNamespace(atoms={"at": field}, control=[], variables={})
        unifier.summary, unifier.fixed, unifier.__dict__["room"] = SimpleNamespace(fields={}), {}, 8
        assert unifier.attempt({}, (0, 0)) is None
        assert ("share a field of the table and move in other ways" in unifier.furthest[1]) is not is_alike


@pytest.mark.parametrize(
    ("dictated", "shifted", "base", "pushes"),
    [(True, True, 0, True), (True, False, 1, True), (True, False, 0, False), (False, True, 1, False), (True, True, None, False)],
)
def test_an_instruction_pushes_where_others_move_on_or_a_pointer_does(
    dictated: bool, shifted: bool, base: int | None, pushes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after(ila: Any, instruction: Any, fields: Any, registers: Any) -> Any:
        if base is None:
            raise pushing.NoCopy("the pointer depends on data")
        return {"head": base}

    monkeypatch.setattr(pushing, "after", after)
    addressing = SimpleNamespace(is_dictated=dictated, base=lambda registers: (registers["head"],))
    mover: Any = SimpleNamespace(addressing=addressing, shifted={(1,): (0,)} if shifted else {}, instruction="push")
    writer: Any = SimpleNamespace(ila=DEVICE, registers={"head": 0})
    assert pushing.is_pusher(writer, mover) is pushes


def taken_one_by_one(places: list[list[int]]) -> list[int]:
    """Return the candidates that are taken where each takes all places that it covers."""
    left, taken = dict.fromkeys(range(len(places))), []
    while left:
        taken.append(next(iter(left)))
        for place in places[taken[-1]]:
            left.pop(place, None)
    return taken


def test_commands_cover_addresses_as_they_do_one_after_the_other() -> None:
    random = np.random.default_rng(29)
    for count in (1, 2, 5, 17, 40):
        for _ in range(40):
            others = random.integers(-1, count, (count, int(random.integers(0, 5))))
            places = np.column_stack([np.arange(count), others])
            assert transport._cover(places).tolist() == taken_one_by_one(places.tolist())


def test_an_address_that_comes_twice_stays_where_it_is_first_with_what_comes_last() -> None:
    addresses = np.array([[3, 1], [0, 0], [3, 1], [2, 1], [0, 0]])
    once = transport.Contents(addresses, np.array([5, 6, 7, -1, 8]), np.array([0, 1, 2, 3, 4])).once()
    assert once.addresses.tolist() == [[3, 1], [0, 0], [2, 1]]
    assert (once.elements.tolist(), once.digits.tolist()) == ([7, 8, -1], [2, 4, 3])
    assert once.without_zeros().addresses.tolist() == [[3, 1], [0, 0]]


BYTES = Leaf((4,), (0, 255), False, "bytes")
LOW, HIGH = BYTES[0], BYTES[1]


@pytest.mark.parametrize(
    ("term", "parts"),
    [
        (LOW + (HIGH << 8), [(0, 0, 8, 0), (1, 0, 8, 8)]), (LOW | HIGH << 9, [(0, 0, 8, 0), (1, 0, 8, 9)]), (LOW + (HIGH << 7), None),
        (LOW + LOW, None), (LOW[4:8] + (HIGH[0:4] << 4), [(0, 4, 4, 0), (1, 0, 4, 4)]), (LOW >> 3, [(0, 3, 5, 0)]),
        (LOW % 8, [(0, 0, 3, 0)]), (LOW % 7, None), (LOW // 4, [(0, 2, 6, 0)]), (LOW * 4, [(0, 0, 8, 2)]),
        (LOW * 3, None), (LOW - HIGH, None), (lift(0), []),
        (lift(1), None), (node("min", (LOW, lift(255)), None, (0, 255), False), [(0, 0, 8, 0)]),
        (node("min", (LOW, lift(254)), None, (0, 254), False), None), (node("max", (LOW, lift(0)), None, (0, 255), False), [(0, 0, 8, 0)]),
        (node("max", (LOW, lift(1)), None, (1, 255), False), None), (wrap(LOW + (HIGH << 8), 12, False), [(0, 0, 8, 0), (1, 0, 4, 8)]),
    ],
)  # fmt: skip
def test_a_copy_is_bits_of_words_that_do_not_meet(term: Expr, parts: list[tuple[int, int, int, int]] | None) -> None:
    """Index of the word, its first bit, how many, and the bit where they go."""
    if parts is None:
        with pytest.raises(pushing.NoCopy):
            parts_of(term, {}, {})
    else:
        assert [(p.index[0], p.low, p.width, p.at) for p in parts_of(term, {}, {})] == parts


def test_commands_that_move_the_same_addresses_are_found_once_and_others_anew() -> None:
    ila = load_target(str(Path(__file__).parent / "accelerators" / "toy.py")).ila()
    w, rows = writer.Writer(ila, dict(reset_state(ila))), np.array([[0, lane] for lane in range(8)])
    for row in (0, 1, 0):  # the same bytes of the same operand each time
        transport.store_by_bus(w, "x", "x", transport.Contents(rows + np.array([row, 0]), np.arange(8), np.zeros(8, np.int64)))
    assert [(b.instruction, b.columns["index"].tolist()) for b in w.commands] == [("store_x", [n]) for n in (0, 1, 0)]
    assert len(w.covers) == 2
