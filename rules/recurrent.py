"""Recurrences: unrolled steps become layers of one step, those a layer of as many, whatever spelling and order of gates.

Sums of products become `gate_sum`, one for each gate; gates around them become a layer of one step; a layer on the next
slice of the sequence whose states are another's last ones continues it.
"""

from collections.abc import Callable

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.lang import Expr
from rewrite_compiler.rewrite import Int, Ints, Str


def zeros(w: Tensor) -> Tensor:
    """Return a bias of zeros for the rows of a weight."""
    vector: Tensor = o.full((w.shape[0],), 0.0)
    return vector


def rows(x: Tensor, first: object, last: object) -> Tensor:
    """Return entries first … last along the first axis: rows of a weight, steps of a sequence."""
    part: Tensor = o.slice_(x, axis=0, start=first, stop=last)
    return part


def stacked(*parts: Tensor) -> Tensor:
    """Return parts one after the other along their first axis."""
    joined, *remaining = parts
    for part in remaining:
        joined = o.concat(joined, part, axis=0)
    return joined


def products(x: Tensor, h: Tensor, w: Tensor, r: Tensor) -> Where:
    """Return the condition that x·wᵀ and h·rᵀ are rows of one shape."""
    return Where(IsConstant(w), IsConstant(r), x.rank == 2, h.rank == 2, x.shape[0] == h.shape[0], w.shape[0] == r.shape[0])


# -- sums of two products


@rule(grade="A")
def two_biased_products_as_gate_sum(x: Tensor, w: Tensor, a: Tensor, h: Tensor, r: Tensor, b: Tensor) -> Law:
    """(x·wᵀ + a) + (h·rᵀ + b) = gate_sum"""
    left = o.add(o.bias_add(o.dense(x, w), a, axis=1), o.bias_add(o.dense(h, r), b, axis=1))
    return left, o.gate_sum(x, h, w, r, a, b), products(x, h, w, r)


@rule(grade="A")
def biased_product_as_gate_sum(x: Tensor, w: Tensor, a: Tensor, h: Tensor, r: Tensor) -> Law:
    """(x·wᵀ + a) + h·rᵀ = gate_sum"""
    left = o.add(o.bias_add(o.dense(x, w), a, axis=1), o.dense(h, r))
    return left, o.gate_sum(x, h, w, r, a, zeros(w)), products(x, h, w, r)


@rule(grade="A")
def bias_of_products_as_gate_sum(x: Tensor, w: Tensor, a: Tensor, h: Tensor, r: Tensor) -> Law:
    """(x·wᵀ + h·rᵀ) + a = gate_sum"""
    left = o.bias_add(o.add(o.dense(x, w), o.dense(h, r)), a, axis=1)
    return left, o.gate_sum(x, h, w, r, a, zeros(w)), products(x, h, w, r)


@rule(grade="A")
def products_as_gate_sum(x: Tensor, w: Tensor, h: Tensor, r: Tensor) -> Law:
    """x·wᵀ + h·rᵀ = gate_sum"""
    return o.add(o.dense(x, w), o.dense(h, r)), o.gate_sum(x, h, w, r, zeros(w), zeros(w)), products(x, h, w, r)


@rule(grade="A")
def product_of_pair_as_gate_sum(x: Tensor, h: Tensor, w: Tensor, a: Tensor) -> Law:
    """[x, h]·wᵀ + a = gate_sum"""
    left = o.bias_add(o.dense(o.concat(x, h, axis=1), w), a, axis=1)
    inputs, width = x.shape[1], w.shape[1]
    from_x, from_h = o.slice_(w, axis=1, start=0, stop=inputs), o.slice_(w, axis=1, start=inputs, stop=width)
    return left, o.gate_sum(x, h, from_x, from_h, a, zeros(w)), Where(IsConstant(w), x.rank == 2)


@rule(grade="A")
def sliced_products_as_gate_sum(x: Tensor, w: Tensor, a: Tensor, h: Tensor, r: Tensor, b: Tensor, first: Int, last: Int) -> Law:
    """part of (x·wᵀ + a) + the same part of (h·rᵀ + b) = gate_sum of these rows"""
    from_x, from_h = o.bias_add(o.dense(x, w), a, axis=1), o.bias_add(o.dense(h, r), b, axis=1)
    left = o.add(o.slice_(from_x, axis=1, start=first, stop=last), o.slice_(from_h, axis=1, start=first, stop=last))
    parts = (rows(v, first, last) for v in (w, r, a, b))
    return (
        left,
        o.gate_sum(x, h, *parts),
        Where(IsConstant(w), IsConstant(r), x.rank == 2, h.rank == 2, x.shape[0] == h.shape[0], first < last),
    )


