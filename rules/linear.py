"""Linear layers: every spelling of x·wᵀ + b becomes bias_add(dense(x, w), b) on rank 2."""

from rewrite_compiler import IsConstant, Law, Rule, Tensor, Where, rule
from rewrite_compiler import ops as o
from rewrite_compiler.rewrite import Int, Ints

RING = ("ring",)
SPELLING = ("ring", "spelling")  # another way to write one source operator: exact matching may use it


@rule(grade="E", marks=SPELLING)
def matmul_as_dense(a: Tensor, b: Tensor) -> Law:
    """a·b = dense(a, bᵀ)"""
    return o.matmul(a, b), o.dense(a, o.transpose(b, (1, 0))), Where(b.rank == 2)


@rule(grade="E", marks=RING)
def matmul_of_constant_as_dense(a: Tensor, b: Tensor) -> Law:
    """a·b = dense(bᵀ, a)ᵀ"""
    return o.matmul(a, b), o.transpose(o.dense(o.transpose(b, (1, 0)), a), (1, 0)), Where(IsConstant(a), a.rank == 2, b.rank == 2)


@rule(grade="E", marks=RING)
def batched_matmul_of_constant_as_dense(a: Tensor, b: Tensor) -> Law:
    """a·b = dense(bᵀ, a)ᵀ for every b of a batch"""
    return o.matmul(a, b), o.transpose(o.dense(o.transpose(b, (0, 2, 1)), a), (0, 2, 1)), Where(IsConstant(a), a.rank == 2, b.rank == 3)


@rule(grade="E", marks=RING)
def matmul_of_single_batch(a: Tensor, b: Tensor) -> Law:
    """a·b = reshape(reshape(a)·reshape(b)) for batches of one"""
    y = o.matmul(a, b)
    product = o.matmul(o.reshape(a, (a.shape[1], a.shape[2])), o.reshape(b, (b.shape[1], b.shape[2])))
    return y, o.reshape(product, y.shape), Where(a.rank == 3, b.rank == 3, a.shape[0] == 1, b.shape[0] == 1)


