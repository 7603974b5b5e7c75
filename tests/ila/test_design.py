"""Parameters that their declarations refuse, words inside of an input, and regions of byte memories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError, UsageError
from rewrite_compiler.ila import (
    Bits,
    Ila,
    Region,
    Word,
    assemble,
    check_design,
    choice,
    demand,
    designed,
    layout,
    mmio,
    one_of,
    pack,
    within,
)
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.lang import Expr, Leaf, assign, fold, lift, loop, seq
from rewrite_compiler.lang.binders import scalar_array
from rewrite_compiler.readings.oracle.emit_python import evaluate


@dataclass(frozen=True)
class Sizes:
    """Parameters of every kind."""

    kind: str = choice("wide", "narrow")
    lanes: int = within(2, 64, 8, step=2)
    base: int | None = within(0, 100, None)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a choice": ({"kind": "tall"}, 'parameter kind of small must be one of wide, narrow, not "tall"'),
    "too small": ({"lanes": 0}, "parameter lanes of small must be an integer in 2…64, not 0"),
    "no multiple": ({"lanes": 7}, "parameter lanes of small must be a multiple of 2, not 7"),
    "no integer": ({"lanes": 4.0}, "parameter lanes of small must be an integer in 2…64, not 4.0"),
    "a truth": ({"base": True}, "parameter base of small must be an integer in 0…100, not True"),
    "nothing": ({"lanes": None}, "parameter lanes of small must be an integer in 2…64, not None"),
    "unknown": ({"lane": 2}, 'small has no parameter "lane"'),
}


@pytest.mark.parametrize("name", BAD)
def test_a_design_that_cannot_be_is_refused(name: str) -> None:
    given, sentence = BAD[name]
    with pytest.raises(UsageError) as refusal:
        check_design("small", designed("small", Sizes(), given, extra_names=("revision",)))
    assert refusal.value.problem.sentence == sentence


def test_designs_that_can_be() -> None:
    assert Sizes() == Sizes("wide", 8, None)
    for given in ({}, {"kind": "narrow"}, {"lanes": 64, "base": 100}, {"base": None}):
        made = designed("small", Sizes(lanes=2), given)
        check_design("small", made)
        assert made == replace(Sizes(lanes=2), **given)
    assert one_of("small", "kind", "wide", ("wide", "narrow")) == "wide"


def test_fields_of_a_word_that_moves_in_the_data() -> None:
    """The word lies where the low bits of the address say; assembled commands have it at its own address."""
    m = Ila("small")
    bus = mmio(m)
    start = m.inputs["addr"][()][0:4] % 15
    word = m.inputs["data"][start] + (m.inputs["data"][start + 1] << 8)
    fields = {"low": Bits(0, 3), "high": Bits(4, 15, signed=True)}
    made = m.config("set", bus.write(0x14), fields, word=Word(word, 32), register="Word 5")
    assert m.states["high"].doc == "Word 5, bits 15:4."
    sim = Simulator(m, reading="oracle")
    for low, high in ((3, -7), (15, 2047), (0, -2048)):
        sim.command(assemble(made, low=low, high=high))
        assert (int(sim.state("low")), int(sim.state("high"))) == (low, high)
    with pytest.raises(SpecError, match="bits 9…16 of field wide must be in 0…15 of the word in data"):
        m.config("other", bus.write(0x14), {"wide": Bits(9, 16)}, word=Word(word, 32))


def test_a_region_is_rows_of_words() -> None:
    def at(base: int, *extents: int | Expr, room: int = 200) -> Region:
        return Region(Leaf((room,), (0, 255), False, "m"), base, extents, 2)

    region = at(40, 3, lift(4), 5)
    addresses = np.arange(3 * 4 * 5).reshape(3, 4, 5) * 2 + 40
    assert all(region.address(*i).value == address for i, address in np.ndenumerate(addresses))
    assert region.bytes.value == 120
    assert [truth(at(40, 3, 4, 5, room=room).is_inside) for room in (159, 160)] == [0, 1]
    assert not truth(at(-2, 4).is_inside)
    assert [truth(region.is_apart(at(n, 10))) for n in (20, 21, 159, 160)] == [1, 0, 0, 1]


def test_words_of_a_region_are_signed_and_wrap() -> None:
    m = Ila("small")
    bus = mmio(m)
    words = Region(m.memory("m", (8,), 8), 2, (4,), 2)  # the last word lies at both ends
    m.instruction("set", bus.write(0x10))(lambda: words.store((4,), lambda i: ((i,), 1000 * i - 1500)))
    m.readback("get", bus.read(0x20), lambda j: words.word(j % 4) + 1500 >> 4, lanes=4)
    sim = Simulator(m, reading="oracle")
    sim.write(0x10, 0)
    assert np.array_equal(np.asarray(sim.state("m"), np.uint8), np.roll(np.arange(-1500, 2000, 1000).astype("<i2").view(np.uint8), 2))
    assert [sim.read(0x20) >> 8 * n & 255 for n in range(4)] == [1000 * n >> 4 & 255 for n in range(4)]


def test_a_device_that_decodes_part_of_the_address_under_a_condition() -> None:
    m = Ila("small")
    whole, mode = mmio(m), m.input("mode", 1)[()]
    bus = replace(whole, address_bits=8, enabled=mode == 1, fixed={"mode": 1})
    made = m.config("set", bus.write(0x14), {"low": Bits(0, 3)})
    rows = m.instruction("store", bus.write_range(0x20, 4, 2, "row"), {"value": Bits(0, 3)})(lambda row, value: assign(m.s.low, value[()]))
    assert assemble(made, low=3) == {"wr": 1, "rd": 0, "addr": 0x14, "mode": 1, "data": 3}
    assert assemble(rows, row=3, value=7)["addr"] == 0x26
    sim = Simulator(m, reading="oracle")
    for address, mode_bit, expected in ((0x714, 0, 0), (0x714, 1, 5), (0x14, 1, 5)):
        sim.command({"wr": 1, "addr": address, "mode": mode_bit, "data": 5})
        assert int(sim.state("low")) == expected
    assert m.r.low is m.r["low"]


def test_instructions_whose_words_are_layouts() -> None:
    fields = layout(0, opcode=3, amount=-5) | layout(64, last=1)
    assert fields == {"opcode": Bits(0, 2), "amount": Bits(3, 7, signed=True), "last": Bits(64, 64)}
    assert pack("a word", fields, {"opcode": 5, "amount": -16, "last": 1}) == 5 | 16 << 3 | 1 << 64
    for key, value, most in (("opcode", 8, "0…7"), ("amount", 16, "-16…15"), ("last", -1, "0…1")):
        with pytest.raises(SpecError, match=f"field {key} of a word must be in {most}, not {value}"):
            pack("a word", fields, {key: value})
    m = Ila("small")
    m.input("data", 8, 16)
    m.register("total", 8, signed=True)
    other = m.word("data", 65, 65) == 0
    add = m.encoded("add", fields, {"opcode": 5}, lambda f: assign(m.s.total, f["amount"]), sets={"last": 1}, extra=other, doc="Set.")
    assert (add.doc, set(add.operands), assemble(add, amount=-3)["data"]) == ("Set.", {"amount"}, 5 | 29 << 3 | 1 << 64)
    sim = Simulator(m, reading="oracle")
    sim.command({"data": 5 | 29 << 3})
    assert int(sim.state("total")) == -3


def test_a_design_that_is_impossible_as_a_whole() -> None:
    demand(True, "all is well")
    with pytest.raises(UsageError, match="a must be below b, not 3 against 2") as refusal:
        demand(False, "a must be below b, not 3 against 2", help="lower a")
    assert (refusal.value.problem.code, refusal.value.problem.help) == ("F203", "lower a")


def test_nests_of_loops_and_folds_run_their_last_index_fastest() -> None:
    digits = fold((2, 3), 0, lambda i, j, acc: (acc * 10 + 3 * i + j) % 10**6, (0, 10**6 - 1))
    assert truth(digits) == 12345
    m = Ila("small")
    bus, total = mmio(m), m.register("total", 20)
    step = loop((2, lift(3)), lambda i, j: assign(total, (total[()] * 10 + 3 * i + j) % 10**6))
    m.instruction("count", bus.write(0x10))(lambda: seq(assign(total, 0), step))
    sim = Simulator(m, reading="oracle")
    sim.write(0x10, 0)
    assert int(sim.state("total")) == 12345


def truth(e: Expr) -> int:
    (found,) = evaluate(scalar_array(e), {}, 1)
    return int(found)


@pytest.mark.parametrize(("low", "high"), [(0, 15), (4, 11), (8, 39), (16, 63), (31, 32)])
def test_bits_of_an_input_whose_lanes_are_no_bytes(low: int, high: int) -> None:
    m, value = Ila("wide"), 0x0123_4567_89AB_CDEF
    m.input("data", 16, 4)
    lanes = [value >> 16 * n & 0xFFFF for n in range(4)]
    found = evaluate(scalar_array(m.word("data", low, high)), {m.inputs["data"]: lanes}, 1)
    assert found == [value >> low & (1 << high - low + 1) - 1]
