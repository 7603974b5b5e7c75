"""Slices: of everything, of neighbours put together, of one step under a reshape."""

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
    turned = o.slice_(o.transpose(x, (1, 0, 2)), axis=0, start=first, stop=last)
    one = Where(x.rank == 3, s == (x.shape[0], x.shape[2]))
    return o.reshape(o.slice_(x, axis=1, start=first, stop=last), s), o.reshape(turned, s), one


@rule(grade="E", marks=ANY)
def step_into_batch_first(x: Tensor, first: Int, last: Int, s: Ints) -> Law:
    """reshape(slice(x, 0, t, t + 1), (N, 1, C)) = slice(xᵀ, 1, t, t + 1)"""
    left = o.reshape(o.slice_(x, axis=0, start=first, stop=last), s)
    one = Where(x.rank == 3, s == (x.shape[1], 1, x.shape[2]), x.shape[1] > 1)
    return left, o.slice_(o.transpose(x, (1, 0, 2)), axis=1, start=first, stop=last), one


@rule(grade="E", marks=ANY)
def step_without_batch(x: Tensor, first: Int, last: Int, s: Ints) -> Law:
    """reshape(slice(x, 0, t, t + 1)) = slice(reshape(x), 0, t, t + 1) for a batch of one"""
    flat = o.reshape(x, (x.shape[0], x.shape[2]))
    one = Where(last == first + 1, s == (1, x.shape[2]))
    return o.reshape(o.slice_(x, axis=0, start=first, stop=last), s), o.slice_(flat, axis=0, start=first, stop=last), one


@rule(phase="fold", grade="E", marks=ANY)
def first_steps_into_batch_first(x: Tensor, first: Int, middle: Int, last: Int) -> Law:
    """concat(slice(x, 0, t, t + 1), slice(x, 0, t + 1, t + 2), 1) = slice(xᵀ, 1, t, t + 2) for a batch of one"""
    left, right = o.slice_(x, axis=0, start=first, stop=middle), o.slice_(x, axis=0, start=middle, stop=last)
    turned = o.slice_(o.transpose(x, (1, 0, 2)), axis=1, start=first, stop=last)
    return o.concat(left, right, axis=1), turned, Where(x.rank == 3, x.shape[1] == 1, last == middle + 1)


@rule(phase="fold", grade="E", marks=ANY)
def next_step_into_batch_first(x: Tensor, first: Int, middle: Int, last: Int) -> Law:
    """concat(slice(xᵀ, 1, l, t), slice(x, 0, t, t + 1), 1) = slice(xᵀ, 1, l, t + 1) for a batch of one"""
    turned = o.transpose(x, (1, 0, 2))
    left, right = o.slice_(turned, axis=1, start=first, stop=middle), o.slice_(x, axis=0, start=middle, stop=last)
    return o.concat(left, right, axis=1), o.slice_(turned, axis=1, start=first, stop=last), Where(x.shape[1] == 1)
