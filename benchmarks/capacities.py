"""Does an emitted instruction stream ever exceed a capacity? Random layers and layers at the edges of capacities, as they are tiled.

Every different tile of a layer is driven on the strict simulator, which raises where a command leaves a memory or a field.
Edges are one below, at, and one above the largest size that fits; one above must be split or refused. VTA runs with its own
buffers and with small ones, whose edges are cheap to drive. With `--json FILE` it goes on where it ended; with `--rounds 0`
it prints what there is. The script ends with 1 where a stream raises or a tile is beyond a capacity that its mapping declares.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from lifting import DRAWS as LIFTED
from lifting import Draw, completed, log_uniform, windows
from record import Row, finish, options, recorded

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.fit import Refusal, tile
from rewrite_compiler.ila import Ila
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import find_target, simulated_device

Sizes = Mapping[str, Any]
SEED = 23
STRETCHED = 4  # of so many layers one has a dimension that is many times as large
MOST_STRETCH = 64
LARGEST = 1 << 18  # elements of an operand that are driven
STEP = 1 << 16  # a timestep of a recurrent layer takes as long as so many multiply-accumulates
MOST_WORK = 1 << 22  # multiply-accumulates of a tile that is driven
ALONE = {"max_pool": 1 << 10}  # multiply-accumulates that take as long as one step of an operation that runs step by step
LARGEST_SIZE = 1 << 22  # of a dimension that no capacity bounds
MOST_OF_IMAGE = 1 << 16  # rows or columns: loops have fewer steps
TARGETS = ("vta:log_wgt_buffer=12,log_inp_buffer=10,log_acc_buffer=12", "hlscnn", "flexasr", "vta")
IMAGE = "n i j"  # of a convolution or pool: filters, rows and columns, whose results follow
# operation → the dimensions that can grow alone
OWN = {
    **dict.fromkeys(("linear", "dense"), "t k n"), **dict.fromkeys(("lstm", "gru", "rnn"), "t i"), "layer_norm": "t",
    **dict.fromkeys(("max_pool", "mean_pool", "add_pool"), "u n"), "attention": "t d", "conv2d": "n", "alu": "",
}  # fmt: skip


def depthwise(random: np.random.Generator) -> Sizes:
    """Draw a convolution of codes with a filter for each channel."""
    sizes = windows(random)
    c = max(int(sizes["c"]), 2)
    return {**sizes, "c": c, "o": 1, "group": c, "x_zero": int(random.integers(0, 128))}


def pooled(random: np.random.Generator) -> Sizes:
    """Draw windows of codes, each with at least one place of the image."""
    sizes = windows(random)
    kernel = int(sizes["r"]), int(sizes["s"])
    pads = tuple(min(n, kernel[k % 2] - 1) for k, n in enumerate(sizes["pads"]))
    return completed({**sizes, "kernel": kernel, "pads": pads}, {**sizes, "pads": pads})


def summed(rank: str) -> Draw:
    """Draw the sum of two tensors of codes, each with a factor and a zero point."""

    def draw(random: np.random.Generator) -> Sizes:
        shift, low = (24, 24 + int(random.integers(0, 12))), int(random.integers(0, 100))
        return {
            **{d: log_uniform(random, 20) for d in rank}, "multiplier": tuple(int(n) for n in random.integers(1 << 23, 1 << 24, 2)),
            "shift": shift if random.random() < 0.5 else shift[::-1], "zeros": tuple(int(n) for n in random.integers(0, 128, 2)),
            "zero": int(random.integers(0, 128)), "low": low, "high": int(random.integers(low, 128)),
        }  # fmt: skip

    return draw


DRAWS = {target: dict(draws) for target, draws in LIFTED.items()}
for dtype in ("int8", "uint8"):
    DRAWS["vta"] |= {f"depthwise_{dtype}": depthwise, f"depthwise_bias_{dtype}": depthwise, f"max_pool_{dtype}": pooled}
    DRAWS["vta"] |= {f"quantized_add_{dtype}_{rank}": summed("abcd"[:rank]) for rank in (2, 4)}


@dataclass
class Campaign:
    """The layers of one mapping: what was tiled, driven, refused, and what went wrong."""

    m: Operation
    ila: Ila
    layers: int = 0
    split: int = 0
    refused: int = 0
    at_edges: int = 0
    beyond_edges: int = 0
    driven: int = 0
    too_large: int = 0
    out_of_time: int = 0
    seconds: float = 60.0  # of driving; later tiles are only compared with the declared limits
    wrong: list[str] = field(default_factory=list)
    seen: dict[tuple[object, ...], str] = field(default_factory=dict)

    def layer(self, sizes: Sizes) -> None:
        """Tile a layer and drive each of its different tiles."""
        names = {name for name, _ in self.m.statics}
        attributes, plain = {n: sizes[n] for n in names}, {d: n for d, n in sizes.items() if d not in names}
        self.layers += 1
        tiling = tile(self.m, plain, attributes)
        if isinstance(tiling, Refusal):
            self.refused += 1
            if not isinstance(tiling.limit, str) and tiling.limit.holds:
                self.wrong.append(f"{dict(sizes)}: refused by a limit that holds: {tiling.limit}")
            return
        self.split += tiling.calls > 1
        for tile_sizes, _ in tiling.regions():
            key = (*sorted(tile_sizes.items()), *sorted(attributes.items()))
            if key not in self.seen:
                self.seen[key] = self.drive(tile_sizes, attributes)
                if self.seen[key]:
                    self.wrong.append(f"{tile_sizes} of {dict(sizes)}: {self.seen[key]}")

    def drive(self, tile_sizes: Sizes, attributes: Sizes) -> str:
        """Run one tile on the strict simulator; return what it says against it."""
        violated = self.m.exceeded_limit(tile_sizes, attributes)
        if violated is not None:
            return str(violated)
        shapes = {v.name: [tile_sizes[d] for d in self.m.axes.of[v.name]] for v in self.m.operands}
        if max(int(np.prod(s)) for s in shapes.values()) > LARGEST or work(self.m, tile_sizes) > MOST_WORK:
            self.too_large += 1
            return ""
        if self.seconds < 0:
            self.out_of_time += 1
            return ""
        started = time.process_time()
        formats = self.m.formats_for(dict.fromkeys(self.m.format_choices, 1.0))
        try:
            codes = {n: np.zeros(s, np.int64) for n, s in shapes.items()}
            self.m.run_driver(simulated_device(self.ila, strict=True), codes, formats, attributes)
        except FlexmatchError as error:
            return error.problem.sentence
        self.seconds -= time.process_time() - started
        self.driven += 1
        return ""


def work(m: Operation, tile_sizes: Sizes) -> int:
    """Return the multiply-accumulates of a tile, or what takes as long; of an operation without any, its elements."""
    if "g" in tile_sizes:
        return int(tile_sizes["t"] * max((tile_sizes["i"] + tile_sizes["h"]) * tile_sizes["g"], STEP))
    steps = math.prod(n for d, n in tile_sizes.items() if not (d in ("i", "j") and "u" in tile_sizes))
    return steps * ALONE.get(m.operation, 1)


def edges(m: Operation, start: Sizes) -> Iterator[tuple[Sizes, bool]]:
    """Yield the start with a dimension of its own at one below, at, and one above what still fits; and whether it fits."""
    names = {n for n, _ in m.statics}
    attributes = {n: start[n] for n in names}

    def fits(d: str, size: int) -> bool:
        grown = grow(start, d, size)
        return m.exceeded_limit({k: n for k, n in grown.items() if k not in names}, attributes) is None

    for d in (*own(m, start), *(IMAGE[2:].split() if "strides" in names else ())):
        most = MOST_OF_IMAGE if d in "ij" and "strides" in names else LARGEST_SIZE
        if not fits(d, start[d]) or fits(d, most):
            continue
        low, high = start[d], most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(d, middle) else (low, middle)
        yield from ((grow(start, d, low + by), by < 1) for by in (-1, 0, 1) if low + by >= start[d])


def grow(start: Sizes, d: str, size: int) -> Sizes:
    """Return a layer with another size of a dimension; rows and columns of a result follow."""
    if "strides" not in start:
        return {**start, d: size}
    kernel = start["kernel"] if "kernel" in start else (start["r"], start["s"])
    full_sizes = completed({**start, d: size, "r": kernel[0], "s": kernel[1]}, start)
    return {k: n for k, n in full_sizes.items() if k in start}


def smallest(m: Operation, sizes: Sizes) -> Sizes:
    """Return a layer with the dimensions that can grow alone as small as they can be: its edges are cheap to drive."""
    least_sizes = {**sizes, **dict.fromkeys(own(m, sizes), 1)}
    if "strides" not in sizes:
        return least_sizes
    kernel = sizes["kernel"] if "kernel" in sizes else (sizes["r"], sizes["s"])
    for k, d in enumerate("ij"):
        least_sizes = dict(grow(least_sizes, d, max(kernel[k] - sum(sizes["pads"][k::2]), 1)))
    return least_sizes | {d: 1 for d in "b" if d in sizes}


def own(m: Operation, sizes: Sizes) -> list[str]:
    """Return the dimensions of a layer that can grow alone."""
    return [d for d in (IMAGE[:1] if "strides" in sizes else OWN.get(m.operation, "")).split() if d in sizes]


def stretched(m: Operation, sizes: Sizes, random: np.random.Generator) -> Sizes:
    """Return a layer of which one dimension that can grow alone is many times as large."""
    dimensions = own(m, sizes)
    if not dimensions or random.integers(STRETCHED):
        return sizes
    d = dimensions[int(random.integers(len(dimensions)))]
    return {**sizes, d: sizes[d] * int(random.integers(2, MOST_STRETCH))}


def campaign(target: str, name: str, number: int, runs: int, seconds: float) -> Row:
    """Return what became of the layers of one mapping in one round."""
    configured = find_target(target)
    m, random, started = configured.mappings[name], np.random.default_rng([SEED, number, len(name)]), time.process_time()
    made, draw = Campaign(m, configured.ila(), seconds=seconds), DRAWS[configured.name][name]
    dimensions = {d for dims in m.axes.of.values() for d in dims} | {n for n, _ in m.statics}
    for n in range(runs):
        sizes = {d: x for d, x in draw(random).items() if d in dimensions}
        made.layer(stretched(m, sizes, random))
        if n % STRETCHED == 0:
            for at, holds in (e for start in (smallest(m, sizes), sizes) for e in edges(m, start)):
                made.at_edges, made.beyond_edges = made.at_edges + holds, made.beyond_edges + (not holds)
                made.layer(at)
    return {
        "target": target, "mapping": name, "round": number, "layers": made.layers, "split_layers": made.split,
        "refused_layers": made.refused, "layers_at_or_below_limits": made.at_edges, "layers_above_limits": made.beyond_edges,
        "streams_driven": made.driven, "streams_too_large_to_drive": made.too_large, "streams_after_the_time": made.out_of_time,
        "violations": made.wrong, "seed": SEED, "cpu_seconds": round(time.process_time() - started, 2),
    }  # fmt: skip


def rounds(rows: Sequence[Row], count: int, runs: int, seconds: float, only: str) -> Iterator[Row]:
    """Yield the rows of rounds that a record does not have; of targets that start with `only`."""
    recorded_rounds = {(r["target"], r["mapping"], r["round"]) for r in rows}
    candidates = ((t, name, n) for n in range(count) for t in TARGETS if t.startswith(only) for name in DRAWS[t.partition(":")[0]])
    for target, name, number in candidates:
        if (target, name, number) not in recorded_rounds:
            row = campaign(target, name, number, runs, seconds)
            print(target, name, row["layers"], row["streams_driven"], row["cpu_seconds"], *row["violations"][:2], flush=True)  # type: ignore[index]
            yield row


def main() -> int:
    """Run the rounds that are missing, print a line each, write the record."""
    parser = options(__doc__ or "", 40)
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="drive the streams of a mapping for so long (default: 8)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of all mappings (default: 3)")
    parser.add_argument("--only", default="", metavar="TEXT", help="drive only targets whose name starts so")
    args = parser.parse_args()
    rows = recorded(args.json)
    for row in rounds(tuple(rows), args.rounds, args.runs, args.seconds, args.only):
        rows.append(row)
        finish("capacities", rows, args.json)
    wrong = sum(len(r["violations"]) for r in rows)  # type: ignore[arg-type, misc]
    layers, driven = (sum(int(str(r[key])) for r in rows) for key in ("layers", "streams_driven"))
    print(f"{layers:,} layers, {driven:,} streams driven, {wrong} violations")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
