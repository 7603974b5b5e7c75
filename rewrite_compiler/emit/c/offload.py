"""An offload as a C function: its operands' codes, the moves of its driver, and the values of its result codes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...compile.offload.execute import PreparedOffload
from ...compile.plan.plan import Offload
from ...ila import Ila
from ...ila.traces.trace import Commands
from ...lang.binders import Leaf
from ...lang.formats import Format
from ...readings.arrays.labelled_array import Data
from ...readings.c.printer import Tables, c_array, c_type
from ...target import Stay
from .bus_functions import MMIO
from .cells import Gather, cells_of, slot_name
from .command_stream import FetchWords, Fill, Get, Move, MoveRecorder, Pause, Put, Send, results_of
from .formats import code_type, deciding_bits, decoder, encoder, refuse_ieee, table_encoder
from .resident_weights import aligned_moves


@dataclass
class Unit:
    """A C file under construction: its tables, data, functions and format converters."""

    tables: Tables = field(default_factory=Tables)
    data: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    formats: dict[tuple[Format, str], str] = field(default_factory=dict)
    prepares: list[str] = field(default_factory=list)  # functions that are called once, before the first inference
    count: int = 0

    def fresh(self, prefix: str) -> str:
        """Return a new name with this prefix."""
        self.count += 1
        return f"{prefix}{self.count}"

    def encoder(self, f: Format, values: int) -> str:
        """Return the name of the function that encodes a float, for arrays of `values` values.

        Raises:
            InputError: F161, the format is an IEEE format.
        """
        refuse_ieee(f)
        bits = deciding_bits(f, values)
        way = "encode" if bits is None else "look_up"
        if (f, way) not in self.formats:
            name = self.formats[f, way] = f"{way}{len(self.formats)}"
            text = encoder(f, name, self.tables) if bits is None else table_encoder(f, name, self.encoder(f, 1), bits)
            self.prepares += [] if bits is None else [f"{name}_prepare"]
            self.functions.append(text)
        return self.formats[f, way]

    def decoder(self, f: Format) -> str:
        """Return the name of the function that decodes a code.

        Raises:
            InputError: F161, the format is an IEEE format.
        """
        refuse_ieee(f)
        if (f, "decode") not in self.formats:
            name = self.formats[f, "decode"] = f"decode{len(self.formats)}"
            self.functions.append(decoder(f, name, self.tables))
        return self.formats[f, "decode"]


@dataclass
class _Writer:
    """The C function of one offload under construction."""

    unit: Unit
    bus: str  # prefix of the integrator's functions
    ila: Ila
    flag: str
    names: dict[Leaf, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    @property
    def suffix(self) -> str:
        """The suffix of the functions that move commands of this accelerator."""
        return moves_suffix(self.bus)


def moves_suffix(bus: str) -> str:
    """Return the suffix of the functions that move commands: empty for the only accelerator of a program."""
    return bus.removeprefix("mmio")


def offload_function(
    unit: Unit, prepared: PreparedOffload, ila: Ila, bus: str, stays: Sequence[tuple[Stay, Stay]] = ()
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """Print an offload; return its name and its moving operands, its parameters before the results.

    `stays` are the resident tensors of every call in the first inference and in the later ones.

    Raises:
        InputError: F161, a format, or what the driver does to data, has no C form.
    """
    o = prepared.offload
    flags = [n for n in ila.inputs if n not in MMIO]
    w = _Writer(unit, bus, ila, flags[0] if flags else "")
    name = f"offload_{o.id}"
    moving = tuple(v.name for v in o.mapping.operands if v.name not in prepared.constants)
    leaves = {n: Leaf(tuple(o.tiling.sizes[d] for d in o.mapping.axes.of[n]), o.formats[n].codes, False, n) for n in moving}
    for n, leaf in leaves.items():
        _emit_encoding(w, name, n, leaf, o.formats[n])
    for n in o.mapping.axes.results:
        size = math.prod(o.tiling.sizes[d] for d in o.mapping.axes.of[n])
        w.lines.append(f"    for (size_t i = 0; i < {size}; ++i) {n}[i] = 0.0f;")
    codes: dict[str, Data] = {**prepared.codes, **{n: cells_of(leaf) for n, leaf in leaves.items()}}
    for k, slices in enumerate(o.tiling.slices()):
        first_stay, later_stay = stays[k] if stays else (None, None)
        steps = later_steps = MoveRecorder(ila)
        results = prepared.call(steps, codes, slices, first_stay)
        if later_stay != first_stay:
            later_steps = MoveRecorder(ila)
            prepared.call(later_steps, codes, slices, later_stay)
        _moves(w, steps, later_steps)
        for n, y in results.items():
            _emit_decoding(w, n, results_of(y), o, slices)
    parameters = [*(f"const float *{n}" for n in moving), *(f"float *{n}" for n in o.mapping.axes.results)]
    body = "\n".join(["    int answer;", *w.lines, "    return 0;"])
    unit.functions.append(f"static int {name}({', '.join(parameters)})\n{{\n{body}\n}}\n")
    return name, moving


def _emit_encoding(w: _Writer, name: str, operand: str, leaf: Leaf, f: Format) -> None:
    buffer = w.names[leaf] = f"{name}_{operand}_codes"
    size = math.prod(int(str(n)) for n in leaf.shape)
    w.unit.data.append(f"static {code_type(f)} {buffer}[{max(1, size)}];")
    w.lines += [
        f"    for (size_t i = 0; i < {size}; ++i) {{",
        f"        if ({operand}[i] != {operand}[i]) return MODEL_NOT_A_NUMBER;",
        f"        {buffer}[i] = {w.unit.encoder(f, size)}({operand}[i]);",
        "    }",
    ]


def _emit_decoding(w: _Writer, result: str, cells: Gather, o: Offload, slices: Mapping[str, slice]) -> None:
    """Add the values of a tile's result codes to the result, in the order of the tiles."""
    f, dims = o.formats[result], o.mapping.axes.of[result]
    shape = tuple(o.tiling.sizes[d] for d in dims)
    places = np.arange(math.prod(shape)).reshape(shape)[tuple(slices[d] for d in dims)].reshape(-1)
    cell, place = _cells(w, cells), w.unit.fresh("place")
    w.unit.data.append(c_array(place, places.astype(np.int32)))
    value = f"{w.unit.decoder(f)}(({code_type(f)}){cell}(i))"
    w.lines.append(f"    for (size_t i = 0; i < {len(places)}; ++i) {result}[{place}[i]] += (float){value};")


