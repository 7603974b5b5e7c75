"""What FlexASR's recurrent layers share: two memory managers (input, state), gates tile by tile, capacities, the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rewrite_compiler.ila_models.flexasr.numerics import fixed
from rewrite_compiler.lang import Array, Expr
from rewrite_compiler.target import USUAL, Device, Limit, Room, Stay, pad_axis

from .base import (
    ACT,
    INPUT,
    LANES,
    MOST_VECTORS,
    PES,
    WEIGHT,
    Codes,
    Formats,
    Manager,
    configure_element,
    large_buffer_limits,
    rows_room,
    run_timesteps,
    store_inputs,
    store_weights,
    vectors,
)  # fmt: skip
from .linear import core_word

CODES = (0, 255)


def recurrent_limits(t: int, i: int, h: int, gates: int) -> Iterator[Limit]:
    """Capacities of one sequence (specification, section 8)."""
    inputs, per_pe = vectors(i), -(-h // (PES * LANES))
    hidden = per_pe * PES
    yield Limit("input vectors of a timestep", inputs, MOST_VECTORS)
    yield Limit("output vectors of a timestep", hidden, MOST_VECTORS)
    yield Limit("state vectors of a processing element", per_pe, ACT)
    yield Limit("weight vectors of a processing element", gates * per_pe * (inputs + hidden) * LANES, WEIGHT)
    yield Limit("input, state and bias vectors of a processing element", inputs + hidden + 2 * gates * per_pe, INPUT)
    yield from large_buffer_limits(t, inputs + hidden)


def recurrent_rooms(t: int, i: int, h: int, gates: int) -> Iterator[Room]:
    """Where the tensors of one sequence lie; states and biases share the small input buffers and are stored each time."""
    inputs, per_pe = vectors(i), -(-h // (PES * LANES))
    yield rows_room("x", t, inputs)
    yield rows_room("y", t, per_pe * PES)
    yield Room("weight", gates * per_pe * inputs * LANES, "w", lasting=True)
    yield Room("weight", gates * per_pe * per_pe * PES * LANES, "r", lasting=True)


def core_words(x: Array, w: Array, r: Array, b: Array, f: Formats) -> tuple[Callable[[Expr, Expr], Expr], Callable[[Array, Expr], Expr]]:
    """Return what the core sends for a row of the gates: (timestep, row) → from the input, (state, row) → from the state."""
    rows = w.shape[0]
    from_x, from_h = 14 - f["w"].bias - f["x"].bias, 14 - f["r"].bias - f["y"].bias

    def of_input(t: Expr, row: Expr) -> Expr:
        return core_word(lambda k: (x[t, 0, k], w[row, k]), w.shape[1], from_x, fixed(b[row], f["b"].bias))

    def of_state(h: Array, row: Expr) -> Expr:
        return core_word(lambda k: (h[0, k], r[row, k]), r.shape[1], from_h, fixed(b[rows + row], f["b"].bias))

    return of_input, of_state


Operands = tuple[Codes, Codes, Codes, Codes, Codes]


def run_sequence(
    device: Device, operands: Operands, f: Formats, gates: Sequence[int], program: Sequence[int], cell_state: Codes | None = None,
    stay: Stay = USUAL,
) -> Codes:  # fmt: skip
    """Emit one sequence: x [(samples,) t, 1, i], w [gates·h, i], r, b, h [(samples,) 1, h] → y [(samples,) t, 1, h], all codes.

    `gates` is the device's order of the gates among those of the weights; `kept` starts the activation buffers.
    """
    x, w, r, b, h = operands
    hidden, count = r.shape[1], len(gates)
    inputs, per_pe = vectors(x.shape[-1]), -(-hidden // (PES * LANES))
    width, tiles = per_pe * PES, count * per_pe
    state, bias_h = inputs + tiles, inputs + tiles + width
    managers = (
        Manager(f["w"], f["b"], f["x"], inputs, stay.base("w"), inputs),
        Manager(f["r"], f["b"], f["y"], width, stay.base("r", tiles * inputs * LANES), bias_h, state),
    )
    rows = [_by_element(pad_axis(a, 1, n * LANES), hidden, per_pe, gates) for a, n in ((w, inputs), (r, width))]
    biases = [_by_element(a[:, None], hidden, per_pe, gates)[..., 0] for a in np.split(b, 2)]
    for pe in range(PES):
        configure_element(device, pe, managers, tiles, program, per_pe, f["y"])
        for n, manager in enumerate(managers):
            if "wr"[n] not in stay.present:
                store_weights(device, pe, rows[n][pe], manager.base_weight)
            store_inputs(device, pe, biases[n][pe].reshape(-1, LANES), manager.base_bias)
        store_inputs(device, pe, _state_vectors(h, width), state)
        if cell_state is not None:
            pe_state = _state_vectors(cell_state, width)[..., pe * per_pe : (pe + 1) * per_pe, :]
            device.store(f"pe{pe}_act_store_buffer", index=np.arange(per_pe), vector=pe_state)
    y = run_timesteps(device, x[..., 0, :], inputs, width, is_rnn=1, stay=stay)
    return y[..., None, :hidden]


def load_cell_state(device: Device, hidden: int) -> Codes:
    """Load what the activation buffers hold after a sequence, [(samples,) 1, h]."""
    per_pe = -(-hidden // (PES * LANES))
    parts = [device.load(f"pe{pe}_act_load_buffer", index=np.arange(per_pe)) for pe in range(PES)]
    state = np.concatenate(parts, axis=-2)
    return state.reshape(*state.shape[:-2], 1, -1)[..., :hidden]


def _state_vectors(a: Codes, width: int) -> Codes:
    return pad_axis(a, -1, width * LANES).reshape(*a.shape[:-2], -1, LANES)


def _by_element(a: Codes, hidden: int, per_pe: int, gates: Sequence[int]) -> Codes:
    """Return gate rows [gates·h, k] as [pe, rows, k]: for each output vector of an element its 16 rows of every gate in turn."""
    gate_rows = pad_axis(a.reshape(len(gates), hidden, -1)[list(gates)], 1, PES * per_pe * LANES)
    return gate_rows.reshape(len(gates), PES, per_pe, LANES, -1).transpose(1, 2, 0, 3, 4).reshape(PES, len(gates) * per_pe * LANES, -1)
