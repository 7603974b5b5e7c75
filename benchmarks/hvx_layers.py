"""The 17 layers of Covenant's table on HVX: their outputs beside integer numpy, and packets beside the least that MACs allow.

The code of one block of rows and columns is what the driver issues. It is simulated for each of the layer's blocks, one after
the other: products give int32 sums, convolutions the codes of sums. Code that gives codes is put into packets by a list scheduler:
every instruction goes into the first packet in which its operands are there and which has room by the model's slots and pipes.
No packet is shared by two blocks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from covenant_layers import LAYERS, Layer
from genesys_layers import expected
from record import Row, finish, options

from rewrite_compiler.ila import Stream, assemble
from rewrite_compiler.ila.verification.packet_legality import assign_resources
from rewrite_compiler.lang import Fixed
from rewrite_compiler.target import find_target
from rewrite_compiler.target.mapping import accepted_arguments

Issued = tuple[str, Mapping[str, int]]
FORMATS = dict.fromkeys("xwy", Fixed(8, 4))
LOWER_BOUND = 256  # products of a packet: two sums of four in 32 lanes, of a vector and a scalar register
VECTOR_BOUND = 128  # of a packet with one accumulating sum of two vectors
BLOCK = 128  # columns
LATE = ("vrmpy", "vmpy")  # results that are usable two packets later
Codes = np.ndarray[Any, Any]


@dataclass
class Program:
    """A device that keeps what is issued, and computes nothing."""

    issued: list[Issued] = field(default_factory=list)

    def attach(self, memory: str, words: int) -> None:
        """Give it no memory."""

    def place(self, memory: str, address: int, words: Any) -> None:
        """Keep no data."""

    def fetch(self, memory: str, address: int, count: int) -> Any:
        """Return zeros."""
        return np.zeros(count, np.int64)

    def issue(self, instruction: str, **operands: int) -> None:
        """Keep an instruction."""
        self.issued.append((instruction, operands))

    def wait(self) -> None:
        """Wait for nothing."""


@dataclass
class Repeated(Program):
    """A simulator that runs what is issued once for each sample: their code is the same, and what is placed may differ."""

    samples: int = 1
    placed: list[tuple[int, Codes]] = field(default_factory=list)

    def attach(self, memory: str, words: int) -> None:
        """Give it a new memory, and no code."""
        self.placed.clear()
        self.issued.clear()
        _simulator().give(memory, np.zeros(words, np.uint8))

    def place(self, memory: str, address: int, words: Codes) -> None:
        """Write what does not depend on samples, and keep what does."""
        if words.ndim > 1:
            self.placed.append((address, words))
        else:
            _simulator().place(memory, address, words)

    def fetch(self, memory: str, address: int, count: int) -> Codes:
        """Run the code on each sample; return what it leaves [samples, count]."""
        sim, found = _simulator(), np.empty((self.samples, count), np.uint8)
        words = [assemble(sim.ila.instructions[name], **operands)["data"] for name, operands in self.issued]
        size = int(sim.ila.inputs["data"].shape[0])
        code = np.frombuffer(b"".join(word.to_bytes(size, "little") for word in words), np.uint8).reshape(-1, size)
        for n in range(self.samples):
            for at, contents in self.placed:
                sim.place(memory, at, contents[n])
            sim.run(code)
            sim.wait_for_interrupt()
            found[n] = sim.fetch(memory, address, count)[0]
        return found


@cache
def _simulator() -> Stream:
    """Return the simulator, which compiles machine code once for all layers."""
    return find_target("hvx").ila().simulator(reading="native")


def accessed(name: str, operands: Mapping[str, int]) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Return the registers that an instruction reads and those that it writes."""
    reads, writes = set[tuple[str, int]](), set[tuple[str, int]]()
    for field_name, n in operands.items():
        kind, is_result = field_name[0], field_name[1] in "dx"
        if kind not in "vr" or field_name in ("step", "value"):
            continue
        registers = {(kind, 2 * n), (kind, 2 * n + 1)} if len(field_name) == len("vdd") else {(kind, n)}
        writes |= registers if is_result else set()
        reads |= registers if not is_result or field_name[1] == "x" else set()
    if "step" in operands:
        writes.add(("r", operands["rt"]))
    return reads, writes