@rule(grade="E", marks=RING)
def flatten_dense(x: Tensor, w: Tensor) -> Law:
    """dense(x, w) = reshape(dense(reshape(x, (rows, k)), w))"""
    y = o.dense(x, w)
    k = w.shape[1]
    return y, o.reshape(o.dense(o.reshape(x, (x.size // k, k)), w), y.shape), Where(x.rank != 2, k > 0)


@rule(grade="E", marks=RING)
def row_of_dense(x: Tensor, w: Tensor, first: Int, last: Int) -> Law:
    """slice(dense(x, w), 0, t, t + 1) = dense(slice(x, 0, t, t + 1), w): the product of a whole sequence, one step of it"""
    left = o.slice_(o.dense(x, w), axis=0, start=first, stop=last)
    return left, o.dense(o.slice_(x, axis=0, start=first, stop=last), w), Where(IsConstant(w), x.rank == 2, last == first + 1)


@rule(grade="E", marks=SPELLING)
def commute_addition(x: Tensor, y: Tensor) -> Law:
    """x + y = y + x"""
    return o.add(x, y), o.add(y, x)


@rule(grade="E", marks=RING)
def commute_multiplication(x: Tensor, y: Tensor) -> Law:
    """x · y = y · x"""
    return o.mul(x, y), o.mul(y, x)


@rule(grade="E", marks=RING)
def subtract_constant(x: Tensor, b: Tensor) -> Law:
    """x − b = x + (−b)"""
    return o.sub(x, b), o.add(x, o.neg(b)), Where(IsConstant(b))


def vector_rules(places: int) -> tuple[Rule, Rule]:
    """Return the rules that read a constant with one long axis, `places` from the end, as a bias or a scale."""

    def where(x: Tensor, v: Tensor) -> Where:
        return Where(IsConstant(v), v.size > 0, v.size == v.shape[-places], v.size == x.shape[-places], v.rank <= x.rank, x.rank > 1)

    @rule(name=f"add-as-bias-{places}", grade="E", marks=SPELLING if places == 1 else RING)
    def add_as_bias(x: Tensor, b: Tensor) -> Law:
        """x + b = bias_add(x, b, axis) when all other axes of b have size 1"""
        return o.add(x, b), o.bias_add(x, o.reshape(b, (b.size,)), axis=x.rank - places), where(x, b)

    @rule(name=f"multiply-as-scale-{places}", grade="E", marks=RING)
    def multiply_as_scale(x: Tensor, s: Tensor) -> Law:
        """x · s = scale(x, s, axis) when all other axes of s have size 1"""
        return o.mul(x, s), o.scale(x, o.reshape(s, (s.size,)), axis=x.rank - places), where(x, s)

    return add_as_bias, multiply_as_scale


vectors = [r for places in (1, 2, 3) for r in vector_rules(places)]


@rule(grade="E", marks=RING)
def drop_squeeze_before_addition(x: Tensor, y: Tensor, s: Ints) -> Law:
    """x + squeeze(y) = x + y when x has the axis anyway"""
    return o.add(x, o.reshape(y, s)), o.add(x, y), Where(y.shape[0] == 1, y.shape[1:] == s, y.rank <= x.rank)


@rule(grade="E", marks=RING)
def drop_unsqueeze_before_addition(x: Tensor, y: Tensor, s: Ints) -> Law:
    """x + unsqueeze(y) = x + y when x has the axis anyway"""
    return o.add(x, o.reshape(y, s)), o.add(x, y), Where(s[0] == 1, s[1:] == y.shape, s.length <= x.rank)


@rule(grade="E", marks=RING)
def drop_expand_before_addition(x: Tensor, y: Tensor, s: Ints) -> Law:
    """x + expand(y, s) = x + y when x is as large as the sum"""
    z = o.add(x, o.expand(y, s))
    return z, o.add(x, y), Where(z.shape == x.shape)


@rule(grade="A", marks=RING)
def merge_biases(x: Tensor, b: Tensor, c: Tensor, axis: Int) -> Law:
    """(x + b) + c = x + (b + c) for constant b and c along one axis"""
    constants = Where(IsConstant(b), IsConstant(c))
    return o.bias_add(o.bias_add(x, b, axis=axis), c, axis=axis), o.bias_add(x, o.add(b, c), axis=axis), constants


@rule(grade="A", marks=RING)
def merge_scales(x: Tensor, s: Tensor, t: Tensor, axis: Int) -> Law:
    """(x · s) · t = x · (s · t) for constant s and t along one axis"""
    constants = Where(IsConstant(s), IsConstant(t))
    return o.scale(o.scale(x, s, axis=axis), t, axis=axis), o.scale(x, o.mul(s, t), axis=axis), constants


@rule(grade="A", marks=RING)
def scale_inside_bias(x: Tensor, b: Tensor, s: Tensor, axis: Int) -> Law:
    """(x + b) · s = x · s + b · s for constant b and s along one axis"""
    left = o.scale(o.bias_add(x, b, axis=axis), s, axis=axis)
    return left, o.bias_add(o.scale(x, s, axis=axis), o.mul(b, s), axis=axis), Where(IsConstant(b), IsConstant(s))


@rule(grade="A", marks=RING)
def scale_rows_of_weight(x: Tensor, w: Tensor, s: Tensor, axis: Int) -> Law:
    """dense(x, w) · s = dense(x, w · s by row) for constant w and s"""
    left = o.scale(o.dense(x, w), s, axis=axis)
    return left, o.dense(x, o.scale(w, s, axis=0)), Where(axis == x.rank - 1, IsConstant(w), IsConstant(s))


@rule(phase="late", grade="Z")
def add_zero_bias(x: Tensor, w: Tensor) -> Law:
    """dense(x, w) = bias_add(dense(x, w), 0)"""
    y = o.dense(x, w)
    return y, o.bias_add(y, o.full((w.shape[0],), 0.0), axis=1), Where(x.rank == 2, IsConstant(w))
