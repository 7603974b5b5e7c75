"""A convolution as the HLSCNN specification prints it: section 5.1 loop by loop, on plain Python integers.

It shares nothing with the model. Memories are bytearrays; addresses wrap at their ends, as the model states it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Design:
    """What section 2 says of one revision."""

    weight_bits: int = 8
    act_int_bits: int = 9
    psum_int_bits: int = 16
    grouped: bool = True
    unified: bool = False
    spad_bytes: int = 0x7F_C000
    spad1_base: int = 0x80_0000
    filter_mask: int = 0x7FF
    channel_mask: int = 0x7FF


EXT16 = Design(weight_bits=16)
SMALL = {"spad_bytes": 0x2_0000, "spad1_base": 0x2_4000}
DESIGNS = {
    "orig": Design(grouped=False, filter_mask=0xFF, channel_mask=0xFFF, **SMALL),
    "ext8": Design(),
    "ext16": EXT16,
    "uni16": replace(EXT16, unified=True, **SMALL),
    "ext16_a3p16": replace(EXT16, act_int_bits=3),
    "ext16_a3p8": replace(EXT16, act_int_bits=3, psum_int_bits=8),
}


@dataclass(frozen=True)
class Layer:
    """The configuration registers of one convolution."""

    rows: int
    cols: int
    channels: int
    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    out: tuple[int, int] = (0, 0)
    act_base: int = 0
    weight_base: int = 0x4000
    output_base: int = 0
    bias: int | None = None
    relu: bool = False
    accumulate: bool = False


def sat16(x: int) -> int:
    return max(-0x8000, min(0x7FFF, x))


def word(memory: bytearray, address: int) -> int:
    low, high = memory[address % len(memory)], memory[(address + 1) % len(memory)]
    return int.from_bytes(bytes((low, high)), "little", signed=True)


def store(memory: bytearray, address: int, value: int) -> None:
    for n, byte in enumerate(value.to_bytes(2, "little", signed=True)):
        memory[(address + n) % len(memory)] = byte


def dot(d: Design, weights: list[int], activations: list[int]) -> int:
    """Section 6.2."""
    act, psum = 16 - d.act_int_bits, 32 - d.psum_int_bits
    lost = 14 + act - psum
    p = 0
    for w, a in zip(weights, activations, strict=True):
        p = ((p << lost) + w * a) >> lost
    assert -(1 << 31) <= p < 1 << 31
    return sat16((p + (1 << psum - act - 1)) >> psum - act)


def accumulated(d: Design, layer: Layer, q: int, base: int, is_last: bool) -> int:
    """Section 6.3."""
    act, psum = 16 - d.act_int_bits, 32 - d.psum_int_bits
    t = (q + base) << psum - act
    if is_last and layer.bias is not None:
        t += layer.bias << psum - 14
    if is_last and layer.relu:
        t = max(t, 0)
    return sat16(t >> psum - act)


def convolve(d: Design, layer: Layer, soc: bytearray, spad0: bytearray, spad1: bytearray) -> None:
    """Run one convolution; `spad1` is changed in place."""
    filters, channels = layer.filters & d.filter_mask, layer.channels & d.channel_mask
    blocks = -(-channels // 8)
    (rs, cs), (kernel_rows, kernel_cols) = layer.stride, layer.kernel
    source, act_base = (spad1, layer.act_base - d.spad1_base) if d.unified else (soc, layer.act_base)
    for f in range(filters):
        for block in range(blocks):
            for r in range(layer.rows):
                for c in range(layer.cols):
                    pixel = act_base + ((block * layer.rows + r) * layer.cols + c) * 16
                    a = [word(source, pixel + 2 * lane) for lane in range(8)]
                    for kr in range(r % rs, kernel_rows, rs):
                        for kc in range(c % cs, kernel_cols, cs):
                            at = address_of(d, layer, filters, f, (r, c), (kr, kc))
                            if at is None:
                                continue
                            tap = ((f * blocks + block) * kernel_rows + kr) * kernel_cols + kc
                            q = dot(d, weights(d, layer, spad0, tap), a)
                            is_first = block == 0 and kr == 0 and kc == 0
                            is_last = (block, kr, kc) == (blocks - 1, kernel_rows - 1, kernel_cols - 1)
                            base = 0 if is_first and not layer.accumulate else word(spad1, at)
                            put(d, spad1, at, accumulated(d, layer, q, base, is_last))


def weights(d: Design, layer: Layer, spad0: bytearray, tap: int) -> list[int]:
    """Section 5.3: eight lanes; an 8-bit weight is the top byte of a 16-bit one."""
    if d.weight_bits == 16:
        base = layer.weight_base - 0x4000 if d.unified else 0
        return [word(spad0, base + 16 * tap + 2 * lane) for lane in range(8)]
    lanes = [spad0[(8 * tap + lane) % len(spad0)] for lane in range(8)]
    return [(x - 256 if x > 127 else x) << 8 for x in lanes]


def address_of(d: Design, layer: Layer, filters: int, f: int, pixel: tuple[int, int], tap: tuple[int, int]) -> int | None:
    """Sections 5.2 and 5.3: the byte of SPAD1 where the output of this tap lies, if it has one."""
    (r, c), (kr, kc), (rs, cs) = pixel, tap, layer.stride
    if not d.grouped:
        row, col = r - kr + layer.kernel[0] // 2, c - kc + layer.kernel[1] // 2
        if not (0 <= row < layer.rows and 0 <= col < layer.cols):
            return None
        return ((f * layer.rows + row) * layer.cols + col) * 16 + (filters - 1) % 8 * 2
    if r < kr or c < kc:
        return None
    row, col = (r - kr) // rs, (c - kc) // cs
    if row >= layer.out[0] or col >= layer.out[1]:
        return None
    base = layer.output_base - d.spad1_base if d.unified else 0
    return base + ((f // 8 * layer.out[0] + row) * layer.out[1] + col) * 16 + f % 8 * 2


def put(d: Design, spad1: bytearray, at: int, value: int) -> None:
    """Write an output; a design without groups clears the other lanes of the vector."""
    if not d.grouped:
        for lane in range(8):
            store(spad1, at // 16 * 16 + 2 * lane, 0)
    store(spad1, at, value)
