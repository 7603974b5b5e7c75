"""Capabilities: what a unit computes in one step, as types and shapes: (i32,64)=GEMM((i8,64),(i8,64,64),(i32,64))."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import SpecError, printable

if TYPE_CHECKING:
    import lark

EXPECTED = {
    "LPAR": "(", "RPAR": ")", "COMMA": ",", "EQUAL": "=", "NAME": "a name in capitals", "DTYPE": "a type as i8 or f32",
    "INT": "a positive number", "$END": "the end",
}  # fmt: skip


@dataclass(frozen=True)
class Typed:
    """An operand: element type and shape of one step; no shape: one element."""

    dtype: str
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"({','.join([self.dtype, *map(str, self.shape)])})"

    @property
    def elements(self) -> int:
        """Elements of one step."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Capability:
    """An operation with the types of its result and operands in one step."""

    name: str
    result: Typed
    operands: tuple[Typed, ...]

    def __str__(self) -> str:
        return f"{self.result}={self.name}({','.join(map(str, self.operands))})"


def parse_capability(text: str) -> Capability:
    """Parse the text form of a capability.

    Raises:
        SpecError: I102 with line and column, the text is not of that form.
    """
    import lark

    try:
        result, name, *operands = _grammar().parse(text).children
    except lark.exceptions.UnexpectedInput as error:
        raise _refusal(text, error) from None
    return Capability(str(name), _typed(result), tuple(_typed(x) for x in operands if x is not None))


@cache
def _grammar() -> lark.Lark:
    import lark

    return lark.Lark((Path(__file__).parent / "capability.lark").read_text("utf-8"), parser="lalr", maybe_placeholders=True)


def _typed(tree: lark.Tree[lark.Token] | lark.Token) -> Typed:
    dtype, *shape = tree.children  # type: ignore[union-attr]
    return Typed(str(dtype), tuple(int(str(n)) for n in shape))


def _refusal(text: str, error: lark.exceptions.UnexpectedInput) -> SpecError:
    names = getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    expected = " or ".join(sorted({EXPECTED.get(n, n) for n in names}))
    line, column = (error.line, error.column) if error.column > 0 else (text.count("\n") + 1, len(text.rsplit("\n", 1)[-1]) + 1)
    rest = text.split("\n")[line - 1][column - 1 :] if text else ""
    subject = f'"{printable(rest, 30)}"' if rest else "the end"
    remedy = "a capability is written (i32,64)=GEMM((i8,64),(i8,64,64),(i32,64))"
    return SpecError("I102", f"line {line}, column {column}: expected {expected}, not {subject}", help=remedy)
