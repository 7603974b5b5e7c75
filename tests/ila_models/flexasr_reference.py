"""FlexASR's Control engine, cores and activation units in plain Python, written from the specification (sections 5 to 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
PES, LANES = 4, 16
SIGMOID = ((155, 130, 92, 58, 34, 19, 10, 6), (513, 668, 798, 890, 948, 982, 1001, 1012))
TANH = (
    (251, 224, 177, 129, 88, 57, 37, 23, 14, 9, 5, 3, 0, 0, 0, 0),
    (1, 252, 476, 653, 783, 871, 928, 965, 988, 1002, 1011, 1016, 0, 0, 0, 0),
)


@dataclass(frozen=True)
class Manager:
    """Section 3.5."""

    zero_active: int
    bias_w: int
    bias_b: int
    bias_i: int
    num_input: int
    base_weight: int
    base_bias: int
    base_input: int


@dataclass(frozen=True)
class Element:
    """Sections 3.4 to 3.6 of one processing element, and its program."""

    zero_first: int
    cluster: int
    bias: int
    num_output: int
    managers: tuple[Manager, ...]
    act_zero_first: int
    act_bias: int
    act_outputs: int
    buffer_base: int
    output_base: int
    program: tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """Section 3.3 of the Control engine, and the memory managers of sections 3.1 and 3.2."""

    mode: int
    is_rnn: int
    index_1: int
    index_2: int
    vectors_1: int
    vectors_2: int
    timesteps: int
    large: tuple[tuple[int, int], ...]  # vectors and base of each manager
    small: tuple[int, ...]
    elements: tuple[Element, ...]


def wrap(x: int, bits: int) -> int:
    return (x + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def mantissa(code: int) -> int:
    """D of section 7.1."""
    exponent, fraction = code >> 4 & 7, code & 15
    value = 0 if code & 0x7F == 0 else 16 + fraction << exponent
    return -value if code & 0x80 else value


def fixed(code: int, bias: int) -> int:
    return mantissa(code) << bias


def encode(x: int, bias: int, fraction: int = 14) -> int:
    """Section 7.3: half goes toward +∞."""
    if x == 0:
        return 0
    size, sign = abs(x), 0x80 if x < 0 else 0
    e = size.bit_length() - 1
    if e > 4:
        unit = 1 << e - 4
        m, rest = divmod(size, unit)
        m += 2 * rest > unit or (2 * rest == unit and not sign)
    else:
        m = size << 4 - e
    if m == 32:
        m, e = 16, e + 1
    exponent = e - fraction - bias + 10
    if exponent < 0:
        return 0
    return sign | 0x7F if exponent > 7 else sign | exponent << 4 | m - 16


def sigmoid(x: int) -> int:
    u = abs(x)
    s = (u * 819 >> 13) & 0x3FFF
    y = (SIGMOID[0][s >> 10 & 7] * (s & 1023) + (SIGMOID[1][s >> 10 & 7] << 10)) % (1 << 20)
    y = (1 << 20) - 1 if u >= 81920 else y
    return ((1 << 20) - y if x < 0 else y) % (1 << 20) >> 6


def tanh(x: int) -> int:
    u = abs(x)
    s = (u >> 2) & 0x3FFF
    y = TANH[0][s >> 10] * (s & 1023) + (TANH[1][s >> 10] << 10)
    y = (1 << 20) - 1 if u >= 49152 else y
    return (-y if x < 0 else y) >> 6


class Machine:
    """The memories and what a Control start does to them; all indices wrap as the hardware's do."""

    def __init__(self, memories: dict[str, Array]) -> None:
        self.m = {name: x.astype(np.int64) for name, x in memories.items()}

    def large(self, layer: Layer, index: int, t: int, v: int) -> Array:
        vectors, base = layer.large[index % 4]
        row: Array = self.m["large"][(base + t % 16 + (t // 16 * vectors + v) * 16) % 65536]
        return row

    def small(self, layer: Layer, index: int, v: int) -> Array:
        row: Array = self.m["small"][(layer.small[index] + v) % 1024]
        return row

    def control(self, layer: Layer) -> None:
        for k in range(layer.timesteps):
            ti = (k, 2 * k, 2 * (layer.timesteps - k) - 1, 0)[layer.mode]
            t_in = ti >> 1 if layer.mode in (1, 2) else ti
            for v in range(layer.vectors_1):
                x = self.small(layer, layer.index_1, v) if layer.mode == 3 else self.large(layer, layer.index_1, t_in, v)
                for pe, e in enumerate(layer.elements):
                    self.m["input_buffer"][pe, (e.managers[0].base_input + v) % 256] = x
            for pe in range(PES):
                for a, y in self.element(pe, layer.elements[pe], k == 0):
                    place = self.small(layer, layer.index_2, a) if layer.mode == 3 else self.large(layer, layer.index_2, ti, a)
                    place[:] = y
            for v in range(layer.vectors_2 if layer.is_rnn else 0):
                x = self.small(layer, layer.index_2, v) if layer.mode == 3 else self.large(layer, layer.index_2, ti, v)
                for pe, e in enumerate(layer.elements):
                    self.m["input_buffer"][pe, (e.managers[1].base_input + v) % 256] = x

    def weight(self, pe: int, e: Element, m: int, tile: int, row: int, column: int) -> int:
        at, rows = e.managers[m].base_weight, self.m["weight"][pe]
        if not e.cluster:
            return int(rows[(at + tile * 16 + row) % 65536, column])
        byte = 8 * row + column // 2
        packed = int(rows[(at + tile * 8 + byte // 16) % 65536, byte % 16])
        return int(self.m["cluster_table"][pe, m, packed >> 4 * (column % 2) & 15])

    def core(self, pe: int, e: Element, o: int, m: int, is_first: bool) -> list[int]:
        c, inputs = e.managers[m], self.m["input_buffer"][pe]
        found = []
        for r in range(LANES):
            acc = 0
            for i in range(0 if c.zero_active and e.zero_first and is_first else c.num_input):
                x = inputs[(c.base_input + i) % 256]
                acc += sum(mantissa(self.weight(pe, e, m, o * c.num_input + i, r, j)) * mantissa(int(x[j])) for j in range(LANES))
            s = wrap(acc, 32) >> 14 - c.bias_w - c.bias_i
            s += fixed(int(inputs[(c.base_bias + o) % 256, r]), c.bias_b) if e.bias else 0
            found.append(max(-524287, min(524287, s)))
        return found

    def element(self, pe: int, e: Element, is_first: bool) -> list[tuple[int, list[int]]]:
        """Run the activation program; return what is sent to the global buffer."""
        results = iter([(o, m) for o in range(e.num_output) for m in range(len(e.managers))])
        sent, regs = [], self.m["act_regs"][pe]
        for oc in range(e.act_outputs):
            slot = self.m["act_buffer"][pe, (oc + e.buffer_base) % 32]
            for code in e.program:
                op, a2, a1 = code >> 4, code >> 2 & 3, code & 3
                if op == 2:
                    slot[:] = [encode(int(x), e.act_bias) for x in regs[a2]]
                elif op == 3:
                    regs[a2] = self.core(pe, e, *next(results), is_first)
                elif op == 4:
                    sent.append(((oc + e.output_base) % 256, [encode(int(x), e.act_bias) for x in regs[a2]]))
                else:
                    regs[a2] = [self.operated(op, e, is_first, *map(int, x)) for x in zip(regs[a2], regs[a1], slot, strict=True)]
        return sent

    @staticmethod
    def operated(op: int, e: Element, is_first: bool, second: int, first: int, kept: int) -> int:
        table = {
            0x1: lambda: 0 if e.act_zero_first and is_first else fixed(kept, e.act_bias),
            0x7: lambda: first,
            0x8: lambda: wrap(first + second, 20),
            0x9: lambda: wrap(first * second >> 14, 20),
            0xA: lambda: sigmoid(second),
            0xB: lambda: tanh(second),
            0xC: lambda: max(second, 0),
            0xD: lambda: wrap(16384 - second, 20),
        }
        return table[op]() if op in table else second
