"""Number formats as C functions of one value: printed from the format's terms, or as lookup tables of their values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import InputError
from ...lang.binders import Leaf, Table, array
from ...lang.expr import Expr
from ...lang.formats import IEEE, Fixed, Format
from ...lowering.lower import lower_array
from ...readings.c.printer import Style, Tables, c_type, print_c
from ...readings.kernels.format_conversion import leading_bits

REAL = (None, None)
LOOKED_UP_WIDTH = 12  # of codes whose values are a table
MANY = 1 << 10  # values of one tensor that are worth a table of codes


def code_type(f: Format) -> str:
    """Return the C type of a format's codes."""
    return c_type(f.codes, False)


def encoder(f: Format, name: str, tables: Tables) -> str:
    """Return the C function from a double to its code."""
    return _converter(f.encode, Leaf((), REAL, True, "x"), name, ("double", code_type(f)), tables)


def decoder(f: Format, name: str, tables: Tables) -> str:
    """Return the C function from a code to its value, a double."""
    is_short = f.width <= LOOKED_UP_WIDTH and not isinstance(f, Fixed)
    decode = Table(f"{f.name}_values", f.decode, f.codes) if is_short else f.decode
    return _converter(decode, Leaf((), f.codes, False, "x"), name, (code_type(f), "double"), tables)


def _converter(function: Callable[[Expr], Expr], x: Leaf, name: str, types: tuple[str, str], tables: Tables) -> str:
    printed = print_c(lower_array(array(lambda: function(x[()]), ())), f"{name}_term", tables, Style(unbounded=True, heap=False))
    order, (argument_type, result_type) = ", ".join("&x" if leaf is x else "&y" for leaf in printed.memories), types
    body = f"    fm_scratch s = {{0}};\n    {result_type} y = 0;\n    {name}_term(&s, {order});\n    return y;\n"
    return f"{printed.text}\nstatic {result_type} {name}({argument_type} x)\n{{\n{body}}}\n"


def refuse_ieee(f: Format) -> None:
    """Check that all values of a format are real numbers.

    Raises:
        InputError: F161, it is an IEEE format, which has infinities and NaN.
    """
    if isinstance(f, IEEE):
        raise InputError("F161", f"the format {f.name} of {f.width} bits has no C form")


def deciding_bits(f: Format, values: int) -> int | None:
    """Return the number of leading bits of a float32 that determine its code, where `values` values are worth a lookup table."""
    return leading_bits(f, np.dtype(np.float32)) if values >= MANY else None


def table_encoder(f: Format, name: str, encode: str, bits: int) -> str:
    """Return the C function from a float to its code by its leading bits, and `NAME_prepare`, which fills its table by `encode`."""
    type_name, low_bits = code_type(f), 32 - bits
    return f"""\
static {type_name} {name}_of[{1 << bits}];
static void {name}_prepare(void)
{{
    for (uint32_t k = 0; k < {1 << bits}; ++k) {{
        const uint32_t word = k << {low_bits};
        float x;
        memcpy(&x, &word, sizeof x);
        {name}_of[k] = x == x ? {encode}((double)x) : 0;
    }}
}}
static inline {type_name} {name}(float x)
{{
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return {name}_of[word >> {low_bits}];
}}
"""
