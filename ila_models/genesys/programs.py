"""GeneSys programs: the words of blocks from what their groups do, the systolic array by loops and transfers, the SIMD array by nests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .systolic import OWN_LOOPS
from .words import SPACES

Word = tuple[str, dict[str, int]]
Loops = Sequence[tuple[int, int]]  # iterations and stride in bytes of each, the outermost first
ELEMENT_BITS = 32  # of a vector memory
AT_ONCE = 3  # inner loops of a nest, whose rows the array works on at once


@dataclass(frozen=True)
class Operand:
    """Rows of a space: the first one, and how many rows further each loop of a nest goes; of scalars, one."""

    space: str
    row: int = 0
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Nest:
    """One operation of the SIMD array inside of loops, the outermost first."""

    name: str
    counts: tuple[int, ...]
    target: Operand
    a: Operand
    b: Operand


class Program:
    """Collects words."""

    def __init__(self) -> None:
        """Begin without words."""
        self.words: list[Word] = []

    def emit(self, name: str, **fields: int) -> None:
        """Append one word."""
        self.words.append((name, fields))

    def halves(self, name: str, value: int, **fields: int) -> None:
        """Append the words that set both halves of a value."""
        for half in (0, 1):
            self.emit(name, **fields, half=half, immediate=value >> 16 * half & 0xFFFF)

    def begin(self, unit: int) -> None:
        """Begin a group of a unit, which has the words that follow."""
        self.emit("sync_inst", unit=unit, phase=0)

    def end(self, unit: int) -> None:
        """End the group of a unit."""
        self.emit("sync_inst", unit=unit, phase=1)

    # -- the systolic array

    def loops(self, counts: Mapping[int, int]) -> None:
        """Set the iterations of loops."""
        for loop, iterations in counts.items():
            self.emit("sa_loop_cfg", loop=loop, count=iterations - 1)

    def strides(self, access: int, buffer: int, strides: Mapping[int, int]) -> None:
        """Set the strides of loops that are not 0: in bytes of transfers, else in rows."""
        for loop, value in strides.items():
            if value:
                self.halves("set_loop_stride", value, access=access, buffer=buffer, loop=loop)

    def transfer(self, access: int, buffer: int, tiles: Mapping[int, int], size: int, requests: Loops = ()) -> None:
        """Append a transfer of a tile: strides of the loops of tiles, bytes a bank of a request, and the loops of its requests."""
        own, _ = OWN_LOOPS[access, buffer]
        counted = dict(zip(own[1:], requests, strict=False))
        self.strides(access, buffer, {**tiles, **{loop: stride for loop, (_, stride) in counted.items()}})
        self.loops({loop: iterations for loop, (iterations, _) in counted.items()})
        self.emit("ld_st", direction=access, buffer=buffer, loop=own[-1], size=size)

    # -- the SIMD array

    def move(self, side: str, space: str, size: int, *, address: int = 0, row: int = 0, tiles: Loops = (), requests: Loops = ()) -> None:
        """Append a transfer of consecutive rows ("ld" or "st"): bytes a lane of a request, the first address and row, loops over tiles."""
        at = {"space": SPACES[space]}
        for part, first, loops in (("base", address, tiles), ("tile", row, requests)):
            self.halves(f"{side}_config_{part}_addr", first, **at)
            for loop, (iterations, stride) in enumerate(loops):
                self.emit(f"{side}_config_{part}_loop_iter", **at, loop=loop, immediate=iterations - 1)
                self.halves(f"{side}_config_{part}_loop_stride", stride, **at, loop=loop)
        self.emit(f"{side}_start", **at, loop=ELEMENT_BITS - 1, immediate=size)
        self.emit("nop")

    def nest(self, n: Nest) -> None:
        """Append a nest: every operand has an iterator for each loop; outer loops of one iteration are left out."""
        inner = len(n.counts) - AT_ONCE
        levels = []
        for level, count in enumerate(n.counts):
            if count > 1 or level >= inner:
                levels.append((count, self._iterators(n, level)))
        for at, (count, places) in enumerate(levels):
            self.emit("set_iter", level=at, immediate=count)
            self.emit("set_index", **places)
        self.emit("set_inst", level=1, immediate=1)
        self.emit(n.name, **places)

    def _iterators(self, n: Nest, level: int) -> dict[str, int]:
        """Append what sets the iterators of a loop; return the fields that name them."""
        fields: dict[str, int] = {}
        for k, (role, operand) in enumerate({"dst": n.target, "src1": n.a, "src2": n.b}.items()):
            space, index, stride = SPACES[operand.space], 8 * k + level, (*operand.strides, *(0,) * 8)[level]
            self.emit("base_zerofill", space=space, index=index, immediate=operand.row)
            self.emit("stride_zerofill", space=space, index=index, immediate=stride)
            fields |= {f"{role}_space": space, f"{role}_index": index}
        return fields
