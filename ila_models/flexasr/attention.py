"""FlexASR Attention engine: one decoder vector against the encoder matrix; 32-bit words, 20 fraction bits."""

from rewrite_compiler.ila import Bus, Ila
from rewrite_compiler.lang import (
    Array,
    Expr,
    Leaf,
    Step,
    array,
    ceil_div,
    let,
    lift,
    loop,
    maximum,
    reduce_max,
    reduce_sum,
    select,
    seq,
    shift,
    signed,
    update,
    when,
    wrap,
)

from . import limits
from .buffers import LANES, SMALL, large_address, room, small_address
from .engines import declare_engine
from .numerics import decoded, encoded, exponential, quotient

SCRATCH = 7  # small-buffer manager of the scores, hard-wired
MASKED = -(1 << 26)  # what a score of exactly 0 becomes: −64.0
LOWEST = -(1 << 30)


def declare_attention(m: Ila, bus: Bus) -> None:
    """Declare the trigger of the Attention engine."""
    declare_engine(m, bus, "attention", 0x50, limits.attention, lambda: _attention(m))


def _attention(m: Ila) -> Step:
    s = m.s
    blocks = ceil_div(s.gb_attention_num_timestep_1[()], 16)
    return seq(
        loop(blocks, lambda k: _scores(m, k)),
        let(array(lambda: _largest(m, blocks), ()), lambda top: _softmax(m, blocks, top), "max_value"),
        _weighted_sum(m, blocks),
    )


def _matrix(m: Ila, timestep: Expr, vector: Expr, lane: Expr) -> Expr:
    s = m.s
    address = large_address(m, s.gb_attention_memory_index_1[()], timestep, vector, s.gb_attention_num_vector_1[()])
    return decoded(s.large[address, lane])


def _scores(m: Ila, k: Expr) -> Step:
    """Scores of 16 timesteps, stored as little-endian words, four a vector; the offset of a vector has 8 bits."""
    s = m.s
    query = s.gb_attention_memory_index_2[()]

    def score(row: Expr) -> Expr:
        def product(v: Expr, j: Expr) -> Expr:
            return _matrix(m, 16 * k + row, v, j) * decoded(s.small[small_address(m, query, v), j])

        total = wrap(reduce_sum(product, (s.gb_attention_num_vector_1[()], LANES)), 32)
        scaled = signed(shift(total, 8 - s.gb_attention_adpbias_1[()] - s.gb_attention_adpbias_2[()]), 32)
        return select(total == 0, MASKED, scaled)

    def store(scores: Leaf) -> Step:
        def byte(n: Expr, j: Expr) -> tuple[tuple[Expr, Expr], Expr]:
            word = scores[4 * n + j // 4]
            return (_scratch(m, 4 * k + n), j), (word >> (j % 4 * 8)) % 256

        return update(s.small, (4, LANES), byte)

    return let(array(score, LANES), store, "scores")


def _scratch(m: Ila, vector: Expr) -> Expr:
    offset = vector % 256 if m.parameters["behaviour"] == "hardware" else vector
    return small_address(m, lift(SCRATCH), offset)


def _score(m: Ila, timestep: Expr) -> Expr:
    """Read a stored score back."""
    vector, word = timestep // 4, timestep % 4
    low = [m.s.small[_scratch(m, vector), 4 * word + b] << 8 * b for b in range(4)]
    return signed(low[0] + low[1] + low[2] + low[3], 32)


def _largest(m: Ila, blocks: Expr) -> Expr:
    return maximum(reduce_max(lambda t: _score(m, t), maximum(16 * blocks, 1)), LOWEST)


def _softmax(m: Ila, blocks: Expr, top: Leaf) -> Step:
    """exp(score − max) over its sum; sixteen codes a block overwrite scores that are no longer needed."""
    s = m.s

    def weight(t: Expr) -> Expr:
        return exponential(signed(_score(m, t) - top[()], 32))

    total = array(lambda: signed(reduce_sum(weight, 16 * blocks), 32), ())

    def block(sum_exp: Leaf, k: Expr) -> Step:
        def code(r: Expr) -> Expr:
            share = quotient(signed(weight(16 * k + r), 32), sum_exp[()])
            return _code26(share, s.gb_attention_adpbias_3[()])

        return let(array(code, LANES), lambda codes: update(s.small, LANES, lambda j: ((_scratch(m, k), j), codes[j])), "softmax")

    return let(total, lambda sum_exp: loop(blocks, lambda k: block(sum_exp, k)), "sum_exp")


def _code26(x: Expr, bias: Expr) -> Expr:
    return encoded(signed(x, 26), bias, 20, 26)


def _weighted_sum(m: Ila, blocks: Expr) -> Step:
    """The matrix weighted by the softmax codes replaces the decoder vector, one vector after the other.

    All are computed at once where none lies on a softmax code that another one still needs.
    """
    s = m.s
    count = s.gb_attention_num_vector_1[()]
    query, scratch, size = s.gb_attention_memory_index_2[()], lift(SCRATCH), room(m, SMALL)

    def lane(v: Expr, j: Expr) -> Expr:
        def product(k: Expr, r: Expr) -> Expr:
            return _matrix(m, 16 * k + r, v, j) * decoded(s.small[_scratch(m, k), r])

        total = wrap(reduce_sum(product, (blocks, LANES)), 32)
        scaled = shift(total, 8 - s.gb_attention_adpbias_1[()] - s.gb_attention_adpbias_3[()])
        return _code26(scaled, s.gb_attention_adpbias_4[()])

    def vectors(first: Expr | int, number: Expr | int) -> Step:
        result: Array = array(lambda v, j: lane(first + v, j), (number, LANES))
        return let(
            result, lambda y: update(s.small, (number, LANES), lambda v, j: ((small_address(m, query, first + v), j), y[v, j])), "output"
        )

    ahead = (small_address(m, scratch, 0) - small_address(m, query, 0)) % size
    is_apart = (ahead >= count) & (ahead + blocks <= size)
    return when(is_apart, vectors(0, count), loop(count, lambda v: vectors(v, 1)))
