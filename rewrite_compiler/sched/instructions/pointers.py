"""Pointers: elements of files of scalar registers, which a field of an instruction chooses and whose number an address follows from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ...ila import CONTROL, Ila
from ...ila.polynomial import Symbols
from ...ila.summary import Access, Opaque, Transition, summarise
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...lang.traversal import terms_of
from .copies import NoCopy, number

Settings = dict[str, int]


@dataclass(frozen=True)
class Pointer:
    """The file of registers that an address is read from, the term that reads it, and the field that says which of them."""

    file: str
    load: Expr
    field: str


@dataclass(frozen=True, eq=False)
class FileSetter:
    """An instruction that does nothing but store a term of its fields in the register of a file that a field chooses."""

    instruction: str
    field: str
    value: Expr
    fields: tuple[Leaf, ...]

    def settings(self, register: int, target: int) -> Settings | None:
        """Return the fields with which it stores a number in a register; None where there are none."""
        settings = solved(lambda x: number(self.value, {}, x), self.fields, target)
        return None if settings is None else {**settings, self.field: register}


def pointer_of(ila: Ila, accesses: Iterable[Access], symbols: Symbols) -> Pointer | None:
    """Return the pointer that addresses follow from; None where there is none, or several are."""
    atoms = {name for a in accesses for p in a.address for monomial in p for name in monomial if name in symbols.atoms}
    loads = {e for name in atoms for e in terms_of(symbols.atoms[name]) if e.op == "load" and isinstance(e.data, Leaf) and len(e.args) == 1}
    files = [e for e in loads if _is_file(ila, e.data.name)]
    if len(files) != 1:
        return None
    index = files[0].args[0]
    is_field = index.op == "load" and isinstance(index.data, Leaf) and not index.args and index.data.name not in ila.states
    return Pointer(files[0].data.name, files[0], index.data.name) if is_field else None


def _is_file(ila: Ila, name: str) -> bool:
    state = ila.states.get(name)
    return state is not None and state.binding == CONTROL and len(state.leaf.shape) == 1


def solved(value: Callable[[Mapping[str, int]], int], fields: Iterable[Leaf], target: int) -> Settings | None:
    """Return numbers of fields at which a linear term of them is a target, large factors first; None where there are none."""
    zeros = {leaf.name: 0 for leaf in fields}
    rest = target - value(zeros)
    factors = [(value({**zeros, leaf.name: 1}) - value(zeros), leaf) for leaf in fields]
    numbers = dict(zeros)
    for factor, leaf in sorted((x for x in factors if x[0]), key=lambda x: -abs(x[0])):
        low, high = leaf.interval
        numbers[leaf.name] = max(rest // factor, low or 0)
        numbers[leaf.name] = numbers[leaf.name] if high is None else min(numbers[leaf.name], high)
        rest -= factor * numbers[leaf.name]
    return numbers if value(numbers) == target else None


@lru_cache(maxsize=64)
def file_setters(ila: Ila, file: str) -> tuple[FileSetter, ...]:
    """Return the instructions that set registers of a file from their fields."""
    return tuple(x for name in ila.instructions if (x := _setter(ila, name, file)) is not None)


def _setter(ila: Ila, name: str, file: str) -> FileSetter | None:
    t = only_transition(ila, name)
    if t is None or t.loops or t.write.memory != file or len(t.write.address) != 1:
        return None
    fields = {o.leaf: key for key, o in ila.instructions[name].operands.items() if not o.leaf.shape}
    ((monomial, factor),) = tuple(t.write.address[0].items()) or (((), 0),)
    register = monomial[0] if len(monomial) == 1 and factor == 1 else ""
    if register not in fields.values() or not t.value.reads <= fields.keys() or register in {x.name for x in t.value.reads}:
        return None
    try:
        number(t.value, {}, dict.fromkeys(fields.values(), 0))
    except NoCopy:
        return None
    return FileSetter(name, register, t.value, tuple(sorted(t.value.reads, key=lambda x: x.name)))


def only_transition(ila: Ila, name: str) -> Transition | None:
    """Return the one transition of an instruction that always happens; None where there are others, or it has conditions."""
    summary = summarise(ila, name)
    every = [] if isinstance(summary, Opaque) else [*summary.transitions()]
    return every[0][2] if len(every) == 1 and not every[0][0] and not every[0][1] else None