# -- moves


def _moves(w: _Writer, first: MoveRecorder, later: MoveRecorder) -> None:
    """Print the moves of a call in the first inference and, where these omit constants, in the later ones."""
    for buffer in first.buffers:
        w.names[buffer] = w.unit.fresh("buffer")
        size = math.prod(int(str(n)) for n in buffer.shape)
        w.unit.data.append(f"static {c_type(buffer.interval, False)} {w.names[buffer]}[{max(1, size)}];")
    for first_buffer, later_buffer in zip(first.buffers, later.buffers, strict=True):  # reads do not depend on what lies there
        w.names[later_buffer] = w.names[first_buffer]
    for part in aligned_moves(first, later):
        if part.first is part.later:
            w.lines += [f"    {line}" for m in part.first for line in _move(w, m)]
        else:
            _either(w, part.first, part.later)


def _either(w: _Writer, first: Sequence[Move], later: Sequence[Move]) -> None:
    w.lines.append("    if (!constants_stay) {" if first else "    if (constants_stay) {")
    w.lines += [f"        {line}" for m in first or later for line in _move(w, m)]
    if first and later:
        w.lines.append("    } else {")
        w.lines += [f"        {line}" for m in later for line in _move(w, m)]
    w.lines.append("    }")


def _move(w: _Writer, move: object) -> Iterator[str]:
    if isinstance(move, Send):
        yield _checked(f"send{w.suffix}({_commands(w, move.commands)}, {len(move.commands)})")
    elif isinstance(move, Put):
        yield _checked(f"put{w.suffix}({_commands(w, move.commands)}, {len(move.commands)}, {move.lanes}, {_cells(w, move.cells)})")
    elif isinstance(move, Get):
        lanes = int(str(move.buffer.shape[1]))
        yield _checked(f"get{w.suffix}({_commands(w, move.commands)}, {len(move.commands)}, {lanes}, {w.names[move.buffer]})")
    elif isinstance(move, FetchWords):
        yield _checked(f"{w.bus}_{move.memory}_read({move.address}, {w.names[move.buffer]}, sizeof {w.names[move.buffer]})")
    elif isinstance(move, Fill):
        yield from _fill(w, move)
    elif isinstance(move, Pause):
        if move.words:
            rows = ",\n    ".join(_bytes(word.to_bytes(16, "little")) for word in move.words)
            name = w.unit.fresh("stream")
            w.unit.data.append(f"static const uint8_t {name}[{len(move.words)}][16] = {{\n    {rows}\n}};\n")
            yield _checked(f"{w.bus}_run({name}, {len(move.words)})")
        yield _checked(f"{w.bus}_wait()")


