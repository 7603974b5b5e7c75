"""How many bytes cross the links when tensors stay on their device, beside the optimum of every operator by itself?

Every application of Table 2 on each accelerator that takes some of it, and four chains, with what saves: operands that an
earlier call left, results that only later calls read, and constants that lie there from one inference to the next. Chains run
as two inferences with and without, whose results must agree bit for bit. The script ends with 1 where they do not.
"""

from __future__ import annotations

import itertools
import lzma
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from record import ROOT, Row, finish, options

from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.calibrate import calibrated
from rewrite_compiler.cosim.resident import inferences

SHARED = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared"))
TARGETS = ("flexasr", "hlscnn", "vta")
TABLE2 = (
    "efficientnet_nose.ts17", "lstm_wlm.ts17", "mobilenetv2_cifar.ts17", "resmlp_cifar.ts17", "transformer_explicit.ts17",
    "resnet20_b.ts17", "tv_resnet50.ts17",
)  # fmt: skip
SEED = 29


def unpacked(folder: Path, name: str) -> Path:
    """Return a shared model as a plain file."""
    path = folder / f"{name}.onnx"
    path.write_bytes(lzma.decompress((SHARED / "models" / "arch" / f"{name}.onnx.xz").read_bytes()))
    return path


def chain(folder: Path, rows: int, sizes: tuple[int, ...], *, adds: bool) -> Path:
    """Write linear layers with a ReLU between them; biases as an operator of their own where it `adds`."""
    random, nodes, weights, last = np.random.default_rng(SEED), [], {}, "x"
    for n, (k, m) in enumerate(itertools.pairwise(sizes)):
        is_last = n == len(sizes) - 2
        weights |= {f"w{n}": random.normal(0, 0.3, (k, m)), f"b{n}": random.normal(0, 0.3, m)}
        out = "y" if is_last else f"a{n}"
        if adds:
            product = out if is_last else f"m{n}"
            nodes.append(helper.make_node("MatMul", [last, f"w{n}"], [product]))
            nodes += [] if is_last else [helper.make_node("Add", [product, f"b{n}"], [out])]
        else:
            nodes.append(helper.make_node("Gemm", [last, f"w{n}", f"b{n}"], [out]))
        if not is_last:
            nodes.append(helper.make_node("Relu", [out], [f"r{n}"]))
            last = f"r{n}"
    made = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, size]) for n, size in (("x", sizes[0]), ("y", sizes[-1])))
    path = folder / f"chain_{rows}_{'_'.join(map(str, sizes))}.onnx"
    graph = helper.make_graph(nodes, "chain", [x], [y], made)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


CHAINS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "WLM: LSTM, decoder": ("flexasr", lambda folder: SHARED / "models" / "wlm" / "wlm_h128_lstm_dyn18.onnx"),
    "Transformer feed-forward: linear, relu, linear (320 x 256 x 2048)": ("flexasr", lambda f: chain(f, 320, (256, 2048, 256), adds=False)),
    "digits MLP": ("flexasr", lambda folder: ROOT / "apps" / "digits" / "mlp.onnx"),
    "VTA: dense, add, relu, dense (16 x 64 x 128 x 64)": ("vta", lambda folder: chain(folder, 16, (64, 128, 64), adds=True)),
}


def sums(plan: Plan, target: str) -> Row:
    """Return what a plan moves on a target, and what stays."""
    r = plan.residency[target]
    between = r.saved["operands"] + r.saved["results"]
    return {
        "offloads": len(plan.offloads), "operator_optimum_bytes": r.moved, "saved_bytes": r.all_saved,
        "saved_by_activations_bytes": between, "saved_by_constants_bytes": r.saved["constants"], "bound_saved_bytes": r.bound,
        "first_inference_saved_fraction": round(between / r.moved, 4), "further_inferences_saved_fraction": round(r.all_saved / r.moved, 4),
        "moving_operands": r.operands, "made_on_device": r.made_here, "stay_on_device": r.staying,
        "edges_that_stay_fraction": round(r.staying / r.operands, 4) if r.operands else None,
        "why_not": dict(sorted((w, list(r.why_not.values()).count(w)) for w in set(r.why_not.values()))),
    }  # fmt: skip


def drawn(plan: Plan, samples: int) -> dict[str, np.ndarray]:
    """Return random inputs of a plan."""
    random, p, found = np.random.default_rng(SEED), plan.program, {}
    for v in p.inputs:
        t = p.types[v]
        made = random.normal(0, 1, (samples, *t.shape)) if t.dtype.startswith("float") else random.integers(0, 9, (samples, *t.shape))
        found[p.names[v]] = made.astype(t.dtype)
    return found


def agreement(plan: Plan) -> Row:
    """Run two inferences with and without residency; return whether the bits agree and how many commands each took."""
    ready = calibrated(plan, drawn(plan, 2), "drawn")
    inputs = drawn(plan, 2)
    moved, stayed = (list(inferences(ready, inputs, stays=stays)) for stays in (False, True))
    same = all(np.array_equal(a.outputs[n], b.outputs[n]) for a, b in zip(moved, stayed, strict=True) for n in a.outputs)
    return {"bit_identical": same, "commands": [x.commands for x in moved], "commands_resident": [x.commands for x in stayed]}


def shown(row: Row) -> str:
    """Return a row as one line."""
    keys = ("operator_optimum_bytes", "first_inference_saved_fraction", "further_inferences_saved_fraction", "moving_operands",
            "made_on_device", "stay_on_device")  # fmt: skip
    return f"{row['name']!s:>66} {row['target']!s:>8}  " + "  ".join(str(row.get(k)) for k in keys)


def main() -> int:
    """Plan all applications and chains, run the chains, print a line each."""
    given = options(__doc__ or "", 1).parse_args()
    if not (SHARED / "models" / "arch").is_dir():
        sys.exit(f"the shared models are not in {SHARED}; set FLEXMATCH_SHARED")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, (target, write) in CHAINS.items():
            plan = compile_model(write(folder), [target], Options(objective="bytes"))
            rows.append({"name": title, "target": target, **sums(plan, target), **agreement(plan)})
            print(shown(rows[-1]), rows[-1]["bit_identical"], flush=True)
        for model in TABLE2:
            for target in TARGETS:
                plan = compile_model(unpacked(folder, model), [target], Options(objective="offloads"))
                counted = sums(plan, target) if target in plan.residency else {"offloads": len(plan.offloads), "why_not": "no cost known"}
                rows.append({"name": model, "target": target, **counted})
                print(shown(rows[-1]), flush=True)
    finish("residency", rows, given.json)
    return int(not all(r.get("bit_identical", True) for r in rows))


if __name__ == "__main__":
    sys.exit(main())
