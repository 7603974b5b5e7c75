"""What rounding may cost: true errors in float32 stay within the bounds, of every operator and of programs; laws that lose digits show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command import flexmatch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler import check
from rewrite_compiler.compile import Plan, compile_model
from rewrite_compiler.compile.compile import Options
from rewrite_compiler.compile.plan import rounding
from rewrite_compiler.compile.plan.grade_conditions import Evidence, grade_conditions
from rewrite_compiler.compile.plan.rounding import Bounded, NoBound, RoundingRatio, bounds_of, ratio_of_programs
from rewrite_compiler.frontend.load import load
from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.program import Builder, Program
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.lang import Leaf, array, call
from rewrite_compiler.ops import OPS
from rewrite_compiler.readings.rounding import error_terms
from rewrite_compiler.readings.rounding.real_ranges import EVERYTHING, ranges_of

WINDOW = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
POOL = {"kernel": (2, 2), **WINDOW, "pads": (0, 0, 1, 1)}
X, IMAGE, VECTOR = (3, 8), (1, 4, 5, 5), (8,)
CODES = {"multiplier": (19_000_000,), "shift": (31,), "low": -128, "high": 127, "to": "int8"}
# operator → shapes of its operands (a text: codes of that type) and attributes
OPERATORS: dict[str, tuple[Sequence[Any], Mapping[str, Any]]] = {
    **{name: ([X], {}) for name in ("relu", "neg", "abs", "exp", "tanh", "erf", "sigmoid", "reciprocal")},
    **{name: ([X, X], {}) for name in ("add", "sub", "mul", "div", "max", "min")},
    **{name: ([("positive", X)], {}) for name in ("log", "sqrt")},
    "pow": ([("positive", X), X], {}), "clip": ([X], {"low": -0.1, "high": 0.7}), "reshape": ([X], {"shape": (4, 6)}),
    "transpose": ([X], {"perm": (1, 0)}), "slice": ([X], {"axis": 1, "start": 1, "stop": 7, "step": 2}), "reverse": ([X], {"axis": 1}),
    "concat": ([X, X], {"axis": 0}), "pad": ([X], {"pads": (1, 0, 0, 2), "value": 0.1}), "expand": ([VECTOR], {"shape": (2, 8)}),
    "gather": ([X, "indices"], {"axis": 1}), "dense": ([X, (5, 8)], {}), "matmul": ([X, (8, 4)], {}),
    "bias_add": ([X, VECTOR], {"axis": 1}),
    "scale": ([X, VECTOR], {"axis": 1}), "full": ([], {"shape": (2,), "value": 0.1}),
    "conv": ([IMAGE, (2, 2, 3, 3)], {**WINDOW, "group": 2}),
    "im2col": ([IMAGE], {"kernel": (2, 2), **WINDOW}), "batch_norm": ([X, VECTOR, VECTOR, VECTOR, ("positive", VECTOR)], {"epsilon": 1e-5}),
    "layer_norm": ([X, VECTOR, VECTOR], {"axis": 1, "epsilon": 1e-5}), "softmax": ([X], {"axis": 1}), "log_softmax": ([X], {"axis": 1}),
    "quantize": ([X, ("positive", (1,))], {"to": "int8"}), "dequantize": (["int8", ("positive", (1,))], {}),
    "requantize": (["int8"], CODES), "integer_dense": (["int8", "int8"], {"x_zero": 3}),
    "quantized_add": (["int8", "int8"], {**CODES, "multiplier": (3, 5), "shift": (2, 3), "zeros": (1, 2)}),
    "integer_conv": (["int8 image", "int8 filter"], {**WINDOW, "x_zero": 1}),
    "gate_sum": ([(2, 3), (2, 5), (4, 3), (4, 5), (4,), (4,)], {}), "max_pool": ([IMAGE], POOL), "average_pool": ([IMAGE], POOL),
    "lstm": ([(4, 2, 3), (20, 3), (20, 5), (40,), (2, 5), (2, 5)], {}),
    "gru": ([(4, 2, 3), (15, 3), (15, 5), (30,), (2, 5)], {"linear_before_reset": 0}),
    "rnn": ([(4, 2, 3), (5, 3), (5, 5), (10,), (2, 5)], {"activation": "tanh"}),
    **{f"reduce_{name}": ([X], {"axes": (1,)}) for name in ("mean", "sum", "max")},
}  # fmt: skip
RECURRENT = ("lstm", "gru", "rnn")
CODE_SHAPES = {"int8": X, "int8 image": IMAGE, "int8 filter": (2, 4, 3, 3)}


def operand(p: Builder, kind: Any) -> int:
    """Add an operand that is off by rounding: a product of two inputs, or its codes; indices are exact."""
    if kind == "indices":
        return p.constant(np.array([0, 3, 5]))
    is_code, is_positive = isinstance(kind, str), isinstance(kind, tuple) and kind[0] == "positive"
    shape = CODE_SHAPES[kind] if is_code else kind[1] if is_positive else kind
    a, b = (p.input(f"in{len(p.inputs)}", TensorType(shape, "float32")) for _ in range(2))
    (v,) = p.apply("mul", [a, b])
    if is_code:
        (v,) = p.apply("quantize", [v, p.constant(np.array([0.03], np.float32))], {"to": "int8"})
    if is_positive:
        (v,) = p.apply("add", (*p.apply("mul", [v, v]), p.constant(np.full(shape, 0.3, np.float32))))
    return v


def program_of(name: str) -> Program:
    """Return a program of one operator on operands that are off."""
    kinds, attributes = OPERATORS[name]
    p = Builder(name)
    return p.finish(p.apply(name, [operand(p, k) for k in kinds], attributes))


def check_bounds(p: Program, seed: int, magnitude: float = 1.0) -> list[tuple[np.ndarray[Any, Any], Bounded]]:
    """Check that a program in float32 is never further from itself in float64 than its bound; return true errors and bounds."""
    random = np.random.default_rng(seed)
    inputs = {v: (magnitude * random.standard_normal(p.types[v].shape)).astype(np.float32) for v in p.inputs}
    single = run(p, inputs, real=np.float32)
    double = run(p, {v: x.astype(np.float64) for v, x in inputs.items()})
    found = []
    for v, bounded in bounds_of(p, inputs).items():
        assert np.array_equal(bounded.value, double[v], equal_nan=True)
        with np.errstate(invalid="ignore"):
            error = np.abs(single[v].astype(np.float64) - double[v].astype(np.float64))
        bound = np.zeros(error.shape) if bounded.error is None else bounded.error
        assert bound.shape == error.shape
        assert (error <= bound)[np.isfinite(bound) & np.isfinite(error)].all()
        assert np.isinf(bound[~np.isfinite(error) & np.isfinite(double[v])]).all()
        found.append((error, bounded))
    return found


def test_every_operator_is_bounded() -> None:
    assert OPERATORS.keys() == OPS.keys()


@pytest.mark.parametrize("name", OPERATORS)
def test_true_errors_are_within_the_bound_of_each_operator(name: str) -> None:
    results = [x for seed in range(2 if name in RECURRENT else 4) for x in check_bounds(program_of(name), seed)]
    if name not in ("full", "dequantize", "max_pool"):
        assert any(bounded.error is not None for _, bounded in results)
    finite = [np.isfinite(b.error).mean() for _, b in results if b.error is not None]
    assert np.mean(finite or [1.0]) > 0.9  # a bound that is infinite shows nothing
    if name in ("add", "mul", "dense", "softmax", "layer_norm", "lstm"):  # nor does one that is far too large
        assert max(float(np.max(e / b.error)) for e, b in results if b.error is not None) > 1e-3


UNARY = ("relu", "neg", "abs", "exp", "tanh", "erf", "sigmoid", "reciprocal")
BINARY = ("add", "sub", "mul", "div", "max", "min")


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from((*UNARY, *BINARY, "matmul", "softmax", "transpose", "clip", "mean", "quantized")),
                             st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7),
    seed=st.integers(0, 99), magnitude=st.sampled_from([1e-3, 1.0, 30.0]),
)  # fmt: skip
def test_true_errors_are_within_the_bound_of_any_program(steps: list[tuple[str, int, int]], seed: int, magnitude: float) -> None:
    p = Builder("any")
    values = [p.input(name, TensorType((4, 4), "float32")) for name in "ab"]
    step = p.constant(np.array([0.05], np.float32))
    for name, m, n in steps:
        x, y = values[m % len(values)], values[n % len(values)]
        if name == "quantized":
            (codes,) = p.apply("quantize", [x, step], {"to": "int8"})
            values += p.apply("dequantize", [codes, step])
        elif name == "mean":
            (mean,) = p.apply("reduce_mean", [x], {"axes": (1,)})
            values += p.apply("sub", [y, mean])
        else:
            attributes: dict[str, Any] = {"softmax": {"axis": 1}, "transpose": {"perm": (1, 0)}, "clip": {"low": -0.3, "high": 0.3}}.get(
                name, {}
            )
            values += p.apply(name, [x, y] if name in (*BINARY, "matmul") else [x], attributes)
    check_bounds(p.finish(values[-1:]), seed, magnitude)


def test_a_bound_without_its_rounding_is_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_terms, "rounding", lambda *_: error_terms.NONE)
    rounding._meaning.cache_clear()  # of bounds that other tests derived, and below of those without rounding
    try:
        with pytest.raises(AssertionError):
            check_bounds(program_of("sigmoid"), 0)
    finally:
        rounding._meaning.cache_clear()


def far_and_back(offset: float) -> tuple[Program, Program]:
    """Return programs of x and of (x + offset) − offset, both times a matrix."""
    programs = []
    for is_far in (False, True):
        p = Builder("far")
        x, w = p.input("x", TensorType((4, 8), "float32")), p.input("w", TensorType((3, 8), "float32"))
        if is_far:
            c = p.constant(np.array(offset, np.float32))
            (x,) = p.apply("sub", [*p.apply("add", [x, c]), c])
        programs.append(p.finish(p.apply("dense", [x, w])))
    return programs[0], programs[1]


def random_values(p: Program) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return {p.names[v]: random.standard_normal(p.types[v].shape).astype(np.float32) for v in p.inputs}


@pytest.mark.parametrize(("offset", "low", "high"), [(1e-3, 1, 3), (1.0, 1, 5), (1e3, 100, 1e4), (1e8, 1e7, 1e9)])
def test_a_law_that_loses_digits_has_a_large_ratio(offset: float, low: float, high: float) -> None:
    source, rewritten = far_and_back(offset)
    ratio = ratio_of_programs(source, rewritten, random_values(source)).ratio
    assert ratio is not None
    assert low <= ratio <= high
    assert ratio_of_programs(rewritten, source, random_values(source)).ratio == 1.0  # what is lost by the model is no fault of a plan


def test_a_plan_that_overflows_alone_is_not_bounded() -> None:
    source, rewritten = far_and_back(3.3e38)
    values = random_values(source)
    assert str(ratio_of_programs(source, rewritten, {**values, "x": 2e37 * values["x"]})) == "not bounded"


def test_ratios_are_rounded_up() -> None:
    texts = {1.0: "≤ 1.0×", 1.01: "≤ 1.1×", 3.0: "≤ 3.0×", 9.99: "≤ 10.0×", 12.2: "≤ 13×", 753.4: "≤ 754×", 3.02e7: "≤ 4e7×"}
    assert {r: str(RoundingRatio(r)) for r in texts} == texts


def test_masks_of_minus_infinity_have_a_bound() -> None:
    p = Builder("masked")
    x = p.input("x", TensorType((4, 4), "float32"))
    mask = p.constant(np.where(np.tri(4) > 0, 0, -np.inf).astype(np.float32))
    (y,) = p.apply("softmax", [*p.apply("add", [*p.apply("mul", [x, x]), mask])], {"axis": 1})
    ((_, bounded),) = check_bounds(p.finish([y]), 0)
    assert bounded.error is not None
    assert np.isfinite(bounded.error).all()


def test_an_operator_without_a_meaning_is_named_or_given(tmp_path: Path) -> None:
    given, unknown = (load(model(tmp_path / "m.onnx", *before)).program for before in (("Ceil",), ("Sigmoid", "Ceil")))
    assert ratio_of_programs(given, given, random_values(given)) == RoundingRatio(1.0, host_operators=("Ceil",))
    assert str(ratio_of_programs(unknown, unknown, random_values(unknown))) == "not known: operator Ceil"
    with pytest.raises(NoBound):
        bounds_of(unknown, {unknown.inputs[0]: np.ones((2, 8), np.float32)})


def model(path: Path, *before: str) -> Path:
    """Write y = ((x + x)·½) W of the results of some operators."""
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    names = ["a", *(f"x{n}" for n in range(len(before)))]
    nodes = [
        *(helper.make_node(op, [names[n]], [names[n + 1]]) for n, op in enumerate(before)),
        helper.make_node("Add", [names[-1], names[-1]], ["twice"]), helper.make_node("Mul", ["twice", "half"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]  # fmt: skip
    numbers = [numpy_helper.from_array(np.array(0.5, np.float32), "half"), numpy_helper.from_array(weights, "w")]
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8])] for name in "ay"]
    graph = helper.make_graph(nodes, "g", *ports, numbers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


LAWS = """
rule half-of-twice(x: tensor) grade E if abs(x) < 2^126 { mul(add(x, x), full(shape=[], value=0.5)) = x }
"""


def test_conditions_of_grades_are_shown_on_the_plan(tmp_path: Path) -> None:
    rules = tmp_path / "laws.rules"
    rules.write_text(LAWS)

    by_sigmoid, bare = (
        compile_model(model(tmp_path / "m.onnx", *before), ["vta"], Options(rules=(rules,))) for before in (("Sigmoid",), ())
    )

    def shown(plan: Plan, *magnitudes: float) -> Evidence:
        samples = [{"a": np.float32(m) * np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)} for m in magnitudes]
        (condition,) = grade_conditions(plan, samples)
        assert (condition.rule, condition.grade, condition.places) == ("half-of-twice", "E if abs(x) < 2^126", 1)
        return condition.evidence

    assert [shown(by_sigmoid), shown(bare), shown(bare, 1.0), shown(bare, 1.0, 1e38)] == [
        Evidence.BY_RANGES, Evidence.NOT_SHOWN, Evidence.ON_DATA, Evidence.VIOLATED
    ]  # fmt: skip


def test_check_says_it_of_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("laws.rules").write_text(LAWS)
    model(Path("m.onnx"))
    np.savez("data.npz", a=np.ones((5, 2, 8), np.float32))
    assert flexmatch("compile", "m.onnx", "--accel", "vta", "--rules", "laws.rules", "-o", "p").code == 0
    text = " ".join(flexmatch("check", "p.json", "--rules", "laws.rules", "--data", "data.npz").out.split())
    assert "rounding ≤ 1.0× the model's error bound on 4 samples" in text
    assert "condition half-of-twice: grade E if abs(x) < 2^126; abs(x) < 2^126 at 1 place: on data (1 … 1)" in text
    result = check("p.json", rules=[Path("laws.rules")])
    assert result.arithmetic is not None
    assert result.arithmetic.rounding.ratio == 1.0
    assert [c.evidence for c in result.arithmetic.conditions] == [Evidence.NOT_SHOWN]  # a random input is no data


def test_a_range_without_a_number_is_no_bound() -> None:
    """The logarithm of what is not positive is −∞ or no number, and so is its difference with itself."""
    x = Leaf((3,), (None, None), True, "x")
    term = array(lambda i: call("log", x[i]) - call("log", x[i] * 2), (3,))
    assert ranges_of("sub", [term], {x: (-2.0, 0.0)}) == [EVERYTHING]
