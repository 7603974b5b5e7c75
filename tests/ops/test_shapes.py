"""Shape rules: what each operator gives, and the whole sentence where it has no meaning."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite_compiler.ops import OPS, Op, ShapeError
from rewrite_compiler.ops.op import COMPUTE, ELEMENTWISE, LAYOUT, STAGE, complete_attributes
from rewrite_compiler.ops.recurrent import GATES

W: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
POOL: dict[str, Any] = {"kernel": (2, 2), **W, "ceil": 0}

# operator, shapes of its operands, attributes → shapes of its outputs
SUM_OF_CODES: dict[str, Any] = {"multiplier": (5, 6), "shift": (3, 4), "zeros": (1, -2), "zero": 0, "low": 0, "high": 127}
RIGHT: list[tuple[str, list[tuple[int, ...]], dict[str, Any], list[tuple[int, ...]]]] = [
    *[(op, [(2, 3)], {}, [(2, 3)]) for op in ("relu", "neg", "abs", "exp", "log", "sqrt", "tanh", "erf", "sigmoid", "reciprocal")],
    *[(op, [(2, 1, 3), (4, 1)], {}, [(2, 4, 3)]) for op in ("add", "sub", "mul", "div", "pow", "max", "min")],
    ("add", [(), (0, 1)], {}, [(0, 1)]),
    ("clip", [(2,)], {"low": 0.0, "high": 1.0}, [(2,)]),
    ("dense", [(2, 3, 5), (4, 5)], {}, [(2, 3, 4)]),
    ("matmul", [(2, 1, 3, 4), (5, 4, 2)], {}, [(2, 5, 3, 2)]),
    ("bias_add", [(2, 3, 4), (3,)], {"axis": 1}, [(2, 3, 4)]),
    ("scale", [(2, 3, 4), (4,)], {"axis": 2}, [(2, 3, 4)]),
    ("full", [], {"shape": (2, 0), "value": 1.0}, [(2, 0)]),
    ("conv", [(1, 4, 7, 8), (6, 2, 3, 2)], {**W, "strides": (2, 3), "pads": (1, 0, 1, 2), "group": 2}, [(1, 6, 4, 3)]),
    ("conv", [(1, 2, 9), (3, 2, 3)], {"strides": (1,), "pads": (0, 0), "dilations": (4,), "group": 1}, [(1, 3, 1)]),
    ("im2col", [(2, 3, 4, 5)], {**W, "kernel": (2, 3)}, [(2 * 3 * 3, 18)]),
    ("max_pool", [(1, 2, 5, 5)], {**POOL, "strides": (2, 2)}, [(1, 2, 2, 2)]),
    ("max_pool", [(1, 2, 5, 5)], {**POOL, "strides": (2, 2), "ceil": 1}, [(1, 2, 3, 3)]),
    ("max_pool", [(1, 2, 2, 2)], {**POOL, "strides": (3, 3), "pads": (0, 0, 1, 1), "ceil": 1}, [(1, 2, 1, 1)]),
    ("average_pool", [(1, 2, 5, 5)], {**POOL, "count_include_pad": 1}, [(1, 2, 4, 4)]),
    *[(op, [(2, 3, 4)], {"axes": (0, 2), "keepdims": 1}, [(1, 3, 1)]) for op in ("reduce_mean", "reduce_sum", "reduce_max")],
    ("reduce_sum", [(2, 3, 4)], {"axes": (0, 2), "keepdims": 0}, [(3,)]),
    ("reshape", [(2, 3)], {"shape": (3, 1, 2)}, [(3, 1, 2)]),
    ("transpose", [(2, 3, 4)], {"perm": (2, 0, 1)}, [(4, 2, 3)]),
    ("slice", [(2, 9)], {"axis": 1, "start": 1, "stop": 8, "step": 3}, [(2, 3)]),
    ("slice", [(2, 9)], {"axis": 1, "start": 4, "stop": 4, "step": 1}, [(2, 0)]),
    ("concat", [(2, 3), (2, 0), (2, 4)], {"axis": 1}, [(2, 7)]),
    ("pad", [(2, 3)], {"pads": (0, 1, 2, 0), "value": 0.0}, [(4, 4)]),
    ("expand", [(3, 1)], {"shape": (2, 3, 4)}, [(2, 3, 4)]),
    ("gather", [(5, 3), (2, 2)], {"axis": 0}, [(2, 2, 3)]),
    ("reverse", [(5, 3)], {"axis": 1}, [(5, 3)]),
    ("batch_norm", [(2, 3, 4), (3,), (3,), (3,), (3,)], {"epsilon": 0.1}, [(2, 3, 4)]),
    ("layer_norm", [(2, 3, 4), (3, 4), (3, 4)], {"axis": 1, "epsilon": 0.1}, [(2, 3, 4)]),
    ("quantize", [(2, 3), (3,)], {"axis": 1, "zero": 3, "to": "uint8"}, [(2, 3)]),
    ("dequantize", [(2, 3), (1,)], {"axis": 0, "zero": 3}, [(2, 3)]),
    ("requantize", [(2, 3)], {"multiplier": (5, 6), "shift": (3, 4), "axis": 0, "zero": 0, "low": 0, "high": 127, "to": "int8"}, [(2, 3)]),
    ("quantized_add", [(2, 3), (2, 3)], {**SUM_OF_CODES, "to": "int8"}, [(2, 3)]),
    ("integer_dense", [(2, 3, 5), (4, 5)], {"x_zero": 1, "w_zero": 0}, [(2, 3, 4)]),
    ("integer_conv", [(1, 4, 7, 8), (6, 2, 3, 2)], {**W, "group": 2, "x_zero": 1, "w_zero": 0}, [(1, 6, 5, 7)]),
    ("softmax", [(2, 3)], {"axis": 0}, [(2, 3)]),
    ("log_softmax", [(2, 3)], {"axis": 1}, [(2, 3)]),
    ("gate_sum", [(2, 3), (2, 4), (5, 3), (5, 4), (5,), (5,)], {}, [(2, 5)]),
    ("lstm", [(5, 2, 3), (16, 3), (16, 4), (32,), (2, 4), (2, 4)], {}, [(5, 2, 4), (2, 4), (2, 4)]),
    ("gru", [(5, 2, 3), (12, 3), (12, 4), (24,), (2, 4)], {"linear_before_reset": 0}, [(5, 2, 4), (2, 4)]),
    ("rnn", [(5, 2, 3), (4, 3), (4, 4), (8,), (2, 4)], {"activation": "tanh"}, [(5, 2, 4), (2, 4)]),
]


@pytest.mark.parametrize(("name", "operands", "attributes", "expected"), RIGHT, ids=[f"{c[0]} {n}" for n, c in enumerate(RIGHT)])
def test_a_shape_rule(name: str, operands: list[Any], attributes: dict[str, Any], expected: list[Any]) -> None:
    assert list(OPS[name].shapes(operands, attributes)) == expected


def test_every_operator_has_a_shape_rule_that_is_tested() -> None:
    assert {c[0] for c in RIGHT} == set(OPS)


WRONG: list[tuple[str, list[tuple[int, ...]], dict[str, Any], str]] = [
    ("relu", [(2,), (2,)], {}, "relu takes 1 operands, not 2"),
    ("concat", [], {"axis": 0}, "concat takes 2 operands, not 0"),
    ("add", [(2, 3), (2,)], {}, "Operands of shapes (2, 3) and (2,) do not broadcast: 2 against 3"),
    ("dense", [(2, 3), (4, 5)], {}, "Inner dimensions of dense must agree: x has 3 and w has 5"),
    ("dense", [(2, 3), (4, 5, 3)], {}, "dense multiplies x[…, k] by w[n, k]; w has shape (4, 5, 3) and x (2, 3)"),
    ("matmul", [(3,), (3, 2)], {}, "matmul needs operands of rank 2 or more, not (3,) and (3, 2)"),
    ("matmul", [(2, 3), (4, 2)], {}, "Inner dimensions of matmul must agree: a has 3 and b has 4"),
    ("bias_add", [(2, 3), (3,)], {"axis": 2}, "A bias or scale lies along an axis of x; x has 2 axes and the axis is 2"),
    ("scale", [(2, 3), (2,)], {"axis": 1}, "A bias or scale along axis 1 of (2, 3) must have shape (3,), not (2,)"),
    ("conv", [(1, 2), (3, 2)], {**W, "group": 1}, "conv needs x[N, C, …] and w[O, C/group, …] of one rank, not (1, 2) and (3, 2)"),
    ("conv", [(1, 3, 4, 4), (4, 1, 2, 2)], {**W, "group": 2}, "Group of conv must divide the 3 channels and 4 filters, not 2"),
    (
        "conv",
        [(1, 4, 4, 4), (4, 1, 2, 2)],
        {**W, "group": 2},
        "Filters of conv must have 2 channels (4 over group 2), not 1",
    ),
    ("im2col", [(2, 3)], {**W, "kernel": (2, 2)}, "im2col needs x[N, C, …], not (2, 3)"),
    ("max_pool", [(2, 3)], POOL, "pooling needs x[N, C, …], not (2, 3)"),
    ("max_pool", [(1, 1, 2, 2)], {**POOL, "kernel": (3, 1)}, "A window of 3 does not fit in 2 elements padded by 0 and 0"),
    ("max_pool", [(1, 1, 2, 2)], {**POOL, "kernel": (0, 1)}, "Kernel extents must be positive, not (0, 1)"),
    (
        "max_pool",
        [(1, 1, 2, 2)],
        {**POOL, "kernel": (1, 1), "pads": (0, 1, 0, 0)},
        "A window of 1 taps 1 apart from -1 on holds none of the 2 elements: padding has no largest one",
    ),
    ("max_pool", [(1, 1, 2, 2)], {**POOL, "pads": (0, 0, -1, 0)}, "Pads must not be negative, not (0, 0, -1, 0)"),
    (
        "max_pool",
        [(1, 1, 2, 2)],
        {**POOL, "pads": (0, 0)},
        "a window over 2 axes needs 2 strides, 2 dilations and 4 pads, not (1, 1), (1, 1), (0, 0)",
    ),
    ("reduce_sum", [(2, 3)], {"axes": (1, 1), "keepdims": 1}, "Reduced axes must be different and in 0…1, not (1, 1)"),
    ("reshape", [(2, 3)], {"shape": (4, 2)}, "Reshape must keep the 6 elements of (2, 3), not make (4, 2)"),
    ("reshape", [(2, 3)], {"shape": (-2, -3)}, "Reshape must keep the 6 elements of (2, 3), not make (-2, -3)"),
    ("transpose", [(2, 3)], {"perm": (0, 2)}, "Permutation of transpose must name each of the 2 axes once, not (0, 2)"),
    ("slice", [(2,)], {"axis": 1, "start": 0, "stop": 1, "step": 1}, "Axis of slice must be in 0…0, not 1"),
    ("slice", [(2,)], {"axis": 0, "start": 0, "stop": 3, "step": 1}, "slice takes start ≤ stop ≤ 2 and a positive step, not 0, 3, 1"),
    ("slice", [(2,)], {"axis": 0, "start": 0, "stop": 2, "step": 0}, "slice takes start ≤ stop ≤ 2 and a positive step, not 0, 2, 0"),
    ("concat", [(2, 3), (3, 3)], {"axis": 1}, "concat along axis 1 needs operands that agree on the other axes, not (2, 3) and (3, 3)"),
    ("concat", [(2, 3), (2, 3)], {"axis": -1}, "Axis of concat must be in 0…1, not -1"),
    ("pad", [(2,)], {"pads": (1,), "value": 0.0}, "pad of 1 axes needs 2 pads that are not negative, not (1,)"),
    ("expand", [(3,)], {"shape": (1,)}, "expand cannot make (1,) from (3,)"),
    ("gather", [(3,), (2,)], {"axis": 1}, "Axis of gather must be in 0…0, not 1"),
    ("reverse", [(3,)], {"axis": 1}, "Axis of reverse must be in 0…0, not 1"),
    ("batch_norm", [(2,)] + [(2,)] * 4, {"epsilon": 0.1}, "batch_norm needs x[N, C, …], not (2,)"),
    ("batch_norm", [(2, 3), (3,), (2,), (3,), (3,)], {"epsilon": 0.1}, "bias of batch_norm must have shape (3,), not (2,)"),
    ("layer_norm", [(2, 3), (3,), (3,)], {"axis": 2, "epsilon": 0.1}, "Axis of layer_norm must be in 0…1, not 2"),
    (
        "layer_norm",
        [(2, 3), (3,), (2,)],
        {"axis": 1, "epsilon": 0.1},
        "bias of layer_norm over axes 1… of (2, 3) must have shape (3,), not (2,)",
    ),
    ("softmax", [(2,)], {"axis": 1}, "Axis of softmax must be in 0…0, not 1"),
    (
        "lstm", [(5, 2, 3), (15, 3), (16, 4), (32,), (2, 4), (2, 4)], {},
        "lstm needs x[T, N, I], w[4·H, I] and r[4·H, H], not (5, 2, 3), (15, 3) and (16, 4)",
    ),
    (
        "gru", [(5, 2, 3), (12, 3), (12, 4), (24,), (1, 4)], {"linear_before_reset": 0},
        "initial state 0 of gru must have shape (2, 4), not (1, 4)",
    ),
    (
        "gate_sum", [(2, 3), (3, 4), (5, 3), (5, 4), (5,), (5,)], {},
        "gate_sum needs x[N, I], h[N, H] and w[G, I], not (2, 3), (3, 4) and (5, 3)",
    ),
    ("gate_sum", [(2, 3), (2, 4), (5, 3), (4, 4), (5,), (5,)], {}, "r of gate_sum must have shape (5, 4), not (4, 4)"),
    ("rnn", [(5, 2, 3), (4, 3), (4, 4), (4,), (2, 4)], {"activation": "tanh"}, "b of rnn must have shape (8,), not (4,)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "attributes", "sentence"), WRONG, ids=[f"{c[0]} {n}" for n, c in enumerate(WRONG)])
def test_operands_without_meaning(name: str, operands: list[Any], attributes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ShapeError) as caught:
        OPS[name].shapes(operands, attributes)
    assert (caught.value.problem.code, caught.value.problem.sentence) == ("F131", sentence)
    assert str(caught.value.at("here")) == f"here: error[F131]: {sentence}"


@pytest.mark.parametrize("operator", OPS.values(), ids=OPS)
def test_every_operator_says_what_it_is(operator: Op) -> None:
    assert operator.doc.strip().endswith(".")
    assert operator.kind in (COMPUTE, ELEMENTWISE, LAYOUT, STAGE)
    assert len({a.name for a in operator.attributes}) == len(operator.attributes)


MACS: list[tuple[str, list[tuple[int, ...]], dict[str, Any], int]] = [
    ("dense", [(2, 3, 5), (4, 5)], {}, 2 * 3 * 4 * 5),
    ("matmul", [(7, 3, 4), (4, 2)], {}, 7 * 3 * 2 * 4),
    ("conv", [(1, 4, 7, 8), (6, 2, 3, 2)], {**W, "group": 2}, 6 * 5 * 7 * 2 * 3 * 2),
    ("gate_sum", [(2, 3), (2, 4), (5, 3), (5, 4), (5,), (5,)], {}, 2 * 5 * 7),
    ("lstm", [(5, 2, 3), (16, 3), (16, 4), (32,), (2, 4), (2, 4)], {}, 5 * 2 * 16 * 7),
    ("gru", [(5, 2, 3), (12, 3), (12, 4), (24,), (2, 4)], {"linear_before_reset": 0}, 5 * 2 * 12 * 7),
]


@pytest.mark.parametrize(("name", "operands", "attributes", "expected"), MACS, ids=[m[0] for m in MACS])
def test_multiply_accumulates(name: str, operands: list[Any], attributes: dict[str, Any], expected: int) -> None:
    count = OPS[name].macs
    assert count is not None
    assert count(*operands, **attributes) == expected


def test_attributes_are_completed() -> None:
    assert complete_attributes(OPS["slice"], {"stop": 3, "axis": 0, "start": 1}) == {"axis": 0, "start": 1, "stop": 3, "step": 1}
    with pytest.raises(ShapeError, match=r'^error\[F131\]: slice needs the attribute "start"$'):
        complete_attributes(OPS["slice"], {"axis": 0, "stop": 1})
    with pytest.raises(ShapeError, match=r'^error\[F131\]: relu has no attribute "slope"\n  help: it has none$'):
        complete_attributes(OPS["relu"], {"slope": 1.0})


def test_gates_are_those_of_the_operators() -> None:
    assert set(GATES) == {"lstm", "gru", "rnn"}
