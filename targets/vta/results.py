"""How VTA's accumulators leave the device: byte by byte, because STORE keeps the low bits of an accumulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rewrite_compiler.ila_models.vta.config import Config
from rewrite_compiler.target import StreamedDevice, join_bytes

from .base import Codes

BYTE = 8


def factors(name: str, outer: int, inner: int) -> dict[str, int]:
    """Return the factors of one operand in both loops."""
    return {f"{name}_factor_out": int(outer), f"{name}_factor_in": int(inner)}


def grid(rows: int, columns: int) -> dict[str, int]:
    """Return the loops over accumulators, rows outer; a loop of one iteration needs no factor."""
    return {"iter_out": rows, "iter_in": columns, **factors("dst", rows > 1 and columns, columns > 1)}


@dataclass(frozen=True)
class Region:
    """Rows of accumulator elements, and where they go: first element in DRAM, elements from row to row."""

    rows: int
    count: int
    first: int
    stride: int
    start: int = 0  # the first accumulator


def store_bytes(device: StreamedDevice, c: Config, region: Region, loops: Mapping[str, int], plane: int, count: int = 0) -> None:
    """Store the lowest byte of every accumulator, shift the next one down, and so on; byte n goes `n · plane` elements further.

    `count` bytes hold the results where they need less than an accumulator.
    """
    for n in range(count or planes(c)):
        if n:
            device.issue("alu_shr", uop_end=1, **loops, use_imm=1, imm=BYTE, pop_next=1, push_next=1)
        device.issue(
            "store", sram_base=region.start, dram_base=region.first + n * plane, y_size=region.rows, x_size=region.count,
            x_stride=region.stride, pop_prev=1, push_prev=1,
        )  # fmt: skip
    device.issue("finish", pop_next=1)


def planes(c: Config) -> int:
    """Return the bytes of an accumulator."""
    return c.width("acc") // BYTE


def fetch_words(device: StreamedDevice, c: Config, at: int, elements: int, count: int = 0) -> Codes:
    """Return accumulators [(samples,) scalars] from their stored bytes."""
    size, stored = elements * c.scalars("acc"), count or planes(c)
    bytes_of = device.fetch("dram", at, stored * size)
    return join_bytes(bytes_of.reshape(*bytes_of.shape[:-1], stored, size).swapaxes(-2, -1))
