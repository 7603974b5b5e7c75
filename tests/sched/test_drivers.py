"""Drivers that follow from models: unlike accelerators, none of which has a line of driver, are proved by the court."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila
from rewrite_compiler.prove import prove_mapping
from rewrite_compiler.prove.certificates import statements
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.sched.driver import completion, generation
from rewrite_compiler.sched.driver.generation import Request, known_schedule, program_of
from rewrite_compiler.sched.driver.matching import NONE
from rewrite_compiler.sched.driver.program import Block, Program
from rewrite_compiler.sched.driver.schedule import Failure
from rewrite_compiler.sched.driver.stages import Forecast
from rewrite_compiler.sched.instructions.computation import computations
from rewrite_compiler.target import Target, find_target, load_target, simulated_device

ACCELERATORS = Path(__file__).parent / "accelerators"


@cache
def accelerator(name: str) -> Target:
    return load_target(str(ACCELERATORS / f"{name}.py"))


def request(target: Target, operation: str, **sizes: Any) -> Request:
    m = target.mappings[operation]
    shapes = {v.name: tuple(sizes[d] for d in m.axes.of[v.name]) for v in m.operands}
    magnitudes = dict(zip(m.format_choices, (0.5, 3.0, 40.0, 40.0), strict=False))
    return Request(m, shapes, m.formats_for(magnitudes), {name: sizes[name] for name, _ in m.statics})


def commands(target: Target, operation: str, **sizes: Any) -> list[tuple[str, int]]:
    program = program_of(target.ila(), request(target, operation, **sizes))
    return [(b.instruction, b.count) for b in program.blocks]


@pytest.mark.parametrize(
    ("name", "operation", "strength"),
    [
        ("toy", "dense", "every k from 24 on by induction in steps of 8"),
        ("systolic", "dense", "every k from 8 on by induction in steps of 1"),
        ("vector", "add", "symbolic at t=2, n=6 (11 instructions)"),
        ("vector", "mul", "symbolic at t=2, n=6 (11 instructions)"),
        ("outer", "dense", "every k from 4 on by induction in steps of 1"),
        ("outer", "dense_bias_relu", "every k from 4 on by induction in steps of 1"),
        ("modes", "mul", "symbolic at t=2, n=5"),
        ("lines", "dense", "every k from 4 on by induction in steps of 1"),
        ("scales", "dense_scaled", "every k from 4 on by induction in steps of 1"),
        ("ring", "conv", "symbolic at b=1, c=4, i=5, n=2, s=3, v=3, strides=(1,), pads=(0, 0) (20 instructions)"),
        ("pool", "max_pool", "(28 instructions), random codes at 2 sizes"),
        ("dma", "dense", "every k from 4 on by induction in steps of 1"),
        ("dma", "dense_relu", "every k from 4 on by induction in steps of 1"),
        ("stages", "dense_bias_relu", "every k from 4 on by induction in steps of 1"),
        ("tiles", "dense_bias_relu", "every k from 4 on by induction in steps of 1"),
        ("fifo", "dense_relu", "symbolic at t=1, k=8, n=3 (15 instructions)"),
    ],
)
def test_generated_drivers_have_certificates(name: str, operation: str, strength: str) -> None:
    target = accelerator(name)
    proof = prove_mapping(target.mappings[operation], target.ila())
    assert str(proof.verdict) == "proved", proof.evidence
    assert strength in proof.strength


def test_the_toy_gets_the_commands_that_one_writes_by_hand() -> None:
    """Registers once, inputs and weights vector by vector, a command for each result, a read for each result."""
    assert commands(accelerator("toy"), "dense", t=1, k=24, n=5) == [
        ("store_w", 15), ("store_x", 3), ("config", 1), ("dot", 5), ("load_y", 5),
    ]  # fmt: skip


def test_what_is_dictated_is_loaded_again() -> None:
    """The toy's inputs begin at vector 0, so rows come one after the other; a FIFO of four is emptied when it is full."""
    assert commands(accelerator("toy"), "dense", t=2, k=8, n=3)[2:] == [
        ("config", 1), ("dot", 3), ("store_x", 1), ("dot", 3), ("load_y", 6),
    ]  # fmt: skip
    kinds = [name for name, _ in commands(accelerator("systolic"), "dense", t=3, k=20, n=11)]
    assert kinds.count("load_row") == 3 * 2
    assert kinds[-5:] == ["emit", "pop", "oldest", "pop", "oldest"]


