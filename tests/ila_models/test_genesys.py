"""GeneSys: published programs give their published results, and programs of other shapes what integer numpy gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genesys_programs import SMALL, build, expected, operands, run_layer, small, words

from rewrite_compiler.errors import SpecError, UsageError
from rewrite_compiler.ila import check
from rewrite_compiler.ila.assembler import assemble_text, disassemble_program, read_program
from rewrite_compiler.ila.mnemonic import InstructionSet, instruction_set
from rewrite_compiler.ila_models.genesys import Config
from rewrite_compiler.ila_models.genesys.programs import Nest, Operand, Program, Word
from rewrite_compiler.ila_models.genesys.words import SIMD, SPACES
from rewrite_compiler.targets.genesys.systolic import Layer

READINGS = ("oracle", "arrays", "native")
PROGRAMS = {"add": 67, "conv_relu": 248}
LAYERS = [
    Layer(SMALL, 1, 2, 2, (1, 1), (4, 3)),
    Layer(SMALL, 2, 2, 4, (3, 2), (4, 4), (2, 1), tic=1, toc=2, toh=2),
    Layer(SMALL, 1, 4, 2, (3, 3), (2, 3), tic=2, toc=1, toh=1, relu=True),
    Layer(SMALL, 2, 1, 1, (2, 2), (3, 3), toh=3, relu=True),
    Layer(SMALL, 1, 1, 3, (1, 1), (1, 1), toc=3),
]


@pytest.mark.parametrize("model_of", [dict, lambda: {"sync": "older", "calculus": "csr"}], ids=["current", "older"])
def test_the_model_has_no_problem(model_of: Any) -> None:
    assert check(build(**model_of())).problems == ()


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("m", LAYERS, ids=lambda m: f"{m.kernel}-{m.ic}/{m.tic}-{m.oc}/{m.toc}{'-relu' * m.relu}")
def test_layer(m: Layer, reading: str) -> None:
    """Sums wrap at 32 bits; partial sums travel through the port where the input channels come in parts."""
    x, w, bias = operands(m, 7)
    assert np.array_equal(run_layer(small(), m, x, w, bias, reading), expected(m, x, w, bias))


def test_the_order_of_a_tile_does_not_matter() -> None:
    """Sums that share a row are added in the order of the loops: here every position of a row goes to one."""
    m = Layer(SMALL, 1, 1, 1, (1, 1), (1, 3))
    x, w, bias = operands(m, 3)
    model = small()
    program = [(n, f) for n, f in _layer_words(m) if not (n == "set_loop_stride" and f["buffer"] == 2 and f["loop"] == 13)]
    results = []
    for reading in READINGS:
        sim = model.simulator(reading=reading)
        out = np.zeros(m.bytes["obuf"], np.uint8)
        _give(sim, m, x, w, bias, out)
        sim.run(words(model, program))
        results.append(out.view(np.int32)[:4].tolist())
    starts = x[0, 0, 2].astype(np.int64) @ w[0, 0].astype(np.int64) + bias
    assert results == [starts.astype(np.int32).tolist()] * 3


def _layer_words(m: Layer) -> list[Word]:
    from rewrite_compiler.targets.genesys.systolic import layer_words

    return layer_words(m)


def _give(sim: Any, m: Layer, x: np.ndarray, w: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
    from genesys_programs import weight_bytes

    param = np.concatenate([bias.view(np.uint8), weight_bytes(m, w)])
    for port, contents in {"param": param, "ibuf": x.reshape(-1).view(np.uint8), "obuf": out}.items():
        sim.give(f"dram_{port}", contents)


# -- the SIMD array


def binary(name: str, rows: int, *, type: int = 0, integers: int = 16) -> list[Word]:
    """Return a program that applies a function to rows of two operands and stores the rows behind them."""
    p, size = Program(), 4 * rows
    p.begin(SIMD)
    p.emit("dtype_cfg", type=type, dst=integers, src1=integers, src2=integers)
    for space, base in (("VMEM1", 0), ("VMEM2", 16 * rows)):
        p.move("ld", space, size, address=base)
    for space in ("VMEM1", "VMEM2"):
        p.emit("base_sign_ext", space=SPACES[space], index=1, immediate=0)
        p.emit("stride_low", space=SPACES[space], index=1, immediate=1)
    places = {"dst_space": 2, "src1_space": 2, "src2_space": 3, "dst_index": 1, "src1_index": 1, "src2_index": 1}
    p.emit("set_iter", level=0, immediate=rows)
    p.emit("set_index", **places)
    p.emit("set_inst", level=1, immediate=1)
    p.emit(name, **places)
    p.move("st", "VMEM1", size, address=32 * rows)
    p.end(SIMD)
    p.emit("block_end", last=1)
    return p.words


ONE = 1 << 16
NUMPY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: (a * b) >> 16, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "not": lambda a, b: ~a, "move": lambda a, b: a, "relu": lambda a, b: np.maximum(a, 0),
    "gt": lambda a, b: a > b, "lte": lambda a, b: a <= b, "equal": lambda a, b: a == b, "tanh": lambda a, b: np.clip(a, -ONE, ONE),
    "leaky_relu": lambda a, b: np.where(a < 0, (a * b) >> 16, a), "macc": lambda a, b: a + ((a * b) >> 16),
    "rshift": lambda a, b: a >> np.clip(b, 0, 31), "lshift": lambda a, b: a << np.clip(b, 0, 31), "floor": lambda a, b: (a >> 16) << 16,
    "cast_32_8": lambda a, b: a.astype(np.int8),
}  # fmt: skip


def run_binary(name: str, a: np.ndarray, b: np.ndarray, reading: str, **options: Any) -> np.ndarray:
    model = small()
    simd = np.concatenate([a, b, np.zeros_like(a)]).astype(np.int32).view(np.uint8)
    sim = model.simulator(reading=reading)
    sim.give("dram_simd", simd)
    sim.run(words(model, binary(name, len(a) // 4, **options)))
    return simd.view(np.int32)[2 * len(a) :]


@pytest.mark.parametrize("name", NUMPY)
def test_function(name: str) -> None:
    draw = np.random.default_rng(5)
    a = draw.integers(-(1 << 31), 1 << 31, 24)
    b = draw.integers(-(1 << 31), 1 << 31, 24)
    a[:6], b[:6] = (0, 1, -1, 5, -(1 << 31), (1 << 31) - 1), (0, 3, 31, 5, 2, 40)
    want = NUMPY[name](a, b).astype(np.int64).astype(np.int32)
    for reading in READINGS:
        assert np.array_equal(run_binary(name, a, b, reading), want), reading


@pytest.mark.parametrize(
    ("first", "step", "want"),
    [
        (1, 1, lambda a, b: np.concatenate([a[:1], a[0] + np.cumsum(b, axis=0)])[: len(a)]),  # each result is the next one's source
        (0, 1, lambda a, b: np.concatenate([a[:-1] + b, a[-1:]])),  # each row is its own source: all are worked on at once
        (0, 0, lambda a, b: np.concatenate([[a[-2] + b[-1]], a[1:]])),  # results overwrite one another: the last one stays
    ],
)
def test_rows_that_depend_on_one_another_are_worked_on_in_order(first: int, step: int, want: Any) -> None:
    a, b = np.random.default_rng(8).integers(-1000, 1000, (2, 6, 4))
    b, p = b[:5], Program()
    p.begin(SIMD)
    p.move("ld", "VMEM1", 24)
    p.move("ld", "VMEM2", 20, address=96)
    p.nest(Nest("add", (5,), Operand("VMEM1", first, (step,)), Operand("VMEM1", 0, (1,)), Operand("VMEM2", 0, (1,))))
    p.move("st", "VMEM1", 24, address=176)
    p.end(SIMD)
    p.emit("block_end", last=1)
    for reading in READINGS:
        simd = np.concatenate([a.reshape(-1), b.reshape(-1), np.zeros(24, np.int64)]).astype(np.int32).view(np.uint8)
        sim = small().simulator(reading=reading)
        sim.give("dram_simd", simd)
        sim.run(words(small(), p.words))
        assert np.array_equal(simd.view(np.int32)[44:].reshape(6, 4), want(a, b)), reading


def test_sigmoid_is_its_piecewise_line_and_mirrors_at_one_half() -> None:
    x = np.array([0, ONE // 2, ONE, 2 * ONE, 19 * ONE // 8, 4 * ONE, 5 * ONE, 9 * ONE])
    want = [0.5, 0.625, 0.75, 0.875, 19 / 256 + 0.84375, 0.96875, 1, 1]
    y = run_binary("sigmoid", np.concatenate([x, -x]), np.zeros(16, np.int64), "oracle") / ONE
    assert np.allclose(y[:8], want, atol=2 / ONE)
    assert np.allclose(y[8:], 1 - np.array(want), atol=2 / ONE)


def test_quotients_round_toward_zero_and_a_division_by_zero_gives_zero() -> None:
    a, b = np.array([7 * ONE, -7 * ONE, 7 * ONE, 1]), np.array([2 * ONE, 2 * ONE, -2 * ONE, 0])
    assert run_binary("div", a, b, "arrays").tolist() == [7 * ONE // 2, -7 * ONE // 2, -7 * ONE // 2, 0]
    assert run_binary("div", np.array([1, -1, 1, -1]), np.array([3, 3, -3, -3]), "native", integers=32).tolist() == [0] * 4


@pytest.mark.parametrize("m", LAYERS[:3], ids=lambda m: f"{m.kernel}-{'relu' * m.relu}")
def test_a_program_disassembles_to_text_that_assembles_to_it(m: Layer) -> None:
    isa, program = instruction_set(small()), words(small(), _layer_words(m))
    text = "\n".join(disassembled(isa, program))
    assert "SET_LOOP_STRIDE LOW,RD,IBUF,#9,#1" in text
    assert [*assemble_text(isa, text)] == program


def disassembled(isa: InstructionSet, program: list[int]) -> list[str]:
    data = b"".join(word.to_bytes(4, "little") for word in program)
    return disassemble_program(read_program(isa, data, "the test")).splitlines()


# -- refusals


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ([("add", {})], "add must stand in a SIMD group: after its SYNC_INST START"),
        ([("sync_inst", {"phase": 1})], "a group must be started before it ends"),
        ([("sync_inst", {}), ("block_end", {})], "a block must not end inside of a group"),
        ([("sa_loop_cfg", {"reserved": 1})], "the reserved bits of sa_loop_cfg must be 0, not 1"),
        ([("sa_reduction_loop", {"reserved": 33, "loop": 2})], "the reserved bits of sa_reduction_loop must be 32, not 33"),
        ([("sync_inst", {"unit": 1}), ("add", {"dst_space": 4}), ("sync_inst", {"unit": 1, "phase": 1}), ("block_end", {})],
         "a body must stand in a nest: SET_ITER, SET_INDEX and SET_INST come before"),
        ([("sync_inst", {"unit": 1}), ("set_iter", {"level": 0, "immediate": 1}), ("set_index", {}), ("add", {"dst_space": 4}),
          ("sync_inst", {"unit": 1, "phase": 1}), ("block_end", {})], "a body must write a buffer and read buffers or scalars"),
        ([("sa_reduction_loop", {"reserved": 32, "loop": 5})], "loop 5 cannot be a reduction: only loops 2, 3 and 4 are"),
        ([("ld_st", {"buffer": 1, "loop": 14})], "a transfer of buffer 1 cannot count in loop 14: LD has 17 (IBUF), 23 (WBUF), 27 (OBUF), "
                                                 "28 (BBUF), ST 32 (OBUF)"),
        ([("sync_inst", {"unit": 1}), ("dtype_cfg", {"type": 3}), ("sync_inst", {"unit": 1, "phase": 1}), ("block_end", {})],
         "number type 3 of dtype_cfg is not modelled: only fixed point is"),
        ([("sync_inst", {"unit": 1}), ("exp", {}), ("sync_inst", {"unit": 1, "phase": 1}), ("block_end", {})],
         "a body must stand in a nest: SET_ITER, SET_INDEX and SET_INST come before"),
        ([("sync_inst", {"unit": 1}), ("set_inst", {"immediate": 2}), ("sync_inst", {"unit": 1, "phase": 1}), ("block_end", {})],
         "a nest must have a body of 1 instruction, not 2"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_refusal(program: list[Word], sentence: str) -> None:
    model = small()
    for reading in READINGS[:2]:
        with pytest.raises(SpecError) as refusal:
            model.simulator(reading=reading).run(words(model, program))
        assert refusal.value.problem.sentence == sentence


def test_a_function_without_a_definition_and_a_row_outside_are_refused() -> None:
    with pytest.raises(SpecError, match="exp is not modelled: nothing published says what it gives"):
        run_binary("exp", np.zeros(4), np.zeros(4), "arrays")
    m = replace(LAYERS[0], out=(66, 64), toh=66)
    with pytest.raises(SpecError, match=r"LD IBUF writes the rows \d+…\d+; the buffer has 4096"):
        run_layer(small(ibuf_depth=4096), m, *operands(m, 1), "oracle")


FILLED = {"ibuf": 32, "wbuf": 32, "obuf": 36, "bbuf": 4}  # rows that one tile has, all of a design's


@pytest.mark.parametrize("buffer", ["", "ibuf", "wbuf", "obuf"])
def test_a_tile_may_fill_its_buffers_and_no_row_more(buffer: str) -> None:
    m = Layer(SMALL, 1, 2, 4, (2, 2), (3, 3), tic=2, toc=4, toh=3)
    x, w, bias = operands(m, 2)
    model = small(**{f"{name}_depth": n - (4 if name == "wbuf" else 1) * (name == buffer) for name, n in FILLED.items()})
    if buffer:
        with pytest.raises(SpecError, match=rf"{buffer.upper()}( writes the rows|, which has)"):
            run_layer(model, m, x, w, bias, "oracle")
    else:
        assert np.array_equal(run_layer(model, m, x, w, bias, "oracle"), expected(m, x, w, bias))


ENDS = {
    "array_n array_m": (1, 128), "ibuf_depth": (4, 65536), "wbuf_depth": (4, 262144), "obuf_depth": (4, 65536), "bbuf_depth": (4, 65536),
    "vmem_depth": (4, 65536), "simd_instructions": (16, 4096),
}  # fmt: skip


@pytest.mark.parametrize("names", ENDS)
def test_parameters_have_ends(names: str) -> None:
    for value in ENDS[names]:
        assert {vars(Config(**dict.fromkeys(names.split(), value)))[name] for name in names.split()} == {value}
    for value in (ENDS[names][0] - 1, ENDS[names][1] + 1):
        with pytest.raises(UsageError, match=f"parameter {names.split()[0]} of genesys"):
            Config(**dict.fromkeys(names.split(), value))


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"array_m": 8}, "parameter array_m of genesys must be array_n (16), whose lanes read its rows, not 8"),
        ({"wbuf_depth": 6}, "parameter wbuf_depth of genesys must be a multiple of 4, not 6"),
    ],
)
def test_a_design_that_cannot_be_is_refused(parameters: dict[str, int], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        build(**parameters)
    assert refusal.value.problem.sentence == sentence


# -- published programs, which stay in the shared folder


def published(folder: Path, name: str) -> list[int]:
    return [int(line, 2) for line in (folder / name / "program.binary.txt").read_text().split()]


@pytest.mark.shared
@pytest.mark.parametrize("name", PROGRAMS)
def test_published_text_is_the_published_words(name: str, shared_dir: Path) -> None:
    folder = shared_dir / "golden/genesys/recorded"
    isa = instruction_set(build())
    program = assemble_text(isa, (folder / name / "program.asm").read_text())
    assert [*program] == published(folder, name)
    assert len(program) == PROGRAMS[name]
    assert [*assemble_text(isa, disassemble_program(program))] == [*program]


@pytest.mark.shared
@pytest.mark.parametrize("reading", READINGS)
def test_published_add(reading: str, shared_dir: Path) -> None:
    folder = shared_dir / "golden/genesys/recorded"
    data = np.load(folder / "add" / "arrays.npz")
    simd = np.zeros(0x202000, np.uint8)
    for at, name in ((0, "op1"), (0x100000, "op2")):
        simd[at : at + 8192] = data[name].view(np.uint8)
    sim = build().simulator(reading=reading)
    sim.give("dram_simd", simd)
    sim.run(published(folder, "add"))
    assert np.array_equal(simd[0x200000:].view(np.int32), data["out"])


@pytest.mark.shared
@pytest.mark.parametrize("reading", READINGS)
def test_published_convolution(reading: str, shared_dir: Path) -> None:
    folder = shared_dir / "golden/genesys/recorded"
    data = np.load(folder / "conv_relu" / "arrays.npz")
    param, ibuf, simd = np.zeros(28672, np.uint8), np.zeros(0x410000 + 9216, np.uint8), np.zeros(0x400000 + 36864, np.uint8)
    param[24576:], param[4096:4352] = data["weight_words"].view(np.uint8), data["bias"].view(np.uint8)
    ibuf[0x410000:] = data["data_words"].view(np.uint8)
    sim = build().simulator(reading=reading)
    for port, contents in {"param": param, "ibuf": ibuf, "simd": simd}.items():
        sim.give(f"dram_{port}", contents)
    sim.run(published(folder, "conv_relu"))
    assert np.array_equal(simd[0x400000:].view(np.int32), data["out_nhwc"])
