"""Products by one known matrix for each head: each head is a product of its own."""

from rewrite_compiler import IsConstant, Law, Tensor, Where, rule
from rewrite_compiler import ops as o

RING = ("ring",)


@rule(grade="E", marks=RING)
def halves_of_heads(a: Tensor, b: Tensor) -> Law:
    """a·b = the products of the first half of the heads beside those of the others, for known b"""
    half, heads = b.shape[0] // 2, b.shape[0]

    def part(start: object, stop: object) -> Tensor:
        product: Tensor = o.matmul(o.slice_(a, axis=0, start=start, stop=stop), o.slice_(b, axis=0, start=start, stop=stop))
        return product

    several = Where(IsConstant(b), a.rank == 3, b.rank == 3, a.shape[0] == b.shape[0], b.shape[0] > 1)
    return o.matmul(a, b), o.concat(part(0, half), part(half, heads), axis=0), several


@rule(grade="E", marks=RING)
def samples_of_heads(a: Tensor, b: Tensor) -> Law:
    """a·b = (the rows of all samples, head by head)·b for known b"""
    samples, heads, rows, inner = (a.shape[k] for k in range(4))
    merged = o.reshape(o.transpose(a, (1, 0, 2, 3)), (heads, samples * rows, inner))
    product = o.reshape(o.matmul(merged, b), (heads, samples, rows, b.shape[2]))
    return o.matmul(a, b), o.transpose(product, (1, 0, 2, 3)), Where(IsConstant(b), a.rank == 4, b.rank == 3, a.shape[1] == b.shape[0])
