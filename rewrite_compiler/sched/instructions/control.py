"""Control state while a program is memories: what registers hold, which instruction sets each, and what a command does to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ...ila import CONTROL, Ila
from ...ila.polynomial import Symbols
from ...ila.summary import Access, Opaque, Transition, summarise
from ...lang.binders import Leaf
from ...lang.expr import Expr
from ...readings.arrays.labelled_array import Data
from .copies import NoCopy, number

Settings = dict[str, int]
MOST_SEARCHED = 1 << 14  # values of a field that are tried


@dataclass(frozen=True)
class Setter:
    """An instruction that does nothing but store fields in registers: register → field."""

    instruction: str
    fields: Mapping[str, str]


@lru_cache(maxsize=16)
def setters(ila: Ila) -> dict[str, Setter]:
    """Return for each register that a command can set freely the instruction that does."""
    items: dict[str, Setter] = {}
    for name in ila.instructions:
        stored = _stored_fields(ila, name)
        for register in stored:
            items.setdefault(register, Setter(name, stored))
    return items


def _stored_fields(ila: Ila, name: str) -> dict[str, str]:
    """Return which registers an instruction sets to which of its fields; nothing where it does anything else."""
    summary = summarise(ila, name)
    if isinstance(summary, Opaque):
        return {}
    operands = {o.leaf: key for key, o in ila.instructions[name].operands.items()}
    stored: dict[str, str] = {}
    for conditions, loops, t in summary.transitions():
        e = t.value
        while e.op == "wrap":
            e = e.args[0]
        is_field = e.op == "load" and e.data in operands and not e.args
        if conditions or loops or t.loops or not is_field or not is_register(ila, t.write.memory):
            return {}
        stored[t.write.memory] = operands[e.data]
    return stored


def is_register(ila: Ila, name: str) -> bool:
    """Tell whether a name is that of one control register; what `let` binds in an instruction is no state."""
    state = ila.states.get(name)
    return state is not None and state.binding == CONTROL and not state.leaf.shape


@lru_cache(maxsize=16)
def reset_state(ila: Ila) -> Mapping[str, int]:
    """Return what the registers hold at first."""
    return {name: s.reset for name, s in ila.states.items() if is_register(ila, name)}


@lru_cache(maxsize=64)
def _control_transitions(ila: Ila, name: str) -> tuple[tuple[tuple[Expr, ...], Transition], ...]:
    summary = summarise(ila, name)
    if isinstance(summary, Opaque):
        raise NoCopy
    return tuple((conditions, t) for conditions, _, t in summary.transitions() if is_register(ila, t.write.memory))


@lru_cache(maxsize=64)
def changes_registers(ila: Ila, name: str) -> bool:
    """Tell whether a command of an instruction may change registers."""
    return isinstance(summarise(ila, name), Opaque) or bool(_control_transitions(ila, name))


def after(ila: Ila, name: str, fields: Mapping[str, int], registers: Mapping[str, int]) -> Settings:
    """Return what the registers hold after a command.

    Raises:
        NoCopy: data decides it.
    """
    operands = ila.instructions[name].operands
    items = tuple([(n, fields.get(n, 0) if n in operands else registers.get(n)) for n in _deciding(ila, name)])
    return {**registers, **_changes(ila, name, items)}


@lru_cache(maxsize=64)
def _deciding(ila: Ila, name: str) -> tuple[str, ...]:
    """Return the fields and registers that decide what a command does to registers."""
    every = [x for conditions, t in _control_transitions(ila, name) for e in (*conditions, t.value) for x in e.reads]
    return tuple(dict.fromkeys(x.name for x in every if not x.shape))


@lru_cache(maxsize=1 << 12)
def _changes(ila: Ila, name: str, items: tuple[tuple[str, int | None], ...]) -> Mapping[str, int]:
    """Return the registers that a command sets at values of what decides it."""
    control = {n: x for n, x in items if x is not None}
    active = [t for conditions, t in _control_transitions(ila, name) if all(number(x, {}, control) for x in conditions)]
    return {t.write.memory: number(t.value, {}, control) for t in active}


@lru_cache(maxsize=16)
def strobes(ila: Ila) -> tuple[str, ...]:
    """Return the instructions without fields that change registers and nothing else, as those that move a pointer on."""
    items = []
    for name, instruction in ila.instructions.items():
        summary = summarise(ila, name) if not instruction.operands and instruction.result is None else None
        memories = [] if summary is None or isinstance(summary, Opaque) else [t.write.memory for *_, t in summary.transitions()]
        if memories and all(is_register(ila, memory) for memory in memories):
            items.append(name)
    return tuple(items)


@dataclass(frozen=True, eq=False)
class Addressing:
    """How the first address of an access follows from fields and registers; lanes and loops are at 0."""

    access: Access
    symbols: Symbols
    free: frozenset[str]  # fields, and registers that can be set

    def base(self, control: Mapping[str, int]) -> tuple[int, ...]:
        """Return the first address at values of fields and registers."""
        key = tuple([control.get(name) for name in self.leaves])
        if key not in self.bases:
            self.bases[key] = self._base(control)
        return self.bases[key]

    def _base(self, control: Mapping[str, int]) -> tuple[int, ...]:
        sums = [sum(c * self._value(m, control) for m, c in p.items() if not self._moves(m)) for p in self.access.address]
        return tuple(n if modulus is None else n % modulus for n, modulus in zip(sums, self.access.moduli, strict=True))

    def _moves(self, monomial: tuple[str, ...]) -> bool:
        return any(n in self.symbols.variables or self.symbols.atoms[n].free for n in monomial)

    def _value(self, monomial: tuple[str, ...], control: Mapping[str, int]) -> int:
        value = 1
        for n in monomial:
            value *= number(self.symbols.atoms[n], {}, control)
        return value

    @cached_property
    def is_dictated(self) -> bool:
        """Whether no field, and no word of a table, decides where it begins."""
        if any(n in self.symbols.atoms and self.symbols.atoms[n].free for p in self.access.address for m in p for n in m):
            return False
        return not self.leaves & self.free

    def columns(self, bases: Data, control: Mapping[str, int]) -> dict[str, Data] | None:
        """Return values of fields with which accesses begin at addresses [count, axes], the rest as it is; None where there are none."""
        if not self._is_linear:
            rows = [self._searched(tuple(base), control) for base in bases.tolist()]
            return {k: np.array([r[k] for r in rows if r is not None]) for k in rows[0] or {}} if None not in rows else None
        values: dict[str, Data] = {}
        for p, target, modulus in zip(self.access.address, bases.T, self.access.moduli, strict=True):
            rest, unknowns = target, list[tuple[int, Leaf]]()
            for monomial, c in p.items():
                leaf = self._field(monomial)
                if self._moves(monomial):
                    continue
                if leaf is not None and leaf.name not in values:
                    unknowns.append((c, leaf))
                else:
                    rest = rest - c * (self._value(monomial, control) if leaf is None else values[leaf.name])
            for c, leaf in sorted(unknowns, key=lambda x: -abs(x[0])):
                low, high = leaf.interval
                values[leaf.name] = np.clip(rest // c, low or 0, high)
                rest = rest - c * values[leaf.name]
            if (rest if modulus is None else rest % modulus).any():
                return None
        return values

    def settings(self, base: tuple[int, ...], control: Mapping[str, int]) -> Settings | None:
        """Return values of fields with which an access begins at an address, the rest as it is; None where there are none."""
        if self.is_dictated:
            differences = ((a - b, n) for a, b, n in zip(self.base(control), base, self.access.moduli, strict=True))
            return None if any(d if n is None else d % n for d, n in differences) else {}
        columns = self.columns(np.array([base]), control)
        return None if columns is None else {k: int(x[0]) for k, x in columns.items()}

    @cached_property
    def _is_linear(self) -> bool:
        """Whether fields stand in addresses as themselves alone, times numbers."""
        monomials = [m for p in self.access.address for m in p if not self._moves(m)]
        return all(self._field(m) is not None or not self._fields(m) for m in monomials)

    def _fields(self, monomial: tuple[str, ...]) -> dict[str, Leaf]:
        return {x.name: x for n in monomial for x in self.symbols.term(n).reads if x.name in self.free}

    def _searched(self, base: tuple[int, ...], control: Mapping[str, int]) -> Settings | None:
        """Return the value of the one field with which an access begins at an address, where that is no sum of fields and numbers."""
        key = tuple(sorted((name, x) for name, x in control.items() if name in self.leaves - self.free))
        if key not in self.found:
            self.found[key] = {}
            fields = {name: x for p in self.access.address for m in p if not self._moves(m) for name, x in self._fields(m).items()}
            low, high = next(iter(fields.values())).interval
            if len(fields) == 1 and low == 0 and high is not None and high < MOST_SEARCHED:
                values = (dict.fromkeys(fields, n) for n in range(int(high), -1, -1))
                self.found[key] = {self._base({**control, **x}): x for x in values}
        return self.found[key].get(base)

    @cached_property
    def leaves(self) -> frozenset[str]:
        """The names of the fields and registers that decide where an access begins."""
        return frozenset(
            x.name for p in self.access.address for m in p if not self._moves(m) for n in m for x in self.symbols.term(n).reads
        )

    @cached_property
    def bases(self) -> dict[tuple[int | None, ...], tuple[int, ...]]:
        """First addresses by the values of the fields and registers that decide them."""
        return {}

    @cached_property
    def found(self) -> dict[tuple[tuple[str, int], ...], dict[tuple[int, ...], Settings]]:
        """Addresses by the values of all other fields and registers, and the value of the one field that leads to each."""
        return {}

    def _field(self, monomial: tuple[str, ...]) -> Leaf | None:
        """Return the field that a monomial is, times a number."""
        if len(monomial) != 1 or monomial[0] in self.symbols.variables:
            return None
        e = self.symbols.atoms[monomial[0]]
        is_field = e.op == "load" and isinstance(e.data, Leaf) and not e.args and e.data.name in self.free
        return e.data if is_field else None


def free_names(ila: Ila, name: str) -> frozenset[str]:
    """Return the fields of an instruction, and the registers that other instructions set."""
    return frozenset(key for key, o in ila.instructions[name].operands.items() if not o.leaf.shape) | setters(ila).keys()
