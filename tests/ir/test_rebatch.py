"""Programs with a sample axis: one run on all samples gives the bits of separate runs, or the program is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rewrite_compiler.ir.evaluate import run
from rewrite_compiler.ir.placement import Place, merge_samples, places_with_lead, split_samples
from rewrite_compiler.ir.program import Builder, Node, OpaqueOp, Program
from rewrite_compiler.ir.rebatch import NotBatchable, Rebatched, rebatch, rebatch_cheapest_axis
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.ir.verify import verify
from rewrite_compiler.ops.op import ShapeError

SAMPLES = 3
REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_mean")


def whole_numbers(shape: tuple[int, ...], dtype: str, random: np.random.Generator) -> Any:
    """Small whole numbers: sums of products of them are exact in any order."""
    low, high = (0, 2) if dtype == "int64" else (-2, 3)
    return random.integers(low, high, shape).astype(dtype)


def check(p: Program, places: Mapping[int, Place | int], *, tolerance: float = 0, seed: int = 0) -> Rebatched:
    """Run all samples at once and one by one, and compare every output."""
    result = rebatch(p, SAMPLES, places)
    assert isinstance(result, Rebatched), result
    verify(result.program)
    random = np.random.default_rng(seed)
    shared = {v: whole_numbers(p.types[v].shape, p.types[v].dtype, random) for v in p.inputs if v not in places}
    each = {v: whole_numbers((SAMPLES, *p.types[v].shape), p.types[v].dtype, random) for v in places}
    together = run(result.program, {**shared, **{v: merge_samples(x, result.places[v]) for v, x in each.items()}})
    for v in p.outputs:
        found = split_samples(together[v], result.places.get(v), SAMPLES)
        for s in range(SAMPLES):
            alone = run(p, {**shared, **{v: x[s] for v, x in each.items()}})[v]
            assert found[s].shape == alone.shape
            if tolerance:
                assert np.allclose(found[s], alone, rtol=tolerance, atol=tolerance, equal_nan=True)
            else:
                assert np.array_equal(found[s], alone, equal_nan=True)
    return result


# -- places


@st.composite
def placed(draw: st.DrawFn) -> tuple[tuple[int, ...], Place]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axis = draw(st.integers(0, len(shape) - 1))
    return shape, Place(axis, draw(st.sampled_from([d for d in range(1, shape[axis] + 1) if shape[axis] % d == 0])))


@given(placed())
def test_separating_undoes_merging(case: tuple[tuple[int, ...], Place]) -> None:
    shape, place = case
    x = np.arange(SAMPLES * math.prod(shape)).reshape(SAMPLES, *shape)
    assert merge_samples(x, place).shape == place.scaled(shape, SAMPLES)
    assert np.array_equal(split_samples(merge_samples(x, place), place, SAMPLES), x)


@given(placed())
def test_candidates_are_one_order(case: tuple[tuple[int, ...], Place]) -> None:
    shape, place = case
    x = np.arange(SAMPLES * math.prod(shape)).reshape(SAMPLES, *shape)
    found = list(places_with_lead(shape, place.lead(shape)))
    assert place in found
    assert all(np.array_equal(merge_samples(x, p).ravel(), merge_samples(x, place).ravel()) for p in found)


def test_samples_vary_slowest() -> None:
    x = np.array([[1, 2], [3, 4], [5, 6]])
    assert merge_samples(x, Place(0)).tolist() == [1, 2, 3, 4, 5, 6]
    assert merge_samples(x, Place(0, 2)).tolist() == [1, 3, 5, 2, 4, 6]


# -- any operator, any place: right or refused


def shapes(low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, 3), min_size=low, max_size=high).map(tuple)


@st.composite
def binary(draw: st.DrawFn, name: str) -> Any:
    full = draw(shapes(1, 4))
    operands = [tuple(draw(st.sampled_from([n, 1])) for n in full[draw(st.integers(0, len(full) - 1)) :]) for _ in range(2)]
    return name, operands, {}


@st.composite
def one_operand(draw: st.DrawFn, name: str) -> Any:
    x = draw(shapes(1, 4))
    axis = draw(st.integers(0, len(x) - 1))
    start = draw(st.integers(0, x[axis] - 1))
    pads = draw(st.lists(st.integers(0, 1), min_size=2 * len(x), max_size=2 * len(x)))
    cut = draw(st.integers(0, len(x)))
    attributes: dict[str, Any] = {
        "relu": {},
        "clip": {"low": -1.0, "high": 1.0},
        "transpose": {"perm": tuple(draw(st.permutations(range(len(x)))))},
        "slice": {"axis": axis, "start": draw(st.sampled_from([0, start])), "stop": x[axis], "step": draw(st.integers(1, 2))},
        "pad": {"pads": tuple(draw(st.sampled_from([pads, [0] * len(pads)]))), "value": 0.5},
        "softmax": {"axis": axis},
        "reverse": {"axis": axis},
        "log_softmax": {"axis": axis},
        "expand": {"shape": (*draw(shapes(0, 1)), *(n if n > 1 else draw(st.integers(1, 2)) for n in x))},
        "reshape": {"shape": draw(regroupings(x))},
    }
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(x) - 1)))))
    keepdims = draw(st.integers(0, 1))
    reductions = {r: {"axes": axes, "keepdims": keepdims} for r in REDUCTIONS}
    norms = {"layer_norm": {"axis": min(cut, len(x) - 1), "epsilon": 0.25}}
    extra = [x[min(cut, len(x) - 1) :]] * 2 if name == "layer_norm" else []
    return name, [x, *extra], (attributes | reductions | norms)[name]


@st.composite
def regroupings(draw: st.DrawFn, x: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape with as many elements: neighbours joined, split, ones put in and left out."""
    left, shape = math.prod(x), []
    while left > 1 or not shape:
        n = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        shape.append(n)
        left //= n
        assume(len(shape) < 6)
    return tuple(shape)


