"""Five programs that decide whether the language is enough: no Python callback, and all readings give the same bits.

The solver's reading has free variables where `free` says so; the oracle's numbers are put in for them afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import z3
from test_c import Library, needs_gcc

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila_models import flexasr, hlscnn, vta
from rewrite_compiler.lang import Leaf, Step, Table, absolute, array, clamp, let, loop, reduce_sum, select, seq, update, wrap
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lang.step import reads_of, updates_of
from rewrite_compiler.lowering.lower import lower_step
from rewrite_compiler.readings.arrays.batched_memory import Memory
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype
from rewrite_compiler.readings.c.printer import Tables, print_c
from rewrite_compiler.readings.native.printer import NativeFunction
from rewrite_compiler.readings.oracle.emit_python import StepFunction
from rewrite_compiler.readings.smt.evaluator import SymbolicEvaluator
from rewrite_compiler.readings.state.interpreter import Machine

Data = np.ndarray[Any, Any]
Contents = dict[Leaf, Data]
MOST_SYMBOLIC = 1 << 21  # elements of a memory that the solver's reading is given


@dataclass(frozen=True)
class Program:
    """A step, what its memories hold, and which elements are free variables of the solver."""

    step: Step
    contents: Contents
    free: dict[Leaf, tuple[slice, ...]] = field(default_factory=dict)

    @property
    def written(self) -> list[Leaf]:
        """The memories that change."""
        return sorted({u.memory for u in updates_of(self.step)} & self.contents.keys(), key=lambda leaf: leaf.name)


def held(step: Step, seed: int, **given: Any) -> Contents:
    """Return contents for every memory of a step: control as given, else 0; data in the range of its elements at random."""
    random, found = np.random.default_rng(seed), {}
    for leaf in sorted(reads_of(step).union(u.memory for u in updates_of(step)), key=lambda x: x.name):
        shape, kind = static_shape(leaf), storage_dtype(leaf.interval)
        found[leaf] = np.zeros(shape, kind)
        if leaf.name in given:
            found[leaf][...] = given.pop(leaf.name)
        elif (leaf.shape and len(leaf.shape) > 1) or leaf.name.startswith("spad"):
            found[leaf] = np.resize(random.integers(*leaf.interval, 4099, kind, endpoint=True), shape)
    assert not given, given
    return found


def operands(model: Ila, name: str) -> Step:
    return model.instructions[name].update


def alu() -> Program:
    """The second micro-op adds what the first one wrote: an element read after it was written, in one instruction."""
    step = operands(vta.build(), "alu_add")
    (uop,) = (leaf for leaf in reads_of(step) if leaf.name == "uop")
    words = np.zeros(static_shape(uop), storage_dtype(uop.interval))
    words[:3] = [1 | 0 << 11, 2 | 1 << 11, 3 | 2 << 11]  # destination and source: 1 += 0, 2 += 1, 3 += 2
    contents = held(step, 1, uop=words, uop_end=3, iter_out=1, iter_in=2, dst_factor_in=1, src_factor_in=1)
    (acc,) = (leaf for leaf in contents if leaf.name == "acc")
    return Program(step, contents, {acc: (slice(0, 5), slice(0, 1), slice(0, 2))})


def activation() -> Program:
    """Each output vector adds the register that the one before left: R1 += R0, R0 := max(R1, 0), R1 := 1 − R1."""
    step = operands(flexasr.build(), "pe0_start")
    program = np.zeros((4, 32), np.uint8)
    program[0, :4] = [0x84, 0x71, 0xC0, 0xD4]
    on = {"act_is_valid": 1, "pe_is_valid": 1, "act_num_inst": 4, "act_num_output": 3, "act_vector": program}
    contents = held(
        step, 2, **on, **dict.fromkeys(("pe_num_input", "pe_base_input", "pe_base_weight", "pe_base_bias", "pe_zero_active"), 0)
    )
    (registers,) = (leaf for leaf in contents if leaf.name == "act_regs")
    return Program(step, contents, {registers: (slice(0, 1), slice(0, 2), slice(0, 3))})


def layer_norm() -> Program:
    """Mean, variance and their divisions, with the square root by segments, over two timesteps of two vectors."""
    step = operands(flexasr.build(), "gb_layer_norm_start")
    sizes = {"num_vector_1": 2, "num_timestep_1": 2, "is_valid": 1, "adpbias_1": 3, "adpbias_3": 2, "adpbias_4": 3}
    return Program(step, held(step, 3, **{f"gb_layer_norm_{k}": v for k, v in sizes.items()}, gb_large_num_vector_0=2, gb_small_base_6=2))


def convolution() -> Program:
    """Outputs overwrite inputs that later ones still read: both lie at the start of SPAD1."""
    step = operands(hlscnn.build("uni16", soc_bytes=1 << 13, spad_bytes=1 << 11), "accel_conv_trigger")
    base = {"conv_act_base": 0x4000 + (1 << 11), "conv_output_base": 0x4000 + (1 << 11), "conv_weight_base": 0x4000}
    sizes = {"input_channels": 8, "input_rows": 3, "input_cols": 3, "filters": 8, "output_rows": 2, "output_cols": 2}
    kernel = {"kernel_rows": 2, "kernel_cols": 2, "kernel_row_stride": 1, "kernel_col_stride": 1, "valid": 1, "bias": 77, "bias_on": 1}
    contents = held(step, 4, **base, **{f"conv_{k}": v for k, v in {**sizes, **kernel}.items()})
    (spad,) = (leaf for leaf in contents if leaf.name == "spad1")
    return Program(step, contents, {spad: (slice(0, 2),)})


SQUASH = Table("squash", lambda x: clamp((x << 7) // (absolute(x) + 128), -127, 127), (-512, 511))
N = Leaf((), (0, 6), False, "n")
X, W, H, C, Y = (
    Leaf(shape, (-128, 127), False, name) for name, shape in (("x", (6, 2)), ("w", (4, 2, 4)), ("h", (2,)), ("c", (2,)), ("y", (6, 2)))
)


def recurrent(steps: int) -> Program:
    """An LSTM whose length is a register: four gates of products over input and state, table, elementwise products."""

    def gate(g: int, k: Any, i: Any) -> Any:
        total = reduce_sum(lambda j: W[g, i, j] * select(j < 2, X[k, clamp(j, 0, 1)], H[clamp(j - 2, 0, 1)]), 4)
        return SQUASH(clamp(total >> 5, -512, 511))

    def cell(k: Any) -> Step:
        gates = array(lambda g, i: select(g == 0, gate(0, k, i), select(g == 1, gate(1, k, i), select(g == 2, gate(2, k, i), gate(3, k, i)))), (4, 2))  # fmt: skip  # noqa: E501

        def after(z: Leaf) -> Step:
            moved = update(C, 2, lambda i: (i, clamp((z[0, i] * z[1, i] + z[2, i] * C[i]) >> 7, -128, 127)))
            state = update(H, 2, lambda i: (i, wrap((z[3, i] * C[i]) >> 7, 8)))
            return seq(moved, state, update(Y, 2, lambda i: ((k, i), H[i])))

        return let(gates, after)

    step = loop(N[()], cell)
    contents = held(step, 5, n=steps)
    return Program(step, contents, {X: (slice(0, min(steps, 1)), slice(0, 1))})


PROGRAMS = {
    "VTA: read after write in one instruction": alu,
    "FlexASR: a register left by the vector before": activation,
    "FlexASR: layer norm with its divisions": layer_norm,
    "HLSCNN uni16: convolution in place": convolution,
    "LSTM of 0 steps": lambda: recurrent(0),
    "LSTM of 1 step": lambda: recurrent(1),
    "LSTM of 6 steps": lambda: recurrent(6),
}


def by_oracle(p: Program) -> Contents:
    flat = {leaf: data.reshape(-1).tolist() for leaf, data in p.contents.items()}
    function = StepFunction(p.step)
    function([flat[leaf] for leaf in function.memories])
    return {leaf: np.array(flat[leaf], p.contents[leaf].dtype).reshape(p.contents[leaf].shape) for leaf in p.written}


def by_arrays(p: Program) -> Contents:
    machine = Machine({leaf: Memory(data.copy()) for leaf, data in p.contents.items()})
    machine.run(p.step)
    return {leaf: machine.memories[leaf].full(machine.axes).data for leaf in p.written}


def by_machine_code(p: Program) -> Contents:
    after = {leaf: data.copy() for leaf, data in p.contents.items()}
    function = NativeFunction(p.step)
    function([after[leaf] for leaf in function.memories])
    return {leaf: after[leaf] for leaf in p.written}


def by_solver(p: Program) -> Contents:
    """Run the step on free variables, then put the numbers in."""
    memories: Contents = {leaf: data.astype(object) for leaf, data in p.contents.items() if data.size <= MOST_SYMBOLIC}
    numbers = []
    for leaf, where in p.free.items():
        for place in np.ndindex(*memories[leaf][where].shape):
            variable = z3.Int(f"{leaf.name}_{'_'.join(map(str, place))}")
            numbers.append((variable, z3.IntVal(int(memories[leaf][where][place]))))
            memories[leaf][place] = variable
    symbolic = SymbolicEvaluator(memories)
    symbolic.run(p.step)
    found = {}
    for leaf in p.written:
        words = [z3.simplify(z3.substitute(x, numbers)).as_long() if z3.is_expr(x) else int(x) for x in symbolic.memories[leaf].reshape(-1)]
        found[leaf] = np.array(words, p.contents[leaf].dtype).reshape(p.contents[leaf].shape)
    return found


def same(found: Contents, expected: Contents) -> bool:
    return found.keys() == expected.keys() and all((found[leaf] == x).all() for leaf, x in expected.items())


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_readings_agree(name: str) -> None:
    p = PROGRAMS[name]()
    expected = by_oracle(p)
    has_changed = any((expected[leaf] != p.contents[leaf]).any() for leaf in p.written)
    assert has_changed == (name != "LSTM of 0 steps")
    for reading in (by_arrays, by_machine_code, by_solver):
        assert same(reading(p), expected), reading.__name__


@needs_gcc
def test_printed_c_agrees(tmp_path: Path) -> None:
    tables, programs = Tables(), {f"f{n}": make() for n, make in enumerate(PROGRAMS.values())}
    library = Library([print_c(lower_step(p.step), name, tables) for name, p in programs.items()], tables, tmp_path)
    for name, p in programs.items():
        after = {leaf: data.copy() for leaf, data in p.contents.items()}
        assert library.run(name, after) == 0
        assert same({leaf: after[leaf] for leaf in p.written}, by_oracle(p)), list(PROGRAMS)[int(name[1:])]


def test_the_alu_program_needs_its_order() -> None:
    """The same micro-ops on the accumulators before the instruction give something else."""
    p = alu()
    (acc,) = p.free
    (after,) = (x for leaf, x in by_oracle(p).items() if leaf is acc)
    before = p.contents[acc].astype(np.int64)
    assert (after[2] != (before[2] + before[1])).any()


def test_the_activation_program_needs_its_registers() -> None:
    """Three output vectors are not the first one three times: the second starts from what the first left."""
    p = activation()
    (registers,) = p.free
    (count,) = (leaf for leaf in p.contents if leaf.name == "act_num_output")
    once = by_oracle(Program(p.step, {**p.contents, count: p.contents[count] // 3}))
    assert (by_oracle(p)[registers] != once[registers]).any()
