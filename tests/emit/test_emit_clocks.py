"""Instructions of several clocks in generated Verilog: a port to memory outside, tokens, and the proof of every clock."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import icarus
import numpy as np
import pytest
from test_emit_verilog import compared
from vectors import arrays, traces

from rewrite_compiler.emit.rtl.emit import verilog_device
from rewrite_compiler.emit.rtl.readback_check import check_verilog
from rewrite_compiler.errors import InputError
from rewrite_compiler.ila import Bits, Ila, Match, Queue, assemble, ila
from rewrite_compiler.lang import array, assign, loop, require, seq, update, when

VTA, IMAGES = traces("vta"), arrays("vta", "images.npz")
WORDS = 16  # of the buffer


@cache
def mover() -> Ila:
    """Return a small accelerator that moves words of two bytes between memory outside and a buffer, in two queues."""
    m = Ila("mover", "Moves words.")
    m.input("data", 8, 4)
    dram, buffer = m.external("dram", 8), m.memory("buffer", (WORDS,), 16)
    m.interrupt = m.register("done", 1)
    fields = {"pop": Bits(2, 2), "push": Bits(3, 3), "first": Bits(4, 7), "rows": Bits(8, 9), "count": Bits(10, 12), "pitch": Bits(13, 15),
              "base": Bits(16, 31)}  # fmt: skip

    def place(f, r, i):  # type: ignore[no-untyped-def]
        return f["base"][()] + 2 * (r * f["pitch"][()] + i)

    def checked(f, step):  # type: ignore[no-untyped-def]
        last = place(f, f["rows"][()] - 1, f["count"][()]) - 1
        inside = require(
            dram.holds(f["base"][()], last), "I103", "bytes {low}…{high} are not there", always=True, low=f["base"][()], high=last
        )
        return when((f["rows"][()] > 0) & (f["count"][()] > 0), seq(inside, step))

    def load(**f):  # type: ignore[no-untyped-def]
        """Load rows of words, one after the other."""

        def word(r, i):  # type: ignore[no-untyped-def]
            at = dram.index(place(f, r, i))
            return (f["first"][()] + r * f["count"][()] + i) % WORDS, dram.leaf[at] + (dram.leaf[at + 1] << 8)

        return checked(f, update(buffer, (f["rows"][()], f["count"][()]), word))

    def store(**f):  # type: ignore[no-untyped-def]
        """Store them."""

        def byte(r, i, n):  # type: ignore[no-untyped-def]
            value = buffer[(f["first"][()] + r * f["count"][()] + i) % WORDS]
            return dram.index(place(f, r, i) + n), (value >> 8 * n) % 256

        return checked(f, update(dram.leaf, (f["rows"][()], f["count"][()], 2), byte))

    def clear(**f):  # type: ignore[no-untyped-def]
        """Clear the buffer."""
        return update(buffer, WORDS, lambda i: (i, 0))

    for number, function in enumerate((load, store, clear)):
        m.instruction(function.__name__, Match(m.word("data", 0, 1) == number, {"data": number}), fields)(function)
    m.queues += [
        Queue("in", frozenset({"load", "clear"}), {"pop": "free"}, {"push": "full"}),
        Queue("out", frozenset({"store"}), {"pop": "full"}, {"push": "free"}),
    ]
    return m


def word(name: str, **fields: int) -> int:
    return int(assemble(mover().instructions[name], **fields)["data"])


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    icarus.needed()
    return icarus.compiled(verilog_device(mover()).files, tmp_path_factory.mktemp("mover"))


# -- run by Icarus


@pytest.mark.parametrize("speed", [(), ("+slow",)])
def test_a_random_stream_leaves_the_memory_of_the_simulator(speed: tuple[str, ...], bench: Path) -> None:
    draw = random.Random(7)
    image = np.array([draw.randrange(256) for _ in range(400)], np.uint8)
    words = []
    for _ in range(60):
        given = {
            "first": draw.randrange(16),
            "rows": draw.randrange(4),
            "count": draw.randrange(5),
            "pitch": draw.randrange(4, 8),
            "base": 1000 + draw.randrange(340),
        }
        words.append(word(draw.choice(("load", "load", "store", "store", "clear")), **given))
    rows, after = icarus.run_words(bench, words, image.tobytes(), 1000, *speed)
    sim = mover().simulator(dram=image, base=1000, reading="oracle")
    sim.run(words)
    assert [row[3:] for row in rows] == [[0, 0]] * len(words)
    assert after == image.tobytes()


def test_a_transfer_outside_of_the_memory_ends_with_fault_and_moves_nothing(bench: Path) -> None:
    image = bytes(range(64))
    rows, after = icarus.run_words(bench, [word("store", rows=1, count=4, base=57), word("store", rows=1, count=4, base=56)], image, 0)
    assert [row[3:] for row in rows] == [[1, 0], [0, 0]]
    assert after[:56] == image[:56]
    assert after[56:] == bytes(8)


def test_a_command_without_its_token_is_not_taken(bench: Path) -> None:
    load, store = word("load", rows=1, count=1, base=2, push=1), word("store", rows=1, count=1, base=0, pop=1)
    image = bytes((9, 9, 3, 4))
    rows, after = icarus.run_words(bench, [store, load, store, store], image, 0)
    assert [row[4] for row in rows] == [1, 0, 0, 1]
    assert after == bytes((3, 4, 3, 4))


def test_zero_padding_of_flexasr_in_icarus(tmp_path: Path) -> None:
    """The one engine of FlexASR without tables, on a buffer that holds something."""
    icarus.needed()
    m = ila("flexasr")
    config = assemble(m.instructions["config_gb_zero_padding"], is_valid=1, num_vector_1=2, num_timestep_1=1, num_timestep_2=3)
    sizes = assemble(m.instructions["config_gb_core_mem_mngr_large"], num_vector_0=2)
    stored = [assemble(m.instructions["gb_core_store_large"], index=n, vector=(1 << 128) - 1 - n) for n in range(0, 128, 16)]
    loads = [assemble(m.instructions["gb_core_load_large"], index=n) for n in range(0, 128, 16)]
    assert compared(m, [sizes, config, *stored, assemble(m.instructions["gb_zero_padding_start"]), *loads], tmp_path) == len(loads)


@pytest.mark.parametrize("name", ["alu_shr_imm_m1", "gemm_1x16x16", "load_acc_pad_p2013", "store_trunc_strided"])
def test_golden_programs_of_vta_in_icarus(name: str, vta_bench: Path) -> None:
    """Loads with padding, micro-ops, products, shifts and stores: the memory that the design left."""
    program = VTA[name]
    words = [int(w, 16) for w in program["instructions_hex"]]
    rows, after = icarus.run_words(vta_bench, words, IMAGES[f"{name}.dram_before"].tobytes(), program["phys_base"])
    assert [row[3:] for row in rows] == [[0, 0]] * len(words)
    assert after == IMAGES[f"{name}.dram_after"].tobytes()


@pytest.fixture(scope="module")
def vta_bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    icarus.needed()
    return icarus.compiled(verilog_device(ila("vta")).files, tmp_path_factory.mktemp("vta"))


# -- proved from the text


def text() -> str:
    return verilog_device(mover()).files["mover_device.v"].decode()


def test_every_clock_is_proved() -> None:
    made = verilog_device(mover())
    found = {j.part: j.verdict.outcome for j in check_verilog(text(), mover())}
    assert made.omitted == {}
    assert made.clock_counts.keys() == {"load", "store"}
    assert set(found.values()) == {"proved"}
    assert len(found) == 4 + 3 + sum(made.clock_counts.values())


FAULTS = (  # what is written, what stands there instead: tokens, the port, counters, conditions, what follows, addresses, words
    ("t_full = ", "t_free = "),
    ("waiting = 2'sd1", "waiting = 2'sd0"),
    ("            waiting = 0;\n            begin", "            begin"),
    ("input [0:0] i_dram_ready", "input [1:0] i_dram_ready"),
    ("dram_write = 2'sd1;\n", "dram_write = 2'sd1;\n                    outside = 2'sd1;\n"),
    ("dram_read = 2'sd1", "dram_read = 2'sd0"),
    ("dram_read = 2'sd0", "dram_read = 2'sd1"),
    ("dram_write = 2'sd1", "dram_write = 2'sd0"),
    ("dram_write = 2'sd0", "dram_write = 2'sd1"),
    ("t1 = i_dram_ready", "t1 = i_dram_found"),
    ("[47:0];", "[15:0];"),
    ("b0 = ", "dram_given = "),
    ("<<< 5'sd8", "<<< 5'sd7"),
    ("n0_2 = 2'sd0", "n0_2 = 2'sd1"),
    ("t5 + 2'sd1", "t5 + 3'sd2"),
    ("fault = 2'sd1 - ", "fault = 2'sd0 - "),
    ("fault = 2'sd1", "dram_write = 2'sd1"),
    ("dram_given = v", "dram_given = -v"),
    ("h_base_16 = ", "h_first_4 = "),
    ("at = 4'sd", "at = 3'sd"),
    ("at = 0;\n            end\n            endcase", "at = 1;\n            end\n            endcase"),
    ("            at = 0;\n", "            at = 1;\n"),
    ("            t_free = 0;\n", ""),
    ("            2: begin : clock_2", "            3: begin : clock_2"),
)


@pytest.mark.parametrize(("written", "planted"), FAULTS)
def test_a_fault_planted_in_a_clock_is_found(written: str, planted: str) -> None:
    assert written in text()
    outcomes = (j.verdict.outcome for j in check_verilog(text().replace(written, planted, 1), mover(), seconds=3.0))
    assert next((o for o in outcomes if o != "proved"), "") == "refuted"


def test_an_instruction_that_changes_where_its_loop_ends_is_left_out() -> None:
    m = Ila("shrinking")
    m.input("data", 8, 4)
    count, buffer = m.register("count", 30), m.memory("buffer", (8,), 8)
    shrink = loop(count[()], lambda k: seq(assign(count, 1), assign(buffer, 1, k % 8)))
    m.instruction("shrink", Match(m.word("data", 0, 1) == 1, {"data": 1}))(lambda: shrink)
    why = (
        "it takes more than 33,554,432 steps; over several clocks: a loop whose body changes where it ends has no form over several clocks"
    )
    assert verilog_device(m).omitted == {"shrink": why}


def test_a_loop_that_cannot_run_within_the_bound_is_not_called_proved() -> None:
    """A command that returns something of small memories takes one clock, so its loop stays; it runs 0, 16, 32 … rounds."""
    m = Ila("steps")
    m.input("data", 8, 4)
    count, buffer = m.register("count", 4), m.memory("buffer", (256,), 1)
    clear = update(buffer, count[()] * 16, lambda i: (i, 0))
    m.instruction("clear", Match(m.word("data", 0, 1) == 1, {"data": 1}))(lambda: (clear, array(lambda j: buffer[j], 1)))
    made = verilog_device(m).files["steps_device.v"].decode()
    for rounds, outcome in ((15, "unknown"), (16, "proved")):
        verdict = {j.part: j.verdict for j in check_verilog(made, m, rounds=rounds)}["clear"]
        assert verdict.outcome == outcome
    assert verdict.reason == ""


def test_another_case_is_refused_with_its_line() -> None:
    wrong = text().replace("case (at)", "case (found)")
    with pytest.raises(InputError) as caught:
        list(check_verilog(wrong, mover(), "mover.v"))
    line = wrong[: wrong.index("case (found)")].count("\n") + 1
    assert (caught.value.problem.sentence, caught.value.problem.place) == ("the module must have case (at) here", f"mover.v:{line}")
