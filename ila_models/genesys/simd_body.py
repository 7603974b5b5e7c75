"""GeneSys SIMD bodies: one operation on rows of lanes, inside of a nest of up to eight loops whose iterators address the rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rewrite_compiler.ila import Fields, Ila
from rewrite_compiler.lang import (
    Expr,
    Leaf,
    Step,
    all_of,
    array,
    cases,
    clamp,
    let,
    lift,
    loop,
    minimum,
    require,
    select,
    seq,
    switch,
    update,
    when,
    wrap,
)  # fmt: skip

from .config import Config
from .functions import COMPARISON, Lane, functions
from .memories import IMMEDIATES
from .words import SPACES

LEVELS = 8
MOST_ROWS = 1 << 20
OUTER = LEVELS - 3  # loops that run in order: rows of the inner ones can be worked on at once
OPERAND_NAMES = ("dst", "src1", "src2")
WRITTEN = {"OBUF": ("obuf", 32), "IBUF": ("ibuf", 8), "VMEM1": ("vmem1", 32), "VMEM2": ("vmem2", 32)}  # space → state, bits of a lane


def declare_nest(m: Ila) -> None:
    """Declare the iterators and the nest."""
    m.register("iterator_base", 32, shape=(8, 32), signed=True, doc="First rows of the iterators, by space and index.")
    m.register("iterator_stride", 32, shape=(8, 32), signed=True, doc="Strides of the iterators in rows.")
    m.register("nest_depth", 4, doc="Loops of the nest.")
    m.register("nest_count", 16, shape=(LEVELS,), doc="Iterations of the nest's loops, outermost first.")
    m.register("nest_space", 3, shape=(3, LEVELS), doc="Spaces of the iterators of destination and sources at each loop.")
    m.register("nest_index", 5, shape=(3, LEVELS), doc="Indices of these iterators.")


class Body:
    """One operation in its nest."""

    def __init__(self, m: Ila, c: Config, opcode: Expr, function: Expr, f: Fields) -> None:
        """Make it of the operation's opcode, function and operands."""
        self.m, self.c, self.opcode, self.function, self.f = m, c, opcode, function, f
        self.depth = m.r.nest_depth
        self.spaces = [f[f"{name}_space"] for name in OPERAND_NAMES]

    def step(self) -> Step:
        """Return the whole nest."""
        s, depth = self.m.s, self.depth

        def iterator(state: Leaf, n: Expr, level: Expr) -> Expr:
            return state[s.nest_space[n, level], s.nest_index[n, level]]

        innermost = (depth + LEVELS - 1) % LEVELS
        bases = array(lambda n: iterator(s.iterator_base, n, innermost), 3)

        # the innermost loop comes last, outer ones that the nest lacks have one iteration
        def exists(k: int | Expr) -> Expr:
            return lift(k) + depth >= LEVELS

        def at(k: int | Expr) -> Expr:
            return (lift(k) + depth) % LEVELS

        strides = array(lambda n, k: select(exists(k), iterator(s.iterator_stride, n, at(k)), 0), (3, LEVELS))
        counts = [select(exists(k), s.nest_count[at(k)], 1) for k in range(LEVELS)]

        def nest(base: Leaf) -> Step:
            equal = [
                (level >= depth) | (iterator(s.iterator_base, lift(n), lift(level)) == base[n]) for n in range(3) for level in range(LEVELS)
            ]
            same = require(all_of(equal), "I102", "the iterators of one operand must have the same base at every loop", always=True)
            return seq(same, let(strides, partial(self._nest, base, counts), "strides"))

        within = require(depth > 0, "I102", "a body must stand in a nest: SET_ITER, SET_INDEX and SET_INST come before", always=True)
        return seq(within, self._known(), let(bases, nest, "bases"))

    def _known(self) -> Step:
        """Refuse functions that have no definition, and destinations that cannot be written."""
        steps = []
        for opcode, table in functions(self.c.calculus).items():
            missing = {n: name for n, (name, function) in table.items() if function is None}
            for n, name in missing.items():
                is_other = (self.opcode != opcode) | (self.function != n)
                steps.append(require(is_other, "I101", f"{name} is not modelled: nothing published says what it gives", always=True))
        known = all_of([self.f.dst_space <= SPACES["VMEM2"], self.f.src1_space <= SPACES["IMM"], self.f.src2_space <= SPACES["IMM"]])
        return seq(*steps, require(known, "I102", "a body must write a buffer and read buffers or scalars", always=True))

    def _nest(self, base: Leaf, counts: Sequence[Expr], stride: Leaf) -> Step:
        """Return the operation on all rows: at once where every result has a row of its own that no other result is made of."""
        in_order = loop(counts, lambda *i: self._rows(base, stride, i))
        return when(self._is_apart(base, counts, stride), self._at_once(base, counts, stride), in_order)

    def _is_apart(self, base: Leaf, counts: Sequence[Expr], stride: Leaf) -> Expr:
        """Whether the inner loops' results lie in rows of their own, and sources there or in other rows."""
        last = [base[n] + sum((minimum(c - 1, MOST_ROWS) * stride[n, at] for at, c in enumerate(counts)), lift(0)) for n in range(3)]
        conditions = [self.opcode != COMPARISON, base[0] >= 0, last[0] < self._depth()]
        extent: Expr = lift(1)
        for level in reversed(range(OUTER, LEVELS)):
            is_single, step = counts[level] == 1, stride[0, level]
            conditions.append(is_single | (step >= extent))
            extent = select(is_single, extent, clamp((counts[level] - 1) * step + extent, 0, MOST_ROWS))
        for n in (1, 2):
            ascends = all_of((counts[level] == 1) | (stride[n, level] >= 0) for level in range(LEVELS))
            is_same = all_of((counts[level] == 1) | (stride[n, level] == stride[0, level]) for level in range(LEVELS))
            is_elsewhere = ascends & (base[n] >= 0) & (last[n] < self._depth()) & ((last[n] < base[0]) | (base[n] > last[0]))
            conditions.append((self.spaces[n] != self.spaces[0]) | ((base[n] == base[0]) & is_same) | is_elsewhere)
        return all_of(conditions)

    def _depth(self) -> Expr:
        """Return the rows of the destination's buffer."""
        return switch(self.f.dst_space, *(self.m.s[name].shape[0] for name, _ in WRITTEN.values()))

    def _at_once(self, base: Leaf, counts: Sequence[Expr], stride: Leaf) -> Step:
        """Return the operation on the rows of the inner loops at once, for each iteration of the outer ones in order."""

        shape: tuple[int | Expr, ...] = (*counts[OUTER:], self.c.lanes)

        def iteration(*outer: Expr) -> Step:
            def row(n: int | Expr, inner: Sequence[Expr]) -> Expr:
                return base[n] + sum((i * stride[n, at] for at, i in enumerate((*outer, *inner))), lift(0))

            def operand(n: Expr, *at: Expr) -> Expr:
                return self._read(switch(n, *self.spaces), row(n, at[:-1]), at[-1])

            def compute(x: Leaf) -> Step:
                results = array(lambda *at: self._lane(x[(1, *at)], x[(2, *at)], x[(0, *at)], at[-1]), shape)
                return let(results, write, "results")

            def write(y: Leaf) -> Step:
                def target(name: str, bits: int) -> Step:
                    memory = self.m.s[name]
                    return update(memory, shape, lambda *at: ((row(0, at[:-1]) % memory.shape[0], at[-1]), wrap(y[at], bits, True)))

                return cases(self.f.dst_space, {SPACES[space]: target(*state) for space, state in WRITTEN.items()})

            return let(array(operand, (3, *shape)), compute, "lanes")

        return loop(counts[:OUTER], iteration)

    def _rows(self, base: Leaf, stride: Leaf, indices: Sequence[Expr]) -> Step:
        """Return the operation on one row of each operand, which are read first."""
        rows = [base[n] + sum((i * stride[n, level] for level, i in enumerate(indices)), lift(0)) for n in range(3)]

        def operands(row: Leaf) -> Step:
            lanes = array(lambda n, k: self._read(switch(n, *self.spaces), row[n], k), (3, self.c.lanes))

            def compute(x: Leaf) -> Step:
                result = array(lambda k: self._lane(x[1, k], x[2, k], x[0, k], k), self.c.lanes)
                return let(result, lambda y: self._written(row, y), "results")

            return let(lanes, compute, "lanes")

        return let(array(lambda n: switch(n, *rows), 3), operands, "rows")

    def _written(self, row: Leaf, result: Leaf) -> Step:
        writes = {SPACES[space]: self._write(*target, row[0], result) for space, target in WRITTEN.items()}
        flags = update(self.m.s.flags, self.c.lanes, lambda k: (k, wrap(result[k], 1, False)))
        return seq(when(self.opcode == COMPARISON, flags), cases(self.f.dst_space, writes))

    def _write(self, name: str, bits: int, row: Expr, result: Leaf) -> Step:
        memory = self.m.s[name]
        return update(memory, self.c.lanes, lambda k: ((row % memory.shape[0], k), wrap(result[k], bits, True)))

    def _read(self, space: Expr, row: Expr, k: Expr) -> Expr:
        s = self.m.s
        buffers = [s[name][row % s[name].shape[0], k] for name in ("obuf", "ibuf", "vmem1", "vmem2")]
        return switch(space, *buffers, s.imm[row % IMMEDIATES])

    def _lane(self, a: Expr, b: Expr, old: Expr, k: Expr) -> Expr:
        width = switch(self.m.r.type, 32, 16, 8)
        lane = Lane(a, b, old, self.m.s.flags[k], clamp(width - self.m.s.integer_bits[0], 0, 31))
        result = lift(0)
        for opcode, table in reversed([*functions(self.c.calculus).items()]):
            value = lift(0)
            for number, (_, function) in reversed([*table.items()]):
                if function is not None:
                    value = select(self.function == number, wrap(function(lane), 32, True), value)
            result = select(self.opcode == opcode, value, result)
        return result
