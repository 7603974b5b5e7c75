"""Faults planted in the shipped models that the check must find: weak requirements, writes that collapse, fields that nothing drives.

Without a fault it finds nothing: `test_check.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.verification.binding_times import check_instruction
from rewrite_compiler.ila.verification.undriven_state import undriven_states
from rewrite_compiler.ila.verification.weak_requirements import weak_requirements
from rewrite_compiler.lang.expr import Expr, binary, lift
from rewrite_compiler.lang.step import Let, Loop, Require, Seq, Step, Together, Update, When, updates_of
from rewrite_compiler.lang.substitution import substitute
from rewrite_compiler.target import find_target

SPAD = 8_372_224
Change = Callable[[Step], Step | None]


def changed(step: Step, change: Change) -> Step:
    """Return a step with every part that a change gives another one for."""
    found = change(step)
    if found is not None:
        return found
    if isinstance(step, Seq):
        return Seq(tuple(changed(s, change) for s in step.steps))
    if isinstance(step, Together):
        return Together(tuple(u for s in step.updates for u in updates_of(changed(s, change))))
    if isinstance(step, When):
        return replace(step, then=changed(step.then, change), otherwise=changed(step.otherwise, change))
    return replace(step, body=changed(step.body, change)) if isinstance(step, Loop | Let) else step


def variant(ila: Ila, name: str, update: Step) -> Ila:
    """Return a model whose instruction has another update."""
    other = object.__new__(Ila)
    vars(other).update({**vars(ila), "instructions": {**ila.instructions, name: replace(ila.instructions[name], update=update)}})
    return other


@cache
def model(name: str) -> Ila:
    return find_target(name).ila()


@pytest.mark.parametrize(
    ("name", "instruction", "size"),
    [("vta", "gemm", 2048), ("vta", "gemm", 1024), ("vta", "alu_add", 2048), ("vta", "load_inp", 2048), ("vta", "store", 2048),
     ("hlscnn", "spad0_data_wr", SPAD), ("hlscnn", "spad1_data_wr", SPAD), ("flexasr", "pe2_start", 32),
     ("flexasr", "gb_layer_reduce_start", 65536), ("flexasr", "gb_layer_norm_start", 65536)],
)  # fmt: skip
def test_a_doubled_bound_is_found(name: str, instruction: str, size: int) -> None:
    def change(step: Step) -> Step | None:
        wider = _with_bound(step.condition, size, 2 * size) if isinstance(step, Require) else None
        return None if wider is None else replace(step, condition=wider)

    planted = variant(model(name), instruction, changed(model(name).instructions[instruction].update, change))
    planted.instructions = {instruction: planted.instructions[instruction]}
    problems = [p for p in weak_requirements(planted) if p.sentence.startswith(f"{instruction}: what it requires admits an element of ")]
    assert [p.code for p in problems] == ["I103"]


def _with_bound(condition: Expr, old: int, new: int) -> Expr | None:
    """Return a condition with another number in its comparisons, None where it has none of that size."""
    if condition.op in ("lt", "le"):
        if not any(x.value == old for x in condition.args):
            return None
        return binary(condition.op, *(lift(new) if x.value == old else x for x in condition.args))
    parts = [_with_bound(x, old, new) for x in condition.args] if condition.op in ("bitand", "bitor") else []
    if not any(p is not None for p in parts):
        return None
    return binary(condition.op, *(p if p is not None else x for p, x in zip(parts, condition.args, strict=True)))


@pytest.mark.parametrize(
    ("name", "instruction"),
    [("vta", "gemm"), ("vta", "alu_add"), ("vta", "load_inp"), ("hlscnn", "spad0_data_wr"), ("flexasr", "gb_core_store_large"),
     ("flexasr", "pe1_core_store_weight_buffer")],
)  # fmt: skip
def test_a_write_that_collapses_onto_one_lane_is_found(name: str, instruction: str) -> None:
    def change(step: Step) -> Step | None:
        if not isinstance(step, Update) or not step.variables:
            return None
        *_, last = [v for v, n in zip(step.variables, step.extents, strict=True) if n.value is None or n.value > 1] or [None]
        if last is None or not any(last in a.free for a in step.address):
            return None
        return replace(step, address=tuple(substitute(a, {last: lift(0)}) for a in step.address))

    ila = model(name)
    planted = variant(ila, instruction, changed(ila.instructions[instruction].update, change))
    assert list(check_instruction(ila, ila.instructions[instruction])) == []
    problems = list(check_instruction(planted, planted.instructions[instruction]))
    assert any(p.code == "I103" and " more than once" in p.sentence for p in problems), problems


@pytest.mark.parametrize(
    ("name", "state"), [("vta", "inp"), ("vta", "uop"), ("hlscnn", "spad0"), ("flexasr", "pe_base_weight"), ("flexasr", "gb_control_mode")]
)
def test_a_field_that_nothing_drives_is_found(name: str, state: str) -> None:
    ila: Any = model(name)
    assert list(undriven_states(ila)) == []

    def change(step: Step) -> Step | None:
        if isinstance(step, Together):
            kept = tuple(u for u in step.updates if u.memory.name != state)
            return Seq(kept) if len(kept) < len(step.updates) else None
        return Seq(()) if isinstance(step, Update) and step.memory.name == state else None

    for n, i in ila.instructions.items():
        ila = variant(ila, n, changed(i.update, change))
    assert any(state in p.sentence for p in undriven_states(ila))