@rule(grade="E")
def slice_of_gate_sum(x: Tensor, h: Tensor, w: Tensor, r: Tensor, a: Tensor, b: Tensor, first: Int, last: Int) -> Law:
    """columns of gate_sum = gate_sum of rows"""
    left = o.slice_(o.gate_sum(x, h, w, r, a, b), axis=1, start=first, stop=last)
    return left, o.gate_sum(x, h, *(rows(v, first, last) for v in (w, r, a, b))), Where(IsConstant(w), IsConstant(r), first < last)


# -- a first step whose state is zero, so that its product was left out; its weight is that of a later step


def zero_state(context: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, h: Tensor, w: Tensor, r: Tensor, a: Tensor, z: Ints) -> Law:
    """Return the law that x·wᵀ + a is a gate_sum from a state of zeros where another gate_sum has the same weights."""
    later = o.gate_sum(y, h, w, r, a, o.full(z, 0.0))
    first = o.gate_sum(x, o.full((x.shape[0], r.shape[1]), 0.0), w, r, a, o.full(z, 0.0))
    return (context(o.bias_add(o.dense(x, w), a, axis=1)), context(first)), (later, later), Where(x.rank == 2)


def biased_zero_state(context: Callable[[Tensor], Tensor], *given: Tensor) -> Law:
    """Return the law that x·wᵀ + (a + b) is a gate_sum from a state of zeros where another gate_sum has the same weights and biases."""
    x, y, h, w, r, a, b = given
    first = o.gate_sum(x, o.full((x.shape[0], r.shape[1]), 0.0), w, r, a, b)
    later = o.gate_sum(y, h, w, r, a, b)
    return (context(o.bias_add(o.dense(x, w), o.add(a, b), axis=1)), context(first)), (later, later), Where(x.rank == 2)


@rule(grade="Z")
def part_of_product_from_zero_state(
    x: Tensor, y: Tensor, h: Tensor, w: Tensor, r: Tensor, a: Tensor, z: Ints, first: Int, last: Int
) -> Law:  # fmt: skip
    """part of (x·wᵀ + a) = part of a gate_sum from zeros"""
    return zero_state(lambda g: o.slice_(g, axis=1, start=first, stop=last), x, y, h, w, r, a, z)


@rule(grade="A")
def part_of_biased_product_from_zero_state(
    x: Tensor, y: Tensor, h: Tensor, w: Tensor, r: Tensor, a: Tensor, b: Tensor, first: Int, last: Int
) -> Law:  # fmt: skip
    """part of (x·wᵀ + (a + b)) = part of a gate_sum from zeros"""
    return biased_zero_state(lambda g: o.slice_(g, axis=1, start=first, stop=last), x, y, h, w, r, a, b)


@rule(grade="Z")
def sigmoid_of_product_from_zero_state(x: Tensor, y: Tensor, h: Tensor, w: Tensor, r: Tensor, a: Tensor, z: Ints) -> Law:
    """σ(x·wᵀ + a) = σ of a gate_sum from zeros"""
    return zero_state(o.sigmoid, x, y, h, w, r, a, z)


@rule(grade="Z")
def tanh_of_product_from_zero_state(x: Tensor, y: Tensor, h: Tensor, w: Tensor, r: Tensor, a: Tensor, z: Ints) -> Law:
    """tanh(x·wᵀ + a) = tanh of a gate_sum from zeros"""
    return zero_state(o.tanh, x, y, h, w, r, a, z)


@rule(grade="A")
def sigmoid_of_biased_product_from_zero_state(x: Tensor, y: Tensor, h: Tensor, w: Tensor, r: Tensor, a: Tensor, b: Tensor) -> Law:
    """σ(x·wᵀ + (a + b)) = σ of a gate_sum from zeros"""
    return biased_zero_state(o.sigmoid, x, y, h, w, r, a, b)


@rule(grade="A")
def tanh_of_biased_product_from_zero_state(x: Tensor, y: Tensor, h: Tensor, w: Tensor, r: Tensor, a: Tensor, b: Tensor) -> Law:
    """tanh(x·wᵀ + (a + b)) = tanh of a gate_sum from zeros"""
    return biased_zero_state(o.tanh, x, y, h, w, r, a, b)


# -- cells as layers of one step


def gate(x: Tensor, h: Tensor, *weights: Tensor) -> Tensor:
    """Return σ of a gate_sum."""
    activated: Tensor = o.sigmoid(o.gate_sum(x, h, *weights))
    return activated


