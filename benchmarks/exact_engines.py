"""What do exact engines reach on layers of 8-bit codes, and what do commands cost? Generated code beside numpy and onnxruntime.

The shapes are two layers of ResNet-20 (rows of images, sums, filters). Every engine's result is compared with 64-bit integers
on the shape that is timed. Commands are 2^16 writes of 16 bytes to FlexASR's large buffer.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import kernels
import numpy as np
import onnx
import onnxruntime
from kernels import COMMANDS, INT8, INT16, SEED, Case, alone, measure
from onnx import TensorProto, helper
from record import Row, in_groups, spread

from rewrite_compiler.ila.simulation import batch_decoder as playing
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila.traces.trace import block_of
from rewrite_compiler.ila_models import flexasr
from rewrite_compiler.lang import Array, Expr, Leaf, array, fold, reduce_sum, sat, shift_right, wrap
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.lang.step import update
from rewrite_compiler.lowering.lower import lower_array
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype
from rewrite_compiler.readings.c.printer import Tables, print_c
from rewrite_compiler.readings.c.runtime import PRELUDE, RUNTIME, SCRATCH
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.native.printer import NativeFunction

SHAPES = ((2048, 288, 32), (512, 576, 64))
Work = Callable[[Leaf, Leaf], Array]


def product(x: Leaf, w: Leaf) -> Array:
    """Sums of all products modulo 2^32."""
    inner = (x.shape[1], x.shape[2])
    return array(lambda i, j: wrap(reduce_sum(lambda k, c: x[i, k, c] * w[j, k, c], inner), 32), (x.shape[0], w.shape[0]))


def folded(x: Leaf, w: Leaf, add: Callable[[Expr, Expr, Expr, Expr], Expr]) -> Array:
    """Blocks of eight lanes in order, in 16 bits."""
    return array(lambda i, j: fold(x.shape[1], 0, lambda k, total: add(i, j, k, total), INT16), (x.shape[0], w.shape[0]))


def blocks(x: Leaf, w: Leaf) -> Array:
    """Each block of eight products is rounded, saturated, and added with saturation."""

    def add(i: Expr, j: Expr, k: Expr, total: Expr) -> Expr:
        return sat(total + sat(shift_right(reduce_sum(lambda c: x[i, k, c] * w[j, k, c], 8), 6, "half_up"), 16), 16)

    return folded(x, w, add)


def cut(x: Leaf, w: Leaf) -> Array:
    """Each product is cut by five bits before the block is rounded and saturated."""

    def add(i: Expr, j: Expr, k: Expr, total: Expr) -> Expr:
        lanes = [x[i, k, c] * w[j, k, c] >> 5 for c in range(8)]
        return sat(total + sat(shift_right(sum(lanes[1:], lanes[0]), 4, "half_up"), 16), 16)

    return folded(x, w, add)


def each(x: Leaf, w: Leaf) -> Array:
    """The accumulator is saturated after every product."""
    lanes = (x.shape[1], x.shape[2])

    def element(i: Expr, j: Expr) -> Expr:
        return fold(lanes, 0, lambda k, c, total: sat(total + (x[i, k, c] * w[j, k, c]), 16), INT16)

    return array(element, (x.shape[0], w.shape[0]))


WORKS: dict[str, Work] = {
    "wrapping product": product,
    "blocks rounded and saturated": blocks,
    "products cut, blocks saturated": cut,
    "saturated after every product": each,
}


def generated(shape: tuple[int, int, int]) -> list[Case]:
    """Return every work by numpy (the arrays reading), by the printed kernel, and by plain loops."""
    rows, length, columns = shape
    x, w = (Leaf((n, length // 8, 8), INT8, False, name) for n, name in ((rows, "x"), (columns, "w")))
    random, macs = np.random.default_rng(SEED), rows * length * columns
    inputs = {leaf: random.integers(-128, 128, leaf.shape, dtype=np.int8) for leaf in (x, w)}
    exact = inputs[x].reshape(rows, -1).astype(np.int64) @ inputs[w].reshape(columns, -1).astype(np.int64).T
    found = []
    for name, work in WORKS.items():
        term = work(x, w)
        expected = evaluate(term, inputs)
        if work is product and not (expected == exact).all():
            raise SystemExit(f"{name}: numpy is not exact")
        found.append(Case(f"{shape} {name}: numpy", macs, partial(evaluate, term, inputs)))
        printed = alone(term, inputs)
        if not (printed() == expected).all():
            raise SystemExit(f"{name}: the printed kernel differs from numpy")
        found.append(Case(f"{shape} {name}: printed", macs, printed))
        for engine, compiler in (("loops in machine code", by_loops), ("loops in C, gcc -O3", by_c)):
            run, out = compiler(term, inputs)
            run()
            if not (out == expected).all():
                raise SystemExit(f"{name}: {engine} differ from numpy")
            found.append(Case(f"{shape} {name}: {engine}", macs, run))
    return [*found, Case(f"{shape} wrapping product: numpy's own product of integers", macs, plain_product(inputs[x], inputs[w]))]


def by_loops(term: Array, inputs: dict[Leaf, np.ndarray]) -> tuple[Callable[[], object], np.ndarray]:
    """Return the call of the one lowering's loops as machine code, as whatever no kernel knows, and where its result is."""
    out = Leaf(term.shape, term.interval, False, "out")
    function = NativeFunction(update(out, term.shape, lambda i, j: ((i, j), term[i, j])))
    result = np.zeros(static_shape(term), storage_dtype(term.interval))
    call = function.bind([inputs.get(m, result) for m in function.memories])
    return call, result


