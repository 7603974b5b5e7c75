"""Do drivers give their numerics at random larger shapes, and at the edges of the capacities?

Every operation runs on random codes at random shapes; along every dimension that a capacity bounds also at one below the
largest tile and at the largest, and one above it must be refused. A difference ends the script with 1.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from record import Row, finish, options

from rewrite_compiler.prove.mappings import code_difference
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import find_target

Sizes = Mapping[str, Any]
Draw = Callable[[np.random.Generator], Sizes]
SEED = 11
LARGEST = 1_100_000  # elements of an operand at an edge
MOST = 600  # of a dimension at an edge, where another one can grow to make it less: steps of a recurrence are run one by one


def log_uniform(random: np.random.Generator, most: int) -> int:
    """Return a size from 1 to `most`, small ones as often as large ones."""
    return int(np.exp(random.uniform(0, np.log(most + 1))))


def free(**most: int) -> Draw:
    """Draw every dimension for itself."""
    return lambda random: {d: log_uniform(random, n) for d, n in most.items()}


def recurrent(gates: int) -> Draw:
    """Draw a layer of gates with its biases."""

    def draw(random: np.random.Generator) -> Sizes:
        t, i, h = (log_uniform(random, n) for n in (6, 80, 90))
        return {"t": t, "s": 1, "i": i, "h": h, "g": gates * h, "e": 2 * gates * h}

    return draw


def pooled(random: np.random.Generator) -> Sizes:
    """Draw windows of a power of two rows."""
    return {"u": log_uniform(random, 40), "w": 2 ** int(random.integers(1, 5)), "n": log_uniform(random, 90)}


def normed(random: np.random.Generator) -> Sizes:
    """Draw rows of whole vectors."""
    return {"s": log_uniform(random, 4), "t": log_uniform(random, 30), "n": 16 * log_uniform(random, 12), "epsilon": 1e-5}


def windows(random: np.random.Generator) -> Sizes:
    """Draw a convolution with strides and unequal zeros around the image."""
    b, n, c, i, j = (log_uniform(random, most) for most in (2, 24, 40, 12, 12))
    pads = tuple(int(random.integers(0, 3)) for _ in range(4))
    r, s = (int(random.integers(1, 1 + min(5, n_))) for n_ in (i + pads[0] + pads[2], j + pads[1] + pads[3]))
    strides = tuple(int(random.integers(1, 4)) for _ in range(2))
    u, v = (i + pads[0] + pads[2] - r) // strides[0] + 1, (j + pads[1] + pads[3] - s) // strides[1] + 1
    return {**dict(zip("bncijrsuv", (b, n, c, i, j, r, s, u, v), strict=True)), "strides": strides, "pads": pads}


def bounded(rank: str) -> Draw:
    """Draw a tensor and bounds of a clip."""
    return lambda random: {**{d: log_uniform(random, 20) for d in rank}, "low": -float(random.random()), "high": float(random.random())}


LINEAR, DENSE = free(t=40, k=200, n=200), free(t=40, k=120, n=120)
DRAWS: dict[str, dict[str, Draw]] = {
    "flexasr": {
        **dict.fromkeys(("linear", "linear_relu", "linear_sigmoid", "linear_tanh"), LINEAR),
        "lstm": recurrent(4), "gru": recurrent(3), "rnn": recurrent(1), "layer_norm": normed, "layer_norm_of_batch": normed,
        **dict.fromkeys(("max_pool", "mean_pool", "add_pool"), pooled), "attention": free(m=3, t=70, d=90),
    },
    "hlscnn": dict.fromkeys(("conv2d", "conv2d_relu", "conv2d_bias", "conv2d_bias_relu"), windows),
    "vta": {
        **dict.fromkeys(("dense", "dense_relu", "dense_bias", "dense_bias_relu"), DENSE),
        **dict.fromkeys(("conv2d", "conv2d_relu", "conv2d_bias", "conv2d_bias_relu"), windows),
        **{f"{kind}_{rank}": bounded("abcd"[:rank]) for kind in ("add", "mul", "relu", "clip") for rank in (2, 4)},
    },
}  # fmt: skip


def codes(draw: Draw) -> Draw:
    """Draw a product of codes with a zero point of activations that both element types have."""
    return lambda random: {**draw(random), "x_zero": int(random.integers(0, 128))}


def factors(rank: str) -> Draw:
    """Draw sums, with a factor for each channel or one for all of them."""

    def draw(random: np.random.Generator) -> Sizes:
        sizes = {d: log_uniform(random, 20) for d in rank}
        count = sizes["b"] if random.random() < 0.5 else 1
        low = int(random.integers(0, 100))
        return {
            **sizes, "multiplier": tuple(int(n) for n in random.integers(1 << 23, 1 << 24, count)), "zero": int(random.integers(0, 128)),
            "shift": tuple(int(n) for n in random.integers(25, 55, count)), "low": low, "high": int(random.integers(low, 128)),
        }  # fmt: skip

    return draw


DRAWS["vta"] |= {
    **{f"dense{bias}_{dtype}": codes(DENSE) for bias in ("", "_bias") for dtype in ("int8", "uint8")},
    **{f"conv2d{bias}_{dtype}": codes(windows) for bias in ("", "_bias") for dtype in ("int8", "uint8")},
    **{f"requantise_{dtype}_{rank}": factors("abcd"[:rank]) for dtype in ("int8", "uint8") for rank in (2, 4)},
}

# operation → the dimensions that stand for themselves, whose edges are looked for
EDGES = {
    **dict.fromkeys(("linear", "dense"), "t k n"), **dict.fromkeys(("lstm", "gru", "rnn"), "t i"), "layer_norm": "t",
    **dict.fromkeys(("max_pool", "mean_pool", "add_pool"), "u n"), "attention": "t d", "conv2d": "n", "alu": "",
}  # fmt: skip


def edges(m: Operation, start: Sizes) -> Iterator[tuple[Sizes, bool]]:
    """Yield the start with a dimension of its own at one below, at, and one above what still fits; and whether it fits."""
    attributes = {n: start[n] for n, _ in m.statics}

    def fits(sizes: Sizes) -> bool:
        return m.violated({d: n for d, n in sizes.items() if d not in attributes}, attributes) is None

    for d in EDGES[m.operation].split():
        if not fits({**start, d: 1}) or fits({**start, d: 1 << 22}):
            continue
        around = dict(start)
        for other in EDGES[m.operation].split():
            while other != d and limit(fits, around, d) > MOST and fits({**around, other: 2 * around[other], d: 2}):
                around[other] *= 2
        most = limit(fits, around, d)
        yield from (({**around, d: most + by}, by < 1) for by in (-1, 0, 1) if most + by > 0)


def limit(fits: Callable[[Sizes], bool], around: Sizes, d: str) -> int:
    """Return the largest size of a dimension that still fits."""
    low, high = 1, 1 << 22
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits({**around, d: middle}) else (low, middle)
    return low


def smallest(m: Operation, sizes: Sizes) -> Sizes:
    """Return a shape with the dimensions that stand for themselves at 1."""
    return {**sizes, **dict.fromkeys(EDGES[m.operation].split(), 1)}


def campaign(target: str, runs: int, only: str = "") -> Iterator[Row]:
    """Yield what was run of every operation of a target whose name has a text."""
    configured = find_target(target)
    ila = configured.ila()
    for name, draw in DRAWS[target].items() if not only else ((n, d) for n, d in DRAWS[target].items() if only in n):
        m, random, started = configured.mappings[name], np.random.default_rng(SEED), time.process_time()
        ran, differing, refused = 0, list[str](), 0
        for n in range(runs):
            sizes = {d: x for d, x in draw(random).items() if d in _names(m)}
            if m.violated({d: x for d, x in sizes.items() if isinstance(x, int)}, sizes) is not None:
                refused += 1
                continue
            example = code_difference(m, ila, sizes, seed=n)
            ran, differing = ran + 1, differing + ([f"{dict(sizes)}: {example}"] if example else [])
        at_edges = list(edges(m, smallest(m, {d: x for d, x in draw(random).items() if d in _names(m)})))
        holding = [s for s, holds in at_edges if holds]
        inside = [s for s in holding if _elements(m, s) <= LARGEST]
        differing += [f"{dict(s)}: {example}" for s in inside if (example := code_difference(m, ila, s)) is not None]
        yield {
            "target": target, "mapping": name, "random_shapes": ran, "edge_shapes": len(inside),
            "edge_shapes_too_large_to_run": len(holding) - len(inside),
            "refused_beyond_edges": sum(not holds for _, holds in at_edges), "refused_random_shapes": refused,
            "differing": differing, "seed": SEED, "cpu_seconds": time.process_time() - started,
        }  # fmt: skip


def _names(m: Operation) -> set[str]:
    return {d for dims in m.axes.of.values() for d in dims} | {n for n, _ in m.statics}


def _elements(m: Operation, sizes: Sizes) -> int:
    """Return the elements of the largest operand."""
    return max(int(math.prod(sizes[d] for d in m.axes.of[v.name])) for v in m.operands)


def main() -> int:
    """Run the campaign, print a line an operation, write the record."""
    parser = options(__doc__ or "", 30)
    parser.add_argument("--only", default="", metavar="TEXT", help="operations whose name has it")
    given = parser.parse_args()
    rows: list[Row] = []
    for target in DRAWS:
        for row in campaign(target, given.runs, given.only):
            rows.append(row)
            counts = f"{row['random_shapes']} random, {row['edge_shapes']} at edges, {row['refused_beyond_edges']} refused beyond"
            print(f"{target}.{row['mapping']:<22}{counts}, {len(row['differing'])} differ", flush=True)  # type: ignore[arg-type]
    total = sum(int(str(r["random_shapes"])) + int(str(r["edge_shapes"])) for r in rows)
    wrong = [x for r in rows for x in r["differing"]]  # type: ignore[attr-defined]
    print(f"{total} shapes, {len(wrong)} differ", *wrong, sep="\n")
    finish("lifting", rows, given.json)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
