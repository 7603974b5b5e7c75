"""The interface between the printer of a routine and the printers of single statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from llvmlite import ir

from ...lowering.loop_ir import For, Tree


@dataclass(frozen=True)
class ArrayInMemory:
    """An array in memory: base address, element type, number of elements, `static` where it is fixed, whether aliasing is excluded."""

    base: ir.Value
    kind: Any
    size: ir.Value
    static: int | None
    is_noalias: bool = False


class RoutinePrinter(Protocol):
    """The printer of a routine: `b` prints where it is, `start` in the entry block."""

    arrays: dict[str, ArrayInMemory]
    slots: dict[str, ir.Value]
    entry: ir.Block
    entry_builder: ir.IRBuilder
    b: ir.IRBuilder

    def value(self, t: Tree) -> ir.Value:
        """Return the value of a tree."""

    def vector(self, array: str, start: Tree, kind: ir.VectorType) -> ir.Value:
        """Return consecutive elements as a vector, each widened to a scalar."""

    def kind_of(self, a: ArrayInMemory) -> ir.Type:
        """Return the type of an array's elements."""

    def with_alias_scope(self, a: ArrayInMemory, access: ir.Instruction) -> Any:
        """Return a load or store with its alias metadata attached."""

    def loop(self, s: For) -> None:
        """Print a loop."""
