"""Counted loops of machine code, with loop-carried values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

WORD = ir.IntType(64)


def emit_loop(b: ir.IRBuilder, extent: ir.Value, inner: Callable[..., Any], carried: Sequence[ir.Value] | None = None) -> list[ir.Value]:
    """Emit a loop and return its carried values; `inner` gets the counter (and the carried values, and returns the new ones)."""
    preheader = b.block
    head, body, exit_block = (b.function.append_basic_block(n) for n in ("head", "loop", "after"))
    b.branch(head)
    b.position_at_end(head)
    counter = b.phi(WORD)
    counter.add_incoming(word(0), preheader)
    values = [b.phi(x.type) for x in carried or ()]
    for phi, x in zip(values, carried or (), strict=True):
        phi.add_incoming(x, preheader)
    b.cbranch(b.icmp_signed("<", counter, extent), body, exit_block)
    b.position_at_end(body)
    updated = inner(counter, values) if carried is not None else (inner(counter) or [])
    counter.add_incoming(b.add(counter, word(1)), b.block)
    for phi, x in zip(values, updated, strict=True):
        phi.add_incoming(x, b.block)
    b.branch(head)
    b.position_at_end(exit_block)
    return values


def word(n: int) -> ir.Constant:
    """Return a constant word of 64 bits."""
    return ir.Constant(WORD, n)