def test_limits_are_what_regions_take() -> None:
    limits = {x.what: (x.needs, x.most) for x in accelerator("toy").mappings["dense"].limits_at({"t": 1, "k": 64, "n": 8})}
    assert limits == {"addresses of y": (8, 64), "addresses of x": (8, 64), "addresses of w": (64, 512)}
    assert accelerator("toy").mappings["dense"].exceeded_limit({"t": 1, "k": 64, "n": 65}) is not None


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("toy", "acc + reduce_sum", "acc - reduce_sum"),
        ("toy", ">> 1)) >> shift, 8)", ">> 2)) >> shift, 8)"),
        ("systolic", "(m.r.row % ROWS, j), wrap(before", "(m.r.row % ROWS, j), wrap(0 * before"),
        ("systolic", "(m.r.head + 1) % DEPTH", "(m.r.head + 2) % DEPTH"),
        ("vector", "signed(vector[2 * j] +", "signed(vector[2 * j] + 1 +"),
        ("vector", "at = v * LANES + j", "at = v * LANES + 3 - j"),
        ("outer", "acc[i, j] + (bias[j] << m.r.scale)", "acc[i, j] - (bias[j] << m.r.scale)"),
        ("outer", "select(keep[()], acc[i, j], 0)", "select(keep[()], 0, acc[i, j])"),
        ("modes", "sat(a - b, 12)", "sat(b - a, 12)"),
        ("lines", "code >> 8 * n", "code >> 4 * n"),
        ("scales", "total[r % ROWS, j] * factor[j]", "total[r % ROWS, j] * factor[SIZE - 1 - j]"),
        ("scales", "(total[index[()], j] if keeps else 0)", "(0 if keeps else total[index[()], j])"),
        ("ring", "(m.r.head + k) % TAPS", "(m.r.head + 2 * k) % TAPS"),
        ("ring", "assign(m.s.head, (m.r.head + 1)", "assign(m.s.head, (m.r.head + 2)"),
        ("pool", "select(m.r.first, x,", "select(m.r.first, 0,"),
        ("dma", "f.first * LANES", "f.first * 2 * LANES"),
        ("stages", "minimum(s, 127)", "minimum(s, 126)"),
        ("tiles", "bias[j])", "bias[i])"),
        ("stages", "maximum(s, 0)", "maximum(s, 1)"),
        ("fifo", "(m.r.taken + 1) % DEPTH", "(m.r.taken + 3) % DEPTH"),
    ],
)
def test_a_mutated_model_is_noticed_or_driven_rightly(name: str, right: str, wrong: str, tmp_path: Path) -> None:
    """A change of the model changes numerics that share it, is refused, or the driver follows it: what is returned is never wrong."""
    text = (ACCELERATORS / f"{name}.py").read_text()
    assert right in text
    path = tmp_path / f"{name}.py"
    path.write_text(text.replace(right, wrong))
    target = load_target(str(path))
    for operation, m in target.mappings.items():
        r = request(target, operation, **m.trials[-1])
        random = np.random.default_rng(0)
        codes = {leaf.name: random.integers(-100, 100, leaf.shape) for leaf in r.leaves}  # type: ignore[arg-type]
        try:
            program = program_of(target.ila(), r)
        except SpecError:
            continue
        result = program.run(simulated_device(target.ila()), codes, {n: len(s) for n, s in r.shapes.items()})
        assert np.array_equal(result, evaluate(r.term, {leaf: codes[leaf.name] for leaf in r.leaves}))


def test_a_tile_of_results_is_finished_before_the_next() -> None:
    """Accumulators without an address hold one tile: its sums, then bias and rounding, then its rows are read, and only then the next."""
    kinds = [name for name, _ in commands(accelerator("outer"), "dense_bias_relu", t=5, k=8, n=3)]
    tile = ["outer", "finish", "get"]
    assert [name for name in kinds if name in tile] == tile * 2
    assert kinds.count("put_b") == kinds.count("put_bias") == 1


