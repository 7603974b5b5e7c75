"""Selection: instructions do the nests that unification gives them, on the oracle; what does not unify says why."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, MutableSequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rewrite_compiler.ila import Ila, ila, layout
from rewrite_compiler.ila.summary import Summary, Transition, summarise
from rewrite_compiler.lang import Leaf, update
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lang.step import reads_of, updates_of
from rewrite_compiler.readings.arrays.labelled_array import Data, storage_dtype
from rewrite_compiler.readings.oracle.emit_python import StepFunction
from rewrite_compiler.sched.instructions.selection import Nest, NoSelection, Operand, Selection, select, words_of

DEPTH, DRAM = 64, 1 << 14
VTA: dict[str, Any] = {"log_wgt_buffer": 14, "log_inp_buffer": 10, "log_acc_buffer": 12, "log_uop_buffer": 8}
ATTACHED = {"dram_start": 0, "dram_size": DRAM}
QUICK = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))


@cache
def vta() -> Ila:
    return ila("vta", **VTA)


@cache
def compiled(name: str) -> StepFunction:
    return StepFunction(vta().instructions[name].update, strict=True)


@cache
def parts(m: Ila, name: str, source: str) -> tuple[Summary, Any, Transition]:
    """Return the summary of an instruction, and its transition that reads a memory, with the loops around it."""
    s = summarise(m, name)
    assert isinstance(s, Summary)
    loops, t = next((loops, t) for _, loops, t in s.transitions() if source in {r.access.memory for r in t.reads})
    return s, loops, t


def executed(m: Ila, name: str, selection: Selection, summary: Summary, contents: Mapping[str, Data]) -> dict[str, Data]:
    """Run an instruction of the small design in the oracle, strictly, with the settings and the table of a selection."""
    update = m.instructions[name].update
    data: dict[Leaf, Data] = {}
    for leaf in reads_of(update) | {u.memory for u in updates_of(update)}:
        shape = (DRAM,) if leaf.name in m.externals else static_shape(leaf)
        data[leaf] = np.zeros(shape, storage_dtype(leaf.interval))
        if leaf.name in contents:
            data[leaf][...] = contents[leaf.name]
        if not leaf.shape:
            data[leaf][()] = selection.settings.get(leaf.name, 0)
        if leaf.name == "uop":
            for address, word in words_of(selection, summary.symbols)[0].items():
                data[leaf][address] = word
    function = compiled(name)
    views: dict[Leaf, MutableSequence[Any]] = {leaf: x.reshape(-1).data for leaf, x in data.items()}  # type: ignore[misc]
    function([views[leaf] for leaf in function.memories])
    return {leaf.name: x for leaf, x in data.items()}


def points(nest: Nest) -> Any:
    return itertools.product(*(range(n) for _, n in nest.loops))


def element(o: Operand, point: tuple[int, ...]) -> int:
    return o.base + sum(i * stride for i, stride in zip(point, o.strides, strict=True))


def random_data(seed: int) -> dict[str, Data]:
    random = np.random.default_rng(seed)
    return {
        "acc": random.integers(-1000, 1000, (DEPTH, 1, 16)), "inp": random.integers(-128, 128, (DEPTH, 1, 16)),
        "wgt": random.integers(-128, 128, (DEPTH, 16, 16)), "dram": random.integers(0, 256, DRAM),
    }  # fmt: skip


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """Draw up to four loops, and an accumulator, an input and a weight that move with them in any way inside of the buffers."""
    extents = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))

    def operand(name: str) -> Operand:
        strides = tuple(draw(st.integers(0, 6)) for _ in extents)
        reach = sum((n - 1) * s for n, s in zip(extents, strides, strict=True))
        return Operand(name, draw(st.integers(0, DEPTH - 1 - reach)), strides)

    acc = operand("acc")
    return Nest(tuple((f"l{n}", e) for n, e in enumerate(extents)), acc, (acc, operand("inp"), operand("wgt")))


@QUICK
@given(nests(), st.integers(0, 99))
def test_gemm_does_any_nest(nest: Nest, seed: int) -> None:
    m, data = vta(), random_data(seed)
    s, loops, t = parts(m, "gemm", "wgt")
    selection = select(s, t, loops, nest, {}, ordered=False)
    assert isinstance(selection, Selection)
    acc = data["acc"].astype(object)
    for point in points(nest):
        x, w = (data[o.memory][element(o, point)].astype(object) for o in nest.operands[1:])
        acc[element(nest.result, point), 0] += w @ x[0]
    assert np.array_equal(executed(m, "gemm", selection, s, data)["acc"], acc)


def test_a_dense_layer_and_a_convolution_need_few_words() -> None:
    """Two loops are the instruction's own; a table has a word for each iteration of what is left over."""
    m = vta()
    s, loops, t = parts(m, "gemm", "wgt")
    t_, n_, k_ = 7, 2, 4
    acc = Operand("acc", 0, (n_, 1, 0))
    dense = Nest((("t", t_), ("n", n_), ("k", k_)), acc, (acc, Operand("inp", 0, (k_, 0, 1)), Operand("wgt", 0, (0, k_, 1))))
    selection = select(s, t, loops, dense, {}, ordered=False)
    assert isinstance(selection, Selection)
    assert (len(selection.table), selection.settings["iter_out"], selection.settings["iter_in"]) == (2, 7, 4)
    ordered = select(s, t, loops, dense, {}, ordered=True)
    assert isinstance(ordered, Selection)
    assert len(ordered.table) == 4
    acc = Operand("acc", 0, (4, 1, 0, 0))
    loops_of_conv = (("oh", 4), ("ow", 4), ("kh", 3), ("kw", 3))
    conv = Nest(loops_of_conv, acc, (acc, Operand("inp", 0, (6, 1, 6, 1)), Operand("wgt", 0, (0, 0, 3, 1))))
    selection = select(s, t, loops, conv, {}, ordered=False)
    assert isinstance(selection, Selection)
    assert len(selection.table) == 9


