"""Fields as specifications print them, and instructions whose functions say what a read returns."""

from __future__ import annotations

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Bits, Fields, Ila, bit_fields, joined, lanes_of, mmio
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.lang import assign, lift, update


def test_fields_are_read_from_the_row_of_a_specification() -> None:
    assert bit_fields("") == {}
    assert bit_fields("0:3 rows, 8:8 relu") == bit_fields("3:0 rows, 8 relu") == {"rows": Bits(0, 3), "relu": Bits(8, 8)}
    assert bit_fields("31:20 rows, 19 relu,15:0 signed bias") == {
        "rows": Bits(20, 31),
        "relu": Bits(19, 19),
        "bias": Bits(0, 15, signed=True),
    }


BAD = {
    "31:20": 'a field must be written as in "19 relu" or "15:0 signed bias", not "31:20"',
    "rows 31:20": 'a field must be written as in "19 relu" or "15:0 signed bias", not "rows 31:20"',
    "3:0 rows, 7:4 rows": "field rows is given twice",
}


@pytest.mark.parametrize("text", BAD)
def test_a_row_that_says_no_fields_is_refused(text: str) -> None:
    with pytest.raises(SpecError) as refusal:
        bit_fields(text)
    assert (refusal.value.problem.code, refusal.value.problem.sentence) == ("I102", BAD[text])


def test_numbers_of_fields_have_their_names() -> None:
    f = Fields(count=lift(3), items=lift(4))
    assert (f.count is f["count"], f["items"].value) == (True, 4)
    with pytest.raises(AttributeError, match='there is no field "size"'):
        f.size  # noqa: B018


def test_words_are_joined_from_the_lowest_part_on() -> None:
    assert joined(lambda n: lift(n + 1), 3).value == 0x030201
    assert joined(lambda n: lift(n + 1), 3, 4).value == 0x321


@pytest.mark.parametrize("reading", ["oracle", "arrays", "native"])
def test_an_instruction_changes_something_or_returns_something_or_both(reading: str) -> None:
    m = Ila("small")
    bus = mmio(m)
    rows, reads = m.memory("rows", (4, 16), 8), m.register("reads", 8)
    m.instruction("store", bus.write_range(0x100, 4), lanes="row")(lambda index, row: update(rows, 16, lambda j: ((index[()], j), row[j])))
    m.instruction("load", bus.read_range(0x100, 4))(lambda index: lanes_of(rows, index[()]))
    m.instruction("count", bus.read_range(0x200, 4))(lambda index: (assign(reads, (m.r.reads + 1) % 256), lanes_of(rows, index[()])))
    sim, row = Simulator(m, reading=reading), int.from_bytes(bytes(range(16)), "little")
    sim.write(0x120, row)
    assert [sim.read(0x120), sim.read(0x220), sim.read(0x230), int(sim.state("reads"))] == [row, row, 0, 2]
    assert np.array_equal(np.asarray(sim.state("rows"))[2], np.arange(16))
