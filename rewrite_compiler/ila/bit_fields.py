"""Bit fields of instruction words: as specifications print them, laid out by width, and packed into words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..errors import SpecError
from ..lang.expr import Expr, lift
from ..user_code import quoted

FIELD = re.compile(r"(?:(\d+):)?(\d+) (signed )?(\w+)(?: (\w+(?:=\d+)?(?:\|\w+(?:=\d+)?)*))?", re.ASCII)
FIELD_START = re.compile(r"\b\d+(?::\d+)?\b(?= )", re.ASCII)
FORM = 'for example "12:8 shift, 7 relu, 6:0 signed bias"'


@dataclass(frozen=True)
class Bits:
    """A bit field low … high of an input word, both ends included; `names` are what assembly calls some of its values."""

    low: int
    high: int
    signed: bool = False
    names: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def width(self) -> int:
        """Number of bits."""
        return self.high - self.low + 1


class Fields(dict[str, Expr]):
    """The values of an instruction word's fields, by name: `f.count` or `f["count"]`."""

    def __getattr__(self, name: str) -> Expr:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f'there is no field "{name}"') from None


def bit_fields(text: str) -> dict[str, Bits]:
    """Parse the fields of a word as a specification prints them: "31:20 rows, 19 relu, 15:0 signed bias", or low bits first.

    Names of values follow a field: "24 target SCALAR|VECTOR" counts them from 0, "17:16 port IN=1|OUT=3" gives their numbers.

    Raises:
        SpecError: I102, a part is not a field, a name occurs twice, or a named value does not fit its field.
    """
    if not isinstance(text, str):
        raise SpecError("I102", f"the fields of a word must be a text, not {quoted(text)}", help=FORM)
    fields: dict[str, Bits] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = FIELD.fullmatch(part)
        if match is None:
            sentence = f'a field must be written as in "19 relu" or "15:0 signed bias", not "{part}"'
            raise SpecError("I102", sentence, help=_field_remedy(part))
        first, last, signed, name, values = match.groups()
        if name in fields:
            raise SpecError("I102", f"field {name} is given twice", help="give each field of a word a name of its own")
        low, high = sorted((int(first or last), int(last)))
        fields[name] = Bits(low, high, signed=signed is not None, names=_value_names(name, values or "", high - low + 1))
    return fields


def _field_remedy(part: str) -> str:
    """Return what to change in a part that is no field: a comma that is missing, bits that are, or another sign between them."""
    fields = [m[0] for m in FIELD_START.finditer(part)]
    if len(fields) > 1:
        return f"put a comma before {fields[1]}"
    if re.fullmatch(r"\w+", part) and not part.isdigit():
        return f'write its bits first: "0 {part}", or widths alone: layout(0, {part}=1)'
    return f"bits, a space and a name; {FORM}"


def _value_names(field_name: str, text: str, width: int) -> dict[str, int]:
    names: dict[str, int] = {}
    number = 0
    for part in filter(None, text.split("|")):
        name, equals, value = part.partition("=")
        number = int(value) if equals else number
        if name in names or number in names.values():
            sentence = f'the names of field {field_name} must be different values, not "{text}"'
            raise SpecError("I102", sentence, help="write A=0|B=1, each name and each number once")
        if number >= 1 << width:
            sentence = f"{name} of field {field_name} must be in 0…{(1 << width) - 1}, not {number}"
            raise SpecError("I102", sentence, help=f"give the field {number.bit_length()} bits, or the name a smaller value")
        names[name], number = number, number + 1
    return names


def layout(first: int, /, **widths: int) -> dict[str, Bits]:
    """Return fields of these widths in bits, one after the other from bit `first`; a negative width declares a signed field."""
    fields = {}
    for name, width in widths.items():
        fields[name] = Bits(first, first + abs(width) - 1, signed=width < 0)
        first += abs(width)
    return fields


def pack(name: str, layout: Mapping[str, Bits], values: Mapping[str, int]) -> int:
    """Return the word called `name` whose fields have these values; fields without a value are 0.

    Raises:
        SpecError: I102, a value does not fit its field.
    """
    word = 0
    for key, value in values.items():
        bits = layout[key]
        low, high = (-(1 << bits.width - 1), (1 << bits.width - 1) - 1) if bits.signed else (0, (1 << bits.width) - 1)
        if not low <= value <= high:
            raise SpecError("I102", f"field {key} of {name} must be in {low}…{high}, not {value}")
        word |= value % (1 << bits.width) << bits.low
    return word


def joined(byte: Callable[[int], Expr], size: int, bits: int = 8) -> Expr:
    """Return the unsigned little-endian word of `size` parts of `bits` bits each."""
    word = lift(0)
    for n in range(size):
        word = word + (byte(n) << bits * n)
    return word
