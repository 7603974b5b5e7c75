"""The text form of codelets: printed so that it is parsed back to the same codelet, and parsed with line and column of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import SpecError, printable
from .codelet import Affine, Allocation, Codelet, Compute, Constant, Index, Loop, Node, Size, Surrogate, Transfer, variable

if TYPE_CHECKING:
    import lark

STEP = "  "
EXPECTED = {
    "LPAR": "(", "RPAR": ")", "COMMA": ",", "EQUAL": "=", "NAME": "a name", "DTYPE": "a type as i8", "INT": "a number", "LBRACE": "{",
    "RBRACE": "}", "LSQB": "[", "RSQB": "]", "SEMICOLON": ";", "COLON": ":", "AT": "@", "DOT": ".", "__ANON_0": "->", "$END": "the end",
    "SIGN": "+ or -", "STAR": "*", "KIND": "inp, out, local or param", "MORETHAN": ">",
}  # fmt: skip


def text(c: Codelet) -> str:
    """Return the text form of a codelet."""
    operands = ", ".join(map(_surrogate_text, c.surrogates))
    return "\n".join([f"codelet {c.name}({operands}) {{", *_lines(c.body, STEP), "}", ""])


def parse(source: str) -> Codelet:
    """Parse the text form of a codelet.

    Raises:
        SpecError: I102 with line, column and what is expected there, the text is not of that form; or it uses a name that it lacks.
    """
    import lark

    try:
        tree = _grammar().parse(source)
    except lark.exceptions.UnexpectedInput as error:
        raise _refusal(source, error) from None
    name, *rest = (x for x in cast("list[Any]", tree.children) if x is not None)
    surrogates = tuple(_surrogate(t) for t in rest if t.data == "surrogate")
    codelet = Codelet(str(name), surrogates, tuple(_node(t) for t in rest if t.data != "surrogate"))
    _check_names(codelet)
    return codelet


# -- printing


def _surrogate_text(s: Surrogate) -> str:
    typing = f":{s.dtype}" if s.dtype else ""
    return f"{s.kind} {s.name}{''.join(f'[{d}]' for d in s.dims)}{typing}{f'@{s.loc}' if s.loc else ''}"


def _lines(body: tuple[Node, ...], indent: str) -> Iterator[str]:
    for n in body:
        if isinstance(n, Loop):
            yield f"{indent}loop {n.var}({n.low}, {n.high}, {n.stride}) {{"
            yield from _lines(n.body, indent + STEP)
            yield f"{indent}}}"
        elif isinstance(n, Transfer):
            sink = f"{n.sink.name}@{n.sink.loc}" if isinstance(n.sink, Allocation) else index_text(n.sink)
            source = index_text(n.source) if isinstance(n.source, Index) else _constant_text(n.source)
            yield f"{indent}transfer {source} -> {sink};"
        else:
            unit = f"{n.unit}." if n.unit else ""
            yield f"{indent}compute {unit}{n.capability}({', '.join(map(index_text, n.operands))}) -> {index_text(n.result)};"


def index_text(i: Index) -> str:
    """Return a block as text: a[n:2][0]."""
    axes = zip(i.offsets, i.sizes, strict=True)
    return i.surrogate + "".join(f"[{affine_text(offset)}{f':{size}' if size != 1 else ''}]" for offset, size in axes)


def affine_text(a: Affine) -> str:
    """Return an affine offset as text: 2*n + m - 1."""
    parts = [(factor, name if abs(factor) == 1 else f"{abs(factor)}*{name}") for name, factor in a.terms]
    if a.constant or not parts:
        parts.append((a.constant, str(abs(a.constant))))
    first, *others = parts
    return ("-" if first[0] < 0 else "") + first[1] + "".join(f" {'-' if sign < 0 else '+'} {word}" for sign, word in others)


def _constant_text(c: Constant) -> str:
    return f"{c.value}:{c.dtype}" + "".join(f"[{n}]" for n in c.sizes)


# -- parsing


@cache
def _grammar() -> lark.Lark:
    import lark

    return lark.Lark((Path(__file__).parent / "codelet.lark").read_text("utf-8"), parser="lalr", maybe_placeholders=True)


def _surrogate(t: Any) -> Surrogate:
    kind, name, *parts = t.children
    by_kind = {str(p.data): p.children for p in parts}
    (dtype,), (loc,) = by_kind.get("typing", [None]), by_kind.get("place", [None])
    dims = _sizes(by_kind.get("shape", []))
    return Surrogate(str(name), str(kind), dims, dtype and str(dtype), loc and str(loc))  # type: ignore[arg-type]


def _sizes(parts: list[Any]) -> tuple[Size, ...]:
    return tuple(_size(p) for p in parts)


def _size(t: Any) -> Size:
    (token,) = t.children
    return int(token) if token.type == "INT" else str(token)


def _node(t: Any) -> Node:
    if t.data == "loop":
        var, bounds, *body = t.children
        low, high, stride = _bounds(bounds)
        return Loop(str(var), low, high, stride, tuple(map(_node, body)))
    if t.data == "transfer":
        source, sink = t.children
        return Transfer(_constant(source) if source.data == "constant" else _index(source), _sink(sink))
    unit, capability, *indices = t.children
    *operands, result = [i for i in indices if i is not None]
    return Compute(str(capability), tuple(map(_index, operands)), _index(result), unit and str(unit))


def _bounds(t: Any) -> tuple[Size, Size, int]:
    """Return low, high and stride; `v(count, stride=s)` counts iterations."""
    if t.data == "elements":
        low, high, stride = t.children
        return _size(low), _size(high), int(stride)
    count = _size(t.children[0])
    stride = int(t.children[1]) if t.data == "iterations" else 1
    if isinstance(count, str) and stride > 1:
        raise SpecError("I102", f"{count} iterations with stride {stride} must be written as (0, high, {stride})", help="give the number")
    return 0, count if isinstance(count, str) else count * stride, stride


def _sink(t: Any) -> Index | Allocation:
    return _index(t) if t.data == "index" else Allocation(str(t.children[0]), str(t.children[1]))


def _constant(t: Any) -> Constant:
    sign, value, dtype, *shape = t.children
    number = -int(value) if sign == "-" else int(value)
    return Constant(number, str(dtype), tuple(int(n) for part in shape for n in _sizes(part.children)))


def _index(t: Any) -> Index:
    name, *parts = t.children
    offsets = tuple(_affine(p) for p in parts[::2])
    return Index(str(name), offsets, tuple(1 if n is None else int(n) for n in parts[1::2]))


def _affine(t: Any) -> Affine:
    total, sign = Affine(), 1
    for part in t.children:
        if not hasattr(part, "data"):
            sign = -1 if part == "-" else 1
            continue
        scale = int(part.children[0]) if part.data != "variable" else 1
        total = total + (sign * scale if part.data == "number" else variable(str(part.children[-1]), sign * scale))
        sign = 1
    return total


def _refusal(source: str, error: lark.exceptions.UnexpectedInput) -> SpecError:
    names = getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    expected = " or ".join(sorted({EXPECTED.get(str(n), str(n).lower()) for n in names}))
    lines = source.split("\n")
    token = getattr(error, "token", None)
    at_end = error.line < 1 or (token is not None and token.type == "$END")
    line, column = (len(lines), len(lines[-1]) + 1) if at_end else (error.line, error.column)
    rest = lines[line - 1][column - 1 :]
    subject = f'"{printable(rest, 30)}"' if rest else "the end"
    remedy = "a codelet is written: codelet add(inp a[N], out c[N]) { loop n(0, N, 1) { compute RELU(a[n]) -> c[n]; } }"
    return SpecError("I102", f"line {line}, column {column}: expected {expected}, not {subject}", help=remedy)


def _check_names(c: Codelet) -> None:
    """Refuse an index of what is neither an operand nor an allocated local, or one with another number of axes."""
    ranks = {s.name: len(s.dims) for s in c.surrogates}
    _check_body(c.name, c.body, ranks, set())


def _check_body(subject: str, body: tuple[Node, ...], ranks: dict[str, int], variables: set[str]) -> None:
    for n in body:
        if isinstance(n, Loop):
            _check_body(subject, n.body, ranks, variables | {n.var})
            continue
        for i in _indices(n):
            if i.surrogate not in ranks:
                raise SpecError("I102", f'{subject} uses "{i.surrogate}" before it is declared', help=f"there is {', '.join(ranks)}")
            if ranks[i.surrogate] != len(i.offsets):
                sentence = f"{index_text(i)} must have {ranks[i.surrogate]} indices, not {len(i.offsets)}"
                raise SpecError("I102", sentence, help=f"{i.surrogate} has so many axes")
            unbound = sorted({v for offset in i.offsets for v, _ in offset.terms} - variables)
            if unbound:
                remedy = f"loops: {', '.join(sorted(variables)) or 'none'}"
                raise SpecError("I102", f'{index_text(i)} uses "{unbound[0]}", which is no loop around it', help=remedy)
        if isinstance(n, Transfer) and isinstance(n.sink, Allocation):
            ranks[n.sink.name] = len(n.source.sizes)


def _indices(n: Transfer | Compute) -> Iterator[Index]:
    parts = (n.source, n.sink) if isinstance(n, Transfer) else (*n.operands, n.result)
    yield from (p for p in parts if isinstance(p, Index))