@st.composite
def linear(draw: st.DrawFn, name: str) -> Any:
    x = draw(shapes(1, 3))
    if name == "dense":
        return name, [x, (draw(st.integers(1, 3)), x[-1])], {}
    if name == "matmul":
        lead = [tuple(draw(st.sampled_from([n, 1])) for n in x[draw(st.integers(0, len(x))) :]) for _ in range(2)]
        m, k, n = draw(st.tuples(*[st.integers(1, 3)] * 3))
        return name, [(*lead[0], m, k), (*lead[1], k, n)], {}
    axis = draw(st.integers(0, len(x) - 1))
    return name, [x, (x[axis],)], {"axis": axis}


@st.composite
def windowed(draw: st.DrawFn, name: str) -> Any:
    x = (*draw(st.tuples(st.integers(1, 2), st.integers(1, 2))), draw(st.integers(3, 5)), draw(st.integers(2, 4)))
    window = {"strides": draw(st.sampled_from([(1, 1), (2, 1)])), "pads": draw(st.sampled_from([(0, 0, 0, 0), (1, 0, 1, 1)]))}
    window["dilations"] = (1, 1)
    if name == "conv":
        return name, [x, (draw(st.integers(1, 2)), x[1], 2, 2)], {**window, "group": 1}
    if name == "batch_norm":
        return name, [x, *[(x[1],)] * 4], {"epsilon": 0.25}
    pooling = {"max_pool": {"ceil": 0}, "average_pool": {"ceil": 0, "count_include_pad": 0}, "im2col": {}}
    return name, [x], {**window, "kernel": (2, 2), **pooling[name]}


@st.composite
def gathers(draw: st.DrawFn, name: str) -> Any:
    x = (*draw(shapes(1, 2)), 2)
    if name == "concat":
        axis = draw(st.integers(0, len(x) - 1))
        return name, [(*x[:axis], draw(st.integers(1, 2)), *x[axis + 1 :]) for _ in range(draw(st.integers(1, 3)))], {"axis": axis}
    axis = draw(st.integers(0, len(x) - 1))
    assume(x[axis] == 2)
    return name, [x, draw(shapes(0, 2))], {"axis": axis}


