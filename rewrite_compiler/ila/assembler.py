"""The assembler and the disassembler of every model: a line a word, `ADD #3,#0,#1,VECTOR`, from the mnemonics of the model.

Fields stand in the order of the instruction, as numbers (with or without #) or names of values, or by name (`dst=3`). What the
decode reads and no field says follows after `|`, input by input. Comments run from `;` or `//` to the end of their line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import SpecError, did_you_mean, printable
from ..readings.arrays.labelled_array import Data
from .mnemonic import LIMB, UNDECODED, Field, InstructionSet, Mnemonic, limbs_of, width_of, word_of

COMMENT = re.compile(r"(?:;|//)[^\n]*")
NUMBER = re.compile(r"#?([+-]?\d+|0x[0-9a-fA-F]+|0b[01]+)", re.ASCII)
ASSIGNMENT = re.compile(r"(\w+)=(\S+)", re.ASCII)
GREATEST = (1 << 63) - 1  # where numbers end that are parsed at once: a longer one reads as this one
WORD_FORMS = ("binary", "hex", "bits")


@dataclass(frozen=True, eq=False)
class Program:
    """Words of one instruction set, as rows of limbs."""

    isa: InstructionSet
    words: Data

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[int]:
        return map(word_of, self.words)

    def to_bytes(self, form: str = "binary") -> bytes:
        """Return the words little-endian one after the other, or as lines of hexadecimal or binary digits, highest digit first."""
        size = self.isa.bits // 8
        if form == "binary":
            raw = np.ascontiguousarray(self.words, "<u8").view(np.uint8).reshape(len(self), 8 * self.isa.limbs)
            return raw[:, :size].tobytes()
        digits = f"0{2 * size}x" if form == "hex" else f"0{8 * size}b"
        return "".join(f"{word:{digits}}\n" for word in self).encode()


def read_program(isa: InstructionSet, data: bytes, place: str, form: str = "binary") -> Program:
    """Return the program in a file of words.

    Raises:
        SpecError: I101, the file is no number of words, or a line is no word.
    """
    size = isa.bits // 8
    if form != "binary":
        lines = enumerate(data.decode("utf-8", "replace").splitlines(), 1)
        words = [_digits(isa, line, n, place, form) for n, line in lines if line.strip()]
        return Program(isa, np.array([limbs_of(w, isa.limbs) for w in words], np.uint64).reshape(-1, isa.limbs))
    if len(data) % size:
        sentence = f"words of {isa.ila.name} take {size} bytes each; {len(data):,} bytes are no number of words"
        raise SpecError("I101", sentence, place=place, help="--words says how they are written, if they are lines of digits")
    raw = np.zeros((len(data) // size, isa.limbs * 8), np.uint8)
    raw[:, :size] = np.frombuffer(data, np.uint8).reshape(-1, size)
    return Program(isa, raw.view("<u8").astype(np.uint64))


def _digits(isa: InstructionSet, line: str, number: int, place: str, form: str) -> int:
    text, base = line.strip(), 16 if form == "hex" else 2
    pattern = r"(?:0x)?[0-9a-fA-F]+" if form == "hex" else r"[01]+"
    if re.fullmatch(pattern, text) is None or int(text, base) >> isa.bits:
        sentence = f'a word must be at most {isa.bits} bits as {"hexadecimal" if form == "hex" else "binary"} digits, not "{text[:80]}"'
        raise SpecError("I101", sentence, place=f"{place}:{number}", help="--words says how words are written: binary, hex or bits")
    return int(text, base)


# -- assembling


def assemble_text(isa: InstructionSet, text: str, place: str = "the text") -> Program:
    """Return the words of an assembly text.

    Raises:
        SpecError: I101, a line does not parse, with line and column; I102, a field cannot hold its value.
    """
    lines = _without_comments(text).split("\n")
    heads: dict[str, list[int]] = {}
    tails: dict[str, list[str]] = {}
    for number, line in enumerate(lines):
        name, _, rest = line.strip().partition(" ")
        if name in heads:
            heads[name].append(number)
            tails[name].append(rest)
        elif name:
            heads[name], tails[name] = [number], [rest]
    words = np.zeros((len(lines), isa.limbs), np.uint64)
    present = np.zeros(len(lines), np.bool_)
    for name, numbers in heads.items():
        present[numbers] = True
        words[numbers] = _block(isa, name, numbers, tails[name], lines, place)
    return Program(isa, words[present])


def _without_comments(text: str) -> str:
    spaced_text = text.replace("\t", " ") if "\t" in text else text
    return COMMENT.sub("", spaced_text) if ";" in text or "//" in text else spaced_text


def _block(isa: InstructionSet, name: str, numbers: Sequence[int], rests: Sequence[str], lines: Sequence[str], place: str) -> Data:
    """Return the words of the lines that start with one name: as columns where they are regular, else one by one."""
    try:
        m = isa.mnemonic(name)
        columns = _columns(m, rests)
        if columns is not None:
            return isa.pack(m, len(rests), columns)
    except SpecError:
        pass  # the first faulty line says what is wrong, with its place
    words = []
    for number in numbers:
        try:
            words.append(limbs_of(_line(isa, lines[number]), isa.limbs))
        except SpecError as refusal:
            raise refusal.at(f"{place}:{number + 1}:{_column(lines[number], refusal)}") from None
    return np.array(words, np.uint64)


def _column(line: str, refusal: SpecError) -> int:
    """Return the column of a refusal: that of the part it quotes, or of the line's first letter."""
    start = len(line) - len(line.lstrip()) + 1
    quoted = re.search(r'"([^"]*)"', refusal.problem.sentence)
    offset = line.find(quoted[1]) if quoted is not None else -1
    return offset + 1 if offset >= 0 else start


