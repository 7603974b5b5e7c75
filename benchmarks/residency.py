"""How many bytes cross the links when tensors stay on their device, beside the optimum of every operator by itself?

Every application of Table 2 on each accelerator that takes some of it, and four chains, with what saves: operands that an
earlier call left, results that only later calls read, and constants that lie there from one inference to the next. In a first
inference constants have to come: a bound says what it could save at most. Chains run as two inferences with and without, whose
results must agree bit for bit. The script ends with 1 where they do not. With `--json FILE` it goes on where it ended; each
row has the commit that it was measured at.
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
from record import ROOT, Row, commit, finish, options, recorded

from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.formats.calibrate import calibrated
from rewrite_compiler.compile.plan.plan import Offload, tensors_of
from rewrite_compiler.compile.plan.residency import aliases, is_renaming
from rewrite_compiler.cosim.resident_run import inferences
from rewrite_compiler.readings.arrays.labelled_array import storage_dtype
from rewrite_compiler.target import Cost

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
    random, last = np.random.default_rng(SEED), "x"
    nodes, weights = list[onnx.NodeProto](), dict[str, np.ndarray]()
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
    tensors = [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, size]) for n, size in (("x", sizes[0]), ("y", sizes[-1])))
    path = folder / f"chain_{rows}_{'_'.join(map(str, sizes))}.onnx"
    graph = helper.make_graph(nodes, "chain", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


CHAINS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "WLM: LSTM, decoder": ("flexasr", lambda folder: SHARED / "models" / "wlm" / "wlm_h128_lstm_dyn18.onnx"),
    "Transformer feed-forward: linear, relu, linear (320 x 256 x 2048)": ("flexasr", lambda f: chain(f, 320, (256, 2048, 256), adds=False)),
    "digits MLP": ("flexasr", lambda folder: ROOT / "apps" / "digits" / "mlp.onnx"),
    "VTA: dense, add, relu, dense (16 x 64 x 128 x 64)": ("vta", lambda folder: chain(folder, 16, (64, 128, 64), adds=True)),
}


def compulsory(plan: Plan, target: str) -> tuple[int, int]:
    """Return the bytes that a first inference cannot save, without and with commands.

    Each constant, each tensor that comes from elsewhere or is read elsewhere, and both ways of one that its maker or its reader
    has no room for on the device: once, in its format, constants with what fills their blocks. Commands are those of every
    operation in one call.
    """
    mine = [o for o in plan.offloads if o.target.name == target]
    p, alias_of = plan.program, aliases(plan.program)
    producers = {alias_of.get(v, v): o for o in mine for v in o.node.outputs}
    stays = {alias_of.get(tensors_of(o)[n], tensors_of(o)[n]) for o in mine for n in roomy(o) if n not in o.mapping.axes.results}
    handed = {v for v, o in producers.items() if v in stays and o.mapping.axes.result in roomy(o)}
    read = {(id(n), alias_of.get(v, v)) for n in p.nodes if not is_renaming(p, n) for v in n.inputs}
    elsewhere = {v for n, v in read if n not in {id(o.node) for o in mine}} | {alias_of.get(v, v) for v in p.outputs}
    crossing: dict[tuple[int, bool], int] = {}
    for o in mine:
        formats = o.mapping.formats_for(dict.fromkeys(o.mapping.format_choices, 1.0))
        for name, x in tensors_of(o).items():
            v, leaves = alias_of.get(x, x), name in o.mapping.axes.results
            if v not in handed or (leaves and v in elsewhere):
                size = p.types[x].size * np.dtype(storage_dtype(formats[name].codes)).itemsize
                crossing[v, leaves] = max(size, held(o, name) if x in p.constants else 0)
    commands = sum(undivided_price.moved.get("commands", 0) for o in mine if (undivided_price := undivided(o)) is not None)
    return sum(crossing.values()), sum(crossing.values()) + commands


def roomy(o: Offload) -> set[str]:
    """Return the tensors of an offload that have a room on its device, in one call."""
    return {r.tensor for r in o.mapping.rooms(o.tiling.tile, dict(o.node.attributes)) or () if r.tensor}


def held(o: Offload, name: str) -> int:
    """Return the bytes that a constant takes in its memory, with what fills its blocks; 0 where it does not last there.

    A design may give it more room than is written: what the call moves is as much as it can be.
    """
    resources, undivided_price = o.target.resources(), undivided(o)
    rooms = o.mapping.rooms(o.tiling.tile, dict(o.node.attributes)) or ()
    if resources is None or undivided_price is None or o.tiling.calls > 1:
        return 0
    mine = [(r.size, resources.memory(r.memory)) for r in rooms if r.tensor == name and r.lasting]
    return min(sum(size * m.element_bytes * m.instances for size, m in mine), undivided_price.moved.get(name, 0))


def undivided(o: Offload) -> Cost | None:
    """Return what an offload would cost in one call."""
    resources = o.target.resources()
    return None if resources is None else o.mapping.cost(o.tiling.sizes, dict(o.node.attributes), resources)


def sums(plan: Plan, target: str) -> Row:
    """Return what a plan moves on a target, and what stays."""
    r = plan.residency[target]
    between = r.bytes_saved["operands"] + r.bytes_saved["results"]
    least, with_commands = compulsory(plan, target)
    return {
        "offloads": len(plan.offloads), "operator_optimum_bytes": r.bytes_moved, "saved_bytes": r.all_saved,
        "saved_by_activations_bytes": between, "saved_by_constants_bytes": r.bytes_saved["constants"], "bound_saved_bytes": r.bound,
        "first_inference_saved_fraction": round(between / r.bytes_moved, 4),
        "first_inference_compulsory_bytes": least, "first_inference_compulsory_bytes_with_commands": with_commands,
        "first_inference_most_saved_fraction": round(1 - with_commands / r.bytes_moved, 4),
        "further_inferences_saved_fraction": round(r.all_saved / r.bytes_moved, 4),
        "moving_operands": r.operands, "made_on_device": r.made_on_device, "stay_on_device": r.staying_operands,
        "edges_that_stay_fraction": round(r.staying_operands / r.operands, 4) if r.operands else None,
        "why_not": dict(sorted((w, list(r.why_not.values()).count(w)) for w in set(r.why_not.values()))),
    }  # fmt: skip


def drawn(plan: Plan, samples: int) -> dict[str, np.ndarray]:
    """Return random inputs of a plan."""
    random, p, arrays = np.random.default_rng(SEED), plan.program, {}
    for v in p.inputs:
        t = p.types[v]
        array = random.normal(0, 1, (samples, *t.shape)) if t.dtype.startswith("float") else random.integers(0, 9, (samples, *t.shape))
        arrays[p.names[v]] = array.astype(t.dtype)
    return arrays


def agreement(plan: Plan) -> Row:
    """Run two inferences with and without residency; return whether the bits agree and how many commands each took."""
    ready = calibrated(plan, drawn(plan, 2), "drawn")
    inputs = drawn(plan, 2)
    streamed, resident_runs = (list(inferences(ready, inputs, stays=stays)) for stays in (False, True))
    is_equal = all(np.array_equal(a.outputs[n], b.outputs[n]) for a, b in zip(streamed, resident_runs, strict=True) for n in a.outputs)
    return {"bit_identical": is_equal, "commands": [x.commands for x in streamed], "commands_resident": [x.commands for x in resident_runs]}


def of_chain(folder: Path, title: str, target: str) -> Row:
    """Plan a chain and run it."""
    plan = compile_model(CHAINS[title][1](folder), [target], Options(objective="bytes"))
    return {"name": title, "target": target, **sums(plan, target), **agreement(plan)}


def of_model(folder: Path, name: str, target: str) -> Row:
    """Plan an application of Table 2."""
    plan = compile_model(unpacked(folder, name), [target], Options(objective="offloads"))
    counted = sums(plan, target) if target in plan.residency else {"offloads": len(plan.offloads), "why_not": "no cost known"}
    return {"name": name, "target": target, **counted}


def shown(row: Row) -> str:
    """Return a row as one line."""
    keys = (
        "operator_optimum_bytes", "first_inference_saved_fraction", "first_inference_most_saved_fraction",
        "further_inferences_saved_fraction", "moving_operands", "made_on_device", "stay_on_device",
    )  # fmt: skip
    return f"{row['name']!s:>66} {row['target']!s:>8}  " + "  ".join(str(row.get(k)) for k in keys)


def main() -> int:
    """Plan all applications and chains, run the chains, print a line each."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--only", default="", metavar="TEXT", help="only chains and applications whose name has this in it")
    args = parser.parse_args()
    if not (SHARED / "models" / "arch").is_dir():
        sys.exit(f"the shared models are not in {SHARED}; set FLEXMATCH_SHARED")
    rows = recorded(args.json)
    recorded_pairs = {(r["name"], r["target"]) for r in rows}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = [*((t, CHAINS[t][0]) for t in CHAINS), *itertools.product(TABLE2, TARGETS)]
        for title, target in (a for a in pairs if args.only in a[0] and a not in recorded_pairs):
            rows.append({**(of_chain if title in CHAINS else of_model)(folder, title, target), "commit": commit()})
            finish("residency", rows, args.json)
            print(shown(rows[-1]), rows[-1].get("bit_identical", ""), flush=True)
    return int(not all(r.get("bit_identical", True) for r in rows))


if __name__ == "__main__":
    sys.exit(main())