def test_stages_are_as_many_as_the_sizes_need() -> None:
    """A command for each stage that goes over the sums; the clamp is left out where sums are too short to reach it."""
    m, kinds = accelerator("stages").mappings["dense_bias_relu"], {}
    formats = m.formats_for({"x": 1.0, "w": 1.0, "b": 1.0, "y": 60.0})
    for k in (8, 60):
        r = Request(m, {"x": (2, k), "w": (6, k), "b": (6,)}, formats, {})
        program = program_of(accelerator("stages").ila(), r)
        codes = {leaf.name: np.full(leaf.shape, 127) for leaf in r.leaves}
        result = program.run(simulated_device(accelerator("stages").ila()), codes, {n: len(s) for n, s in r.shapes.items()})
        assert np.array_equal(result, evaluate(r.term, {leaf: codes[leaf.name] for leaf in r.leaves}))
        kinds[k] = [b.instruction for b in program.blocks]
    assert kinds[8] == ["put_x", "put_w", "multiply", "put_bias", "add_bias", "relu", "half", "get"]
    assert kinds[60] == [*kinds[8][:-1], "clamp", "get"]


def test_a_weight_stationary_array_streams_all_rows_of_a_tile() -> None:
    """Cells are loaded once for each block of channels; the first products of a sum are pushed by a command that reads no sum."""
    block = [
        ("load_cells", 4),
        ("push", 5),
        ("load_cells", 4),
        ("push_add", 5),
        ("load_factors", 1),
        ("shifts", 1),
        ("requantise", 1),
        ("get", 5),
    ]
    again = [b for b in block if b[0] != "shifts"]
    assert commands(accelerator("scales"), "dense_scaled", t=5, k=8, n=8) == block + again


def test_a_buffer_that_a_pointer_goes_round_keeps_what_the_next_window_has() -> None:
    """Three vectors fill it, then as many as the window moves: one or two."""
    for stride, outputs in ((1, 5), (2, 3)):
        sizes = {"b": 1, "c": 4, "i": 7, "n": 2, "s": 3, "v": outputs, "strides": (stride,), "pads": (0, 0)}
        kinds = [name for name, _ in commands(accelerator("ring"), "conv", **sizes)]
        assert kinds.count("shift_in") == 3 + (outputs - 1) * stride


CONV = '''\
TRIALS = [
    {"b": 1, "n": 2, "c": 4, "i": 4, "j": 3, "r": 2, "s": 2, "u": 2, "v": 2, "strides": (2, 1), "pads": (0, 0, 0, 0)},
    {"b": 1, "n": 3, "c": 5, "i": 5, "j": 6, "r": 3, "s": 2, "u": 2, "v": 5, "strides": (2, 1), "pads": (0, 0, 0, 0)},
]


@target.accelerates(axes="x: b c i j; w: n c r s; y: b n u v", formats=dict.fromkeys("xwy", fixed8), whole="c r s", trials=TRIALS)
def conv2d(x: Tensor, w: Tensor, strides: Ints, pads: Ints):
    """A convolution."""
    guard = Where(x.rank == 4, w.rank == 4, IsConstant(w), pads == (0, 0, 0, 0))
    return o.conv(x, w, strides=strides, pads=pads, dilations=(1, 1), group=1), guard


@conv2d.numerics
def conv_codes(x, w, f, strides, pads):
    shift = f["x"].fraction + f["w"].fraction - f["y"].fraction

    def code(b, n, u, v):
        total = wrap(reduce_sum(lambda c, r, s: x[b, c, u * strides[0] + r, v * strides[1] + s] * w[n, c, r, s], w.shape[1:]), 24)
        return sat((total + ((1 << shift) >> 1)) >> shift, 8)

    rows, cols = ((x.shape[2 + n] - w.shape[2 + n]) // strides[n] + 1 for n in range(2))
    return array(code, (x.shape[0], w.shape[0], rows, cols))
'''


def with_convolution(name: str, folder: Path) -> Target:
    """Return an accelerator that declares a convolution as well."""
    path = folder / f"{name}.py"
    path.write_text("from rewrite_compiler.rewrite import Ints\n" + (ACCELERATORS / f"{name}.py").read_text() + "\n\n" + CONV)
    return load_target(str(path))


@pytest.mark.parametrize("name", ["dma", "systolic"])
def test_units_of_dense_layers_do_convolutions(name: str, tmp_path: Path) -> None:
    target = with_convolution(name, tmp_path)
    proof = prove_mapping(target.mappings["conv2d"], target.ila())
    assert str(proof.verdict) == "proved", proof.evidence
    assert "every c from 4 on by induction in steps of 1" in proof.strength


