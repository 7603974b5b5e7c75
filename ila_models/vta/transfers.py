"""VTA LOAD and STORE: rows of elements between DRAM and the buffers, with strides and zero padding."""

from collections.abc import Callable
from functools import partial

from rewrite_compiler.ila import ExternalWords, Fields, Ila
from rewrite_compiler.lang import Expr, Step, lift, loop, maximum, require, row_major, seq, update, when

from .config import Config
from .fields import ACC, ACC_8BIT, INP, LOAD, OUT, STORE, UOP, WGT, Words

# instruction → memory_type, buffer, whose scalars it reads, virtual DRAM, documentation
LOADS = {
    "load_uop": (UOP, "uop", "uop", "uop", "Load micro-ops."),
    "load_wgt": (WGT, "wgt", "wgt", "wgt", "Load weights."),
    "load_inp": (INP, "inp", "inp", "inp", "Load inputs."),
    "load_acc": (ACC, "acc", "acc", "bias", "Load accumulators."),
    "load_acc_8bit": (ACC_8BIT, "acc", "inp", "", "Load accumulators from narrow scalars, sign-extended."),
}


class Transfer:
    """One LOAD or STORE: its buffer, where its scalars lie in DRAM, the fields of the instruction, and what they come to."""

    def __init__(self, m: Ila, c: Config, name: str, buffer: str, scalars: str, virtual: str, fields: Fields) -> None:
        """Make it of buffer and fields; `scalars` and `virtual` say what of DRAM it moves, "" that no virtual DRAM has it."""
        self.name, self.fields = name, fields
        self.buffer, self.depth, self.shape = m.s[buffer], c.depth(buffer), c.shape(buffer)
        bits, signed = c.width(scalars), scalars != "uop"
        self.image = m.externals["dram"].words(bits, signed=signed)
        self.virtual = m.externals[f"dram_{virtual}"].words(bits, signed=signed) if virtual else None
        least = 1 if c.behaviour == "ila" else 0  # loops of the published ILA run at least once
        rows = fields.y_size if buffer != "uop" or c.behaviour == "fsim" else lift(1)  # micro-ops are one row in hardware
        self.rows, self.count = maximum(rows, least), maximum(fields.x_size, least)
        self.padding = fields.x_pad_0 + fields.x_pad_1 + fields.y_pad_0 + fields.y_pad_1

    def number(self, row: Expr, column: Expr, lanes: tuple[Expr, ...]) -> Expr:
        """Return the number of a scalar in DRAM."""
        element = self.fields.dram_base + row * self.fields.x_stride + column
        return row_major((element, *lanes), (1, *self.shape))

    def in_dram(self, verb: str, step: Callable[[ExternalWords], Step]) -> Step:
        """Return `step` on the attached DRAM, after the check of the scalars it touches; nothing when there are none."""
        origin = (lift(0),) * len(self.shape)
        first, last = self.number(lift(0), lift(0), origin), self.number(self.rows - 1, self.count, origin) - 1
        subject = f"{self.name} {verb}"
        sentence = f"{subject} the DRAM bytes {{first}}…{{last}}; the image holds {{start}}…{{end}}"
        image = seq(self.image.require(first, last, sentence), step(self.image))
        missing = require(0, "I103", f"{subject} DRAM, but no DRAM image is attached", always=True)
        if self.virtual is not None:
            sentence = f"{subject} the scalars {{first}}…{{last}} of {self.virtual.external.name}, which has {{size}}"
            missing = seq(self.virtual.require(first, last, sentence), step(self.virtual))
        return when((self.rows > 0) & (self.count > 0), when(self.image.external.is_attached, image, missing))

    def in_buffer(self, verb: str, total: Expr) -> Step:
        """Return the check that `total` elements from sram_base lie in the buffer, and in no case exceed its size."""
        first = self.fields.sram_base
        last = first + total - 1
        sentence = f"{self.name} {verb} the elements {{first}}…{{last}} of {self.buffer.name}, which has {self.depth}"
        return seq(
            require(total <= self.depth, "I103", sentence, always=True, first=first, last=last),
            require((total == 0) | (last < self.depth), "I103", sentence, first=first, last=last),
        )

    def data(self, first: Expr, pitch: Expr, row: Expr | None = None) -> Step:
        """Return the update that copies all rows (or `row` alone) to element first + row · pitch onwards."""

        def copied(dram: ExternalWords) -> Step:
            def scalar(r: Expr, i: Expr, *lanes: Expr) -> tuple[tuple[Expr, ...], Expr]:
                line = r if row is None else row
                return ((first + line * pitch + i) % self.depth, *lanes), dram.word(self.number(line, i, lanes))

            return update(self.buffer, (self.rows if row is None else 1, self.count, *self.shape), scalar)

        return self.in_dram("reads", copied)

    def zeros(self, extents: tuple[Expr, ...], address: Callable[..., Expr]) -> Step:
        """Return the update that clears the elements at address(i, …)."""
        n = len(extents)
        return update(self.buffer, (*extents, *self.shape), lambda *i: ((address(*i[:n]) % self.depth, *i[n:]), 0))


def padded(t: Transfer) -> Step:
    """Rows of x_pad_0 zeros, data, x_pad_1 zeros, one after the other, between y_pad_0 and y_pad_1 rows of zeros."""
    f = t.fields
    pitch = f.x_pad_0 + t.count + f.x_pad_1
    body = f.sram_base + pitch * f.y_pad_0
    bottom = body + pitch * t.rows
    zeros = seq(
        t.zeros((pitch * f.y_pad_0,), lambda i: f.sram_base + i),
        t.zeros((t.rows, f.x_pad_0), lambda r, i: body + r * pitch + i),
        t.zeros((t.rows, f.x_pad_1), lambda r, i: body + r * pitch + f.x_pad_0 + t.count + i),
        t.zeros((pitch * f.y_pad_1,), lambda i: bottom + i),
    )
    checked = t.in_buffer("writes", pitch * (f.y_pad_0 + t.rows + f.y_pad_1))
    return seq(checked, when(t.padding > 0, zeros), t.data(body + f.x_pad_0, pitch))


