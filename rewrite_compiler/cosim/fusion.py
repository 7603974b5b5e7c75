"""Fusion: sums of products whose words are made codes of a result, and these floats, where nobody else reads them.

What follows the sum is code of one sum and of numbers of its column. Then it is done in registers, and floats are written
where the result has them: no word and no code is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..lang import intervals as iv
from ..lang.codes import put_values
from ..lang.formats import Format, Int
from ..lang.kernels import Operand, kernels_in_use, launched
from ..lang.named import Data
from ..lang.rounding import Rounding, rounding
from ..lang.straight import Code, Op
from ..lang.sums import LANES, Factors, Sums
from .provenance import CONSTANT, Found, NoShortcut, Origins, Source
from .window import Layout, Window

if TYPE_CHECKING:
    from ..lang.native_sums import Summed

WORD = 32
NOBODY = -1
INT32 = iv.of_width(WORD, True)
INTERVALS = {"add": iv.add, "sub": iv.sub, "min": iv.minimum, "max": iv.maximum, "shr": iv.shift_right}


@dataclass(frozen=True, eq=False)
class Tail:
    """What becomes of one sum of products: code of the sum and of numbers of columns, and where its floats lie."""

    call: int  # of the sum
    code: Code
    rounding: Rounding
    largest: float
    result: str
    numbers: tuple[Data, ...]  # of each column
    row_places: Data  # of rows, from the first one that is read; NOBODY for those that are not
    column_places: Data


@dataclass(frozen=True, eq=False)
class Fused:
    """Sums over one window whose floats lie in the same rows: one call."""

    windows: tuple[Window, ...]
    tails: tuple[Tail, ...]

    def call(self, layout: Layout) -> Summed:
        """Return the call for a layout of the source."""
        from ..lang.native_sums import Summed

        read = [w.read(layout) for w in self.windows]
        numbers = [np.concatenate(n) for n in zip(*(t.numbers for t in self.tails), strict=True)]
        columns, places = np.concatenate([r.factors for r in read]), np.concatenate([t.column_places for t in self.tails])
        first, tail = read[0], self.tails[0]
        sums = Sums(first.width // 2, tail.code, len(numbers), tail.rounding, tail.largest)
        return Summed(sums, Factors(first.rows, first.steps, columns, numbers, tail.row_places, places))


class Fusion:
    """Finds what can be fused of the calls that results depend on."""

    def __init__(self, found: Found, used: Sequence[int], windows: Mapping[int, Window], formats: Mapping[str, Format]) -> None:
        """Take the origins of all that is computed."""
        self.found, self.used, self.windows, self.formats = found, used, windows, formats
        self.by_call = {s.which: s for s in found.sources if isinstance(s.which, int)}
        self.readers: dict[str | int, set[str | int]] = {}
        for n in used:
            for o in found.reads[n].values():
                self._note(n, o)
        for name, o in found.results.items():
            self._note(name, o)

    def _note(self, reader: str | int, o: Origins) -> None:
        for which in self.found.sources_of(o):
            self.readers.setdefault(which, set()).add(reader)

    def groups(self) -> tuple[list[Fused], set[int]]:
        """Return the calls that are made in place of others, and those others."""
        tails: list[Tail] = []
        gone: set[int] = set()
        for n in self.used if _is_there() else ():
            found = self._tails(n)
            tails += found
            gone |= {n, *self._sums(n)} if found else set()
        groups: dict[object, list[Tail]] = {}
        for t in tails:
            w = self.windows[t.call]
            same = (w.rows, w.elements, w.places, t.row_places)
            groups.setdefault((w.key, t.result, t.code, t.rounding, *(x.tobytes() for x in same)), []).append(t)
        return [Fused(tuple(self.windows[t.call] for t in g), tuple(g)) for g in groups.values()], gone

    def _tails(self, n: int) -> list[Tail]:
        """Return what becomes of the sums whose words a call makes; nothing where that is not all that is made of them."""
        call, reads, readers = self.found.calls[n], self.found.reads[n], self.readers.get(n, set())
        names = [r for r in readers if isinstance(r, str)]
        if call.grid is None or len(reads) != 1 or len(readers) != 1 or not names:
            return []
        ((k, o),) = reads.items()
        rounded = self._rounding(call.grid.code, names[0])
        if rounded is None or o.chain or o.dtype != np.int32:
            return []
        places = self._places(n, names[0]).reshape(call.grid.operands[k].shape)
        read = o.numbers[_elements(call.grid.operands[k], call.reads[k].address)]
        constants = {j: x for j, x in enumerate(call.grid.operands) if j != k}
        made = []
        sums = self._sums(n)
        if any(which not in self.windows or self.readers[which] != {n} for which in sums):
            return []
        for which in sums:
            s = self.by_call[which]
            here = (read >= s.first) & (read < s.first + s.size) & (places != NOBODY)
            if not here.any():
                continue
            found = _tail(s, here, read, places, constants)
            if found is None:
                return []
            code, numbers = _split(call.grid.code, k, found[0])
            code = _narrowed(code, numbers)
            if any(op.width != WORD or op.bits != WORD for op in code):
                return []
            largest = float(np.float32(self.formats[names[0]].largest))
            made.append(Tail(which, code, rounded, largest, names[0], numbers, *found[1:]))
        return made if (read[places != NOBODY] != CONSTANT).all() else []

    def _sums(self, n: int) -> list[int]:
        """Return what a call with one operand reads: −1 stands for what is no call."""
        (o,) = self.found.reads[n].values()
        return [which if isinstance(which, int) else NOBODY for which in self.found.sources_of(o)]

    def _rounding(self, code: Code, name: str) -> Rounding | None:
        """Return what becomes of words as floats of a result."""
        f, chain, ends = self.formats[name], self.found.results[name].chain, _ends(code)
        if isinstance(f, Int) or not chain or ends is None:
            return None

        def valued(words: Data) -> Data:
            values = np.empty(words.shape, np.float32)
            put_values(f, words, values, chain.conversion(), chain.kind)
            return values

        return rounding(valued, *ends)

    def _places(self, n: int, name: str) -> Data:
        """Return where in a result the elements of a call's result lie."""
        s, o = self.by_call[n], self.found.results[name]
        shape, whole, corner = self.found.shapes[name], self.found.whole[name], self.found.corners[name]
        flat = np.zeros(shape, np.int32 if math.prod(whole) < 1 << 31 else np.int64)
        for d, (extent, at) in enumerate(zip(shape, corner, strict=True)):
            along = ((at + np.arange(extent)) * math.prod(whole[d + 1 :])).astype(flat.dtype)
            flat += along.reshape([-1 if m == d else 1 for m in range(len(shape))])
        here = (o.numbers >= s.first) & (o.numbers < s.first + s.size)
        places = np.full(s.size, NOBODY, flat.dtype)
        places[o.numbers[here] - s.first] = flat.reshape(-1)[here]
        if np.count_nonzero(places != NOBODY) != np.count_nonzero(here):
            raise NoShortcut("a word is several elements of a result")
        return places


