"""GeneSys's SIMD array: its instructions, which a group collects as a program and a block runs once a tile."""

from __future__ import annotations

from rewrite_compiler.ila import Bits, Fields, Ila
from rewrite_compiler.lang import Expr, Step, assign, cases, extract, lift, loop, require, seq, update, when

from .config import Config
from .functions import ALU, functions
from .simd_body import Body, declare_nest
from .simd_transfers import SimdTransfer, declare_transfers
from .words import DTYPE, FUNCTION, ITERATOR, LEVEL, OPCODE, OPERANDS, PERMUTATION, SIMD_TRANSFER, Layout, fields_of, with_half

DTYPE_CFG, TRANSFERS, ITERATORS, NEST, PERMUTATIONS = 4, 5, 6, 7, 8
NOP = 15
CONFIGURED = ("config_base_addr", "config_base_loop_iter", "config_base_loop_stride", "config_tile_loop_iter",
              "config_tile_loop_stride", "start", "config_tile_addr")  # fmt: skip
PARTS = ("sign_ext", "low", "high", "zerofill")
IMMEDIATES = {8: "set_imm_low", 9: "set_imm_high", 10: "imm_sign_ext"}
PERMUTED = ("permute_set_base_addr", "permute_set_loop_iter", "permute_set_loop_stride", "permute_start")


def declare_simd(m: Ila, c: Config) -> None:
    """Declare the collected program, the configuration, and the instructions."""
    m.register("simd_word", 32, shape=(c.simd_instructions,), doc="The program of the SIMD group.")
    m.register("simd_count", c.simd_instructions.bit_length(), doc="Instructions of the program.")
    m.register("type", 3, doc="Number type: 32, 16, 8 bits fixed point, or float.")
    m.register("integer_bits", 8, shape=(3,), doc="Integer bits of destination and sources.")
    declare_nest(m)
    declare_transfers(m)
    for opcode, table in functions(c.calculus).items():
        for number, (name, _) in table.items():
            _declare(m, c, name, opcode, number, OPERANDS, f"Apply {name} to both sources in every lane.")
    _declare(m, c, "nop", ALU, NOP, OPERANDS, "Do nothing.")
    _declare(m, c, "dtype_cfg", DTYPE_CFG, None, DTYPE, "Set the number type and the integer bits of the operands.")
    for first, side in ((0, "ld"), (8, "st")):
        for n, name in enumerate(CONFIGURED):
            _declare(m, c, f"{side}_{name}", TRANSFERS, first + n, SIMD_TRANSFER, f"{name.replace('_', ' ').capitalize()} ({side}).")
    for first, what in ((0, "base"), (4, "stride")):
        for n, part in enumerate(PARTS):
            _declare(m, c, f"{what}_{part}", ITERATORS, first + n, ITERATOR, f"Set the {what} of an iterator ({part}).")
    for n, name in IMMEDIATES.items():
        _declare(m, c, name, ITERATORS, n, ITERATOR, f"Set a scalar ({name}).")
    _declare(m, c, "set_index", NEST, 0, OPERANDS, "Name the iterators of the operands at the present level of the nest.")
    _declare(m, c, "set_iter", NEST, 1, LEVEL, "Begin a level of the nest with its iterations.")
    _declare(m, c, "set_inst", NEST, 2, LEVEL, "Close the nest: the next instruction is its body.")
    for n, name in enumerate(PERMUTED):
        _declare(m, c, name, PERMUTATIONS, n, PERMUTATION, "Part of a permutation, which is not modelled.")


def start_program(m: Ila) -> Step:
    """Return the step that forgets an earlier group's program and its transfers' loops."""
    counts = [update(m.s[name], (2, 4, 32), lambda d, s, n: ((d, s, n), 1)) for name in ("base_count", "tile_count")]
    strides = [update(m.s[name], (2, 4, 32), lambda d, s, n: ((d, s, n), 0)) for name in ("base_stride", "tile_stride")]
    return seq(assign(m.s.simd_count, 0), *counts, *strides)


def _declare(m: Ila, c: Config, name: str, opcode: int, function: int | None, layout: Layout, doc: str) -> None:
    """Add an instruction that joins the program; `function` is None where these bits are an operand."""
    reserved = _reserved_bits(layout, function)
    fixed = {"opcode": opcode, **({} if function is None else {"function": function}), **dict.fromkeys(reserved, 0)}
    places = {"opcode": OPCODE, "function": FUNCTION, **layout, **reserved}

    def collect(f: Fields) -> Step:
        word = lift(sum(value << places[key].low for key, value in fixed.items()))
        for key in f:
            word = word + (f[key] << layout[key].low)
        return _collected(m, c, name, word, f)

    m.encoded(name, {k: b for k, b in places.items() if k != "function" or function is not None}, fixed, collect, doc=doc)