def unpadded(t: Transfer) -> Step:
    """The rows of data one after the other; padding is ignored."""
    return seq(t.in_buffer("writes", t.rows * t.count), t.data(t.fields.sram_base, t.count))


def overlapping(t: Transfer) -> Step:
    """As the published ILA pads inputs: the pitch is the data alone, so that a row overwrites the end of the one before."""
    f = t.fields
    width = f.x_pad_0 + t.count + f.x_pad_1
    body = f.sram_base + width * f.y_pad_0
    bottom = body + (t.rows - 1) * t.count + width

    def row(r: Expr) -> Step:
        start = body + r * t.count
        return seq(
            t.zeros((f.x_pad_0,), lambda i: start + i),
            t.data(body + f.x_pad_0, t.count, r),
            t.zeros((f.x_pad_1,), lambda i: start + f.x_pad_0 + t.count + i),
        )

    return seq(
        t.in_buffer("writes", width * (f.y_pad_0 + f.y_pad_1 + 1) + (t.rows - 1) * t.count),
        t.zeros((width * f.y_pad_0,), lambda i: f.sram_base + i),
        loop(t.rows, row),
        t.zeros((width * f.y_pad_1,), lambda i: bottom + i),
    )


# behaviour → how each buffer is filled
FILLS: dict[str, dict[str, Callable[[Transfer], Step]]] = {
    "fsim": {"uop": padded, "wgt": padded, "inp": padded, "acc": padded},
    "hls": {"uop": unpadded, "wgt": unpadded, "inp": padded, "acc": padded},
    "ila": {"uop": unpadded, "wgt": unpadded, "inp": overlapping, "acc": unpadded},
}


def declare_transfers(m: Ila, c: Config, words: Words) -> None:
    """Declare the LOADs of this encoding and STORE."""
    layout = words["transfer"]
    types = 1 << layout["memory_type"].width
    for name, (memory_type, buffer, scalars, virtual, doc) in LOADS.items():
        if memory_type < types:
            # the all-zero word means no instruction to the published ILA
            extra = m.word("data", 3, 127) != 0 if (name, c.behaviour) == ("load_uop", "ila") else None
            update = partial(_load, c, partial(Transfer, m, c, name, buffer, scalars, virtual))
            m.encoded(name, layout, {"opcode": LOAD, "memory_type": memory_type}, update, extra=extra, doc=doc)
    fixed_fields = {"memory_type": OUT if types > OUT else 0}  # two bits have no room for OUT: such an encoding of STORE carries 0
    having = {"opcode": STORE} | (fixed_fields if types > OUT and c.behaviour == "fsim" else {})
    source = partial(Transfer, m, c, "store", "acc" if c.behaviour == "fsim" else "out", "inp", "out")
    doc = "Store outputs: the low bits of accumulators, never saturated; no padding."
    m.encoded("store", layout, having, lambda f: _store(source(f)), sets=fixed_fields, doc=doc)


def _load(c: Config, transfer: Callable[[Fields], Transfer], f: Fields) -> Step:
    t = transfer(f)
    if t.name == "load_acc_8bit" and c.behaviour != "fsim":
        filled = require(0, "I101", f"{t.name} exists in the functional simulator only")
    else:
        fill = FILLS[c.behaviour][t.buffer.name](t)
        filled = when(f.x_size > 0, fill) if c.behaviour == "fsim" else fill
    return seq(_portable(t), filled)


def _portable(t: Transfer) -> Step:
    """Diagnose what the designs do differently: rows and padding of micro-ops, padding of weights, padding around nothing."""
    rows, is_empty = t.fields.y_size, t.fields.x_size == 0
    if t.name not in ("load_uop", "load_wgt"):
        return require((t.padding == 0) | ~is_empty, "I102", f"{t.name} of x_size 0 must not pad: the designs disagree")
    unpadded_only = require(t.padding == 0, "I102", f"{t.name} must not pad: only the functional simulator does")
    one_row = require((rows == 1) | is_empty, "I102", f"{t.name} must have 1 row, not {{rows}}", rows=rows)
    return unpadded_only if t.name == "load_wgt" else seq(unpadded_only, one_row)


def _store(t: Transfer) -> Step:
    f = t.fields

    def rows_from(dram: ExternalWords, first: Expr | int, rows: Expr | int) -> Step:
        def scalar(r: Expr, i: Expr, *lanes: Expr) -> tuple[Expr, Expr]:
            source = (f.sram_base + (first + r) * t.count + i) % t.depth
            return t.number(first + r, i, lanes), t.buffer[(source, *lanes)]

        return dram.store((rows, t.count, *t.shape), scalar)

    def written(dram: ExternalWords) -> Step:
        is_disjoint = (t.rows <= 1) | (f.x_stride >= t.count)  # else a row overwrites the end of the one before
        return when(is_disjoint, rows_from(dram, 0, t.rows), loop(t.rows, lambda r: rows_from(dram, r, 1)))

    unpadded_only = require(t.padding == 0, "I102", "store must not pad")
    return seq(unpadded_only, t.in_buffer("reads", t.rows * t.count), t.in_dram("writes", written))
