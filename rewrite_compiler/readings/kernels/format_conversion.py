"""Encoding and decoding of whole numpy arrays by the terms of a number format.

A short format is encoded by a table over the leading bits of the float: its terms are evaluated once for every pattern
of sign, exponent and the mantissa bits that can matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import SpecError
from ...lang import intervals as iv
from ...lang.binders import Leaf, Table, array
from ...lang.expr import Expr
from ...lang.formats import FLOAT16, FLOAT32, IEEE, AdaptivFloat, Fixed, Format
from ..arrays.evaluator import table_data
from ..arrays.labelled_array import Data, storage_dtype
from ..straightline.code import REAL
from .evaluate import evaluate
from .layout_conversion import Conversion, composed, is_large_and_regular, table_lookup, trace_conversion
from .selection import has_machine_code

CHUNK = 1 << 14  # elements evaluated at once: the temporaries stay in the cache
TABLE_BITS = 21
NATIVE: dict[Format, Any] = {FLOAT16: np.float16, FLOAT32: np.float32}
WORDS: dict[Any, tuple[Any, int, int]] = {np.dtype(np.float32): (np.uint32, 32, 23), np.dtype(np.float64): (np.uint64, 64, 52)}


def codes_of(f: Format, values: Data) -> Data:
    """Encode an array of floats: integer codes of the same shape, in the narrowest type that stores them.

    IEEE codes keep signed zeros, infinities and not-a-numbers; the other formats saturate infinities.

    Raises:
        SpecError: a value is not a number and the format has no code for it.
    """
    data = np.ascontiguousarray(values)
    data = data if data.dtype in WORDS else data.astype(np.float64)
    if f in NATIVE:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(data.astype(NATIVE[f]).view(f"u{f.width // 8}"))
    low, high = (float(data.min()), float(data.max())) if data.size else (0.0, 0.0)
    if not isinstance(f, IEEE) and math.isnan(low):
        raise SpecError("I102", f"{f.name} has no code for a value that is not a number")
    if not isinstance(f, IEEE) and math.isfinite(low) and math.isfinite(high) and is_large_and_regular(data):
        conversion = _encoder(f, data.dtype)
        if conversion is not None:
            codes = np.empty(data.shape, storage_dtype(f.codes))
            conversion(codes, data if conversion.code[0].bits == REAL else data.view(WORDS[data.dtype][0]))
            return codes
    prefix_bits = leading_bits(f, data.dtype)
    if prefix_bits is None:
        return _encoded(f, data)
    word, bits, _ = WORDS[data.dtype]
    pattern = data.view(word)
    key = pattern >> word(bits - prefix_bits)
    if isinstance(f, IEEE):
        key = key << word(1) | (pattern << word(prefix_bits) != 0)
    return np.asarray(_by_leading_bits(f, data.dtype).take(key.astype(np.intp, copy=False)))


def encode_into(f: Format, values: Data, target: Data, value_range: tuple[float, float], epilogue: Conversion | None = None) -> bool:
    """Encode floats into an array of codes, in one pass whatever the layouts; False, and nothing set, where only `codes_of` can.

    The values lie in the range `ends`, which is not finite where a value is not. `after` is applied to every code.
    """
    if values.dtype not in WORDS or isinstance(f, IEEE) or f in NATIVE or not is_large_and_regular(values, target):
        return False
    conversion = _encoder(f, values.dtype) if all(map(math.isfinite, value_range)) else None
    if conversion is None or (epilogue is None and target.dtype.itemsize < np.dtype(storage_dtype(f.codes)).itemsize):
        return False
    conversion = conversion if epilogue is None else _encoded_then(f, values.dtype, epilogue)
    assert conversion is not None
    conversion(target, values if conversion.code[0].bits == REAL else values.view(WORDS[values.dtype][0]))
    return True


def encoder(f: Format, kind: Any) -> Conversion | None:
    """Return the encoder of a format for floats of a numpy type; None where its code does not take floats as operands."""
    conversion = None if isinstance(f, IEEE) or f in NATIVE else _encoder(f, np.dtype(kind))
    return conversion if conversion is not None and conversion.code[0].bits == REAL else None


def decoder(f: Format) -> Conversion | None:
    """Return the decoder of a format, from codes in their storage type to 32-bit floats; None where there is none."""
    kind = np.dtype(storage_dtype(f.codes))
    return _decoder(f, kind) if f.width == 8 * kind.itemsize else None


@lru_cache(maxsize=64)
def _encoder(f: Format, kind: Any) -> Conversion | None:
    """Return the conversion from floats to codes."""
    prefix_bits = leading_bits(f, kind)
    if prefix_bits is not None:
        word, bits, _ = WORDS[kind]
        if bits == 64:
            return None
        return table_lookup(_by_leading_bits(f, kind), bits - prefix_bits, word)
    conversion = trace_conversion(f.encode, Leaf((1,), iv.EVERYTHING, True, "x"))
    return conversion if conversion is not None and conversion.code[0].name == "array" else None


@lru_cache(maxsize=256)
def _encoded_then(f: Format, kind: Any, epilogue: Conversion) -> Conversion | None:
    conversion = _encoder(f, kind)
    return None if conversion is None else composed(conversion, storage_dtype(f.codes), epilogue)


@lru_cache(maxsize=256)
def _decoded_after(f: Format, kind: Any, prologue: Conversion) -> Conversion | None:
    conversion = _decoder(f, kind)
    return None if conversion is None else composed(prologue, kind, conversion)


@lru_cache(maxsize=64)
def _decoder(f: Format, kind: Any) -> Conversion | None:
    """Return the conversion from codes to values."""
    if f in NATIVE or isinstance(f, IEEE):
        return None
    if f.width > TABLE_BITS - 1 or isinstance(f, Fixed):
        conversion = trace_conversion(f.decode, Leaf((1,), f.codes, False, "x"))
        return conversion if conversion is not None and conversion.code[0].name == "array" else None
    return table_lookup(_values(f).astype(np.float32), 0, kind, f.codes[0] or 0)


def decode_into(f: Format, codes: Data, target: Data, prologue: Conversion | None = None, kind: Any = None) -> tuple[float, float] | None:
    """Decode codes into an array of 32-bit floats; with `before`, the codes are its results, of the type `kind`.

    Returns the least and the largest value where the pass computes them.
    """
    kind = codes.dtype if prologue is None else np.dtype(kind)
    are_codes = codes.ndim == target.ndim and kind == storage_dtype(f.codes) and f.width == 8 * kind.itemsize
    conversion = _decoder(f, kind) if are_codes and is_large_and_regular(codes, target) else None
    if conversion is not None and prologue is not None:
        conversion = _decoded_after(f, kind, prologue)
    if conversion is None and prologue is not None:
        source_codes = np.empty(codes.shape, kind)
        prologue(source_codes, codes)
        decode_into(f, source_codes, target)
    elif conversion is None:
        target[...] = values_of(f, codes).astype(np.float32)
    elif not has_machine_code():
        conversion(target, codes)
    else:
        return conversion.convert_with_range(target, codes)
    return None


def values_of(f: Format, codes: Data) -> Data:
    """Decode an array of codes: 64-bit floats of the same shape.

    Raises:
        SpecError: a code lies outside the range of the format.
    """
    data = np.asarray(codes)
    low, high = f.codes[0] or 0, f.codes[1] or 0
    if data.size and (int(data.min()) < low or int(data.max()) > high):
        code = int(data.min()) if int(data.min()) < low else int(data.max())
        raise SpecError("I102", f"a code of {f.name} lies in {low}…{high}, not at {code}")
    if f in NATIVE:
        return np.asarray(np.ascontiguousarray(data, f"u{f.width // 8}").view(NATIVE[f]).astype(np.float64))
    if f.width <= TABLE_BITS - 1:
        return np.asarray(_values(f).take(data.astype(np.intp) - low))
    return _decoded(f, data)


def leading_bits(f: Format, kind: Any) -> int | None:
    """Return how many leading bits of a float, with one sticky bit for the others, determine its code; None when too many."""
    if not isinstance(f, IEEE | AdaptivFloat):
        return None
    _, bits, mantissa = WORDS[kind]
    prefix_bits = bits - mantissa + f.mantissa_bits + 1
    return prefix_bits if prefix_bits <= min(bits, TABLE_BITS) - isinstance(f, IEEE) else None


@lru_cache(maxsize=64)
def _by_leading_bits(f: Format, kind: Any) -> Data:
    word, bits, _ = WORDS[kind]
    prefix_bits = leading_bits(f, kind) or 0
    patterns = np.arange(1 << prefix_bits, dtype=word) << word(bits - prefix_bits)
    if isinstance(f, IEEE):
        patterns = np.stack([patterns, patterns | word(1)], axis=1).reshape(-1)
    return _encoded(f, patterns.view(kind))


@lru_cache(maxsize=256)
def _values(f: Format) -> Data:
    return _decoded(f, np.arange(f.codes[0] or 0, (f.codes[1] or 0) + 1)) if isinstance(f, IEEE) else _table(f)


def _table(f: Format) -> Data:
    return table_data(Table(f"{f.name}_values", f.decode, f.codes))


def _encoded(f: Format, values: Data) -> Data:
    """Evaluate the encoder; not-a-number and infinity, which are no real numbers, get their codes here."""
    with np.errstate(invalid="ignore"):
        is_finite = bool(np.isfinite(values).all())
        data = values.astype(np.float64).reshape(-1) if is_finite else np.nan_to_num(values.astype(np.float64)).reshape(-1)
    codes = _mapped(f.encode, data, np.dtype(storage_dtype(f.codes)), Leaf((CHUNK,), iv.EVERYTHING, True, "x"))
    if isinstance(f, IEEE):
        flat = values.reshape(-1)
        codes[np.isnan(flat)] = f.infinity | 1 << f.mantissa_bits - 1
        codes[np.signbit(flat)] |= np.asarray(1 << f.width - 1, codes.dtype)
    return codes.reshape(values.shape)


def _decoded(f: Format, codes: Data) -> Data:
    flat = np.asarray(codes, np.int64).reshape(-1)
    values = _mapped(f.decode, flat, np.dtype(np.float64), Leaf((CHUNK,), f.codes, False, "x"))
    if isinstance(f, IEEE):
        size = flat & (1 << f.width - 1) - 1
        values = np.where(size > f.infinity, np.nan, np.where(size == f.infinity, np.copysign(np.inf, values), values))
        values = np.where((size == 0) & (flat != 0), -0.0, values)
    return np.asarray(values.reshape(np.shape(codes)))


def _mapped(function: Callable[[Expr], Expr], flat: Data, kind: Any, operand: Leaf) -> Data:
    """Return a function of terms at every element of a flat array: by machine code where it is in use, else a chunk at a time."""
    out = np.empty(flat.shape, kind)
    code = trace_conversion(function, operand) if operand.real and len(flat) > CHUNK and has_machine_code() else None
    if code is not None:
        code(out, flat)
        return out
    chunk_term = array(lambda i: function(operand[i]), CHUNK)
    for start in range(0, len(flat), CHUNK):
        part = flat[start : start + CHUNK]
        padded = part if len(part) == CHUNK else np.concatenate([part, np.zeros(CHUNK - len(part), flat.dtype)])
        out[start : start + CHUNK] = evaluate(chunk_term, {operand: padded})[: len(part)]
    return out