def _reserved_bits(layout: Layout, function: int | None) -> dict[str, Bits]:
    """Return fields of the bits below the function that the layout does not use: they must be 0."""
    used = {n for bits in layout.values() for n in range(bits.low, bits.high + 1)}
    top = FUNCTION.low if function is not None else OPCODE.low
    return {f"unused_{n}": Bits(n, n) for n in range(top) if n not in used}


def _collected(m: Ila, c: Config, name: str, word: Expr, f: Fields) -> Step:
    n = m.r.simd_count
    room = require(n < c.simd_instructions, "I103", f"a SIMD group has at most {c.simd_instructions} instructions", always=True)
    is_open = require(m.r.open_unit == 2, "I102", f"{name} must stand in a SIMD group: after its SYNC_INST START", always=True)
    steps = [require(f.reserved == 0, "I102", f"the reserved bits of {name} must be 0, not {{bits}}", always=True, bits=f.reserved)] \
        if "reserved" in f else []  # fmt: skip
    at = n % c.simd_instructions
    return seq(is_open, room, *steps, assign(m.s.simd_word, word, at), assign(m.s.simd_count, at + 1))


# -- running the program


def configuration_pass(m: Ila, c: Config) -> Step:
    """Return the step that executes the program's configuration only: how often a block runs it is known then."""
    return loop(m.r.simd_count, lambda k: _execute(m, c, m.s.simd_word[k % c.simd_instructions], None))


def program_pass(m: Ila, c: Config, tile: Expr) -> Step:
    """Return the step that executes the program on the tile of a number."""
    return loop(m.r.simd_count, lambda k: _execute(m, c, m.s.simd_word[k % c.simd_instructions], tile))


def _execute(m: Ila, c: Config, word: Expr, tile: Expr | None) -> Step:
    """Return the step of one word; without a tile, only of its configuration."""
    opcode, function = extract(word, OPCODE.low, OPCODE.width), extract(word, FUNCTION.low, FUNCTION.width)
    configured = {
        DTYPE_CFG: _types(m, fields_of(word, DTYPE)),
        ITERATORS: _iterators(m, function, fields_of(word, ITERATOR)),
        NEST: _nest(m, function, word),
        TRANSFERS: SimdTransfer(m, c, function, fields_of(word, SIMD_TRANSFER)).step(tile),
    }
    if tile is None:
        return cases(opcode, configured)
    refused = require(0, "I101", "a permutation is not modelled", always=True)
    body = Body(m, c, opcode, function, fields_of(word, OPERANDS)).step()
    applies = (opcode <= 3) & ((opcode != ALU) | (function != NOP))
    return when(applies, body, cases(opcode, {**configured, PERMUTATIONS: refused}))


def _types(m: Ila, f: Fields) -> Step:
    bits = [assign(m.s.integer_bits, f[name], n) for n, name in enumerate(("dst", "src1", "src2"))]
    known = require(f.type <= 2, "I101", "number type {type} of dtype_cfg is not modelled: only fixed point is", always=True, type=f.type)
    return seq(known, assign(m.s.type, f.type % 8), *bits)


def _iterators(m: Ila, function: Expr, f: Fields) -> Step:
    s, place = m.s, (f.space, f.index)
    steps: dict[int, Step] = {}
    for first, state in ((0, s.iterator_base), (4, s.iterator_stride)):
        old = state[place]
        values = (_sign_extended(f.immediate), with_half(old, lift(0), f.immediate), with_half(old, lift(1), f.immediate), f.immediate)
        steps |= {first + n: assign(state, value, *place) for n, value in enumerate(values)}
    imm = s.imm[f.index]
    scalars = (with_half(imm, lift(0), f.immediate), with_half(imm, lift(1), f.immediate), _sign_extended(f.immediate))
    steps |= {number: assign(s.imm, value, f.index) for number, value in zip(IMMEDIATES, scalars, strict=True)}
    return cases(function, steps)


def _sign_extended(immediate: Expr) -> Expr:
    return immediate - 2 * (immediate // (1 << 15)) * (1 << 15)


def _nest(m: Ila, function: Expr, word: Expr) -> Step:
    s, operands, level = m.s, fields_of(word, OPERANDS), fields_of(word, LEVEL)
    present = (m.r.nest_depth + 7) % 8
    named = [
        step
        for n, name in enumerate(("dst", "src1", "src2"))
        for step in (
            assign(s.nest_space, operands[f"{name}_space"], n, present),
            assign(s.nest_index, operands[f"{name}_index"], n, present),
        )
    ]
    begun = seq(assign(s.nest_count, level.immediate, level.level), assign(s.nest_depth, level.level + 1))
    one = require(level.immediate == 1, "I101", "a nest must have a body of 1 instruction, not {count}", always=True, count=level.immediate)
    return cases(function, {0: seq(*named), 1: begun, 2: one})