@cache
def has_room(members: tuple[str, ...]) -> bool:
    """Tell whether instructions are a legal packet, by their slots and pipes."""
    rules = find_target("hvx").ila().packets
    assert rules is not None
    return assign_resources([rules.takes[name] for name in members]) is not None


def packets(program: Iterable[Issued]) -> list[list[Issued]]:
    """Return the packets of a straight-line program whose loads read what no store of it writes."""
    members: list[list[Issued]] = []
    readable, free = dict[tuple[str, int], int](), dict[tuple[str, int], int]()  # register → first packet that may read, or write it
    for name, operands in program:
        reads, writes = accessed(name, operands)
        at = max([0, *(readable.get(r, 0) for r in reads), *(free.get(w, 0) for w in writes)])
        while at < len(members) and not has_room(tuple(sorted([name, *(member for member, _ in members[at])]))):
            at += 1
        members += [[] for _ in range(at + 1 - len(members))]
        members[at].append((name, operands))
        free.update({r: max(free.get(r, 0), at) for r in reads})
        free.update(dict.fromkeys(writes, at + 1))
        readable.update({w: at + (2 if name.startswith(LATE) and w[0] == "v" else 1) for w in writes})
    return members


def issued(variant: str, shapes: Mapping[str, tuple[int, ...]], **attributes: Any) -> list[Issued]:
    """Return what a driver issues on operands of some shapes, without the trap at its end."""
    program = Program()
    codes = {name: np.zeros(shape, np.int32 if name == "b" else np.int8) for name, shape in shapes.items()}
    drive(variant, program, **codes, f=FORMATS, **attributes)
    return program.issued[:-1]


def block(variant: str, shapes: Mapping[str, tuple[int, ...]], **attributes: Any) -> int:
    """Return the packets of a driver's code on operands of some shapes."""
    return len(packets(issued(variant, shapes, **attributes)))


def simulate(layer: Layer) -> tuple[float, bool]:
    """Return the seconds of a layer on the simulator, and whether its outputs are those of integer numpy."""
    random, c, n = np.random.default_rng(2), layer.channels, layer.filters
    x = random.integers(-128, 128, (1, c, *layer.size), np.int8)
    w = random.integers(-128, 128, (n, c, layer.kernel, layer.kernel), np.int8)
    places = round(math.log2(math.sqrt(c) * layer.kernel * 128))  # so that few results saturate
    b = random.integers(-1 << places, 1 << places, n, np.int32)
    f = {"x": Fixed(8, 0), "w": Fixed(8, 0), "y": Fixed(8, -places)}
    started = time.process_time()
    y = (simulated_product if layer.is_dense else simulated_convolution)(layer, x, w, b, f)
    seconds = time.process_time() - started
    sums = expected(layer, x, w) + b[:, None, None]
    return seconds, bool(np.array_equal(y, sums if layer.is_dense else np.clip((sums + (1 << places - 1)) >> places, -128, 127)))


def simulated_product(layer: Layer, x: Codes, w: Codes, b: Codes, _: Mapping[str, Fixed]) -> Codes:
    """Return the sums [b, n, u, v] of a product, two rows and a block of columns at a time; an odd row stands alone."""
    rows, blocks = x[0, :, :, 0].T, list[Codes]()
    bands = rows.reshape(-1, 1 + (len(rows) % 2 == 0), rows.shape[1])
    for at in range(0, len(w), BLOCK):
        part = slice(at, at + BLOCK)
        y = driven("dense_bias_int8", bands, w[part, :, 0, 0], b[part], f={}, x_zero=0)
        blocks.append(y.reshape(len(rows), -1))
    return np.concatenate(blocks, 1).T[None, :, :, None]


