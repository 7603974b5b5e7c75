"""HVX against QEMU and LLVM: results of instructions, encodings, which packets are legal, and whole programs, in all readings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hvx_vectors import build, device, kept, kept_operands, kept_program, member, place, shared_vectors, wrong_results
from shared import SHARED

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import DeviceHang, Ila, assemble, check
from rewrite_compiler.ila.simulation.packet_instruction import packet_instruction
from rewrite_compiler.ila.verification.packet_legality import assign_resources, refusal_of
from rewrite_compiler.ila_models.hvx.packet import split
from rewrite_compiler.lang import assign, loop

READINGS = ("oracle", "arrays", "native")
KEPT = kept()
PROGRAMS = {p["name"]: p for p in KEPT["programs"]}
SHARED_PROGRAMS = sorted((SHARED / "golden/hvx/programs").glob("*.json")) if SHARED else []
LAST = 3 << 14


@pytest.mark.parametrize("reading", READINGS)
def test_instructions(reading: str) -> None:
    data, step = kept_operands(), 6 if reading == "native" else 1  # machine code takes its time to be made
    assert wrong_results(device(reading), KEPT["instructions"], {k: x[::step] for k, x in data.items()}) == []


def check_encoding(instruction: dict[str, Any]) -> None:
    """A word decodes to its instruction, whose operands assemble to the word again."""
    word = int(instruction["word"], 16) & ~LAST
    (decoded,) = device().members([word])
    text = instruction["text"]
    assert decoded.instruction is member(text).instruction
    assert assemble(decoded.instruction, **decoded.operands)["data"] == word
    takes = build().packets.takes[decoded.instruction.name]
    assert takes == build().packets.takes[next(x for x in _of_class(instruction["class"]))]


def _of_class(sort: str) -> list[str]:
    return [member(i["text"]).instruction.name for i in KEPT["instructions"] if i["class"] == sort]


@pytest.mark.parametrize("instruction", KEPT["instructions"], ids=lambda i: i["text"])
def test_encoding(instruction: dict[str, Any]) -> None:
    check_encoding(instruction)


def wrong_judgements(packets: list[dict[str, Any]]) -> list[str]:
    wrong = []
    for p in packets:
        members = [member(text) for text in p["members"]]
        if (refusal_of(build(), members) == "") != p["legal"]:
            wrong.append(" ".join(p["members"]))
        if p["legal"]:  # the assembler may order members
            commands, count = split([int(w, 16) for w in p["words"]], 0)
            decoded = [m.instruction.name for m in device().members(commands)]
            assert count == len(p["words"])
            assert sorted(decoded) == sorted(["advance", *(m.instruction.name for m in members)])
    return wrong


def test_packets() -> None:
    assert wrong_judgements(KEPT["packets"]) == []


def run(program: dict[str, Any], before: np.ndarray, reading: str) -> np.ndarray:
    memory = before.copy()
    device(reading, memory, program["buf"]).run_program([int(w, 16) for w in program["words"]], program["pc"])
    return memory


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, reading: str) -> None:
    before, after = kept_program(name)
    assert np.array_equal(run(PROGRAMS[name], before, reading), after)


@pytest.mark.shared
@pytest.mark.parametrize("reading", READINGS)
def test_shared_instructions(reading: str, shared_dir: Path) -> None:
    vectors, operands = shared_vectors(shared_dir / "golden/hvx")
    assert wrong_results(device(reading), vectors["instructions"], operands) == []


@pytest.mark.shared
def test_shared_encodings_and_packets(shared_dir: Path) -> None:
    vectors, _ = shared_vectors(shared_dir / "golden/hvx")
    for instruction in vectors["instructions"]:
        check_encoding(instruction)
    assert wrong_judgements(vectors["packets"]) == []


@pytest.mark.shared
@pytest.mark.parametrize("path", SHARED_PROGRAMS, ids=lambda p: p.stem)
def test_shared_programs(path: Path) -> None:
    data = np.load(path.with_suffix(".npz"))
    for reading in READINGS:
        assert np.array_equal(run(json.loads(path.read_text("utf-8")), data["before"], reading), data["after"]), reading


def test_the_model_has_no_problem() -> None:
    assert check(build()).problems == ()


IMMEDIATE = re.compile(r"#+([su])(\d+)")
IMMEDIATE_FIELDS = ("imm", "offset", "step", "low", "count", "u3", "number")  # their names, or what they begin with


def test_immediates_are_as_wide_as_the_syntax_says() -> None:
    """No vector and no program has the largest ones."""
    widths = {i: m for i in build().instructions.values() if (m := IMMEDIATE.search(i.doc))}
    assert len(widths) > 20
    for i, m in widths.items():
        fields = [o for name, o in i.operands.items() if name.split("_")[0] in IMMEDIATE_FIELDS]
        assert sum(o.bits.width for o in fields) == int(m[2]), i.name
        assert (min(o.leaf.interval[0] or 0 for o in fields) < 0) == (m[1] == "s"), i.name


def test_fields_of_registers_name_every_register() -> None:
    """Pairs, which have names of three letters, by their even ones; of scalar sources beside two vectors the first eight."""
    for i in build().instructions.values():
        for name, o in i.operands.items():
            if name[0] in "vqr" and len(name) <= len("vdd"):
                single = 3 if name[0] == "q" else 7 if name == "rt" and "vv" in i.operands else 31
                assert o.leaf.interval[1] == (15 if len(name) == len("vdd") else single), f"{i.name} {name}"


def test_words_of_hardware_loops() -> None:
    """As the manufacturer prints them: loop 1 has bit 21."""
    found = {name: words(name) for name in ("loop0_imm", "loop1_imm", "loop0", "loop1")}
    assert {name: word & 0xFFFF0000 for name, word in found.items()} == {
        "loop0_imm": 0x69000000, "loop1_imm": 0x69200000, "loop0": 0x60000000, "loop1": 0x60200000,
    }  # fmt: skip
    for name, width in {**dict.fromkeys(found, 7), "jump": 22}.items():  # bits of a target, in words from the packet on
        targets = [o for field, o in build().instructions[name].operands.items() if field.startswith("target")]
        assert sum(o.bits.width for o in targets) == width, name
        assert min(o.leaf.interval[0] or 0 for o in targets) < 0, name


# -- packets


def words(*names: str, **operands: int) -> int:
    """Return the command of an instruction."""
    (name,) = names
    return assemble(build().instructions[name], **operands)["data"]


@pytest.mark.parametrize("reading", READINGS)
def test_members_read_the_state_before_the_packet(reading: str) -> None:
    sim = device(reading)
    place(sim, "v", {0: 5, 1: 7})
    sim.issue_packet([words("copy", vd=0, vu=1), words("copy", vd=1, vu=0)])
    assert sim.state("v")[0].tolist() == [7] * 128
    assert sim.state("v")[1].tolist() == [5] * 128


@pytest.mark.parametrize("reading", READINGS)
def test_a_current_load_is_seen_by_the_packet_and_its_address_is_not(reading: str) -> None:
    memory = np.arange(1 << 13, dtype=np.uint64).astype(np.uint8)
    sim = device(reading, memory, 0x1000)
    place(sim, "r", {4: 0x1080})
    place(sim, "v", {8: 99})
    load = words("vmem_cur_step", vd=8, rt=4, step=2)
    sim.issue_packet([words("copy", vd=9, vu=8), load, words("transfer", rd=5, rs=4)])
    assert np.array_equal(sim.state("v")[8], memory[128:256])
    assert np.array_equal(sim.state("v")[9], memory[128:256])
    assert (sim.state("r")[4], sim.state("r")[5]) == (0x1180, 0x1080)


def test_without_current_the_old_value_is_read() -> None:
    sim = device(memory=np.full(1 << 13, 3, np.uint8), base=0x1000)
    place(sim, "r", {4: 0x1000})
    place(sim, "v", {8: 99})
    sim.issue_packet([words("copy", vd=9, vu=8), words("vmem_load", vd=8, rt=4)])
    assert sim.state("v")[9].tolist() == [99] * 128


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ([("copy", {"vd": 3, "vu": 1}), ("vnot", {"vd": 3, "vu": 2})], "two members write v[3, 0]"),
        ([("vsxt_h_b_pair", {"vdd": 2, "vu": 1}), ("vnot", {"vd": 5, "vu": 2})], "two members write v[5, 0]"),
        ([("vmem_load_step", {"rt": 4}), ("add_imm", {"rd": 4})], "two members write r[4]"),
        (
            [("vpack_b_h_h_sat", {"vd": 1}), ("vror_r", {"vd": 2})],
            "the resources of a packet do not suffice for vpack_b_h_h_sat, vror_r",
        ),
        (
            [("vmemu_load", {"vd": 1}), ("memw_load", {"rd": 2})],
            "the resources of a packet do not suffice for vmemu_load, memw_load",
        ),
    ],
)
def test_an_illegal_packet_is_refused(members: list[tuple[str, dict[str, int]]], sentence: str) -> None:
    sim = device()
    with pytest.raises(SpecError) as refusal:
        sim.issue_packet([words(name, **operands) for name, operands in members])
    assert refusal.value.problem.sentence == f"a packet of hvx is not legal: {sentence}"


def test_two_products_with_a_scalar_fill_the_multipliers() -> None:
    product, total = words("vrmpy_w_ub_rb_acc", vx=4, rt=4), words("vrmpy_w_ub_b_acc", vx=6)
    sim = device()
    sim.issue_packet([product, words("vrmpy_w_ub_rb_acc", vx=5, rt=5)])
    with pytest.raises(SpecError, match="resources of a packet"):
        sim.issue_packet([product, total])


def test_resources_are_assigned_where_they_can_be() -> None:
    a, b, c = (frozenset(x) for x in "abc")
    assert assign_resources([(a, b), (a,), (b, c)]) == (b, a, c)
    assert assign_resources([(a, b), (a, b), (a, b)]) is None
    assert assign_resources([]) == ()


# -- programs


def program(*packets: tuple[list[int], int]) -> list[int]:
    """Return the words of packets, each with the packet bits that end loops: 0 none, 1 loop 0, 2 loop 1, 3 both."""
    result = []
    for members, ends in packets:
        filled = [*[words("nop")] * (2 if ends else 0), *members]
        marks = [1] * (len(filled) - 1) + [3]
        marks[:2] = [2 if ends >> n & 1 else m for n, m in enumerate(marks[:2])]
        result += [w | m << 14 for w, m in zip(filled, marks, strict=True)]
    return result


def add(register: int, number: int) -> int:
    return words("add_imm", rd=register, rs=register, imm_low=number)


@pytest.mark.parametrize("reading", READINGS)
def test_nested_hardware_loops(reading: str) -> None:
    """Three times four: the inner loop starts anew in every pass of the outer, and both end in one packet."""
    inner = words("loop0_imm", target_low=1, count=0, count_mid=1)
    outer = words("loop1_imm", target_low=1, count_low=3)
    ends = program(([outer], 0), ([inner], 0), ([add(2, 1)], 3), ([add(3, 1)], 0))
    sim = device(reading)
    assert sim.run_program(ends, 0x100) == 1 + 3 + 12 + 1
    assert (sim.state("r")[2], sim.state("r")[3]) == (12, 1)


def test_a_constant_extender_may_end_a_hardware_loop() -> None:
    """It is the first word of the packet, whose bits 15:14 are 10 then."""
    extended = words("transfer_extended", rd=2, low=5, imm_low=3, imm_high=1)
    extender, transfer = extended >> 32 & ~(3 << 14) | 2 << 14, extended & 0xFFFFFFFF | LAST
    sim = device()
    assert sim.run_program([*program(([words("loop0_imm", target_low=1, count_low=3)], 0)), extender, transfer]) == 4
    assert sim.state("r")[2] == (1 << 14 | 3) << 6 | 5


def test_a_jump_a_trap_and_a_program_without_end() -> None:
    back = words("jump", target_low=(1 << 13) - 1, target=-1)
    ahead = words("jump", target_low=2)
    sim = device()
    sim.run_program(program(([ahead], 0), ([add(1, 1)], 0), ([add(2, 1)], 0), ([words("trap0", number=1)], 0), ([add(3, 1)], 0)))
    assert sim.state("r")[1:4].tolist() == [0, 1, 0]
    with pytest.raises(DeviceHang) as hang:
        device().run_program(program(([add(1, 1)], 0), ([back], 0)), most=10)
    assert hang.value.problem.sentence == "no interrupt can come: hvx runs more than 10 packets"


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ([0x7F004000], "the last packet of a program must end with a word whose bits 15:14 are 11"),
        ([0x7F004000] * 5, "a packet must have at most 4 words"),
        ([0x30003000], "the word 0x30003000 holds two instructions, which are left out"),
        ([0x00004000, 0x0000C000], "a constant extender must stand before an instruction, not at the end of a packet"),
        ([0xFFFFFFFF], "no instruction of hvx decodes 0x1ffff3fff"),
    ],
)
def test_words_that_are_no_program_are_refused(code: list[int], sentence: str) -> None:
    with pytest.raises(SpecError) as refusal:
        device().run_program(code, 0x40)
    assert refusal.value.problem.sentence in (sentence, sentence.replace("0x1ffff3fff", "0xffff3fff"))
    assert refusal.value.problem.place == "packet at 0x40"


def test_an_access_outside_of_memory_is_refused() -> None:
    sim = device(memory=np.zeros(256, np.uint8), base=0x1000)
    place(sim, "r", {4: 0x1100})
    with pytest.raises(SpecError) as refusal:
        sim.issue_packet([words("vmem_load", rt=4)])
    assert refusal.value.problem.sentence == "vmem_load reads the bytes 4352…4479; memory has 4096…4351"


def test_an_instruction_that_is_no_parallel_update_has_no_packet() -> None:
    m = Ila("serial")
    count, data = m.register("count", 8), m.input("data", 8)
    m.encoded("twice", {}, {}, lambda f: loop(2, lambda k: assign(count, 1)), doc="", extra=data[()] == 0)
    with pytest.raises(SpecError, match="its update must be one parallel update"):
        packet_instruction(m, [m.instructions["twice"]])