def _is_there() -> bool:
    """Tell whether machine code is in use, and this processor has it."""
    if kernels_in_use() is None:
        return False
    from ..lang.native_tiles import is_there

    return is_there()


def _tail(
    s: Source, here: Data, read: Data, places: Data, constants: Mapping[int, Data]
) -> tuple[dict[int, Data], Data, Data] | None:  # fmt: skip
    """Return the numbers of each column of a sum, and where its rows and columns go; None where these are no such sum."""
    at = read[here] - s.first

    def spread(values: Data, rest: int) -> Data:
        found = np.full(s.size, rest, values.dtype)
        found[at] = values
        return found.reshape(s.shape)

    if s.shape[-1] % LANES or len(s.shape) != 2:
        return None
    table = spread(places[here], NOBODY)
    is_read = table != NOBODY
    rows, columns = is_read.any(axis=1), is_read.any(axis=0)
    if np.count_nonzero(is_read) != at.size or (is_read != rows[:, None] & columns).any():
        return None
    column = int(np.argmax(columns))
    row_places = table[:, column] - table[rows, column].min()
    column_places = table[int(np.argmax(rows))] - row_places[int(np.argmax(rows))]
    lanes = (column_places - np.arange(len(columns)) % LANES).reshape(-1, LANES)
    known = columns.reshape(-1, LANES)
    beside = (lanes == lanes.max(axis=1, initial=NOBODY, where=known)[:, None]) | ~known
    if not beside.all() or (is_read & (row_places[:, None] + column_places != table)).any():
        return None
    numbers = {}
    for j, x in constants.items():
        found = spread(x[here], 0)
        numbers[j] = np.where(columns, found[int(np.argmax(rows))], found[int(np.argmax(rows)), column])
        if (is_read & (found != numbers[j])).any():
            return None
    return numbers, np.where(rows, row_places, NOBODY), np.where(columns, column_places, NOBODY)


