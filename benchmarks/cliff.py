"""Are there cliffs: does an accelerator that differs a little from the shipped ones run many times slower?

A grid of folds over lanes, widths of operands and accumulators, and roundings, each compiled by the kernels and by the plain
lowering, in turns on the same operands; cells are drawn by seed, every value of every axis about as often as the others. Then
dense layers on the tutorial's accelerator, on FlexASR, and on generated accelerators, through the offloads of a plan. One thread,
processor seconds; the bits are compared everywhere.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import tempfile

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from record import ROOT, Row, in_groups

from rewrite_compiler.compile.offload.specified import terms_of
from rewrite_compiler.kernels import Constants, Lowered
from rewrite_compiler.lang import Expr, Leaf, array, fold, reduce_sum, sat, shift_right, update
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.arithmetic import ROUNDINGS
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype
from rewrite_compiler.readings.native.printer import NativeFunction
from rewrite_compiler.target import Mapping, Target, find_target, load_target, simulated_device

LANES = (1, 2, 3, 4, 7, 8, 9, 12, 16, 24, 32, 48, 64)
WIDTHS = ((4, 4), (8, 8), (9, 7), (12, 12), (16, 8), (16, 16), (18, 8), (20, 20), (24, 24))
ACCUMULATORS = (16, 20, 24, 32, 40, 48)
SAMPLES, ROWS, PRODUCTS, SHIFT, SEED = 256, 64, 576, 5, 7
WIDE = 8  # lanes, from which on the summary has a ratio of its own: with fewer, every product or two are rounded and saturated
NANO = 1e9
DEEP, TUTORIAL = 432, "the tutorial's accelerator"  # products of an element of a dense layer
PAGE = ROOT / "docs" / "tutorial" / "first-accelerator.md"
SUM = "reduce_sum(lambda j: x(v, j) * w(v, j), LANES)"
SERIES = "[acc := sat(acc + x(v, j) * w(v, j), 20) for j in range(LANES)][-1]"
# the tutorial's file with another number of lanes, another step of the accumulator, and its bits
UNLIKE = {
    "16 lanes, 24 bits that wrap": (16, f"wrap(acc + {SUM}, 24)", 24),
    "9 lanes, each sum rounded, 16 bits that saturate": (9, f"sat(acc + shift_right({SUM}, 3, 'half_even'), 16)", 16),
    "4 lanes, 40 bits": (4, f"sat(acc + {SUM}, 40)", 40),
    "4 lanes in series, 20 bits that saturate": (4, SERIES, 20),
    "24 lanes, cut products": (24, "sat(acc + reduce_sum(lambda j: x(v, j) * w(v, j) >> 3, LANES), 24)", 24),
    "8 lanes, absolute differences": (8, "sat(acc + reduce_sum(lambda j: abs_of(x(v, j) - w(v, j)), LANES), 20)", 20),
}
# its sizes and addresses, for as many bytes in shorter vectors
LARGER = {
    "INPUTS, WEIGHTS, RESULTS = 8, 64, 512, 64": "INPUTS, WEIGHTS, RESULTS = 8, 512, 4096, 64", "address_bits=16": "address_bits=32",
    '"6:0 length, 12:8 shift"': '"9:0 length, 20:16 shift"', '"8:0 first, 21:16 to"': '"11:0 first, 21:16 to"',
    "0x1000, INPUTS": "0x100000, INPUTS", "0x2000, WEIGHTS": "0x200000, WEIGHTS", "0x4000, RESULTS": "0x400000, RESULTS",
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A fold: products of `lanes` pairs are summed, shifted with rounding and added to an accumulator that saturates."""

    lanes: int
    widths: tuple[int, int]
    accumulator: int
    rounding: str

    def __str__(self) -> str:
        return f"{self.lanes} lanes, {self.widths[0]}x{self.widths[1]} bits, accumulator {self.accumulator}, {self.rounding}"

    @property
    def steps(self) -> int:
        """The steps of the fold: about as many products whatever the lanes."""
        return max(PRODUCTS // self.lanes, 1)

    def value(self, x: Callable[[Expr], Expr], w: Callable[[Expr], Expr]) -> Expr:
        """Return an element of the result, from functions of the number of a product."""

        def step(k: Expr, total: Expr) -> Expr:
            products = reduce_sum(lambda j: x(k * self.lanes + j) * w(k * self.lanes + j), self.lanes)
            return sat(total + shift_right(products, SHIFT, self.rounding), self.accumulator)

        return fold(self.steps, 0, step, self.accumulator)


def cells(count: int) -> list[Cell]:
    """Return cells of the grid, in which the values of each axis are drawn in rounds: all of them before one comes again."""
    draw = random.Random(SEED)
    axes = [_rounds(draw, axis, count) for axis in (LANES, WIDTHS, ACCUMULATORS, ROUNDINGS)]
    return list(dict.fromkeys(Cell(*values) for values in zip(*axes, strict=True)))  # type: ignore[arg-type]


def _rounds(draw: random.Random, axis: tuple[object, ...], count: int) -> list[object]:
    values: list[object] = []
    while len(values) < count:
        values += draw.sample(axis, len(axis))
    return values[:count]


def measured(cell: Cell, runs: int) -> Row:
    """Return the nanoseconds per product of a cell by its kernel and by the plain lowering, in turns.

    Raises:
        SystemExit: they differ.
    """
    products = cell.steps * cell.lanes
    x, w = (Leaf(shape, iv.of_width(bits, True), False, name) for shape, bits, name in (
        ((products,), cell.widths[0], "x"), ((ROWS, products), cell.widths[1], "w")))  # fmt: skip
    draw = np.random.default_rng(SEED)
    rows, weights = (
        draw.integers(*leaf.interval, size=shape, endpoint=True).astype(storage_dtype(leaf.interval))
        for leaf, shape in ((x, (SAMPLES, products)), (w, w.shape))
    )
    started = time.thread_time()
    code = Lowered((array(lambda n: cell.value(lambda k: x[k], lambda k: w[n, k]), (ROWS,)),), [x], SAMPLES)
    seconds, constants = time.thread_time() - started, Constants()
    plain, result = plain_lowering(cell, rows, weights)
    runs_of = {"kernel": lambda: code({x: rows, w: weights}, constants)[0], "plain": plain}
    times: dict[str, list[float]] = {name: [] for name in runs_of}
    for _, (name, run) in itertools.product(range(runs + 1), runs_of.items()):
        begun = time.thread_time()
        run()
        times[name].append(time.thread_time() - begun)
    if not np.array_equal(runs_of["kernel"](), result):
        raise SystemExit(f"{cell}: the kernel differs from the plain lowering")
    each = {name: NANO * min(t[1:]) / (SAMPLES * ROWS * products) for name, t in times.items()}
    return {
        "name": str(cell), "kernel_ns_per_mac": round(each["kernel"], 4), "plain_ns_per_mac": round(each["plain"], 4),
        "kernel_to_plain": round(each["kernel"] / each["plain"], 3), "compile_seconds": round(seconds, 3),
        "schedule": code.show(), "fallbacks": code.notes,
    }  # fmt: skip


def plain_lowering(cell: Cell, rows: np.ndarray, weights: np.ndarray) -> tuple[Callable[[], object], np.ndarray]:
    """Return what computes a cell by loops over scalars as LLVM optimises them, and the array that it fills."""
    kinds = (cell.widths[0], rows.shape, "x"), (cell.widths[1], weights.shape, "w"), (cell.accumulator, (SAMPLES, ROWS), "y")
    x, w, y = (Leaf(shape, iv.of_width(bits, True), False, name) for bits, shape, name in kinds)
    step = update(y, (SAMPLES, ROWS), lambda m, n: ((m, n), cell.value(lambda k: x[m, k], lambda k: w[n, k])))
    function, result = NativeFunction(step, level=3), np.zeros((SAMPLES, ROWS), storage_dtype(y.interval))
    memories = {x: rows, w: weights, y: result}
    return partial(function, [memories[leaf] for leaf in function.memories]), result


def summary(rows: list[Row], name: str) -> Row:
    """Return the worst and the best of some rows."""
    each = {str(r["name"]): float(str(r["kernel_ns_per_mac"])) for r in rows}
    slower = [str(r["name"]) for r in rows if float(str(r.get("kernel_to_plain", 0))) > 1]
    worst, best = max(each, key=lambda n: each[n]), min(each, key=lambda n: each[n])
    wide = {n: x for n, x in each.items() if int(n.split()[0]) >= WIDE}
    return {
        "name": name, "rows": len(rows), "worst": worst, "best": best, "worst_ns_per_mac": each[worst], "best_ns_per_mac": each[best],
        "worst_to_best": round(each[worst] / each[best], 2), "target_worst_to_best": 8.0,
        f"worst_to_best_from_{WIDE}_lanes": round(max(wide.values()) / min(wide.values()), 2), "slower_than_plain": slower,
    }  # fmt: skip


def grid(count: int, runs: int) -> list[Row]:
    """Return the rows of the grid, the summary first."""
    rows = []
    for cell in cells(count):
        rows.append(measured(cell, runs))
        print(line(rows[-1]), flush=True)
    return [summary(rows, "grid"), *rows]


def tutorial_text() -> str:
    """Return the file of the tutorial."""
    found = re.search(r"```python file=toy.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def generated_text(lanes: int, step: str, bits: int) -> str:
    """Return the tutorial's file with other lanes and another accumulator."""
    text = tutorial_text()
    for old, new in LARGER.items():
        text = text.replace(old, new)
    helpers = "from rewrite_compiler.lang import maximum, shift_right\n\nabs_of = lambda a: maximum(a, -a)\n"
    text = text.replace("import numpy as np\n", f"import numpy as np\n\n{helpers}", 1).replace("RESULTS = 8,", f"RESULTS = {lanes},")
    return re.sub(r"    total = fold\(.*\n", f"    total = fold(length, 0, lambda v, acc: {step}, {bits})\n", text, count=1)


def dense_layer(name: str, target: Target, operation: str, runs: int) -> Row:
    """Return the nanoseconds per product of a dense layer by the code of an offload; a small one is compared with the simulator."""
    draw, mapping = np.random.default_rng(SEED), target.mappings[operation]
    formats = mapping.formats_for(dict.fromkeys(mapping.axes.of, 1.0))
    sizes = {"t": 1, "k": DEEP, "n": ROWS}
    codes = {v.name: draw.integers(*formats[v.name].codes, size=[sizes[d] for d in mapping.axes.of[v.name]], endpoint=True)
             for v in mapping.operands}  # fmt: skip
    moving = draw.integers(*formats["x"].codes, size=(SAMPLES, 1, DEEP), endpoint=True)
    shapes = tuple((n, x.shape, n == "x") for n, x in codes.items())
    started = time.thread_time()
    terms = terms_of(mapping, tuple(formats.items()), (), shapes, SAMPLES)
    seconds, constants = time.thread_time() - started, Constants()
    operands = {n: x.astype(storage_dtype(formats[n].codes)) for n, x in {**codes, "x": moving}.items()}
    times = []
    for _ in range(3 * runs + 1):
        begun = time.thread_time()
        (result,) = terms(operands, constants)
        times.append(time.thread_time() - begun)
    return {
        "name": name, "kernel_ns_per_mac": round(NANO * min(times[1:]) / (SAMPLES * ROWS * DEEP), 4), "compile_seconds": round(seconds, 3),
        "schedule": "" if terms.code is None else terms.code.show(), "fallbacks": list(terms.notes),
        "differs_from_the_simulator": differing(target, mapping, formats, {**codes, "x": moving[0]}, result[0]),
    }  # fmt: skip


def differing(target: Target, mapping: Mapping, formats: dict[str, object], codes: dict[str, np.ndarray], result: np.ndarray) -> int:
    """Return in how many of the first rows of weights, that one call takes, the driver on the simulator differs."""
    few = {n: x if n == "x" else x[:4] for n, x in codes.items()}
    device = simulated_device(target.ila(), reading="arrays")
    return int(np.count_nonzero(mapping.run_driver(device, few, formats, {}) != result[:, :4]))  # type: ignore[arg-type]


def accelerators(runs: int) -> list[Row]:
    """Return dense layers on FlexASR, on the tutorial's accelerator and on those generated from its text; the summary last."""
    rows = [dense_layer("flexasr", find_target("flexasr"), "linear", runs)]
    texts = {TUTORIAL: tutorial_text(), **{name: generated_text(*parts) for name, parts in UNLIKE.items()}}
    for name, text in texts.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "toy.py"
            path.write_text(text, "utf-8")
            rows.append(dense_layer(name, load_target(str(path)), "dense", runs))
        rows[-1]["to_flexasr"] = round(float(str(rows[-1]["kernel_ns_per_mac"])) / float(str(rows[0]["kernel_ns_per_mac"])), 2)
    for row in rows:
        print(line(row), row["differs_from_the_simulator"], flush=True)
    return rows


def line(row: Row) -> str:
    """Return a row as it is printed."""
    if "worst" in row:
        return ", ".join(f"{name}: {value}" for name, value in row.items())
    return f"{row['name']}: {row['kernel_ns_per_mac']} ns/MAC, plain {row.get('plain_ns_per_mac')} {row.get('schedule', '')}"


if __name__ == "__main__":
    in_groups("cliff", __doc__ or "", 3, {"grid": lambda runs: grid(480, runs), "accelerators": accelerators}, line)
