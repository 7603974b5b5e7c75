"""In-place numpy passes over a block of elements: the operators of straight-line code on floats that hold integers exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...lang import intervals as iv
from ...lang.intervals import Interval
from ..arrays.labelled_array import FLOAT32_EXACT, Data
from ..straightline.code import Code, Op, TooWide

Pass = Callable[[int, int], Any]  # the number of the step in its block, and among all steps
LONGEST = 64  # operators of a step, up to which its products are searched for clamps
MONOTONE = ("add", "sub", "shr", "min", "max")
RANGES: dict[str, Callable[[Interval, Interval], Interval]] = {
    "add": iv.add,
    "sub": iv.sub,
    "mul": iv.mul,
    "min": iv.minimum,
    "max": iv.maximum,
    "shr": iv.shift_right,
}
PASSES: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "shr": np.right_shift,
}


class StepPasses:
    """The numpy passes of one fold step; results share buffers, which are free again after a last use."""

    def __init__(self, total: Data, buffers: list[Data], last: Sequence[int]) -> None:
        """Accumulate into `total`; `buffers` are shared by blocks, and `last` is the last use of each result."""
        self.total, self.last = total, last
        self.values: dict[int, Any] = {}
        self.passes: list[Pass] = []
        self.limits: dict[float, Data] = {}
        self.buffers, self.free = buffers, [x[: total.size].reshape(total.shape) for x in buffers]

    def product(self, n: int, rows: Sequence[Data], site: int, columns: Data, half: int, *, is_across: bool) -> None:
        """Append a matrix product of a block of rows and the columns, split at lane `half` where one float does not hold the sum.

        Where rows lie across, a sum of one product is an elementwise pass: a call of BLAS costs ten of them.
        """
        out = self._out(n, ())
        lanes = columns.shape[2 if is_across else 1]
        if is_across and lanes == 1:
            self.passes.append(lambda k, step: np.multiply(columns[step], rows[site][k], out=out))
            return

        def part(low: int, high: int, target: Data) -> Pass:
            if is_across:
                return lambda k, step: np.matmul(columns[step, :, low:high], rows[site][k, low:high], out=target)
            return lambda k, step: np.matmul(rows[site][k, :, low:high], columns[step, low:high], out=target)

        self.passes.append(part(0, half or lanes, out))
        if half:
            upper_part = self._new()
            self.free.append(upper_part)
            self.passes += [part(half, lanes, upper_part), lambda k, step: np.add(out, upper_part, out=out)]

    def shift(self, n: int, op: Op, scale: Any) -> None:
        """Append a right shift: the floor of an operand, scaled by 2^-n first where it is not yet."""
        x = self.values[op.args[0]]
        out = self._out(n, op.args)
        if scale != 1:
            self.passes.append(lambda k, step: np.multiply(x, scale, out=out))
        y = x if scale == 1 else out
        self.passes.append(lambda k, step: np.floor(y, out=out))

    def share_buffer(self, n: int, a: int) -> None:
        """Give a result its operand's buffer: the pass of a later operator computes both."""
        self.values[n] = self.values[a]

    def clip(self, n: int, a: int, ends: tuple[int, int]) -> None:
        """Append a clamp of an operand to two limits."""
        x, low, high = self.values[a], *map(self.total.dtype.type, ends)
        out = self._out(n, (a,))
        self.passes.append(lambda k, step: x.clip(low, high, out))

    def operator(self, n: int, op: Op, scale: Any) -> None:
        """Append the operator of numpy; constants are scaled as the operand is."""
        operands = [self.values[a] * scale if scale != 1 and isinstance(self.values[a], np.generic) else self.values[a] for a in op.args]
        if op.name in ("min", "max"):  # numpy has no vector instructions for a limit that is a number
            operands = [self._limit(x) if isinstance(x, np.generic) else x for x in operands]
        out = self._out(n, op.args)
        function = PASSES.get(op.name, np.negative)
        self.passes.append(lambda k, step: function(*operands, out=out))

    def _limit(self, x: Any) -> Data:
        """Return an array of one number."""
        return self.limits.setdefault(float(x), np.full_like(self.total, x))

    def _out(self, n: int, args: Sequence[int]) -> Data:
        """Return the buffer of a result: the total for the last one, that of an operand at its last use, or a new one."""
        reusable = [self.values[a] for a in args if self.last[a] == n and isinstance(self.values[a], np.ndarray)]
        reusable = [x for x in reusable if x is not self.total]
        buffer = self.total if n == len(self.last) - 1 else reusable.pop() if reusable else self._new()
        self.free.extend(x for x in reusable if all(x is not y for y in self.free))
        self.values[n] = buffer
        return buffer

    def _new(self) -> Data:
        if not self.free:
            self.buffers.append(np.empty_like(self.total).reshape(-1))  # the first block is the largest
            self.free.append(self.buffers[-1].reshape(self.total.shape))
        return self.free.pop()


def with_constant_scalars(code: Code, scalars: Sequence[int]) -> Code:
    """Return code with its scalars as constants.

    Raises:
        TooWide: an operator has no pass on floats, or a constant is no integer.
    """
    operators = tuple(Op("const", (), scalars[op.data], op.bits) if op.name == "scalar" else op for op in code)
    for op in operators:
        has_pass = op.name in ("acc", "dot", "product", "const", "neg") or op.name in RANGES
        if not has_pass or (op.name == "shr" and operators[op.args[1]].name != "const"):
            raise TooWide
    if operators[-1].name in ("acc", "const") or any(op.name == "const" and not isinstance(op.data, int) for op in operators):
        raise TooWide
    if any(all(operators[a].name == "const" for a in op.args) for op in operators if op.args):
        raise TooWide
    return operators


