"""Laws that hold at the first values of their attributes, extents or ranks and are false beyond them: none is proved where it is false."""

from __future__ import annotations

import pytest

from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.prove.verdict import UNPROVED, Proof
from rewrite_compiler.rewrite.text_file import rules_of_text

X, XV, XLH = "x: tensor", "x: tensor, v: float", "x: tensor, l: float, h: float"
CONV = "x: tensor, w: tensor, s: ints, p: ints, d: ints"
V = "full(shape=[], value=v)"
POOL = "pads=[0, 0], dilations=[1], ceil=0"
MEAN = f"{POOL}, count_include_pad=0"
QUARTER = "x.shape[0] // 4"
ROTATED = f"concat(slice(x, axis=0, start={QUARTER}, stop=x.shape[0], step=1), slice(x, axis=0, start=0, stop={QUARTER}, step=1), axis=0)"


def rotated(x: str, axis: int, by: str) -> str:
    """Return a tensor with its first parts along an axis moved to the end."""
    first = f"slice({x}, axis={axis}, start=0, stop={by}, step=1)"
    return f"concat(slice({x}, axis={axis}, start={by}, stop={x}.shape[{axis}], step=1), {first}, axis={axis})"


def conv(strides: str = "s", pads: str = "p", dilations: str = "d", x: str = "x") -> str:
    return f"conv({x}, w, strides={strides}, pads={pads}, dilations={dilations}, group=1)"


def maximum(kernel: str, x: str = "x", strides: str = "[1]", dilations: str = "[1]") -> str:
    return f"max_pool({x}, kernel={kernel}, strides={strides}, pads=[0, 0], dilations={dilations}, ceil=0)"


def mean(kernel: str, x: str = "x", strides: str = "[1]") -> str:
    return f"average_pool({x}, kernel={kernel}, strides={strides}, {MEAN})"


