"""VTA against what its designs computed, and against the specification's loops on random programs, in both readings."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest
import vta_reference
from vectors import arrays, traces

from rewrite_compiler.errors import FlexmatchError, SpecError, UsageError
from rewrite_compiler.ila import assemble
from rewrite_compiler.ila.simulation.simulator import DeviceHang
from rewrite_compiler.ila_models.vta import build as new_model
from rewrite_compiler.ila_models.vta.config import Config

build = cache(new_model)
TRACES = traces("vta")
IMAGES = arrays("vta", "images.npz")
READINGS = ("oracle", "arrays")
DENSE = "ila_3la_dense_block_16x16x16"
ON_IMAGE = sorted(TRACES.keys() - {DENSE})


def words(trace: dict[str, Any]) -> list[int]:
    return [int(w, 16) for w in trace["instructions_hex"]]


def after(name: str, behaviour: str, **options: Any) -> np.ndarray:
    """Return the image after a program."""
    image = bytearray(IMAGES[f"{name}.dram_before"].tobytes())
    vta = build(behaviour=behaviour).simulator(dram=image, base=TRACES[name]["phys_base"], **options)
    vta.run(words(TRACES[name]))
    return np.frombuffer(image, np.uint8)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", ON_IMAGE)
def test_functional_simulator(name: str, reading: str) -> None:
    assert np.array_equal(after(name, "fsim", reading=reading), IMAGES[f"{name}.dram_after"])


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", ON_IMAGE)
def test_hls_design(name: str, reading: str) -> None:
    expected = IMAGES.get(f"{name}.dram_after_hls", IMAGES[f"{name}.dram_after"])
    assert np.array_equal(after(name, "hls", reading=reading), expected)


def test_vectors_tell_the_designs_apart() -> None:
    differing = [n for n in ON_IMAGE if f"{n}.dram_after_hls" in IMAGES]
    assert len(differing) == 15
    assert all(not np.array_equal(after(n, "fsim"), after(n, "hls")) for n in differing)


@pytest.mark.parametrize("name", ON_IMAGE)
def test_strict_simulation_accepts_what_the_functional_simulator_ran(name: str) -> None:
    """Tokens, ranges and padding are as they must be in every program; only its own extras are diagnosed."""
    assert np.array_equal(after(name, "fsim", strict=True), IMAGES[f"{name}.dram_after"])


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("behaviour", ["ila", "fsim"])
def test_published_ila(behaviour: str, reading: str) -> None:
    data = {k: IMAGES[f"{DENSE}.{k}"] for k in ("inp", "wgt", "uop")}
    out = np.zeros((16, 16), np.int8)
    vta = build(encoding="ila3", behaviour=behaviour).simulator(drams={**data, "out": out}, reading=reading)
    vta.run(words(TRACES[DENSE]))
    assert np.array_equal(out, IMAGES[f"{DENSE}.out"])


# -- random programs against the specification's loops

BASE, IMAGE_BYTES, UOPS, OUTPUT = 0x1000, 1 << 14, 0x400, 0x3000


def random_image(rng: random.Random) -> bytearray:
    image = bytearray(rng.randbytes(IMAGE_BYTES))
    for n in range(64):
        u = Config().micro_op(rng.randrange(4), rng.randrange(4), rng.randrange(4))
        image[UOPS + 4 * n : UOPS + 4 * n + 4] = u.to_bytes(4, "little")
    return image


def loads(rng: random.Random, name: str, unit: int, pads: bool) -> dict[str, int]:
    rows, count = rng.randint(1, 3), rng.randint(1, 4)
    stride = rng.randint(0, 5)
    room = (IMAGE_BYTES // unit) - (rows * stride + count)
    padding = {n: rng.randint(0, 2) for n in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")} if pads else {}
    first = BASE // unit + rng.randrange(room)
    return {"sram_base": rng.randrange(4), "dram_base": first, "y_size": rows, "x_size": count, "x_stride": stride, **padding}


def loops(rng: random.Random) -> dict[str, int]:
    begin = rng.randrange(8)
    return {
        "uop_bgn": begin,
        "uop_end": begin + rng.choice((0, 1, 2, 4, 8)),
        "iter_out": rng.choice((0, 1, 2, 4)),
        "iter_in": rng.choice((1, 2, 3)),
    }


def factors(rng: random.Random, *names: str) -> dict[str, int]:
    return {f"{n}_factor_{x}": rng.choice((0, 0, 1, 2, 4)) for n in names for x in ("out", "in")}


def random_instruction(rng: random.Random, behaviour: str) -> tuple[str, dict[str, int]]:
    kind = rng.choice(("load_inp", "load_wgt", "load_acc", "gemm", "gemm", "gemm", "alu", "alu", "store"))
    if kind.startswith("load"):
        return kind, loads(rng, kind, {"load_inp": 16, "load_wgt": 256, "load_acc": 64}[kind], pads=kind != "load_wgt")
    if kind == "gemm":
        return kind, {"reset": int(rng.random() < 0.2), **loops(rng), **factors(rng, "dst", "src", "wgt")}
    if kind == "store":
        first = (BASE + OUTPUT) // 16 + rng.randrange(32)
        return kind, {"sram_base": rng.randrange(16), "dram_base": first, "y_size": 3, "x_size": 4, "x_stride": rng.randint(0, 6)}
    by_immediate = rng.random() < 0.5
    names = ["min", "max", "add", *(["mul"] if behaviour != "hls" else []), *(["shr"] if by_immediate or behaviour != "fsim" else [])]
    operation = rng.choice(names)
    bound = 31 if operation == "shr" and behaviour == "fsim" else 32767
    fields = {"use_imm": int(by_immediate), "imm": rng.randint(-bound, bound), **loops(rng), **factors(rng, "dst", "src")}
    return f"alu_{operation}", fields


def complete(fields: dict[str, int]) -> dict[str, int]:
    """Return the fields with those that are not given as 0."""
    pads = dict.fromkeys(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), 0)
    return {**pads, "reset": 0, "use_imm": 0, "imm": 0, **fields}


def random_program(seed: int, behaviour: str) -> tuple[bytes, list[int], bytes]:
    """Return an image, a program on it, and the image afterwards by the specification's loops."""
    image, program, reference = random_run(seed, behaviour)
    return bytes(image), program, bytes(reference.image)


