"""How fast are generated kernels, beside onnxruntime float32 on the same shapes in one run? One thread, processor time."""

from __future__ import annotations

import gc
import math
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product as product_of
from pathlib import Path

import lang_readings
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from record import Row, in_groups, spread

import flexmatch
from rewrite_compiler.emit.mmio.trace import EmittedTrace, traces_of
from rewrite_compiler.ila import Ila, ila
from rewrite_compiler.ila.mmio import assemble, split_lanes
from rewrite_compiler.ila.simulation import batch_decoder as playing
from rewrite_compiler.ila.simulation import word_stream_loop as words
from rewrite_compiler.ila.simulation.simulator import Simulator
from rewrite_compiler.ila.simulation.stream_device import PATIENCE
from rewrite_compiler.ila.traces.trace import Commands, block_of
from rewrite_compiler.ila_models import flexasr
from rewrite_compiler.kernels import Constants, Lowered
from rewrite_compiler.lang import Array, Expr, Leaf, array, fold, reduce_sum, sat, shift_right, wrap
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.binders import static_shape
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.native import jit as native_jit

INT8, INT16, SEED = iv.of_width(8, True), iv.of_width(16, True), 7
COMMANDS, STREAM = 1 << 16, 1 << 17
ROWS, BLOCKS, COLUMNS = 2048, 36, 32  # of a layer of ResNet-20: 1024 pixels of two images, 32 channels of 3 × 3, 32 filters


