"""Vectors of HVX: those that are kept with the tests or, where it is there, all of the shared folder."""

from __future__ import annotations

import json
import lzma
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from vectors import GOLDEN, arrays

from rewrite_compiler.ila import Instruction
from rewrite_compiler.ila.simulation.packet_device import PacketDevice
from rewrite_compiler.ila.verification.packet_legality import Member
from rewrite_compiler.ila_models import hvx

build = cache(hvx.build)
OPERAND = re.compile(r"(Vdd|Vxx|Rdd|Rss|Rtt|V[duvxs]|R[dst]|Q[dstv]|#[su]\d+)")
BEFORE = (0, 1, 2, 4, 5)  # vector registers of an operand set
RESULTS = {"V": ("v", 8, 1), "P": ("v", 8, 2), "W": ("v", 2, 1), "A": ("v", 4, 2), "Q": ("q", 1, 1)}


def kept() -> dict[str, Any]:
    """Return the instructions, packets and programs that are kept with the tests."""
    return json.loads(lzma.decompress((GOLDEN / "hvx" / "vectors.json.xz").read_bytes()))


def kept_operands() -> dict[str, np.ndarray]:
    """Return one operand set an instruction."""
    data = dict(arrays("hvx", "instructions.npz"))
    return {**data, "q0": np.unpackbits(data["q0"], axis=1)}


def kept_program(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return memory before and after a program."""
    data = arrays("hvx", "programs.npz")
    after = data[f"{name}.before"].copy()
    after[data[f"{name}.changed"]] = data[f"{name}.values"]
    return data[f"{name}.before"], after


def device(reading: str = "arrays", memory: np.ndarray | None = None, base: int = 0) -> PacketDevice:
    return build().simulator(reading=reading, dram=np.zeros(1 << 13, np.uint8) if memory is None else memory, base=base)


def place(sim: PacketDevice, name: str, values: dict[int, Any]) -> None:
    """Put values into elements of a state, as a test bench does."""
    leaf = sim.ila.states[name].leaf
    for index, value in values.items():
        sim.memories[leaf].data[index] = value
    sim.machine.invalidate(frozenset((leaf,)))


def wrong_results(sim: PacketDevice, instructions: list[dict[str, Any]], data: dict[str, np.ndarray]) -> list[str]:
    """Return the instructions whose results differ."""
    differing = []
    for n, case in enumerate(data["case"]):
        instruction = instructions[case]
        place(sim, "v", dict(zip(BEFORE, data["v"][n], strict=True)))
        place(sim, "q", {0: data["q0"][n]})
        place(sim, "r", {4: data["r"][n]})
        sim.issue_packet([int(instruction["word"], 16)])
        state, first, count = RESULTS[instruction["result"]]
        if not np.array_equal(sim.state(state)[first : first + count], data["out"][n][:count]):
            differing.append(instruction["text"])
    return differing


@cache
def _patterns() -> list[tuple[Instruction, re.Pattern[str], list[str]]]:
    return [(i, *_pattern(i.doc)) for i in build().instructions.values()]


def _pattern(syntax: str) -> tuple[re.Pattern[str], list[str]]:
    """Return what texts of an instruction look like, and the operands in their order."""
    parts = OPERAND.split(syntax.replace("#s11:2", "#s11"))
    text = "".join(_form(x) if n % 2 else re.escape(x) for n, x in enumerate(parts))
    return re.compile(text), parts[1::2]


def _form(operand: str) -> str:
    if operand.startswith("#"):
        return r"#(-?\d+)"
    letter = operand[0].lower()
    return rf"{letter}\d+:(\d+)" if len(operand) == 3 else rf"{letter}(\d+)"


def member(text: str) -> Member:
    """Return an instruction from its text; immediates are taken as 0."""
    for instruction, pattern, names in _patterns():
        match = pattern.fullmatch(text)
        if match:
            numbers = dict(zip(names, map(int, match.groups()), strict=True))
            registers = {k.lower(): n // 2 if len(k) == 3 else n for k, n in numbers.items() if not k.startswith("#")}
            return Member(instruction, dict.fromkeys(instruction.operands, 0) | registers)
    raise AssertionError(f"no instruction is written {text}")


def shared_vectors(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return everything that the shared folder has of instructions and packets."""
    instructions = json.loads((folder / "instructions.json").read_text("utf-8"))["instructions"]
    packets = json.loads((folder / "packets.json").read_text("utf-8"))["packets"]
    return {"instructions": instructions, "packets": packets}, dict(np.load(folder / "instructions.npz"))
