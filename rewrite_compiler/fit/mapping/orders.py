"""Orders of loops modulo what no counter sees: of n! permutations a few classes.

Read by loops, a tensor without overlaps sees only which loops lie inside of the innermost one that indexes it; one whose tiles overlap
sees the order up to the innermost loop after which nothing of the old tile remains: one that alone runs along an axis.
Read by data, a tensor sees the runs of loops that index it and of those that do not, and, if its tiles overlap, the innermost of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..problems.problem import Problem
from .columns import lexical_keys
from .engine import Reading

Orders = NDArray[np.intp]
Spaces = tuple[tuple[tuple[str, ...], ...], ...]
MAX_LOOPS = 8  # whose permutations are classed; of more, permutations are drawn
DRAWN_ORDERS = 4096  # of more loops


def order_classes(problem: Problem, turning: Sequence[str], reading: Reading = Reading.LOOPS) -> Orders:
    """Return one order a class of the loops that turn, innermost first, followed by all others; one row an order."""
    names = problem.names
    return _classes(names, _axes(problem), tuple(d for d in names if d in turning), reading)


def covering_orders(problem: Problem, turning: Sequence[str], reading: Reading = Reading.LOOPS) -> Orders:
    """Return orders, one a row, that have every class of every set of the loops that may turn, where only that set turns.

    Of more than `MAX_LOOPS` loops they are drawn, from the same seed each time.
    """
    names = problem.names
    return _cover(names, _axes(problem), tuple(d for d in names if d in turning), reading)


def signatures(problem: Problem, orders: Orders, reading: Reading) -> NDArray[np.int64]:
    """Return what the counters see of orders, innermost first, whose loops all turn: equal rows are one class."""
    return _table(problem.names, _axes(problem), orders, reading)


def representatives(problem: Problem, turning: Sequence[str], bits: int, reading: Reading) -> Orders:
    """Return the numbers of those of `covering_orders` that differ where only the dimensions turn that have a bit."""
    return _representatives(problem.names, _axes(problem), tuple(d for d in problem.names if d in turning), bits, reading)


def _axes(problem: Problem) -> Spaces:
    """Return the dimensions along each axis of each tensor, the output last."""
    tensors = sorted(problem.spaces, key=lambda t: t == problem.output)
    return tuple(tuple(tuple(sorted(axis)) for axis in problem.spaces[t]) for t in tensors)


def _table(names: tuple[str, ...], spaces: Spaces, orders: Orders, reading: Reading) -> NDArray[np.int64]:
    if reading is Reading.LOOPS:
        output = tuple((d,) for axis in spaces[-1] for d in axis)  # partial sums go as whole tiles
        return np.stack([_signature(names, axes, orders) for axes in (*spaces[:-1], output)], axis=1)
    return np.stack([_runs(names, axes, orders) for axes in spaces[:-1]], axis=1)


@lru_cache(maxsize=512)
def _classes(names: tuple[str, ...], spaces: Spaces, turning: tuple[str, ...], reading: Reading) -> Orders:
    orders = _permutations(tuple(names.index(d) for d in turning))
    _, first = np.unique(lexical_keys(_table(names, spaces, orders, reading).T), return_index=True)
    return _with_rest(names, orders[np.sort(first)])


@lru_cache(maxsize=512)
def _cover(names: tuple[str, ...], spaces: Spaces, turning: tuple[str, ...], reading: Reading) -> Orders:
    """Add, from the largest set of turning loops to the smallest, what no order has yet; loops that stand still are no matter."""
    orders = _classes(names, spaces, turning, reading)
    if len(turning) > MAX_LOOPS:
        return orders
    for count in range(len(turning) - 1, 1, -1):
        for subset in itertools.combinations(turning, count):
            turns = np.array([d in subset for d in names], np.bool_)[orders]
            known_classes = _table(names, spaces, orders[turns].reshape(len(orders), count), reading)
            classes = _classes(names, spaces, subset, reading)
            table = _table(names, spaces, classes[:, :count], reading)
            keys = lexical_keys(np.concatenate([known_classes, table]).T)
            known_keys = set(keys[: len(orders)].tolist())
            is_new = [key not in known_keys for key in keys[len(orders) :].tolist()]
            orders = np.concatenate([orders, classes[np.array(is_new, np.bool_)]])
    return orders


@lru_cache(maxsize=4096)
def _representatives(names: tuple[str, ...], spaces: Spaces, turning: tuple[str, ...], bits: int, reading: Reading) -> Orders:
    orders = _cover(names, spaces, turning, reading)
    turns = np.array([bits >> k & 1 for k in range(len(names))], np.bool_)[orders]
    reduced = orders[turns].reshape(len(orders), bits.bit_count())
    _, first = np.unique(lexical_keys(_table(names, spaces, reduced, reading).T), return_index=True)
    return np.asarray(np.sort(first), np.intp)


def _permutations(places: tuple[int, ...]) -> Orders:
    """Return all orders of a few loops, or as many drawn ones of many."""
    if len(places) <= MAX_LOOPS:
        return np.array(list(itertools.permutations(places)), np.intp).reshape(math.factorial(len(places)), len(places))
    rows = np.tile(np.array(places, np.intp), (DRAWN_ORDERS, 1))
    return np.asarray(np.random.default_rng(len(places)).permuted(rows, axis=1), np.intp)


def _with_rest(names: tuple[str, ...], orders: Orders) -> Orders:
    """Return orders followed by all loops that are not in them."""
    rest = sorted({*range(len(names))} - {*orders[0].tolist()}) if len(orders) else []
    return np.concatenate([orders, np.tile(np.array(rest, np.intp), (len(orders), 1))], axis=1)


def _signature(names: tuple[str, ...], axes: tuple[tuple[str, ...], ...], orders: Orders) -> NDArray[np.int64]:
    """Return a number for what a tensor sees of each order."""
    relevant = np.array([any(d in axis for axis in axes) for d in names])
    if all(len(axis) < 2 for axis in axes):  # noqa: PLR2004 -- a halo needs two dimensions along an axis
        inside = np.cumprod(~relevant[orders], axis=1)
        return np.asarray((inside << orders).sum(axis=1), np.int64)
    separate = np.array([any(axis == (d,) for axis in axes) for d in names])
    visible = np.concatenate([np.ones((len(orders), 1), np.int64), np.cumprod(~separate[orders], axis=1)[:, :-1]], axis=1)
    code = np.zeros(len(orders), np.int64)
    for position in range(orders.shape[1]):
        code = code * (len(names) + 1) + np.where(visible[:, position], orders[:, position] + 1, 0)
    return code


def _runs(names: tuple[str, ...], axes: tuple[tuple[str, ...], ...], orders: Orders) -> NDArray[np.int64]:
    """Return a number for the run that each loop lies in, and the innermost relevant loop of a tensor whose tiles overlap."""
    relevant = np.array([any(d in axis for axis in axes) for d in names])[orders]
    if not orders.shape[1]:
        return np.zeros(len(orders), np.int64)
    run = np.concatenate([relevant[:, :1].astype(np.int64), (relevant[:, 1:] != relevant[:, :-1]).astype(np.int64)], axis=1).cumsum(axis=1)
    weights = (len(names) + 1) ** np.arange(len(names) + 1)
    code = (run * weights[orders]).sum(axis=1)
    if any(len(axis) > 1 for axis in axes):
        innermost = np.take_along_axis(orders, relevant.argmax(axis=1)[:, None], axis=1)[:, 0]
        code += innermost * weights[-1]
    return np.asarray(code, np.int64)
