"""FlexASR as a target: its sizes, its number format, and what all of its drivers share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewrite_compiler.ila_models import flexasr as model
from rewrite_compiler.ila_models.flexasr import buffers, config
from rewrite_compiler.lang import AdaptivFloat
from rewrite_compiler.target import USUAL, Device, Limit, Room, Small, Stay, Target, pad_axis, tile

from .resources import resources

PES, LANES = config.PES, buffers.LANES
LARGE, WEIGHT, INPUT, ACT = buffers.LARGE, buffers.WEIGHT, buffers.INPUT, buffers.ACT  # vectors
BLOCK = 16  # timesteps of one vector that lie next to each other in the large buffer
MOST_VECTORS, MOST_TIMESTEPS = 255, 65_535
# of drawn calls, padding with zeros among them; of a recurrent layer those of its input and one gate
PRODUCTS = {"linear": 20_000, "matmul": 20_000, "attention": 4_000, "layer_norm": 4_000, "gru": 4_096, "rnn": 4_096, "lstm": 4_096}
Formats = Mapping[str, AdaptivFloat]
Codes = np.ndarray

target = Target(
    "flexasr",
    model.build,
    {"behaviour": model.BEHAVIOURS, "sigmoid": model.SIGMOIDS},
    "FlexASR, a speech and language accelerator: linear and recurrent layers, layer norm, pooling in 8-bit AdaptivFloat.",
    (*sorted(Path(__file__).parent.glob("*.py")), *sorted(Path(model.__file__).parent.glob("*.py"))),
    describe=resources,
    # its drivers take no capacity: a tile more or less shows all that they do, so that the design is its own miniature
    small=(Small({}, {"k": LANES, "i": LANES, "d": LANES, "n": PES * LANES, "g": PES * LANES, "h": PES * LANES}, PRODUCTS),),
)


def adaptivfloat(largest: float) -> AdaptivFloat:
    """Return the 8-bit format whose top binade holds `largest`; the bias is 3 bits wide (specification, section 7.3b)."""
    exponent = math.frexp(largest)[1] - 1 if largest > 0 else -3
    return AdaptivFloat(bias=min(max(exponent + 3, 0), 7))


def vectors(elements: int) -> int:
    """Return how many 16-lane vectors hold so many elements."""
    return -(-elements // LANES)


def large_buffer_limits(timesteps: int, vectors_per_timestep: int) -> Iterator[Limit]:
    """Capacities of the large buffer for `used` vectors a timestep, and of the timestep counter."""
    yield Limit("large-buffer vectors", -(-timesteps // BLOCK) * BLOCK * vectors_per_timestep, LARGE)
    yield Limit("timesteps", timesteps, MOST_TIMESTEPS)


def store_program(device: Device, pe: int, program: Sequence[int]) -> None:
    """Store an activation program of at most 32 instructions."""
    words = np.zeros((2, LANES), np.int64)
    words.reshape(-1)[: len(program)] = program
    device.store(f"pe{pe}_config_act_vector_0_15", instructions=words[:1])
    if len(program) > LANES:
        device.store(f"pe{pe}_config_act_vector_16_31", instructions=words[1:])


@dataclass(frozen=True)
class Manager:
    """One memory manager of a processing element: formats, input vectors, and where weights, biases and inputs lie."""

    weight: AdaptivFloat
    bias: AdaptivFloat
    input: AdaptivFloat
    inputs: int
    base_weight: int = 0
    base_bias: int = 0
    base_input: int = 0


def configure_element(
    device: Device, pe: int, managers: Sequence[Manager], tiles: int, program: Sequence[int], outputs: int, result: AdaptivFloat
) -> None:
    """Set one processing element up: `tiles` result vectors a manager, an activation program, `outputs` vectors sent a timestep."""
    device.issue(f"pe{pe}_config_rnn_layer_sizing", is_valid=1, is_bias=1, num_manager=len(managers), num_output=tiles)
    for ordinal, m in zip(("first", "second"), managers, strict=False):
        device.issue(
            f"pe{pe}_config_mem_mngr_{ordinal}", adpfloat_bias_w=m.weight.bias, adpfloat_bias_b=m.bias.bias, adpfloat_bias_i=m.input.bias,
            num_input=m.inputs, base_weight=m.base_weight, base_bias=m.base_bias, base_input=m.base_input,
        )  # fmt: skip
    device.issue(
        f"pe{pe}_config_act_mngr",
        is_valid=1,
        adpfloat_bias=result.bias,
        num_inst=len(program),
        num_output=outputs,
        output_addr_base=pe * outputs,
    )
    store_program(device, pe, program)


def store_weights(device: Device, pe: int, rows: Codes, base: int = 0) -> None:
    """Store rows [(samples,) n, k] as 16×16 tiles, output vectors outer, input vectors inner, one row of a tile a vector."""
    tiles = tile(rows, {-2: LANES, -1: LANES}).reshape(*rows.shape[:-2], -1, LANES)
    device.store(f"pe{pe}_core_store_weight_buffer", index=base + np.arange(tiles.shape[-2]), vector=tiles)


def store_inputs(device: Device, pe: int, vectors: Codes, base: int) -> None:
    """Store vectors [(samples,) count, 16] in the input buffer of a processing element: biases, initial states."""
    device.store(f"pe{pe}_core_store_input_buffer", index=base + np.arange(vectors.shape[-2]), vector=vectors)


def configure_buffers(
    device: Device, timesteps: int, inputs: int, outputs: int, bases: tuple[int, int], *, is_rnn: int = 0
) -> None:  # fmt: skip
    """Set the large buffer's managers (0: input, 1: result, each from its base) and the control engine for a run over timesteps."""
    device.issue("config_gb_core_mem_mngr_large", num_vector_0=inputs, base_0=bases[0], num_vector_1=outputs, base_1=bases[1])
    device.issue(
        "config_gb_control", is_valid=1, memory_index_1=0, memory_index_2=1, num_vector_1=inputs, num_vector_2=outputs,
        num_timestep_1=timesteps, is_rnn=is_rnn,
    )  # fmt: skip


