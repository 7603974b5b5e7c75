"""Cycles of the best mapping beside those of what a driver issues: on VTA, HLSCNN and GeneSys, with what lies between them by name.

The mapper sees memories and units only. The driver's instructions are timed by events: on VTA in its three queues, whose loads and
stores share one port; on HLSCNN one after the other, as its driver waits; on GeneSys by its published performance model with the
driver's tile. A mapping has products, and elements that cross the link to the host once; all else of a stream is listed by name as
shares of the event model's cycles.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hvx_layers import Program
from record import Row, finish, options

from rewrite_compiler.compile.matching.match import sizes_of
from rewrite_compiler.fit import Tiling, tile
from rewrite_compiler.fit.cost import price
from rewrite_compiler.fit.mappers.run import best_mapping
from rewrite_compiler.fit.mapping.device import device_clusters
from rewrite_compiler.fit.models.model import Objective
from rewrite_compiler.fit.models.published import MODELS
from rewrite_compiler.fit.problems.meaning import problem_of
from rewrite_compiler.fit.problems.problem import Problem
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.lang import Fixed
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import Target, find_target
from rewrite_compiler.target.timing import queued_commands, timeline
from rewrite_compiler.targets._genesys_performance.design import Design
from rewrite_compiler.targets._genesys_performance.systolic import SystolicLayer, Tile, systolic_costs
from rewrite_compiler.targets.genesys.systolic import conv_layer
from rewrite_compiler.targets.vta.base import UOP_BYTES, config

Parts = dict[str, int]  # cycles by what they are spent on
FORMATS = dict.fromkeys("xwby", Fixed(8, 4))
# name, operation, shapes, strides
CASES: Sequence[tuple[str, str, tuple[tuple[int, ...], ...], int]] = (
    ("64 x 256 x 256", "dense", ((64, 256), (256, 256)), 0),
    ("1 x 512 x 1,000", "dense", ((1, 512), (1000, 512)), 0),
    ("56 x 56, 64 to 64, 3 x 3", "conv", ((1, 64, 58, 58), (64, 64, 3, 3)), 1),
    ("28 x 28, 64 to 128, 1 x 1, stride 2", "conv", ((1, 64, 55, 55), (128, 64, 1, 1)), 2),
    ("14 x 14, 256 to 256, 3 x 3", "conv", ((1, 256, 16, 16), (256, 256, 3, 3)), 1),
    ("7 x 7, 512 to 512, 3 x 3", "conv", ((1, 512, 9, 9), (512, 512, 3, 3)), 1),
)
NEAR = 0.1  # share of the event model's cycles
SEEN = ("products", "elements over the link")  # parts that a mapping has, too


@dataclass
class Recorder(Program):
    """A device that keeps what is issued and counts the commands of a bus."""

    words: int = 0

    def issue(self, instruction: str, **operands: int) -> None:
        """Keep an instruction."""
        super().issue(instruction, **operands)
        self.words += 1

    def store(self, instruction: str, **operands: Any) -> None:
        """Count one command for each row."""
        self.words += len(operands["offset"])

    def load(self, instruction: str, **operands: Any) -> Any:
        """Count one read for each row, and return zeros."""
        self.words += len(operands["offset"])
        return np.zeros((len(operands["offset"]), 16), np.int64)


def vta_cycles(target: Target, m: Operation, issued: Sequence[tuple[str, Mapping[str, int]]]) -> Parts:
    """Return the cycles of a stream, by what the compute queue does and waits for."""
    c, resources = config(m.parameters), target.resources()
    assert resources is not None
    port = resources.link("host", "wgt")
    word = {s: c.scalars(s) * c.width(s) // 8 for s in ("inp", "wgt", "acc")} | {"uop": UOP_BYTES, "store": c.scalars("inp")}

    def cycles(name: str, f: Mapping[str, int]) -> int:
        if name.startswith("load_") or name == "store":
            return port.cycles_for(max(f.get("y_size", 1), 1) * f.get("x_size", 0) * word[name.removeprefix("load_")])
        if name == "finish":
            return 0
        return max(f.get("iter_out", 1), 1) * max(f.get("iter_in", 1), 1) * max(f.get("uop_end", 1) - f.get("uop_bgn", 0), 1)

    def moves(name: str) -> bool:
        return name.startswith("load_") or name == "store"

    queued = queued_commands(target.ila(), issued, cycles)
    commands = [replace(q, resource="port", queue=q.resource) if moves(q.name) else q for q in queued]
    products_of = [bool(name == "gemm" and not f.get("reset")) for name, f in issued]
    timed = timeline(commands)
    parts: Parts = {}

    def add(name: str, n: int) -> None:
        parts[name] = parts.get(name, 0) + n

    end = 0
    for is_product, span in zip(products_of, timed.spans, strict=True):
        if span.command.lane != "compute":
            continue
        reason = "" if span.stall is None else f"waits: {span.stall.subject} ({span.stall.wait})"
        add(reason or "idle", span.start - end)
        kind = "products" if is_product else "micro-ops and biases load" if moves(span.command.name) else "starts and epilogues"
        add(kind, span.end - span.start)
        end = span.end
    add("last stores", timed.cycles - end)
    return parts


def genesys_cycles(m: Operation, sizes: Mapping[str, int], attributes: Mapping[str, Any], port_bits: int) -> Parts:
    """Return compute and stalls of the published performance model, with the tile of the driver."""
    if "c" in sizes:
        shape, kernel = [sizes[d] for d in "bncij"], (sizes["r"], sizes["s"])
    else:
        shape, kernel = [1, sizes["n"], sizes["k"], 1, sizes["t"]], (1, 1)
    strides, pads = attributes.get("strides", (1, 1)), attributes.get("pads", (0, 0, 0, 0))
    layer = conv_layer(*shape, *kernel, strides, pads, m.parameters)
    rows, columns = layer.design.array_n, layer.design.array_m
    design = Design(rows, columns, 8, 8, 32, 32, *[1] * 5, *[port_bits] * 4)  # rooms are those that the driver's tile keeps
    whole = SystolicLayer(layer.oc * columns, layer.ic * rows, *kernel, *layer.out, strides[0])
    part = Tile(layer.toc * columns, layer.tic * rows, *kernel, layer.toh, layer.out[1])
    costs = systolic_costs(design, whole, part, exact=True)
    return {"products": layer.samples * int(costs["SA compute"]), "waits: ports": layer.samples * int(costs["SA stall"])}


def stream_cycles(target: Target, m: Operation, sizes: Mapping[str, int], attributes: Mapping[str, Any]) -> Parts:
    """Return the cycles of one call by what they are spent on."""
    resources = target.resources()
    assert resources is not None
    if target.name == "genesys":
        return genesys_cycles(m, sizes, attributes, 8 * int(resources.link("host", "wbuf").bytes_per_cycle))
    device = Recorder()
    operands = {v.name: np.zeros([sizes[d] for d in m.axes.of[v.name]], np.int8) for v in m.operands}
    m.run_driver(device, operands, FORMATS, attributes)
    if target.name == "vta":
        return vta_cycles(target, m, device.issued)
    cost = m.cost(sizes, attributes, resources)
    assert cost is not None
    fills = sum(f["length"] for name, f in device.issued if "length" in f)  # vectors
    return {"products": cost.compute_cycles, "words over the bus": device.words, "fills of scratchpads": fills}


def different_elements(problem: Problem) -> int:
    """Return how many elements of all tensors a problem uses, each counted once: one by one along every axis."""

    def along(axis: Mapping[str, int]) -> int:
        places = itertools.product(*(range(0, c * problem.dimensions[d], c) for d, c in axis.items()))
        return len({sum(place) for place in places})

    return sum(math.prod(along(axis) for axis in axes) for axes in problem.spaces.values())


def named_parts(parts: Parts, steps: int, link: int) -> Parts:
    """Return a stream's cycles by name, those that a mapping has apart: products, and the link's cycles beyond them out of other parts."""
    named = {**parts, "products": min(parts["products"], steps), "lanes without work": max(parts["products"] - steps, 0)}
    left = max(link - named["products"], 0)
    carried = 0
    for what in sorted((what for what in named if what != "products"), key=lambda what: -named[what]):
        n = min(left - carried, named[what])
        named[what] -= n
        carried += n
    return {what: n for what, n in {**named, "elements over the link": carried}.items() if n}


def row(target: Target, name: str, operation: str, shapes: Sequence[tuple[int, ...]], stride: int) -> Row | None:
    """Return a layer's cycles by the mapper, the target's own cost and events; None where the target has no such operation."""
    variant = {"dense": "dense", "conv": "conv2d"}[operation]
    if variant not in target.mappings:
        return None
    m, resources = target.mappings[variant], target.resources()
    assert resources is not None
    window: dict[str, Any] = {"strides": (stride,) * 2, "pads": (0,) * 4} if stride else {}
    fit = tile(m, sizes_of(m, [TensorType(shape) for shape in shapes], window), window)
    assert isinstance(fit, Tiling), fit
    own = price(m, fit, window, resources)
    assert own is not None
    parts: Parts = {}
    for sizes, calls in fit.regions():
        for what, n in stream_cycles(target, m, sizes, window).items():
            parts[what] = parts.get(what, 0) + calls * n
    problem = problem_of(operation, shapes, **(window | ({"dilations": (1, 1), "group": 1} if stride else {})))
    clusters = device_clusters(target.name, resources)
    mapped = best_mapping(problem, clusters, MODELS["timeloop"], Objective.CYCLES, budget=2_000).cost.cycles
    events = sum(parts.values())
    steps = problem.points // max(u.per_cycle for u in resources.units)
    width = next(c.width for c in clusters.levels if c.width is not None)
    named = named_parts(parts, steps, -(-different_elements(problem) // width))
    seen = sum(named.get(what, 0) for what in SEEN)
    return {
        "target": target.name, "layer": name, "calls": fit.calls, "mapping": mapped, "own": own.cost.cycles, "events": events,
        "named": named, "is_near": abs(events - mapped) <= NEAR * events,
        # what the mapping has is products and elements that cross once, and all else has a name
        "is_explained": abs(seen - mapped) <= NEAR * mapped,
    }  # fmt: skip


def reason(found: Row) -> str:
    """Return what the mapping does not see, the largest share first, as shares of the event model's cycles; small ones together."""
    events, named = int(str(found["events"])), dict(found["named"])  # type: ignore[call-overload]
    for what in SEEN:
        named.pop(what, None)
    large = sorted(((n, what) for what, n in named.items() if n >= NEAR / 2 * events), reverse=True)
    rest = sum(named.values()) - sum(n for n, _ in large)
    return ", ".join([f"{100 * n / events:.0f}% {what}" for n, what in large] + ([f"{100 * rest / events:.0f}% other"] if rest else []))


