"""FlexASR's costs: the specification's measured formulas from trigger to interrupt, and every word that crosses the AXI port."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from rewrite_compiler.target import Cost, Levels, Resources, levels_times

from .attention import attention
from .base import LANES, PES, vectors
from .gru import gru, rnn
from .layer_norm import layer_norm, layer_norm_of_batch
from .linear import ACTIVATIONS, matmul
from .pooling import add_pool, max_pool, mean_pool
from .recurrent import lstm

SETUP = 3  # configuration of the large buffer and of the control engine, trigger
Words = Mapping[str, int]  # 16-byte words by tensor


def transfer(resources: Resources, unit: str, cycles: int, words: Words, *, estimated: bool = False) -> Cost:
    """Return the cost of a call with these compute cycles and words over the port."""
    link = resources.link("host", "large")
    bytes_moved = {name: n * LANES for name, n in words.items()}
    return Cost(unit, cycles, link.cycles_for(sum(bytes_moved.values())), bytes_moved, estimated)


def linear_cycles(t: int, inputs: int, per_pe: int, extra: int = 0) -> int:
    """Cycles of a linear layer over t timesteps, with `extra` activation instructions (specification, section 10)."""
    return t * (31 + 3 * inputs + per_pe * (inputs + 4) + extra)


def recurrent_cycles(t: int, inputs: int, hidden: int, per_pe: int, gates: int) -> int:
    """Cycles of a recurrent layer over t timesteps; measured for four gates (specification, section 10)."""
    return t * (34 + 3 * (inputs + hidden) + gates * per_pe * (inputs + hidden + 8))


def pooling_cycles(timesteps: int, count: int) -> int:
    """Cycles of one run that halves the timesteps (specification, section 10)."""
    return 1 + 3 * count * timesteps // 2


def norm_cycles(t: int, count: int) -> int:
    """Cycles of a layer norm (specification, section 10)."""
    return t * (2 + 13 * count)


def attention_cycles(t: int, count: int) -> int:
    """Cycles of attention over t timesteps (specification, section 10; four points, four unknowns)."""
    blocks = -(-t // LANES)
    return 1 + 30 * blocks + 12 * count * blocks + 2 * count


def padding_cycles(t: int, count: int) -> int:
    """Cycles of zero padding (specification, section 10)."""
    return t * (count + 1)


def linear_cost(t: int, k: int, n: int, resources: Resources, extra: int = 0) -> Cost:
    """One linear call: four elements with sizing, manager, activation manager and program."""
    inputs, per_pe = vectors(k), -(-n // (PES * LANES))
    out = PES * per_pe
    words = {"x": t * inputs, "w": out * LANES * inputs, "b": out, "y": t * out, "commands": 4 * PES + SETUP}
    return transfer(resources, "core", linear_cycles(t, inputs, per_pe, extra), words)


def recurrent_cost(
    t: int, i: int, h: int, resources: Resources, gates: int, program_words: int, stored_state: str = "", last: str = ""
) -> Cost:
    """One sequence: every element gets the whole state; `kept` also fills the activation buffers, `last` is read from them."""
    inputs, per_pe = vectors(i), -(-h // (PES * LANES))
    hidden = PES * per_pe
    rows = gates * hidden * LANES
    words = {
        "x": t * inputs, "w": rows * inputs, "r": rows * hidden, "b": 2 * gates * hidden, "h": PES * hidden,
        "y": t * hidden, "commands": PES * (4 + program_words) + SETUP,
    }  # fmt: skip
    if stored_state:
        words[stored_state] = words.get(stored_state, 0) + hidden
    if last:
        words[last] = hidden
    cycles = recurrent_cycles(t, inputs, hidden, per_pe, gates)
    return transfer(resources, "core", cycles, words, estimated=gates != 4)


def norm_cost(t: int, n: int, resources: Resources) -> Cost:
    """One layer norm of t rows in place: managers of both buffers, engine, trigger."""
    count = vectors(n)
    words = {"x": t * count, "g": count, "b": count, "y": t * count, "commands": 4}
    return transfer(resources, "global", norm_cycles(t, count), words)


def norm_of_batch_cost(s: int, t: int, n: int, resources: Resources) -> Cost:
    """One layer norm of all rows of a batch."""
    return norm_cost(s * t, n, resources)


def pooling_cost(u: int, w: int, n: int, resources: Resources) -> Cost:
    """One pooling call: a run of the engine for every halving of the windows."""
    count, runs = vectors(n), w.bit_length() - 1
    cycles = sum(pooling_cycles(u * (w >> k), count) for k in range(runs))
    return transfer(resources, "global", cycles, {"x": u * w * count, "y": u * count, "commands": 1 + 2 * runs})


def attention_cost(m: int, t: int, d: int, resources: Resources) -> Cost:
    """One matrix and its queries one after the other; rows come in whole blocks."""
    count, rows = vectors(d), -(-t // LANES) * LANES
    words = {"e": rows * count, "q": m * count, "y": m * count, "commands": 3 + m}
    return transfer(resources, "global", m * attention_cycles(t, count), words)


def linear_levels(t: int, k: int, n: int) -> Levels:
    """One linear call: an input vector is read once and sent to all elements, staged there and read for each of their results."""
    inputs, per_pe = vectors(k), -(-n // (PES * LANES))
    out, weights = PES * per_pe, PES * per_pe * LANES * inputs
    return _bytes({
        "large": {"x": (t * inputs, t * inputs), "y": (t * out, t * out)},
        "input_buffer": {"x": (t * out * inputs, t * PES * inputs), "b": (t * out, out)},
        "weight": {"w": (t * weights, weights)},
    })  # fmt: skip


@matmul.costs
def matmul_cost(h: int, t: int, k: int, n: int, resources: Resources) -> Cost:
    """Products one after the other, each with weights and biases of its own."""
    return linear_cost(t, k, n, resources).times(h)


@matmul.levels
def matmul_levels(h: int, t: int, k: int, n: int) -> Levels:
    """Products one after the other."""
    return levels_times(linear_levels(t, k, n), h)


def recurrent_levels(t: int, i: int, h: int, gates: int) -> Levels:
    """One sequence: inputs and state are staged in every element and read for each result vector of each gate."""
    inputs, per_pe = vectors(i), -(-h // (PES * LANES))
    hidden = PES * per_pe
    rows = gates * hidden
    return _bytes({
        "large": {"x": (t * inputs, t * inputs), "y": (2 * t * hidden, t * hidden)},  # read by the host, and sent back as state
        "input_buffer": {
            "x": (t * rows * inputs, t * PES * inputs), "h": (t * rows * hidden, (t + 1) * PES * hidden), "b": (2 * t * rows, 2 * rows),
        },
        "weight": {"w": (t * rows * LANES * inputs, rows * LANES * inputs), "r": (t * rows * LANES * hidden, rows * LANES * hidden)},
    })  # fmt: skip


def norm_levels(t: int, n: int) -> Levels:
    """One layer norm in place: every row is read for its sums and again to be normalised."""
    count = vectors(n)
    rows = t * count
    return _bytes({"large": {"x": (2 * rows, rows), "y": (rows, rows)}, "small": {"g": (rows, count), "b": (rows, count)}})


def norm_of_batch_levels(s: int, t: int, n: int) -> Levels:
    """One layer norm of all rows of a batch."""
    return norm_levels(s * t, n)


def pooling_levels(u: int, w: int, n: int) -> Levels:
    """One pooling call in place: every halving reads two rows and writes one."""
    rows = u * vectors(n)
    return _bytes({"large": {"x": (2 * (w - 1) * rows, w * rows), "y": (rows, (w - 1) * rows)}})


def attention_levels(m: int, t: int, d: int) -> Levels:
    """Queries one after the other: each reads all rows for its scores and again for its result; scores are no tensor of it."""
    count, blocks = vectors(d), -(-t // LANES)
    rows = blocks * LANES * count
    return _bytes({"large": {"e": (2 * m * rows, rows)}, "small": {"q": (m * blocks * count, m * count), "y": (m * count, m * count)}})


def _bytes(words: Mapping[str, Mapping[str, tuple[int, int]]]) -> Levels:
    return {m: {x: (reads * LANES, writes * LANES) for x, (reads, writes) in tensors.items()} for m, tensors in words.items()}


for layer, instruction, _ in ACTIVATIONS:
    layer.levels(linear_levels)
    layer.costs(partial(linear_cost, extra=int(instruction != 0)))
lstm.costs(partial(recurrent_cost, gates=4, program_words=2, stored_state="c", last="cn"))
gru.costs(partial(recurrent_cost, gates=3, program_words=2, stored_state="h"))
rnn.costs(partial(recurrent_cost, gates=1, program_words=1))
for recurrent, gates in ((lstm, 4), (gru, 3), (rnn, 1)):
    recurrent.levels(partial(recurrent_levels, gates=gates))
layer_norm.costs(norm_cost)
layer_norm_of_batch.costs(norm_of_batch_cost)
layer_norm.levels(norm_levels)
layer_norm_of_batch.levels(norm_of_batch_levels)
for pooling in (add_pool, max_pool, mean_pool):
    pooling.costs(pooling_cost)
    pooling.levels(pooling_levels)
attention.costs(attention_cost)
attention.levels(attention_levels)