@pytest.mark.parametrize("code", [0, 1])
def test_what_is_read_beside_an_image_is_a_zero(code: int, tmp_path: Path) -> None:
    """A border of zeros is brought as such, beside the image in all directions; one of another code leaves no driver."""
    text = CONV.replace("pads == (0, 0, 0, 0)", "pads == (1, 0, 1, 2)").replace('"pads": (0, 0, 0, 0)', '"pads": (1, 0, 1, 2)')
    text = text.replace('"u": 2, "v": 2', '"u": 3, "v": 4').replace('"u": 2, "v": 5', '"u": 3, "v": 7')
    text = text.replace("    shift = f", f"    x = bordered(x, pads, {code})\n    shift = f")
    path = tmp_path / "dma.py"
    imports = "from rewrite_compiler.rewrite import Ints\nfrom rewrite_compiler.target import bordered\n"
    path.write_text(f"{imports}{(ACCELERATORS / 'dma.py').read_text()}\n\n{text}")
    target = load_target(str(path))
    m = target.mappings["conv2d"]
    if code == 0:
        proof = prove_mapping(replace(m, trials=m.trials[:1]), target.ila())
        assert str(proof.verdict) == "proved", proof.evidence
        return
    with pytest.raises(SpecError) as refusal:
        program_of(target.ila(), request(target, "conv2d", **m.trials[0]))
    assert refusal.value.problem.code == "I116"


def test_a_convolution_is_one_sum_of_a_dense_unit_where_its_windows_are_written_out(tmp_path: Path) -> None:
    """Windows of 2 × 3 taps of 8 channels lie one after the other, so that a command sums up all of them."""
    sizes = {"b": 1, "n": 2, "c": 8, "i": 3, "j": 4, "r": 2, "s": 3, "u": 2, "v": 2, "strides": (1, 1), "pads": (0, 0, 0, 0)}
    kinds = commands(with_convolution("dma", tmp_path), "conv2d", **sizes)
    assert sum(count for name, count in kinds if name == "mac") == 2 * 2 * 2


TOGETHER = """        at, code = to[()], sat(products, 16)
        low, high = (wrap(code >> 8 * n, 8, False) for n in (0, 1))
        return together(assign(y, low, at % BYTES), assign(y, high, (at + 1) % BYTES))
"""


@pytest.mark.parametrize("changed", [None, "8 * (1 - n)"])
def test_results_may_lie_byte_by_byte_in_any_order_and_form(changed: str | None, tmp_path: Path) -> None:
    """The high byte first, or two assignments of one byte each that happen together."""
    text = (ACCELERATORS / "lines.py").read_text()
    first, last = text.index("        code = sat"), text.index('    m.instruction("get"')
    text = text.replace("8 * n", changed) if changed else f"{text[:first]}{TOGETHER}\n{text[last:]}"
    path = tmp_path / "lines.py"
    path.write_text(text.replace("import Fixed, array,", "import Fixed, array, assign, together,"))
    target = load_target(str(path))
    proof = prove_mapping(target.mappings["dense"], target.ila())
    assert str(proof.verdict) == "proved", proof.evidence


def test_sums_of_any_length_are_split_where_a_memory_ends() -> None:
    """Eight vectors are one command; more are parts of at most eight, the last of which may be filled up with zeros."""
    counts = {k: [name for name, _ in commands(accelerator("outer"), "dense", t=1, k=k, n=3)].count("outer") for k in (8, 9, 11, 16, 60)}
    assert counts == {8: 1, 9: 3, 11: 2, 16: 2, 60: 10}


def test_zeros_fill_up_sums_of_products_alone() -> None:
    """Not the largest of several numbers, nor a sum that a bias is added to at each step."""
    found = {
        (name, c.instruction): [c.is_annulled_by(a) for a in c.operands]
        for name in ("outer", "pool", "stages", "scales")
        for c in computations(accelerator(name).ila())
        if c.accumulates and c.operands
    }
    assert found == {
        ("outer", "outer"): [True, True], ("pool", "push"): [False], ("stages", "add_bias"): [False], ("scales", "push_add"): [True, True],
    }  # fmt: skip


