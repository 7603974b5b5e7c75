"""Words in memories outside of the device: read, stored and checked, whatever the memory's elements are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import ExternalWords, Ila, assemble, layout
from rewrite_compiler.ila.byte_region import Region
from rewrite_compiler.lang import leaf, seq, update
from rewrite_compiler.lang.binders import scalar_array
from rewrite_compiler.readings.oracle.emit_python import evaluate

WORDS = 8
READINGS = ("oracle", "arrays", "native")


def model(element: int, bits: int, *, signed: bool, is_signed_element: bool = False) -> Ila:
    """A device that copies words from DRAM to a buffer and back, in the other order."""
    m = Ila("copies")
    m.input("data", 8, 4)
    words = m.external("dram", element, signed=is_signed_element).words(bits, signed=signed)
    buffer = m.memory("buffer", (WORDS,), bits, signed=signed)
    fields = layout(0, opcode=2, first=6, count=4)

    def checked(f: Any) -> Any:
        return words.require(f.first, f.first + f.count - 1, "elements {first}…{last} of {start}…{end}, {size} in all")

    def load(f: Any) -> Any:
        return seq(checked(f), update(buffer, f.count, lambda k: (k % WORDS, words.word(f.first + k))))

    def store(f: Any) -> Any:
        return seq(checked(f), words.store(f.count, lambda k: (f.first + f.count - 1 - k, buffer[k % WORDS])))

    m.encoded("load", fields, {"opcode": 1}, load, doc="Load words.")
    m.encoded("store", fields, {"opcode": 2}, store, doc="Store words.")
    return m


def issued(m: Ila, *rows: tuple[str, dict[str, int]]) -> list[int]:
    return [assemble(m.instructions[name], **operands)["data"] for name, operands in rows]


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("dtype", ["<i1", "<i2", "<i4", "<u2"])
def test_words_of_bytes_are_little_endian(dtype: str, reading: str) -> None:
    kind = np.dtype(dtype)
    m = model(8, 8 * kind.itemsize, signed=kind.kind == "i")
    given = np.random.default_rng(3).integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, WORDS).astype(kind)
    image = bytearray(given.tobytes() + bytes(WORDS * kind.itemsize))
    m.simulator(dram=image, reading=reading).run(issued(m, ("load", {"count": WORDS}), ("store", {"first": WORDS, "count": WORDS})))
    assert np.array_equal(np.frombuffer(image, kind), [*given, *given[::-1]])


@pytest.mark.parametrize("reading", READINGS)
def test_a_word_that_is_an_element(reading: str) -> None:
    m = model(16, 16, signed=True, is_signed_element=True)
    memory = np.array([*range(-4, 4), *[0] * WORDS], np.int16)
    m.simulator(dram=memory, reading=reading).run(issued(m, ("load", {"count": WORDS}), ("store", {"first": WORDS, "count": WORDS})))
    assert memory.tolist() == [*range(-4, 4), *reversed(range(-4, 4))]


@pytest.mark.parametrize("reading", READINGS)
def test_single_commands_go_on_in_the_memory_that_is_attached_last(reading: str) -> None:
    m = model(16, 16, signed=True, is_signed_element=True)
    first, second = (np.array([*start, *[0] * WORDS], np.int16) for start in (range(-4, 4), range(10, 10 + WORDS)))
    before = first.copy()
    sim = m.simulator(dram=first, reading=reading)
    sim.run(issued(m, ("load", {"count": WORDS})))
    sim.attach("dram", second)
    for command in issued(m, ("load", {"count": WORDS}), ("store", {"first": WORDS, "count": WORDS})):
        sim.run([command])
    assert np.array_equal(first, before)
    assert second.tolist() == [*range(10, 10 + WORDS), *reversed(range(10, 10 + WORDS))]


def test_elements_of_a_word() -> None:
    assert ExternalWords(Ila("small").external("dram", 8), 32, False).elements == 4
    assert Ila("small").external("dram", 8).name == "dram"


def test_words_that_are_not_there_are_named_by_their_elements() -> None:
    m = model(8, 16, signed=False)
    with pytest.raises(SpecError) as refusal:
        m.simulator(dram=bytearray(12), base=4).run(issued(m, ("load", {"first": 5, "count": 4})))
    assert refusal.value.problem.sentence == "elements 10…17 of 4…15, 12 in all"


@pytest.mark.parametrize(("first", "last", "holds"), [(4, 15, 1), (3, 15, 0), (4, 16, 0), (0, 3, 0), (15, 15, 1), (16, 16, 0), (3, 3, 0)])
def test_elements_exist_from_the_base_on(first: int, last: int, holds: int) -> None:
    memory = Ila("small").external("dram", 8)
    assert evaluate(scalar_array(memory.holds(first, last)), {memory.base: [4], memory.size: [12]}, 1) == [holds]


def test_regions_are_apart_where_each_ends_before_the_other_begins() -> None:
    memory = leaf("bytes", (64,), (0, 255))
    regions = [Region(memory, base, (length,), size) for base, length, size in ((0, 6, 2), (10, 4, 1), (12, 1, 4), (16, 8, 1), (14, 0, 1))]
    for a, b in itertools.product(regions, repeat=2):
        begins, ends = (int(x.base) for x in (a, b)), (int(x.base) + int(x.bytes.value or 0) for x in (a, b))  # type: ignore[arg-type]
        (a_first, b_first), (a_end, b_end) = begins, ends
        assert a.is_apart(b).value == (a_end <= b_first or b_end <= a_first)
