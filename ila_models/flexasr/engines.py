"""FlexASR engines that work on the global buffer alone: LayerReduce, LayerNorm and ZeroPadding."""

from collections.abc import Callable

from rewrite_compiler.ila import Bus, Ila, Wait
from rewrite_compiler.lang import (
    Expr,
    Leaf,
    Step,
    array,
    assign,
    ceil_div,
    let,
    lift,
    loop,
    maximum,
    reduce_sum,
    select,
    seq,
    signed,
    switch,
    trunc_div,
    update,
    when,
)

from . import limits
from .buffers import LANES, LARGE, large_address, small_address
from .config import GB_BASE, is_hardware, trigger
from .numerics import INVSQRT, MAXIMUM, MEAN, SUM, encode, fixed

GAMMA, BETA = 5, 6  # small-buffer managers, hard-wired


def declare_engines(m: Ila, bus: Bus) -> None:
    """Declare the triggers of the three engines."""
    ends = _reduction_ends(m)
    declare_engine(m, bus, "layer_reduce", 0x20, limits.pooling, lambda: _layer_reduce(m), ends)
    never = "does not end: num_timestep_1 is less than 2, or its mode more than 2"
    m.waits.insert(0, Wait("layer_reduce", ends | ~m.s.gb_layer_reduce_is_valid[()], never))
    steps = m.s.gb_layer_norm_num_timestep_1
    declare_engine(m, bus, "layer_norm", 0x30, limits.layer_norm, lambda: loop(steps[()], lambda t: _layer_norm(m, t)))
    declare_engine(m, bus, "zero_padding", 0x40, limits.zero_padding, lambda: _zero_padding(m))


def _reduction_ends(m: Ila) -> Expr:
    """The published ILA has no instruction for modes above 2, and does not find its last pair where there is none."""
    if is_hardware(m):
        return lift(1)
    return (m.s.gb_layer_reduce_num_timestep_1[()] >= 2) & (m.s.gb_layer_reduce_mode[()] <= 2)


def declare_engine(
    m: Ila, bus: Bus, engine: str, offset: int, needs: Callable[[Ila], Step], body: Callable[[], Step], ends: Expr | int = 1
) -> None:
    """Declare the trigger of one engine; it starts only when its configuration is valid. `needs` are its diagnostics."""
    valid = m.r[f"gb_{engine}_is_valid"]

    def start() -> Step:
        return seq(limits.engine_started(m, engine), when(valid, seq(needs(m), when(ends, seq(body(), assign(m.s.interrupt, 1))))))

    start.__doc__ = f"Run the {engine.replace('_', ' ')} engine to its end."
    m.instruction(f"gb_{engine}_start", trigger(m, bus, GB_BASE + offset))(start)
    m.waits.append(Wait(engine, valid, f"is not configured valid (config_gb_{engine} is_valid)"))


def _element(m: Ila, engine: str, timestep: Expr, vector: Expr) -> Expr:
    index, count = m.r[f"gb_{engine}_memory_index_1"], m.r[f"gb_{engine}_num_vector_1"]
    return large_address(m, index, timestep, vector, count)


def _layer_reduce(m: Ila) -> Step:
    """Combine timesteps 2i and 2i+1 into i, lane by lane, in place."""
    s = m.s
    count = s.gb_layer_reduce_num_timestep_1[()]
    pairs = maximum(ceil_div(count, 2), 1) if is_hardware(m) else count // 2

    def pair(t: Expr) -> Step:
        def lane(v: Expr, j: Expr) -> tuple[tuple[Expr, Expr], Expr]:
            first = _element(m, "layer_reduce", 2 * t, v)
            a, b = s.large[first, j], s.large[(first + 1) % LARGE, j]
            return (_element(m, "layer_reduce", t, v), j), switch(s.gb_layer_reduce_mode[()], MAXIMUM(a, b), MEAN(a, b), SUM(a, b))

        return loop(s.gb_layer_reduce_num_vector_1[()], lambda v: update(s.large, LANES, lambda j: lane(v, j)))

    return loop(pairs, pair)


def _layer_norm(m: Ila, t: Expr) -> Step:
    """Normalise one timestep in place: sums wrap at 20 bits a vector and 24 in all, divisions go toward zero, no ε."""
    s = m.s
    count = s.gb_layer_norm_num_vector_1[()]
    bias = s.gb_layer_norm_adpbias_1[()]

    def x(v: Expr, j: Expr) -> Expr:
        return fixed(s.large[_element(m, "layer_norm", t, v), j], bias)

    def total(term: Callable[[Expr], Expr]) -> Expr:
        return signed(reduce_sum(lambda v: signed(reduce_sum(lambda j: term(x(v, j)), LANES), 20), count), 24)

    size = maximum(16 * count, 1)
    sums = array(lambda k: select(k == 0, total(lambda a: a), total(lambda a: signed((a * a) >> 14, 20))), 2)

    def write(moments: Leaf) -> Step:
        mean, mean_square = (signed(trunc_div(moments[k], size), 20) for k in (0, 1))
        variance = signed(mean_square - signed((mean * mean) >> 14, 20), 20)
        scale = array(lambda: INVSQRT(variance), ())

        def lane(v: Expr, j: Expr) -> tuple[tuple[Expr, Expr], Expr]:
            gamma = fixed(s.small[small_address(m, lift(GAMMA), v), j], s.gb_layer_norm_adpbias_4[()])
            beta = fixed(s.small[small_address(m, lift(BETA), v), j], s.gb_layer_norm_adpbias_3[()])
            y = signed(x(v, j) - mean, 20)
            y = signed((y * scale[()]) >> 14, 20)
            y = signed((y * gamma) >> 14, 20)
            return (_element(m, "layer_norm", t, v), j), encode(signed(y + beta, 20), bias)

        return update(s.large, (count, LANES), lane)

    return let(sums, write, "moments")


def _zero_padding(m: Ila) -> Step:
    """Clear timesteps num_timestep_1 … num_timestep_2−1. The published ILA steps through the vectors at 0, 1, 3, 6, …"""
    s = m.s
    first, last = s.gb_zero_padding_num_timestep_1[()], s.gb_zero_padding_num_timestep_2[()]

    def clear(v: Expr, t: Expr, j: Expr) -> tuple[tuple[Expr, Expr], int]:
        vector = v if is_hardware(m) else v * (v + 1) // 2
        return (_element(m, "zero_padding", first + t, vector), j), 0

    count = maximum(last - first, 0)
    return loop(s.gb_zero_padding_num_vector_1[()], lambda v: update(s.large, (count, LANES), lambda t, j: clear(v, t, j)))
