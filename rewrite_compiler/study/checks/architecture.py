"""The architecture that a model shows, checked: declared resources, mnemonics and summaries of instructions agree with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...errors import Problem
from ...ila import Ila
from ...ila.demanded_bits import demanded_bits
from ...ila.mnemonic import UNDECODED, InstructionSet, Mnemonic, instruction_set
from ...ila.summary import Opaque, summarise
from ...ila.summary_check import check_summary
from ...readings.arrays.labelled_array import Data
from ...target.acg import disagreements
from ...target.derivation import derive
from ...target.resources import Resources

WORDS = 8  # of each mnemonic
REPLAYS = 2  # of each summary


def architecture_problems(ila: Ila, resources: Resources | None) -> Iterator[Problem]:
    """Yield what does not agree: resources with the graph of the model, mnemonics with decodes, summaries with updates."""
    yield from disagreements(derive(ila), resources)
    isa = instruction_set(ila)
    for m in isa.mnemonics.values():
        yield from _mnemonic_problems(isa, m)
    for name, instruction in ila.instructions.items():
        summary = summarise(ila, name)
        verdict = None if isinstance(summary, Opaque) else check_summary(ila, summary, enough=REPLAYS)
        if verdict is not None and verdict.failure:
            sentence = f"the summary of {name} does not hold: {verdict.failure}"
            yield Problem("I102", sentence, instruction.place, "report this with the model: the two are read from one update")


def _mnemonic_problems(isa: InstructionSet, m: Mnemonic) -> Iterator[Problem]:
    """Yield a problem where a word of a mnemonic is decoded as something else, or with other fields."""
    choose = np.random.default_rng(0)
    columns = {f.name: _draw(choose, f.interval[0] or 0, f.interval[1] or 0) for f in m.fields}
    words = isa.pack(m, WORDS, columns)
    owner, names = isa.find(words), list(isa.mnemonics)
    remedy = "fields must not overlap one another, nor the bits that the decode fixes"
    decoded_rows = owner == names.index(m.name)
    for row in () if _restricts_fields(isa, m) else np.nonzero(~decoded_rows)[0][:1].tolist():
        reading = "by no instruction" if owner[row] == UNDECODED else f"as {names[owner[row]]}"
        yield Problem("I102", f"{m.name} assembled with {_text(columns, row)} is decoded {reading}", m.instruction.place, remedy)
        return
    for name, values in isa.unpack(m, words).items():
        for row in np.nonzero(decoded_rows & (np.asarray(values, object) != np.asarray(columns[name], object)))[0][:1].tolist():
            sentence = f"{m.name} assembled with {_text(columns, row)} has {values[row]} in its field {name}"
            yield Problem("I102", sentence, m.instruction.place, remedy)
            return


def _restricts_fields(isa: InstructionSet, m: Mnemonic) -> bool:
    """Tell whether a decode reads bits of its own fields, so that the instruction is another one for some of their values."""
    masks = demanded_bits(isa.ila, replace(m.instruction, operands={}))
    decode = sum(mask << isa.offsets[name] for name, mask in masks.items())
    return any(decode >> f.low & (1 << f.width) - 1 for f in m.fields)


def _draw(choose: np.random.Generator, low: int, high: int) -> Data:
    """Return both ends of a range and numbers between them."""
    if high.bit_length() < 63:
        return np.array([low, high, *choose.integers(low, high, WORDS - 2, endpoint=True)], np.int64)
    return np.array([low, high, *(int(x) % (high - low) + low for x in choose.integers(0, 1 << 62, WORDS - 2))], object)


def _text(columns: dict[str, Data], row: int) -> str:
    return ", ".join(f"{name}={int(values[row])}" for name, values in columns.items()) or "no fields"