def _fill(w: _Writer, move: Fill) -> Iterator[str]:
    if move.cells is None:
        yield _checked(f"{w.bus}_{move.memory}_new({move.words})")
        return
    n, name = len(move.cells.form_numbers), w.unit.fresh("words")
    if not move.cells.form_numbers.any():
        w.unit.data.append(c_array(name, (move.cells.indices[:, 0] % 256).astype(np.uint8)))
    else:
        w.unit.data.append(f"static uint8_t {name}[{n}];")
        yield f"for (size_t i = 0; i < {n}; ++i) {name}[i] = (uint8_t){_cells(w, move.cells)}(i);"
    yield _checked(f"{w.bus}_{move.memory}_write({move.address}, {name}, {n})")


def _checked(call: str) -> str:
    return f"if ((answer = {call}) != 0) return answer;"


def _commands(w: _Writer, block: Commands) -> str:
    """Print a table of commands and return its name."""
    name = w.unit.fresh("commands")
    flags = block.columns[w.flag].tolist() if w.flag else [0] * len(block)
    data = np.zeros((len(block), 16), np.uint8)
    lanes = block.columns["data"]
    data[:, : lanes.shape[1]] = lanes
    rows = [
        f"{{{address:#x}, {flag}, {_bytes(word)}}}"
        for address, flag, word in zip(block.columns["addr"].tolist(), flags, (x.tobytes() for x in data), strict=True)
    ]
    w.unit.data.append(f"static const command {name}[{len(rows)}] = {{\n    " + ",\n    ".join(rows) + "\n};\n")
    return name


def _bytes(word: bytes) -> str:
    significant = word.rstrip(b"\0") or b"\0"
    return "{" + ",".join(map(str, significant)) + "}"


def _cells(w: _Writer, g: Gather) -> str:
    """Print cells as a function of their row-major index; return its name."""
    name, width = w.unit.fresh("cell"), g.width
    if _is_copy(g):
        return _emit_copy(w, g, name)
    flat = [(f"{name}_at", g.indices.reshape(-1)), (f"{name}_kind", g.form_numbers.astype(np.uint8))]
    if len(g.sources) > 1:
        flat.append((f"{name}_from", g.source_numbers.astype(np.uint8).reshape(-1)))
    w.unit.data += [c_array(n, x) for n, x in flat]
    cases = "".join(f"    case {k}: return {form};\n" for k, form in enumerate(g.forms) if k)
    reads = "".join(f"    v[{k}] = {_element_read(w, g, name, width, k)};\n" for k in range(width))
    head = f"    int64_t v[{width}];\n    if ({name}_kind[n] == 0) return {name}_at[n * {width}];\n"
    body = f"{head}{reads}    switch ({name}_kind[n]) {{\n{cases}    default: return 0;\n    }}\n"
    if not g.sources:
        body = f"    return {name}_at[n * {width}];\n"
    w.unit.functions.append(f"static int64_t {name}(size_t n)\n{{\n{body}}}\n")
    return name


def _is_copy(g: Gather) -> bool:
    """Tell whether cells are the unchanged elements of one array."""
    return g.forms == ("", slot_name(0)) and len(g.sources) == 1 and bool(g.form_numbers.all())


def _emit_copy(w: _Writer, g: Gather, name: str) -> str:
    indices, index = g.indices.reshape(-1), f"{name}_at[n]"
    if (np.diff(indices) == 1).all():
        index = f"n + {indices[0]}" if indices[0] else "n"
    else:
        w.unit.data.append(c_array(f"{name}_at", indices))
    w.unit.functions.append(f"static int64_t {name}(size_t n)\n{{\n    return {w.names[g.sources[0]]}[{index}];\n}}\n")
    return name


def _element_read(w: _Writer, g: Gather, name: str, width: int, k: int) -> str:
    index = f"{name}_at[n * {width} + {k}]"
    if len(g.sources) == 1:
        return f"{w.names[g.sources[0]]}[{index}]"
    text = f"{w.names[g.sources[-1]]}[{index}]"
    for n, leaf in reversed(list(enumerate(g.sources[:-1]))):
        text = f"{name}_from[n * {width} + {k}] == {n} ? {w.names[leaf]}[{index}] : {text}"
    return f"({text})"
