"""check: small models that are wrong in one way each, and the shipped models, which are not."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import rewrite_compiler.ila as ila_package
from rewrite_compiler.errors import AnswerNo, SpecError
from rewrite_compiler.ila import DATA, Bits, Bus, Ila, Instruction, Match, mmio
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila.verification.check import Check, check
from rewrite_compiler.ila.verification.decode_disjointness import find_holes
from rewrite_compiler.lang import NOTHING, Expr, Step, assign, extract, fold, let, loop, reduce_sum, select, seq, update, when
from rewrite_compiler.lang.binders import Leaf, array, static_shape
from rewrite_compiler.lang.step import Update


def model() -> tuple[Ila, Bus]:
    m = Ila("toy", "A model for tests.")
    bus = mmio(m)
    m.register("mode", 2)
    m.register("count", 4)
    m.memory("buffer", (16,), 8)
    return m, bus


def add(m: Ila, name: str, match: Match, step: Step = NOTHING) -> Instruction:
    return m.instruction(name, match)(lambda **_: step)


def sentences(found: Check) -> list[str]:
    return [f"[{p.code}] {p.sentence}" for p in found.problems]


def drive(m: Ila, bus: Bus) -> None:
    """Add an instruction that writes every state."""
    values = [update(s.leaf, static_shape(s.leaf), lambda *i: (i, 1)) for s in m.states.values()]
    add(m, "drive", bus.write(0x80), seq(*values))


def problems_of(step: Callable[[Ila], Step]) -> Check:
    m, bus = model()
    add(m, "run", bus.write(0x10), step(m))
    drive(m, bus)
    return check(m)


def one_problem(step: Callable[[Ila], Step]) -> list[str]:
    return sentences(problems_of(step))


def test_check_is_called_from_the_package() -> None:
    m, bus = model()
    add(m, "run", bus.write(0x10), assign(m.s.count, 1))
    drive(m, bus)
    assert ila_package.check(m).is_good
    assert ila_package.check(m).is_good  # as a module, once it is imported


# -- what no command starts


def test_a_decode_that_is_never_true() -> None:
    m, bus = model()
    add(m, "run", bus.write(0x10, (m.s.mode[()] == 1) & (m.s.count[()] * 2 == 7)))
    drive(m, bus)
    m.instruction("change", bus.write(0x90), {"x": Bits(0, 1), "y": Bits(2, 5)})(
        lambda x, y: seq(assign(m.s.mode, x[()]), assign(m.s.count, y[()]))
    )
    (found,) = check(m).problems
    assert found.sentence == ("run decodes no command: wr and not(rd) and addr == 16 and mode == 1 and count * 2 == 7 is never true")
    assert (found.code, found.help) == ("I101", "correct the condition, or leave the instruction out")


def test_a_register_compared_with_what_it_cannot_hold() -> None:
    m, bus = model()
    add(m, "run", bus.write(0x10, m.s.mode[()] == 5))
    drive(m, bus)
    assert sentences(check(m)) == ["[I101] run decodes no command: a condition compares what can never be equal"]


def test_a_decode_that_no_reachable_state_makes_true() -> None:
    """`mode` is 0 after reset, and 1 after the only instruction that writes it."""
    m, bus = model()
    add(m, "run", bus.write(0x10, m.s.mode[()] >= 2))
    drive(m, bus)
    assert sentences(check(m)) == ["[I101] run decodes no command in any state that can be reached: mode is only ever 0…1"]
    m.instruction("change", bus.write(0x90), {"x": Bits(0, 1)})(lambda x: assign(m.s.mode, x[()]))
    assert check(m).is_good


def test_a_decode_of_one_unit_of_several() -> None:
    m, bus = model()
    drive(m, bus)
    ready = m.register("ready", 1, shape=(4,))
    add(m, "run", bus.write(0x10, ready[2] == 1))
    add(m, "set", bus.write(0x20), seq(assign(ready, 1, 3), assign(ready, 1, 0)))
    assert sentences(check(m)) == ["[I102] run: ready[2] is read, but the instructions of toy write only ready[0], ready[3]"]


# -- elements that nothing writes


READ: list[tuple[Callable[[Ila], Expr | int], int | None]] = [
    (lambda m: 5, 5),
    (lambda m: m.s.mode[()] + 2, 4),
    (lambda m: m.s.count[()] % 8, 4),
    (lambda m: m.s.mode[()], None),
]


@pytest.mark.parametrize(("index", "missing"), READ)
def test_registers_of_which_some_elements_are_written(index: Callable[[Ila], Expr | int], missing: int | None) -> None:
    m, bus = model()
    table = m.register("table", 4, shape=(8,))
    m.instruction("set", bus.write_range(0x100, 4))(lambda index: assign(table, 1, index[()]))
    add(m, "run", bus.write(0x10), assign(m.s.count, table[index(m)]))
    for name in ("mode", "count", "buffer"):
        s = m.states[name]
        m.instruction(f"drive_{name}", bus.write(0x80 + len(name)))(lambda s=s: assign(s.leaf, 1, *(0 for _ in s.leaf.shape)))
    wanted = [] if missing is None else [f"[I102] run: table[{missing}] is read, but the instructions of toy write only table[0…3]"]
    assert sentences(check(m)) == wanted


def test_memories_are_written_at_run_time() -> None:
    """What of a memory has contents strict simulation knows; that a read finds none in any program is said here."""
    for first, wanted in ((0, []), (8, ["[I102] run: buffer[8] is read, but the instructions of toy write only buffer[0…7]"])):
        m, bus = model()
        m.instruction("store", bus.write_range(0x100, 8))(lambda index, m=m: assign(m.s.buffer, 1, index[()]))
        read = m.s.buffer[first + m.s.count[()] % 8]
        m.instruction("run", bus.write(0x10))(lambda m=m, read=read: seq(assign(m.s.buffer, read, 0), assign(m.s.mode, 1)))
        add(m, "set", bus.write(0x20), assign(m.s.count, 3))
        assert sentences(check(m)) == wanted


# -- indices that a condition around them proves inside


def guarded(m: Ila, condition: Expr, index: Expr) -> Step:
    return when(condition, assign(m.s.buffer, 1, index))


GUARDED: dict[str, Callable[[Ila], Step]] = {
    "a sum": lambda m: guarded(m, m.s.count[()] + m.s.mode[()] < 16, m.s.count[()] + m.s.mode[()]),
    "another form of it": lambda m: guarded(m, m.s.count[()] < 13, m.s.mode[()] + m.s.count[()]),
    "below": lambda m: guarded(m, m.s.count[()] >= 1, m.s.count[()] - 1),
    "the other branch": lambda m: when(m.s.count[()] == 0, NOTHING, assign(m.s.buffer, 1, m.s.count[()] - 1)),
    "a loop's variable": lambda m: loop(20, lambda k: guarded(m, k < m.s.count[()] + 1, k)),
    "two conditions": lambda m: when(m.s.mode[()] == 3, guarded(m, m.s.count[()] > 3, m.s.count[()] - m.s.mode[()])),
    "a read": lambda m: when(m.s.count[()] > 0, assign(m.s.buffer, m.s.buffer[m.s.count[()] - 1] % 4, 2)),
}
NOT_GUARDED: dict[str, tuple[Callable[[Ila], Step], str]] = {
    "one too many": (lambda m: guarded(m, m.s.count[()] + m.s.mode[()] <= 16, m.s.count[()] + m.s.mode[()]), "0…18"),
    "written behind the condition": (
        lambda m: when(m.s.count[()] > 0, seq(assign(m.s.count, 0), assign(m.s.buffer, 1, m.s.count[()] - 1))),
        "-1…14",
    ),
    "behind the branch": (
        lambda m: seq(when(m.s.count[()] > 0, NOTHING, assign(m.s.mode, 0)), assign(m.s.buffer, 1, m.s.count[()] - 1)),
        "-1…14",
    ),
    "the wrong branch": (lambda m: when(m.s.count[()] == 0, assign(m.s.buffer, 1, m.s.count[()] - 1)), "-1…14"),
}


@pytest.mark.parametrize("name", GUARDED)
def test_an_index_that_a_condition_proves_inside(name: str) -> None:
    m, bus = model()
    add(m, "run", bus.write(0x10), GUARDED[name](m))
    drive(m, bus)
    fields = {"x": Bits(0, 1), "y": Bits(2, 5)}
    m.instruction("set", bus.write(0x90), fields)(lambda x, y: seq(assign(m.s.mode, x[()]), assign(m.s.count, y[()])))
    assert sentences(check(m)) == []


@pytest.mark.parametrize("name", NOT_GUARDED)
def test_an_index_that_no_condition_proves_inside(name: str) -> None:
    step, takes = NOT_GUARDED[name]
    (found,) = one_problem(step)
    assert found.startswith("[I103] run: axis 0 of buffer has 16 elements")
    assert found.endswith(f"takes values in {takes}")


# -- the shipped models


@cache
def checked(name: str) -> tuple[Ila, Check]:
    m = importlib.import_module(f"rewrite_compiler.ila_models.{name}").build()
    return m, check(m)


@pytest.mark.parametrize("name", ["flexasr", "hlscnn", "vta"])
def test_shipped_models_are_good(name: str) -> None:
    _, found = checked(name)
    assert sentences(found) == []
    assert found.decodes_disjoint
    assert found.is_good
    assert found.holes
    assert not found.holes_unknown
    found.refuse()


@pytest.mark.parametrize("options", [{"behaviour": "published_ila"}, {"sigmoid": "3.4"}])
def test_flexasr_in_its_other_forms(options: dict[str, str]) -> None:
    assert sentences(check(importlib.import_module("rewrite_compiler.ila_models.flexasr").build(**options))) == []


def test_vta_copies_micro_ops_from_outside() -> None:
    """What is control because the plan makes it so is said, not assumed."""
    _, found = checked("vta")
    assert found.regions == (
        "load_uop copies dram into the control state uop: the region that it reads must be constant",
        "load_uop copies dram_uop into the control state uop: the region that it reads must be constant",
    )


def test_holes_of_flexasr_are_commands_without_effect() -> None:
    """Every hole is decoded by nothing at both of its ends, and every other end of a range by something."""
    m, found = checked("flexasr")
    sim = Simulator(m)
    for hole in found.holes:
        ranges = dict(hole.ranges)
        assert hole.is_complete
        for address in ranges["addr"]:
            lanes = {"wr": [ranges["wr"][0]], "rd": [ranges["rd"][0]], "addr": [address], "data": [0] * 16}
            assert sim._decoder.find(lanes) is None
            outside = {**lanes, "addr": [address + 1 if address == ranges["addr"][1] else address - 1]}
            if 0 <= outside["addr"][0] < 1 << 32:
                assert sim._decoder.find(outside) is not None, hole


# -- decodes


def test_equal_addresses_overlap() -> None:
    m, bus = model()
    add(m, "first", bus.write(0x10))
    add(m, "second", bus.write(0x10))
    found = check(m)
    assert sentences(found) == ["[I100] first and second of toy both decode addr=0x10, rd=0x0, wr=0x1"]
    assert not found.decodes_disjoint
    with pytest.raises(AnswerNo, match=r"first and second of toy both decode addr=0x10, rd=0x0, wr=0x1"):
        found.refuse()


def test_a_range_that_reaches_into_another_one() -> None:
    m, bus = model()
    add(m, "low", bus.write_range(0x100, 17))
    add(m, "high", bus.write_range(0x200, 4))
    (overlap,) = check(m).overlaps
    assert (overlap.first, overlap.second) == ("low", "high")
    assert overlap.witness["addr"] >> 4 == 0x20
    m, bus = model()
    add(m, "low", bus.write_range(0x100, 16))
    add(m, "high", bus.write_range(0x200, 4))
    assert check(m).overlaps == ()


def test_reads_and_writes_of_one_address_are_two_commands() -> None:
    m, bus = model()
    add(m, "write", bus.write(0x10))
    add(m, "read", bus.read(0x10))
    assert check(m).overlaps == ()


def test_conditions_that_no_interval_tells_apart() -> None:
    """Even and odd addresses: the solver decides."""
    m, bus = model()
    parity = m.inputs["addr"][()] % 2
    add(m, "even", bus.write_range(0x100, 4, 16), NOTHING)
    m.instructions["even"] = replace(m.instructions["even"], decode=m.instructions["even"].decode & (parity == 0))
    add(m, "odd", Match(bus.write_range(0x100, 4).condition & (parity == 1), {}))
    assert check(m).overlaps == ()
    add(m, "both", Match(bus.write_range(0x120, 1).condition & (m.inputs["addr"][()] % 3 == 0), {}))
    found = check(m)
    assert {(o.first, o.second) for o in found.overlaps} == {("even", "both"), ("odd", "both")}
    assert all(o.witness["addr"] % 3 == 0 and o.witness["addr"] >> 4 == 0x12 for o in found.overlaps)


def test_a_register_may_choose_the_instruction() -> None:
    m, bus = model()
    for n in range(3):
        add(m, f"mode{n}", bus.write(0x10, m.s.mode[()] == n))
    assert check(m).overlaps == ()
    add(m, "early", bus.write(0x10, m.s.mode[()] < 2))
    assert [o.witness["mode"] for o in check(m).overlaps] == [0, 1]


def test_opcode_fields() -> None:
    m = Ila("words")
    m.input("word", 8, 4)
    for n in range(3):
        m.instruction(f"op{n}", Match(m.word("word", 0, 2) == n, {}))(lambda: NOTHING)
    found = check(m)
    assert found.overlaps == ()
    assert [str(h) for h in found.holes] == ["word[0:3] 3…7"]
    m.instruction("wide", Match(m.word("word", 0, 3) == 1, {}))(lambda: NOTHING)
    assert [(o.first, o.second) for o in check(m).overlaps] == [("op1", "wide")]


def test_holes_are_address_ranges() -> None:
    m, bus = model()
    add(m, "store", bus.write_range(0x100, 4))
    add(m, "load", bus.read_range(0x100, 4))
    add(m, "start", bus.write(0x200))
    assert [str(h) for h in check(m).holes] == [
        "addr 0…255, rd 0, wr 1",
        "addr 0…255, rd 1, wr 0",
        "addr 320…511, rd 0, wr 1",
        "addr 320…0xffffffff, rd 1, wr 0",
        "addr 513…0xffffffff, rd 0, wr 1",
    ]


def test_a_hole_behind_a_condition() -> None:
    m, bus = model()
    everywhere, address = bus.write_range(0, 1 << 28).condition, m.inputs["addr"][()]
    add(m, "even", Match(everywhere & (address % 2 == 0), {}))
    add(m, "read", bus.read_range(0, 1 << 28))
    assert [str(h) for h in find_holes(m, 5)] == ["addr % 2 1, rd 0, wr 1"]
    add(m, "odd", Match(everywhere & (address % 2 != 0), {}))
    assert find_holes(m, 5) == []


def test_a_hole_behind_a_condition_that_is_no_range_is_named_as_part_of_a_range() -> None:
    m, bus = model()
    add(m, "odd", Match(bus.write_range(0, 1 << 28).condition & (m.inputs["addr"][()] % 2 != 0), {}))
    add(m, "read", bus.read_range(0, 1 << 28))
    assert [str(h) for h in find_holes(m, 5)] == ["some of rd 0, wr 1"]


def test_a_decode_that_no_command_has() -> None:
    m, bus = model()
    add(m, "never", bus.write(0x10, m.inputs["addr"][()] > 0x20))
    assert sentences(check(m)) == ["[I101] never decodes no command: wr and not(rd) and addr == 16 and 32 < addr is never true"]


# -- widths and indices


def test_an_update_wider_than_its_state() -> None:
    def wide(m: Ila) -> Step:
        return Update(m.s.mode, (), (), (), m.inputs["addr"][()])

    assert one_problem(wide) == ["[I102] run: mode holds values in 0…3, not 0…4294967295"]


def test_an_update_of_what_is_not_a_state() -> None:
    def foreign(m: Ila) -> Step:
        return assign(Leaf((), (0, 3), False, "elsewhere"), 1)

    assert one_problem(foreign) == ["[I102] run: elsewhere is written but is not a state of toy"]


def test_a_result_wider_than_a_lane() -> None:
    m, bus = model()
    m.register("wide", 9)
    m.readback("read", bus.read(0x10), lambda j: m.s.wide[()] + 0 * j)
    drive(m, bus)
    assert sentences(check(m)) == ["[I102] read: a lane of what a read returns holds values in 0…255, not 0…511"]


def test_an_operand_wider_than_its_field() -> None:
    m, bus = model()
    m.instruction("run", bus.write(0x10), {"n": Bits(0, 3)})(lambda n: assign(m.s.count, n[()]))
    run = m.instructions["run"]
    m.instructions["run"] = replace(run, operands={"n": replace(run.operands["n"], term=m.word("data", 0, 7))})
    assert sentences(check(m)) == ["[I102] run: operand n holds values in 0…15, not 0…255"]


def test_an_index_that_may_leave_its_memory() -> None:
    assert one_problem(lambda m: assign(m.s.buffer, 1, m.s.count[()] + 1)) == [
        "[I103] run: axis 0 of buffer has 16 elements; the index count[] + 1 takes values in 1…16"
    ]
    assert one_problem(lambda m: assign(m.s.buffer, m.s.buffer[m.s.count[()] * 2], 0)) == [
        "[I103] run: axis 0 of buffer has 16 elements; the index count[] * 2 takes values in 0…30"
    ]
    assert one_problem(lambda m: assign(m.s.buffer, 1, (m.s.count[()] + 1) % 16)) == []


HELP: dict[str, tuple[Callable[[Ila], Step], str]] = {
    "value": (
        lambda m: Update(m.s.mode, (), (), (), m.s.count[()] + 1),
        "it is 16 where count is 15; wrap() or sat() the value to the width of the state",
    ),
    "index": (
        lambda m: assign(m.s.buffer, 1, m.s.count[()] + m.s.mode[()]),
        "it is 18 where count is 15 and mode is 3; reduce the index modulo the size, or clamp it",
    ),
    "variable": (
        lambda m: update(m.s.buffer, 4, lambda i: (m.s.count[()] + i, 1)),
        "it is 18 where count is 15 and i is 3; reduce the index modulo the size, or clamp it",
    ),
    "no place": (  # the interval cannot tell that both are one register
        lambda m: assign(m.s.buffer, 1, m.s.count[()] + m.s.mode[()] - m.s.mode[()]),
        "reduce the index modulo the size, or clamp it",
    ),
}


@pytest.mark.parametrize("name", HELP)
def test_a_witness_says_where(name: str) -> None:
    step, sentence = HELP[name]
    (problem,) = problems_of(step).problems
    assert problem.help == sentence
    assert Path(problem.place.rpartition(":")[0]) == Path(__file__)


def test_what_is_read_must_be_written() -> None:
    m, bus = model()
    m.register("ready", 1)
    m.register("version", 4, reset=3)
    add(m, "first", bus.write(0x10), when(m.s.ready[()], assign(m.s.mode, m.s.version[()] % 4)))
    add(m, "second", bus.write(0x20), assign(m.s.count, m.s.ready[()] + m.s.mode[()]))
    (problem,) = check(m).problems
    assert problem.sentence == "first: ready is read, but no instruction of toy writes it"
    assert problem.place == m.instructions["first"].place
    assert problem.help == "add the instruction that writes it, give it a reset value, or leave it out"


# -- control never reads data


def data(m: Ila) -> Expr:
    return m.s.buffer[0]


BINDINGS: dict[str, tuple[Callable[[Ila], Step], str]] = {
    "address": (
        lambda m: assign(m.s.buffer, 1, data(m) % 16),
        "the address of a write to buffer must be control, but reads the data buffer",
    ),
    "condition": (lambda m: when(data(m) == 1, assign(m.s.mode, 1)), "a condition must be control, but reads the data buffer"),
    "loop": (lambda m: loop(data(m), lambda k: assign(m.s.mode, 1)), "the length of a loop must be control, but reads the data buffer"),
    "extent": (
        lambda m: update(m.s.buffer, data(m) % 16, lambda i: (i % 16, 1)),
        "a length must be control, but reads the data buffer",
    ),
    "sum": (
        lambda m: assign(m.s.buffer, reduce_sum(lambda c: 1, data(m) % 4), 0),
        "the length of a sum must be control, but reads the data buffer",
    ),
    "array": (
        lambda m: assign(m.s.buffer, array(lambda i: 1, (data(m) % 4 + 1,))[0], 0),
        "the length of an array must be control, but reads the data buffer",
    ),
    "fold": (
        lambda m: assign(m.s.buffer, fold(data(m) % 4, 0, lambda k, a: select(a > 0, 1, 0), (0, 1)), 0),
        "the length of a fold must be control, but reads the data buffer",
    ),
    "register": (
        lambda m: assign(m.s.mode, data(m) % 4),
        "the control state mode must not depend on data, but its value reads buffer",
    ),
    "local": (
        lambda m: let(array(lambda i: data(m) + i, (4,)), lambda x: when(x[1] == 3, assign(m.s.mode, 1)), "kept"),
        "a condition must be control, but reads the data kept",
    ),
}


@pytest.mark.parametrize("name", BINDINGS)
def test_control_that_reads_data(name: str) -> None:
    step, sentence = BINDINGS[name]
    assert one_problem(step) == [f"[I109] run: {sentence}"]


def test_a_decode_that_reads_data() -> None:
    m, bus = model()
    add(m, "run", bus.write(0x10, data(m) == 3))
    drive(m, bus)
    assert sentences(check(m)) == ["[I109] run: the decode must be control, but reads the data buffer"]


def test_an_accumulator_of_data_decides_a_length() -> None:
    def step(m: Ila) -> Step:
        value = fold(3, 0, lambda k, a: reduce_sum(lambda c: 1, (a + data(m)) % 4), (0, 255))
        return assign(m.s.buffer, value, 0)

    assert one_problem(step) == ["[I109] run: the length of a sum must be control, but reads the data acc0, buffer"]


def test_data_may_choose_values() -> None:
    def step(m: Ila) -> Step:
        looked_up = m.s.buffer[data(m) % 16]
        return seq(assign(m.s.buffer, select(data(m) > 3, looked_up, 1), 0), assign(m.s.buffer, data(m) >> (data(m) % 8), 1))

    assert one_problem(step) == []


def test_a_memory_of_control_may_be_an_address() -> None:
    m, bus = model()
    m.register("program", 4, shape=(8,))
    add(m, "run", bus.write(0x10), assign(m.s.buffer, 1, m.s.program[3]))
    drive(m, bus)
    assert sentences(check(m)) == []
    m, bus = model()
    m.register("program", 4, shape=(8,), binding=DATA)
    add(m, "run", bus.write(0x10), assign(m.s.buffer, 1, m.s.program[3]))
    drive(m, bus)
    assert sentences(check(m)) == ["[I109] run: the address of a write to buffer must be control, but reads the data program"]


def test_a_divisor_that_may_be_zero_is_told() -> None:
    assert one_problem(lambda m: assign(m.s.count, 15 // m.s.mode[()])) == ["[I102] run: a divisor takes values in 0…3"]
    assert one_problem(lambda m: assign(m.s.count, m.s.count[()] % (m.s.mode[()] + 1))) == []
    (problem,) = problems_of(lambda m: assign(m.s.count, m.s.count[()] % m.s.mode[()])).problems
    assert problem.help == "it is 0 where mode is 0; take maximum() with it"


def test_an_amount_of_a_shift_that_may_be_negative_is_told() -> None:
    sentence = "[I102] run: the amount of a shift takes values in -1…2"
    assert one_problem(lambda m: assign(m.s.count, 1 >> (m.s.mode[()] - 1))) == [sentence]


def test_a_name_that_nothing_drives_is_told() -> None:
    ghost = Leaf((), (0, 3), False, "ghost")
    assert one_problem(lambda m: assign(m.s.count, ghost[()])) == ['[I102] run reads "ghost", which is no state, input or operand of toy']


def test_a_name_that_only_a_decode_or_a_result_reads_is_told() -> None:
    ghost = Leaf((), (0, 1), False, "ghost")
    m, bus = model()
    add(m, "run", Match(bus.write(0x10).condition & (ghost[()] == 1), {}))
    m.readback("read", bus.read(0x10), lambda j: ghost[()] + 0 * j)
    drive(m, bus)
    told = [s for s in sentences(check(m)) if "ghost" in s and "is no state, input or operand" in s]
    assert told == [f'[I102] {name} reads "ghost", which is no state, input or operand of toy' for name in ("run", "read")]


def test_a_case_that_no_command_has_is_no_hole() -> None:
    """The low four bits from 8 on while bit 3 is 0: the terms share a bit."""
    m, bus = model()
    everywhere, address = bus.write_range(0, 1 << 28).condition, m.inputs["addr"][()]
    add(m, "low", Match(everywhere & (extract(address, 0, 4) < 8), {}))
    add(m, "high", Match(everywhere & (extract(address, 3, 1) == 1), {}))
    add(m, "read", bus.read_range(0, 1 << 28))
    assert find_holes(m, 5) == []


@pytest.mark.parametrize("bits", [Bits(120, 135), Bits(5, 2), Bits(-1, 3)])
def test_a_field_outside_of_its_word_is_refused(bits: Bits) -> None:
    m, _ = model()
    with pytest.raises(SpecError) as refusal:
        m.field("x", "data", bits)
    assert refusal.value.problem.sentence == f"bits {bits.low}…{bits.high} of field x must be in 0…127 of data"
    assert "test_check.py" in refusal.value.problem.place