def simulated_convolution(layer: Layer, x: Codes, w: Codes, b: Codes, f: Mapping[str, Fixed]) -> Codes:
    """Return the codes [b, n, u, v] of a convolution, a row of results at a time."""
    image = np.pad(x, ((0, 0), (0, 0), (layer.pad,) * 2, (layer.pad,) * 2))
    at = layer.sizes
    bands = np.stack([image[:, :, u * layer.stride : u * layer.stride + layer.kernel] for u in range(at["u"])])
    y = driven("conv2d", bands, w, b, f=f, strides=at["strides"], pads=(0, 0, 0, 0))
    return np.concatenate(list(y), 2)


def driven(name: str, x: Codes, w: Codes, b: Codes, **attributes: Any) -> Codes:
    """Return what the code of a driver leaves for each sample of x."""
    return np.asarray(drive(name, Repeated(samples=len(x)), x=x, w=w, b=b, **attributes))


def drive(name: str, device: Any, **arguments: Any) -> Any:
    """Return what a driver returns on a device, with the parameters of its accelerator where it takes them."""
    m = find_target("hvx").mappings[name]
    assert m.drive is not None
    return m.drive(device, **arguments, **accepted_arguments(m.drive, {"p": m.parameters}))


def row(layer: Layer) -> Row:
    """Return a row of the table."""
    macs, used = layer.macs, layer_packets(layer)
    seconds, is_equal = simulate(layer)
    return {"layer": layer.name, "macs": macs, "packets": used, "macs_a_packet": round(macs / used, 1),
            **{f"times_macs_{n}": round(used * n / macs, 3) for n in (LOWER_BOUND, VECTOR_BOUND)},
            "cpu_seconds": round(seconds, 2), "is_equal": is_equal}  # fmt: skip


def columns(n: int, most: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Yield the sizes of blocks of columns, and how many there are of each."""
    yield from ((size, count) for size, count in ((most, n // most), (n % most, 1)) if size and count)


def layer_packets(layer: Layer) -> int:
    """Return the packets of a layer, as often as the network has it."""
    return layer.times * (dense_packets(layer) if layer.is_dense else convolution_packets(layer))


def dense_packets(layer: Layer) -> int:
    """Return the packets of a product."""
    t, k, n = layer.size[0], layer.channels, layer.filters
    bands = [(size, count) for size, count in ((2, t // 2), (1, t % 2)) if count]
    return sum(
        count * many * block("dense", {"x": (size, k), "w": (wide, k), "b": (wide,)}) for size, count in bands for wide, many in columns(n)
    )


def convolution_packets(layer: Layer) -> int:
    """Return the packets of a convolution, two places of a row at a time."""
    c, n, kernel, at = layer.channels, layer.filters, layer.kernel, layer.sizes
    shapes = {"x": (1, c, kernel, kernel + layer.stride), "w": (n, c, kernel, kernel), "b": (n,)}
    return -(-at["u"] * at["v"] // 2) * block("conv2d", shapes, strides=at["strides"], pads=(0, 0, 0, 0))


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=1).parse_args()
    print(f"{'layer':26}{'MACs':>15}{'packets':>12}{'MACs a packet':>15}{'× MACs/256':>12}{'× MACs/128':>12}{'simulated':>11}")
    found = []
    for layer in LAYERS:
        r = row(layer)
        found.append(r)
        figures = f"{r['macs']:>15,}{r['packets']:>12,}{r['macs_a_packet']:>15}{r['times_macs_256']:>12}{r['times_macs_128']:>12}"
        print(f"{r['layer']:26}{figures}{r['cpu_seconds']:>9} s", flush=True)
        if not r["is_equal"]:
            raise SystemExit(f"{layer.name}: the outputs are not those of integer numpy")
    finish("hvx_layers", found, args.json)


if __name__ == "__main__":
    main()
