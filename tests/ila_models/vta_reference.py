"""VTA in plain Python loops, written from the specification alone: what the model's instructions are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

BLOCK = 16
DEPTH = {"uop": 8192, "inp": 2048, "wgt": 1024, "acc": 2048}
SCALARS = {"uop": 1, "inp": BLOCK, "wgt": BLOCK * BLOCK, "acc": BLOCK}
BYTES = {"uop": 4, "inp": 1, "wgt": 1, "acc": 4}
MIN, MAX, ADD, SHR, MUL = range(5)
Fields = dict[str, int]


def wrapped(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> bits - 1 else x


@dataclass
class Vta:
    """Buffers as lists of scalars, one image of bytes; instructions by name with their fields."""

    image: bytearray
    base: int
    behaviour: str
    memory: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = {sort: [0] * (n * SCALARS[sort]) for sort, n in DEPTH.items()}
        self.out = [0] * (DEPTH["acc"] * BLOCK)

    def run(self, name: str, f: Fields) -> None:
        if name.startswith("load"):
            self.load(name.removeprefix("load_"), f)
        elif name == "store":
            self.store(f)
        elif name == "gemm":
            self.gemm(f)
        elif name.startswith("alu"):
            self.alu(("min", "max", "add", "shr", "mul").index(name.removeprefix("alu_")), f)

    # -- DRAM

    def scalar(self, number: int, size: int, signed: bool) -> int:
        at = number * size - self.base
        return int.from_bytes(self.image[at : at + size], "little", signed=signed)

    def load(self, what: str, f: Fields) -> None:
        sort = "acc" if what == "acc_8bit" else what
        size = 1 if what == "acc_8bit" else BYTES[sort]
        if f["x_size"] == 0 and self.behaviour == "fsim":
            return
        place = f["sram_base"]
        for row, advance in self.rows(sort, f):
            for n, element in enumerate(row):
                for lane in range(SCALARS[sort]):
                    value = 0 if element is None else self.scalar(element * SCALARS[sort] + lane, size, sort != "uop")
                    self.memory[sort][(place + n) * SCALARS[sort] + lane] = value
            place += advance

    def rows(self, sort: str, f: Fields) -> Iterator[tuple[list[int | None], int]]:
        """Yield each row that is written (a DRAM element, or None for a zero), and how far the next one is from it."""
        pads = sort in {"fsim": ("uop", "wgt", "inp", "acc"), "hls": ("inp", "acc"), "ila": ("inp",)}[self.behaviour]
        width = f["x_pad_0"] + f["x_size"] + f["x_pad_1"] if pads else f["x_size"]
        nothing: list[int | None] = [None] * width
        for _ in range(f["y_pad_0"] if pads else 0):
            yield nothing, width
        count = 1 if sort == "uop" and self.behaviour != "fsim" else self.times(f["y_size"])
        for y in range(count):
            first = f["dram_base"] + y * f["x_stride"]
            data: list[int | None] = list(range(first, first + f["x_size"]))
            is_short = self.behaviour == "ila" and y < count - 1
            yield [None] * f["x_pad_0"] + data + [None] * f["x_pad_1"] if pads else data, f["x_size"] if is_short else width
        for _ in range(f["y_pad_1"] if pads else 0):
            yield nothing, width

    def times(self, n: int) -> int:
        """Return how often a loop runs: at least once in the published ILA."""
        return max(n, 1) if self.behaviour == "ila" else n

    def store(self, f: Fields) -> None:
        for y in range(f["y_size"]):
            for x in range(f["x_size"]):
                for lane in range(BLOCK):
                    source = (f["sram_base"] + y * f["x_size"] + x) * BLOCK + lane
                    value = self.memory["acc"][source] if self.behaviour == "fsim" else self.out[source]
                    number = (f["dram_base"] + y * f["x_stride"] + x) * BLOCK + lane
                    self.image[number - self.base] = value & 255

    # -- compute

    def micro_ops(self, f: Fields) -> Iterator[tuple[int, int, int]]:
        for y in range(self.times(f["iter_out"])):
            for x in range(self.times(f["iter_in"])):
                for k in range(f["uop_bgn"], f["uop_bgn"] + self.times(f["uop_end"] - f["uop_bgn"])):
                    u = self.memory["uop"][k]
                    parts = (u & 2047, u >> 11 & 2047, u >> 22)
                    dst, src, wgt = (
                        p + y * f.get(f"{n}_factor_out", 0) + x * f.get(f"{n}_factor_in", 0)
                        for p, n in zip(parts, ("dst", "src", "wgt"), strict=True)
                    )
                    yield dst, src, wgt

    def gemm(self, f: Fields) -> None:
        acc, inp, weights = (self.memory[n] for n in ("acc", "inp", "wgt"))
        for dst, src, wgt in self.micro_ops(f):
            for o in range(BLOCK):
                dot = sum(inp[src * BLOCK + c] * weights[(wgt * BLOCK + o) * BLOCK + c] for c in range(BLOCK))
                total = wrapped(acc[dst * BLOCK + o] + dot, 32)
                self.out[dst * BLOCK + o] = wrapped(total, 8)
                acc[dst * BLOCK + o] = 0 if f["reset"] else total

    def alu(self, operation: int, f: Fields) -> None:
        acc = self.memory["acc"]
        for dst, src, _ in self.micro_ops(f):
            for lane in range(BLOCK):
                a = acc[dst * BLOCK + lane]
                b = f["imm"] if f["use_imm"] else acc[src * BLOCK + lane]
                result = wrapped(self.value(operation, a, b), 32)
                acc[dst * BLOCK + lane] = result
                self.out[dst * BLOCK + lane] = wrapped(result, 8)

    def value(self, operation: int, a: int, b: int) -> int:
        if operation == SHR:
            amount = b if self.behaviour == "fsim" else wrapped(b, 5)
            return a >> amount if amount >= 0 else a << -amount
        return {MIN: min(a, b), MAX: max(a, b), ADD: a + b, MUL: a * b}[operation]
