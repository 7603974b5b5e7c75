"""VTA compute: GEMM, micro-ops inside two loops; each index is the micro-op's plus a factor a loop. And FINISH."""

from collections.abc import Callable
from functools import partial

from rewrite_compiler.ila import Fields, Ila
from rewrite_compiler.lang import Expr, Leaf, Step, assign, lift, loop, maximum, reduce, reduce_sum, require, seq, updates, when, wrap

from .config import Config
from .fields import FINISH, GEMM, Words

OPERANDS = ("dst", "src", "wgt")  # the indices of a micro-op


def declare_compute(m: Ila, c: Config, words: Words) -> None:
    """Declare GEMM and FINISH."""
    clear = "Add input · weightᵀ to accumulators, or clear them (reset)."
    m.encoded("gemm", words["gemm"], {"opcode": GEMM}, partial(_gemm, m, c), doc=clear)
    doc = "Raise the done flag; the published ILA has no such instruction and ignores it."
    m.encoded("finish", words["finish"], {"opcode": FINISH}, lambda f: assign(m.s.done, 1), doc=doc)


def nest(m: Ila, c: Config, f: Fields, sorts: tuple[str, ...], body: Callable[..., Step]) -> Step:
    """Run the micro-ops uop_bgn … uop_end−1 in order inside both loops; loops of the published ILA run at least once.

    `sorts` are the buffers that destination, source and weight index address; `body` gets these indices.
    """
    least = 1 if c.behaviour == "ila" else 0
    outer, inner, count = (maximum(n, least) for n in (f.iter_out, f.iter_in, f.uop_end - f.uop_bgn))

    def indices(k: Expr) -> tuple[Expr, ...]:
        return c.indices(m.s.uop[(f.uop_bgn + k) % c.depth("uop")])

    def offset(n: int, y: Expr, x: Expr) -> Expr:
        return y * f[f"{OPERANDS[n]}_factor_out"] + x * f[f"{OPERANDS[n]}_factor_in"]

    def micro_op(y: Expr, x: Expr, k: Expr) -> Step:
        return body(*((i + offset(n, y, x)) % c.depth(sort) for n, (i, sort) in enumerate(zip(indices(k), sorts, strict=False))))

    def inside(n: int, sort: str) -> Step:
        last = reduce("max", lambda k: indices(k)[n], count) + offset(n, outer - 1, inner - 1)
        sentence = f"a micro-op addresses element {{last}} of {sort}, which has {c.depth(sort)}"
        return require(last < c.depth(sort), "I103", sentence, last=last)

    sentence = f"uop_end must be at most {c.depth('uop')}, not {{end}}"
    ends = require(f.uop_bgn + count <= c.depth("uop"), "I103", sentence, end=f.uop_end)
    run = seq(ends, *(inside(n, sort) for n, sort in enumerate(sorts)), loop((outer, inner, count), micro_op))
    return when((outer > 0) & (inner > 0) & (count > 0), run)


def results(m: Ila, c: Config, dst: Expr, values: Callable[[Expr, Expr], tuple[Expr, Expr]]) -> Step:
    """Write accumulator element `dst` and, where there is an OUT buffer, the low bits of the output: values(row, column) = (acc, out)."""

    def rows(b: Expr, o: Expr) -> list[tuple[Leaf, tuple[Expr, ...], Expr]]:
        acc, out = values(b, o)
        outputs = [] if c.behaviour == "fsim" else [(m.s.out, (dst, b, o), wrap(out, c.width("out")))]
        return [(m.s.acc, (dst, b, o), acc), *outputs]

    return updates((c.batch, c.block), rows)


def _gemm(m: Ila, c: Config, f: Fields) -> Step:
    s = m.s

    def micro_op(is_reset: bool, dst: Expr, src: Expr, wgt: Expr) -> Step:
        def values(b: Expr, o: Expr) -> tuple[Expr, Expr]:
            dot = reduce_sum(lambda k: s.inp[src, b, k] * s.wgt[wgt, o, k], c.block)
            total = wrap(s.acc[dst, b, o] + dot, c.width("acc"))
            return (lift(0), total) if is_reset else (total, total)  # a design with an OUT buffer computes its output before it clears

        return results(m, c, dst, values)

    clearing, adding = (nest(m, c, f, ("acc", "inp", "wgt"), partial(micro_op, is_reset)) for is_reset in (True, False))
    return when(f.reset, clearing, adding)