def _columns(m: Mnemonic, rests: Sequence[str]) -> Mapping[str, Sequence[int] | Data] | None:
    """Return the fields of regular lines as columns; None where a line has another form."""
    commas, joined = max(len(m.fields) - 1, 0), ",".join(rests).replace("#", "")
    is_regular = {rest.count(",") for rest in rests} == {commas} and (m.fields or not any(rests))
    if not is_regular or not joined.isascii() or "=" in joined or "|" in joined:
        return None
    return _decimal_columns(m, joined, len(rests)) or _mixed_columns(m, joined)


def _decimal_columns(m: Mnemonic, joined: str, count: int) -> dict[str, Data] | None:
    """Return the fields of lines that hold decimal numbers of at most 63 bits alone, all parsed at once; None for others."""
    try:
        numbers = np.fromstring(joined, np.int64, sep=",")
    except ValueError:
        return None
    if len(numbers) != count * len(m.fields) or joined.endswith(",") or not (abs(numbers) < GREATEST).all():
        return None
    return {f.name: numbers[n :: len(m.fields)] for n, f in enumerate(m.fields)}


def _mixed_columns(m: Mnemonic, joined: str) -> dict[str, list[int]] | None:
    """Return the fields of lines some of which hold names or long numbers; None where a part is neither."""
    parts = joined.split(",") if m.fields else []
    number = _strict_int if "_" in joined else int  # Python takes 1_000 for a number
    try:
        return {f.name: _numbers(f, parts[n :: len(m.fields)], number) for n, f in enumerate(m.fields)}
    except (ValueError, KeyError):
        return None


def _numbers(f: Field, texts: Sequence[str], number: Callable[[str], int]) -> list[int]:
    if f.width >= LIMB:
        return [int(text, 16) if text.startswith("0x") else number(text) for text in texts]
    if not f.names:
        return list(map(number, texts))
    return [f.names[text] if text in f.names else number(text) for text in map(str.strip, texts)]


def _strict_int(text: str) -> int:
    if "_" in text:
        raise ValueError(text)
    return int(text)


def _line(isa: InstructionSet, line: str) -> int:
    """Return the word of one line of any form."""
    head, bar, tail = line.strip().partition("|")
    name, _, rest = head.strip().partition(" ")
    m = isa.mnemonic(name)
    word = m.assemble(**_values(m, rest))
    for part in tail.split() if bar else ():
        word = _with_input(isa, word, part)
    return word


def _values(m: Mnemonic, text: str) -> dict[str, int]:
    parts = re.split(r"\s*,\s*|\s+(?=\w+=)", text.strip()) if text.strip() else []
    values: dict[str, int] = {}
    for position, part in enumerate(parts):
        assignment = ASSIGNMENT.fullmatch(part)
        if assignment is None and position >= len(m.fields):
            break
        name, value = assignment.groups() if assignment is not None else (m.fields[position].name, part)
        f = next((f for f in m.fields if f.name == name), None)
        if f is None:
            remedy = did_you_mean(name, [f.name for f in m.fields]) or f"fields: {_names(m)}"
            raise SpecError("I101", f'{m.name} has no field "{name}"', help=remedy)
        if name in values:
            raise SpecError("I101", f'{m.name} is given the field "{name}" twice')
        values[name] = _number(m, f, value)
    by_name = "=" in text
    if len(parts) > len(m.fields) or (not by_name and len(parts) < len(m.fields)):
        remedy = "give all of them in this order, or some as name=value"
        raise SpecError("I101", f"{m.name} takes {len(m.fields)} fields ({_names(m)}), not {len(parts)}", help=remedy)
    return values