@st.composite
def recurrent(draw: st.DrawFn, name: str) -> Any:
    t, n, i, h = draw(st.tuples(*[st.integers(1, 2)] * 4))
    gates, states = {"lstm": (4, 2), "gru": (3, 1), "rnn": (1, 1)}[name]
    attributes = {"lstm": {}, "gru": {"linear_before_reset": draw(st.integers(0, 1))}, "rnn": {"activation": "relu"}}[name]
    return name, [(t, n, i), (gates * h, i), (gates * h, h), (2 * gates * h,), *[(n, h)] * states], attributes


OPERATIONS: dict[str, Any] = {
    **dict.fromkeys(("add", "sub", "mul", "max", "min"), binary),
    **dict.fromkeys(
        ("relu", "clip", "transpose", "slice", "pad", "softmax", "log_softmax", "expand", "reshape", "reverse", "layer_norm", *REDUCTIONS),
        one_operand,
    ),
    **dict.fromkeys(("dense", "matmul", "bias_add", "scale"), linear),
    **dict.fromkeys(("conv", "batch_norm", "max_pool", "average_pool", "im2col"), windowed),
    **dict.fromkeys(("gather", "concat"), gathers),
    **dict.fromkeys(("lstm", "gru", "rnn"), recurrent),
}


def program_of(name: str, operands: list[tuple[int, ...]], attributes: dict[str, Any]) -> Program:
    b = Builder(name)
    dtypes = ["float64", "int64"] if name == "gather" else ["float64"] * len(operands)
    values = [b.input(f"x{n}", TensorType(s, d)) for n, (s, d) in enumerate(zip(operands, dtypes, strict=True))]
    return b.finish(b.apply(name, values, attributes))


INEXACT = {"lstm", "gru", "softmax", "log_softmax", "layer_norm", "batch_norm"}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_any_operator_with_samples_anywhere(name: str) -> None:
    accepted = 0

    @settings(max_examples=100, deadline=None, database=None)
    @given(OPERATIONS[name](name), st.data())
    def right_or_refused(case: tuple[str, list[tuple[int, ...]], dict[str, Any]], data: st.DataObject) -> None:
        nonlocal accepted
        _, operands, attributes = case
        with np.errstate(all="ignore"):
            p = program_or_none(name, operands, attributes)
            assume(p is not None)
            assert p is not None
            places = data.draw(places_in(p))
            if isinstance(rebatch(p, SAMPLES, places), Rebatched):
                check(p, places, tolerance=1e-12 if name in INEXACT else 0)
                accepted += 1

    right_or_refused()
    assert accepted >= 5


@pytest.mark.parametrize(
    ("name", "operands", "attributes", "place"),
    [
        ("gather", [(2, 2, 3), (2, 2)], {"axis": 0}, Place(2)),
        ("gather", [(2, 2, 3), ()], {"axis": 0}, Place(1, 2)),
        ("batch_norm", [(2, 4, 3), (4,), (4,), (4,), (4,)], {"epsilon": 0.25}, Place(1, 2)),
        ("scale", [(2, 4), (4,)], {"axis": 1}, Place(1, 2)),
        ("add", [(2, 4), (4,)], {}, Place(1, 2)),
        ("matmul", [(3, 2, 2), (3, 2, 1)], {}, Place(0)),
        ("reduce_sum", [(2, 3, 4)], {"axes": (0,), "keepdims": 0}, Place(1)),
        ("reshape", [(2, 3, 4)], {"shape": (6, 2, 2)}, Place(1)),
        ("reshape", [(6, 4)], {"shape": (2, 3, 4)}, Place(0, 2)),
    ],
)
def test_places_that_need_care(name: str, operands: list[tuple[int, ...]], attributes: dict[str, Any], place: Place) -> None:
    p = program_of(name, operands, attributes)
    with np.errstate(all="ignore"):
        check(p, {p.inputs[0]: place}, tolerance=1e-12 if name in INEXACT else 0)


