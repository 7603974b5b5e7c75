"""Reshape and transpose: they fuse, cancel and move outward past elementwise operators."""

from rewrite_compiler import Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.ops import Op
from rewrite_compiler.rewrite import Float, Int, Ints

ANY = ("any_dtype",)
RING = ("ring",)
# unary operators, and whether their meaning is the same function for every element type
UNARY = {o.relu: ANY, o.neg: ANY, o.abs_: ANY} | dict.fromkeys((o.exp, o.log, o.sqrt, o.tanh, o.erf, o.sigmoid, o.reciprocal), ())
BINARY = (o.add, o.sub, o.mul)


@rule(grade="E", marks=ANY)
def fuse_reshapes(x: Tensor, s: Ints, t: Ints) -> Law:
    """reshape(reshape(x, s), t) = reshape(x, t)"""
    return o.reshape(o.reshape(x, s), t), o.reshape(x, t)


@rule(grade="E", marks=ANY)
def drop_reshape(x: Tensor, s: Ints) -> Law:
    """reshape(x, shape of x) = x"""
    return o.reshape(x, s), x, Where(x.shape == s)


@rule(grade="E", marks=ANY)
def fuse_transposes(x: Tensor, p: Ints, q: Ints) -> Law:
    """transpose(transpose(x, p), q) = transpose(x, p∘q), (p∘q)[j] = p[q[j]]"""
    return o.transpose(o.transpose(x, p), q), o.transpose(x, p.permuted(q))


def drop_transpose(rank: int) -> Rule:
    """Return the rule that removes an identity permutation of `rank` axes."""

    @rule(name=f"drop-transpose-{rank}", grade="E", marks=ANY)
    def drop(x: Tensor) -> Law:
        """transpose(x, (0, 1, …)) = x"""
        return o.transpose(x, tuple(range(rank))), x

    return drop


identities = [drop_transpose(rank) for rank in range(1, 7)]


def channel_moves(perm: tuple[int, int, int, int], first: int, second: int) -> Rule:
    """Return the rule that reads moving the channels past two axes of size 1 as a reshape."""

    @rule(name=f"transpose-as-reshape-{''.join(map(str, perm))}", grade="E", marks=ANY)
    def move(x: Tensor) -> Law:
        """transpose(x, p) = reshape(x) when only axes of size 1 change their order"""
        y = o.transpose(x, perm)
        return y, o.reshape(x, y.shape), Where(x.shape[first] == 1, x.shape[second] == 1)

    return move


@rule(grade="E", marks=ANY)
def turn_single_sequence(x: Tensor) -> Law:
    """transpose(x, (1, 0, 2)) = reshape(x) for a batch of one"""
    y = o.transpose(x, (1, 0, 2))
    return y, o.reshape(x, y.shape), Where(x.shape[0] == 1)


@rule(grade="E", marks=ANY)
def turn_single_matrix(x: Tensor, s: Ints) -> Law:
    """reshape(transpose(x, (0, 2, 1))) = transpose(reshape(x), (1, 0)) for a batch of one"""
    matrix = o.reshape(x, (x.shape[1], x.shape[2]))
    left = o.reshape(o.transpose(x, (0, 2, 1)), s)
    return left, o.transpose(matrix, (1, 0)), Where(x.shape[0] == 1, s == (x.shape[2], x.shape[1]))


@rule(grade="E")
def softmax_past_reshape(x: Tensor, s: Ints, axis: Int) -> Law:
    """softmax(reshape(x, s), last axis) = reshape(softmax(x, last axis), s) when the last axis is kept"""
    keeps_last = Where(axis == s.length - 1, s[-1] == x.shape[-1])
    return o.softmax(o.reshape(x, s), axis=axis), o.reshape(o.softmax(x, axis=x.rank - 1), s), keeps_last


unit_axes = [channel_moves((0, 2, 3, 1), 2, 3), channel_moves((0, 3, 1, 2), 1, 2)]