FOLDED, WRAPPING = "8×16 bits, blocks rounded and saturated", "16×16 bits, wrapping product"
RATE, SECONDS, EACH = "target_giga_macs_per_second", "target_seconds", "target_nanoseconds"
TARGETS: dict[str, tuple[str, float]] = {
    f"{FOLDED}: printed": (RATE, 60.0),
    f"{WRAPPING}: printed": (RATE, 80.0),
    **{f"{name}: numpy": (RATE, 5.0) for name in (FOLDED, WRAPPING)},
    "product, 32 bits wrapping: oracle": ("target_microseconds", 0.5),
    "fold of blocks, 16 bits saturating: oracle": ("target_microseconds", 0.5),
    **{f"gb_core_{verb}_large, decoded and applied": (EACH, 2.0) for verb in ("store", "load")},
    **{f"the decoder of {name}'s {kind}: {way}": (SECONDS, n) for name in ("flexasr", "hlscnn")
       for kind in ("memories", "registers") for way, n in (("first compilation", 0.15), ("from the cache", 0.005))},
    "the stream of a dense layer on flexasr": (EACH, 2.0),
    "the stream of a convolution layer on hlscnn": (EACH, 2.0),
    "the transfers of a convolution layer on vta": (EACH, 2.0),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One thing measured: `run` does `macs` multiplications."""

    name: str
    macs: int
    run: Callable[[], object]


def blocks(x: Leaf, w: Leaf, lost: int) -> Array:
    """Each block of eight lanes is rounded, saturated and added with saturation; with `lost`, each product is cut first."""

    def step(i: Expr, j: Expr, k: Expr, total: Expr) -> Expr:
        if lost:
            products = [x[i, k, c] * w[j, k, c] >> lost for c in range(8)]
            lanes = sum(products[1:], products[0])
        else:
            lanes = reduce_sum(lambda c: x[i, k, c] * w[j, k, c], 8)
        return sat(total + sat(shift_right(lanes, 9 if lost else 6, "half_up"), 16), 16)

    return array(lambda i, j: fold(BLOCKS, 0, lambda k, total: step(i, j, k, total), INT16), (ROWS, COLUMNS))


def product(x: Leaf, w: Leaf) -> Array:
    """A product of 16-bit matrices modulo 2^32."""
    return array(lambda i, j: wrap(reduce_sum(lambda k, c: x[i, k, c] * w[j, k, c], (BLOCKS, 8)), 32), (ROWS, COLUMNS))


def operands(weights: iv.Interval) -> tuple[Leaf, Leaf, dict[Leaf, np.ndarray]]:
    """Return two leaves and what they hold."""
    random = np.random.default_rng(SEED)
    x, w = Leaf((ROWS, BLOCKS, 8), INT16, False, "x"), Leaf((COLUMNS, BLOCKS, 8), weights, False, "w")
    kinds = {x: np.int16, w: np.int8 if weights == INT8 else np.int16}
    return x, w, {leaf: random.integers(*leaf.interval, size=leaf.shape, dtype=kinds[leaf], endpoint=True) for leaf in (x, w)}


def cases() -> list[Case]:
    """Return every term as the printer prints it, by numpy, and the same product by onnxruntime."""
    macs, found = ROWS * COLUMNS * BLOCKS * 8, []
    works = {
        FOLDED: (INT8, lambda x, w: blocks(x, w, 0)),
        "16×16 bits, products cut, blocks saturated": (INT16, lambda x, w: blocks(x, w, 5)),
        WRAPPING: (INT16, product),
    }
    for name, (weights, term_of) in works.items():
        x, w, inputs = operands(weights)
        term = term_of(x, w)
        expected = evaluate(term, inputs)
        found.append(Case(f"{name}: numpy", macs, lambda t=term, g=inputs: evaluate(t, g)))
        run = alone(term, inputs)
        if not (run() == expected).all():
            raise SystemExit(f"{name}: the printed kernel differs from numpy")
        found.append(Case(f"{name}: printed", macs, run))
    return [*found, Case("float32 product: onnxruntime", macs, float_product())]


def alone(term: Array, inputs: dict[Leaf, np.ndarray]) -> Callable[[], np.ndarray]:
    """Return what computes a term of one sample by the printed kernel, its second operand packed once."""
    (x, moving), (w, weights) = inputs.items()
    code, constants, rows = Lowered((term,), [x], 1), Constants(), moving[None]
    return lambda: code({x: rows, w: weights}, constants)[0][0]


def float_product() -> Callable[[], object]:
    """Return onnxruntime's product of the same shape."""
    sizes = {"x": (ROWS, BLOCKS * 8), "w": (BLOCKS * 8, COLUMNS), "y": (ROWS, COLUMNS)}
    values = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sizes.items()}
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [values["x"], values["w"]], [values["y"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(SEED)
    feed = {n: random.standard_normal(sizes[n]).astype(np.float32) for n in ("x", "w")}
    return lambda: session.run(None, feed)


def times(run: Callable[[], object], runs: int) -> list[float]:
    """Return the seconds of each call; the first one is not counted."""
    seconds = []
    for _ in range(runs + 1):
        started = time.thread_time()
        run()
        seconds.append(time.thread_time() - started)
    return seconds[1:]


def kept_and_not(makers: dict[str, Callable[[], Callable[[], object]]], runs: int) -> dict[str, list[float]]:
    """Return how long calls take, made anew of models of the same terms, one after the other in a new folder of what is kept."""
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["FLEXMATCH_CACHE"] = folder
            for name, make in makers.items():
                run = make()
                for cached in (native_jit.compile_text, playing.decoder_of, playing.is_plain, words.word_loop_of):
                    cached.cache_clear()
                gc.collect()  # the models before this one
                started = time.thread_time()
                run()
                seconds[name].append(time.thread_time() - started)
            os.environ.pop("FLEXMATCH_CACHE")
    return seconds


def decoders(runs: int) -> list[Row]:
    """Return how long the loops take that decode and apply the commands of a bus, for memories and for registers: at first, and kept."""
    rows: list[Row] = []
    for target, (kind, what) in product_of(("flexasr", "hlscnn"), ((playing.RANGES, "memories"), (playing.OTHERS, "registers"))):
        names = ("first compilation", "from the cache")
        made = dict.fromkeys(names, lambda t=target, k=kind: partial(playing.decoder_of, ila(t), k))  # type: ignore[misc]
        seconds = kept_and_not(made, runs)
        rows += [{"name": f"the decoder of {target}'s {what}: {n}", "runs": runs, "cpu_seconds": spread(x)} for n, x in seconds.items()]
    return [*rows, *word_loops(runs)]


def bus_commands(runs: int) -> list[Row]:
    """Return what a raw command costs that stores or reads 16 bytes: FlexASR's large buffer, 2^16 commands as columns."""
    model = flexasr.build()
    sim, rows = Simulator(model, reading="native"), list[Row]()
    random = np.random.default_rng(SEED)
    for name in ("gb_core_store_large", "gb_core_load_large"):
        instruction = model.instructions[name]
        inputs = {"index": random.integers(0, 4096, COMMANDS)}
        if "vector" in instruction.operands:
            inputs["vector"] = random.integers(0, 256, (COMMANDS, 16))
        columns = block_of(model, instruction, COMMANDS, inputs)
        gives = sim.play(columns)
        work = {
            "decoded and applied": partial(playing._run_plain, sim, columns, gives, 0),
            "with its preparation": partial(sim.play, columns),
        }
        for what, run in work.items():
            cpu = spread(times(run, runs))
            each = round(cpu["median"] / COMMANDS * 1e9, 2)
            rows.append({"name": f"{name}, {what}", "runs": runs, "commands": COMMANDS, "cpu_seconds": cpu, "nanoseconds_each": each})
    return rows


def layer(kind: str) -> onnx.ModelProto:
    """Return a fully connected layer, 1024 to 512, or a convolution of 32 channels, 3 × 3, of an image of 32 × 32."""
    random = np.random.default_rng(SEED)
    shapes = {"dense": ((1, 1024), (512, 1024), (1, 512)), "convolution": ((1, 32, 32, 32), (32, 32, 3, 3), (1, 32, 30, 30))}
    inputs, weights, result = shapes[kind]
    w = numpy_helper.from_array((random.standard_normal(weights) / 16).astype(np.float32), "w")
    b = numpy_helper.from_array(np.zeros(weights[0], np.float32), "b")
    node = helper.make_node(*(("Gemm", ["x", "w", "b"]) if kind == "dense" else ("Conv", ["x", "w"])), ["y"])
    if kind == "dense":
        node.attribute.append(helper.make_attribute("transB", 1))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in (("x", inputs), ("y", result)))
    graph = helper.make_graph([node], kind, [x], [y], [w, b] if kind == "dense" else [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def trace_of(target: str, kind: str) -> EmittedTrace:
    """Return what one layer sends to a device."""
    random = np.random.default_rng(SEED)
    model = layer(kind)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    sample = {"x": random.standard_normal(shape).astype(np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        path, data = Path(folder) / "layer.onnx", Path(folder) / "x.npz"
        onnx.save(model, path)
        np.savez(data, x=np.concatenate([sample["x"]] * 2))
        plan = flexmatch.compile(str(path), accel=[target], calibrate=str(data))
        return traces_of(plan, sample)[target]


def stream_of(target: str, kind: str) -> tuple[Ila, dict[str, np.ndarray], int]:
    """Return the plain commands of one layer's trace in order, as columns, and how many others it has (triggers, fills)."""
    emitted = trace_of(target, kind)
    blocks = [i.columns for i in emitted.trace.items if isinstance(i, Commands)]
    all_columns = {name: np.concatenate([b[name] for b in blocks]) for name in emitted.ila.inputs}
    sim = Simulator(emitted.ila, reading="oracle")
    instructions = [sim.decode(c) for b in emitted.trace.items if isinstance(b, Commands) for c, _ in b.rows()]
    plain = np.array([i is not None and playing.is_plain(emitted.ila, i) for i in instructions])
    return emitted.ila, {name: np.ascontiguousarray(x[plain]) for name, x in all_columns.items()}, int((~plain).sum())


def transfers(runs: int) -> list[Row]:
    """Return what VTA's words cost that move data: each is a command, and so are each 16 bytes that it moves between DRAM and device."""
    emitted = trace_of("vta", "convolution")
    m, sent, moved_bytes, seen = emitted.ila, list[bytes](), 0, 0
    sim = m.simulator(dram=np.zeros(1 << 22, np.uint8), reading="native")
    for block in (b for b in emitted.trace.items if isinstance(b, Commands)):
        for command, _ in block.rows():
            i, seen = sim.decode(command), seen + 1
            if i is None or not i.name.startswith(("load_", "store")):
                continue
            operands = sim._executable(i).operands(split_lanes(m, command))
            fields = {n: x[0] for n, x in operands.items() if not n.startswith(("pop_", "push_", "dram_base"))}  # from the start of DRAM
            sent.append(assemble(i, **fields)["data"].to_bytes(16, "little"))
            moved_bytes += operands["x_size"][0] * operands["y_size"][0] * element_bytes(m, i.name)
    over = -(-PATIENCE // len(sent))
    rows = np.frombuffer(b"".join(sent * over), np.uint8).reshape(-1, 16)
    checked = m.simulator(dram=np.zeros(1 << 22, np.uint8), reading="oracle")
    checked.run(rows[: len(sent)])
    cpu = spread(times(lambda: sim.run(rows), runs))
    if any((sim.state(n) != checked.state(n)).any() for n in m.states if n not in m.externals):
        raise SystemExit("vta: the compiled loop differs from the oracle")
    count = over * (len(sent) + moved_bytes // 16)
    row: Row = {"name": "the transfers of a convolution layer on vta", "runs": runs, "commands": count, "words": over * len(sent)}
    return [{**row, "other_words": seen - len(sent), "cpu_seconds": cpu, "nanoseconds_each": round(cpu["median"] / count * 1e9, 2)}]


def element_bytes(m: Ila, name: str) -> int:
    """Return the bytes that an element of a transfer has in DRAM."""
    buffer = {"store": "inp", "load_acc_8bit": "inp"}.get(name, name.removeprefix("load_"))
    state = m.states[buffer]
    return math.prod(static_shape(state.leaf)[1:]) * state.bits // 8


ONE = {"uop_end": 1, "iter_out": 1, "iter_in": 1}
# what a word of VTA does → its instruction and fields
WORDS: dict[str, tuple[str, dict[str, int]]] = {
    "load_inp, nothing": ("load_inp", {"y_size": 1}),
    "load_inp, one element": ("load_inp", {"x_size": 1, "y_size": 1}),
    "store, nothing": ("store", {"y_size": 1}),
    "store, one element": ("store", {"x_size": 1, "y_size": 1}),
    "gemm, nothing": ("gemm", {}),
    "gemm, one micro-op (256 products)": ("gemm", ONE),
    "alu_add, nothing": ("alu_add", {}),
    "alu_add, one micro-op (16 sums)": ("alu_add", ONE),
}


def short_words(runs: int) -> list[Row]:
    """Return what a word of VTA costs that does nothing (its decoding, operands, tokens, the checks of its range), and a little."""
    m = ila("vta")
    sim, rows = m.simulator(dram=np.zeros(1 << 20, np.uint8), reading="native"), list[Row]()
    for label, (name, fields) in WORDS.items():
        word = assemble(m.instructions[name], **fields)["data"].to_bytes(16, "little")
        column = np.frombuffer(word * COMMANDS, np.uint8).reshape(-1, 16)
        cpu = spread(times(lambda c=column: sim.run(c), runs))  # type: ignore[misc]
        if sim.singles:
            raise SystemExit(f"vta: {name} is executed one by one")
        each = {"nanoseconds_each": round(cpu["median"] / COMMANDS * 1e9, 2)}
        rows.append({"name": f"a word of vta: {label}", "runs": runs, "commands": COMMANDS, "cpu_seconds": cpu, **each})
    return rows


def word_loops(runs: int) -> list[Row]:
    """Return how long the loops take that decode and apply the words of VTA: at first, and kept."""
    rows: list[Row] = []
    for kind, what in ((words.MOVING, "that move data"), (words.ALL, "of all kinds")):
        names = ("first compilation", "from the cache")
        seconds = kept_and_not(dict.fromkeys(names, lambda k=kind: partial(words.word_loop_of, ila("vta"), k)), runs)  # type: ignore[misc]
        rows += [{"name": f"the loop of vta's words {what}: {n}", "runs": runs, "cpu_seconds": spread(x)} for n, x in seconds.items()]
    return rows


def streams(runs: int) -> list[Row]:
    """Return what a raw command costs in the streams of whole layers, again and again: configuration, weights, activations, results."""
    words.SINGLES = 0  # as after so many words: one loop of all instructions
    rows = [*transfers(runs), *short_words(runs)]
    for target, kind in (("flexasr", "dense"), ("hlscnn", "convolution")):
        model, columns, other_count = stream_of(target, kind)
        sim, checked = Simulator(model, reading="native"), Simulator(model, reading="oracle")
        gives = sim.play(columns)
        if not (checked.play(columns) == gives).all() or any((sim.state(n) != checked.state(n)).any() for n in model.states):
            raise SystemExit(f"{target}: the compiled loop differs from the oracle")
        times_over = -(-STREAM // len(gives))  # as many commands as an inference of a whole network has
        columns = {name: np.concatenate([x] * times_over) for name, x in columns.items()}
        gives, count = sim.play(columns), times_over * len(gives)
        if playing._run_plain(sim, columns, gives, 0) != count:
            raise SystemExit(f"{target}: the compiled loops leave commands")
        for suffix, run in (
            ("", partial(playing._run_plain, sim, columns, gives, 0)),
            (", with its preparation", partial(sim.play, columns)),
        ):
            cpu = spread(times(run, 10 * runs))
            name = f"the stream of a {kind} layer on {target}{suffix}"
            each = {"nanoseconds_each": round(cpu["median"] / count * 1e9, 2)}
            rows.append({"name": name, "runs": 10 * runs, "commands": count, "other_commands": other_count, "cpu_seconds": cpu, **each})
    return rows


def other_readings(runs: int) -> list[Row]:
    """Return what the oracle takes for a product and a fold."""
    rows: list[Row] = []
    for case in lang_readings.readings():
        if case.name.endswith(": oracle"):
            cpu = spread(times(case.run, runs))
            each = round(cpu["median"] / case.count * 1e6, 3)
            rows.append({"name": case.name, "runs": runs, "macs": case.count, "cpu_seconds": cpu, "microseconds_each": each})
    return rows


def aimed(run: Callable[[int], list[Row]], runs: int) -> list[Row]:
    """Return the rows of a group with what was asked of them, where something was."""
    rows = run(runs)
    for row in rows:
        row.update({key: value for name, (key, value) in TARGETS.items() if str(row["name"]) == name})
    return rows


def measure(cases: list[Case], runs: int) -> list[Row]:
    """Run all cases in turn; the first round is not counted."""
    seconds: dict[str, list[float]] = {c.name: [] for c in cases}
    for n in range(runs + 1):
        for c in cases:
            started = time.thread_time()
            c.run()
            if n:
                seconds[c.name].append(time.thread_time() - started)
    rows: list[Row] = []
    for c in cases:
        cpu = spread(seconds[c.name])
        rate = round(c.macs / cpu["median"] / 1e9, 2)
        rows.append({"name": c.name, "runs": runs, "macs": c.macs, "seed": SEED, "cpu_seconds": cpu, "giga_macs_per_second": rate})
    return rows


GROUPS: dict[str, Callable[[int], list[Row]]] = {
    "folds": lambda runs: measure(cases(), runs),
    "decoders": decoders,
    "bus": bus_commands,
    "streams": streams,
    "readings": other_readings,
}


def shown(row: Row) -> str:
    """Return the line of a row."""
    if "giga_macs_per_second" in row:
        return f"{row['name']!s:76}{row['giga_macs_per_second']!s:>10} GMAC/s"
    if "microseconds_each" in row:
        return f"{row['name']!s:76}{row['microseconds_each']!s:>10} µs each"
    if "nanoseconds_each" in row:
        return f"{row['name']!s:76}{row['nanoseconds_each']!s:>10} ns each"
    return f"{row['name']!s:76}{row['cpu_seconds']['median'] * 1e3:>10.2f} ms"  # type: ignore[index]


def main() -> None:
    """Run the command line."""
    in_groups("kernels", __doc__ or "", 7, {name: partial(aimed, run) for name, run in GROUPS.items()}, shown)


if __name__ == "__main__":
    main()
