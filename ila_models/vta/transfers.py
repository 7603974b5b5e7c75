"""VTA LOAD and STORE: rows of elements between DRAM and the buffers, with strides and zero padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rewrite_compiler.ila import External, Ila, Match
from rewrite_compiler.lang import Array, Expr, Leaf, Step, lift, loop, maximum, require, seq, update, when, wrap

from .config import Config
from .fields import ACC, ACC_8BIT, INP, LOAD, OPCODE, OUT, STORE, UOP, WGT, Encoding
from .memories import Place, place_of

Fields = dict[str, Expr]

# instruction → memory_type, buffer, whose scalars it reads, virtual DRAM, documentation
LOADS = {
    "load_uop": (UOP, "uop", "uop", "uop", "Load micro-ops."),
    "load_wgt": (WGT, "wgt", "wgt", "wgt", "Load weights."),
    "load_inp": (INP, "inp", "inp", "inp", "Load inputs."),
    "load_acc": (ACC, "acc", "acc", "bias", "Load accumulators."),
    "load_acc_8bit": (ACC_8BIT, "acc", "inp", None, "Load accumulators from narrow scalars, sign-extended."),
}


@dataclass(frozen=True)
class Transfer:
    """One LOAD or STORE: its buffer, where its scalars lie in DRAM, and the fields of the instruction."""

    name: str
    buffer: Leaf
    shape: tuple[int, ...]
    place: Place
    rows: Expr
    count: Expr
    fields: Fields

    @property
    def depth(self) -> int:
        """Number of elements that the buffer holds."""
        return int(self.buffer.shape[0])  # type: ignore[arg-type]

    def number(self, row: Expr, column: Expr, lanes: tuple[Expr, ...]) -> Expr:
        """Return the number of a scalar in DRAM."""
        place = self.fields["dram_base"] + row * self.fields["x_stride"] + column
        for lane, extent in zip(lanes, self.shape, strict=True):
            place = place * extent + lane
        return place

    def in_dram(self, verb: str, step: Callable[..., Step]) -> Step:
        """Return `step` on the attached DRAM, after the check of the scalars it touches; nothing when there are none."""
        first = self.number(lift(0), lift(0), (lift(0),) * len(self.shape))
        last = self.number(self.rows - 1, self.count, (lift(0),) * len(self.shape)) - 1
        checked = self.place.access(f"{self.name} {verb}", first, last, step)
        return when((self.rows > 0) & (self.count > 0), checked)

    def in_buffer(self, verb: str, total: Expr) -> Step:
        """Return the check that `total` elements from sram_base lie in the buffer, and in no case exceed its size."""
        first = self.fields["sram_base"]
        last = first + total - 1
        sentence = f"{self.name} {verb} the elements {{first}}…{{last}} of {self.buffer.name}, which has {self.depth}"
        return seq(
            require(total <= self.depth, "I103", sentence, always=True, first=first, last=last),
            require((total == 0) | (last < self.depth), "I103", sentence, first=first, last=last),
        )

    def data(self, first: Expr, pitch: Expr, row: Expr | None = None) -> Step:
        """Return the update that copies all rows (or `row` alone) to element first + row · pitch onwards."""

        def copied(dram: External) -> Step:
            def scalar(r: Expr, i: Expr, *lanes: Expr) -> tuple[tuple[Expr, ...], Expr]:
                line = r if row is None else row
                value = self.place.read(dram, self.number(line, i, lanes))
                return ((first + line * pitch + i) % self.depth, *lanes), value

            return update(self.buffer, (self.rows if row is None else 1, self.count, *self.shape), scalar)

        return self.in_dram("reads", copied)

    def zeros(self, extents: tuple[Expr, ...], address: Callable[..., Expr]) -> Step:
        """Return the update that clears the elements at address(i, …)."""
        n = len(extents)
        return update(self.buffer, (*extents, *self.shape), lambda *i: ((address(*i[:n]) % self.depth, *i[n:]), 0))


def padded(t: Transfer) -> Step:
    """Rows of x_pad_0 zeros, data, x_pad_1 zeros, one after the other, between y_pad_0 and y_pad_1 rows of zeros."""
    f = t.fields
    pitch = f["x_pad_0"] + t.count + f["x_pad_1"]
    body = f["sram_base"] + pitch * f["y_pad_0"]
    bottom = body + pitch * t.rows
    has_zeros = f["x_pad_0"] + f["x_pad_1"] + f["y_pad_0"] + f["y_pad_1"] > 0
    zeros = seq(
        t.zeros((pitch * f["y_pad_0"],), lambda i: f["sram_base"] + i),
        t.zeros((t.rows, f["x_pad_0"]), lambda r, i: body + r * pitch + i),
        t.zeros((t.rows, f["x_pad_1"]), lambda r, i: body + r * pitch + f["x_pad_0"] + t.count + i),
        t.zeros((pitch * f["y_pad_1"],), lambda i: bottom + i),
    )
    checked = t.in_buffer("writes", pitch * (f["y_pad_0"] + t.rows + f["y_pad_1"]))
    return seq(checked, when(has_zeros, zeros), t.data(body + f["x_pad_0"], pitch))


def unpadded(t: Transfer) -> Step:
    """The rows of data one after the other; padding is ignored."""
    return seq(t.in_buffer("writes", t.rows * t.count), t.data(t.fields["sram_base"], t.count))


def overlapping(t: Transfer) -> Step:
    """As the published ILA pads inputs: the pitch is the data alone, so that a row overwrites the end of the one before."""
    f = t.fields
    width = f["x_pad_0"] + t.count + f["x_pad_1"]
    body = f["sram_base"] + width * f["y_pad_0"]
    bottom = body + (t.rows - 1) * t.count + width

    def row(r: Expr) -> Step:
        start = body + r * t.count
        return seq(
            t.zeros((f["x_pad_0"],), lambda i: start + i),
            t.data(body + f["x_pad_0"], t.count, r),
            t.zeros((f["x_pad_1"],), lambda i: start + f["x_pad_0"] + t.count + i),
        )

    return seq(
        t.in_buffer("writes", width * (f["y_pad_0"] + f["y_pad_1"] + 1) + (t.rows - 1) * t.count),
        t.zeros((width * f["y_pad_0"],), lambda i: f["sram_base"] + i),
        loop(t.rows, row),
        t.zeros((width * f["y_pad_1"],), lambda i: bottom + i),
    )


# behaviour → how each buffer is filled
FILLS: dict[str, dict[str, Callable[[Transfer], Step]]] = {
    "fsim": {"uop": padded, "wgt": padded, "inp": padded, "acc": padded},
    "hls": {"uop": unpadded, "wgt": unpadded, "inp": padded, "acc": padded},
    "ila": {"uop": unpadded, "wgt": unpadded, "inp": overlapping, "acc": unpadded},
}


def declare_transfers(m: Ila, c: Config, e: Encoding) -> None:
    """Declare the LOADs of this encoding and STORE."""
    for name, (memory_type, *_) in LOADS.items():
        if memory_type < 1 << e.memory_type.width:
            _declare_load(m, c, e, name)
    _declare_store(m, c, e)


def _declare_load(m: Ila, c: Config, e: Encoding, name: str) -> None:
    memory_type, buffer, scalars, virtual, doc = LOADS[name]
    decode = (m.word("data", OPCODE.low, OPCODE.high) == LOAD) & (m.word("data", e.memory_type.low, e.memory_type.high) == memory_type)
    behaviour = m.parameters["behaviour"]
    if name == "load_uop" and behaviour == "ila":
        decode = decode & (m.word("data", 3, 127) != 0)  # the all-zero word means no instruction there

    def load(**operands: Array) -> Step:
        fields = {key: leaf[()] for key, leaf in operands.items()}
        rows, count = _sizes(behaviour, fields, buffer)
        place = place_of(m, c, scalars, virtual)
        transfer = Transfer(name, getattr(m.s, buffer), c.shape(buffer), place, rows, count, fields)
        return seq(_portable(name, fields), _filled(behaviour, name, transfer))

    load.__doc__ = doc
    fixed = LOAD | memory_type << e.memory_type.low
    m.instruction(name, Match(decode, {"data": fixed}), e.transfer)(load)


def _sizes(behaviour: str, f: Fields, buffer: str) -> tuple[Expr, Expr]:
    """Return the rows and the elements a row; loops of the published ILA run at least once, micro-ops are one row in hardware."""
    rows = f["y_size"] if buffer != "uop" or behaviour == "fsim" else lift(1)
    return (maximum(rows, 1), maximum(f["x_size"], 1)) if behaviour == "ila" else (rows, f["x_size"])


def _filled(behaviour: str, name: str, t: Transfer) -> Step:
    if name == "load_acc_8bit" and behaviour != "fsim":
        return require(0, "I101", f"{name} exists in the functional simulator only")
    fill = FILLS[behaviour][t.buffer.name](t)
    return when(t.fields["x_size"] > 0, fill) if behaviour == "fsim" else fill


def _portable(name: str, f: Fields) -> Step:
    """Diagnose what the designs do differently: rows and padding of micro-ops, padding of weights, padding around nothing."""
    padding = f["x_pad_0"] + f["x_pad_1"] + f["y_pad_0"] + f["y_pad_1"]
    if name in ("load_uop", "load_wgt"):
        unpadded_only = require(padding == 0, "I102", f"{name} must not pad: only the functional simulator does")
        one_row = require((f["y_size"] == 1) | (f["x_size"] == 0), "I102", f"{name} must have 1 row, not {{rows}}", rows=f["y_size"])
        return unpadded_only if name == "load_wgt" else seq(unpadded_only, one_row)
    return require((padding == 0) | (f["x_size"] > 0), "I102", f"{name} of x_size 0 must not pad: the designs disagree")


def _declare_store(m: Ila, c: Config, e: Encoding) -> None:
    decode = m.word("data", OPCODE.low, OPCODE.high) == STORE
    fixed = STORE
    behaviour = m.parameters["behaviour"]
    if e.name == "current":
        fixed |= OUT << e.memory_type.low
        if behaviour == "fsim":
            decode = decode & (m.word("data", e.memory_type.low, e.memory_type.high) == OUT)

    def store(**operands: Array) -> Step:
        """Store outputs: the low bits of accumulators, never saturated; no padding."""
        fields = {key: leaf[()] for key, leaf in operands.items()}
        rows, count = _sizes(behaviour, fields, "acc")
        source = m.s.acc if behaviour == "fsim" else m.s.out
        return _stored(Transfer("store", source, c.shape("acc"), place_of(m, c, "inp", "out"), rows, count, fields))

    m.instruction("store", Match(decode, {"data": fixed}), e.transfer)(store)


def _stored(t: Transfer) -> Step:
    f = t.fields

    def rows_from(dram: External, first: Expr | int, rows: Expr | int) -> Step:
        def scalar(r: Expr, i: Expr, *lanes: Expr) -> tuple[Expr, Expr]:
            value = t.buffer[((f["sram_base"] + (first + r) * t.count + i) % t.depth, *lanes)]
            return t.number(first + r, i, lanes), wrap(value, t.place.bits)

        return t.place.write(dram, (rows, t.count, *t.shape), scalar)

    def written(dram: External) -> Step:
        apart = (t.rows <= 1) | (f["x_stride"] >= t.count)  # else a row overwrites the end of the one before
        return when(apart, rows_from(dram, 0, t.rows), loop(t.rows, lambda r: rows_from(dram, r, 1)))

    padding = f["x_pad_0"] + f["x_pad_1"] + f["y_pad_0"] + f["y_pad_1"]
    return seq(
        require(padding == 0, "I102", "store must not pad"),
        t.in_buffer("reads", t.rows * t.count),
        t.in_dram("writes", written),
    )