def _names(m: Mnemonic) -> str:
    return ", ".join(f.name for f in m.fields) or "none"


def _number(m: Mnemonic, f: Field, text: str) -> int:
    if text in f.names:
        return f.names[text]
    match = NUMBER.fullmatch(text)
    if match is None:
        expected = f"one of {', '.join(f.names)}, or a number" if f.names else "a number"
        remedy = did_you_mean(text, f.names) or "numbers are written as 12, #12, 0x0c or 0b1100"
        raise SpecError("I101", f'field {f.name} of {m.name} must be {expected}, not "{printable(text, 60)}"', help=remedy)
    digits = match[1]
    return int(digits, 0) if digits.startswith(("0x", "0b")) else int(digits)


def _with_input(isa: InstructionSet, word: int, part: str) -> int:
    """Return a word with another value in one of its inputs."""
    assignment = ASSIGNMENT.fullmatch(part)
    number = NUMBER.fullmatch(assignment[2]) if assignment is not None else None
    if assignment is None or number is None:
        remedy = f"inputs: {', '.join(isa.ila.inputs)}"
        raise SpecError("I101", f'what follows | must be input=number, not "{printable(part, 60)}"', help=remedy)
    name, value = assignment[1], int(number[1], 0) if number[1].startswith("0") and len(number[1]) > 1 else int(number[1])
    if name not in isa.ila.inputs:
        raise SpecError("I101", f'{isa.ila.name} has no input "{name}"', help=f"inputs: {', '.join(isa.ila.inputs)}")
    width = width_of(isa.ila.inputs[name])
    if not 0 <= value < 1 << width:
        raise SpecError("I101", f"{name} has {width} bits; {value:#x} does not fit")
    mask = (1 << width) - 1 << isa.offsets[name]
    return word & ~mask | value << isa.offsets[name]


# -- disassembling


def disassemble_program(program: Program, place: str = "") -> str:
    """Return the assembly text of a program, a line a word.

    Raises:
        SpecError: I101, no instruction decodes a word.
    """
    isa, words = program.isa, program.words
    owner = isa.find(words)
    if (owner == UNDECODED).any():
        number = int(np.argmax(owner == UNDECODED))
        sentence = f"no instruction of {isa.ila.name} decodes word {number}, {word_of(words[number]):#x}"
        raise SpecError("I101", sentence, place=place, help="the words are of another accelerator, or of another design of it")
    lines = [""] * len(words)
    for n, m in enumerate(isa.mnemonics.values()):
        (rows,) = np.nonzero(owner == n)
        if len(rows):
            for row, line in zip(rows.tolist(), _lines(isa, m, words[rows]), strict=True):
                lines[row] = line
    return "".join(f"{line}\n" for line in lines)


def _lines(isa: InstructionSet, m: Mnemonic, words: Data) -> list[str]:
    """Return the lines of words of one mnemonic."""
    columns = isa.unpack(m, words)
    canonical = isa.pack(m, len(words), columns)
    texts = [_texts(f, columns[f.name].tolist()) for f in m.fields]
    rows = map(",".join, zip(*texts, strict=True)) if texts else iter([""] * len(words))
    lines = [f"{m.name} {row}".rstrip() for row in rows]
    differing_bits = isa.difference(m, words, canonical)
    for row in np.nonzero(differing_bits.any(axis=1))[0].tolist():
        lines[row] += _raw_inputs(isa, word_of(canonical[row]) ^ word_of(differing_bits[row]), word_of(canonical[row]))
    return lines


def _texts(f: Field, values: Sequence[int]) -> list[str]:
    text: Callable[[int], str] = (lambda x: f"#{x}") if f.width < 64 else (lambda x: f"#{x:#x}")
    return [f.value_names.get(x) or text(x) for x in values]


def _raw_inputs(isa: InstructionSet, word: int, canonical: int) -> str:
    inputs, expected = isa.inputs(word), isa.inputs(canonical)
    return " |" + "".join(f" {name}={x:#x}" for name, x in inputs.items() if x != expected[name])
