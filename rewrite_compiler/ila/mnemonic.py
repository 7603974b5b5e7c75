"""Mnemonics: instructions as assembly sees them, as views of the model: fields of the word, fixed bits, and what is read and written.

A word is a command as one number: the inputs of the model one after the other in the order of their declaration, each rounded up
to bytes. Words of a program are rows of 64-bit limbs, so that columns of fields are packed and unpacked by numpy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ..errors import SpecError, did_you_mean
from ..lang import intervals as iv
from ..lang.binders import Array, Leaf, static_shape
from ..lang.expr import Expr, var
from ..lang.intervals import Interval
from ..lang.step import reads_of, updates_of
from ..readings.arrays.evaluator import Evaluator
from ..readings.arrays.labelled_array import Axis, Data, Store, axis_of
from .demanded_bits import demanded_bits
from .model import Ila, Instruction, Operand

LIMB = 64
LOW = (1 << LIMB) - 1
UNDECODED = -1


@dataclass(frozen=True)
class Field:
    """An operand as a bit field of the word, from bit `low` on; `base` is added when it is encoded, `names` are names of values."""

    name: str
    low: int
    width: int
    base: int
    interval: Interval
    names: Mapping[str, int]

    def check(self, mnemonic: str, value: int) -> None:
        """Check that the field can hold a value.

        Raises:
            SpecError: I102, it cannot.
        """
        if not iv.inside((value, value), self.interval):
            low, high = self.interval
            raise SpecError("I102", f"field {self.name} of {mnemonic} must be in {low}…{high}, not {value}")

    @cached_property
    def value_names(self) -> Mapping[int, str]:
        """Value → its name."""
        return {value: name for name, value in self.names.items()}


@dataclass(frozen=True, eq=False)
class Mnemonic:
    """A view of an instruction: its fields, the bits of the word that are fixed and those that matter, and its read and write sets."""

    name: str
    instruction: Instruction
    fields: tuple[Field, ...]
    fixed: int
    demanded: int

    @property
    def reads(self) -> frozenset[str]:
        """The states that the instruction reads."""
        i = self.instruction
        leaves = reads_of(i.update) | (i.result.reads if i.result is not None else frozenset())
        return frozenset(leaf.name for leaf in leaves) - i.operands.keys()

    @property
    def writes(self) -> frozenset[str]:
        """The states that the instruction writes."""
        return frozenset(u.memory.name for u in updates_of(self.instruction.update))

    def assemble(self, **values: int) -> int:
        """Return the word with these values in its fields; fields without a value are 0.

        Raises:
            SpecError: I102, there is no such field, or it cannot hold its value.
        """
        unknown_names = sorted(values.keys() - {f.name for f in self.fields})
        if unknown_names:
            remedy = f"fields: {', '.join(f.name for f in self.fields) or 'none'}"
            raise SpecError("I102", f'{self.name} has no field "{unknown_names[0]}"', help=remedy)
        word = self.fixed
        for f in self.fields:
            f.check(self.name, values.get(f.name, 0))
            word |= (values.get(f.name, 0) + f.base & (1 << f.width) - 1) << f.low
        return word


@dataclass(frozen=True, eq=False)
class InstructionSet:
    """The mnemonics of a model by name, and where its inputs lie in a word."""

    ila: Ila
    mnemonics: Mapping[str, Mnemonic]
    offsets: Mapping[str, int]
    bits: int

    @property
    def limbs(self) -> int:
        """Limbs of a word."""
        return -(-self.bits // LIMB)

    def mnemonic(self, name: str) -> Mnemonic:
        """Return a mnemonic by its name, in any case of letters.

        Raises:
            SpecError: I101, there is none of this name.
        """
        match = self.mnemonics.get(name) or self.mnemonics.get(name.upper())
        if match is None:
            remedy = did_you_mean(name.upper(), self.mnemonics) or f"flexmatch show ila {self.ila.name} lists the instructions"
            raise SpecError("I101", f'{self.ila.name} has no mnemonic "{name}"', help=remedy)
        return match

    def inputs(self, word: int) -> dict[str, int]:
        """Return a word as the command it is: input → value."""
        return {name: word >> self.offsets[name] & (1 << width_of(leaf)) - 1 for name, leaf in self.ila.inputs.items()}

    def word(self, command: Mapping[str, int]) -> int:
        """Return a command as a word."""
        return sum(value << self.offsets[name] for name, value in command.items())

    # -- columns

    def pack(self, mnemonic: Mnemonic, count: int, columns: Mapping[str, Sequence[int] | Data]) -> Data:
        """Return `count` words of one mnemonic, [count, limbs], with a column of values for each field; missing fields are 0.

        Raises:
            SpecError: I102, a field cannot hold one of its values.
        """
        words = np.tile(limbs_of(mnemonic.fixed, self.limbs), (count, 1))
        for f in mnemonic.fields:
            values = columns.get(f.name)
            if values is not None or f.base:
                for k, limb in enumerate(_raw_limbs(mnemonic.name, f, np.zeros(count, np.int64) if values is None else values)):
                    _insert(words, f.low + k * LIMB, min(LIMB, f.width - k * LIMB), limb)
        return words

    def find(self, words: Data) -> Data:
        """Return for each word the number of the mnemonic that decodes it, UNDECODED where none does; registers are as after reset."""
        owner = np.full(len(words), UNDECODED)
        evaluation = _Evaluation(self, words)
        for n, m in enumerate(self.mnemonics.values()):
            owner[evaluation.values(m.instruction.decode).astype(bool)] = n
        return owner

    def unpack(self, mnemonic: Mnemonic, words: Data) -> dict[str, Data]:
        """Return the values of a mnemonic's fields as columns: what the operands of its instruction are for these words."""
        evaluation = _Evaluation(self, words)
        return {name: evaluation.operand(o) for name, o in mnemonic.instruction.operands.items()}

    def difference(self, mnemonic: Mnemonic, words: Data, canonical: Data) -> Data:
        """Return the bits that matter in which words differ from those that their fields assemble to."""
        differing_bits: Data = (words ^ canonical) & limbs_of(mnemonic.demanded, self.limbs)
        return differing_bits


