"""How long do matching and extraction take, what do they use, and how do they grow with the number of equal layers?

Processor seconds of a process for each model and, without its imports, of the one that saturates; beside them onnxscript's
rewriter with its default rules on the same file, which the extra `test` installs, and TVM's FuseOpsByPattern, where TVM is
installed (`pip install apache-tvm`): the patterns of a convolution, a linear layer and a product, no rewriting, import aside.
Every plan must be a proven optimum. The last row is the import of a file of 102 MB. With `--json FILE` the record goes on where
it ended.
"""

from __future__ import annotations

import json
import lzma
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper
from record import ROOT, Row, finish, fresh_answers, options, peak_bytes, recorded, spread
from transformer import encoder

from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.compile.plan.user_rules import with_proved_domain
from rewrite_compiler.egraph.saturation.saturate import start_children
from rewrite_compiler.frontend.load import load
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import find_target

SHARED = {"ResNet-50": "tv_resnet50.ts17", "EfficientNet": "efficientnet_nose.ts17", "Transformer": "transformer.dyn18"}
LAYERS = (2, 4, 12, 64)
LIMITS = {"ResNet-50": 0.5, "EfficientNet": 0.6, "BERT, 12 layers": 0.5, "LSTM, 500 steps": 2.5}  # seconds, both processes
LARGE, PRODUCTS, WIDTH = "import of 102 MB", 10, 1600
Made = TypeVar("Made")


