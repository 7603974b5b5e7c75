"""Golden vectors: what a real design computed, replayed on its model.

They lie in `golden/NAME` or `tests/golden/NAME` beside the target's files or up to two folders above: `traces.json` (or
`.json.xz`), a list of records, and `*.npz` files with their arrays. A record is one of

* `commands`: [["W", address, data], ["R", address], ["I"]] (write, read, wait for the interrupt, for which
  recorded traces have ["Q"], too; numbers in hexadecimal),
  with `reads` or `reads_hw`, [[address, data]], what the reads gave;
* `trace`: [["W" | "R", address, data, virtual]], with arrays `NAME.STATE_after`, the first words of a state afterwards;
* `instructions_hex` on the image `NAME.dram_before` at `phys_base`, with `NAME.dram_after` (`…_after_VALUE` for a design
  whose parameters have that value). One without `phys_base` is of a design whose memories lie apart, each in an array
  `NAME.MEMORY`, and is not replayed.

`design` limits a record to targets that have a parameter of that value.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...data.arrays import read_npz
from ...errors import FlexmatchError, InputError
from ...ila import Ila
from ...ila.simulation.simulator import Simulator
from ...intake import MAX_DOCUMENT_BYTES, FileBound, MalformedText, parse_json, read_bytes
from ...ir.program import Data
from ...limits import DEFAULT
from ...target import Target

FILES = ("traces.json", "traces.json.xz")
SEARCH_DEPTH = 3
BOUND = FileBound("a golden vectors", MAX_DOCUMENT_BYTES, "leave some vectors out")
MOST_UNPACKER_BYTES = 256 << 20  # of memory; a dictionary of .xz files is 64 MiB at most by the common presets
Record = MappingOf[str, Any]


@dataclass(frozen=True)
class ReplayResult:
    """The replay of a folder's vectors: names that ran, first difference of each that differs, how many are of other designs."""

    folder: Path
    names: tuple[str, ...]
    differences: MappingOf[str, str]
    other_designs: int


def golden_folder(target: Target) -> Path | None:
    """Return the folder of a target's golden vectors; None without any."""
    for source in target.sources[:1]:
        for base in list(source.resolve().parents)[:SEARCH_DEPTH]:
            for folder in (base / "golden" / target.name, base / "tests" / "golden" / target.name):
                if any((folder / f).is_file() for f in FILES):
                    return folder
    return None


def replay(target: Target, ila: Ila) -> ReplayResult | None:
    """Replay every vector recorded on the target's parameters; None when it has no vectors.

    Raises:
        InputError: (C100) a file of vectors is malformed, or a record of them cannot be replayed or compares nothing.
    """
    folder = golden_folder(target)
    if folder is None:
        return None
    records, arrays = _records(folder), _arrays(folder)
    for record in records:
        if fault := _fault(record, arrays):
            raise InputError("C100", f'golden vector "{record["name"]}" {fault}', place=str(folder))
    run, differs, other_designs = [], dict[str, str](), 0
    for record in records:
        compare = next((f for key, f in KINDS.items() if key in record), None)
        if compare is None or not _fits(record, target, arrays):
            other_designs += 1
            continue
        run.append(str(record["name"]))
        try:
            difference = compare(ila, record, arrays, target)
        except FlexmatchError as error:
            difference = error.problem.sentence
        if difference:
            differs[str(record["name"])] = difference
    return ReplayResult(folder, tuple(run), differs, other_designs)


def _records(folder: Path) -> list[Record]:
    path = next(folder / f for f in FILES if (folder / f).is_file())
    try:
        records = parse_json(_unpacked(path))
    except MalformedText as error:
        raise InputError("C100", f"golden vectors must be a list of records in JSON: {error}", place=str(path)) from None
    if not isinstance(records, list) or any(not isinstance(r, dict) or not isinstance(r.get("name"), str) for r in records):
        raise InputError("C100", "golden vectors must be a list of records, each with a name", place=str(path))
    return records


def _unpacked(path: Path) -> bytes:
    """Return the text of a file of records, within a bound on its size, packed or not."""
    data = read_bytes(path, BOUND)
    if path.suffix != ".xz":
        return data
    unpacker = lzma.LZMADecompressor(memlimit=MOST_UNPACKER_BYTES)
    try:
        text = unpacker.decompress(data, max_length=BOUND.bytes)
    except lzma.LZMAError as error:
        raise InputError("C100", f"golden vectors must be a whole .xz file: {error}", place=str(path)) from None
    if not unpacker.eof:
        reason = "is cut off" if unpacker.needs_input else f"has more than {BOUND.bytes:,} bytes when it is unpacked"
        raise InputError("C100", f"golden vectors must be a whole .xz file; this one {reason}", place=str(path))
    return text


def _arrays(folder: Path) -> dict[str, Data]:
    archives = [read_npz(path, DEFAULT).arrays for path in sorted(folder.glob("*.npz"))]
    return {name: x for arrays in archives for name, x in arrays.items()}