def by_c(term: Array, inputs: dict[Leaf, np.ndarray]) -> tuple[Callable[[], object], np.ndarray]:
    """Return the call of the same loops as C, compiled for this processor, and where its result is."""
    tables = Tables()
    printed = print_c(lower_array(term), "work", tables)
    places = ", ".join(f"m[{n}]" for n in range(len(printed.memories)))
    entry = f"int run(void **m);\nint run(void **m) {{ fm_scratch s = {{0}}; return work(&s, {places}); }}"
    scratch = SCRATCH if printed.allocates else ""
    result = np.zeros(static_shape(term), storage_dtype(term.interval))
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "work.c", Path(folder) / "work.so"
        source.write_text("\n".join([PRELUDE, RUNTIME, scratch, *tables.texts, printed.text, entry]), "utf-8")
        subprocess.run(["gcc", "-std=c11", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
        run = ctypes.CDLL(str(library)).run
    buffers = [inputs.get(m, result) for m in printed.memories]
    return lambda: run((ctypes.c_void_p * len(buffers))(*(x.ctypes.data for x in buffers))), result


def plain_product(x: np.ndarray, w: np.ndarray) -> Callable[[], object]:
    """Return what numpy does with matrices of integers, without a reading of ours."""
    a, b = x.reshape(len(x), -1).astype(np.int32), w.reshape(len(w), -1).astype(np.int32).T.copy()
    return lambda: a @ b


def onnxruntimes(shape: tuple[int, int, int]) -> list[Case]:
    """Return onnxruntime's engines on the same shapes: whole numbers and float32, products and convolutions of 3 × 3."""
    rows, length, columns = shape
    side, channels = {2048: (32, 32), 512: (16, 64)}[rows]
    images, macs = rows // side**2, rows * length * columns
    random = np.random.default_rng(SEED)
    u8, s8, f32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT
    sizes = {"product": ((rows, length), (length, columns)), "convolution": ((images, channels, side, side), (columns, channels, 3, 3))}
    found = []
    for op, kind, types in (
        ("MatMulInteger", "product", (u8, s8)), ("ConvInteger", "convolution", (u8, s8)),
        ("MatMul", "product", (f32, f32)), ("Conv", "convolution", (f32, f32)),
    ):  # fmt: skip
        inputs = [
            random.integers(0, 128, size).astype(helper.tensor_dtype_to_np_dtype(t)) for size, t in zip(sizes[kind], types, strict=True)
        ]
        run = session(op, inputs, types, kind == "convolution")
        expected = inputs[0].astype(np.int64) @ inputs[1].astype(np.int64) if kind == "product" else None
        if expected is not None and not (run() == expected).all():  # type: ignore[attr-defined]
            raise SystemExit(f"{op} is not exact")
        found.append(Case(f"{shape} {op}: onnxruntime", macs, run))
    return found


def session(op: str, inputs: list[np.ndarray], types: tuple[int, int], is_padded: bool) -> Callable[[], object]:
    """Return the call of one operator on one thread."""
    values = [helper.make_tensor_value_info(n, t, x.shape) for n, t, x in zip("xw", types, inputs, strict=True)]
    (rows, *inner), columns = inputs[0].shape, inputs[1].shape[0 if is_padded else 1]
    shape = [rows, columns, *inner[1:]] if is_padded else [rows, columns]
    result = TensorProto.INT32 if types[0] != TensorProto.FLOAT else TensorProto.FLOAT
    node = helper.make_node(op, ["x", "w"], ["y"], **({"pads": [1, 1, 1, 1]} if is_padded else {}))
    graph = helper.make_graph([node], op, values, [helper.make_tensor_value_info("y", result, shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    inference = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    feed = dict(zip("xw", inputs, strict=True))
    return lambda: inference.run(None, feed)[0]


def transport(runs: int) -> list[Row]:
    """Return what 2^16 writes of 16 bytes cost: made as columns, applied by numpy, decoded and applied by machine code, one by one."""
    model = flexasr.build()
    instruction, random = model.instructions["gb_core_store_large"], np.random.default_rng(SEED)
    given = {"index": np.arange(COMMANDS), "vector": random.integers(0, 256, (COMMANDS, 16))}
    columns = block_of(model, instruction, COMMANDS, given)
    native, arrays, oracle = (Simulator(model, reading=reading) for reading in ("native", "arrays", "oracle"))
    gives, few = native.play(columns), {name: x[: COMMANDS // 64] for name, x in columns.items()}
    payload, place = columns["data"], np.zeros_like(columns["data"])
    works: dict[str, tuple[Callable[[], object], int]] = {
        "made as columns (numpy)": (lambda: block_of(model, instruction, COMMANDS, given), COMMANDS),
        "applied (numpy, operands given)": (lambda: arrays.block("gb_core_store_large", COMMANDS, given), COMMANDS),
        "decoded and applied (machine code)": (lambda: playing._run_plain(native, columns, gives, 0), COMMANDS),
        "decoded and applied (numpy)": (lambda: arrays.play(columns), COMMANDS),
        "decoded and applied one by one (Python)": (lambda: oracle.play(few), len(gives) // 64),
        "the payload copied (memcpy)": (lambda: np.copyto(place, payload), COMMANDS),
    }
    rows: list[Row] = []
    for name, (run, count) in works.items():
        cpu = spread(kernels.times(run, runs))
        each = round(cpu["median"] / count * 1e9, 2)
        rows.append({"name": f"commands {name}", "runs": runs, "commands": count, "cpu_seconds": cpu, "nanoseconds_each": each})
    if (arrays.state("large") != native.state("large")).any():
        raise SystemExit("numpy and machine code differ")
    return rows


GROUPS: dict[str, Callable[[int], list[Row]]] = {
    **{f"shape {n}": (lambda runs, s=s: measure([*generated(s), *onnxruntimes(s)], runs)) for n, s in enumerate(SHAPES)},  # type: ignore[misc]
    "transport": transport,
}


def main() -> None:
    """Run the command line."""
    in_groups("exact_engines", __doc__ or "", 5, GROUPS, kernels.shown)


if __name__ == "__main__":
    main()