def random_run(seed: int, behaviour: str) -> tuple[bytearray, list[int], vta_reference.Vta]:
    rng = random.Random(f"{seed} {behaviour}")
    image = random_image(rng)
    uops = {"sram_base": 0, "dram_base": (BASE + UOPS) // 4, "y_size": 1, "x_size": 32, "x_stride": 0}
    program = [("load_uop", uops), *(random_instruction(rng, behaviour) for _ in range(24))]
    program.append(("store", {"sram_base": 0, "dram_base": (BASE + OUTPUT) // 16, "y_size": 1, "x_size": 64, "x_stride": 0}))
    reference = vta_reference.Vta(bytearray(image), BASE, behaviour)
    for name, fields in program:
        reference.run(name, complete(fields))
    instructions = build(behaviour=behaviour).instructions
    return image, [assemble(instructions[name], **fields)["data"] for name, fields in program], reference


@pytest.mark.parametrize("behaviour", ["fsim", "hls", "ila"])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int, behaviour: str) -> None:
    image, stream, reference = random_run(seed, behaviour)
    for reading in READINGS:
        mine = bytearray(image)
        sim = build(behaviour=behaviour).simulator(dram=mine, base=BASE, reading=reading)
        sim.run(stream)
        assert sim.state("acc").reshape(-1).tolist() == reference.memory["acc"], reading
        assert mine == reference.image, reading


# -- encodings

# encoding, instruction, fields, the word written from the table of the specification
WORDS = (
    ("current", "load_inp", {"sram_base": 5, "dram_base": 0x104, "y_size": 1, "x_size": 16, "x_stride": 16},
     2 << 7 | 5 << 10 | 0x104 << 26 | 1 << 64 | 16 << 80 | 16 << 96),
    ("ila3", "load_inp", {"sram_base": 5, "dram_base": 0x104, "y_size": 1, "x_size": 16, "x_stride": 16},
     2 << 7 | 5 << 9 | 0x104 << 25 | 1 << 64 | 16 << 80 | 16 << 96),
    ("current", "load_acc", {"pop_prev": 1, "push_next": 1, "x_pad_0": 1, "x_pad_1": 2, "y_pad_0": 3, "y_pad_1": 4},
     1 << 3 | 1 << 6 | 3 << 7 | 3 << 112 | 4 << 116 | 1 << 120 | 2 << 124),
    ("current", "store", {"sram_base": 7, "dram_base": 9}, 1 | 4 << 7 | 7 << 10 | 9 << 26),
    ("old", "store", {"sram_base": 7, "dram_base": 9}, 1 | 7 << 9 | 9 << 25),
    ("current", "gemm", {"reset": 1, "uop_bgn": 3, "uop_end": 8192, "iter_out": 16383, "iter_in": 2, "dst_factor_out": 1,
     "dst_factor_in": 2, "src_factor_out": 3, "src_factor_in": 4, "wgt_factor_out": 5, "wgt_factor_in": 6},
     2 | 1 << 7 | 3 << 8 | 8192 << 21 | 16383 << 35 | 2 << 49 | 1 << 64 | 2 << 75 | 3 << 86 | 4 << 97 | 5 << 108 | 6 << 118),
    ("ila3", "alu_mul", {"use_imm": 1, "imm": -77, "iter_out": 1, "iter_in": 1},
     4 | 1 << 35 | 1 << 49 | 4 << 108 | 1 << 111 | (-77 & 0xFFFF) << 112),
    ("old", "alu_shr", {"use_imm": 1, "imm": -3}, 4 | 3 << 108 | 1 << 110 | (-3 & 0xFFFF) << 111),
    ("current", "finish", {"pop_next": 1}, 3 | 1 << 4),
)  # fmt: skip


@pytest.mark.parametrize(("encoding", "name", "fields", "word"), WORDS)
def test_word(encoding: str, name: str, fields: dict[str, int], word: int) -> None:
    model = build(encoding=encoding)
    assert assemble(model.instructions[name], **fields) == {"data": word}
    (issue,) = (model.simulator()._issue(0, word),)
    assert issue is not None
    assert issue.instruction.name == name
    assert {k: v[0] for k, v in issue.operands.items() if v[0]} == {k: v for k, v in fields.items() if v}


def test_instructions_of_an_encoding() -> None:
    assert "alu_mul" not in build(encoding="old").instructions
    assert "load_acc_8bit" not in build(encoding="ila3").instructions
    assert {"alu_mul", "load_acc_8bit"} <= build().instructions.keys()


# -- memory outside of the device

ONE_ACC = (("load_acc", {"y_size": 1, "x_size": 1}), ("store", {"dram_base": 4, "y_size": 1, "x_size": 1}))


def stream(*rows: tuple[str, dict[str, int]], **parameters: Any) -> list[int]:
    model = build(**parameters)
    return [assemble(model.instructions[name], **fields)["data"] for name, fields in rows]


@pytest.mark.parametrize("kind", [bytearray, lambda b: memoryview(bytearray(b)), lambda b: np.frombuffer(bytearray(b), np.int8)])
def test_image_is_changed_in_place(kind: Any) -> None:
    image = kind(bytes(range(1, 65)) + bytes(16))
    build().simulator(dram=image).run(stream(*ONE_ACC))
    assert bytes(image)[64:] == bytes(range(1, 65, 4))


def test_samples_of_buffers_persist_between_runs() -> None:
    image = bytearray(bytes(range(1, 65)) + bytes(16))
    vta = build().simulator(dram=image)
    load, store = stream(*ONE_ACC)
    vta.run([load])
    image[:64] = bytes(64)
    vta.run([store])
    assert image[64:] == bytes(range(1, 65, 4))


REFUSED_MEMORIES = (
    ({"dram": bytes(64)}, "the external memory dram must be writable and contiguous: the device writes it in place"),
    ({"dram": np.zeros(8, np.int32)}, "the external memory dram must have words of 8 bits, not of type int32"),
    ({"dram": 7}, "the external memory dram must be a buffer or an array, not int"),
    ({"dram": bytearray(4), "base": -1}, "the address of dram must be in 0…281474976710655, not -1"),
    ({"drams": {"input": [1]}}, 'vta has no external memory "dram_input"'),
    ({"drams": {"inp": [200]}}, "the external memory dram_inp must hold words of 8 bits, not values of type int64"),
    ({"drams": {"bias": bytes(5)}}, "the external memory dram_bias must be a whole number of words of 4 bytes, not 5 bytes"),
)  # fmt: skip


@pytest.mark.parametrize(("given", "sentence"), REFUSED_MEMORIES)
def test_refused_memory(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        build().simulator(**given)
    assert refusal.value.problem.sentence == sentence


# -- refusals

PARAMETERS = (
    ({"encoding": "new"}, 'parameter encoding of vta must be one of current, ila3, old, not "new"'),
    ({"behaviour": "chisel"}, 'parameter behaviour of vta must be one of fsim, hls, ila, not "chisel"'),
    ({"blocks": 4}, 'vta has no parameter "blocks"'),
    ({"log_block": 99}, "parameter log_block of vta must be an integer in 0…24, not 99"),
    ({"log_block": "4"}, "parameter log_block of vta must be an integer in 0…24, not 4"),
    ({"log_inp_buffer": 3}, "parameter log_inp_buffer of vta must be at least 4 (one element), not 3"),
    ({"log_wgt_buffer": 19}, "a micro-op of vta must fit in 32 bits, not 33"),
    ({"log_acc_buffer": 18, "log_wgt_buffer": 17}, "the second half of an ALU instruction of vta must fit in 64 bits, not 66"),
)  # fmt: skip
ENDS = {
    "log_inp_width": (3, 5), "log_wgt_width": (3, 5), "log_acc_width": (4, 5), "log_batch": (0, 24), "log_block": (0, 24),
    "log_uop_buffer": (2, 15), "log_inp_buffer": (0, 24), "log_wgt_buffer": (0, 24), "log_acc_buffer": (0, 24),
}  # fmt: skip


@pytest.mark.parametrize(("given", "sentence"), PARAMETERS)
def test_bad_parameter(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        new_model(**given)
    assert refusal.value.problem.sentence == sentence


@pytest.mark.parametrize("name", ENDS)
def test_parameters_have_ends(name: str) -> None:
    low, high = ENDS[name]
    for value in (low - 1, high + 1):
        with pytest.raises(UsageError) as refusal:
            new_model(**{name: value})
        assert refusal.value.problem.sentence == f"parameter {name} of vta must be an integer in {low}…{high}, not {value}"


def test_the_published_ila_clears_rows_before_the_data_and_nothing_before_them() -> None:
    """Two elements from element 7 on, between one row of zeros, which begins at element 2, and a zero on either side."""
    ila = build(behaviour="ila")
    vta = ila.simulator(dram=bytearray([1] * 16 * 16))
    padded = {"sram_base": 2, "y_size": 1, "x_size": 2, "y_pad_0": 1, "x_pad_0": 1, "x_pad_1": 1}
    vta.run(stream(("load_inp", {"y_size": 1, "x_size": 12}), ("load_inp", padded), behaviour="ila"))
    assert vta.state("inp")[:12, 0, 0].tolist() == [1, 1, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1]


IMAGE = 4096
ALWAYS = (
    (("load_acc", {"dram_base": 64, "y_size": 1, "x_size": 2}), "load_acc reads the DRAM bytes 4096…4223; the image holds 0…4095"),
    (("store", {"dram_base": 255, "y_size": 2, "x_size": 1, "x_stride": 1}),
     "store writes the DRAM bytes 4080…4111; the image holds 0…4095"),
    (("load_acc", {"y_size": 300, "x_size": 7}), "load_acc writes the elements 0…2099 of acc, which has 2048"),
)  # fmt: skip
DIAGNOSED = (
    (("load_inp", {"sram_base": 2047, "y_size": 1, "x_size": 2}), "load_inp writes the elements 2047…2048 of inp, which has 2048"),
    (("load_wgt", {"x_pad_0": 1, "y_size": 1, "x_size": 1}), "load_wgt must not pad: only the functional simulator does"),
    (("load_uop", {"y_size": 2, "x_size": 1}), "load_uop must have 1 row, not 2"),
    (("load_inp", {"x_pad_0": 1, "y_size": 1}), "load_inp of x_size 0 must not pad: the designs disagree"),
    (("store", {"x_pad_0": 1, "y_size": 1, "x_size": 1}), "store must not pad"),
    (("gemm", {"uop_end": 1, "iter_out": 1025, "iter_in": 1, "dst_factor_out": 2}),
     "a micro-op addresses element 2048 of acc, which has 2048"),
    (("gemm", {"uop_bgn": 8191, "uop_end": 8193, "iter_out": 1, "iter_in": 1}), "uop_end must be at most 8192, not 8193"),
    (("alu_shr", {"uop_end": 1, "iter_out": 1, "iter_in": 1, "use_imm": 1, "imm": 32}), "the amount of alu_shr must be in -31…31, not 32"),
    (("load_inp", {"pop_prev": 1}), "pop_prev of instruction 0 (load_inp) must be 0: queue load has no such token"),
)  # fmt: skip


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(("row", "sentence"), [*ALWAYS, *DIAGNOSED])
def test_diagnosed(row: tuple[str, dict[str, int]], sentence: str, reading: str) -> None:
    with pytest.raises(SpecError) as refusal:
        build().simulator(dram=bytearray(IMAGE), reading=reading, strict=True).run(stream(row))
    assert refusal.value.problem.sentence == sentence


@pytest.mark.parametrize(("row", "sentence"), ALWAYS)
def test_refused_even_without_diagnostics(row: tuple[str, dict[str, int]], sentence: str) -> None:
    image = bytearray(IMAGE)
    with pytest.raises(SpecError) as refusal:
        build().simulator(dram=image).run(stream(row))
    assert refusal.value.problem.sentence == sentence
    assert refusal.value.problem.place == f"instruction 0 ({row[0]})"
    assert image == bytes(IMAGE)


@pytest.mark.parametrize(("row", "sentence"), [d for d in DIAGNOSED if d[0][0] not in ("load_uop", "load_wgt")])
def test_without_diagnostics_the_device_does_something(row: tuple[str, dict[str, int]], sentence: str) -> None:
    for reading in READINGS:
        build().simulator(dram=bytearray(IMAGE), reading=reading).run(stream(row))


OF_HLS = (
    (("alu_mul", {"uop_end": 1, "iter_out": 1, "iter_in": 1}), "alu_mul does nothing in the HLS design"),
    (("load_acc_8bit", {"y_size": 1, "x_size": 1}), "load_acc_8bit exists in the functional simulator only"),
    (("alu_shr", {"uop_end": 1, "iter_out": 1, "iter_in": 1, "use_imm": 1, "imm": 16}), "the amount of alu_shr must be in -16…15, not 16"),
)  # fmt: skip


@pytest.mark.parametrize(("row", "sentence"), OF_HLS)
def test_what_the_hls_design_cannot(row: tuple[str, dict[str, int]], sentence: str) -> None:
    with pytest.raises(SpecError) as refusal:
        build(behaviour="hls").simulator(dram=bytearray(IMAGE), strict=True).run(stream(row, behaviour="hls"))
    assert refusal.value.problem.sentence == sentence


UNDECODED = (
    ([1 << 128], SpecError, "data has 128 bits; 0x100000000000000000000000000000000 does not fit"),
    ([-1], SpecError, "data has 128 bits; -0x1 does not fit"),
    (["0x3"], UsageError, "instruction 0 must be an integer, not str"),
    ([3, 7], SpecError, "no instruction of vta decodes 0x7"),
)  # fmt: skip


@pytest.mark.parametrize(("given", "kind", "sentence"), UNDECODED)
def test_refused_word(given: list[Any], kind: type[FlexmatchError], sentence: str) -> None:
    with pytest.raises(kind) as refusal:
        build().simulator(strict=True).run(given)
    assert refusal.value.problem.sentence == sentence


# -- queues

ELEMENT = {"y_size": 1, "x_size": 1}
GEMM = {"uop_end": 1, "iter_out": 1, "iter_in": 1}


def ran(*rows: tuple[str, dict[str, int]], strict: bool = True) -> None:
    vta = build().simulator(dram=bytearray(IMAGE), strict=strict)
    vta.run(stream(("load_acc", {"y_size": 1, "x_size": 4})))  # what is stored was written
    vta.run(stream(*rows))


def test_deadlock_names_both_instructions() -> None:
    """The load waits for the computation, which waits for the load."""
    rows = ("load_inp", {**ELEMENT, "pop_next": 1, "push_next": 1}), ("gemm", {**GEMM, "pop_prev": 1, "push_prev": 1})
    for strict in (False, True):
        with pytest.raises(DeviceHang) as refusal:
            ran(*rows, strict=strict)
        assert refusal.value.problem.sentence == (
            "no interrupt can come: queue load waits at instruction 0 (load_inp) for a token of g2l that instruction 1 (gemm) would give; "
            "queue compute waits at instruction 1 (gemm) for a token of l2g that instruction 0 (load_inp) would give"
        )


def test_token_that_nothing_gives() -> None:
    with pytest.raises(DeviceHang) as refusal:
        ran(("store", {**ELEMENT, "pop_prev": 1}))
    assert refusal.value.problem.sentence == (
        "no interrupt can come: queue store waits at instruction 0 (store) for a token of g2s that nothing gives"
    )


def test_left_over_token() -> None:
    with pytest.raises(SpecError) as refusal:
        ran(("load_inp", {**ELEMENT, "push_next": 1}), ("gemm", GEMM))
    assert refusal.value.problem.sentence == "instruction 0 (load_inp) gives a token of l2g that nothing takes"
    ran(("load_inp", {**ELEMENT, "push_next": 1}), strict=False)


RACES = (
    ((("load_inp", ELEMENT), ("gemm", GEMM)),
     "instruction 0 (load_inp) and instruction 1 (gemm) may run in either order, "
     "but the first writes and the second reads element 0 of inp"),
    ((("gemm", GEMM), ("store", ELEMENT)),
     "instruction 0 (gemm) and instruction 1 (store) may run in either order, but the first writes and the second reads element 0 of acc"),
    ((("gemm", {**GEMM, "push_next": 1}), ("store", {**ELEMENT, "pop_prev": 1}), ("alu_add", GEMM)),
     "instruction 1 (store) and instruction 2 (alu_add) may run in either order, "
     "but the first reads and the second writes element 0 of acc"),
    ((("store", {**ELEMENT, "dram_base": 2}), ("load_inp", {**ELEMENT, "dram_base": 1, "x_size": 2})),
     "instruction 0 (store) and instruction 1 (load_inp) may run in either order, "
     "but the first writes and the second reads element 32 of dram"),
    ((("store", ELEMENT), ("finish", {})), "instruction 1 (finish) may end the run before instruction 0 (store) is done"),
    ((("finish", {}), ("store", ELEMENT)), "instruction 0 (finish) may end the run before instruction 1 (store) is done"),
)  # fmt: skip


@pytest.mark.parametrize(("rows", "sentence"), RACES)
def test_race(rows: tuple[tuple[str, dict[str, int]], ...], sentence: str) -> None:
    with pytest.raises(SpecError) as refusal:
        ran(*rows)
    assert refusal.value.problem.sentence == sentence
    ran(*rows, strict=False)


def test_elements_apart_do_not_race() -> None:
    """Double buffering: one half is loaded while the other is used."""
    ran(
        ("load_inp", ELEMENT),
        ("load_wgt", {**ELEMENT, "push_next": 1}),
        ("load_acc", {**ELEMENT, "x_size": 2, "pop_prev": 1, "push_next": 1}),
        ("load_inp", {**ELEMENT, "sram_base": 1}),
        ("gemm", GEMM),
        ("store", {**ELEMENT, "sram_base": 1, "dram_base": 100, "pop_prev": 1}),
    )


def test_tokens_are_kept_from_one_run_to_the_next() -> None:
    """A stream may be run word by word."""
    rows = (("load_inp", {**ELEMENT, "push_next": 1}), ("gemm", {**GEMM, "pop_prev": 1}), ("gemm", {**GEMM, "pop_prev": 1}))
    vta = build().simulator(dram=bytearray(IMAGE))
    first, second, third = stream(*rows)
    vta.run([first])
    vta.run([second])
    with pytest.raises(DeviceHang, match="queue compute waits at instruction 0"):
        vta.run([third])


def test_check_changes_nothing() -> None:
    image = bytearray(b"\1" * IMAGE)
    vta = build().simulator(dram=image)
    load, store = stream(*ONE_ACC)
    with pytest.raises(SpecError, match="may run in either order"):
        vta.check([load, store])
    assert image == b"\1" * IMAGE
    assert not vta.state("acc").any()


def test_stream_out_of_dependency_order_runs_as_the_tokens_say() -> None:
    rows = (
        ("store", {**ELEMENT, "dram_base": 4, "pop_prev": 1, "push_prev": 1}),
        ("load_acc", {**ELEMENT, "push_next": 1}),
        ("finish", {"pop_next": 1}),
    )
    for reading in READINGS:
        image = bytearray(bytes(range(1, 65)) + bytes(16))
        vta = build().simulator(dram=image, reading=reading, strict=True)
        vta.run(stream(*rows))
        assert image[64:] == bytes(range(1, 65, 4))
        vta.wait_for_interrupt()


# -- samples


def test_samples_run_at_once() -> None:
    """What three runs with an image each give, one run gives; weights and micro-ops are the same for all samples."""
    name, count = "gemm_16x64x32_shift_clip", 3
    trace, image = TRACES[name], IMAGES[f"{name}.dram_before"]
    base, region, out = trace["phys_base"], trace["regions"]["inp"], trace["regions"]["out"]
    inputs = np.random.default_rng(4).integers(0, 256, (count, region["nbytes"])).astype(np.uint8)
    vta = build().simulator(dram=image.copy(), base=base, samples=count)
    vta.place("dram", region["phys"], inputs)
    vta.run(words(trace))
    found = vta.fetch("dram", out["phys"], out["nbytes"])
    for n in range(count):
        alone = image.copy()
        alone[region["offset"] : region["offset"] + region["nbytes"]] = inputs[n]
        build().simulator(dram=alone, base=base).run(words(trace))
        assert np.array_equal(found[n], alone[out["offset"] : out["offset"] + out["nbytes"]])
    assert len({f.tobytes() for f in found}) == count
    vta.place("dram", out["phys"] + 1, np.arange(5))
    assert vta.fetch("dram", out["phys"], 7)[:, 1:6].tolist() == [[0, 1, 2, 3, 4]] * count


def test_refused_samples() -> None:
    vta = build().simulator(dram=bytearray(16), samples=2)
    for action, sentence in (
        (lambda: vta.place("dram", 0, np.zeros((3, 4))), "dram must be given for 2 samples, not 3"),
        (lambda: vta.fetch("dram", 12, 5), "dram has 16 words; 12…16 are not all among them"),
        (lambda: build().simulator(samples=2, reading="oracle"), "the reading oracle runs one sample at a time"),
    ):
        with pytest.raises(FlexmatchError) as refusal:
            action()
        assert refusal.value.problem.sentence == sentence


def test_sizes_of_another_configuration() -> None:
    """Batch 2, block 8: an accumulator element is 2 × 8, a weight element 8 × 8."""
    sizes = {"log_batch": 1, "log_block": 3, "log_inp_buffer": 10, "log_wgt_buffer": 12, "log_acc_buffer": 12}
    rng = np.random.default_rng(7)
    inp, wgt = rng.integers(-128, 128, (2, 2, 8)).astype(np.int8), rng.integers(-128, 128, (2, 8, 8)).astype(np.int8)
    c = Config(**sizes)
    uop = np.array([c.micro_op(0, 0, 0), c.micro_op(0, 1, 1)], np.uint32)
    image = bytearray(inp.tobytes() + bytes(32) + wgt.tobytes() + uop.tobytes() + bytes(8) + bytes(16))
    rows = (
        ("load_uop", {"dram_base": 192 // 4, "y_size": 1, "x_size": 2}),
        ("load_inp", {"y_size": 1, "x_size": 2}),
        ("load_wgt", {"dram_base": 1, "y_size": 1, "x_size": 2}),
        ("gemm", {"uop_end": 2, "iter_out": 1, "iter_in": 1}),
        ("store", {"dram_base": 208 // 16, "y_size": 1, "x_size": 1}),
    )
    expected = sum(inp[k].astype(np.int64) @ wgt[k].astype(np.int64).T for k in range(2))
    for reading in READINGS:
        mine = bytearray(image)
        build(**sizes).simulator(dram=mine, reading=reading).run(stream(*rows, **sizes))
        assert np.array_equal(np.frombuffer(mine, np.int8)[208:].reshape(2, 8), expected.astype(np.int8))