def _fault(record: Record, arrays: MappingOf[str, Data]) -> str:
    """Return what keeps a record from being replayed and compared, nothing where it can be."""
    name = record["name"]
    if "commands" in record:
        commands, reads = record["commands"], record.get("reads", record.get("reads_hw", []))
        if not _are_rows(commands, ("W", 2), ("R", 1), ("I", 0), ("Q", 0)):
            return 'must have commands ["W", address, data], ["R", address], ["I"] or ["Q"], with numbers in hexadecimal'
        if not isinstance(reads, list) or any(not isinstance(r, list) or len(r) != 2 or not all(map(_is_hexadecimal, r)) for r in reads):
            return "must have reads [address, data], with numbers in hexadecimal"
        count = sum(c[0] == "R" for c in commands)
        if not count:
            return "compares nothing: none of its commands is a read"
        return "" if count == len(reads) else f"must say what each of its {count} reads gave, not of {len(reads)}"
    if "trace" in record:
        if not _are_rows(record["trace"], ("W", 3), ("R", 3), last_is_flag=True):
            return 'must have a trace of ["W" or "R", address, data, virtual], with numbers in hexadecimal'
        has_state = any(key.rpartition(".")[0] == name and key.endswith("_after") for key in arrays)
        return "" if has_state else f'compares nothing: no .npz file has an array "{name}.STATE_after"'
    if "instructions_hex" in record:
        words = record["instructions_hex"]
        memories = [key.removeprefix(f"{name}.") for key in arrays if key.startswith(f"{name}.")]
        if "phys_base" not in record and memories and not any(memory.startswith("dram_") for memory in memories):
            return ""  # of a design whose memories lie apart
        if not isinstance(words, list) or not all(map(_is_hexadecimal, words)) or not isinstance(record.get("phys_base"), int):
            return "must have instructions_hex, a list of numbers in hexadecimal, and phys_base, a whole number"
        return "" if f"{name}.dram_before" in arrays else f'has no array "{name}.dram_before" in an .npz file'
    return f"has none of {', '.join(KINDS)}"


def _are_rows(rows: object, *forms: tuple[str, int], last_is_flag: bool = False) -> bool:
    """Tell whether rows are lists of a kind and its number of operands in hexadecimal, the last one perhaps a flag."""
    counts = dict(forms)

    def is_row(row: object) -> bool:
        if not isinstance(row, list) or not row or counts.get(str(row[0])) != len(row) - 1:
            return False
        numbers = row[1:-1] if last_is_flag else row[1:]
        return all(map(_is_hexadecimal, numbers)) and (not last_is_flag or row[-1] in (0, 1))

    return isinstance(rows, list) and all(map(is_row, rows))


def _is_hexadecimal(x: object) -> bool:
    return isinstance(x, str) and re.fullmatch(r"(0[xX])?[0-9a-fA-F]+", x) is not None


def _fits(record: Record, target: Target, arrays: MappingOf[str, Data]) -> bool:
    if record.get("design", next(iter(target.values.values()), None)) not in target.values.values() and "design" in record:
        return False
    return "instructions_hex" not in record or _image(record, target, arrays) is not None


def _image(record: Record, target: Target, arrays: MappingOf[str, Data]) -> Data | None:
    """Return the image after a program on this design; None when it is not recorded."""
    name = record["name"]
    special = [f"{name}.dram_after_{v}" for v in target.values.values()]
    return next((arrays[k] for k in (*special, f"{name}.dram_after") if k in arrays), None)


def _replay_commands(ila: Ila, record: Record, arrays: MappingOf[str, Data], target: Target) -> str:
    sim = Simulator(ila)
    expected_reads = iter(record.get("reads", record.get("reads_hw", ())))
    for kind, *operands in record["commands"]:
        if kind == "W":
            sim.write(int(operands[0], 16), int(operands[1], 16))
        elif kind == "R":
            address, expected = next(expected_reads)
            actual = sim.read(int(operands[0], 16))
            if actual != int(expected, 16):
                return f"a read of {address} gives {actual:#x}, the design gave {int(expected, 16):#x}"
        else:
            sim.wait_for_interrupt()
    return ""


def _replay_states(ila: Ila, record: Record, arrays: MappingOf[str, Data], target: Target) -> str:
    sim = Simulator(ila)
    for mode, address, data, virtual in record["trace"]:
        if mode == "W":
            sim.write(int(address, 16), int(data, 16), virtual=virtual)
        else:
            sim.read(int(address, 16), virtual=virtual)
    for key, recorded in arrays.items():
        name, _, state = key.rpartition(".")
        if name == record["name"] and state.endswith("_after"):
            expected = np.ascontiguousarray(recorded).view(np.uint8).reshape(-1)
            actual = np.ascontiguousarray(sim.state(state.removesuffix("_after"))).view(np.uint8).reshape(-1)[: len(expected)]
            if len(actual) < len(expected):
                return f"{state.removesuffix('_after')} has {len(actual)} bytes, the design gave {len(expected)}"
            for n in np.flatnonzero(actual != expected)[:1]:
                return f"byte {n} of {state.removesuffix('_after')} is {actual[n]}, the design gave {expected[n]}"
    return ""


def _replay_stream(ila: Ila, record: Record, arrays: MappingOf[str, Data], target: Target) -> str:
    image = bytearray(arrays[f"{record['name']}.dram_before"].tobytes())
    ila.simulator(dram=image, base=record["phys_base"]).run([int(w, 16) for w in record["instructions_hex"]])
    after = _image(record, target, arrays)
    assert after is not None  # otherwise the record is of another design
    actual, expected = np.frombuffer(image, np.uint8), np.frombuffer(after.tobytes(), np.uint8)
    if len(actual) != len(expected):
        return f"the image has {len(actual)} bytes, the design gave {len(expected)}"
    for n in np.flatnonzero(actual != expected)[:1]:
        return f"byte {n} of the image is {actual[n]}, the design gave {expected[n]}"
    return ""


KINDS: dict[str, Callable[[Ila, Record, MappingOf[str, Data], Target], str]] = {
    "commands": _replay_commands,
    "trace": _replay_states,
    "instructions_hex": _replay_stream,
}