def one_step(x: Tensor) -> Tensor:
    """Return rows as a sequence of one step."""
    sequence: Tensor = o.reshape(x, (1, x.shape[0], x.shape[1]))
    return sequence


@rule(grade="E")
def lstm_cell_as_layer(
    x: Tensor, h: Tensor, c: Tensor, wi: Tensor, ri: Tensor, ai: Tensor, bi: Tensor, wo: Tensor, ro: Tensor, ao: Tensor, bo: Tensor,
    wf: Tensor, rf: Tensor, af: Tensor, bf: Tensor, wg: Tensor, rg: Tensor, ag: Tensor, bg: Tensor,
) -> Law:  # fmt: skip
    """c' = σ(f)·c + σ(i)·tanh(g), h' = σ(o)·tanh(c') = an LSTM of one step"""
    update = o.mul(gate(x, h, wi, ri, ai, bi), o.tanh(o.gate_sum(x, h, wg, rg, ag, bg)))
    cell = o.add(o.mul(gate(x, h, wf, rf, af, bf), c), update)
    state = o.mul(gate(x, h, wo, ro, ao, bo), o.tanh(cell))
    w, r = stacked(wi, wo, wf, wg), stacked(ri, ro, rf, rg)
    _, last, last_cell = o.lstm(one_step(x), w, r, stacked(ai, ao, af, ag, bi, bo, bf, bg), h, c)
    hidden = h.shape[1]
    shapes = Where(c.shape == h.shape, *(v.shape[0] == hidden for v in (wi, wo, wf, wg)))
    return (cell, last_cell), (state, last), shapes


@rule(grade="E")
def rnn_cell_as_layer(x: Tensor, h: Tensor, w: Tensor, r: Tensor, a: Tensor, b: Tensor) -> Law:
    """h' = tanh(x·wᵀ + h·rᵀ + a + b) = a recurrent layer of one step"""
    _, last = o.rnn(one_step(x), w, r, stacked(a, b), h, "tanh")
    return o.tanh(o.gate_sum(x, h, w, r, a, b)), last, Where(w.shape[0] == h.shape[1])


@rule(grade="A")
def interpolation_of_states(z: Tensor, n: Tensor, h: Tensor) -> Law:
    """n + σ(z)·(h − n) = (1 − σ(z))·n + σ(z)·h"""
    s = o.sigmoid(z)
    left = o.add(n, o.mul(s, o.sub(h, n)))
    return left, o.add(o.mul(o.sub(o.full((), 1.0), s), n), o.mul(s, h))


@rule(grade="A")
def sliced_input_of_candidate(x: Tensor, w: Tensor, a: Tensor, y: Tensor, first: Int, last: Int) -> Law:
    """tanh(part of (x·wᵀ + a) + y) = tanh((x·w'ᵀ + a') + y) of these rows"""
    part = o.slice_(o.bias_add(o.dense(x, w), a, axis=1), axis=1, start=first, stop=last)
    product = o.bias_add(o.dense(x, rows(w, first, last)), rows(a, first, last), axis=1)
    return o.tanh(o.add(part, y)), o.tanh(o.add(product, y)), Where(IsConstant(w), x.rank == 2, first < last)


@rule(grade="A")
def sliced_state_of_candidate(h: Tensor, r: Tensor, b: Tensor, z: Tensor, first: Int, last: Int) -> Law:
    """σ(z) · part of (h·rᵀ + b) = σ(z) · (h·r'ᵀ + b') of these rows"""
    part = o.slice_(o.bias_add(o.dense(h, r), b, axis=1), axis=1, start=first, stop=last)
    product = o.bias_add(o.dense(h, rows(r, first, last)), rows(b, first, last), axis=1)
    return o.mul(o.sigmoid(z), part), o.mul(o.sigmoid(z), product), Where(IsConstant(r), h.rank == 2, first < last)


