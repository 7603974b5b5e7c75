"""A second meaning of the language, for tests only: terms walked with Python integers, steps one element at a time.

Written from the node table of the language and sharing no code with any reading. What has no value (division by zero, a
negative shift, an element outside of its array) raises `Undefined`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from rewrite_compiler.lang.binders import Array, Comprehension, FoldResult, Leaf
from rewrite_compiler.lang.expr import Expr
from rewrite_compiler.lang.step import Let, Loop, Require, Seq, Step, Together, Update, When

Contents = dict[tuple[int, ...], Any]


class Undefined(Exception):
    """A term without a value was evaluated."""


class Walker:
    def __init__(self, memories: Mapping[Leaf, Contents]) -> None:
        self.memories = dict(memories)
        self.accumulators: dict[Leaf, Contents] = {}
        self.known: dict[Any, Contents] = {}  # arrays computed since a memory or an accumulator last changed

    # -- terms

    def value(self, e: Expr, env: Mapping[Expr, int]) -> Any:
        if e.op == "const":
            return e.data
        if e.op == "var":
            return env[e]
        if e.op == "select":
            return self.value(e.args[1 if self.value(e.args[0], env) else 2], env)
        if e.op == "load":
            return self.element(e.data, tuple(self.value(i, env) for i in e.args), env)
        if e.op == "reduce":
            return self.reduce(e, env)
        operands = [self.value(a, env) for a in e.args]
        if e.op == "table":
            return self.value(e.data.body, dict(zip(e.data.parameters, operands, strict=True)))
        return MEANING[e.op](e.data, *operands)

    def reduce(self, e: Expr, env: Mapping[Expr, int]) -> Any:
        monoid, variables = e.data
        ranges = [range(self.value(n, env)) for n in e.args[1:]]
        found = [self.value(e.args[0], {**env, **dict(zip(variables, at, strict=True))}) for at in itertools.product(*ranges)]
        if monoid != "sum" and not found:
            raise Undefined(monoid)
        return {"sum": sum, "max": max, "min": min}[monoid](found)

    def shape(self, a: Array, env: Mapping[Expr, int]) -> tuple[int, ...]:
        return tuple(self.value(n, env) if isinstance(n, Expr) else n for n in a.shape)

    def element(self, a: Array, at: tuple[int, ...], env: Mapping[Expr, int]) -> Any:
        if any(not 0 <= i < n for i, n in zip(at, self.shape(a, env), strict=True)):
            raise Undefined(f"element {at}")
        if isinstance(a, Comprehension):
            return self.comprehended(a, env)[at]
        if isinstance(a, FoldResult):
            return self.folded(a, env)[at]
        assert isinstance(a, Leaf)
        return self.accumulators[a][at] if a in self.accumulators else self.memories[a][at]

    def comprehended(self, a: Comprehension, env: Mapping[Expr, int]) -> Contents:
        """Return all elements: an array of which one element has no value has none."""
        key = (a, tuple(sorted((v.data[1], env[v]) for v in a.free)))
        if key not in self.known:
            points = itertools.product(*map(range, self.shape(a, env)))
            self.known[key] = {at: self.value(a.body, {**env, **dict(zip(a.variables, at, strict=True))}) for at in points}
        return self.known[key]

    def contents(self, a: Array, env: Mapping[Expr, int]) -> Contents:
        if isinstance(a, Comprehension):
            return self.comprehended(a, env)
        return {at: self.element(a, at, env) for at in itertools.product(*map(range, self.shape(a, env)))}

    def folded(self, a: FoldResult, env: Mapping[Expr, int]) -> Contents:
        f = a.fold
        current = [self.contents(first, env) for first in f.initial]
        history: Contents = {}
        saved = dict(self.accumulators)
        for k in range(self.value(f.extent, env)):
            self.accumulators.update(zip(f.accumulators, current, strict=True))
            self.known.clear()
            current = [self.contents(body, {**env, f.variable: k}) for body in f.bodies]
            history.update({(k, *at): x for at, x in current[a.component].items()})
        self.accumulators = saved
        self.known.clear()
        return history if a.history else current[a.component]

    # -- steps

    def run(self, step: Step, env: Mapping[Expr, int] | None = None) -> None:
        env = env or {}
        if isinstance(step, Update):
            self.store([(step.memory, *w) for w in self.writes(step, env)])
        elif isinstance(step, Together):
            self.store([(u.memory, *w) for u in step.updates for w in self.writes(u, env)])
        elif isinstance(step, Seq):
            for part in step.steps:
                self.run(part, env)
        elif isinstance(step, Loop):
            for k in range(self.value(step.extent, env)):
                self.run(step.body, {**env, step.variable: k})
        elif isinstance(step, When):
            self.run(step.then if self.value(step.condition, env) else step.otherwise, env)
        elif isinstance(step, Let):
            self.memories[step.local] = dict(self.contents(step.array, env))
            self.known.clear()
            self.run(step.body, env)
        else:
            assert isinstance(step, Require)

    def writes(self, u: Update, env: Mapping[Expr, int]) -> list[tuple[tuple[int, ...], Any]]:
        found = []
        for at in itertools.product(*(range(self.value(n, env)) for n in u.extents)):
            inner = {**env, **dict(zip(u.variables, at, strict=True))}
            found.append((tuple(self.value(a, inner) for a in u.address), self.value(u.value, inner)))
        if len({place for place, _ in found}) != len(found):
            raise Undefined("two elements of an update have the same address")
        return found

    def store(self, writes: list[tuple[Leaf, tuple[int, ...], Any]]) -> None:
        self.known.clear()
        for leaf, place, value in writes:
            if place not in self.memories[leaf]:
                raise Undefined(f"{leaf.name}{place}")
            self.memories[leaf][place] = value


def _divided(quotient: Callable[[int, int], int], remainder: bool) -> Callable[..., int]:
    def apply(data: None, x: int, y: int) -> int:
        if y == 0:
            raise Undefined("division by zero")
        return x - y * quotient(x, y) if remainder else quotient(x, y)

    return apply


def _toward_zero(x: int, y: int) -> int:
    size = abs(x) // abs(y)
    return size if (x >= 0) == (y > 0) else -size


def _floor(x: int, y: int) -> int:
    return (x - x % y) // y


def _shifted(data: None, x: int, n: int, left: bool) -> int:
    if n < 0:
        raise Undefined("negative shift")
    return x * 2**n if left else (x - x % 2**n) // 2**n


def _wrapped(data: tuple[int, bool], x: int) -> int:
    bits, signed = data
    low = x % 2**bits
    return low - 2**bits if signed and low >= 2 ** (bits - 1) else low


def _leading_zeros(bits: int, x: int) -> int:
    return next((n for n in range(bits) if x // 2 ** (bits - 1 - n) % 2), bits)


MEANING: dict[str, Callable[..., Any]] = {
    "add": lambda d, x, y: x + y,
    "sub": lambda d, x, y: x - y,
    "mul": lambda d, x, y: x * y,
    "neg": lambda d, x: -x,
    "not": lambda d, x: 1 - x,
    "div": _divided(_floor, False),
    "mod": _divided(_floor, True),
    "tdiv": _divided(_toward_zero, False),
    "tmod": _divided(_toward_zero, True),
    "shl": lambda d, x, n: _shifted(d, x, n, True),
    "shr": lambda d, x, n: _shifted(d, x, n, False),
    "min": lambda d, x, y: x if x < y else y,
    "max": lambda d, x, y: x if x > y else y,
    "bitand": lambda d, x, y: x & y,
    "bitor": lambda d, x, y: x | y,
    "bitxor": lambda d, x, y: x ^ y,
    "eq": lambda d, x, y: int(x == y),
    "ne": lambda d, x, y: int(x != y),
    "lt": lambda d, x, y: int(x < y),
    "le": lambda d, x, y: int(x <= y),
    "extract": lambda d, x: x // 2 ** d[0] % 2 ** d[1],
    "wrap": _wrapped,
    "clz": _leading_zeros,
    "real": lambda d, x: x,
    "floor": lambda d, x: math.floor(x),
    "rint": lambda d, x: round(x),
    "rdiv": lambda d, x, y: x / y,
}