@pytest.mark.parametrize("k", [9, 11, 16, 23])
def test_sums_in_parts_are_those_of_the_numerics(k: int) -> None:
    target = accelerator("outer")
    r = request(target, "dense_bias_relu", t=5, k=k, n=6)
    program = program_of(target.ila(), r)
    for codes, expected in r.samples:
        result = program.run(simulated_device(target.ila()), codes, {n: len(s) for n, s in r.shapes.items()})
        assert np.array_equal(result, expected)


@pytest.mark.parametrize(
    ("name", "operation", "instruction", "field", "value"),
    [
        ("outer", "dense_bias_relu", "put_bias", "", 0),
        ("outer", "dense_bias_relu", "config", "relu", 0),
        ("outer", "dense", "outer", "count", 3),
        ("modes", "mul", "mode", "mode", 0),
        ("toy", "dense", "dot", "first", 0),
        ("lines", "dense", "dot", "to", 0),
        ("scales", "dense_scaled", "load_factors", "", 0),
        ("ring", "conv", "tap", "filter", 0),
        ("pool", "max_pool", "mode", "first", 1),
        ("dma", "dense_relu", "round", "relu", 0),
        ("strides", "dense", "set_count", "value", 1),
    ],
)
def test_the_court_refutes_a_fault_in_a_stream(
    name: str, operation: str, instruction: str, field: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that is left out, or a field of it that has another value."""

    def changed(b: Block) -> list[Block]:
        if b.instruction != instruction:
            return [b]
        return [replace(b, columns={**b.columns, field: np.full(b.count, value)})] if field else []

    def faulty(ila: Ila, r: Request) -> Program:
        p = program_of(ila, r)
        return replace(p, blocks=tuple(x for b in p.blocks for x in changed(b)))

    monkeypatch.setattr(completion, "program_of", faulty)
    target = load_target(str(ACCELERATORS / f"{name}.py"))
    m = target.mappings[operation]
    proof = prove_mapping(replace(m, trials=m.trials[:2]), target.ila())
    assert str(proof.verdict) == "refuted", proof.evidence


LET = """
    @m.instruction("number", bus.write(0x0018), bit_fields("5:0 to"))
    def number(to):
        \"\"\"Store its number in a result; it has a name of its own.\"\"\"
        return let(array(lambda: to[()], ()), lambda n: assign(y, wrap(n[()], 8, False), to[()], 1), "n")

    @m.instruction("fill", bus.write_range(0x5000, RESULTS, LANES), lanes="vector")
    def fill(index, vector):
        \"\"\"Store a vector among the results; it has a name of its own.\"\"\"
        row = array(lambda j: vector[j], (LANES,))
        return let(row, lambda codes: update(y, LANES, lambda j: ((index[()], j), codes[j])), "codes")

    return m
"""


def test_instructions_with_names_of_their_own_are_read(tmp_path: Path) -> None:
    """A driver follows from a model in which other instructions bind names that are no state."""
    text = (
        (ACCELERATORS / "toy.py")
        .read_text()
        .replace("import Fixed, array, assign, fold, lift,", "import Fixed, array, assign, fold, let, lift,")
    )
    path = tmp_path / "toy.py"
    path.write_text(text.replace("\n    return m\n", LET))
    target = load_target(str(path))
    assert {"number", "fill"} < target.ila().instructions.keys()
    assert commands(target, "dense", t=1, k=24, n=5) == commands(accelerator("toy"), "dense", t=1, k=24, n=5)


def test_costs_follow_from_the_program_and_the_link(tmp_path: Path) -> None:
    """24 products of 8 inputs and 5 results: vectors of 8 bytes over a link of 8 bytes a cycle, a step of the unit for each vector."""
    text = (ACCELERATORS / "toy.py").read_text().replace("sources=(Path(__file__),))", "sources=(Path(__file__),), describe=describe)")
    describe = """
from rewrite_compiler.target import Clock, Link, Resources, Unit, state_memory


def describe(ila, parameters):
    memories = tuple(state_memory(ila, name, "depth lane") for name in "xwy")
    unit = Unit("dot", ("dense",), ("int8",), {"k": 8})
    links = (*(Link("host", name, 8) for name in "xw"), Link("y", "host", 8))
    return Resources(Clock(1_000_000, "assumed"), memories, (unit,), links)


target = """
    path = tmp_path / "toy.py"
    path.write_text(text.replace("\ntarget = ", describe))
    target = load_target(str(path))
    resources = target.resources()
    assert resources is not None
    cost = target.mappings["dense"].cost({"t": 1, "k": 24, "n": 5}, {}, resources)
    assert cost is not None
    assert (cost.unit, cost.compute_cycles) == ("dot", 15)
    assert cost.moved == {"w": 15 * 8, "x": 3 * 8, "commands": 6 * 8, "y": 5 * 8}
    assert cost.transfer_cycles == sum(cost.moved.values()) // 8


class CountingDevice:
    """A device that counts the commands that a driver issues."""

    def __init__(self, device: Any) -> None:
        self.device, self.count, self.words = device, 0, 0

    def attach(self, memory: str, words: int) -> None:
        self.words = words
        self.device.attach(memory, words)

    def issue(self, instruction: str, **operands: int) -> None:
        self.count += 1
        self.device.issue(instruction, **operands)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)


@pytest.mark.parametrize("sizes", [{"t": 7, "k": 30, "n": 45}, {"t": 1, "k": 784, "n": 10}])
def test_queues_tables_and_narrow_stores_need_no_driver(sizes: dict[str, int]) -> None:
    """A shipped accelerator with DRAM, queues, micro-ops and stores of one byte: the stream is right and no longer than by hand."""
    target = find_target("vta")
    r = request(target, "dense", **sizes)
    random = np.random.default_rng(0)
    codes = {leaf.name: random.integers(-128, 128, leaf.shape) for leaf in r.leaves}  # type: ignore[arg-type]
    program = program_of(target.ila(), r)
    result = program.run(simulated_device(target.ila()), codes, {n: len(s) for n, s in r.shapes.items()})
    assert np.array_equal(result, evaluate(r.term, {leaf: codes[leaf.name] for leaf in r.leaves}))
    by_hand = CountingDevice(simulated_device(target.ila()))
    r.mapping.run_driver(by_hand, codes, r.formats, {})
    assert program.commands == by_hand.count


@pytest.mark.parametrize(
    ("operation", "sizes"),
    [
        ("add_2", {"a": 3, "b": 40}),
        ("mul_2", {"a": 2, "b": 17}),
        ("relu_4", {"a": 1, "b": 2, "c": 3, "d": 7}),
    ],
)
def test_elementwise_streams_are_no_longer_than_by_hand(operation: str, sizes: dict[str, Any]) -> None:
    """Results leave in the bytes that say them, not in all of their format; a step that reads less of a micro-op shares another's."""
    target = find_target("vta")
    r = request(target, operation, **sizes)
    random = np.random.default_rng(0)
    codes = {leaf.name: random.integers(-128, 128, leaf.shape) for leaf in r.leaves}  # type: ignore[arg-type]
    codes = {name: np.where(random.random(x.shape) < 0.3, -128, x) for name, x in codes.items()}
    program = program_of(target.ila(), r)
    result = program.run(simulated_device(target.ila()), codes, {n: len(s) for n, s in r.shapes.items()})
    assert np.array_equal(result, evaluate(r.term, {leaf: codes[leaf.name] for leaf in r.leaves}))
    by_hand = CountingDevice(simulated_device(target.ila()))
    r.mapping.run_driver(by_hand, codes, r.formats, r.attributes)
    assert program.commands <= by_hand.count
    assert sum(program.moved("y").values()) <= by_hand.words + by_hand.count * program.command_bits // 8


def test_wide_codes_are_tried_at_all_magnitudes() -> None:
    """Sums of 32 bits that are rescaled to a byte saturate nearly always: a clip alone would agree with them."""
    scaling = {"multiplier": (9986105,), "shift": (31,), "zero": 14, "low": -128, "high": 127}
    r = request(find_target("vta"), "requantise_int8_2", a=2, b=12, **scaling)
    results = np.concatenate([y.reshape(-1) for _, y in r.samples])
    assert len(np.unique(results)) > 8


def test_what_a_computation_cannot_be_is_told_without_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is the one that simulations alone make; these are few."""
    target, choices, runs = accelerator("vector"), [], []

    def counting(self: Program, *args: Any) -> Any:
        runs.append(self)
        return run(self, *args)

    run = Program.run
    monkeypatch.setattr(Program, "run", counting)
    for refutes in (Forecast.refutes, lambda self, s: False):
        monkeypatch.setattr(Forecast, "refutes", refutes)
        generation._ways.cache_clear()
        runs.append(None)
        choices.append(generation.chosen(target.ila(), request(target, "mul", t=2, n=6)))
    alone = runs[::-1].index(None)
    assert [(c.computation, c.switches, c.operands) for c in choices[0]] == [(c.computation, c.switches, c.operands) for c in choices[1]]
    assert len(runs) - 2 - alone < alone


@pytest.mark.parametrize(("name", "operation"), [("outer", "dense"), ("toy", "dense"), ("systolic", "dense"), ("vector", "add")])
def test_elements_lie_as_far_from_the_first_as_their_axes_say(name: str, operation: str) -> None:
    """Ways along each axis, by which layouts are compared, add up to the address of each element."""
    target = accelerator(name)
    r = request(target, operation, t=5, k=24, n=7)
    chain = known_schedule(target.ila(), r)
    assert not isinstance(chain, Failure)
    place = chain[-1].result
    assert place.region.ways is not None
    first = place.first(target.ila())
    addresses, elements = place.region.addresses_from(first), place.region.elements({})
    index = np.unravel_index(elements[elements != NONE], place.slot.reach.shape)
    ways = sum((way[n] for way, n in zip(place.region.ways, index, strict=True)), np.array(first))
    assert np.array_equal(addresses[elements != NONE], ways)


def refusal(call: Any) -> str:
    with pytest.raises(SpecError) as caught:
        call()
    return str(caught.value)


def test_refusals_say_what_is_missing(tmp_path: Path) -> None:
    text = (ACCELERATORS / "toy.py").read_text()

    def refused(right: str, wrong: str) -> str:
        path = tmp_path / "toy.py"
        path.write_text(text.replace(right, wrong))
        target = load_target(str(path))
        return refusal(lambda: program_of(target.ila(), request(target, "dense", t=1, k=8, n=3)))

    unread = refused('    m.instruction("load_y"', '    (lambda *_: lambda f: f)("load_y"')
    assert "No driver of toy.dense follows from toy at t=1, n=3, k=8: no instruction returns the result y from the memory y" in unread
    other = refused("assign(y, wrap(code, 8, False)", "assign(y, wrap(code + 1, 8, False)")
    assert "gives other codes than the numerics" in other
    computing = refused("lanes_of(y, index[()], lanes=LANES)", "array(lambda j: wrap(y[index[()], j] * y[index[()], j], 8, False), LANES)")
    assert "from the memory y as it lies (over the bus: no instruction; load_y computes with what it reads)" in computing


def test_a_memory_that_fields_address_along_two_axes_is_refused_by_its_name(tmp_path: Path) -> None:
    """Two banks of weights: the field of the row, not the bank's, is the one that no schedule moves."""
    text = (ACCELERATORS / "toy.py").read_text()
    for right, wrong in (
        ("(size, LANES), 8) for name", '((2, size // 2, LANES) if name == "w" else (size, LANES)), 8) for name'),
        ("((index[()], j), vector[j])", "((*divided(memory, index[()]), j), vector[j])"),
        ("8:0 first, 21:16 to", "7:0 first, 8 bank, 21:16 to"),
        ("def dot(first, to)", "def dot(first, bank, to)"),
        ("w[(first[()] + v) % WEIGHTS, j]", "w[bank[()], (first[()] + v) % (WEIGHTS // 2), j]"),
        ("def build", "def divided(memory, at):\n    return (at // 256, at % 256) if memory.name == 'w' else (at,)\n\n\ndef build"),
    ):
        assert right in text
        text = text.replace(right, wrong)
    path = tmp_path / "toy.py"
    path.write_text(text)
    target = load_target(str(path))
    sentence = refusal(lambda: program_of(target.ila(), request(target, "dense", t=1, k=8, n=3)))
    assert "dot moves along axis 1 of w by first, k, and schedules move along axis 0 alone" in sentence


def test_a_certificate_of_a_generated_driver_depends_on_what_generates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[Path] = []
    monkeypatch.setattr(statements, "content_hash", lambda roots: files.extend(roots) or "")
    statements.statement_of_operation(accelerator("toy"), "dense")
    assert {"emission.py", "matching.py", "selection.py", "toy.py"} <= {f.name for f in files}
