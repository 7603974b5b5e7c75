"""How long do the engines take in machine code, and an LSTM beside onnxruntime's in float32?

Drivers run on simulators with samples; only the commands that start an engine are timed, of VTA the whole stream. Times are
processor seconds of one thread; those of onnxruntime are of the same process, in turns.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
import time
from typing import Any

import numpy as np
from record import Row, finish, options, spread

from rewrite_compiler.target import find_target, simulated_device

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


class Timed:
    """A device that counts the seconds of what starts an engine."""

    def __init__(self, device: Any) -> None:
        self.device, self.seconds = device, 0.0

    def __getattr__(self, name: str) -> Any:
        """Return what the device does; starts are timed."""
        found = getattr(self.device, name)
        streams = hasattr(self.device, "attach")
        if name != ("wait" if streams else "issue"):
            return found

        def timed(*given: Any, **operands: Any) -> Any:
            started = time.thread_time()
            result = found(*given, **operands)
            if streams or given[0].endswith("_start"):
                self.seconds += time.thread_time() - started
            return result

        return timed


def once(target: str, name: str, sizes: dict[str, Any], samples: int) -> float:
    """Return the seconds of the engine for all samples."""
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
        codes[v.name] = random.integers(low, high + 1, (*lead, *shape))
    device = Timed(simulated_device(configured.ila(), reading="native", samples=samples))
    m.run_driver(device, codes, formats, {n: sizes[n] for n, _ in m.statics})
    return device.seconds


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
    given = parser.parse_args()
    rows: list[Row] = []
    for engine, (target, name, sizes, counted) in ENGINES.items():
        if given.only not in engine:
            continue
        m = find_target(target).mappings[name]
        own = next((v.name for v in m.operands if v.name == counted), m.operands[0].name)
        elements = SAMPLES * math.prod(sizes[d] for d in m.axes.of[own])
        once(target, name, sizes, SAMPLES)  # compiles
        seconds = spread([once(target, name, sizes, SAMPLES) for _ in range(given.runs)])
        row: Row = {"engine": engine, "sizes": str(sizes), "samples": SAMPLES, "cpu_seconds": seconds, "elements": elements}
        text = f"{1e9 * seconds['median'] / elements:>8.2f} ns an element"
        if engine.startswith("LSTM"):
            host = spread([host_lstm(SAMPLES) for _ in range(given.runs)])
            row |= {"host_cpu_seconds": host, "ratio": seconds["median"] / host["median"]}
            text = f"{seconds['median']:.3f} s, onnxruntime {host['median']:.3f} s: {seconds['median'] / host['median']:.2f}×"
        print(f"{engine:<22}{text}", flush=True)
        rows.append(row)
    finish("engine_speed", rows, given.json)


if __name__ == "__main__":
    main()
