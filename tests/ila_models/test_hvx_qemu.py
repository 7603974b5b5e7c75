"""HVX against QEMU and LLVM where they are installed: operands drawn at the edges, and packets drawn anew.

Programs are assembled by llvm-mc and run by qemu-hexagon. Without them these tests say that they did not run.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hvx_vectors import BEFORE, RESULTS, build, device, kept, member, place

from rewrite_compiler.ila.verification.packet_legality import refusal_of

ASSEMBLER = shutil.which("llvm-mc") or shutil.which("llvm-mc-14")
EMULATOR = shutil.which("qemu-hexagon")
needs_assembler = pytest.mark.skipif(ASSEMBLER is None, reason="llvm-mc is not installed: packets are not judged by it")
needs_emulator = pytest.mark.skipif(
    None in (ASSEMBLER, EMULATOR), reason="qemu-hexagon or llvm-mc is not installed: results are not compared with it"
)
FLAGS = ["-triple=hexagon", "-mcpu=hexagonv67", "-mattr=+hvxv67,+hvx-length128b,-duplex"]
PAGE, TEXT, DATA, SCALARS, OUT = 1 << 16, 1 << 16, 0x10000000, 0x18000000, 0x20000000
MACHINE, VERSION = 164, 0x67  # of an ELF file
EDGES: dict[str, list[int]] = {
    "<u1": [0, 1, 2, 127, 128, 129, 254, 255],
    "<i2": [0, 1, -1, 32767, -32768, -32767, 255, 256, -128, 127, 128, -129],
    "<i4": [0, 1, -1, 2**31 - 1, -(2**31), 1 - 2**31, 65535, 65536, -32769, 31, 32, 33, 63, 64, -32, 2**30],
}
SCALAR_EDGES = [0, 1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 2**32 - 1, 2**31, 2**31 - 1, 0x80808080, 0x7F7F7F7F, 0x7FFF8000]
INSTRUCTIONS = [i for i in kept()["instructions"] if i["result"] in RESULTS]
REGISTERS = {"V": ("v8",), "P": ("v8", "v9"), "W": ("v2",), "A": ("v4", "v5"), "Q": ("v8",)}  # that are stored


def assembled(lines: list[str], folder: Path) -> tuple[bytes, set[int]]:
    """Return the words of packets, and the lines that are refused."""
    (folder / "a.s").write_text("\n".join([".text", *lines, ""]))
    run = subprocess.run([str(ASSEMBLER), *FLAGS, "-filetype=obj", "-o", "a.o", "a.s"], cwd=folder, capture_output=True, text=True)
    refused = {int(m[1]) - 2 for m in re.finditer(r"a\.s:(\d+):\d+: error", run.stderr)}
    return b"" if refused else section((folder / "a.o").read_bytes()), refused


def section(elf: bytes) -> bytes:
    """Return the section of the code."""
    (table,) = struct.unpack_from("<I", elf, 32)
    count, names = struct.unpack_from("<HH", elf, 48)
    headers = [struct.unpack_from("<10I", elf, table + 40 * n) for n in range(count)]
    return next(elf[h[4] :][: h[5]] for h in headers if elf[headers[names][4] + h[0] :].split(b"\0")[0] == b".text")


def executable(parts: list[tuple[int, bytes, int]]) -> bytes:
    """Return a program of parts of memory: address, contents, size."""
    header = struct.pack("<HHIIIIIHHHHHH", 2, MACHINE, 1, TEXT, 52, 0, VERSION, 52, 32, len(parts), 40, 0, 0)
    table, body = b"", b""
    for address, contents, size in parts:
        body += b"\0" * (-len(body) % PAGE)
        table += struct.pack("<8I", 1, PAGE + len(body), address, address, len(contents), size, 7, PAGE)
        body += contents
    return (b"\x7fELF\x01\x01\x01" + b"\0" * 9 + header + table).ljust(PAGE, b"\0") + body


def emulated(code: list[str], parts: list[tuple[int, bytes, int]], out: int, size: int, folder: Path) -> np.ndarray:
    """Run code, and return what it leaves from an address on."""
    write = ["r6=#64", "r0=#1", f"r1=##{out}", f"r2=##{size}", "trap0(#1)", "r6=#93", "r0=#0", "trap0(#1)"]
    text, refused = assembled([*code, *(f"{{ {x} }}" for x in write)], folder)
    assert not refused
    path = folder / "a.elf"
    path.write_bytes(executable([(TEXT, text, len(text)), *parts]))
    os.chmod(path, 0o755)
    return np.frombuffer(subprocess.run([str(EMULATOR), str(path)], capture_output=True, check=True).stdout, np.uint8)


def drawn_vector(draw: np.random.Generator) -> np.ndarray:
    kind = str(draw.choice(["any", "one", *EDGES]))
    if kind in EDGES:
        return draw.choice(np.array(EDGES[kind], kind), 128 // int(kind[2])).view(np.uint8)
    return np.full(128, draw.integers(256), np.uint8) if kind == "one" else draw.integers(0, 256, 128).astype(np.uint8)


@needs_emulator
@pytest.mark.parametrize("seed", [1, 2])
def test_results_at_edges(seed: int, tmp_path: Path) -> None:
    draw, sim = np.random.default_rng(seed), device()
    vectors = np.array([[drawn_vector(draw) for _ in BEFORE] for _ in INSTRUCTIONS])
    masks = draw.integers(0, 2, (len(INSTRUCTIONS), 128)).astype(np.uint8)
    scalars = np.where(draw.random(len(INSTRUCTIONS)) < 0.6, draw.choice(SCALAR_EDGES, len(INSTRUCTIONS)), draw.integers(0, 1 << 32))
    code = [f"{{ {x} }}" for x in (f"r0=##{DATA}", f"r1=##{OUT}", f"r2=##{SCALARS}", "r5=##0x01010101")]
    for i in INSTRUCTIONS:
        steps = [*(f"v{n}=vmem(r0++#1)" for n in (*BEFORE, 6)), "r4=memw(r2++#4)", "q0=vand(v6,r5)", i["text"]]
        steps += ["v8=vand(q1,r5)"] * (i["result"] == "Q") + [f"vmem(r1++#1)={v}" for v in REGISTERS[i["result"]]]
        code += [f"{{ {x} }}" for x in steps]
    data = np.concatenate([vectors, masks[:, None]], 1).tobytes()
    size = 128 * sum(len(REGISTERS[i["result"]]) for i in INSTRUCTIONS)
    parts = [(DATA, data, len(data)), (SCALARS, (words := scalars.astype("<u4").tobytes()), len(words)), (OUT, b"", size)]
    expected = iter(emulated(code, parts, OUT, size, tmp_path).reshape(-1, 128))
    wrong = []
    for i, v, q, r in zip(INSTRUCTIONS, vectors, masks, scalars.tolist(), strict=True):
        place(sim, "v", dict(zip(BEFORE, v, strict=True)))
        place(sim, "q", {0: q})
        place(sim, "r", {4: r})
        sim.issue_packet([int(i["word"], 16)])
        state, first, count = RESULTS[i["result"]]
        found = sim.state(state)[first : first + count]
        if not np.array_equal(found, np.array(list(itertools.islice(expected, count)))):
            wrong.append(f"{i['text']} with r4 = {r:#x}")
    assert wrong == []


SCALAR_TEXTS = ["r11=add(r12,r13)", "r14=add(r15,#5)", "r16=#7", "r17=mpyi(r18,r19)", "r20=memw(r21+#8)", "r22=memub(r23+#1)"]


def drawn_packet(draw: np.random.Generator) -> list[str]:
    """Return two to four different members that write different registers."""
    texts = [i["text"] for i in kept()["instructions"]] + SCALAR_TEXTS
    members = []
    for k, n in enumerate(draw.choice(len(texts), int(draw.integers(2, 5)), replace=False)):
        first = 10 + 4 * k
        renamed = {"v9:8": f"v{first + 1}:{first}", "v8": f"v{first}", "v5:4": f"v{first + 1}:{first}", "v2": f"v{first}", "q1": f"q{k}"}
        members.append(re.sub(r"\b(v9:8|v8|v5:4|v2|q1)\b", lambda m, by=renamed: by[m[1]], texts[n]))
    return members


def drawn_packets(seed: int, count: int) -> list[list[str]]:
    draw = np.random.default_rng(seed)
    return [drawn_packet(draw) for _ in range(count)]


@needs_assembler
def test_packets_are_legal_as_the_assembler_judges(tmp_path: Path) -> None:
    packets = drawn_packets(3, 500)
    _, refused = assembled([f"{{ {'; '.join(p)} }}" for p in packets], tmp_path)
    wrong = [p for n, p in enumerate(packets) if (refusal_of(build(), [member(t) for t in p]) == "") == (n in refused)]
    assert wrong == []
    assert 50 < len(refused) < 450


# -- the table of slots and pipes, written a second time: from the texts of instructions

ANY_PIPE = ("X", "S", "M0", "M1")
FAMILIES: tuple[tuple[str, tuple[int, ...], tuple[str, ...]], ...] = (  # text, slots, pipes: the first that matches
    (r"r\d+=mem|memw", (0, 1), ("",)), (r"r\d+(:\d+)?\+?=(mpyi|v)", (2, 3), ("",)), (r"r\d+=", (0, 1, 2, 3), ("",)),
    (r"v\d+(\.cur)?=vmem\(", (0, 1), tuple(f"L {p}" for p in ANY_PIPE)), (r"v\d+=vmemu", (0,), ("L X slot1",)),
    (r"vmemu", (0,), ("T X slot1",)), (r"(if \(q\d\) )?vmem\(", (0,), tuple(f"T {p}" for p in ANY_PIPE)),
    (r"v\d+:\d+=v(shuff|deal)|v\d+:\d+\.u?.=vunpack|.*vlut16|.*\|=vlut32", (0, 1, 2, 3), ("X S",)),
    (r"v\d+:\d+\.u?.=v[sz]xt|v\d+:\d+=vcombine|q\d=and", (0, 1, 2, 3), ("X S", "M0 M1")),
    (r"v\d+:\d+", (2, 3), ("M0 M1",)),  # widening sums, differences and products
    (r".*v(rmpy.*r\d+\.|splat|absdiff|mpyieo)|v\d+\.u?w=vrmpy|.*vmpyi\(v\d+\.w,r|v\d+\.h=vmpy\(.*,r", (2, 3), ("M0", "M1")),
    (r".*vr?mpy", (2, 3), ("M0 M1",)),
    (r".*(vasr|vasl|vlsr|vround)", (0, 1, 2, 3), ("S",)),
    (r".*(vpack|vdeal|vshuff\(|vl?align|vror|vlut32|vsetq)", (0, 1, 2, 3), ("X",)),
    (r"", (0, 1, 2, 3), ANY_PIPE),
)  # fmt: skip


def second_judgement(packet: list[str]) -> bool:
    """Try all slots and pipes."""
    choices = []
    for text in packet:
        slots, pipes = next((s, p) for pattern, s, p in FAMILIES if re.match(pattern, text))
        choices.append([[f"slot{s}", *p.split()] for s, p in itertools.product(slots, pipes)])
    return any(len(set(taken)) == len(taken) for choice in itertools.product(*choices) for taken in [list(itertools.chain(*choice))])


def test_packets_are_legal_as_a_second_writing_of_the_table_judges() -> None:
    packets = drawn_packets(4, 500)
    legal = [second_judgement(p) for p in packets]
    assert [p for p, is_legal in zip(packets, legal, strict=True) if (refusal_of(build(), [member(t) for t in p]) == "") != is_legal] == []
    assert 50 < sum(legal) < 450


@pytest.mark.shared
def test_the_second_writing_judges_as_published(shared_dir: Path) -> None:
    published: list[dict[str, Any]] = json.loads((shared_dir / "golden/hvx/packets.json").read_text("utf-8"))["packets"]
    assert [p["members"] for p in published if second_judgement(p["members"]) != p["legal"]] == []