def program_or_none(name: str, operands: list[tuple[int, ...]], attributes: dict[str, Any]) -> Program | None:
    try:
        return program_of(name, operands, attributes)
    except ShapeError:
        return None


@st.composite
def places_in(draw: st.DrawFn, p: Program) -> dict[int, Place]:
    """Places in the first input, or in any inputs."""
    with_axes = [v for v in p.inputs if p.types[v].shape]
    chosen = draw(st.sets(st.sampled_from(with_axes), min_size=1)) if draw(st.booleans()) else set(with_axes[:1])
    found = {}
    for v in sorted(chosen):
        axis = draw(st.integers(0, len(p.types[v].shape) - 1))
        found[v] = Place(axis, draw(st.sampled_from([1, p.types[v].shape[axis]])))
    return found


# -- whole networks


def convolutional(batch: int = 1) -> Program:
    b, random = Builder("cnn"), np.random.default_rng(0)

    def weights(*shape: int) -> int:
        return b.constant(whole_numbers(shape, "float64", random))

    window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    x = b.input("x", TensorType((batch, 3, 8, 8), "float64"))
    (y,) = b.apply("conv", [x, weights(4, 3, 3, 3)], {**window, "group": 1})
    (y,) = b.apply("bias_add", [y, weights(4)], {"axis": 1})
    (y,) = b.apply("relu", [y])
    (rows,) = b.apply("im2col", [y], {**window, "kernel": (3, 3)})
    (z,) = b.apply("dense", [rows, weights(4, 36)])
    (z,) = b.apply("reshape", [z], {"shape": (batch, 8, 8, 4)})
    (z,) = b.apply("transpose", [z], {"perm": (0, 3, 1, 2)})
    (z,) = b.apply("add", [y, z])
    (z,) = b.apply("reduce_mean", [z], {"axes": (2, 3), "keepdims": 1})
    (z,) = b.apply("reshape", [z], {"shape": (batch, 4)})
    (z,) = b.apply("dense", [z, weights(10, 4)])
    return b.finish(b.apply("bias_add", [z, weights(10)], {"axis": 1}))


def attention() -> Program:
    """A transformer block with a class token, batch 1, heads split off by reshapes."""
    b, random = Builder("attention"), np.random.default_rng(0)

    def weights(*shape: int) -> int:
        return b.constant(whole_numbers(shape, "float64", random))

    x = b.input("x", TensorType((1, 4, 6), "float64"))
    (x,) = b.apply("concat", [weights(1, 1, 6), x], {"axis": 1})
    (x,) = b.apply("add", [x, weights(1, 5, 6)])
    (n,) = b.apply("layer_norm", [x, weights(6), weights(6)], {"axis": 2, "epsilon": 0.25})
    heads = []
    for _ in range(3):
        (h,) = b.apply("dense", [n, weights(6, 6)])
        (h,) = b.apply("reshape", [h], {"shape": (1, 5, 2, 3)})
        heads += b.apply("transpose", [h], {"perm": (0, 2, 1, 3)})
    (k,) = b.apply("transpose", [heads[1]], {"perm": (0, 1, 3, 2)})
    (scores,) = b.apply("matmul", [heads[0], k])
    (scores,) = b.apply("softmax", [scores], {"axis": 3})
    (mixed,) = b.apply("matmul", [scores, heads[2]])
    (mixed,) = b.apply("transpose", [mixed], {"perm": (0, 2, 1, 3)})
    (mixed,) = b.apply("reshape", [mixed], {"shape": (5, 6)})
    (mixed,) = b.apply("dense", [mixed, weights(6, 6)])
    (mixed,) = b.apply("reshape", [mixed], {"shape": (1, 5, 6)})
    (y,) = b.apply("add", [x, mixed])
    (y,) = b.apply("slice", [y], {"axis": 1, "start": 0, "stop": 1})
    return b.finish(b.apply("reshape", [y], {"shape": (6,)}))