@QUICK
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 20), st.integers(0, 9), st.integers(4, 20), st.integers(0, 99))
def test_load_and_store_do_rows(rows: int, columns: int, sram: int, first: int, pitch: int, seed: int) -> None:
    m, data = vta(), random_data(seed)
    buffer, dram = Operand("inp", sram, (columns, 1)), Operand("dram", 16 * first, (16 * pitch, 16))
    s, loops, t = parts(m, "load_inp", "dram")
    selection = select(s, t, loops, Nest((("r", rows), ("c", columns)), buffer, (dram,)), ATTACHED, ordered=False)
    assert isinstance(selection, Selection)
    expected = data["inp"].copy()
    for r, c in itertools.product(range(rows), range(columns)):
        at = 16 * (first + r * pitch + c)
        expected[sram + r * columns + c, 0] = data["dram"][at : at + 16].astype(np.uint8).view(np.int8)
    assert np.array_equal(executed(m, "load_inp", selection, s, data)["inp"], expected)
    s, loops, t = parts(m, "store", "acc")
    nest = Nest((("r", rows), ("c", columns)), dram, (Operand("acc", sram, (columns, 1)),))
    selection = select(s, t, loops, nest, ATTACHED, ordered=False)
    assert isinstance(selection, Selection)
    image = data["dram"].copy()
    for r, c in itertools.product(range(rows), range(columns)):
        at = 16 * (first + r * pitch + c)
        image[at : at + 16] = data["acc"][sram + r * columns + c, 0] & 255
    assert np.array_equal(executed(m, "store", selection, s, data)["dram"], image)


@pytest.mark.parametrize(
    ("pitch", "count", "fixed", "sentence"),
    [
        (4, 2, ATTACHED, "load_inp also writes inp under these settings"),
        (3, 2, {"dram_start": 0}, "a condition of load_inp does not hold under these settings"),
        (3, 3, ATTACHED, "2 loops of load_inp cannot take the 3 of the nest"),
    ],
)
def test_what_does_not_unify_says_why(pitch: int, count: int, fixed: dict[str, int], sentence: str) -> None:
    """A pitch of 4 for rows of 3 would be padding, which clears what lies between."""
    s, loops, t = parts(vta(), "load_inp", "dram")
    nest = Nest(
        (("r", 5), ("c", 3), ("x", 2))[:count], Operand("inp", 10, (pitch, 1, 15)[:count]), (Operand("dram", 160, (128, 16, 640)[:count]),)
    )
    assert select(s, t, loops, nest, fixed, ordered=False) == NoSelection(sentence)


def test_a_stride_that_no_field_gives_is_named() -> None:
    s, loops, t = parts(vta(), "load_inp", "dram")
    nest = Nest((("r", 5), ("c", 3)), Operand("inp", 0, (3, 1)), (Operand("dram", 0, (120, 16)),))
    selection = select(s, t, loops, nest, ATTACHED, ordered=False)
    assert isinstance(selection, NoSelection)
    assert "stride of i5 in dram cannot be 120" in selection.reason


@QUICK
@given(nests(), st.integers(0, 9))
def test_a_wrong_selection_is_noticed(nest: Nest, seed: int) -> None:
    """A planted fault: one more round of a loop that moves the accumulator changes what is computed."""
    m, data = vta(), random_data(seed)
    s, loops, t = parts(m, "gemm", "wgt")
    selection = select(s, t, loops, nest, {}, ordered=False)
    assert isinstance(selection, Selection)
    wrong = Selection({**selection.settings, "reset": 1}, selection.table, selection.pairs)
    assert not np.array_equal(executed(m, "gemm", wrong, s, data)["acc"], executed(m, "gemm", selection, s, data)["acc"])


def test_a_stride_that_another_loop_decides_is_solved() -> None:
    """Rows of the source are columns times a pitch apart: with the columns of the nest the pitch is known, and without them it is not."""
    m = Ila("rows", "Rows with a pitch.")
    m.input("data", 8, 8)
    a, b = (m.memory(name, (DEPTH,), 8) for name in "ab")

    def move(f: Any) -> Any:
        return update(b, (f.rows, f.cols), lambda i, j: (i * 8 + j, a[i * (f.cols * f.pitch) + j]))

    m.encoded("move", layout(0, opcode=4, rows=4, cols=4, pitch=4), {"opcode": 1}, move, doc="Move rows.")
    s, loops, t = parts(m, "move", "a")
    nest = Nest((("r", 3), ("c", 4)), Operand("b", 0, (8, 1)), (Operand("a", 0, (8, 1)),))
    selection = select(s, t, loops, nest, {}, ordered=False)
    assert isinstance(selection, Selection), selection
    assert {k: selection.settings[k] for k in ("rows", "cols", "pitch")} == {"rows": 3, "cols": 4, "pitch": 2}
