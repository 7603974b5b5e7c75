"""The exact host: operators evaluated by their own definition in single precision, sums in index order, on any machine.

Every operation rounds to float32; nothing is contracted or reordered. Operators run as machine code, printed from the code that
generated C is printed from; where there is none, numpy evaluates the same terms. All three give the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, SpecError
from ..ir.program import Data, Node, Program, Value
from ..lang.binders import Array, Comprehension, Fold, FoldResult, Leaf
from ..lang.expr import Expr
from ..lang.libm.functions import DEFINITIONS, definition
from ..ops.op import LAYOUT, Op
from ..readings.arrays.evaluator import table_data

if TYPE_CHECKING:
    from ..readings.native.single_precision import NativeArray

REAL = (None, None)
INDICES = (-(1 << 40), 1 << 40)  # int64 in every reading; an index beyond is outside of every tensor
TYPES = {"float32": (REAL, True), "int64": (INDICES, False)}
Index = np.ndarray[Any, Any]


def has_form(operator: Op, dtypes: Sequence[str]) -> bool:
    """Tell whether an operator on these types has an exact form: single precision, or data movement by int64 indices."""
    return all(d == "float32" or (d in TYPES and operator.kind == LAYOUT) for d in dtypes)


def leaf_of(shape: Sequence[int], dtype: str, name: str) -> Leaf:
    """Return the leaf of an operand: its shape, value interval and name."""
    interval, real = TYPES[dtype]
    return Leaf(tuple(shape), interval, real, name)


def run(p: Program, values: Mapping[Value, Data]) -> dict[Value, Data]:
    """Return the outputs of a program for one sample.

    Raises:
        InputError: F161 names an operator that has no exact form, F162 one whose evaluation stopped.
    """
    environment: dict[Value, Data] = {**p.constants, **values}
    for node in p.nodes:
        environment.update(zip(node.outputs, run_node(p, node, [environment[v] for v in node.inputs]), strict=True))
    return {v: environment[v] for v in p.outputs}


def run_node(p: Program, node: Node, operands: Sequence[Data]) -> list[Data]:
    """Return the results of one operator.

    Raises:
        InputError: F161 for an operator that has no exact form, F162 where its evaluation stopped.
    """
    place = f'node "{p.names[node.outputs[0]]}"'
    label = p.opaque_of(node).label if node.op == "opaque" else node.op
    if node.operator is None or not has_form(node.operator, [str(x.dtype) for x in operands]):
        raise InputError("F161", f"{label} has no exact form", place=place)
    kinds = tuple((x.shape, str(x.dtype)) for x in operands)
    leaves, arrays = _meaning(node.operator, tuple(node.attributes), kinds)
    memories = {leaf: np.ascontiguousarray(x) for leaf, x in zip(leaves, operands, strict=True)}
    compiled = _compiled(arrays)
    try:
        if compiled is not None:
            return [c.elements(memories) for c in compiled]
    except SpecError as stopped:
        raise InputError("F162", f"{label} stopped: {stopped.problem.sentence}", place=place) from None
    return by_numpy(arrays, memories, f"{label} has no exact form", place)


def by_numpy(arrays: Sequence[Array], memories: Mapping[Leaf, Data], refusal: str = "", place: str = "") -> list[Data]:
    """Evaluate arrays in numpy, in the same order as machine code; `refusal` begins the sentence of a refusal.

    Raises:
        InputError: F161 for a term that has no exact form.
    """
    with np.errstate(all="ignore"):
        return [_Evaluator(memories, refusal, place).array(a, {}) for a in arrays]


Kinds = tuple[tuple[tuple[int, ...], str], ...]  # shape and type of operands


@lru_cache(maxsize=4096)
def _meaning(operator: Op, attributes: tuple[tuple[str, Any], ...], kinds: Kinds) -> tuple[tuple[Leaf, ...], tuple[Array, ...]]:
    """Return the meaning of an operator, cached by the kinds of its operands."""
    leaves = tuple(leaf_of(shape, dtype, f"x{n}") for n, (shape, dtype) in enumerate(kinds))
    meaning = operator.meaning(*leaves, **dict(attributes))
    return leaves, meaning if isinstance(meaning, tuple) else (meaning,)


@lru_cache(maxsize=4096)
def _compiled(arrays: tuple[Array, ...]) -> tuple[NativeArray, ...] | None:
    """Return arrays as machine code; None where they have none."""
    try:
        from ..readings.native.single_precision import NativeArray
    except ImportError:
        return None
    try:
        return tuple(NativeArray(a) for a in arrays)
    except SpecError:
        return None


class _Evaluator:
    """Evaluates terms on broadcast index grids, a reduction step by step."""

    def __init__(self, memories: Mapping[Leaf, Data], refusal: str, place: str) -> None:
        self.memories, self.refusal, self.place = dict(memories), refusal, place
        self.memo: dict[Expr, Any] | None = None  # inside of a definition
        self.folds: dict[Fold, tuple[list[Data], list[Data]]] = {}
        self.arrays: dict[Array, Data] = {}  # whole ones that no step of a fold changes

    def array(self, a: Array, env: Mapping[Expr, Index]) -> Data:
        """Return all elements of an array.

        Raises:
            InputError: F161 for a term that has no exact form.
        """
        if isinstance(a, Leaf):
            return self.memories[a]
        if isinstance(a, FoldResult):
            return self.fold_result(a)
        if not isinstance(a, Comprehension):
            raise InputError("F161", self.refusal, place=self.place)
        shape = tuple(int(str(n)) for n in a.shape)
        grids = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij", sparse=True)
        elements = self.value(a.body, {**env, **dict(zip(a.variables, grids, strict=True))})
        return np.array(np.broadcast_to(elements, shape), np.float32 if a.real else np.int64)

    def fold_result(self, a: FoldResult) -> Data:
        """Return an accumulator of a fold after its last step, or its history [steps, …]."""
        f = a.fold
        if f not in self.folds:
            state, history = [self.array(first, {}) for first in f.initial], []
            for k in range(int(self.value(f.extent, {}))):
                self.memories.update(zip(f.accumulators, state, strict=True))
                state = [self.array(b, {f.variable: np.asarray(k)}) for b in f.bodies]
                history.append(state)
            self.folds[f] = state, [np.stack([step[n] for step in history]) if history else x[None][:0] for n, x in enumerate(state)]
        return self.folds[f][1 if a.history else 0][a.component]

    def real_function(self, function: str, *operands: Any) -> Any:
        """Evaluate a real function's definition, each of its terms once."""
        parameters, meaning = definition(function)
        outer_memo, self.memo = self.memo, {}
        result = self.value(meaning, dict(zip(parameters, operands, strict=True)))
        self.memo = outer_memo
        return result

    def value(self, e: Expr, env: Mapping[Expr, Index]) -> Any:
        """Return the value of a term, int64 or float32, memoised inside a definition."""
        if self.memo is None:
            return self.evaluate(e, env)
        if e not in self.memo:
            self.memo[e] = self.evaluate(e, env)
        return self.memo[e]

    def evaluate(self, e: Expr, env: Mapping[Expr, Index]) -> Any:
        """Evaluate a term on the grids of its index variables.

        Raises:
            InputError: F161 for a term that has no exact form.
        """
        if e.op == "const":
            return np.float32(float(e.data)) if e.real else np.int64(e.data)
        if e.op == "var":
            return env[e]
        if e.op == "load":
            return self.load(e, env)
        if e.op == "reduce":
            return self.reduce(e, env)
        if e.op == "call" and e.data in DEFINITIONS:
            return self.real_function(e.data, *(self.value(a, env) for a in e.args))
        if e.op == "table":
            return self.entry(e, env)
        if e.op == "extract":
            return self.value(e.args[0], env) >> e.data[0] & (1 << e.data[1]) - 1
        form = FORMS.get(e.data if e.op == "call" else e.op)
        if form is None:
            raise InputError("F161", f"{self.refusal}: {e.data if e.op == 'call' else e.op}", place=self.place)
        result = form(*(self.value(a, env) for a in e.args))
        return result.astype(np.float32) if e.real else np.asarray(result).astype(np.int64)

    def load(self, e: Expr, env: Mapping[Expr, Index]) -> Any:
        indices = [self.value(i, env) for i in e.args]
        if isinstance(e.data, Leaf | FoldResult):
            data = self.array(e.data, env)  # an index that a choice leaves out may lie outside
            return data[tuple(np.clip(i, 0, n - 1) for i, n in zip(indices, data.shape, strict=True))]
        if not isinstance(e.data, Comprehension):
            raise InputError("F161", self.refusal, place=self.place)
        if e.data.variables and not e.data.free:
            if e.data not in self.arrays:
                self.arrays[e.data] = self.array(e.data, {})
            data = self.arrays[e.data]
            return data[tuple(np.clip(i, 0, n - 1) for i, n in zip(indices, data.shape, strict=True))]
        return self.value(e.data.body, {**env, **dict(zip(e.data.variables, indices, strict=True))})

    def entry(self, e: Expr, env: Mapping[Expr, Index]) -> Any:
        """Return entries of an integer table."""
        indices = [self.value(i, env) - (low or 0) for i, (low, _) in zip(e.args, e.data.domains, strict=True)]
        return table_data(e.data).reshape(e.data.shape)[tuple(indices)].astype(np.int64)

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
    "shr": lambda a, b: a >> b, "rint": np.rint, "floor": np.floor,
    "real": lambda a: np.asarray(a), "sqrt": np.sqrt,  # correctly rounded everywhere; other functions are not
}  # fmt: skip
