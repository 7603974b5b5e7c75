"""GeneSys blocks: the groups of a block, and what its end runs: load, systolic tile, SIMD program, tile by tile."""

from __future__ import annotations

from functools import partial

from rewrite_compiler.ila import Fields, Ila
from rewrite_compiler.lang import Expr, Step, assign, cases, loop, require, select, seq, when

from .config import Config
from .simd import configuration_pass, program_pass, start_program
from .simd_transfers import tiles
from .systolic import TILE, Tile, start_group, zero
from .words import BLOCK, OPCODE, SYNC, SYSTOLIC

NO_UNIT = 0  # else the unit and one


def declare_groups(m: Ila) -> None:
    """Declare what is known of the groups of a block."""
    m.register("open_unit", 2, doc="The group that is open: 1 systolic, 2 SIMD, 0 none.")
    m.register("systolic_ready", 1, doc="The block has a systolic group.")
    m.register("simd_ready", 1, doc="The block has a SIMD group.")
    m.register("tile", 32, doc="Tiles of the block that the SIMD array has done.")


def declare_block(m: Ila, c: Config) -> None:
    """Declare the start and end of groups and of blocks."""
    doc = "Start or end a group of instructions; the end of a buffer's use has no effect here."
    m.encoded("sync_inst", {"opcode": OPCODE, **SYNC[c.sync]}, {"opcode": 10}, partial(_sync, m), doc=doc)
    m.encoded("block_end", {"opcode": OPCODE, **BLOCK}, {"opcode": 11, "reserved": 0}, partial(_block_end, m, c),
              doc="Run the groups of the block.")  # fmt: skip


def _sync(m: Ila, f: Fields) -> Step:
    starts = cases(f.unit, {SYSTOLIC: start_group(m), 1 - SYSTOLIC: start_program(m)})
    started = seq(starts, assign(m.s.open_unit, f.unit + 1))
    ready = cases(f.unit, {SYSTOLIC: assign(m.s.systolic_ready, 1), 1 - SYSTOLIC: assign(m.s.simd_ready, 1)})
    ended = seq(
        require(m.r.open_unit == f.unit + 1, "I102", "a group must be started before it ends", always=True),
        ready,
        assign(m.s.open_unit, NO_UNIT),
    )
    checks = [zero(f, name, "sync_inst") for name in f if name.startswith("reserved")]
    return seq(*checks, when(f.kind == 0, when(f.phase == 0, started, ended)))


def _block_end(m: Ila, c: Config, f: Fields) -> Step:
    """Run all tiles; the SIMD program runs where a tile's sums are complete, or by its own loops without a systolic group."""
    repeats = select(m.r.systolic_ready, 1, tiles(m))

    def tile(*indices: Expr) -> Step:
        t = Tile(m, c, indices)
        program = loop(repeats, lambda _: seq(program_pass(m, c, m.r.tile), assign(m.s.tile, (m.r.tile + 1) % (1 << 32))))
        return seq(when(m.r.systolic_ready, t.run()), when(m.r.simd_ready & t.is_last, program))

    closed = require(m.r.open_unit == NO_UNIT, "I102", "a block must not end inside of a group", always=True)
    known = require(f.last <= 1, "I102", "the mark of the last block must be 0 or 1, not {mark}", always=True, mark=f.last)
    return seq(
        closed,
        known,
        assign(m.s.tile, 0),
        when(m.r.simd_ready & (1 - m.r.systolic_ready), configuration_pass(m, c)),
        loop([m.s.loop_count[n] for n in TILE], tile),
        start_group(m),
        assign(m.s.systolic_ready, 0),
        assign(m.s.simd_ready, 0),
        when(f.last == 1, assign(m.s.done, 1)),
    )
