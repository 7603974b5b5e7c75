"""Specifications that are wrong in one way each, ten of every kind: the sentence, the file and line, the instruction and a witness."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rewrite_compiler.errors import FlexmatchError, Problem
from rewrite_compiler.ila import DATA, Bits, Bus, Ila, Match, mmio
from rewrite_compiler.ila.verification.check import check
from rewrite_compiler.lang import (
    NOTHING,
    Array,
    Expr,
    Step,
    array,
    assign,
    fold,
    let,
    loop,
    maximum,
    reduce_max,
    reduce_sum,
    sat,
    select,
    seq,
    together,
    update,
    when,
    wrap,
)
from rewrite_compiler.lang.binders import Leaf, fold_arrays, scalar_array

Build = Callable[[Ila, Bus], object]


def model() -> tuple[Ila, Bus]:
    """Return a model whose states are all driven: control registers, a program, data memories."""
    m = Ila("small", "A model for tests.")
    bus = mmio(m)
    m.register("mode", 2)
    m.register("count", 4)
    m.register("offset", 6, signed=True)
    m.register("program", 5, shape=(8,))
    m.memory("codes", (8, 16), 8)
    m.memory("total", (), 12, signed=True)
    m.memory("row", (16,), 16, signed=True)
    for n, state in enumerate(list(m.states.values())):
        step = assign(state.leaf, 1, *(0 for _ in state.leaf.shape))
        m.instruction(f"drive_{state.name}", bus.write(0x9000 + 16 * n))(lambda step=step: step)
    return m, bus


def run(step: Callable[[Ila], Step]) -> Build:
    return lambda m, bus: m.instruction("run", bus.write(0x10))(lambda: step(m))


def field(low: int, high: int, step: Callable[[Ila, Array], Step], signed: bool = False) -> Build:
    return lambda m, bus: m.instruction("run", bus.write(0x10), {"x": Bits(low, high, signed)})(lambda x: step(m, x))


def both(first: Callable[[Ila, Bus], Match], second: Callable[[Ila, Bus], Match]) -> Build:
    def build(m: Ila, bus: Bus) -> None:
        m.instruction("first", first(m, bus))(lambda **_: NOTHING)
        m.instruction("second", second(m, bus))(lambda **_: NOTHING)

    return build


def addr(m: Ila) -> Expr:
    return m.inputs["addr"][()]


OVERLAPS: dict[str, Build] = {
    "one address in two ranges": both(lambda m, b: b.write_range(0x100, 4), lambda m, b: b.write_range(0x130, 4)),
    "an address inside of a range": both(lambda m, b: b.read_range(0x400, 32), lambda m, b: b.read(0x5F0)),
    "an unaligned address inside of a range": both(lambda m, b: b.write_range(0x400, 2), lambda m, b: b.write(0x41F)),
    "vectors of two lengths": both(lambda m, b: b.write_range(0x100, 4, 32), lambda m, b: b.write_range(0x170, 2)),
    "any write": both(lambda m, b: b.write(0x40), lambda m, b: Match(m.inputs["wr"][()] & (addr(m) < 0x41), {})),
    "bits of an address": both(lambda m, b: Match(m.word("addr", 0, 3) == 5, {}), lambda m, b: Match(m.word("addr", 4, 7) == 6, {})),
    "two modes": both(lambda m, b: b.write(0x20, m.s.mode[()] <= 1), lambda m, b: b.write(0x20, m.s.mode[()] >= 1)),
    "a product": both(lambda m, b: b.write(0x20, m.s.mode[()] * m.s.count[()] > 20), lambda m, b: b.write(0x20, m.s.count[()] == 7)),
    "a byte of the data": both(
        lambda m, b: b.write(0x20, m.word("data", 8, 15) > 9), lambda m, b: b.write(0x20, m.word("data", 0, 15) == 0x0A00)
    ),
    "remainders": both(
        lambda m, b: Match(m.inputs["wr"][()] & (addr(m) % 6 == 1), {}), lambda m, b: Match(m.inputs["wr"][()] & (addr(m) % 4 == 3), {})
    ),
}
WIDTHS: dict[str, Build] = {
    "a sum": run(lambda m: assign(m.s.count, m.s.count[()] + m.s.mode[()])),
    "a field": field(0, 4, lambda m, x: assign(m.s.count, x[()])),
    "a signed field": field(0, 3, lambda m, x: assign(m.s.count, x[()]), signed=True),
    "a product": run(lambda m: assign(m.s.total, m.s.row[3] * m.s.codes[0, 1])),
    "a difference": run(lambda m: assign(m.s.mode, m.s.mode[()] - 1)),
    "a dot product": run(lambda m: assign(m.s.total, reduce_sum(lambda j: m.s.codes[0, j] * m.s.codes[1, j], 16))),
    "a fold": run(lambda m: assign(m.s.total, fold(16, 0, lambda k, t: t + m.s.row[k], (-2048, 2047)))),
    "one choice of two": run(lambda m: assign(m.s.offset, select(m.s.mode[()] == 1, m.s.count[()], m.s.count[()] * 3))),
    "a saturation of another width": run(lambda m: assign(m.s.total, sat(m.s.row[0] * 5, 13))),
    "one update of two": run(lambda m: together(assign(m.s.mode, 1), assign(m.s.offset, m.s.count[()] << 2))),
}
INDICES: dict[str, Build] = {
    "a register": run(lambda m: update(m.s.codes, 16, lambda j: ((m.s.count[()], j), 0))),
    "a sum of two": run(lambda m: assign(m.s.row, 0, m.s.count[()] + m.s.mode[()])),
    "below": run(lambda m: assign(m.s.row, 0, m.s.count[()] - 1)),
    "a signed register": run(lambda m: assign(m.s.row, m.s.row[m.s.offset[()]], 0)),
    "the loop's variable": run(lambda m: loop(9, lambda k: assign(m.s.program, 1, k))),
    "a window": run(lambda m: assign(m.s.total, wrap(reduce_sum(lambda j: m.s.row[j + m.s.mode[()]], 16), 12))),
    "a length in a register": run(lambda m: update(m.s.program, m.s.count[()], lambda j: (j, 0))),
    "a program's element": run(lambda m: assign(m.s.row, 1, m.s.program[2])),
    "the other axis": run(lambda m: update(m.s.codes, (16, 8), lambda i, j: ((i, j), 0))),
    "a field": field(0, 7, lambda m, x: assign(m.s.row, 1, x[()] >> 3)),
}
UNDRIVEN: dict[str, Build] = {}
LENGTHS: dict[str, Build] = {
    "a fold over data": run(lambda m: assign(m.s.total, fold(m.s.codes[0, 0], 0, lambda k, t: sat(t + 1, 12), (-2048, 2047)))),
    "a fold in a fold": run(
        lambda m: assign(
            m.s.total, fold(4, 0, lambda k, t: fold(m.s.codes[0, k], t, lambda n, u: sat(u + n, 12), (-2048, 2047)), (-2048, 2047))
        )
    ),
    "as long as a sum": run(
        lambda m: assign(m.s.total, fold(reduce_sum(lambda j: m.s.codes[0, j], 16), 0, lambda k, t: sat(t + 1, 12), (-2048, 2047)))
    ),
    "as long as the largest": run(
        lambda m: assign(m.s.total, fold(reduce_max(lambda j: m.s.codes[0, j], 16), 0, lambda k, t: sat(t + 1, 12), (-2048, 2047)))
    ),
    "a choice by data": run(
        lambda m: assign(m.s.total, fold(select(m.s.codes[0, 0] > 3, 2, 5), 0, lambda k, t: sat(t + 1, 12), (-2048, 2047)))
    ),
    "a result of a fold": run(
        lambda m: assign(
            m.s.total,
            fold(fold(3, 0, lambda k, t: sat(t + m.s.codes[0, k], 8, False), (0, 255)), 0, lambda k, t: sat(t + 1, 12), (-2048, 2047)),
        )
    ),
    "a fold with two results": run(
        lambda m: assign(
            m.s.total,
            fold_arrays(
                m.s.codes[0, 0],
                [scalar_array(0), scalar_array(1)],
                lambda k, a, b: [scalar_array(sat(a[()] + b[()], 12)), scalar_array(1)],
                [(-2048, 2047), (0, 1)],
            )[0][()],
        )
    ),
    "a loop of steps": run(lambda m: loop(m.s.row[0] % 8, lambda k: assign(m.s.total, k))),
    "a local": run(
        lambda m: let(
            array(lambda i: m.s.codes[0, i], 4),
            lambda x: assign(m.s.total, fold(x[2], 0, lambda k, t: sat(t + 1, 12), (-2048, 2047))),
            "copied",
        )
    ),
    "a length written before": run(
        lambda m: seq(
            assign(m.s.total, 3),
            when(m.s.mode[()] == 1, assign(m.s.total, fold(m.s.total[()] % 4, 0, lambda k, t: sat(t + 1, 12), (-2048, 2047)))),
        )
    ),
}
COLLISIONS: dict[str, Build] = {
    "two by two": run(lambda m: update(m.s.row, 8, lambda i: (i // 2, i))),
    "a register": run(lambda m: update(m.s.mode, 3, lambda i: ((), i))),
    "an index that is not in the address": run(lambda m: update(m.s.row, (4, 2), lambda i, j: (i, j))),
    "one element": run(lambda m: update(m.s.codes, 2, lambda i: ((3, 4), i))),
    "round the end": run(lambda m: update(m.s.program, 9, lambda i: (i % 8, i))),
    "rows that overlap": run(lambda m: update(m.s.row, (3, 4), lambda i, j: (i * 3 + j, 0))),
    "squares": run(lambda m: update(m.s.row, 6, lambda i: (i * i % 16, i))),
    "one behind the other": run(lambda m: together(assign(m.s.row, 1, 5), update(m.s.row, 6, lambda i: (i, 0)))),
    "in a loop": run(lambda m: loop(4, lambda k: update(m.s.codes, 16, lambda i: ((k, i // 4), i)))),
    "in a branch": run(lambda m: when(m.s.mode[()] == 1, update(m.s.row, 5, lambda i: (maximum(i, 3), i)))),
}


def ghost(name: str = "ghost", shape: tuple[int, ...] = (), high: int = 3) -> Leaf:
    return Leaf(shape, (0, high), False, name)


def register(step: Callable[[Ila, Leaf], Step], shape: tuple[int, ...] = (), binding: str = "control") -> Build:
    def build(m: Ila, bus: Bus) -> None:
        new = m.register("fresh", 3, shape=shape, binding=binding)
        m.instruction("run", bus.write(0x10))(lambda: step(m, new))

    return build


def decode(m: Ila, bus: Bus) -> None:
    m.register("fresh", 3)
    m.instruction("run", bus.write(0x10, m.s.fresh[()] == 2))(lambda: NOTHING)


def result(m: Ila, bus: Bus) -> None:
    m.register("fresh", 3)
    m.readback("run", bus.read(0x10), lambda j: m.s.fresh[()] + 0 * j)


UNDRIVEN.update(
    {
        "a field past the word": field(124, 131, lambda m, x: assign(m.s.count, x[()] % 16)),
        "a field the wrong way round": field(9, 2, lambda m, x: assign(m.s.count, x[()] % 16)),
        "a register that nothing writes": register(lambda m, f: assign(m.s.count, f[()])),
        "a memory that nothing writes": register(lambda m, f: assign(m.s.total, f[2]), (4,), DATA),
        "a condition": register(lambda m, f: when(f[()] == 1, assign(m.s.count, 1))),
        "an address": register(lambda m, f: assign(m.s.row, 1, f[()])),
        "a length": register(lambda m, f: loop(f[()], lambda k: assign(m.s.count, k))),
        "a decode": decode,
        "what a read gives": result,
        "a name from elsewhere": run(lambda m: assign(m.s.count, ghost()[()])),
    }
)
BAD: dict[str, dict[str, Build]] = {"overlaps": OVERLAPS, "widths": WIDTHS, "indices": INDICES, "undriven": UNDRIVEN, "lengths": LENGTHS}
BAD["collisions"] = COLLISIONS
SAID: dict[tuple[str, str], tuple[str, str]] = {
    ("overlaps", "one address in two ranges"): ("first and second of small both decode addr=0x130, rd=0x0, wr=0x1", ""),
    ("overlaps", "an address inside of a range"): ("first and second of small both decode addr=0x5f0, rd=0x1, wr=0x0", ""),
    ("overlaps", "an unaligned address inside of a range"): ("first and second of small both decode addr=0x41f, rd=0x0, wr=0x1", ""),
    ("overlaps", "vectors of two lengths"): ("first and second of small both decode addr=0x170, rd=0x0, wr=0x1", ""),
    ("overlaps", "any write"): ("first and second of small both decode addr=0x40, rd=0x0, wr=0x1", ""),
    ("overlaps", "bits of an address"): ("first and second of small both decode addr=0x65", ""),
    ("overlaps", "two modes"): ("first and second of small both decode addr=0x20, mode=0x1, rd=0x0, wr=0x1", ""),
    ("overlaps", "a product"): ("first and second of small both decode addr=0x20, count=0x7, mode=0x3, rd=0x0, wr=0x1", ""),
    ("overlaps", "a byte of the data"): ("first and second of small both decode addr=0x20, data=0xa00, rd=0x0, wr=0x1", ""),
    ("overlaps", "remainders"): ("first and second of small both decode addr=0x7, wr=0x1", ""),
    ("widths", "a sum"): (
        "count holds values in 0…15, not 0…18",
        "it is 18 where count is 15 and mode is 3; wrap() or sat() the value to the width of the state",
    ),
    ("widths", "a field"): (
        "count holds values in 0…15, not 0…31",
        "it is 31 where x is 31; wrap() or sat() the value to the width of the state",
    ),
    ("widths", "a signed field"): (
        "count holds values in 0…15, not -8…7",
        "it is -8 where x is -8; wrap() or sat() the value to the width of the state",
    ),
    ("widths", "a product"): (
        "total holds values in -2048…2047, not -8355840…8355585",
        "it is 8355585 where codes is 255 and row is 32767; wrap() or sat() the value to the width of the state",
    ),
    ("widths", "a difference"): (
        "mode holds values in 0…3, not -1…2",
        "it is -1 where mode is 0; wrap() or sat() the value to the width of the state",
    ),
    ("widths", "a dot product"): (
        "total holds values in -2048…2047, not 0…1040400",
        "it is 1040400 where codes is 255; wrap() or sat() the value to the width of the state",
    ),
    ("widths", "a fold"): (
        "accumulator 0 of a fold takes values in (-34816, 34814), outside of its width (-2048, 2047)",
        "it is 34814 where row is 32767 and k is 15 and acc0 is 2047; wrap() or sat() it in every step",
    ),
    ("widths", "one choice of two"): (
        "offset holds values in -32…31, not 0…45",
        "it is 45 where count is 15 and mode is 3; wrap() or sat() the value to the width of the state",
    ),
    ("widths", "a saturation of another width"): (
        "total holds values in -2048…2047, not -4096…4095",
        "it is 4095 where row is 32767; wrap() or sat() the value to the width of the state",
    ),
    ("widths", "one update of two"): (
        "offset holds values in -32…31, not 0…60",
        "it is 60 where count is 15; wrap() or sat() the value to the width of the state",
    ),
    ("indices", "a register"): (
        "run: axis 0 of codes has 8 elements; the index count[] takes values in 0…15",
        "it is 15 where count is 15; reduce the index modulo the size, or clamp it",
    ),
    ("indices", "a sum of two"): (
        "run: axis 0 of row has 16 elements; the index count[] + mode[] takes values in 0…18",
        "it is 18 where count is 15 and mode is 3; reduce the index modulo the size, or clamp it",
    ),
    ("indices", "below"): (
        "run: axis 0 of row has 16 elements; the index count[] - 1 takes values in -1…14",
        "it is -1 where count is 0; reduce the index modulo the size, or clamp it",
    ),
    ("indices", "a signed register"): (
        "run: axis 0 of row has 16 elements; the index offset[] takes values in -32…31",
        "it is 31 where offset is 31; reduce the index modulo the size, or clamp it",
    ),
    ("indices", "the loop's variable"): (
        "run: axis 0 of program has 8 elements; the index k takes values in 0…8",
        "it is 8 where k is 8; reduce the index modulo the size, or clamp it",
    ),
    ("indices", "a window"): (
        "run: axis 0 of row has 16 elements; the index c0 + mode[] takes values in 0…18",
        "it is 18 where mode is 3 and c0 is 15; reduce the index modulo the size, or clamp it",
    ),
    ("indices", "a length in a register"): (
        "run: axis 0 of program has 8 elements; the index i takes values in 0…14",
        "it is 14 where i is 14; reduce the index modulo the size, or clamp it",
    ),
    ("indices", "a program's element"): (
        "run: axis 0 of row has 16 elements; the index program[2] takes values in 0…31",
        "it is 31 where program is 31; reduce the index modulo the size, or clamp it",
    ),
    ("indices", "the other axis"): (
        "run: axis 0 of codes has 8 elements; the index i takes values in 0…15",
        "it is 15 where i is 15; reduce the index modulo the size, or clamp it",
    ),
    ("indices", "a field"): (
        "run: axis 0 of row has 16 elements; the index x[] >> 3 takes values in 0…31",
        "it is 31 where x is 255; reduce the index modulo the size, or clamp it",
    ),
    ("undriven", "a field past the word"): ("bits 124…131 of field x must be in 0…127 of data", ""),
    ("undriven", "a field the wrong way round"): ("bits 9…2 of field x must be in 0…127 of data", ""),
    ("undriven", "a register that nothing writes"): (
        "run: fresh is read, but no instruction of small writes it",
        "add the instruction that writes it, give it a reset value, or leave it out",
    ),
    ("undriven", "a memory that nothing writes"): (
        "run: fresh is read, but no instruction of small writes it",
        "add the instruction that writes it, give it a reset value, or leave it out",
    ),
    ("undriven", "a condition"): (
        "run: fresh is read, but no instruction of small writes it",
        "add the instruction that writes it, give it a reset value, or leave it out",
    ),
    ("undriven", "an address"): (
        "run: fresh is read, but no instruction of small writes it",
        "add the instruction that writes it, give it a reset value, or leave it out",
    ),
    ("undriven", "a length"): (
        "run: fresh is read, but no instruction of small writes it",
        "add the instruction that writes it, give it a reset value, or leave it out",
    ),
    ("undriven", "a decode"): (
        "run: fresh is read, but no instruction of small writes it",
        "add the instruction that writes it, give it a reset value, or leave it out",
    ),
    ("undriven", "what a read gives"): (
        "run: fresh is read, but no instruction of small writes it",
        "add the instruction that writes it, give it a reset value, or leave it out",
    ),
    ("undriven", "a name from elsewhere"): (
        'run reads "ghost", which is no state, input or operand of small',
        "declare it as a state, or give it as an operand",
    ),
    ("lengths", "a fold over data"): (
        "run: the length of a fold must be control, but reads the data codes",
        "it is 255 where codes is 255; and may be 0; take its largest value, and select() what counts",
    ),
    ("lengths", "a fold in a fold"): (
        "run: the length of a fold must be control, but reads the data codes",
        "it is 255 where codes is 255 and k is 3; and may be 0; take its largest value, and select() what counts",
    ),
    ("lengths", "as long as a sum"): (
        "run: the length of a fold must be control, but reads the data codes",
        "it is 4080 where codes is 255; and may be 0; take its largest value, and select() what counts",
    ),
    ("lengths", "as long as the largest"): (
        "run: the length of a fold must be control, but reads the data codes",
        "it is 255 where codes is 255; and may be 0; take its largest value, and select() what counts",
    ),
    ("lengths", "a choice by data"): (
        "run: the length of a fold must be control, but reads the data codes",
        "it is 5 where codes is 0; and may be 2; take its largest value, and select() what counts",
    ),
    ("lengths", "a result of a fold"): (
        "run: the length of a fold must be control, but reads the data codes",
        "it is 255 where codes is 255; and may be 0; take its largest value, and select() what counts",
    ),
    ("lengths", "a fold with two results"): (
        "run: the length of a fold must be control, but reads the data codes",
        "it is 255 where codes is 255; and may be 0; take its largest value, and select() what counts",
    ),
    ("lengths", "a loop of steps"): (
        "run: the length of a loop must be control, but reads the data row",
        "data may only choose values: use select()",
    ),
    ("lengths", "a local"): (
        "run: the length of a fold must be control, but reads the data copied",
        "it is 255 where copied is 255; and may be 0; take its largest value, and select() what counts",
    ),
    ("lengths", "a length written before"): (
        "run: the length of a fold must be control, but reads the data total",
        "it is 3 where total is 2047; and may be 0; take its largest value, and select() what counts",
    ),
}
APART = "give every value of its indices an element of its own, or fold() what meets there"
MET = {
    "two by two": "row[0]",
    "a register": "mode[]",
    "an index that is not in the address": "row[0]",
    "one element": "codes[3, 4]",
    "round the end": "program[0]",
    "rows that overlap": "row[3]",
    "squares": "row[0]",
    "one behind the other": "row[5]",
    "in a loop": "codes[0, 0]",
    "in a branch": "row[3]",
}
SAID |= {("collisions", name): (f"run: one update writes {element} more than once", APART) for name, element in MET.items()}


def refusal(build: Build) -> Problem:
    """Return what is said of a specification, at its definition or by check; what model() itself has is good."""
    m, bus = model()
    try:
        build(m, bus)
    except FlexmatchError as refused:
        return refused.problem
    return next(p for p in check(m).problems if "drive_" not in p.sentence)


@pytest.mark.parametrize(("kind", "name"), SAID)
def test_a_bad_specification_is_refused(kind: str, name: str) -> None:
    found = refusal(BAD[kind][name])
    sentence, advice = SAID[kind, name]
    assert re.sub(r"\b([a-z]\d?)_\d+\b", r"\1", found.sentence) == sentence
    assert found.help == advice or found.help.startswith(f"the first is at {__file__}:")
    assert re.fullmatch(re.escape(__file__) + r":\d+( in run)?", found.place)
    assert "first and second of small" in sentence or "run" in f"{found.place.partition(':')[2]} {sentence}"


def test_every_kind_has_ten() -> None:
    assert {kind: len(rows) for kind, rows in BAD.items()} == dict.fromkeys(BAD, 10)
    assert {(kind, name) for kind, rows in BAD.items() for name in rows} == SAID.keys()


def test_the_model_without_them_is_good() -> None:
    assert check(model()[0]).is_good


@pytest.mark.parametrize(
    "step",
    [
        lambda m: update(m.s.row, 8, lambda i: (15 - i * 2, i)),
        lambda m: update(m.s.codes, (4, 8), lambda i, j: ((j, i * 4 + j % 4), 0)),
        lambda m: update(m.s.row, 8, lambda i: (i * m.s.count[()] % 16, i)),  # as the register says
        lambda m: loop(4, lambda k: update(m.s.row, 4, lambda i: ((k + i) % 16, i))),  # one after the other
        lambda m: together(assign(m.s.row, 1, 0), assign(m.s.row, 2, 1), assign(m.s.total, 0)),
        lambda m: update(m.s.row, 1, lambda i: (3, i)),
    ],
)
def test_updates_that_do_not_meet(step: Callable[[Ila], Step]) -> None:
    m, bus = model()
    run(step)(m, bus)
    assert check(m).is_good
