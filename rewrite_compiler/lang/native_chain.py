"""Machine code that makes calls of machine code one after the other: a recording's thousands of calls as one for Python.

Between two calls nobody takes the interpreter's lock, which two threads would otherwise hand to each other at every one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import numpy as np
from llvmlite import ir

from .native_jit import function_of
from .native_loop import WORD, emitted_loop, word
from .tape import Call

MOST = 12  # operands of a call
LEAST = 2  # calls of a chain
ROW = 2 + MOST  # a call in the table: its function, how many operands, and these
FUNCTIONS = type(ctypes.CFUNCTYPE(None, ctypes.c_void_p))


def chained(calls: Iterable[Call]) -> list[Call]:
    """Return what has to be called: chains of calls of machine code, and all others as they are."""
    found: list[Call] = []
    for is_flat, group in groupby(((c, _flat(c)) for c in calls), key=lambda pair: pair[1] is not None):
        pairs = list(group)
        if is_flat and len(pairs) >= LEAST:
            found.append(_chain([c for c, _ in pairs], [row for _, row in pairs if row is not None]))
        else:
            found += [c for c, _ in pairs]
    return found


def _flat(call: Call) -> list[int] | None:
    """Return a call as a row of the table; None of one that is not a function of machine code on addresses."""
    run = getattr(call, "run", None)
    if not isinstance(run, partial) or run.keywords or not isinstance(type(run.func), FUNCTIONS):
        return None
    operands = [_address(a) for a in run.args]
    if None in operands or len(operands) > MOST:
        return None
    function: Any = run.func
    address = ctypes.cast(function, ctypes.c_void_p).value
    return [int(address or 0), len(operands), *(n or 0 for n in operands), *[0] * (MOST - len(operands))]


def _address(operand: Any) -> int | None:
    """Return an operand as a word; None where it is neither a number, nothing, nor an array of pointers."""
    if operand is None:
        return 0
    if isinstance(operand, int):
        return operand if operand >= 0 else None
    return ctypes.addressof(operand) if isinstance(operand, ctypes.Array) else None


def _chain(calls: Sequence[Call], rows: Sequence[Sequence[int]]) -> Call:
    table = np.array(rows, np.uint64)
    return partial(_run, _function(), table, tuple(calls))


def _run(function: Any, table: Any, calls: tuple[Call, ...]) -> None:
    del calls  # are kept: they own functions and operands
    function(table.ctypes.data, len(table))


@lru_cache(maxsize=1)
def _function() -> Any:
    return function_of(str(_printed()), 3, 2)[1]


def _printed() -> ir.Module:
    """Print the code. Arguments: the table, and how many rows it has."""
    module = ir.Module("chain")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD.as_pointer(), WORD]), "run")
    table, count = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))

    def one(n: ir.Value) -> None:
        row = [b.load(b.gep(table, [b.add(b.mul(n, word(ROW)), word(k))])) for k in range(ROW)]
        after = function.append_basic_block("after")
        chosen = b.switch(row[1], after)
        for size in range(1, MOST + 1):
            block = function.append_basic_block(f"call{size}")
            chosen.add_case(word(size), block)
            b.position_at_end(block)
            kind = ir.FunctionType(ir.VoidType(), [WORD] * size)
            b.call(b.inttoptr(row[0], kind.as_pointer()), row[2 : 2 + size])
            b.branch(after)
        b.position_at_end(after)

    emitted_loop(b, count, one)
    b.ret_void()
    return module
