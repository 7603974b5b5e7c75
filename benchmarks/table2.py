"""How many operations of the applications of 3LA's Table 2 are offloaded, beside the paper's figures and the closed forms?

Closed forms (of the imported program): every accelerator takes every convolution that is not grouped, over one or two axes; FlexASR
and VTA every product with a weight, too. Products of one operand may share an offload, weights beside each other: `fewest` counts
them once. `mod 16` counts layers whose three extents as a matrix product are multiples of 16, the condition of the artefact's VTA
rule. The script ends with 1 where a count is neither its closed form nor, products of one operand joined, below it; with
`--json FILE` it goes on where it ended.
"""

from __future__ import annotations

import lzma
import math
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from record import ROOT, Row, finish, options, recorded

from rewrite_compiler.compile.matching.match import match
from rewrite_compiler.frontend.load import load
from rewrite_compiler.ir.program import Program
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import find_target

TARGETS = {"flexasr": "linear", "hlscnn": "conv2d", "vta": "dense"}
BLOCK = 16


@dataclass(frozen=True)
class Application:
    """A row of Table 2: the exported models, the paper's flexible counts on the three accelerators, and what differs and why."""

    name: str
    files: tuple[str, ...]
    paper: tuple[int, int, int]
    note: str = ""


APPLICATIONS = (
    Application(
        "EfficientNet", ("efficientnet_nose.dyn18", "efficientnet_nose.ts13.nofold", "efficientnet_nose.ts17"), (35, 35, 35),
        "in blocks of 16 at 224×224: 32→32, 32→16 and 16→96. The artefact's log says 9: as many as if the stage of 80 channels ran "
        "at 28×28 and not at 14×14, for then its six layers would count, too",
    ),
    Application(
        "LSTM-WLM", ("lstm_wlm.dyn18", "lstm_wlm.ts17", "lstm_wlm_unrolled.dyn18"), (1, 0, 36),
        "FlexASR: an LSTM and the decoder, which the paper leaves out. VTA takes the 36 products of the unrolled form; an LSTM operator "
        "stays on the host",
    ),
    Application("MobileNet-V2", ("mobilenetv2_cifar.dyn18", "mobilenetv2_cifar.ts13.nofold", "mobilenetv2_cifar.ts17"), (41, 40, 41)),
    Application("ResMLP", ("resmlp_cifar.dyn18", "resmlp_cifar.ts17"), (38, 0, 38)),
    Application(
        "Transformer", ("transformer.dyn18", "transformer_explicit.ts17"), (66, 0, 66),
        "separate projections are 96 products; those of queries, keys and values are one offload",
    ),
    Application("ResNet-20", ("resnet20_b.dyn18", "resnet20_b.ts13.nofold", "resnet20_b.ts17"), (22, 21, 22)),
    Application("ResNet-50", ("tv_resnet50.ts17", "resnet50.tf2onnx"), (54, 53, 24), "the paper's VTA count is the one in blocks of 16"),
)  # fmt: skip


def products(p: Program) -> dict[str, int]:
    """Return the closed forms of a program, and its products whose operand another product has, too."""
    counts = {"flexasr": 0, "hlscnn": 0, "vta": 0, "mod16": 0, "repeated": 0}
    multiplied = set()
    for n in p.nodes:
        types = [p.types[v] for v in n.inputs]
        if n.op == "conv" and n.attribute("group") == 1:
            w, y = types[1].shape, p.types[n.outputs[0]].shape
            counts["hlscnn"] += 1
            extents = (math.prod(y) // y[1], math.prod(w[1:]), w[0])
        elif n.op == "dense" or (n.op == "matmul" and any(v in p.constants and len(p.types[v].shape) == 2 for v in n.inputs)):
            y, k = p.types[n.outputs[0]].shape, types[0].shape[-1]
            extents = (math.prod(y[:-1]), k, y[-1])
            counts["repeated"] += n.inputs[0] in multiplied
            multiplied.add(n.inputs[0])
        else:
            continue
        counts["flexasr"] += 1
        counts["vta"] += 1
        counts["mod16"] += all(e % BLOCK == 0 for e in extents)
    return counts


def measure(application: Application, path: Path, target: str) -> Row:
    """Return the offloads of one model on one accelerator, and its closed form."""
    p = load(path).program
    mappings = list(find_target(target).mappings.values())
    chosen = match(p, shipped_rules(), mappings, DEFAULT)
    operations = {m.name: m.operation for m in mappings}
    counts: dict[str, int] = {}
    for n in chosen.program.nodes:
        if n.op in operations:
            counts[operations[n.op]] = counts.get(operations[n.op], 0) + 1
    forms = products(p)
    return {
        "name": application.name, "model": path.stem, "target": target, "counts": counts, "closed_form": forms[target],
        "fewest": forms[target] - (0 if target == "hlscnn" else forms["repeated"]), "mod_16": forms["mod16"],
        "paper": application.paper[list(TARGETS).index(target)], "status": chosen.extraction.status, "gap": chosen.extraction.gap,
    }  # fmt: skip


def holds(row: Row) -> bool:
    """Tell whether the counts are the closed form: with convolutions and products of a target as one kind, recurrences apart."""
    counts = dict(row["counts"])  # type: ignore[call-overload]
    offloads = sum(counts.get(op, 0) for op in ("linear", "dense", "conv2d"))
    if row["name"] == "LSTM-WLM" and row["target"] == "flexasr":
        return counts.get("lstm") == 1 and offloads == 1
    return int(str(row["fewest"])) <= offloads <= int(str(row["closed_form"]))


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=1)
    parser.add_argument("--only", default="", metavar="NAME", help="applications whose name has this in it")
    parser.add_argument("--target", choices=TARGETS, action="append", help="one accelerator (default: all)")
    parser.add_argument("--first", action="store_true", help="one exported model an application")
    args = parser.parse_args()
    folder = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models" / "arch"
    rows = recorded(args.json)
    recorded_pairs = {(row["model"], row["target"]) for row in rows}
    print(f"{'application':14}{'model':32}{'target':9}{'found':>24}{'closed form':>12}{'mod 16':>8}{'paper':>7}")
    with TemporaryDirectory() as scratch:
        for a in (a for a in APPLICATIONS if args.only in a.name):
            for file in a.files[: 1 if args.first else None]:
                path = Path(scratch) / f"{file}.onnx"
                path.write_bytes(lzma.decompress((folder / f"{path.name}.xz").read_bytes()))
                for target in args.target or TARGETS:
                    if (path.stem, target) in recorded_pairs:
                        continue
                    rows.append(row := measure(a, path, target))
                    finish("table2", rows, args.json)
                    counts_text = ", ".join(f"{n} {op}" for op, n in sorted(dict(row["counts"]).items())) or "none"  # type: ignore[call-overload]
                    columns = "".join(f"{row[k]!s:>{w}}" for k, w in (("closed_form", 12), ("mod_16", 8), ("paper", 7)))
                    print(f"{a.name:14}{file:32}{target:9}{counts_text:>24}{columns}{'' if holds(row) else '  differs'}", flush=True)
            if a.note:
                print(f"{'':14}{a.note}")
    raise SystemExit(int(not all(map(holds, rows))))


if __name__ == "__main__":
    main()
