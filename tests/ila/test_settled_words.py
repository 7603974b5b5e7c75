"""Strict streams in machine code, where words run once they access nothing but what is written: they do what the oracle does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Bits, Ila, Stream
from rewrite_compiler.ila.mmio import assemble
from rewrite_compiler.ila.simulation import stream_device, word_stream_loop
from rewrite_compiler.ila.simulation.initialisation_tracking import NEVER
from rewrite_compiler.ila_models import hvx
from rewrite_compiler.lang import assign, seq
from rewrite_compiler.lang.step import require

BYTES, VECTOR = 1 << 12, 128
WRITTEN_REGISTERS = 6  # of the vectors; reads of others are refused
Issued = tuple[str, dict[str, int]]


@pytest.fixture(scope="module")
def model() -> Ila:
    return hvx.build()


@pytest.fixture(autouse=True)
def compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_device, "PATIENCE", 0)
    monkeypatch.setattr(word_stream_loop, "SINGLES", 2)


def program(seed: int, count: int) -> Iterator[Issued]:
    """Registers that hold addresses, vectors that are loaded, then arithmetic, shuffles by a register, loads and stores among them."""
    random = np.random.default_rng(seed)
    for n in range(4):
        yield "transfer_imm", {"rd": n, "imm_low": int(random.integers(8)) * VECTOR // 4}
    for n in range(WRITTEN_REGISTERS):
        yield "vmem_load", {"vd": n, "rt": n % 4}

    def vector() -> int:
        return int(random.integers(WRITTEN_REGISTERS))

    for _ in range(count):
        yield [
            ("vadd_b_b_b", {"vd": vector(), "vu": vector(), "vv": vector()}),
            ("vrmpy_w_b_b_acc", {"vx": vector(), "vu": vector(), "vv": vector()}),
            ("vshuff_r_pair", {"vdd": vector() // 2, "vu": vector(), "vv": vector(), "rt": int(random.integers(4))}),
            ("vasr_h_w_w_r_rnd_sat", {"vd": vector(), "vu": vector(), "vv": vector(), "rt": int(random.integers(4))}),
            ("vsplat_r", {"vd": vector(), "rt": int(random.integers(4))}),
            ("vmem_load", {"vd": vector(), "rt": int(random.integers(4)), "offset_low": int(random.integers(4))}),
            ("vmem_store", {"vs": vector(), "rt": int(random.integers(4)), "offset_low": int(random.integers(4))}),
        ][int(random.integers(7))]  # fmt: skip


def ran(model: Ila, reading: str, issued: list[Issued], image: np.ndarray) -> tuple[dict[str, Any], str, Stream]:
    """Return the states and memory after a program, the refusal or nothing, and the device."""
    memory = image.copy()
    device = Stream(model, dram=memory, reading=reading, strict=True)
    refusal = ""
    try:
        device.run([assemble(model.instructions[name], **operands)["data"] for name, operands in issued])
    except SpecError as e:
        refusal = str(e)
    return {"dram": memory, **{name: device.state(name) for name in ("v", "r", "q")}}, refusal, device


FAULTS: list[tuple[str, list[Issued], str]] = [
    ("none", [], ""),
    ("unwritten", [("vadd_b_b_b", {"vd": 0, "vu": 1, "vv": 9})], "reads vector 9 of v, which nothing has written"),
    ("outside", [("transfer_imm", {"rd": 3, "imm_mid": 31}), ("vmem_store", {"vs": 0, "rt": 3})], "memory has 0"),
]


@pytest.mark.parametrize(("planted", "sentence"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_machine_code_does_what_the_oracle_does(model: Ila, planted: list[Issued], sentence: str) -> None:
    image = np.random.default_rng(5).integers(0, 256, BYTES).astype(np.uint8)
    issued = list(program(1, 300))
    issued[200:200] = planted
    expected, said, _ = ran(model, "oracle", issued, image)
    found, heard, device = ran(model, "native", issued, image)
    assert sentence in said
    assert bool(sentence) == bool(said)
    assert heard == said
    assert device.singles < len(issued) // 3 or sentence  # the others ran in machine code
    for name, x in expected.items() if not sentence else ():
        assert np.array_equal(found[name], x), name


def test_a_word_is_settled_by_the_vectors_that_it_names_alone(model: Ila) -> None:
    """Vectors 1 and 9 are written, none between: exact reads decide where bounds do not."""
    device = Stream(model, dram=np.zeros(BYTES, np.uint8), reading="native", strict=True)
    marks = device.initialisation
    assert marks is not None
    add = model.instructions["vadd_b_b_b"], {"vd": 1, "vu": 1, "vv": 9}
    assert not marks.is_settled(device.memories, *add)
    for vd in (1, 9):
        device.run([assemble(model.instructions["vsplat_r"], vd=vd, rt=0)["data"]])
    assert marks.is_settled(device.memories, *add)
    shuffle = model.instructions["vshuff_r_pair"], {"vdd": 0, "vu": 1, "vv": 9, "rt": 0}  # which of both is read depends on a register
    assert not marks.is_settled(device.memories, *shuffle)
    (memory,) = (m for m in marks.marks if m.name == "v")
    marks.marks[memory][9] = NEVER
    assert not marks.is_settled(device.memories, *add)


def test_machine_code_has_the_instructions_that_streams_hold(model: Ila) -> None:
    """Of a model with many: those of the first stream, and of words that ran one by one since then."""
    memory = np.zeros(BYTES, np.uint8)
    device = Stream(model, dram=memory, reading="native")

    def run(name: str, **operands: int) -> int:
        before = device.singles
        device.run([assemble(model.instructions[i], **at)["data"] for i, at in [(name, operands), ("vsplat_r", {"vd": 9, "rt": 0})]])
        return device.singles - before

    at = {"vd": 1, "vu": 2, "vv": 3}
    assert run("vadd_b_b_b", **at) == 0
    assert device.loop_names == {"vadd_b_b_b", "vsplat_r"}
    assert [run("vxor", **at), run("vxor", **at)] == [1, 0]
    assert device.loop_names == {"vadd_b_b_b", "vsplat_r", "vxor"}


def test_diagnostics_of_strict_simulation_are_those_of_its_machine_code() -> None:
    """A counter that may not pass three, by a strict diagnostic, beside memory that moves."""
    m = Ila("counter")
    m.input("data", 8, 2)
    count, memory = m.register("count", 8), m.external("dram", 8)
    within = require(count[()] < 3, "I105", "the count is {n}", n=count[()])
    moved = assign(memory.leaf, count[()], 0)
    counts = seq(within, assign(count, (count[()] + 1) % 256), moved)
    m.encoded("count_up", {"code": Bits(0, 7)}, {"code": 1}, lambda _: counts, doc="Count.")
    words = [1] * 8
    sentences = []
    for reading in ("oracle", "native"):
        device = Stream(m, dram=np.zeros(4, np.uint8), reading=reading, strict=True)
        with pytest.raises(SpecError) as refusal:
            device.run(words)
        sentences.append(str(refusal.value))
        assert int(device.state("count")) == 3
        assert bool(device.calls) == (reading == "native")
    assert sentences[0] == sentences[1]
    Stream(m, dram=np.zeros(4, np.uint8), reading="native").run(words)  # says nothing
