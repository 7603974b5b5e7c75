"""Runs of repeated commands: columns of one instruction decoded and executed together by numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ...lang.binders import Array, Leaf, array, static_shape
from ...lang.expr import Expr
from ...lang.step import Require, Step, children, updates_of
from ...readings.arrays.labelled_array import Data
from ...readings.kernels.evaluate import evaluate
from ..model import Ila, Instruction
from .decode_loop import Inputs, substitute_inputs
from .device_protocol import CommandDevice

WINDOW = 1 << 13  # commands that are decoded at once
LEAST = 16  # commands, from which it pays


def execute_run(sim: CommandDevice, instruction: Instruction, columns: Mapping[str, Data], gives: Data, position: int) -> int:
    """Execute commands of one instruction from a position on together; return the first position of another instruction.

    Where fewer than `LEAST` commands repeat, nothing is executed and the position itself is returned.
    """
    if not _can_batch(sim.ila, instruction):
        return position
    rows = {name: x[position : position + WINDOW] for name, x in columns.items()}
    count = min(len(gives) - position, WINDOW)
    missing = WINDOW - count
    padded = {name: np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)]) for name, x in rows.items()} if missing else rows
    leaves, decodes, operands = _terms(sim.ila, instruction)
    contents = {leaf: padded[name] for name, leaf in leaves.items()}
    matches = evaluate(decodes, contents)[:count]
    length = count if matches.all() else int(np.argmin(matches))
    if length < LEAST:
        return position
    values = {name: evaluate(term, contents)[:length] for name, term in operands.items()}
    if instruction.result is None:
        sim.block(instruction.name, length, values)
        return position + length
    if any(True for _ in updates_of(instruction.update)):
        sim.prepare_part(replace(instruction, result=None)).run_block(length, values, frozenset())
    answer = np.asarray(sim.block(instruction.name, length, values)).reshape(length, -1)
    gives[position : position + length, : answer.shape[1]] = answer
    return position + length


@lru_cache(maxsize=1024)
def _can_batch(ila: Ila, i: Instruction) -> bool:
    """Tell whether commands decode without the state, no check stops them, and reads do not see what later commands write."""
    written_memories = {u.memory for u in updates_of(i.update)}
    is_decoded = i.decode.reads <= frozenset(ila.inputs.values())
    return is_decoded and not _stops(i.update) and (i.result is None or i.result.reads.isdisjoint(written_memories))


def _stops(step: Step) -> bool:
    return (isinstance(step, Require) and step.always) or any(map(_stops, children(step)))


@lru_cache(maxsize=256)
def _terms(ila: Ila, i: Instruction) -> tuple[dict[str, Leaf], Array, dict[str, Array]]:
    """Return a column an input, which commands of a window are of an instruction, and its operands."""
    leaves = {name: Leaf((WINDOW, *static_shape(x)), x.interval, False, f"column_{name}") for name, x in ila.inputs.items()}

    def inputs_at(n: Expr) -> Inputs:
        return {x: lambda j, column=leaves[name]: column[(n, *j)] for name, x in ila.inputs.items()}  # type: ignore[misc]

    def operand(term: Expr | Array) -> Array:
        if isinstance(term, Expr):
            return array(lambda n: substitute_inputs(term, inputs_at(n)), WINDOW)
        return array(lambda n, *j: substitute_inputs(term[j], inputs_at(n)), (WINDOW, *static_shape(term)))

    operands = {name: operand(o.term) for name, o in i.operands.items()}
    return leaves, array(lambda n: substitute_inputs(i.decode, inputs_at(n)), WINDOW), operands