def large_index(timesteps: int, vectors: int, base: int) -> np.ndarray:
    """Return where vector v of timestep t lies (specification, section 5), shape [t, v]."""
    t, v = np.arange(timesteps)[:, None], np.arange(vectors)
    return base + t % BLOCK + (t // BLOCK * vectors + v) * BLOCK


def rows_room(tensor: str, timesteps: int, count: int) -> Room:
    """Return what so many rows of `count` vectors take of the large buffer: whole blocks."""
    return Room("large", -(-timesteps // BLOCK) * BLOCK * count, tensor, (timesteps, count))


def rows_scratch(tensor: str, timesteps: int, count: int) -> Room:
    """Return the room of rows that do not stay, at the address of a tensor."""
    return Room("large", -(-timesteps // BLOCK) * BLOCK * count, scratch=tensor)


def scratch_of_large() -> Iterator[Room]:
    """Yield that an operation lays the large buffer out by itself, so that nothing stays there beside it."""
    yield Room("large", LARGE)


def run_timesteps(device: Device, x: Codes, inputs: int, outputs: int, *, is_rnn: int = 0, stay: Stay = USUAL) -> Codes:
    """Store x [(samples,) t, k], run the configured elements over all timesteps, load the result [(samples,) t, lanes]."""
    timesteps, first = x.shape[-2], stay.base("x")
    base = stay.base("y", -(-timesteps // BLOCK) * BLOCK * inputs)
    configure_buffers(device, timesteps, inputs, outputs, (first, base), is_rnn=is_rnn)
    if "x" not in stay.present:
        store_timesteps(device, x, inputs, first)
    device.issue("gb_control_start")
    device.wait()
    return stay.result("y", lambda: load_timesteps(device, timesteps, outputs, base))


def store_timesteps(device: Device, x: Codes, inputs: int, base: int = 0) -> None:
    """Store x [(samples,) t, k] from a vector of the large buffer on."""
    padded_rows = pad_axis(x, -1, inputs * LANES)
    index = large_index(x.shape[-2], inputs, base).reshape(-1)
    device.store("gb_core_store_large", index=index, vector=padded_rows.reshape(*x.shape[:-2], -1, LANES))


def load_timesteps(device: Device, timesteps: int, count: int, base: int) -> Codes:
    """Load `count` vectors of every timestep; return [(samples,) t, lanes].

    The last, incomplete block of timesteps is loaded by itself: addresses before it follow a regular order.
    """
    index, split_at = large_index(timesteps, count, base), timesteps // BLOCK * BLOCK
    parts = [device.load("gb_core_load_large", index=rows.reshape(-1)) for rows in (index[:split_at], index[split_at:]) if len(rows)]
    y = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-2)
    return y.reshape(*y.shape[:-2], timesteps, count * LANES)