IMAGE = "x.rank == 3"
# name → parameters, left side, right side, guard
ATTRIBUTES = {
    "a1": (XV, f"mul(mul(x, {V}), {V})", f"mul(x, {V})", ""),
    "a3": (f"{XV}, q: ints", "pad(relu(x), pads=q, value=v)", "relu(pad(x, pads=q, value=v))", ""),
    "a5": (XV, f"add(x, {V})", f"add(x, abs({V}))", ""),
    "a7": (XLH, "relu(clip(x, low=l, high=h))", "clip(relu(x), low=0.0, high=h)", ""),
    "n1": (XV, f"relu(mul(x, {V}))", f"mul(relu(x), {V})", ""),
    "n3": ("x: tensor, y: tensor, v: float", f"max(mul(x, {V}), mul(y, {V}))", f"mul(max(x, y), {V})", ""),
    "n6": (XV, f"relu(min(x, {V}))", f"min(relu(x), mul({V}, {V}))", ""),
    "cube": (XV, f"mul(x, {V})", f"mul(x, mul({V}, mul({V}, {V})))", ""),
    "square": (XV, f"relu(add(x, {V}))", f"relu(add(x, mul({V}, {V})))", ""),
    "neg": (XV, f"min(mul(x, {V}), mul(x, {V}))", f"mul(x, abs({V}))", ""),
    "clip of clip": (XLH, "clip(clip(x, low=l, high=h), low=0.0, high=1.0)", "clip(x, low=l, high=h)", ""),
    "relu of bound": (XV, f"relu(max(x, {V}))", f"max(relu(x), {V})", ""),  # true
    "b1": (CONV, conv(), conv("[s[0] + (s[0] - 1) * (s[0] - 2)]"), IMAGE),
    "b2": (CONV, conv(), conv("[min(s[0], 2)]"), IMAGE),
    "b3": (
        f"{X}, k: ints, s: ints",
        mean("k", strides="s"),
        f"slice({mean('k')}, axis=2, start=0, stop=x.shape[2] - k[0] + 1, step=min(s[0], 2))",
        IMAGE,
    ),
    "c1": (CONV, conv(), conv(dilations="[min(d[0], 2)]"), IMAGE),
    "c2": (CONV, conv(), conv(dilations="[d[0] * d[0] - 2 * d[0] + 2]"), IMAGE),
    "d1": (f"{X}, k: ints", maximum("k"), maximum("[2]", dilations="[k[0] - 1]"), f"{IMAGE}, 1 < k[0]"),
    "d3": (f"{X}, k: ints", maximum("k"), maximum("[2]", maximum("[2]"), dilations="[k[0] - 2]"), f"{IMAGE}, 2 < k[0]"),
    "d5": (f"{X}, k: ints", maximum("k"), maximum("[k[0] * k[0] * k[0] - 3 * k[0] * k[0] + 3 * k[0]]"), IMAGE),
    "e1": (CONV, conv(), conv(pads="[p[0] * p[0], p[1] * p[1]]"), IMAGE),
    "e3": (
        f"{X}, k: ints, s: ints, p: ints",
        "average_pool(x, kernel=k, strides=s, pads=p, dilations=[1], ceil=0, count_include_pad=1)",
        "average_pool(x, kernel=k, strides=s, pads=p, dilations=[1], ceil=0, count_include_pad=0)",
        f"{IMAGE}, p[0] % 2 == 0, p[1] % 2 == 0",
    ),
    "e5": (
        f"{X}, p: ints",
        "pad(x, pads=p, value=0.0)",
        "pad(pad(x, pads=[p[0] - p[0] // 2, p[1]], value=0.0), pads=[2 * (p[0] // 2), 0], value=0.0)",
        "x.rank == 1, p[0] != 2",
    ),
}
EXTENTS = {
    "f1": (X, "relu(x)", f"relu({ROTATED})", "x.rank == 2"),
    "f3": (
        X,
        "reduce_mean(x, axes=[0], keepdims=0)",
        "reduce_mean(slice(x, axis=0, start=0, stop=min(x.shape[0], 3), step=1), axes=[0], keepdims=0)",
        "x.rank == 2",
    ),
    "f5": (CONV, conv(), conv(x=rotated("x", 1, "x.shape[1] // 4")), IMAGE),
    "f7": (
        X,
        "reverse(x, axis=0)",
        "concat(slice(reverse(x, axis=0), axis=0, start=0, stop=x.shape[0] - x.shape[0] // 4, step=1), "
        "slice(x, axis=0, start=x.shape[0] - x.shape[0] // 4, stop=x.shape[0], step=1), axis=0)",
        "x.rank == 1",
    ),
    "f9": (
        "x: tensor, g: tensor, b: tensor, e: float",
        "layer_norm(x, g, b, axis=2, epsilon=e)",
        f"layer_norm({rotated('x', 1, 'x.shape[1] // 4')}, g, b, axis=2, epsilon=e)",
        "x.rank == 3",
    ),
    "f11": (
        "x: tensor, w: tensor, r: tensor, b: tensor, h: tensor",
        'rnn(x, w, r, b, h, activation="tanh").1',
        f'rnn({ROTATED}, w, r, b, h, activation="tanh").1',
        "",
    ),
    "f13": (
        f"{X}, t: ints",
        "reshape(neg(x), shape=t)",
        "let y = reshape(x, shape=[x.size]);"
        "reshape(neg(concat(slice(y, axis=0, start=x.size // 28, stop=x.size, step=1), "
        "slice(y, axis=0, start=0, stop=x.size // 28, step=1), axis=0)), shape=t)",
        "",
    ),
}
RANKS = {
    "g1": (f"{X}, p: ints", "transpose(x, perm=p)", "x", "3 <= x.rank, p[0] == 0, p[1] == 1, p[2] == 2, x.shape == x.shape"),
    "g3": (f"{X}, p: ints", "transpose(transpose(x, perm=p), perm=p)", "x", "3 <= x.rank, p[0] == 0, p[1] == 1"),
    "g5": (f"{X}, a: int", "softmax(x, axis=a)", "softmax(x, axis=a - a * (a - 1) * (a - 2) * (a - 3) // 24)", ""),
    "g7": (f"{X}, a: ints", "reduce_sum(x, axes=a, keepdims=0)", "reduce_sum(x, axes=a[0:4], keepdims=0)", ""),
}
INTEGERS = {
    "i3": ("x: tensor, y: tensor", "add(relu(sub(x, y)), y)", "max(x, y)", 'type(x, "uint8"), type(y, "uint8")'),
    "i5": (X, "div(add(x, x), full(shape=[], value=2.0))", "x", 'type(x, "int8")'),
}
TRUE = {"relu of bound"}
LAWS = {**ATTRIBUTES, **EXTENTS, **RANKS, **INTEGERS}


def judged(name: str, grade: str = "F") -> Proof:
    parameters, left, right, guard = LAWS[name]
    let, _, right = right.rpartition(";")
    where = f"where {guard}" if guard else ""
    text = f"rule law({parameters}) grade {grade} {{ {let.strip() + ' ' if let else ''}{left} = {right} {where} }}"
    (law,) = rules_of_text(text, "law.rules")
    return prove_rule(law)


@pytest.mark.parametrize("name", [n for n in LAWS if n not in TRUE])
def test_a_law_that_is_false_somewhere_is_not_proved(name: str) -> None:
    proof = judged(name)
    assert not proof.is_proved, proof
    assert proof.verdict != UNPROVED or proof.evidence.startswith("index calculus: "), proof


@pytest.mark.parametrize("name", sorted(TRUE))
def test_a_true_law_is_not_refuted(name: str) -> None:
    assert judged(name).verdict != "refuted"