def _elements(view: Data, first: int) -> Data:
    """Return the numbers of elements from an address on."""
    found = np.full(view.shape, (view.ctypes.data - first) // view.itemsize, np.intp)
    for d, (extent, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        found += (np.arange(extent) * (stride // view.itemsize)).reshape([-1 if m == d else 1 for m in range(view.ndim)])
    return found


def _ends(code: Code) -> tuple[int, int] | None:
    """Return the ends that code clamps its result to; None where it does not."""
    found: dict[str, int] = {}
    n = len(code) - 1
    while code[n].name in ("min", "max") and code[n].name not in found:
        limits = [a for a in code[n].args if code[a].name == "const"]
        if len(limits) != 1:
            return None
        found[code[n].name] = int(code[limits[0]].data)
        n = next(a for a in code[n].args if a != limits[0])
    return (found["max"], found["min"]) if len(found) == 2 and found["max"] <= found["min"] else None


def _split(code: Code, k: int, numbers: Mapping[int, Data]) -> tuple[Code, tuple[Data, ...]]:
    """Return code of operand `k`, as the sum, and of numbers of a column, which are computed here from those of other operands."""
    varies: list[bool] = []
    for op in code:
        varies.append(op.data[0] == k if op.name == "array" else any(varies[a] for a in op.args))
    found: list[Op] = []
    at: dict[int, int] = {}
    made: list[Data] = []
    for n, op in enumerate(code):
        if varies[n]:
            for a in op.args:
                if not varies[a] and a not in at:
                    at[a] = len(found)
                    found.append(_given(code[: a + 1], numbers, made))
            at[n] = len(found)
            found.append(Op("acc") if op.name == "array" else Op(op.name, tuple(at[a] for a in op.args), op.data, op.bits, op.width))
    return tuple(found), tuple(made)


def _given(code: Code, numbers: Mapping[int, Data], made: list[Data]) -> Op:
    """Return what gives code's last operator: a number for all columns, or one of each, which is added to those that are made."""
    if code[-1].name == "const":
        return code[-1]
    x = _evaluated(code, numbers)
    is_short = iv.inside((int(x.min()), int(x.max())), INT32)
    bits = WORD if is_short else code[-1].bits
    if (x == x[0]).all():
        return Op("const", (), int(x[0]), bits)
    made.append(x.astype(np.int32 if is_short else np.int64))
    return Op("array", (), len(made) - 1, bits)


def _narrowed(code: Code, numbers: Sequence[Data]) -> Code:
    """Return code with words of 32 bits where everything that it can meet fits them."""
    ends: list[iv.Interval] = []
    found = []
    for op in code:
        args = [ends[a] for a in op.args]
        if op.name == "array":
            here: iv.Interval = int(numbers[op.data].min()), int(numbers[op.data].max())
        elif op.name == "const":
            here = int(op.data), int(op.data)
        else:
            here = INTERVALS[op.name](*args) if op.name in INTERVALS else iv.of_width(op.bits, True)
        is_short = op.width == 2 * WORD and all(iv.inside(x, INT32) for x in (here, *args))
        found.append(Op(op.name, op.args, op.data, WORD, WORD) if is_short else op)
        ends.append(here)
    return tuple(found)


def _evaluated(code: Code, numbers: Mapping[int, Data]) -> Data:
    """Return the value of code's last operator for each column."""
    needed = {len(code) - 1}
    for n in reversed(range(len(code))):
        needed |= set(code[n].args) if n in needed else set()
    at = {n: m for m, n in enumerate(sorted(needed))}
    operands = sorted({code[n].data[0] for n in needed if code[n].name == "array"})

    def placed(op: Op) -> Op:
        data = (operands.index(op.data[0]), 0) if op.name == "array" else op.data
        return Op(op.name, tuple(at[a] for a in op.args), data, op.bits, op.width)

    short = tuple(placed(code[n]) for n in sorted(needed))
    out = np.empty(len(next(iter(numbers.values()))), np.int64)
    given = [np.ascontiguousarray(numbers[j]) for j in operands]
    run, counts = launched(short, [Operand(x, {0: 1}) for x in (out, *given)], (), (), [0], {0: len(out)})
    run(out.ctypes.data, *(x.ctypes.data for x in given), counts.ctypes.data)
    return out
