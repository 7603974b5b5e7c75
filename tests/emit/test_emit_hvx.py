"""The C model of HVX gives what the processor gives: every kind of instruction, with operands through memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from board import Board, compiled, needs_gcc
from hvx_vectors import build, kept, kept_operands

from rewrite_compiler.emit.c.device_model import device_files
from rewrite_compiler.ila import assemble

pytestmark = needs_gcc
VECTOR, OUT = 128, 1024
KEPT = kept()
SOURCES = (0, 1, 2, 4, 5, 10, 11)  # vector registers that are loaded: operands, the predicate's bytes, zeros
STORED = {"V": (8, 8), "P": (8, 9), "W": (2, 2), "A": (4, 5), "Q": (12, 12)}


def command(name: str, **operands: int) -> int:
    return assemble(build().instructions[name], **operands)["data"]


def constant(register: int, value: int) -> int:
    fields = {"low": value & 63, "imm_low": value >> 6 & 0x3FFF, "imm_high": value >> 20}
    return command("transfer_extended", rd=register, **fields)


def commands(instruction: dict[str, str], scalar: int) -> list[int]:
    """Return a program that loads operands from memory, executes the instruction and stores its result."""
    loads = [x for n, v in enumerate(SOURCES) for x in (constant(0, VECTOR * n), command("vmem_load", vd=v, rt=0))]
    predicate = command("vcmp_gt_ub_ub", qd=0, vu=10, vv=11)
    result = [command("vmux_q", vd=12, qv=1, vu=13, vv=11)] if instruction["result"] == "Q" else []
    ones = [constant(0, 0x01010101), command("vsplat_r", vd=13, rt=0)]
    stores = [constant(0, OUT)]
    stores += [command("vmem_store_step", vs=v, rt=0, step=1) for v in STORED[instruction["result"]]]
    return [*loads, predicate, *ones, constant(4, scalar), int(instruction["word"], 16) & ~(3 << 14), *result, *stores]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(device_files(build()), tmp_path_factory.mktemp("hvx"), "-O0")


def test_instructions(library: Path) -> None:
    board, data, memory = Board(library, "hvx"), kept_operands(), np.zeros(1 << 11, np.uint8)
    board.attach("dram", memory)
    for n, case in enumerate(data["case"]):
        instruction = KEPT["instructions"][case]
        memory[:] = 0
        memory[: 5 * VECTOR], memory[5 * VECTOR : 6 * VECTOR] = data["v"][n].reshape(-1), data["q0"][n]
        for word in commands(instruction, int(data["r"][n])):
            assert board.instruction(word) == 0, (instruction["text"], board.message)
        out = memory[OUT : OUT + 2 * VECTOR].reshape(2, VECTOR)
        count = 2 if instruction["result"] in "PA" else 1
        assert np.array_equal(out[:count], data["out"][n][:count]), instruction["text"]
