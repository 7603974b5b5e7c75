"""Which share of the multiply-accumulates of transformers do accelerators take when they may multiply two computed tensors?

The transformers of the shared folder, an encoder in this folder, and, where torch is installed (`pip install torch`), three small
networks in the ways of both of its exporters. Products of attention may be offloaded because lowerings are used; HLSCNN by the
objective `macs`. Each plan is compared with its model. With `--json FILE` it goes on where it ended; the exit status is 1 when a
share on VTA or FlexASR is below 99 %, or a plan has other numbers than its model.
"""

from __future__ import annotations

import importlib.util
import lzma
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from record import ROOT, Row, finish, options, recorded
from transformer import encoder

from rewrite_compiler.compile import Options, compile_model, plan_onnx
from rewrite_compiler.compile.verify import MODEL, check_plan
from rewrite_compiler.ir.program import macs_of, nodes_of_unknown_macs, total_macs
from rewrite_compiler.limits import Limits

SHARED = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models" / "arch"
LEAST = 0.99  # of the multiply-accumulates, on each accelerator of OBJECTIVES that has it
OBJECTIVES = {"flexasr": "offloads", "vta": "offloads", "hlscnn": "macs"}
BOUND = ("flexasr", "vta")
UNHURRIED = Limits(saturation_seconds=1800, extraction_seconds=1800)  # by the clock, whatever runs beside it


def models() -> Iterator[tuple[str, Callable[[Path], object]]]:
    """Yield the name of each transformer and what writes its file."""
    for path in sorted(SHARED.glob("*.onnx.xz")):
        if "bert" in path.name or "transformer" in path.name:
            yield path.name.removesuffix(".onnx.xz"), lambda out, path=path: out.write_bytes(lzma.decompress(path.read_bytes()))  # type: ignore[misc]
    yield "encoder of 2 layers", lambda out: onnx.save(encoder(2), str(out))
    if importlib.util.find_spec("torch") is None:
        print("torch cannot be imported: none of its networks")
        return
    from attention_networks import NETWORKS, export

    for name in NETWORKS:
        for exporter in ("torchscript", "dynamo"):
            yield f"{name}.{exporter}", lambda out, name=name, exporter=exporter: export(name, out, exporter == "dynamo")  # type: ignore[misc]


def measured(path: Path, target: str) -> Row:
    """Return the share of a model's multiply-accumulates that one accelerator takes, and the reasons of what stays on the host."""
    started = time.process_time()
    plan = compile_model(path, [target], Options(rules=(Path("lowering"),), objective=OBJECTIVES[target], limits=UNHURRIED))
    check = check_plan(plan, plan_onnx(plan), path)
    total, left = total_macs(plan.source), plan.extraction["cost"]["host_macs"]
    work = {
        plan.source.sources[k].name for n in plan.source.nodes if macs_of(n, [plan.source.types[v] for v in n.inputs]) for k in n.origins
    }
    return {
        "macs": total, "uncounted": len(nodes_of_unknown_macs(plan.source)), "host_macs": left, "share": round(1 - left / total, 5),
        "offloads": dict(plan.counts[target]), "lowered": dict(plan.lowered_counts[target]),
        "reasons": dict(Counter(h.why_not for h in plan.host if h.node in work)), "against": check.against,
        "relative_difference": check.relative_difference, "status": "limited" if plan.limited else plan.extraction["status"],
        "cpu_seconds": round(time.process_time() - started, 2),
    }  # fmt: skip


def is_as_wanted(row: Row) -> bool:
    """Tell whether a plan has the numbers of its model and, where there is a bound, the share of its work."""
    share = float(str(row["share"]))
    return row["against"] == MODEL and not row["uncounted"] and (share >= LEAST or row["target"] not in BOUND)


def main() -> int:
    """Print a line a model and accelerator, write the record; 1 when a plan is not as wanted."""
    args = options(__doc__ or "", 1).parse_args()
    rows = recorded(args.json)
    known = {(r["name"], r["target"]) for r in rows}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for name, write in models():
            wanted = [t for t in OBJECTIVES if (name, t) not in known]
            if wanted:
                write(path)
            for target in wanted:
                row = {"name": name, "target": target, **measured(path, target)}
                rows.append(row)
                print(f"{name} on {target}: {float(str(row['share'])):.1%} of {row['macs']:,}, {row['offloads']}", flush=True)
                finish("transformer_shares", rows, args.json)
    return int(not all(map(is_as_wanted, rows)))


if __name__ == "__main__":
    sys.exit(main())
