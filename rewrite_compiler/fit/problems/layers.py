"""Layers as short texts: gemm:m=512,n=64,k=1024, conv:k=64,c=64,p=56,q=56,r=3,s=3,stride=1 and einsum:adec,ebd->abc:16."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import InputError
from .documents import WORD_BITS
from .meaning import problem_of
from .problem import Problem, check_size

DIGITS = 19  # of a number that may be a word
KINDS = ("gemm", "conv", "einsum")
DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "gemm": {},
    "conv": {"n": 1, "r": 1, "s": 1, "stride": 1, "dilation": 1, "group": 1},
}
NEEDED: Mapping[str, tuple[str, ...]] = {"gemm": ("m", "n", "k"), "conv": ("k", "c", "p", "q")}


def is_layer(text: str) -> bool:
    """Tell whether a text is a layer."""
    return text.partition(":")[0] in KINDS and ":" in text


def layer_problem(text: str) -> Problem:
    """Return the problem of a layer.

    Raises:
        InputError: the text is no layer (F231).
    """
    kind, _, sizes = text.partition(":")
    if kind == "einsum":
        return _einsum(text, sizes)
    values = {**DEFAULTS[kind], **_sizes(text, kind, sizes)}
    missing = next((d for d in NEEDED[kind] if d not in values), None)
    if missing is not None:
        raise InputError("F231", f'The layer "{text}" must give {missing}: {_example(kind)}')
    return _gemm(values) if kind == "gemm" else _conv(text, values)


def _sizes(text: str, kind: str, sizes: str) -> dict[str, int]:
    values: dict[str, int] = {}
    for part in filter(None, sizes.split(",")):
        name, _, number = part.partition("=")
        if name in values:
            raise InputError("F231", f'The layer "{text}" must give {name} once, not {values[name]:,} and {number}')
        if name not in (*NEEDED[kind], *DEFAULTS[kind]):
            raise InputError("F231", f'The layer "{text}" has no size "{name}": {_example(kind)}')
        values[name] = _count(f'The size {name} of the layer "{text}"', number)
    return values


def _count(subject: str, number: str) -> int:
    if not (number.isascii() and number.isdigit()) or not int(number[:19]):
        raise InputError("F231", f'{subject} must be a positive whole number, not "{number}"')
    if len(number) > DIGITS or int(number) >= 1 << WORD_BITS:
        raise InputError("F231", f"{subject} must be below 2^{WORD_BITS}, not {number}")
    return int(number)


def _example(kind: str) -> str:
    return {"gemm": "gemm:m=512,n=64,k=1024", "conv": "conv:k=64,c=64,p=56,q=56,r=3,s=3,stride=1"}[kind]


def _gemm(v: Mapping[str, int]) -> Problem:
    problem = problem_of("matmul", [(v["m"], v["k"]), (v["k"], v["n"])])
    return Problem(problem.dimensions, problem.spaces, problem.output, problem.unit, "gemm")


def _conv(text: str, v: Mapping[str, int]) -> Problem:
    group = v["group"]
    if v["c"] % group or v["k"] % group:
        raise InputError("F231", f'The group of the layer "{text}" must divide its {v["c"]} channels and {v["k"]} filters, not be {group}')
    rows, columns = ((v[o] - 1) * v["stride"] + (v[w] - 1) * v["dilation"] + 1 for o, w in (("p", "r"), ("q", "s")))
    window = {"strides": (v["stride"],) * 2, "pads": (0,) * 4, "dilations": (v["dilation"],) * 2, "group": group}
    problem = problem_of("conv", [(v["n"], v["c"], rows, columns), (v["k"], v["c"] // group, v["r"], v["s"])], **window)
    tag = "depthwise" if group == v["c"] > 1 else "conv2d"
    return Problem(problem.dimensions, problem.spaces, problem.output, problem.unit, tag)


def _einsum(text: str, formula: str) -> Problem:
    equation, _, size = formula.partition(":")
    operands, arrow, result = equation.partition("->")
    terms = operands.split(",")
    letters = "".join([*terms, result])
    if not arrow or len(terms) != 2 or not letters.isalpha() or not letters.islower():  # noqa: PLR2004 -- a contraction of two
        raise InputError("F231", f'The layer "{text}" must contract two operands: einsum:adec,ebd->abc:16')
    if any(len(set(term)) != len(term) for term in (*terms, result)) or not set(result) <= set("".join(terms)):
        raise InputError(
            "F231", f'Every index of the layer "{text}" must stand once in an operand, and in the result only if in an operand'
        )
    extents = _extents(text, sorted(set("".join(terms))), size)
    names = "abz"
    spaces = {names[k].upper(): tuple({d: 1} for d in term) for k, term in enumerate((*terms, result))}
    problem = Problem(extents, spaces, "Z", tag="contraction")
    check_size(problem)
    return problem


def _extents(text: str, letters: list[str], size: str) -> dict[str, int]:
    """Return one extent for all indices, or one each: 16, or a=16,b=8,…"""
    pairs = [part.partition("=")[::2] for part in size.split(",")] if "=" in size else [(d, size) for d in letters]
    parts = dict(pairs)
    foreign = next((d for d, _ in pairs if d not in letters), None)
    if foreign is not None or len(parts) < len(pairs):
        reason = f'has no index "{foreign}"' if foreign is not None else "must give every extent once"
        raise InputError("F231", f'The layer "{text}" {reason}: einsum:ab,bc->ac:a=4,b=2,c=8')
    extents = {}
    for d in letters:
        number = parts.get(d, "")
        extents[d] = _count(f'The extent of {d} in the layer "{text}"', number)
    return extents