def width_of(leaf: Leaf) -> int:
    """Return the bits of an input, all lanes together."""
    return lane_width(leaf) * math.prod(static_shape(leaf))


def lane_width(leaf: Leaf) -> int:
    """Return the bits of one lane of an input."""
    return (iv.width_of(leaf.interval) or (8, False))[0]


def instruction_set(ila: Ila) -> InstructionSet:
    """Return the mnemonics of a model."""
    return _instruction_set(ila, len(ila.instructions))


@lru_cache(maxsize=16)
def _instruction_set(ila: Ila, _: int) -> InstructionSet:
    offsets, position = {}, 0
    for name, leaf in ila.inputs.items():
        offsets[name] = position
        position += -(-width_of(leaf) // 8) * 8
    names = [i.upper() for i in ila.instructions]
    is_injective = len(set(names)) == len(names)
    views = (_view(ila, i, name if is_injective else i.name, offsets) for i, name in zip(ila.instructions.values(), names, strict=True))
    return InstructionSet(ila, {m.name: m for m in views}, offsets, position)


def _view(ila: Ila, i: Instruction, name: str, offsets: Mapping[str, int]) -> Mnemonic:
    fields = tuple(_field(ila, key, o, offsets) for key, o in i.operands.items())
    fixed = sum(value << offsets[key] for key, value in i.fixed.items())
    demanded = sum(mask << offsets[key] for key, mask in demanded_bits(ila, i).items())
    return Mnemonic(name, i, fields, fixed, demanded)


def _field(ila: Ila, name: str, o: Operand, offsets: Mapping[str, int]) -> Field:
    low = offsets[o.input] + o.bits.low
    if not o.leaf.shape:
        return Field(name, low, o.bits.width, o.base, o.leaf.interval, o.bits.names)
    width = width_of(ila.inputs[o.input])
    return Field(name, low, width, o.base, iv.of_width(width, False), {})


# -- limbs


def limbs_of(word: int, limbs: int) -> Data:
    """Return a word as limbs, the lowest first."""
    return np.array([word >> LIMB * k & LOW for k in range(limbs)], np.uint64)


def word_of(limbs: Data) -> int:
    """Return limbs as a word."""
    return int.from_bytes(np.ascontiguousarray(limbs, "<u8").tobytes(), "little")


def bits_of(words: Data, low: int, width: int) -> Data:
    """Return bits low … low + width − 1 of every word, at most 64 of them."""
    limb, shift = divmod(low, LIMB)
    value = words[:, limb] >> np.uint64(shift)
    if shift + width > LIMB:
        value = value | words[:, limb + 1] << np.uint64(LIMB - shift)
    return value & np.uint64((1 << width) - 1)


def _insert(words: Data, low: int, width: int, values: Data) -> None:
    limb, shift = divmod(low, LIMB)
    words[:, limb] |= values << np.uint64(shift)
    if shift + width > LIMB:
        words[:, limb + 1] |= values >> np.uint64(LIMB - shift)


def _raw_limbs(mnemonic: str, f: Field, values: Sequence[int] | Data) -> Iterator[Data]:
    """Yield the encoded values of a field, 64 bits at a time, once all of them are known to fit."""
    if f.width < LIMB - 1 and -(1 << 62) < f.base < 1 << 62:
        try:
            column = np.asarray(values, np.int64)
        except OverflowError:
            column = np.asarray(values, object)
        _check_column(mnemonic, f, column)
        yield (column.astype(np.int64) + f.base & (1 << f.width) - 1).astype(np.uint64)
        return
    numbers = [int(x) for x in values]
    _check_column(mnemonic, f, np.asarray(numbers, object))
    for k in range(-(-f.width // LIMB)):
        mask = (1 << min(LIMB, f.width - k * LIMB)) - 1
        yield np.array([(x + f.base >> k * LIMB) & mask for x in numbers], np.uint64)


def _check_column(mnemonic: str, f: Field, column: Data) -> None:
    if len(column):
        f.check(mnemonic, int(column.min()))
        f.check(mnemonic, int(column.max()))


class _Evaluation:
    """Terms over the inputs of many words at once; the inputs have an axis of words, registers their reset values."""

    def __init__(self, isa: InstructionSet, words: Data) -> None:
        self.count = len(words)
        self.axis: Axis = axis_of(var("word", (0, None)))
        stores: dict[Any, Store] = {}
        for name, leaf in isa.ila.inputs.items():
            stores[leaf] = Store(_lanes(words, isa.offsets[name], leaf), (self.axis,))
        registers = frozenset[Any]().union(*(i.decode.reads for i in isa.ila.instructions.values()))
        for s in isa.ila.states.values():
            if s.leaf in registers:
                stores[s.leaf] = Store(np.full(static_shape(s.leaf), s.reset))
        self.evaluator = Evaluator(stores)
        self.evaluator.axes.add(self.axis, self.count)

    def values(self, e: Expr) -> Data:
        """Return the value of a term for every word."""
        with np.errstate(all="ignore"):
            return np.broadcast_to(np.asarray(self.evaluator.value(e).data), (self.count,))

    def operand(self, o: Operand) -> Data:
        """Return an operand for every word; one of several lanes as a little-endian number."""
        if isinstance(o.term, Expr):
            return self.values(o.term)
        term: Array = o.term
        size = lane_width(o.leaf)
        lanes = [self.values(term[index]).astype(object) << size * n for n, index in enumerate(np.ndindex(*static_shape(term)))]
        total: Data = np.sum(lanes, axis=0)
        return total


def _lanes(words: Data, offset: int, leaf: Leaf) -> Data:
    """Return an input of every word, [count, lanes]."""
    size, shape = lane_width(leaf), static_shape(leaf)
    columns = [bits_of(words, offset + size * n, size) for n in range(math.prod(shape))]
    narrow = np.int64 if size < LIMB else object
    return np.stack(columns, axis=1).reshape(len(words), *shape).astype(narrow)