def main() -> None:
    """Print the table."""
    args = options(__doc__ or "", runs=1).parse_args()
    rows = []
    print(f"{'target':8} {'layer':38}{'calls':>6}{'mapping':>12}{'own cost':>12}{'events':>12}{'mapping':>9}{'own':>6}  not in the mapping")
    for target in map(find_target, ("vta", "hlscnn", "genesys")):
        for name, operation, shapes, stride in CASES:
            found = row(target, name, operation, shapes, stride)
            if found is None:
                continue
            rows.append(found)
            mapped, own, events = (int(str(found[key])) for key in ("mapping", "own", "events"))
            shares = f"{mapped / events:>9.2f}{own / events:>6.2f}"
            print(
                f"{target.name:8} {name:38}{found['calls']!s:>6}{mapped:>12,}{own:>12,}{events:>12,}{shares}  {reason(found)}", flush=True
            )
    near, named = (sum(bool(r[key]) for r in rows) for key in ("is_near", "is_explained"))
    own = sum(abs(int(str(r["own"])) - int(str(r["events"]))) <= NEAR * int(str(r["events"])) for r in rows)
    print(f"within {100 * NEAR:.0f} % of the events: {near} of {len(rows)} mappings, {own} of the targets' own costs")
    print(f"mappings of which what they lack has names: {named}; neither: {sum(not (r['is_near'] or r['is_explained']) for r in rows)}")
    finish("mapped_streams", rows, args.json)
    sys.exit(any(not (r["is_near"] or r["is_explained"]) for r in rows))


if __name__ == "__main__":
    main()