def language_model() -> Program:
    """Tokens [time, batch] → embedding → LSTM → logits of all (time, batch) rows."""
    b, random = Builder("wlm"), np.random.default_rng(0)

    def weights(*shape: int) -> int:
        return b.constant(random.standard_normal(shape))

    tokens = b.input("tokens", TensorType((5, 1), "int64"))
    h, c = (b.input(n, TensorType((1, 1, 3), "float64")) for n in ("h0", "c0"))
    (x,) = b.apply("gather", [weights(7, 3), tokens], {"axis": 0})
    (h,) = b.apply("reshape", [h], {"shape": (1, 3)})
    (c,) = b.apply("reshape", [c], {"shape": (1, 3)})
    y, _, last = b.apply("lstm", [x, weights(12, 3), weights(12, 3), weights(24), h, c])
    (rows,) = b.apply("reshape", [y], {"shape": (5, 3)})
    (logits,) = b.apply("dense", [rows, weights(7, 3)])
    return b.finish([logits, last])


def test_a_convolutional_network() -> None:
    for batch in (1, 2):
        p = convolutional(batch)
        result = check(p, {p.inputs[0]: 0})
        assert result.places[p.outputs[0]] == Place(0)
        assert result.axes[p.nodes[3].outputs[0]] == 0
        assert len(result.program.nodes) == len(p.nodes)


def test_a_transformer_block() -> None:
    p = attention()
    check(p, {p.inputs[0]: 0}, tolerance=1e-12)


def test_a_language_model() -> None:
    """The rows of the output interleave time and samples; states may be the same for all samples or differ."""
    p = language_model()
    tokens, h, c = p.inputs
    result = check(p, {tokens: 1}, tolerance=1e-12)
    assert result.program.types[p.outputs[0]].shape in ((5 * SAMPLES, 7), (5, SAMPLES * 7))
    check(p, {tokens: 1, h: 1, c: 1}, tolerance=1e-12)
    check(p, {tokens: 1, h: 0, c: 1}, tolerance=1e-12)
    assert result.moves == 0


def test_samples_are_moved_where_an_operator_needs_them() -> None:
    p = language_model()
    result = check(p, {p.inputs[0]: 0}, tolerance=1e-12)
    assert result.moves == 1
    best = rebatch_cheapest_axis(p, SAMPLES, p.inputs[:1])
    assert isinstance(best, Rebatched)
    assert (best.moves, best.places[p.inputs[0]]) == (0, Place(1))


@pytest.mark.parametrize(
    ("name", "operands", "places"),
    [
        ("add", [(3,), (2, 1)], [0, 0]),
        ("add", [(1, 1), (2, 3)], [0]),
        ("sub", [(2, 1), (1, 3)], [0, 1]),
        ("dense", [(3,), (4, 3)], [0]),
        ("matmul", [(2, 3), (3, 4)], [0, 0]),
        ("matmul", [(2, 3), (5, 3, 4)], [0, 2]),
    ],
)
def test_samples_get_an_axis_of_their_own(name: str, operands: list[tuple[int, ...]], places: list[int]) -> None:
    p = program_of(name, operands, {})
    check(p, dict(zip(p.inputs, places, strict=False)))


def test_the_batch_axis_is_kept_apart_from_neighbours() -> None:
    """Of the spellings of one order a reshape takes the one in which the batch axis is an axis: no moves afterwards."""
    b = Builder("heads")
    x = b.input("x", TensorType((3, 4, 6), "float64"))
    (y,) = b.apply("reshape", [x], {"shape": (1, 3, 4, 2, 3)})
    (y,) = b.apply("transpose", [y], {"perm": (3, 2, 0, 1, 4)})
    (y,) = b.apply("softmax", [y], {"axis": 3})
    p = b.finish([y])
    result = check(p, {x: 1}, tolerance=1e-12)
    assert (result.moves, result.places[y]) == (0, Place(1))


# -- refusals


