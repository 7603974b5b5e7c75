"""Slices: of everything, of neighbours put together, of one step under a reshape, of what is reversed."""

from rewrite_compiler import Law, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Int, Ints

ANY = ("any_dtype",)


@rule(grade="E", marks=ANY)
def drop_slice(x: Tensor, axis: Int, last: Int) -> Law:
    """slice(x, axis, 0, extent) = x"""
    return o.slice_(x, axis=axis, start=0, stop=last), x, Where(last == x.shape[axis])


@rule(phase="fold", grade="E", marks=ANY)
def join_slices(x: Tensor, axis: Int, first: Int, middle: Int, last: Int) -> Law:
    """concat(slice(x, a, l, m), slice(x, a, m, n)) = slice(x, a, l, n)"""
    left, right = o.slice_(x, axis=axis, start=first, stop=middle), o.slice_(x, axis=axis, start=middle, stop=last)
    return o.concat(left, right, axis=axis), o.slice_(x, axis=axis, start=first, stop=last)


@rule(grade="E", marks=ANY)
def step_of_batch_first(x: Tensor, first: Int, last: Int, s: Ints) -> Law:
    """reshape(slice(x, 1, t, t + 1)) without that axis = reshape(slice(xᵀ, 0, t, t + 1))"""
    time_first = o.slice_(o.transpose(x, (1, 0, 2)), axis=0, start=first, stop=last)
    single = Where(x.rank == 3, s == (x.shape[0], x.shape[2]))
    return o.reshape(o.slice_(x, axis=1, start=first, stop=last), s), o.reshape(time_first, s), single


@rule(grade="E", marks=ANY)
def step_into_batch_first(x: Tensor, first: Int, last: Int, s: Ints) -> Law:
    """reshape(slice(x, 0, t, t + 1), (N, 1, C)) = slice(xᵀ, 1, t, t + 1)"""
    left = o.reshape(o.slice_(x, axis=0, start=first, stop=last), s)
    single = Where(x.rank == 3, s == (x.shape[1], 1, x.shape[2]), x.shape[1] > 1)
    return left, o.slice_(o.transpose(x, (1, 0, 2)), axis=1, start=first, stop=last), single


@rule(grade="E", marks=ANY)
def step_without_batch(x: Tensor, first: Int, last: Int, s: Ints) -> Law:
    """reshape(slice(x, 0, t, t + 1)) = slice(reshape(x), 0, t, t + 1) for a batch of one"""
    flat = o.reshape(x, (x.shape[0], x.shape[2]))
    single = Where(last == first + 1, s == (1, x.shape[2]))
    return o.reshape(o.slice_(x, axis=0, start=first, stop=last), s), o.slice_(flat, axis=0, start=first, stop=last), single


@rule(grade="E", marks=ANY)
def step_with_batch(x: Tensor, first: Int, last: Int, s: Ints) -> Law:
    """reshape(slice(x, 0, t, t + 1), (1, 1, C)) = slice(reshape(x, (T, 1, C)), 0, t, t + 1)"""
    sequence = o.reshape(x, (x.shape[0], 1, x.shape[1]))
    single = Where(x.rank == 2, last == first + 1, s == (1, 1, x.shape[1]))
    return o.reshape(o.slice_(x, axis=0, start=first, stop=last), s), o.slice_(sequence, axis=0, start=first, stop=last), single


@rule(grade="E", marks=ANY)
def slice_of_bias_add(x: Tensor, b: Tensor, axis: Int, along: Int, first: Int, last: Int) -> Law:
    """slice(bias_add(x, b, c), a, t, t + 1) = bias_add(slice(x, a, t, t + 1), b, c) for another axis a than c"""
    left = o.slice_(o.bias_add(x, b, axis=along), axis=axis, start=first, stop=last)
    return left, o.bias_add(o.slice_(x, axis=axis, start=first, stop=last), b, axis=along), Where(axis != along, last == first + 1)


@rule(grade="E", marks=ANY)
def slice_past_reshape_first(x: Tensor, s: Ints, first: Int, last: Int) -> Law:
    """slice(reshape(x, s), 0, l, m) = reshape(slice(x, 0, l, m)) when the first axis is kept"""
    y = o.slice_(o.reshape(x, s), axis=0, start=first, stop=last)
    return y, o.reshape(o.slice_(x, axis=0, start=first, stop=last), y.shape), Where(x.rank > 0, s[0] == x.shape[0], first < last)


@rule(grade="E", marks=ANY)
def slice_past_reshape_last(x: Tensor, s: Ints, axis: Int, first: Int, last: Int) -> Law:
    """slice(reshape(x, s), last axis, l, m) = reshape(slice(x, last axis, l, m)) when the last axis is kept"""
    y = o.slice_(o.reshape(x, s), axis=axis, start=first, stop=last)
    keeps_last = Where(axis == s.length - 1, s[-1] == x.shape[-1], first < last)
    return y, o.reshape(o.slice_(x, axis=x.rank - 1, start=first, stop=last), y.shape), keeps_last