@rule(grade="A")
def gru_cell_as_layer(
    x: Tensor, h: Tensor, s: Ints, wz: Tensor, rz: Tensor, az: Tensor, bz: Tensor, wr: Tensor, rr: Tensor, ar: Tensor, br: Tensor,
    wn: Tensor, rn: Tensor, an: Tensor, bn: Tensor,
) -> Law:  # fmt: skip
    """n = tanh(x·wₙᵀ + aₙ + σ(r)·(h·rₙᵀ + bₙ)), h' = (1 − σ(z))·n + σ(z)·h = a GRU of one step"""
    z = gate(x, h, wz, rz, az, bz)
    reset = o.mul(gate(x, h, wr, rr, ar, br), o.bias_add(o.dense(h, rn), bn, axis=1))
    n = o.tanh(o.add(o.bias_add(o.dense(x, wn), an, axis=1), reset))
    one = o.full(s, 1.0)
    state = o.add(o.mul(o.sub(one, z), n), o.mul(z, h))
    w, r, b = stacked(wz, wr, wn), stacked(rz, rr, rn), stacked(az, ar, an, bz, br, bn)
    _, last = o.gru(one_step(x), w, r, b, h, linear_before_reset=1)
    shapes = Where(one.size == 1, one.rank <= 2, *(v.shape[0] == h.shape[1] for v in (wz, wr, wn, rn)))
    return state, last, shapes


# -- layers that continue each other


Layer = Callable[..., tuple[Tensor, ...]]


def continuation(layer: Layer, x: Tensor, first: Tensor, whole: Tensor, weights: tuple[Tensor, ...], states: tuple[Tensor, ...]) -> Law:
    """Return the law that a layer on `x` from the last states of one on `first` has those of one on `whole`."""
    _, *middle = layer(first, *weights, *states)
    _, *last = layer(x, *weights, *middle)
    _, *result = layer(whole, *weights, *states)
    return tuple(zip(last, result, strict=True))


def prefixes(s: Tensor, middle: object, last: object) -> tuple[Tensor, Tensor, Tensor]:
    """Return steps middle … last, 0 … middle and 0 … last of a sequence."""
    return rows(s, middle, last), rows(s, 0, middle), rows(s, 0, last)


@rule(phase="fold", grade="E")
def continue_lstm(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor, middle: Int, last: Int) -> Law:
    """an LSTM on steps m … n from the states of one on 0 … m = one on 0 … n"""
    return continuation(o.lstm, *prefixes(s, middle, last), (w, r, b), (h, c))


@rule(phase="fold", grade="E")
def continue_gru(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, linear: Int, middle: Int, last: Int) -> Law:
    """a GRU on steps m … n from the state of one on 0 … m = one on 0 … n"""
    return continuation(lambda *x: o.gru(*x, linear_before_reset=linear), *prefixes(s, middle, last), (w, r, b), (h,))


@rule(phase="fold", grade="E")
def continue_rnn(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, f: Str, middle: Int, last: Int) -> Law:
    """a recurrent layer on steps m … n from the state of one on 0 … m = one on 0 … n"""
    return continuation(lambda *x: o.rnn(*x, activation=f), *prefixes(s, middle, last), (w, r, b), (h,))


def aligned(first: Expr, middle: Expr, last: Expr) -> Where:
    """Return the condition that a block of steps is two equally long ones and begins at a multiple of its length.

    Blocks of 2, 4, 8 … steps are made in as many rounds, and there are no more of them than steps.
    """
    return Where(middle - first == last - middle, first < last, first % (last - first) == 0)


def block(layer: Layer, s: Tensor, weights: tuple[Tensor, ...], states: tuple[Tensor, ...], *steps: Expr) -> Law:
    """Return the law that a layer on the second half of a block, from the last states of one on the first half, has those of one on it."""
    first, middle, last = steps
    return *continuation(layer, rows(s, middle, last), rows(s, first, middle), rows(s, first, last), weights, states), aligned(*steps)


@rule(phase="fold", grade="E")
def double_lstm(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor, first: Int, middle: Int, last: Int) -> Law:
    """an LSTM on the second half of a block from the states of one on the first half = one on the block"""
    return block(o.lstm, s, (w, r, b), (h, c), first, middle, last)


@rule(phase="fold", grade="E")
def double_gru(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, linear: Int, first: Int, middle: Int, last: Int) -> Law:
    """a GRU on the second half of a block from the state of one on the first half = one on the block"""
    return block(lambda *x: o.gru(*x, linear_before_reset=linear), s, (w, r, b), (h,), first, middle, last)


@rule(phase="fold", grade="E")
def double_rnn(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, f: Str, first: Int, middle: Int, last: Int) -> Law:
    """a recurrent layer on the second half of a block from the state of one on the first half = one on the block"""
    return block(lambda *x: o.rnn(*x, activation=f), s, (w, r, b), (h,), first, middle, last)


def within(layer: Layer, s: Tensor, weights: tuple[Tensor, ...], states: tuple[Tensor, ...], last: Expr) -> Law:
    """Return the law that the last state of a layer on the first steps is one of all states of the layer on the whole sequence."""
    _, part, *_ = layer(o.slice_(s, axis=0, start=0, stop=last), *weights, *states)
    every, end, *_ = layer(s, *weights, *states)
    state = o.reshape(o.slice_(every, axis=0, start=last - 1, stop=last), part.shape)
    return (part, state), (end, end), Where(last > 0, s.shape[0] > 1)


