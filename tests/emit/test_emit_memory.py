"""The memory of generated Verilog, with one read port and one write port, as Icarus simulates it; a fault of a port is seen."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import icarus
import pytest
from test_emit_verilog import compared

from rewrite_compiler.emit.rtl import emit
from rewrite_compiler.emit.rtl.design import design
from rewrite_compiler.emit.rtl.emit import memory_text
from rewrite_compiler.ila import Ila, bit_fields, mmio
from rewrite_compiler.lang import array, update, wrap

WORDS, CLOCKS = 13, 200
BYPASS = "write && write_address == read_address ? write_data : words[read_address]"
FAULTS = {  # of a port, and what stands there instead
    "the old value during a write": (BYPASS, "words[read_address]"),
    "the word beside": ("words[write_address] <=", "words[write_address ^ 1] <="),
    "a write that is always on": ("if (write) words", "words"),
    "a start at another value": ("= START", "= START + 1"),
}
BENCH = """
module bench;
    reg clock = 0, write;
    reg [3:0] read_address, write_address;
    reg [7:0] write_data;
    wire [7:0] read_data;
    integer file, taken;
    m_memory #(.BITS(8), .WORDS(13), .ADDRESS_BITS(4), .FILLED(1), .START(7)) dut (.clock(clock), .read_address(read_address),
        .read_data(read_data), .write(write), .write_address(write_address), .write_data(write_data));
    initial begin
        file = $fopen("ports.txt", "r");
        taken = 4;
        while (taken == 4) begin
            taken = $fscanf(file, "%d %d %d %d\\n", read_address, write, write_address, write_data);
            #1 if (taken == 4) $display("%0d", read_data);
            clock = 1;
            #1 clock = 0;
        end
        $finish;
    end
endmodule
"""


def differs(text: str, folder: Path) -> bool:
    """Tell whether a memory module reads otherwise than a list of words that a write changes at once."""
    draw, words, rows, expected = random.Random(5), [7] * WORDS, [], []
    for _ in range(CLOCKS):
        read, write, place, value = draw.randrange(WORDS), draw.randrange(2), draw.randrange(WORDS), draw.randrange(256)
        rows.append(f"{read} {write} {place} {value}\n")
        if write:
            words[place] = value
        expected.append(words[read])
    bench = icarus.compiled({"m.v": text.encode(), "bench.v": BENCH.encode()}, folder)
    (folder / "ports.txt").write_text("".join(rows))
    done = subprocess.run(["vvp", "-n", str(bench)], cwd=folder, capture_output=True, text=True, check=True)
    return [*map(int, done.stdout.split())] != expected


def test_what_is_read_is_what_is_being_written(tmp_path: Path) -> None:
    icarus.needed()
    assert not differs(memory_text("m"), tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_port_is_seen(fault: str, tmp_path: Path) -> None:
    icarus.needed()
    written, planted = FAULTS[fault]
    assert memory_text("m").count(written) == 1
    assert differs(memory_text("m").replace(written, planted), tmp_path)


def sums() -> Ila:
    """Return a design whose updates read the memory that they write."""
    m = Ila("sums")
    bus = mmio(m, address_bits=16, data_bytes=8)
    x, y = m.memory("x", (64,), 8), m.memory("y", (64,), 8)
    m.config("config", bus.write(0), bit_fields("5:0 length"))
    m.instruction("store_x", bus.write_range(0x1000, 8, 8), lanes="vector")(
        lambda index, vector: update(x, 8, lambda j: (8 * index[()] + j, vector[j]))
    )
    length = m.s.length[()]
    m.instruction("add", bus.write(0x10))(
        lambda: update(y, length, lambda i: (i, wrap(y[i] + x[i] + x[(i + 1) % 64] * x[63 - i], 8, False)))
    )
    m.instruction("shift", bus.write(0x18))(lambda: update(x, length, lambda i: (i, x[(i + 1) % 64])))
    m.instruction("load_y", bus.read_range(0x2000, 8, 8))(lambda index: array(lambda j: y[8 * index[()] + j], 8))
    return m


def commands() -> list[dict[str, int]]:
    """Return stores, sums and shifts of some lengths, and loads."""
    draw = random.Random(3)
    rows = [(1, 0x1000 + 8 * n, draw.getrandbits(64)) for n in range(8)]
    for length in (0, 1, 40, 63):
        rows += [(1, 0, length), (1, 0x10, 0), (1, 0x18, 0), *((0, 0x2000 + 8 * n, 0) for n in range(8))]
    return [{"wr": wr, "rd": 1 - wr, "addr": a, "data": d} for wr, a, d in rows]


def test_a_design_on_such_memories_is_the_simulator_and_a_fault_of_an_address_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    icarus.needed()
    assert {*design(sums()).ports} >= {"m_x", "m_y"}
    assert compared(sums(), commands(), tmp_path / "right") == 4 * 8
    for written in ("words[write_address] <=", ": words[read_address]"):
        wrong = emit.MEMORY.replace(written, written.replace("address]", "address ^ 1]"))
        assert wrong != emit.MEMORY
        with monkeypatch.context() as patch:
            patch.setattr(emit, "MEMORY", wrong)
            with pytest.raises(AssertionError, match="load_y"):
                compared(sums(), commands(), tmp_path / "wrong")
