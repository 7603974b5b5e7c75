"""Is the cheapest tiling of the search that of trying every tile? Random small layers on every target with a cost."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from record import Row, finish, options

from rewrite_compiler.fit import Refusal, Tiling
from rewrite_compiler.fit.cheapest_calls import cheapest_tiling
from rewrite_compiler.fit.cost import price
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import find_target

SEED, MOST = 29, 3000  # tilings of a problem
SMALL = "vta:log_wgt_buffer={},log_inp_buffer={},log_acc_buffer={}"
DESIGNS = [
    ("flexasr", ("linear", "linear_tanh")),
    ("hlscnn:revision=uni16", ("conv2d", "conv2d_bias_relu")),
    ("hlscnn:revision=orig", ("conv2d",)),
    (SMALL.format(12, 10, 12), ("dense", "dense_bias_relu")),
    (SMALL.format(14, 10, 13) + ",log_batch=2", ("dense_bias",)),
    (SMALL.format(13, 11, 12) + ",log_block=5", ("dense", "conv2d")),
]


def problem(m: Operation, r: random.Random) -> tuple[dict[str, int], dict[str, Any]]:
    """Return random sizes of an operation."""
    if m.operation == "conv2d":
        size, kernel, channels, filters = r.randint(3, 20), r.choice((1, 3)), r.randint(1, 60), r.randint(1, 400)
        out = size - kernel + 1
        sizes = (1, channels, size, size, filters, kernel, kernel, out, out)
        return dict(zip("bcijnrsuv", sizes, strict=True)), {"strides": (1, 1), "pads": (0,) * 4}
    scale = 16 if m.target == "flexasr" else 1
    return {"t": r.randint(1, 40), "k": r.randint(1, 300 * scale), "n": r.randint(1, 200 * scale)}, {}


def every_tile(m: Operation, sizes: Mapping[str, int], attributes: Mapping[str, Any]) -> Iterator[Tiling]:
    """Yield every tiling that fits."""
    units = m.unit_sizes(sizes)
    offered = [sorted({*range(units[d], n, units[d]), n}) for d, n in sizes.items()]
    for chosen in itertools.product(*offered):
        tiles = dict(zip(sizes, chosen, strict=True))
        if m.exceeded_limit(tiles, attributes) is None:
            yield Tiling(dict(sizes), tiles)


def main() -> None:
    """Compare, print a line a design, and end with an error when any differs."""
    parser = options(__doc__ or "", 100)
    args = parser.parse_args()
    rows: list[Row] = []
    for design, variants in DESIGNS:
        target = find_target(design)
        resources = target.resources()
        assert resources is not None
        r = random.Random(f"{SEED} {design}")
        equal = different = split = refused = 0
        started = time.process_time()
        while equal + different + refused < args.runs:
            m = target.mappings[r.choice(variants)]
            sizes, attributes = problem(m, r)
            by = r.choice(("bytes", "nanoseconds"))
            tilings = list(itertools.islice(every_tile(m, sizes, attributes), MOST + 1))
            if len(tilings) > MOST:
                continue
            result = cheapest_tiling(m, sizes, attributes, resources, by)
            if isinstance(result, Refusal):
                assert not tilings
                refused += 1
                continue
            prices = [p for t in tilings if (p := price(m, t, attributes, resources)) is not None]
            best = min(p.moved_bytes if by == "bytes" else p.picoseconds for p in prices)
            mine = result.price.moved_bytes if by == "bytes" else result.price.picoseconds
            equal, different = equal + (mine == best), different + (mine != best)
            split += result.tiling.calls > 1
        seconds = round(time.process_time() - started, 2)
        rows.append({
            "design": design, "problems": args.runs, "equal": equal, "different": different, "refused": refused, "split": split,
            "seed": SEED, "processor_seconds": seconds,
        })  # fmt: skip
        print(f"{design:>64}  {equal} equal, {different} different, {refused} do not fit at all; {split} split  {seconds} s")
    finish("tiling_enumeration", rows, args.json)
    if any(row["different"] for row in rows):
        sys.exit("the search is not exact")


if __name__ == "__main__":
    main()
