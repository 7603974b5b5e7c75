"""Trace files: what is written is read back in every form, and what is wrong is said by its place."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors import traces

from rewrite_compiler.errors import InputError, SpecError
from rewrite_compiler.ila import Bits, Ila, Instruction, assemble, ila, mmio
from rewrite_compiler.ila.traces.assembly import disassemble, parse_command
from rewrite_compiler.ila.traces.reader import read_header, read_trace
from rewrite_compiler.ila.traces.trace import Attach, Commands, Fetch, Header, Item, Place, Section, Trace, Wait, block_of, columns_of
from rewrite_compiler.ila.traces.writer import CHUNK, COMMANDS, COUNT, END, OTHER, WORDS, to_assembly, to_binary, to_json_lines
from rewrite_compiler.lang.binders import static_shape

model = cache(ila)
NAMES = ("flexasr", "hlscnn", "vta")
WRITERS: Mapping[str, Callable[[Trace, Ila], bytes]] = {"json": to_json_lines, "assembly": to_assembly, "binary": to_binary}


def toy() -> Ila:
    m = Ila("toy")
    bus = mmio(m, address_bits=16, data_bytes=4)
    m.config("config", bus.write(0x10), {"length": Bits(0, 6), "shift": Bits(8, 12, signed=True)})
    m.readback("load", bus.read_range(0x40, 4, 4), lambda j: m.s.length[()], lanes=4)
    return m


def random_operands(i: Instruction, draw: random.Random) -> dict[str, int]:
    found = {}
    for name, o in i.operands.items():
        low, high = o.leaf.interval
        found[name] = draw.getrandbits(8 * static_shape(o.leaf)[0]) if o.leaf.shape else draw.randint(low or 0, high or 0)
    return found


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(data=st.data())
def test_assembling_what_was_disassembled_gives_the_command(name: str, data: st.DataObject) -> None:
    m = model(name)
    i = m.instructions[data.draw(st.sampled_from(list(m.instructions)))]
    given = random_operands(i, data.draw(st.randoms(use_true_random=False)))
    named = disassemble(m, assemble(i, **given))
    assert (named.instruction, dict(named.operands), dict(named.raw)) == (i, given, {})
    assert parse_command(m, str(named)).command == named.command == {k: v for k, v in assemble(i, **given).items() if v}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(data=st.data())
def test_bits_outside_of_the_fields_are_kept(name: str, data: st.DataObject) -> None:
    """A command with any data at an address that an instruction answers to survives assembly text."""
    m = model(name)
    i = m.instructions[data.draw(st.sampled_from(list(m.instructions)))]
    command = {**assemble(i), "data": data.draw(st.integers(0, (1 << 128) - 1))} if name != "vta" else assemble(i)
    named = disassemble(m, command)
    assert named.command == parse_command(m, str(named)).command == {k: v for k, v in command.items() if v}


def golden_commands(name: str) -> list[dict[str, int]]:
    found: list[dict[str, int]] = []
    for trace in list(traces(name).values())[:3]:
        for kind, *rest in trace["commands"]:
            if kind in "WR":
                found.append({"wr" if kind == "W" else "rd": 1, **dict(zip(("addr", "data"), (int(x, 16) for x in rest), strict=False))})
    return found[:400]


def whole_trace(name: str) -> tuple[Ila, Trace]:
    """A trace with every kind of item."""
    m = model(name)
    draw = random.Random(7)
    commands = [assemble(i, **random_operands(i, draw)) for i in m.instructions.values()]
    gives = np.arange(16 * len(commands), dtype=np.uint8).reshape(-1, 16)
    items: list[Item] = [
        Section(3, "linear_1", 0, "weights", True),
        Commands(columns_of(m, commands)),
        Wait(),
        Commands(columns_of(m, commands), gives),
    ]
    if m.externals:
        words = np.arange(5, dtype=np.uint8)
        items += [Attach("dram", 64), Place("dram", 3, words), Fetch("dram", 3, 5, words), Fetch("dram", 0, 5)]
    return m, Trace(Header(name, {"behaviour": "x"}, "ab12", {"samples": 1}), tuple(items))


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("name", NAMES)
def test_every_form_is_read_back(name: str, form: str) -> None:
    m, trace = whole_trace(name)
    data = WRITERS[form](trace, m)
    found = read_trace(data, lambda header: ila(header.target), "t")
    assert found.header == trace.header
    assert list(found.events()) == list(trace.events())
    assert WRITERS[form](found, m) == data


@pytest.mark.parametrize("name", ["flexasr"])
def test_golden_commands_survive_every_form(name: str) -> None:
    m, commands = model(name), golden_commands(name)
    trace = Trace(Header(name), (Commands(columns_of(m, commands)),))
    assert [c for c, _ in trace.items[0].rows()] == [{k: v for k, v in c.items() if v} for c in commands]  # type: ignore[union-attr]
    for write in WRITERS.values():
        assert list(read_trace(write(trace, m), ila_of, "t").events()) == list(trace.events())


def ila_of(header: Header) -> Ila:
    return ila(header.target)


def test_comments_name_every_command_and_change_nothing() -> None:
    m, trace = whole_trace("hlscnn")
    lines = to_json_lines(trace, m, comments=True)
    said = [json.loads(line)["is"] for line in lines.splitlines()[1:-1] if b'"is"' in line]
    assert len(said) == trace.commands
    assert said[0].startswith("cfg_wr_soc_mem_base base=")
    assert list(read_trace(lines, ila_of, "t").events()) == list(trace.events())


def test_blocks_are_what_single_commands_are() -> None:
    m = ila("flexasr")
    store = m.instructions["pe1_core_store_weight_buffer"]
    vectors = np.arange(48, dtype=np.uint8).reshape(3, 16)
    block = Commands(block_of(m, store, 3, {"index": np.array([5, 0, 65535]), "vector": vectors}))
    singles = [assemble(store, index=n, vector=int.from_bytes(v.tobytes(), "little")) for n, v in zip((5, 0, 65535), vectors, strict=True)]
    assert [c for c, _ in block.rows()] == [{k: x for k, x in c.items() if x} for c in singles]


def test_a_block_refuses_an_operand_that_does_not_fit() -> None:
    m = ila("flexasr")
    with pytest.raises(SpecError) as caught:
        block_of(m, m.instructions["pe1_core_store_weight_buffer"], 2, {"index": np.array([5, 65536])})
    assert caught.value.problem.sentence == "operand index of pe1_core_store_weight_buffer must be in 0…65535, not 65536"


def toy_text() -> str:
    m = toy()
    trace = Trace(Header("toy"), (Commands(columns_of(m, [assemble(m.instructions["config"], length=3, shift=-2)])), Wait()))
    return to_json_lines(trace, m).decode()


def test_the_lines_of_a_small_trace() -> None:
    _, *lines = toy_text().splitlines()
    assert lines == ['{"wr":1,"addr":"0x10","data":"0x1e03"}', '{"wait":{}}', '{"end":1}']


def test_flags_are_numbers_and_words_hexadecimal() -> None:
    m = toy()
    commands = [assemble(m.instructions["config"], length=n) for n in (1, 2)]
    _, *lines = to_json_lines(Trace(Header("toy"), (Commands(columns_of(m, commands)),)), m).decode().splitlines()
    assert lines == ['{"wr":1,"addr":"0x10","data":1}', '{"wr":1,"addr":"0x10","data":"0x2"}', '{"end":2}']


def test_the_assembly_of_a_small_trace() -> None:
    m = toy()
    named = [
        disassemble(m, {"wr": 1, "addr": 0x10, "data": 0x1E03}),
        disassemble(m, {"wr": 1, "addr": 0x10, "data": 0x8000_1E03}),
        disassemble(m, {"rd": 1, "addr": 0x49}),
    ]
    assert list(map(str, named)) == ["config length=3 shift=-2", "config length=3 shift=-2 | data=0x80001e03", "load index=2 | addr=0x49"]


WRONG_LINES = {
    '{"wr":1,"addr":"0x20"}': ("I101", "no instruction of toy decodes wr=0x1, addr=0x20"),
    '{"rd":1,"wr":1,"addr":"0x10"}': ("I101", "no instruction of toy decodes wr=0x1, rd=0x1, addr=0x10"),
    '{"wr":1,"addr":"0x12345"}': ("I101", "addr has 16 bits; 0x12345 does not fit"),
    '{"wr":1,"address":"0x10"}': ("I101", 'toy has no input "address"'),
    '{"wr":1,"addr":"ten"}': ("F103", 'addr must be a number or hexadecimal in quotes, not "ten"'),
    '{"wr":1,"addr":"0xten"}': ("F103", 'addr must be hexadecimal, not "0xten"'),
    '{"wr":1,"addr":"0x10","gives":[[]]}': ("F103", 'gives must be hexadecimal, not "[[]]"'),
    '{"wr":1,"addr":"0x10","gives":"0x"}': ("F103", 'gives must be hexadecimal, not "0x"'),
    '{"rd":1,"addr":"0x"}': ("F103", 'addr must be hexadecimal, not "0x"'),
    "wr": ("F103", 'a line of a trace must be a JSON object, not "wr"'),
    '{"wr":1,"addr":"0x10","addr":"0x20"}': ("F103", 'a line of a trace must say each thing once: it has the key "addr" twice'),
    '{"section":{"offload":"a"}}': (
        "F103",
        "section must have part (a whole number from 0 on), offload (a text), call (a whole number from 0 on), phase (a text), "
        "constant (true or false)",
    ),
    '{"place":{"memory":"dram","address":0,"words":"00"}}': ("F103", 'toy has no external memory "dram"'),
    '{"end":"x"}': ("F103", "the end of a trace must give its number of commands, not 'x'"),
}


@pytest.mark.parametrize("line", WRONG_LINES)
def test_a_wrong_line_is_named(line: str) -> None:
    code, sentence = WRONG_LINES[line]
    head, _, *rest = toy_text().splitlines()
    with pytest.raises(InputError) as caught:
        read_trace("\n".join([head, line, *rest, ""]).encode(), lambda _: toy(), "t.jsonl")
    problem = caught.value.problem
    assert (problem.code, problem.sentence, problem.place) == (code, sentence, "t.jsonl:2")


WRONG_ASSEMBLY = {
    "confg length=1": ("I101", 'toy has no instruction "confg"'),
    "config size=1": ("I102", 'config has no operand "size"'),
    "config length=128": ("I102", "operand length of config must be in 0…127, not 128"),
    "config length": ("I101", 'a field of config must be written name=number, not "length"'),
    "config length=1 length=2": ("I101", 'config is given the field "length" twice'),
    "config length=1 | adr=0x10": ("I101", 'toy has no input "adr"'),
    "config length=1 | data=0x100000000": ("I101", "data has 32 bits; 0x100000000 does not fit"),
    '.end {"x": 1, "x": 2}': ("F103", '.end must say each thing once: it has the key "x" twice'),
    ".wait now": ("F103", '.wait must be followed by JSON, not "now"'),
    ".pause {}": ("F103", 'a trace has no item "pause"'),
}


@pytest.mark.parametrize("line", WRONG_ASSEMBLY)
def test_a_wrong_line_of_assembly_is_named(line: str) -> None:
    code, sentence = WRONG_ASSEMBLY[line]
    text = f".trace {toy_text().splitlines()[0]}\n{line}\n.end 1\n"
    with pytest.raises(InputError) as caught:
        read_trace(text.encode(), lambda _: toy(), "t.s")
    problem = caught.value.problem
    assert (problem.code, problem.sentence, problem.place) == (code, sentence, "t.s:2")


def refused(data: bytes) -> str:
    with pytest.raises(InputError) as caught:
        read_trace(data, lambda _: toy(), "t")
    assert caught.value.problem.code == "F103"
    return caught.value.problem.sentence


def test_a_trace_that_ends_early_is_refused_wherever_it_is_cut() -> None:
    text = toy_text().encode()
    m = toy()
    binary = to_binary(read_trace(text, lambda _: m, "t"), m)
    ends = re.compile(r"the trace ends early.*|the file is not a trace|a line of a trace must be a JSON object.*")
    for data in (text, binary):
        for cut in range(len(data)):
            assert ends.fullmatch(refused(data[:cut])), cut


def test_a_changed_bit_of_a_binary_trace_is_found() -> None:
    m = toy()
    data = to_binary(read_trace(toy_text().encode(), lambda _: m, "t"), m)
    for at in range(len(data) - 30, len(data)):
        with pytest.raises(InputError):
            read_trace(bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]]), lambda _: m, "t")


def test_a_binary_trace_ends_with_its_last_chunk() -> None:
    m = toy()
    data = to_binary(read_trace(toy_text().encode(), lambda _: m, "t"), m)
    assert refused(data + b"\0") == f"the trace must end at byte {len(data)}, not {len(data) + 1}"


def binary_with(kind: int, payload: bytes) -> bytes:
    """Return a binary trace without commands that has one chunk more."""
    m = toy()
    whole = to_binary(Trace(Header("toy"), ()), m)
    before = whole[: len(whole) - CHUNK.size - 2 * COUNT.size] + CHUNK.pack(kind, len(payload)) + payload
    end = COUNT.pack(0) + COUNT.pack(zlib.crc32(before))
    return before + CHUNK.pack(END, len(end)) + end


def with_words(content: dict[str, object]) -> bytes:
    text = json.dumps(content).encode()
    return COUNT.pack(len(text)) + text


STRANGE_CHUNKS = {
    "a kind that there is not": (9, b"{}"),
    "columns without their counts": (COMMANDS, bytes(COUNT.size)),
    "words of two items": (WORDS, with_words({"place": {"memory": "dram", "address": 0}, "fetch": {}})),
    "words of an item without words": (WORDS, with_words({"wait": {}})),
    "two items": (OTHER, b'{"wait":{},"attach":{}}'),
    "no JSON": (OTHER, b"wait"),
}


@pytest.mark.parametrize("name", STRANGE_CHUNKS)
def test_a_chunk_that_is_none_of_a_trace_is_named(name: str) -> None:
    kind, payload = STRANGE_CHUNKS[name]
    assert refused(binary_with(kind, payload)) == f"a chunk of kind {kind} and {len(payload)} bytes is none of a trace"


def test_an_item_of_a_chunk_is_checked_as_that_of_a_line() -> None:
    assert read_trace(binary_with(OTHER, b'{"wait":{}}'), lambda _: toy(), "t").items == (Wait(),)
    assert refused(binary_with(WORDS, with_words({"place": 3}))).startswith("place must have memory (a text), ")


def test_what_is_no_trace_is_said() -> None:
    head, *rest = toy_text().splitlines()
    assert refused(b"\x7fELF\0\0") == refused(b"") == refused(b"{}") == "the file is not a trace"
    newer = head.replace("flexmatch.trace/1", "flexmatch.trace/9")
    assert refused("\n".join([newer, *rest, ""]).encode()) == 'Schema of a trace must be "flexmatch.trace/1", not "flexmatch.trace/9"'
    assert refused(b'{"schema":"flexmatch.trace/1"}\n') == "the header of a trace must name its target, parameters and sha256"
    missing = "\n".join([head, *rest[1:], ""]).encode()
    assert refused(missing) == "the trace must have the 1 commands of its last line, not 0"
    more = "\n".join([head, *rest, "{}", ""]).encode()
    assert refused(more) == "nothing may follow the end of a trace"


def test_the_header_is_read_alone() -> None:
    m, trace = whole_trace("vta")
    for write in WRITERS.values():
        assert read_header(write(trace, m), "t") == trace.header


def test_a_trace_is_for_lanes_of_bytes() -> None:
    m = Ila("wide")
    m.input("data", 12, 4)
    with pytest.raises(SpecError) as caught:
        columns_of(m, [{"data": 1}])
    assert caught.value.problem.sentence == "a trace needs lanes of 8 bits; data of wide has lanes of 12"


def test_reading_does_not_need_the_file(tmp_path: Path) -> None:
    """Columns are copies: a trace outlives the bytes it was read from."""
    m, trace = whole_trace("flexasr")
    found = read_trace(to_binary(trace, m), ila_of, str(tmp_path))
    block = next(i for i in found.items if isinstance(i, Commands))
    assert all(c.flags.owndata or c.base is not None for c in block.columns.values())
