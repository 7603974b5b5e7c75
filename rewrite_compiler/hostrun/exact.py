"""The exact host: operators by their own meaning in single precision, sums in the order of their indices, on any machine.

Every operation rounds to float32; nothing is contracted or reordered. Generated C does the same, so both give the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..ir.program import Data, Node, Program, Value
from ..lang.binders import Array, Comprehension, Leaf
from ..lang.expr import Expr

REAL = (None, None)
Index = np.ndarray[Any, Any]


def run(p: Program, values: Mapping[Value, Data]) -> dict[Value, Data]:
    """Return the outputs of a program for one sample; InputError F161 names an operator that has no exact form."""
    known: dict[Value, Data] = {**p.constants, **values}
    for node in p.nodes:
        known.update(zip(node.outputs, run_node(p, node, [known[v] for v in node.inputs]), strict=True))
    return {v: known[v] for v in p.outputs}


def run_node(p: Program, node: Node, operands: Sequence[Data]) -> list[Data]:
    """Return the results of one operator."""
    place = f'node "{p.names[node.outputs[0]]}"'
    label = p.opaque_of(node).label if node.op == "opaque" else node.op
    if node.operator is None or any(x.dtype != np.float32 for x in operands):
        raise InputError("F161", f"{label} has no exact form", place=place)
    leaves = [Leaf(tuple(x.shape), REAL, True, f"x{n}") for n, x in enumerate(operands)]
    meaning = node.operator.meaning(*leaves, **dict(node.attributes))
    memories = dict(zip(leaves, operands, strict=True))
    with np.errstate(all="ignore"):
        return [_array(a, memories, f"{label} has no exact form", place) for a in (meaning if isinstance(meaning, tuple) else (meaning,))]


def _array(a: Array, memories: Mapping[Leaf, Data], refused: str, place: str) -> Data:
    shape = tuple(int(str(n)) for n in a.shape)
    if isinstance(a, Leaf):
        return memories[a]
    if not isinstance(a, Comprehension):
        raise InputError("F161", refused, place=place)
    grids = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
    found = _Evaluator(memories, refused, place).value(a.body, dict(zip(a.variables, grids, strict=True)))
    return np.array(np.broadcast_to(found, shape), np.float32)


class _Evaluator:
    """Evaluates terms on whole grids of indices, a reduction one step after the other."""

    def __init__(self, memories: Mapping[Leaf, Data], refused: str, place: str) -> None:
        self.memories, self.refused, self.place = memories, refused, place

    def value(self, e: Expr, env: Mapping[Expr, Index]) -> Any:
        """Return the value of a term: int64 or float32."""
        if e.op == "const":
            return np.float32(float(e.data)) if e.real else np.int64(e.data)
        if e.op == "var":
            return env[e]
        if e.op == "load":
            return self.load(e, env)
        if e.op == "reduce":
            return self.reduce(e, env)
        form = FORMS.get(e.data if e.op == "call" else e.op)
        if form is None:
            raise InputError("F161", f"{self.refused}: {e.data if e.op == 'call' else e.op}", place=self.place)
        found = form(*(self.value(a, env) for a in e.args))
        return found.astype(np.float32) if e.real else np.asarray(found).astype(np.int64)

    def load(self, e: Expr, env: Mapping[Expr, Index]) -> Any:
        indices = [self.value(i, env) for i in e.args]
        if isinstance(e.data, Leaf):
            data = self.memories[e.data]  # an index that a choice leaves out may lie outside
            return data[tuple(np.clip(i, 0, n - 1) for i, n in zip(indices, data.shape, strict=True))]
        if not isinstance(e.data, Comprehension):
            raise InputError("F161", self.refused, place=self.place)
        return self.value(e.data.body, {**env, **dict(zip(e.data.variables, indices, strict=True))})

    def reduce(self, e: Expr, env: Mapping[Expr, Index]) -> Any:
        monoid, variables = e.data
        extents = [int(self.value(x, env)) for x in e.args[1:]]
        start = {"sum": 0.0, "max": -np.inf, "min": np.inf}[monoid]
        total: Any = np.float32(start)
        for step in itertools.product(*map(range, extents)):
            value = self.value(e.args[0], {**env, **{v: np.asarray(n) for v, n in zip(variables, step, strict=True)}})
            total = FORMS["add" if monoid == "sum" else monoid](total, value).astype(np.float32)
        return total


FORMS: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "rdiv": lambda a, b: a / b,
    "neg": lambda a: -a, "not": lambda a: 1 - a, "div": lambda a, b: a // b, "mod": lambda a, b: a % b,
    "min": lambda a, b: np.where(a < b, a, b), "max": lambda a, b: np.where(a > b, a, b),
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "bitand": lambda a, b: a & b, "bitor": lambda a, b: a | b, "select": lambda c, a, b: np.where(c, a, b),
    "real": lambda a: np.asarray(a), "sqrt": np.sqrt,  # correctly rounded everywhere; other functions are not
}  # fmt: skip