def models(scratch: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and files."""
    folder = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models" / "arch"
    for name, file in SHARED.items():
        path = scratch / f"{file}.onnx"
        path.write_bytes(lzma.decompress((folder / f"{file}.onnx.xz").read_bytes()))
        yield name, path
    for layers in LAYERS:
        path = scratch / f"encoder_{layers}.onnx"
        onnx.save(encoder(layers), str(path))
        yield f"BERT, {layers} layers", path
    sys.path.insert(0, str(ROOT / "tests" / "rules"))
    from unrolled import bidirectional, saved, unrolled

    for steps in (35, 100, 500):
        path = scratch / f"lstm_{steps}.onnx"
        saved(unrolled("separate", steps), scratch).rename(path)
        yield f"LSTM, {steps} steps", path
    path = scratch / "lstm_back.onnx"
    saved(bidirectional("separate", 500), scratch).rename(path)
    yield "LSTM, 500 back", path


def processor_seconds(work: Callable[[], Made]) -> tuple[float, Made]:
    """Return processor seconds of this process and what the work returns."""
    here = time.process_time()
    made = work()
    return time.process_time() - here, made


def rewriter_seconds(path: Path) -> float | str:
    """Return what onnxscript's rewriter needs, or why it cannot run."""
    try:
        from onnxscript import rewriter
    except ImportError as error:
        return f"onnxscript cannot be imported: {error}"
    model = onnx.load(str(path))
    return processor_seconds(lambda: rewriter.rewrite(model))[0]


def fused_by_tvm(path: Path) -> tuple[float | str, int]:
    """Return what TVM's FuseOpsByPattern needs and how many different functions it fuses, or why it cannot run."""
    try:
        relax = import_module("tvm.relax")
        pattern = import_module("tvm.relax.dpl")
        frontend = import_module("tvm.relax.frontend.onnx")
    except ImportError as error:
        return f"TVM cannot be imported: {error}", 0
    any_, is_op = pattern.wildcard, pattern.is_op
    product = is_op("relax.matmul")(any_(), any_())
    patterns = [
        ("conv2d", is_op("relax.nn.conv2d")(any_(), any_())),
        ("linear", is_op("relax.add")(product, any_())),
        ("matmul", is_op("relax.matmul")(any_(), any_())),
    ]
    try:
        module = frontend.from_onnx(onnx.load(str(path)), keep_params_in_input=False)
        spent, found = processor_seconds(lambda: relax.transform.FuseOpsByPattern(patterns)(module))
    except Exception as error:  # its importer raises errors of many types
        return f"TVM does not take the model: {type(error).__name__}: {' '.join(str(error).split())[-200:]}", 0
    return spent, sum("Composite" in (f.attrs or ()) for f in found.functions.values())


def measure(name: str, path: Path, target: str, runs: int) -> Row:
    """Return the medians for one model."""
    loading, loaded = processor_seconds(lambda: load(path))
    p = loaded.program
    mappings, rules = (
        [m for m in find_target(target).mappings.values() if not m.runtime_weights],
        tuple(map(with_proved_domain, shipped_rules())),
    )
    here, children, walls = [], [], []
    for _ in range(runs):
        start_children()
        started = time.perf_counter()
        with fresh_answers():
            mine, made = processor_seconds(lambda: match(p, rules, mappings, DEFAULT))
        walls.append(time.perf_counter() - started)
        here.append(mine)
        children.append(made.saturation.seconds)
    s, e = made.saturation, made.extraction
    here_peak, child_peak = peak_bytes(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    tvm_seconds, fused = fused_by_tvm(path)
    return {
        "name": name, "target": target, "operators": len(p.nodes), "regions": s.regions, "forms": s.forms, "e_nodes": s.graph.e_nodes,
        "load_cpu_seconds": loading, "match_cpu_seconds": spread(here), "saturation_cpu_seconds": spread(children),
        "match_wall_seconds": spread(walls), "status": e.status, "gap": e.gap,
        "peak_bytes": here_peak, "child_peak_bytes": child_peak, "onnxscript_cpu_seconds": rewriter_seconds(path),
        "tvm_cpu_seconds": tvm_seconds, "tvm_fused_functions": fused,
        "limit_cpu_seconds": LIMITS.get(name),
    }  # fmt: skip


def large(path: Path) -> None:
    """Write a model of large weights."""
    weights = np.random.default_rng(0).standard_normal((PRODUCTS, WIDTH, WIDTH), dtype=np.float32)
    names = ["x", *(f"y{k}" for k in range(PRODUCTS))]
    nodes = [helper.make_node("MatMul", [names[k], f"w{k}"], [names[k + 1]]) for k in range(PRODUCTS)]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (1, WIDTH)) for n in (names[0], names[-1])]
    initializers = [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def import_of(path: Path, small: Path) -> Row:
    """Return what reading a large file takes, after a small one has loaded what is imported lazily."""
    load(small)
    before, started = peak_bytes(), time.perf_counter()
    spent, loaded = processor_seconds(lambda: load(path))
    wall, peak = time.perf_counter() - started, peak_bytes()
    return {
        "name": LARGE, "target": "", "bytes": path.stat().st_size, "weight_bytes": sum(x.nbytes for x in loaded.program.constants.values()),
        "load_cpu_seconds": spent, "load_wall_seconds": wall, "peak_bytes": peak,
        "peak_bytes_more_than_before": peak - before,
    }  # fmt: skip


def alone(*arguments: str) -> Row:
    """Measure one row in a process of its own, whose peak is that of the row."""
    run = subprocess.run([sys.executable, __file__, "--alone", *arguments], capture_output=True, text=True, check=True)
    row: Row = json.loads(run.stdout.splitlines()[-1])
    return row


def shown(row: Row) -> str:
    """Return a row as a line."""
    if row["name"] == LARGE:
        more = float(str(row["peak_bytes_more_than_before"])) / 1e6
        return f"{LARGE:18}{row['load_cpu_seconds']:.2f} s of processor, at most {more:.0f} MB more than before"
    middle = [row[k]["median"] for k in ("match_cpu_seconds", "saturation_cpu_seconds", "match_wall_seconds")]  # type: ignore[index]
    other, peak = row["onnxscript_cpu_seconds"], max(int(str(row[k])) for k in ("peak_bytes", "child_peak_bytes")) / 1e6
    counts = f"{row['operators']!s:>10}{row['regions']!s:>8}{row['forms']!s:>6}"
    beside = f"{other:14.2f}" if isinstance(other, float) else f"{'not there':>14}"
    fused = row["tvm_cpu_seconds"]
    beside += f"{fused:8.2f}" if isinstance(fused, float) else f"{'–':>8}"
    limit = f", {middle[0] + middle[1]:.2f} s of {row['limit_cpu_seconds']}" if row["limit_cpu_seconds"] else ""
    return f"{row['name']!s:18}{counts}{''.join(f'{m:8.2f}' for m in middle)}{beside}{peak:8.0f}  {row['status']}{limit}"


def growth(rows: list[Row]) -> str:
    """Return the processor time of one more layer, between the two deepest encoders."""
    spent = {
        str(r["name"]): sum(r[k]["median"] for k in ("match_cpu_seconds", "saturation_cpu_seconds")) for r in rows if r["name"] != LARGE
    }  # type: ignore[index]
    few, many = (f"BERT, {n} layers" for n in LAYERS[-2:])
    if few not in spent or many not in spent:
        return ""
    return f"one more equal layer: {1000 * (spent[many] - spent[few]) / (LAYERS[-1] - LAYERS[-2]):.1f} ms"


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=3)
    parser.add_argument("--target", default="flexasr", help="the accelerator (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="NAME", help="models whose name has this in it")
    parser.add_argument("--alone", nargs=2, metavar=("NAME", "FILE"), help="print the row of one model: what this script starts")
    args = parser.parse_args()
    if args.alone:
        name, path = args.alone[0], Path(args.alone[1])
        row = import_of(path, path.with_name("encoder_2.onnx")) if name == LARGE else measure(name, path, args.target, args.runs)
        print(json.dumps(row))
        return
    rows = recorded(args.json)
    done = {(row["name"], row["target"]) for row in rows}
    columns = (
        f"{'operators':>10}{'regions':>8}{'forms':>6}{'here s':>8}{'child s':>8}{'wall s':>8}{'onnxscript s':>14}{'TVM s':>8}{'MB':>8}"
    )
    print(f"{'model':18}{columns}  status")
    with TemporaryDirectory() as scratch:
        for name, path in models(Path(scratch)):
            if args.only not in name or (name, args.target) in done:
                continue
            rows.append(alone(name, str(path), "--target", args.target, "--runs", str(args.runs)))
            finish("matching", rows, args.json)
            print(shown(rows[-1]), flush=True)
        if args.only in LARGE and (LARGE, "") not in done:
            large(Path(scratch) / "large.onnx")
            rows.append(alone(LARGE, str(Path(scratch) / "large.onnx")))
            finish("matching", rows, args.json)
            print(shown(rows[-1]), flush=True)
    print(growth(rows))
    raise SystemExit(int(any(row.get("status", "optimal") != "optimal" for row in rows)))


if __name__ == "__main__":
    main()
