"""HLSCNN's resources and costs: memories from the model's state; unit, links and clock as data, cycles estimated from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila_models import hlscnn as model
from rewrite_compiler.target import Clock, Cost, Levels, Link, Resources, Unit, state_memory

LANES, VECTOR, BANKS = 8, 16, 4
REGISTERS, FILL, TRIGGER = 7, 3, 1  # commands of one convolution (specification, section 9)

SIZES = ("spad_bytes", "soc_bytes")  # parameters that replace those of the revision


def build(revision: str, **sizes: str) -> Ila:
    """Return the model for parameter values as they are written."""
    return model.build(revision=revision, **{name: int(n) for name, n in sizes.items()})


def revision_of(p: Mapping[str, str]) -> model.Revision:
    """Return the design that the target's parameters say."""
    return _revision(p["revision"], tuple((name, int(p[name])) for name in SIZES if name in p))


@lru_cache(maxsize=64)
def _revision(name: str, sizes: tuple[tuple[str, int], ...]) -> model.Revision:
    revision, replaced = model.REVISIONS[name], dict(sizes)
    return replace(
        revision, spad_bytes=replaced.get("spad_bytes", revision.spad_bytes), soc_bytes=replaced.get("soc_bytes", revision.soc_bytes)
    )  # fmt: skip


def resources(ila: Ila, parameters: Mapping[str, str]) -> Resources:
    """Return the architecture graph: SoC memory, two scratchpads of four banks, one unit of eight lanes."""
    revision = revision_of(parameters)
    weights = revision.weight_bits
    shared = LANES if revision.grouped_output else VECTOR // weights  # filters in a vector of results, or of weights
    return Resources(
        Clock(500_000_000, "assumed: the specification gives no frequency"),
        (
            state_memory(ila, "soc", "depth", word=VECTOR),
            state_memory(ila, "spad0", "depth", word=VECTOR, banks=BANKS),
            state_memory(ila, "spad1", "depth", word=VECTOR, banks=BANKS),
        ),
        (Unit("conv", ("conv2d", "matmul"), ("fixed16", f"fixed{weights}"), {"c": LANES}, packs={"n": shared}),),
        (
            Link("host", "soc", VECTOR, port="AXI"),
            Link("soc", "spad0", VECTOR),
            Link("soc", "spad1", VECTOR),
            Link("soc", "conv", VECTOR),
            Link("spad1", "host", VECTOR, port="AXI"),
        ),
        ("assumed: one 128-bit word a cycle on every link",),
    )


@dataclass(frozen=True)
class Pass:
    """Words that one pass of one image moves, by tensor; words that fill the scratchpads; steps of the unit."""

    words: Mapping[str, int]
    filled: int
    steps: int


def pass_of(
    image: tuple[int, int, int, int], kernel: int, region: int, revision: model.Revision, *, start: int = 0, is_loaded: bool = False
) -> Pass:
    """Return what one pass takes: `image` is filters, channels, rows and columns, `start` the vectors that outputs start at."""
    n, c, rows, cols = image
    blocks = -(-c // LANES)
    acts, weights = blocks * rows * cols, -(-n * blocks * kernel * LANES * revision.weight_bits // (8 * VECTOR))
    weights = 0 if is_loaded else weights
    shared = acts if revision.act_source == "spad1" else 0
    fills = sum(bool(x) for x in (weights, shared, start))
    words = {"x": acts, "w": weights, "b": start, "commands": REGISTERS + FILL * fills + TRIGGER}
    return Pass(words, weights + shared + start, n * region * blocks * kernel)


def conv2d_cost(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, u: int, v: int, strides: tuple[int, ...], pads: tuple[int, ...],
    p: Mapping[str, str], resources: Resources, *, split: Callable[..., Sequence[int]], starts: bool,
) -> Cost:  # fmt: skip
    """The convolutions of a batch: a step for every filter, result, channel block and tap; what crosses the SoC memory.

    `split` gives the channels of each pass. Weights of a single pass stay from image to image.
    """
    revision = revision_of(p)
    rows, cols = i + pads[0] + pads[2], j + pads[1] + pads[3]
    region = u * v if revision.grouped_output else rows * cols
    outputs = -(-n // LANES) * u * v if revision.grouped_output else n * rows * cols
    parts = split(c, i, j, n, r, s, strides, pads, p, starts) or [c]  # nothing fits: a bound of what smaller parts cost
    passes = [
        pass_of(
            (n, channels, rows, cols),
            r * s,
            region,
            revision,
            start=0 if at or not starts else outputs,
            is_loaded=bool(k) and len(parts) == 1,
        )
        for k in range(b)
        for at, channels in enumerate(parts)
    ]
    words = {name: sum(step.words[name] for step in passes) for name in ("x", "w", "b", "commands")}
    words["y"] = b * (outputs if revision.grouped_output else n * u * v)
    fill_cycles = resources.link("soc", "spad0").cycles_for(sum(one.filled for one in passes) * VECTOR)
    crossing = resources.link("host", "soc").cycles_for(sum(words.values()) * VECTOR)
    bytes_moved = {name: count * VECTOR for name, count in words.items() if count}
    return Cost("conv", sum(one.steps for one in passes), fill_cycles + crossing, bytes_moved)


def conv2d_levels(
    b: int, n: int, c: int, i: int, j: int, r: int, s: int, u: int, v: int, strides: tuple[int, ...], pads: tuple[int, ...],
    p: Mapping[str, str],
) -> Levels:  # fmt: skip
    """The convolutions of a batch: every step reads a vector of activations and one of weights; results are written once."""
    revision = revision_of(p)
    rows, cols, blocks = i + pads[0] + pads[2], j + pads[1] + pads[3], -(-c // LANES)
    region = u * v if revision.grouped_output else rows * cols
    steps, kernel = b * n * region * blocks * r * s, LANES * revision.weight_bits // 8
    outputs = b * (-(-n // LANES) * u * v if revision.grouped_output else n * rows * cols)
    acts = {"x": (steps * VECTOR, b * blocks * rows * cols * VECTOR)}
    results = {"y": (outputs * VECTOR, outputs * VECTOR)}
    weights = {"spad0": {"w": (steps * kernel, n * blocks * r * s * kernel)}}
    return {**weights, "spad1": {**acts, **results}} if revision.act_source == "spad1" else {**weights, "spad1": results, "soc": acts}