@rule(grade="E", marks=ANY)
def slice_past_unsqueeze(x: Tensor, s: Ints, first: Int, last: Int) -> Law:
    """slice(unsqueeze(x), 1, l, m) = unsqueeze(slice(x, 0, l, m))"""
    y = o.slice_(o.reshape(x, s), axis=1, start=first, stop=last)
    return y, o.reshape(o.slice_(x, axis=0, start=first, stop=last), y.shape), Where(s[0] == 1, s[1:] == x.shape, first < last)


@rule(phase="fold", grade="E", marks=ANY)
def first_steps_into_batch_first(x: Tensor, first: Int, middle: Int, last: Int) -> Law:
    """concat(slice(x, 0, t, t + 1), slice(x, 0, t + 1, t + 2), 1) = slice(xᵀ, 1, t, t + 2) for a batch of one"""
    left, right = o.slice_(x, axis=0, start=first, stop=middle), o.slice_(x, axis=0, start=middle, stop=last)
    batch_first = o.slice_(o.transpose(x, (1, 0, 2)), axis=1, start=first, stop=last)
    return o.concat(left, right, axis=1), batch_first, Where(x.rank == 3, x.shape[1] == 1, last == middle + 1)


@rule(phase="fold", grade="E", marks=ANY)
def next_step_into_batch_first(x: Tensor, first: Int, middle: Int, last: Int) -> Law:
    """concat(slice(xᵀ, 1, l, t), slice(x, 0, t, t + 1), 1) = slice(xᵀ, 1, l, t + 1) for a batch of one"""
    batch_first = o.transpose(x, (1, 0, 2))
    left, right = o.slice_(batch_first, axis=1, start=first, stop=middle), o.slice_(x, axis=0, start=middle, stop=last)
    return o.concat(left, right, axis=1), o.slice_(batch_first, axis=1, start=first, stop=last), Where(x.shape[1] == 1)


# -- sequences backwards


@rule(grade="E", marks=ANY)
def drop_reverses(x: Tensor, axis: Int) -> Law:
    """reverse(reverse(x)) = x"""
    return o.reverse(o.reverse(x, axis=axis), axis=axis), x


@rule(grade="E", marks=ANY)
def reverse_past_transpose(x: Tensor, p: Ints, axis: Int) -> Law:
    """reverse(transpose(x, p), a) = transpose(reverse(x, p[a]), p)"""
    return o.reverse(o.transpose(x, p), axis=axis), o.transpose(o.reverse(x, axis=p[axis]), p)


@rule(grade="E", marks=ANY)
def step_of_reverse(x: Tensor, axis: Int, first: Int, last: Int) -> Law:
    """slice(reverse(x), a, t, t + 1) = slice(x, a, n − t − 1, n − t) for n steps"""
    extent = x.shape[axis]
    left = o.slice_(o.reverse(x, axis=axis), axis=axis, start=first, stop=last)
    return left, o.slice_(x, axis=axis, start=extent - last, stop=extent - first), Where(last == first + 1)


@rule(grade="E", marks=ANY)
def last_step_reversed(x: Tensor, first: Int, last: Int) -> Law:
    """slice(x, 0, n − 1, n) = its reverse: where a sequence that runs backwards begins"""
    y = o.slice_(x, axis=0, start=first, stop=last)
    return y, o.reverse(y, axis=0), Where(x.rank == 3, last == x.shape[0], last == first + 1, first > 0)


# -- two sequences side by side


@rule(grade="E", marks=ANY)
def concat_of_slices(x: Tensor, y: Tensor, axis: Int, along: Int, first: Int, last: Int) -> Law:
    """concat(slice(x, a, l, m), slice(y, a, l, m), b) = slice(concat(x, y, b), a, l, m)"""
    left = o.concat(*(o.slice_(v, axis=axis, start=first, stop=last) for v in (x, y)), axis=along)
    right = o.slice_(o.concat(x, y, axis=along), axis=axis, start=first, stop=last)
    return left, right, Where(axis != along, x.shape[axis] == y.shape[axis], first < last)


@rule(grade="E", marks=ANY)
def concat_of_reshapes(x: Tensor, y: Tensor, s: Ints, t: Ints, along: Int) -> Law:
    """concat(reshape(x, s), reshape(y, t), last) = reshape(concat(x, y, last)) when the last axes are kept"""
    z = o.concat(o.reshape(x, s), o.reshape(y, t), axis=along)
    keeps_last = Where(along == s.length - 1, s[-1] == x.shape[-1], x.rank == y.rank, x.shape[:-1] == y.shape[:-1])
    return z, o.reshape(o.concat(x, y, axis=x.rank - 1), z.shape), keeps_last