@rule(name="state-within-lstm", grade="E")
def lstm_state(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor, last: Int) -> Law:
    """last output of an LSTM on the first n steps = output n of the LSTM on all, where that is known"""
    return within(o.lstm, s, (w, r, b), (h, c), last)


@rule(name="state-within-gru", grade="E")
def gru_state(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, linear: Int, last: Int) -> Law:
    """last output of a GRU on the first n steps = output n of the GRU on all, where that is known"""
    return within(lambda *x: o.gru(*x, linear_before_reset=linear), s, (w, r, b), (h,), last)


@rule(name="state-within-rnn", grade="E")
def rnn_state(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, f: Str, last: Int) -> Law:
    """last output of a recurrent layer on the first n steps = output n of the layer on all, where that is known"""
    return within(lambda *x: o.rnn(*x, activation=f), s, (w, r, b), (h,), last)


# -- layers that continue each other backwards: from the last step of a sequence on, as a layer on the reversed sequence


def back(s: Tensor, first: object, last: object) -> Tensor:
    """Return steps first … last of a sequence, the last one first."""
    reversed_rows: Tensor = o.reverse(rows(s, first, last), axis=0)
    return reversed_rows


def backwards(s: Tensor, first: Expr, middle: Expr, last: Expr) -> tuple[Tensor, Tensor, Tensor]:
    """Return step first … middle, the steps from the last one back to it, and both."""
    return rows(s, first, middle), back(s, middle, last), back(s, first, last)


@rule(phase="fold", grade="E")
def continue_lstm_backwards(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor, first: Int, middle: Int, last: Int) -> Law:
    """an LSTM on step m from the states of one on n … m + 1 = one on n … m"""
    return *continuation(o.lstm, *backwards(s, first, middle, last), (w, r, b), (h, c)), Where(middle == first + 1)


@rule(phase="fold", grade="E")
def continue_gru_backwards(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, linear: Int, first: Int, middle: Int, last: Int) -> Law:
    """a GRU on step m from the state of one on n … m + 1 = one on n … m"""
    law = continuation(lambda *x: o.gru(*x, linear_before_reset=linear), *backwards(s, first, middle, last), (w, r, b), (h,))
    return *law, Where(middle == first + 1)


@rule(phase="fold", grade="E")
def continue_rnn_backwards(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, f: Str, first: Int, middle: Int, last: Int) -> Law:
    """a recurrent layer on step m from the state of one on n … m + 1 = one on n … m"""
    law = continuation(lambda *x: o.rnn(*x, activation=f), *backwards(s, first, middle, last), (w, r, b), (h,))
    return *law, Where(middle == first + 1)


def within_backwards(layer: Layer, s: Tensor, weights: tuple[Tensor, ...], states: tuple[Tensor, ...], first: Expr, last: Expr) -> Law:
    """Return the law that the last state of a layer on the last steps, backwards, is one of all states of the layer on all of them."""
    _, part, *_ = layer(back(s, first, last), *weights, *states)
    every, end, *_ = layer(o.reverse(s, axis=0), *weights, *states)
    state = o.reshape(rows(o.reverse(every, axis=0), first, first + 1), part.shape)
    return (part, state), (end, end), Where(last == s.shape[0], first < last, s.shape[0] > 1)


@rule(name="state-within-lstm-backwards", grade="E")
def lstm_state_backwards(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor, first: Int, last: Int) -> Law:
    """last output of an LSTM on steps n … m, backwards = its output at step m where it is known on all"""
    return within_backwards(o.lstm, s, (w, r, b), (h, c), first, last)


@rule(name="state-within-gru-backwards", grade="E")
def gru_state_backwards(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, linear: Int, first: Int, last: Int) -> Law:
    """last output of a GRU on steps n … m, backwards = its output at step m where it is known on all"""
    return within_backwards(lambda *x: o.gru(*x, linear_before_reset=linear), s, (w, r, b), (h,), first, last)


@rule(name="state-within-rnn-backwards", grade="E")
def rnn_state_backwards(s: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, f: Str, first: Int, last: Int) -> Law:
    """last output of a recurrent layer on steps n … m, backwards = its output at step m where it is known on all"""
    return within_backwards(lambda *x: o.rnn(*x, activation=f), s, (w, r, b), (h,), first, last)
