"""Random typed terms and steps, for differential tests."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import strategies as st

from rewrite_compiler.lang import (
    Expr,
    Leaf,
    Table,
    absolute,
    array,
    bit_not,
    clamp,
    clz,
    concat,
    const,
    extract,
    fold,
    fold_arrays,
    maximum,
    minimum,
    reduce,
    sat,
    select,
    shift,
    shift_right,
    signed,
    switch,
    trunc_div,
    trunc_mod,
    wrap,
)
from rewrite_compiler.lang import intervals as iv
from rewrite_compiler.lang.arithmetic import ROUNDINGS
from rewrite_compiler.lang.binders import scalar_array, static_shape

WIDTHS = [(1, False), (3, True), (8, False), (8, True), (16, True), (31, False), (32, True), (62, True)]
LARGEST = 1 << 80  # terms beyond are wrapped: exact, but slow to test
TABLES = [
    Table("square", lambda x: x * x - 3, (-8, 7)),
    Table("mixed", lambda x, y: select(x > y, x - 2 * y, y << 2), (0, 7), (-4, 3)),
]


def values_in(interval: iv.Interval) -> st.SearchStrategy[int]:
    """Values of a bounded interval, its ends often."""
    low, high = interval
    assert low is not None
    assert high is not None
    return st.one_of(st.sampled_from([low, high, min(max(0, low), high)]), st.integers(low, high))


@dataclass
class Terms:
    """Draws terms over given leaves and variables."""

    draw: st.DrawFn
    leaves: list[Leaf] = field(default_factory=list)
    variables: list[Expr] = field(default_factory=list)
    budget: int = 40

    def pick(self, items: list[str]) -> str:
        return self.draw(st.sampled_from(items))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def leaf(self, name: str) -> Leaf:
        """Declare one more operand."""
        bits, is_signed = self.draw(st.sampled_from(WIDTHS))
        shape = tuple(self.number(1, 4) for _ in range(self.number(0, 2)))
        self.leaves.append(Leaf(shape, iv.of_width(bits, is_signed), False, name))
        return self.leaves[-1]

    def term(self, depth: int = 4) -> Expr:
        """Return an integer term with a bounded interval."""
        self.budget -= 1
        leafy = depth <= 0 or self.budget <= 0
        kind = self.pick(["const", "var", "load", "load"] if leafy else ["load", *MAKERS])
        made = MAKERS[kind](self, depth - 1) if kind in MAKERS else getattr(self, f"_{kind}")()
        low, high = made.interval
        return wrap(made, 64, True) if low is None or high is None or max(-low, high) > LARGEST else made

    def _const(self) -> Expr:
        return const(self.draw(st.one_of(st.integers(-3, 9), st.integers(-(1 << 40), 1 << 40))))

    def _var(self) -> Expr:
        return self.draw(st.sampled_from(self.variables)) if self.variables else self._const()

    def _load(self) -> Expr:
        source = self.draw(st.sampled_from(self.leaves))
        return source[tuple(self.index(n) for n in static_shape(source))]

    def index(self, n: int) -> Expr:
        """Return a term inside 0 … n−1."""
        if self.variables and self.number(0, 3):
            v = self.draw(st.sampled_from(self.variables))
            offset = v * self.number(1, 2) + self.number(0, 2)
            return v if iv.inside(v.interval, (0, n - 1)) else offset % n
        return const(self.number(0, n - 1))

    def condition(self, depth: int) -> Expr:
        """Return a truth value."""
        a, b = self.term(depth), self.term(depth)
        made = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[
            self.pick(["eq", "ne", "lt", "le", "gt", "ge"])
        ]
        joined = self.pick(["plain", "plain", "not", "and", "or"])
        if joined == "plain" or depth <= 0:
            return made
        if joined == "not":
            return ~made
        other = self.condition(depth - 1)
        return made & other if joined == "and" else made | other

    def small(self, depth: int, high: int) -> Expr:
        """Return a term inside 0 … high."""
        return self.term(depth) % (high + 1)

    def with_variables(self, extents: tuple[int, ...], body_depth: int) -> object:
        """Return a function of bound variables, for a binder."""

        def body(*variables: Expr) -> Expr:
            outer, self.variables = self.variables, [*self.variables, *variables]
            made = self.term(body_depth)
            self.variables = outer
            return made

        return body


def _arithmetic(t: Terms, d: int) -> Expr:
    a, b = t.term(d), t.term(d)
    return {"add": a + b, "sub": a - b, "mul": a * b, "neg": -a}[t.pick(["add", "sub", "mul", "neg"])]


def _division(t: Terms, d: int) -> Expr:
    a, b = t.term(d), t.term(d)
    divisor = t.pick(["any", "guarded", "positive", "constant"])
    if divisor == "constant":
        b = const(t.draw(st.sampled_from([1, 2, 3, 8, 100, -1, -2, -7])))
    if divisor == "positive":
        b = maximum(absolute(b), 1)
    q = {"div": lambda: a // b, "mod": lambda: a % b, "tdiv": lambda: trunc_div(a, b), "tmod": lambda: trunc_mod(a, b)}
    if b.value == 0:
        return a
    made = q[t.pick(list(q))]()
    return select(b == 0, a, made) if divisor == "guarded" else made


def _shift(t: Terms, d: int) -> Expr:
    a = t.term(d)
    n: Expr | int = t.number(0, 12) if t.number(0, 1) else t.small(d, t.draw(st.sampled_from([3, 20, 70])))
    kind = t.pick(["left", "right", "either", "rounded", "rounded"])
    if kind == "left":
        return wrap(a, 16, True) << n
    if kind == "right":
        return a >> n
    if kind == "either":
        return shift(wrap(a, 16, True), n - 5)
    return shift_right(a, n, t.draw(st.sampled_from(ROUNDINGS)))


def _bits(t: Terms, d: int) -> Expr:
    a, b = t.term(d), t.term(d)
    return {"and": a & b, "or": a | b, "xor": a ^ b}[t.pick(["and", "or", "xor"])]


def _fields(t: Terms, d: int) -> Expr:
    bits = t.number(1, 40)
    word = wrap(t.term(d), bits, False)
    kind = t.pick(["extract", "clz", "concat", "signed", "not", "slice"])
    if kind == "extract":
        return extract(word, t.number(0, bits), t.number(1, 12))
    if kind == "clz":
        return clz(word, bits)
    if kind == "concat":
        return concat((t.term(d), t.number(1, 9)), (word, bits))
    if kind == "signed":
        return signed(word, t.number(1, bits))
    return bit_not(word, bits) if kind == "not" else word[0 : t.number(1, bits)]


def _limits(t: Terms, d: int) -> Expr:
    a, b, bits = t.term(d), t.term(d), t.number(1, 40)
    low = t.number(-99, 99)
    return {
        "min": minimum(a, b),
        "max": maximum(a, b),
        "sat": sat(a, bits, bool(t.number(0, 1))),
        "wrap": wrap(a, bits, bool(t.number(0, 1))),
        "clamp": clamp(a, low, low + t.number(0, 99)),
        "abs": absolute(a),
    }[t.pick(["min", "max", "sat", "wrap", "clamp", "abs"])]


def _choice(t: Terms, d: int) -> Expr:
    if t.number(0, 2):
        return select(t.condition(d), t.term(d), t.term(d))
    return switch(t.small(d, 3), t.term(d), t.term(d), t.term(d - 1))


def _truth(t: Terms, d: int) -> Expr:
    return t.condition(d)


def _reduced(t: Terms, d: int) -> Expr:
    extents = tuple(t.number(1, 3) for _ in range(t.number(1, 2)))
    return reduce(t.pick(["sum", "max", "min", "sum"]), t.with_variables(extents, d), extents)


def _product_sum(t: Terms, d: int) -> Expr:
    """A sum of products of loads: what BLAS is asked to do."""
    n = t.number(1, 4)

    def body(c: Expr) -> Expr:
        outer, t.variables = t.variables, [*t.variables, c]
        made = t._load() * t._load()
        t.variables = outer
        return made * 3 if t.budget % 4 == 0 else made

    return reduce("sum", body, n)


def _looked_up(t: Terms, d: int) -> Expr:
    if t.number(0, 1):
        return TABLES[0](clamp(t.term(d), -8, 7))
    return TABLES[1](t.small(d, 7), clamp(t.term(d), -4, 3))


def _comprehension(t: Terms, d: int) -> Expr:
    extents = tuple(t.number(1, 3) for _ in range(t.number(1, 2)))
    made = array(t.with_variables(extents, d), extents)
    return made[tuple(t.index(n) for n in extents)]


def _folded(t: Terms, d: int) -> Expr:
    bits = t.number(2, 40)

    def step(k: Expr, accumulator: Expr) -> Expr:
        outer, t.variables = t.variables, [*t.variables, k]
        x = t.term(d)
        t.variables = outer
        return wrap(accumulator * t.number(1, 3) + x, bits) if t.number(0, 1) else sat(accumulator + x, bits)

    return fold(t.number(0, 4), wrap(t.term(d - 1), bits), step, iv.of_width(bits, True))


def _fold_of_arrays(t: Terms, d: int) -> Expr:
    """A pair of accumulators, one of them an array, that read each other."""
    n, steps, word = t.number(1, 3), t.number(1, 3), iv.of_width(20, True)
    first = array(t.with_variables((n,), d - 1), n)
    start = array(lambda i: wrap(first[i], 20), n)

    def step(k: Expr, rows: Leaf, total: Leaf) -> list[object]:
        outer, t.variables = t.variables, [*t.variables, k]
        x = t.term(d - 1)
        t.variables = outer
        grown = array(lambda i: wrap(rows[(i + 1) % n] + total[()] + x, 20), n)
        return [grown, scalar_array(sat(total[()] - rows[0], 20))]

    history = bool(t.number(0, 1))
    rows, total = fold_arrays(steps, [start, scalar_array(wrap(t.term(d - 1), 20))], step, [word, word], history=history)
    if history:
        return rows[t.index(steps), t.index(n)] + total[t.index(steps)]
    return rows[t.index(n)] - total[()]


MAKERS = {
    "arithmetic": _arithmetic,
    "division": _division,
    "shift": _shift,
    "bits": _bits,
    "fields": _fields,
    "limits": _limits,
    "choice": _choice,
    "truth": _truth,
    "reduced": _reduced,
    "product_sum": _product_sum,
    "looked_up": _looked_up,
    "comprehension": _comprehension,
    "folded": _folded,
    "fold_of_arrays": _fold_of_arrays,
}


def contents_of(draw: st.DrawFn, leaf: Leaf, lead: tuple[int, ...] = ()) -> list[int]:
    """Draw the elements of a leaf, row-major; its ends are drawn often."""
    count = math.prod((*lead, *static_shape(leaf)))
    return draw(st.lists(values_in(leaf.interval), min_size=count, max_size=count))
