"""How long do the engines take in machine code, and an LSTM beside onnxruntime's in float32?

A driver runs on the native tier with samples, as co-simulation runs its first batch; then the calls of machine code that
it makes are played, as for every later batch. Timed are the commands that start an engine (of VTA the ALU's), and all of
them. Times are processor seconds of one thread; those of onnxruntime are of the same process, in turns.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from record import Row, finish, fresh_answers, options, spread
from record import recorded as recorded_rows

from rewrite_compiler.lang import convert, native_fold, native_grid, native_jit
from rewrite_compiler.lang.named import storage_dtype
from rewrite_compiler.lang.native_chain import chained
from rewrite_compiler.lang.tape import Call, Tape
from rewrite_compiler.target import TapedDevice, find_target, simulated_device

SAMPLES, SEED = 64, 1
# engine → target, mapping, sizes, elements by the operand that has them
ENGINES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "LayerNorm": ("flexasr", "layer_norm", {"t": 64, "n": 256, "epsilon": 1e-5}, "x"),
    "pooling (max)": ("flexasr", "max_pool", {"u": 64, "w": 2, "n": 256}, "x"),
    "pooling (mean)": ("flexasr", "mean_pool", {"u": 64, "w": 2, "n": 256}, "x"),
    "attention": ("flexasr", "attention", {"m": 1, "t": 256, "d": 256}, "e"),
    "ALU (relu)": ("vta", "relu_2", {"a": 64, "b": 1024}, "x"),
    "ALU (add)": ("vta", "add_2", {"a": 64, "b": 1024}, "x"),
    "LSTM 650, 35 steps": ("flexasr", "lstm", {"t": 35, "s": 1, "i": 650, "h": 650, "g": 2600, "e": 5200}, "x"),
}


@dataclass
class Recorded:
    """One batch of a driver on the native tier, its calls of machine code by the instruction that they belong to."""

    device: TapedDevice
    calls: list[tuple[str, Call]]
    first: float  # processor seconds of the batch that was recorded: Python, compilation and the work itself

    def seconds(self) -> tuple[float, float]:
        """Play a batch; return the processor seconds of the instructions that start an engine, and of all."""
        engine = whole = 0.0
        for is_engine, calls in self.chains:
            started = time.thread_time()
            for call in calls:
                call()
            spent = time.thread_time() - started
            whole += spent
            engine += spent if is_engine else 0.0
        return engine, whole

    @cached_property
    def chains(self) -> list[tuple[bool, list[Call]]]:
        """The calls as co-simulation plays them, by whether an engine makes them."""
        groups = groupby(self.calls, key=lambda pair: pair[0].startswith("alu_") or pair[0].endswith("_start"))
        return [(is_engine, chained(call for _, call in group)) for is_engine, group in groups]


def recorded(target: str, name: str, sizes: dict[str, Any], samples: int) -> Recorded:
    """Run a driver on random codes as co-simulation runs its first batch."""
    configured = find_target(target)
    m, random = configured.mappings[name], np.random.default_rng(SEED)
    formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    for inner, candidates in m.search.items():
        formats = m.with_format(formats, inner, candidates[0])
    codes = {}
    for v in m.operands:
        low, high = (int(n or 0) for n in formats[v.name].codes)
        shape = tuple(sizes[d] for d in m.axes.of[v.name])
        lead = (samples,) if v.name in ("x", "z", "q", "e") else ()
        codes[v.name] = random.integers(low, high + 1, (*lead, *shape)).astype(storage_dtype((low, high)))
    device = simulated_device(configured.ila(), reading="native", samples=samples)
    tape = device.sim.machine.axes.tape = Tape(device.sim.sample_axis)
    calls: list[tuple[str, Call]] = []
    sim = device.sim

    def watched(run: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable[..., Any]:
        def watch(instruction: Any, *given: Any) -> Any:
            before = len(tape.calls)
            found = run(instruction, *given)
            calls.extend((name_of(instruction), call) for call in tape.calls[before:])
            return found

        return watch

    vars(sim)["execute"], vars(sim)["block"] = watched(sim.execute, lambda i: str(i.name)), watched(sim.block, str)
    taped = TapedDevice(device, tape)
    started = time.thread_time()
    m.run_driver(taped, codes, formats, {n: sizes[n] for n, _ in m.statics})
    if tape.refused:
        raise SystemExit(f"{target}.{name} cannot be played: {tape.refused}")
    return Recorded(taped, calls, time.thread_time() - started)


def forgotten(target: str, name: str, sizes: dict[str, Any]) -> Recorded:
    """Run a first batch with nothing compiled in this process."""
    for table in (convert._launch, native_grid.grid_function, native_fold.fold_function, native_jit.compiled):
        table.cache_clear()
    return recorded(target, name, sizes, SAMPLES)


def host_lstm(samples: int) -> float:
    """Return the seconds of onnxruntime's LSTM on as many sequences."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(SEED)
    data = {n: random.standard_normal(s).astype(np.float32) for n, s in (("w", (1, 2600, 650)), ("r", (1, 2600, 650)), ("b", (1, 5200)))}
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=650)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy"]
    graph = helper.make_graph([node], "lstm", ends[:1], ends[1:], [numpy_helper.from_array(a, n) for n, a in data.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads = o.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), o)
    x = random.standard_normal((35, samples, 650)).astype(np.float32)
    session.run(None, {"x": x})
    started = time.thread_time()
    session.run(None, {"x": x})
    return time.thread_time() - started


def main() -> None:
    """Print the table and write the record."""
    parser = options(__doc__ or "", 3)
    parser.add_argument("--only", default="", metavar="TEXT", help="engines whose name has it")
    parser.add_argument("--resume", action="store_true", help="keep the engines that the record has")
    given = parser.parse_args()
    rows = recorded_rows(given.json) if given.resume else list[Row]()
    known = {row["engine"] for row in rows}
    for engine, (target, name, sizes, counted) in ENGINES.items():
        if given.only not in engine or engine in known:
            continue
        m = find_target(target).mappings[name]
        own = next((v.name for v in m.operands if v.name == counted), m.operands[0].name)
        elements = SAMPLES * math.prod(sizes[d] for d in m.axes.of[own])
        with fresh_answers():
            first = forgotten(target, name, sizes)
            made = forgotten(target, name, sizes)
        played = [made.seconds() for _ in range(1 + given.runs)][1:]
        seconds, whole = (spread([x[n] for x in played]) for n in (0, 1))
        row: Row = {
            "engine": engine, "sizes": str(sizes), "samples": SAMPLES, "elements": elements, "cpu_seconds": seconds,
            "all_commands_cpu_seconds": whole, "first_batch_cpu_seconds": first.first,
            "first_batch_from_cache_cpu_seconds": made.first, "calls": len(made.calls),
        }  # fmt: skip
        text = f"{1e9 * seconds['median'] / elements:>8.2f} ns an element, all commands {1e9 * whole['median'] / elements:.2f}"
        if engine.startswith("LSTM"):
            host = spread([host_lstm(SAMPLES) for _ in range(given.runs)])
            row |= {"host_cpu_seconds": host, "ratio": seconds["median"] / host["median"]}
            text = f"{seconds['median']:.3f} s, onnxruntime {host['median']:.3f} s: {seconds['median'] / host['median']:.2f}×"
        print(f"{engine:<22}{text}; first batch {first.first:.2f} s, code from the cache {made.first:.2f} s", flush=True)
        rows.append(row)
        finish("engine_speed", rows, given.json)


if __name__ == "__main__":
    main()
