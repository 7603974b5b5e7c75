"""Schedules of kernels: vectorised axis, unroll-and-jam of a second one, loop order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..lang.binders import Comprehension, FoldResult, Leaf, static_shape
from ..lang.expr import Expr
from ..lang.traversal import terms_of
from .affine import affine_of
from .layout import LANES

SUM_REGISTERS, FOLD_REGISTERS, OTHER_REGISTERS = 8, 4, 2  # vectors of sums that a kernel of each class keeps in registers
REGISTER = 512, 256  # bits, with AVX-512 and else


@dataclass(frozen=True)
class Schedule:
    """A schedule: axis `lane` vectorised by `lanes`, axis `jam` (None: no axis) unrolled and jammed by `positions`."""

    lane: int
    lanes: int
    jam: int | None
    positions: int

    def __str__(self) -> str:
        jam = f", {self.positions} positions of axis {self.jam} together" if self.jam is not None else ""
        return f"{self.lanes} lanes on axis {self.lane}{jam}"

    def result_shape(self, shape: Sequence[int]) -> list[int]:
        """Return the shape of a result in memory: the axis of lanes innermost, rounded up to whole vectors."""
        lanes = -(-shape[self.lane] // self.lanes) * self.lanes
        return [*shape[: self.lane], *shape[self.lane + 1 :], lanes]


def schedules(value: Comprehension, features: frozenset[str]) -> list[Schedule]:
    """Return the candidate schedules of a stage, the best first by a static cost."""
    shape = static_shape(value)
    ranked = sorted((_cost(value, axis), _moving(value, axis), -axis, axis) for axis in range(len(shape)))
    return [_with_jam(value, axis, features) for *_, axis in ranked]


def _with_jam(value: Comprehension, lane: int, features: frozenset[str]) -> Schedule:
    bits = REGISTER["avx512bw" not in features]
    max_positions = max(1, _registers(value) * bits // (32 * LANES))
    sizes = [(n, axis) for axis, n in enumerate(static_shape(value)) if axis != lane and n > 1 and value.variables[axis] in value.body.free]
    jams = [(min(n, max_positions), _shared(value, lane, axis), axis) for n, axis in sizes]
    if not jams or max_positions < 2 or not _has_loop(value.body):
        return Schedule(lane, LANES, None, 1)
    positions, _, jam = max(jams)
    return Schedule(lane, LANES, jam, 1 << positions.bit_length() - 1)


def _shared(value: Comprehension, lane: int, axis: int) -> int:
    """Return how many vectors that are loaded serve all positions along an axis."""
    lanes, variable = value.variables[lane], value.variables[axis]
    loads = {e for e in terms_of(value.body) if e.op == "load" and type(e.data) is Leaf}
    return sum(any(lanes in i.free for i in e.args) and all(variable not in i.free for i in e.args) for e in loads)


def _registers(value: Comprehension) -> int:
    """Return how many vectors of sums there can be, by the class of a term."""
    sums = [e for e in terms_of(value.body) if e.op == "reduce"]
    is_fold = any(e.op == "load" and isinstance(e.data, FoldResult) for e in terms_of(value.body))
    if is_fold or any(x.op == "reduce" for e in sums for x in terms_of(e.args[0])):  # a sum of sums, too
        return FOLD_REGISTERS
    return SUM_REGISTERS if 0 < len(sums) <= 2 else OTHER_REGISTERS  # sums are computed one after the other


def _has_loop(body: Expr) -> bool:
    return any(e.op == "reduce" or (e.op == "load" and isinstance(e.data, FoldResult)) for e in terms_of(body))


def _cost(value: Comprehension, axis: int) -> float:
    """Return what lanes on an axis cost: those without an element, elements that lie apart, decisions that lanes take alone."""
    extent, variable = static_shape(value)[axis], value.variables[axis]
    waste = -(-extent // LANES) * LANES / max(extent, 1)
    if extent >= LANES and not _has_loop(value.body):  # such a kernel waits for memory
        waste = 1
    strided_loads = sum(_strides(e, variable) > 1 for e in terms_of(value.body) if e.op == "load" and type(e.data) is Leaf)
    lane_decisions = sum(e.op == "select" and variable in e.args[0].free and not e.args[0].reads for e in terms_of(value.body))
    return waste * (1 + 8 * strided_loads + 8 * lane_decisions)


def _moving(value: Comprehension, axis: int) -> int:
    """Return how many vectors are of operands with the axis of samples: those of others are packed once."""
    lane, first = value.variables[axis], value.variables[0]
    loads = {e for e in terms_of(value.body) if e.op == "load" and type(e.data) is Leaf and e.args}
    return sum(e.args[0] is first and any(lane in i.free for i in e.args) for e in loads)


def _strides(load: Expr, variable: Expr) -> int:
    """Return 0 where a load does not depend on a variable, 1 where the variable counts elements of one axis, else 2."""
    coefficients = list(_coefficients(load, variable))
    return 0 if not coefficients else 1 if coefficients == [1] else 2


def _coefficients(load: Expr, variable: Expr) -> Iterator[int]:
    for index in load.args:
        if variable in index.free:
            a = affine_of(index)
            yield 2 if a is None else a.coefficients.get(variable, 0)
