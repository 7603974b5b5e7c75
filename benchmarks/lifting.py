"""Do drivers give their numerics, symbolically, at random larger shapes, and at the edges of the capacities?

Each operation is proved on symbolic codes at its first trial; then it runs on codes at random shapes in random formats, and
along every dimension that a capacity bounds at one below the limit, at the limit, and, without the guard, at one above it,
where the strict model must end in a diagnostic or the result must still be right. Chunks end as lines of the log, from
which the next call goes on. A difference ends the script with 1.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from record import Row, finish, options

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.ila import Ila
from rewrite_compiler.lang import Format
from rewrite_compiler.lang.binders import Leaf
from rewrite_compiler.prove.mappings.mappings import prove_mapping
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target import find_target, simulated_device

Sizes = Mapping[str, Any]
Draw = Callable[[np.random.Generator], Sizes]
SEED, VECTOR = 11, 16
CHUNK = 20  # shapes a line of the log
LARGEST = 4_300_000  # elements of an operand at an edge
MOST_WORK = 150_000_000  # products of a recurrence at an edge
MOST = 600  # of a dimension at an edge, where another one can grow to make it less: steps of a recurrence are run one by one
TABLE3 = (
    "vta.dense", "hlscnn.conv2d", "flexasr.linear", "flexasr.lstm", "flexasr.layer_norm", "flexasr.max_pool", "flexasr.mean_pool",
    "flexasr.attention",
)  # fmt: skip


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


LINEAR, DENSE = free(t=64, k=500, n=500), free(t=64, k=300, n=300)
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
    **dict.fromkeys(("linear", "dense"), "t k n"), **dict.fromkeys(("lstm", "gru", "rnn"), "t i h"), "layer_norm": "t n",
    **dict.fromkeys(("max_pool", "mean_pool", "add_pool"), "u n"), "attention": "t d", "conv2d": "n c i j", "alu": "",
}  # fmt: skip
STARTS = 3  # shapes from which the edges are looked for: the smallest, and random ones


def unit(m: Operation, d: str) -> int:
    """Return the step of a dimension: rows that are normalised have whole vectors."""
    return VECTOR if m.operation == "layer_norm" and d == "n" else 1


def completed(sizes: Sizes, start: Sizes) -> dict[str, Any]:
    """Return sizes with those that follow from others: gates of a recurrence, rows and columns of a convolution's result."""
    full_sizes = dict(sizes)
    if "g" in start:
        full_sizes |= {d: start[d] // start["h"] * sizes["h"] for d in "ge" if d in start}
    if "strides" in start:
        (a, b), pads = start["strides"], start["pads"]
        full_sizes["u"] = (sizes["i"] + pads[0] + pads[2] - sizes["r"]) // a + 1
        full_sizes["v"] = (sizes["j"] + pads[1] + pads[3] - sizes["s"]) // b + 1
    return full_sizes


@dataclass(frozen=True)
class Edges:
    """The capacities of one operation around a shape."""

    m: Operation
    start: Sizes

    def fits(self, sizes: Sizes) -> bool:
        """Tell whether the guard admits a shape."""
        full_sizes = completed(sizes, self.start)
        if any(full_sizes[d] < 1 for d in "uv" if d in self.start):
            return False
        attributes = {n: self.start[n] for n, _ in self.m.statics}
        return self.m.exceeded_limit({d: n for d, n in full_sizes.items() if d not in attributes}, attributes) is None

    def limit(self, around: Sizes, d: str) -> int:
        """Return the largest size of a dimension that still fits."""
        step = unit(self.m, d)
        low, high = around[d] // step, (1 << 22) // step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits({**around, d: middle * step}) else (low, middle)
        return int(low * step)

    def found(self) -> Iterator[tuple[Sizes, bool]]:
        """Yield the shape with one dimension one below, at, and one above what still fits; and whether it fits."""
        dimensions = EDGES[self.m.operation].split()
        for d in dimensions:
            if not self.fits(self.start) or self.fits({**self.start, d: 1 << 22}):
                continue
            around = dict(self.start)
            for other_dimension in dimensions if d == "t" else ():
                while (
                    other_dimension != d
                    and self.limit(around, d) > MOST
                    and self.fits({**around, other_dimension: 2 * around[other_dimension]})
                ):
                    around[other_dimension] *= 2
            most = self.limit(around, d)
            sizes = (completed({**around, d: most + by * unit(self.m, d)}, self.start) for by in (-1, 0, 1) if most + by > 0)
            yield from ((s, self.fits(s)) for s in sizes)


def smallest(m: Operation, sizes: Sizes) -> Sizes:
    """Return a shape with the dimensions that stand for themselves as small as they can be."""
    least = {d: unit(m, d) for d in EDGES[m.operation].split()}
    least |= {d: max(sizes[k] - sum(sizes["pads"][n::2]), 1) for n, (d, k) in enumerate((("i", "r"), ("j", "s"))) if "strides" in sizes}
    return completed({**sizes, **least}, sizes)


def formats_of(m: Operation, random: np.random.Generator) -> dict[str, Format]:
    """Return the formats of tensors of random magnitudes, and of inner state a random candidate."""
    formats = m.formats_for({n: float(2.0 ** random.uniform(-3, 4.9)) for n in m.format_choices})
    for name, candidates in m.search.items():
        formats = m.with_format(formats, name, candidates[int(random.integers(len(candidates)))])
    return formats


def drawn(ends: tuple[int, int], shape: tuple[int, ...], kind: int, random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return codes: random ones; of both ends; of one end, and half-way the other one."""
    if kind in (0, 2):
        return random.integers(ends[0], ends[1] + 1, shape)
    if kind == 1:
        return random.choice(ends, shape)
    codes = np.full(shape, ends[1])
    codes[..., : shape[-1] // 2] = ends[int(random.integers(2))]
    return codes


def difference(m: Operation, ila: Ila, sizes: Sizes, seed: int) -> str:
    """Return where driver and numerics differ on codes of a seed, nothing when they agree."""
    random = np.random.default_rng([SEED, seed])
    formats = formats_of(m, random)
    shapes = {v.name: tuple(int(sizes[d]) for d in m.axes.of[v.name]) for v in m.operands}
    leaves = {n: Leaf(shape, formats[n].codes, False, n) for n, shape in shapes.items()}
    ends = {n: (int(formats[n].codes[0] or 0), int(formats[n].codes[1] or 0)) for n in shapes}
    codes = {n: drawn(ends[n], shape, seed % 4, random) for n, shape in shapes.items()}
    attributes = {name: sizes[name] for name, _ in m.statics}
    actual, terms = (
        m.run_driver(simulated_device(ila), codes, formats, attributes),
        m.result_codes(list(leaves.values()), formats, attributes),
    )
    inputs = {leaves[n]: x for n, x in codes.items()}
    pairs = zip(actual, terms, strict=True) if isinstance(terms, tuple) else [(actual, terms)]
    for n, (y, term) in enumerate(pairs):
        places = np.argwhere(np.asarray(y) != evaluate(term, inputs))
        if len(places):
            return f"result {n} at {places[0].tolist()} of {dict(sizes)} in {formats}, seed {seed}"
    return ""


@dataclass
class Found:
    """What a chunk, or all of an operation, gave."""

    counts: Counter[str] = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)
    proved: str = ""
    seconds: float = 0.0

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line of the log."""
        self.counts.update(line["counts"])
        self.differing += line["differing"]
        self.proved = line["proved"] or self.proved
        self.seconds += line["cpu_seconds"]


class Log:
    """Lines of what was run, on disk; a torn last one is dropped."""

    def __init__(self, path: Path, seconds: float) -> None:
        """Read what there is; parts are begun for so many seconds."""
        self.path, self.parts, self.of = path, set[tuple[str, str]](), dict[str, Found]()
        self.end = time.monotonic() + seconds
        text = path.read_text("utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            os.truncate(path, len(whole.encode()))
        for line in whole.splitlines():
            self.see(json.loads(line))

    @property
    def is_over(self) -> bool:
        """No part is begun any more."""
        return time.monotonic() >= self.end

    def see(self, line: Mapping[str, Any]) -> None:
        """Take a line."""
        self.parts.add((line["name"], line["part"]))
        self.of.setdefault(line["name"], Found()).add(line)

    def run(self, name: str, part: str, work: Callable[[], Found]) -> None:
        """Do a part unless it is done; write what it gave."""
        if (name, part) in self.parts or self.is_over:
            return
        started = time.process_time()
        found = work()
        line = {
            "name": name, "part": part, "counts": dict(found.counts), "differing": found.differing, "proved": found.proved,
            "cpu_seconds": round(time.process_time() - started, 2),
        }  # fmt: skip
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self.see(line)


def proved(m: Operation, ila: Ila) -> Found:
    """Prove the operation on symbolic codes at its first trial."""
    proof = prove_mapping(m, ila)
    return Found(Counter({f"symbolically {proof.verdict}": 1}), [] if proof.verdict == "proved" else [proof.evidence], proof.strength)


def at_random(m: Operation, ila: Ila, draw: Draw, first: int, count: int) -> Found:
    """Run an operation at random shapes that its guard admits."""
    found = Found()
    for seed in range(first, first + count):
        random = np.random.default_rng([SEED, seed, 1])
        for _ in range(100):
            sizes = {d: x for d, x in draw(random).items() if d in _names(m)}
            if m.exceeded_limit({d: x for d, x in sizes.items() if isinstance(x, int)}, sizes) is None:
                found.counts["random shapes"] += 1
                found.differing += filter(None, [difference(m, ila, sizes, seed)])
                break
            found.counts["random shapes refused"] += 1
    return found


def edges_of(m: Operation, draw: Draw) -> Iterator[tuple[int, Sizes, bool]]:
    """Yield a seed, a shape one below, at or above a limit, and whether the guard admits it."""
    seed = 0
    for start in range(STARTS):
        sizes = {d: x for d, x in draw(np.random.default_rng([SEED, start, 2])).items() if d in _names(m)}
        for at, fits in Edges(m, sizes if start else smallest(m, sizes)).found():
            seed += 1
            yield seed, at, fits


def at_edge(m: Operation, ila: Ila, at: Sizes, fits: bool, seed: int) -> Found:
    """Run an operation below or at a limit, or above it without its guard."""
    found = Found()
    if is_too_large(m, at):
        found.counts["edges too large to run"] += 1
    elif fits:
        found.counts["edges"] += 1
        found.differing += filter(None, [difference(m, ila, at, seed)])
    else:
        found.counts[beyond(m, ila, at, seed)] += 1
    return found


def is_too_large(m: Operation, at: Sizes) -> bool:
    """Tell whether a shape takes too long to run."""
    elements = max(int(math.prod(at[d] for d in m.axes.of[v.name])) for v in m.operands)
    return elements > LARGEST or ("g" in at and at["t"] * (at["i"] + at["h"]) * at["g"] > MOST_WORK)


def beyond(m: Operation, ila: Ila, sizes: Sizes, seed: int) -> str:
    """Return what becomes of a shape that the guard refuses: a diagnostic, the right result, or another one."""
    try:
        wrong = difference(m, ila, sizes, seed)
    except FlexmatchError as error:
        return f"beyond: {error.problem.code}"
    except (ValueError, IndexError, OverflowError) as error:  # the driver cannot lay the tile out
        return f"beyond: the driver cannot ({type(error).__name__})"
    return "beyond: differs" if wrong else "beyond: equal"


def _names(m: Operation) -> set[str]:
    return {d for dims in m.axes.of.values() for d in dims} | {n for n, _ in m.statics}


def row_of(name: str, found: Found) -> Row:
    """Return the row of an operation."""
    return {
        "mapping": name, "symbolic": found.proved, "counts": dict(sorted(found.counts.items())), "differing": found.differing, "seed": SEED,
        "cpu_seconds": round(found.seconds, 1),
    }  # fmt: skip


def main() -> int:
    """Run the campaign, print a line an operation, write the record."""
    parser = options(__doc__ or "", 1000)
    parser.add_argument("--others", type=int, default=60, metavar="N", help="random shapes of operations that Table 3 does not have")
    parser.add_argument("--only", default="", metavar="TEXT", help="operations whose name has it")
    parser.add_argument("--log", type=Path, default=Path("lifting.jsonl"), metavar="FILE", help="go on in this log")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="N", help="begin nothing after so long; 0: what the log has")
    args = parser.parse_args()
    log, targets = Log(args.log, 60 * args.minutes), {name: find_target(name) for name in DRAWS}
    models = {name: t.ila() for name, t in targets.items()}
    names = [*TABLE3, *(n for t, draws in DRAWS.items() for d in draws if (n := f"{t}.{d}") not in TABLE3)]
    rows: list[Row] = []
    for name in (n for n in names if args.only in n):
        target, _, variant = name.partition(".")
        m, ila, draw = targets[target].mappings[variant], models[target], DRAWS[target][variant]
        log.run(name, "symbolic", lambda m=m, ila=ila: proved(m, ila))  # type: ignore[misc]
        for first in range(0, args.runs if name in TABLE3 else args.others, CHUNK):
            log.run(name, f"random {first}", lambda m=m, ila=ila, d=draw, k=first: at_random(m, ila, d, k, CHUNK))  # type: ignore[misc]
        for seed, at, fits in () if (name, "edges") in log.parts or log.is_over else edges_of(m, draw):  # older logs have one line
            log.run(name, f"edge {seed}", lambda m=m, ila=ila, edge=(at, fits, seed): at_edge(m, ila, *edge))  # type: ignore[misc]
        found = log.of.get(name)
        if found is None:
            continue
        rows.append(row_of(name, found))
        print(f"{name:<26}{', '.join(f'{k} {n}' for k, n in sorted(found.counts.items()))}; {len(found.differing)} differ", flush=True)
    wrong = [x for found in log.of.values() for x in found.differing]
    print(f"{len(wrong)} differ", *wrong, sep="\n")
    finish("lifting", rows, args.json)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