def past_layout(f: Op, marks: tuple[str, ...]) -> tuple[Rule, Rule]:
    """Return the rules that move a reshape and a transpose outward past the unary operator `f`."""

    @rule(name=f"{f.name}-past-reshape", grade="E", marks=marks)
    def past_reshape(x: Tensor, s: Ints) -> Law:
        """f(reshape(x, s)) = reshape(f(x), s)"""
        return f(o.reshape(x, s)), o.reshape(f(x), s)

    @rule(name=f"{f.name}-past-transpose", grade="E", marks=marks)
    def past_transpose(x: Tensor, p: Ints) -> Law:
        """f(transpose(x, p)) = transpose(f(x), p)"""
        return f(o.transpose(x, p)), o.transpose(f(x), p)

    return past_reshape, past_transpose


unary = [r for f, marks in UNARY.items() for r in past_layout(f, marks)]


@rule(grade="E")
def clip_past_reshape(x: Tensor, s: Ints, low: Float, high: Float) -> Law:
    """clip(reshape(x, s)) = reshape(clip(x), s)"""
    return o.clip(o.reshape(x, s), low, high), o.reshape(o.clip(x, low, high), s)


@rule(grade="E")
def clip_past_transpose(x: Tensor, p: Ints, low: Float, high: Float) -> Law:
    """clip(transpose(x, p)) = transpose(clip(x), p)"""
    return o.clip(o.transpose(x, p), low, high), o.transpose(o.clip(x, low, high), p)


def pair_past_layout(f: Op) -> tuple[Rule, Rule]:
    """Return the rules that move equal reshapes and equal transposes of both operands outward past `f`."""

    @rule(name=f"{f.name}-past-reshapes", grade="E", marks=ANY)
    def past_reshapes(x: Tensor, y: Tensor, s: Ints) -> Law:
        """f(reshape(x, s), reshape(y, s)) = reshape(f(x, y), s)"""
        return f(o.reshape(x, s), o.reshape(y, s)), o.reshape(f(x, y), s), Where(x.shape == y.shape)

    @rule(name=f"{f.name}-past-transposes", grade="E", marks=ANY)
    def past_transposes(x: Tensor, y: Tensor, p: Ints) -> Law:
        """f(transpose(x, p), transpose(y, p)) = transpose(f(x, y), p)"""
        return f(o.transpose(x, p), o.transpose(y, p)), o.transpose(f(x, y), p)

    return past_reshapes, past_transposes


binary = [r for f in BINARY for r in pair_past_layout(f)]


def vector_past_layout(f: Op) -> tuple[Rule, ...]:
    """Return the rules that move a reshape or transpose outward past `f`, which is bias_add or scale."""

    @rule(name=f"{f.name}-past-reshape-last", grade="E", marks=ANY)
    def past_reshape_last(x: Tensor, b: Tensor, s: Ints, axis: Int) -> Law:
        """f(reshape(x, s), b, last) = reshape(f(x, b, last), s) when the last axis is kept"""
        keeps_last = Where(axis == s.length - 1, s[-1] == x.shape[-1])
        return f(o.reshape(x, s), b, axis=axis), o.reshape(f(x, b, axis=x.rank - 1), s), keeps_last

    @rule(name=f"{f.name}-past-reshape-first", grade="E", marks=ANY)
    def past_reshape_first(x: Tensor, b: Tensor, s: Ints) -> Law:
        """f(reshape(x, s), b, 0) = reshape(f(x, b, 0), s) when the first axis is kept"""
        return f(o.reshape(x, s), b, axis=0), o.reshape(f(x, b, axis=0), s), Where(x.shape[0] == s[0])

    @rule(name=f"{f.name}-past-reshape-channel", grade="E", marks=ANY)
    def past_reshape_channel(x: Tensor, b: Tensor, s: Ints) -> Law:
        """f(reshape(x, s), b, 1) = reshape(f(x, b, 1), s) when the first two axes are kept"""
        return f(o.reshape(x, s), b, axis=1), o.reshape(f(x, b, axis=1), s), Where(x.shape[0] == s[0], x.shape[1] == s[1])

    @rule(name=f"{f.name}-past-transpose", grade="E", marks=ANY)
    def past_transpose(x: Tensor, b: Tensor, p: Ints, axis: Int) -> Law:
        """f(transpose(x, p), b, axis) = transpose(f(x, b, p[axis]), p)"""
        return f(o.transpose(x, p), b, axis=axis), o.transpose(f(x, b, axis=p[axis]), p)

    return past_reshape_last, past_reshape_first, past_reshape_channel, past_transpose


along_axis = [r for f in (o.bias_add, o.scale) for r in vector_past_layout(f)]