@lru_cache(maxsize=256)
def last_uses(code: Code) -> list[int]:
    """Return the last use of each result: the number of an operator, its own where nothing uses it."""
    last = list(range(len(code)))
    for n, op in enumerate(code):
        for a in op.args:
            last[a] = n
    return last


@lru_cache(maxsize=256)
def clips_of(code: Code) -> dict[int, tuple[int, tuple[int, int]]]:
    """Return the outer operators of clamps (a minimum of a maximum, or the reverse), each with the inner one and the limits."""
    last, uses = last_uses(code), Counter(a for op in code for a in op.args)
    clips: dict[int, tuple[int, tuple[int, int]]] = {}
    for n, op in enumerate(code):
        inner = [a for a in op.args if {op.name, code[a].name} == {"min", "max"} and uses[a] == 1 and a not in clips]
        limits = [_limit_of(code, m) for m in (n, *inner)]
        if len(inner) != 1 or None in limits:
            continue
        (_, end), (operand, start) = (x for x in limits if x is not None)
        if last[operand] == inner[0] and code[operand].name not in ("acc", "const"):
            clips[n] = inner[0], (min(start, end), max(start, end))
    return {n: x for n, x in clips.items() if _is_clamp(code, n, x[1])}


def _limit_of(code: Code, n: int) -> tuple[int, int] | None:
    """Return the operand of an extremum with a constant, and the constant."""
    numbers = [code[a].data for a in code[n].args if code[a].name == "const"]
    operands = [a for a in code[n].args if code[a].name != "const"]
    return (operands[0], numbers[0]) if len(numbers) == len(operands) == 1 else None


def _is_clamp(code: Code, n: int, ends: tuple[int, int]) -> bool:
    """Tell whether the lower limit is that of the maximum."""
    limit = _limit_of(code, n)
    return limit is not None and limit[1] == ends[code[n].name == "min"]


@lru_cache(maxsize=256)
def scales_of(code: Code) -> tuple[int, ...]:
    """Return n for each result that is stored scaled by 2^-n: from a product, through added constants, up to a shift by n."""
    uses, scales = Counter(a for op in code for a in op.args), [0] * len(code)
    for op in code:
        if op.name != "shr":
            continue
        chain = [op.args[0]]
        while code[chain[-1]].name in ("add", "sub"):
            moving = [a for a in code[chain[-1]].args if code[a].name != "const"]
            if len(moving) > 1:
                break
            chain.append(moving[0])
        if code[chain[-1]].name in ("dot", "product") and all(uses[x] == 1 for x in chain):
            scales = [int(code[op.args[1]].data) if n in chain else s for n, s in enumerate(scales)]
    return tuple(scales)


def ranges_of(code: Code, limits: Sequence[int], accumulator: Interval) -> list[Interval]:
    """Return the interval of each result, by interval arithmetic; `limits` bound products, `held` is the accumulator's interval."""
    ranges: list[Interval] = []
    for op in code:
        operands = [ranges[a] for a in op.args]
        if op.name == "acc":
            ranges.append(accumulator)
        elif op.name in ("dot", "product"):
            ranges.append((-limits[op.data], limits[op.data]))
        elif op.name == "const":
            ranges.append((op.data, op.data))
        else:
            ranges.append(iv.neg(operands[0]) if op.name == "neg" else RANGES[op.name](operands[0], operands[1]))
    return ranges


@lru_cache(maxsize=256)
def clamped_operators(code: Code, edges: tuple[int, ...]) -> set[int] | None:
    """Return the operators between products and the clamps that follow them; None where a product may stay unclamped.

    A product is exact, or its magnitude is at least its edge; products without an edge (0) are always exact.
    """
    chain: set[int] = set()
    for n, op in enumerate(code):
        if op.name not in ("dot", "product") or edges[op.data] == 0:
            continue
        operators = _to_clamp(code, n, edges[op.data])
        if operators is None:
            return None
        chain |= operators
    return chain


def _to_clamp(code: Code, product: int, edge: int) -> set[int] | None:
    """Return the operators from a product to the clamp that follows; None where the clamp has not its limits from `edge` on.

    Up to `edge` every pass is exact.
    """
    users = {n: [m for m, op in enumerate(code) if n in op.args] for n in range(len(code))}
    added = sum(abs(op.data) for op in code if op.name == "const") if len(code) < LONGEST else FLOAT32_EXACT
    ends: tuple[Interval, Interval] = ((-edge, -edge), (edge, edge))
    limits, chain, position = dict[str, int](), {product}, product
    if added > edge:
        return None
    while len(limits) < 2:
        if len(users[position]) != 1:
            return None
        (position,) = users[position]
        op = code[position]
        numbers = [code[a].data for a in op.args if code[a].name == "const"]
        if len(numbers) != 1 or op.name not in MONOTONE or (op.name in ("sub", "shr") and code[op.args[1]].name != "const"):
            return None
        number = (numbers[0], numbers[0])
        ends = RANGES[op.name](ends[0], number), RANGES[op.name](ends[1], number)
        if op.name in ("min", "max"):
            limits[op.name] = numbers[0]
        chain.add(position)
    return chain - {position} if (ends[0][0], ends[1][0]) == (limits["max"], limits["min"]) else None


def magnitude_of(r: Interval) -> int:
    """Return the largest magnitude in a bounded interval."""
    return max(-(r[0] or 0), r[1] or 0)