def reason(p: Program, *axes: Place | int) -> str:
    result = rebatch(p, SAMPLES, dict(zip(p.inputs, axes, strict=False)))
    assert isinstance(result, NotBatchable)
    return result.reason


Refusal = tuple[str, list[tuple[int, ...]], dict[str, Any], list[Place | int], str]
REFUSALS: list[Refusal] = [
    ("softmax", [(3,)], {"axis": 0}, [0], "it works along axis 0 of (3,), which carries the samples"),
    ("dense", [(3,), (4, 3)], {}, [0, 0], "its operand 1 differs between samples"),
    ("reshape", [(1,)], {"shape": ()}, [0], "its result () has no axis for the samples of (1,)"),
    ("concat", [(2,), (3,)], {"axis": 0}, [0], "it works along axis 0 of (2,), which carries the samples"),
    ("expand", [(1, 1)], {"shape": (2, 3)}, [0], "axis 0 of its result is broadcast and carries the samples"),
    ("lstm", [(3, 2, 1), (4, 1), (4, 1), (8,), (2, 1), (2, 1)], {}, [0, 0], "its operand 1 differs between samples"),
]


@pytest.mark.parametrize(("name", "operands", "attributes", "places", "why"), REFUSALS)
def test_refusals_name_the_node(
    name: str, operands: list[tuple[int, ...]], attributes: dict[str, Any], places: list[Place | int], why: str
) -> None:
    p = program_of(name, operands, attributes)
    assert reason(p, *places) == f'{name} "v{p.outputs[0]}" cannot be batched: {why}'


def test_a_missing_axis_is_refused() -> None:
    p = program_of("relu", [(2, 3)], {})
    assert reason(p, 2) == 'input "x0" of type float64[2, 3] has no axis 2 to carry 1 parts of samples'


# -- operations the engine does not know


def opaque(op_type: str, domain: str, operands: list[tuple[int, ...]], result: tuple[int, ...]) -> Program:
    b = Builder("opaque")
    values = [b.input(f"x{n}", TensorType(s)) for n, s in enumerate(operands)]
    y = b.value(TensorType(result), "y")
    b.opaque["k"] = OpaqueOp(op_type, domain, b"", "not understood")
    b.node(Node("opaque", tuple(values), (y,), (("key", "k"),)))
    return b.finish([y])


def test_known_source_operators_carry_samples() -> None:
    for op_type, operands, result in [
        ("Floor", [(2, 3)], (2, 3)),
        ("Where", [(2, 3), (1,), (2, 1)], (2, 3)),
        ("QuantizeLinear", [(2, 3), (), ()], (2, 3)),
        ("QLinearMatMul", [(3,), (), (), (3, 4), (4,), (4,), (), ()], (4,)),
        ("QLinearConv", [(2, 3, 4), (), (), (5, 3, 1), (), (), (), (), (5,)], (2, 5, 4)),
    ]:
        p = opaque(op_type, "", operands, result)
        made = rebatch(p, SAMPLES, {p.inputs[0]: 0})
        assert isinstance(made, Rebatched)
        assert made.program.types[p.outputs[0]].shape == (SAMPLES * result[0], *result[1:])


def test_other_source_operators_are_refused() -> None:
    assert reason(opaque("NonMaxSuppression", "", [(2, 3)], (2, 3)), 0) == (
        'NonMaxSuppression "y" cannot be batched: how it treats samples is not known'
    )
    assert reason(opaque("Fancy", "my.domain", [(2, 3)], (2, 3)), 0) == (
        'my.domain.Fancy "y" cannot be batched: how it treats samples is not known'
    )
    assert reason(opaque("QuantizeLinear", "", [(2, 3), (2,), ()], (2, 3)), 0) == (
        'QuantizeLinear "y" cannot be batched: it has a scale for each element of an axis'
    )
    assert reason(opaque("Sum", "", [(2, 3)], (3,)), 0) == 'Sum "y" cannot be batched: its result has shape (3,), not (2, 3)'
