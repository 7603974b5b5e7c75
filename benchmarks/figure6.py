"""How many cycles does the host take for each offload, beside the accelerator? The distribution of the ratios, as the 3LA paper's Figure 6.

The host is this machine: the processor time of onnxruntime, one thread, on the offload's meaning alone, times the nominal
frequency. Device cycles are the plan's. FlexASR's formulas give measured cycles (full dots); those of HLSCNN and VTA are
estimates from their units and links (rings). The drawing has a row a network and accelerator, on a logarithmic axis.
"""

from __future__ import annotations

import lzma
import math
import os
import re
import statistics
import sys
import tempfile
from pathlib import Path

from record import ROOT, Row, finish, options

from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.plan.plan import Offload
from rewrite_compiler.fit.host import CLOCK
from rewrite_compiler.frontend.graph.emit import to_onnx
from rewrite_compiler.hostrun.timing import random_operands, session_seconds
from rewrite_compiler.target import body_of

SHARED = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared"))
NETWORKS = {"ResNet-20": "resnet20_b.ts17", "MobileNet-V2": "mobilenetv2_cifar.ts17"}
TARGETS = ("flexasr", "hlscnn", "vta")
WIDE, LEFT, LINE, TOP = 920, 230, 70, 50
INK = "#1d3557"


def nominal_hertz() -> int:
    """Return the frequency that the processor states in its name or now, else the shipped host clock."""
    info = Path("/proc/cpuinfo")
    text = info.read_text("utf-8") if info.exists() else ""
    match = re.search(r"@\s*([\d.]+)\s*GHz", text)
    now = re.search(r"cpu MHz\s*:\s*([\d.]+)", text)
    return int(float(match[1]) * 1e9) if match else int(float(now[1]) * 1e6) if now else CLOCK.hertz


def host_seconds(plan: Plan, o: Offload, cache: dict[object, float]) -> float:
    """Return the processor time of an offload's meaning on this machine, each form measured once."""
    types = [plan.program.types[v] for v in o.node.inputs]
    key = (o.mapping.name, tuple(types), o.node.attributes)
    if key not in cache:
        body = body_of(o.mapping, types, dict(o.node.attributes))
        names = {body.names[v]: body.types[v] for v in body.inputs}
        operands = random_operands({n: t.shape for n, t in names.items()}, {n: t.dtype for n, t in names.items()})
        cache[key] = session_seconds(to_onnx(body), operands)
    return cache[key]


def ratios(network: str, target: str, folder: Path, hertz: int) -> Row:
    """Return the ratio of every offload of a network on a target."""
    path = folder / f"{network}.onnx"
    path.write_bytes(lzma.decompress((SHARED / "models" / "arch" / f"{NETWORKS[network]}.onnx.xz").read_bytes()))
    plan, cache = compile_model(path, [target], Options()), dict[object, float]()
    found = []
    for o in plan.offloads:
        assert o.price is not None
        host = round(host_seconds(plan, o, cache) * hertz)
        found.append({"offload": o.id, "host_cycles": host, "device_cycles": o.price.cost.cycles, "ratio": host / o.price.cost.cycles})
    values = sorted(float(r["ratio"]) for r in found)
    return {
        "network": network, "target": target, "device": "estimated" if any(o.price and o.price.cost.estimated for o in plan.offloads)
        else "measured", "offloads": found, "ratio_median": statistics.median(values), "ratio_low": values[0], "ratio_high": values[-1],
        "host_hertz": hertz,
    }  # fmt: skip


def drawing(rows: list[Row]) -> str:
    """Return the distribution as SVG: a dot an offload, measured ones full, estimated ones as rings, a bar at the median."""
    every = [float(r["ratio"]) for row in rows for r in row["offloads"]]  # type: ignore[attr-defined]
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    tall = TOP + LINE * len(rows) + 60

    def x(ratio: float) -> float:
        return round(LEFT + (math.log10(ratio) - low) / (high - low) * (WIDE - LEFT - 30), 1)

    parts = [f'<text x="{LEFT}" y="22" font-size="15">Host cycles / accelerator cycles, one dot an offload</text>']
    for power in range(low, high + 1):
        at = x(10.0**power)
        parts.append(f'<path d="M{at} {TOP - 12}V{tall - 52}" stroke="#ccc"/>')
        parts.append(f'<text x="{at}" y="{tall - 34}" text-anchor="middle">{10.0**power:g}</text>')
    for n, row in enumerate(rows):
        y, estimated = TOP + LINE * n + LINE // 2, row["device"] == "estimated"
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{row["network"]}, {row["target"]} ({row["device"]})</text>')
        for k, r in enumerate(row["offloads"]):  # type: ignore[arg-type, var-annotated]
            fill = "none" if estimated else INK
            parts.append(f'<circle cx="{x(r["ratio"])}" cy="{y + (k % 7 - 3) * 6}" r="4" fill="{fill}" stroke="{INK}"/>')
        at = x(float(str(row["ratio_median"])))
        parts.append(f'<path d="M{at} {y - 26}V{y + 26}" stroke="#c1121f" stroke-width="2"/>')
    caption = "Full: device cycles by formulas that equal measured ones. Rings: estimated from units and links. Red: median."
    parts.append(f'<text x="{10}" y="{tall - 8}">{caption}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {tall}" font-family="sans-serif" font-size="12">'
    return f"{head}<title>Host cycles over accelerator cycles of each offload</title>{''.join(parts)}</svg>\n"


def main() -> None:
    """Measure, print a line a network and accelerator, write the drawing and the record."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the drawing there")
    args = parser.parse_args()
    if not (SHARED / "models" / "arch").is_dir():
        sys.exit(f"the shared models are not in {SHARED}; set FLEXMATCH_SHARED")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for network in NETWORKS:
            for target in TARGETS:
                row = ratios(network, target, Path(folder), nominal_hertz())
                rows.append(row)
                print(
                    network,
                    target,
                    row["device"],
                    len(row["offloads"]),
                    row["ratio_low"],
                    row["ratio_median"],
                    row["ratio_high"],
                    flush=True,
                )  # type: ignore[arg-type]
    if args.svg:
        args.svg.write_text(drawing(rows), "utf-8")
    finish("figure6", rows, args.json)


if __name__ == "__main__":
    main()
