"""FlexASR against what its hardware computed: every trace in both readings, every primitive function exhaustively."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from vectors import primitives, replay, traces

from rewrite_compiler.errors import UsageError
from rewrite_compiler.ila.simulation.simulator import DeviceHang, Simulator
from rewrite_compiler.ila_models.flexasr import build, numerics
from rewrite_compiler.lang import Expr, Table, array, leaf, signed
from rewrite_compiler.readings.arrays.evaluator import table_data
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.readings.oracle.emit_python import evaluate as oracle

TRACES = traces("flexasr")
READINGS = ("oracle", "arrays")
GOLDEN = primitives()
WORDS = np.arange(1 << 20)
SIGNED = np.where(WORDS < 1 << 19, WORDS, WORDS - (1 << 20))
CODES = np.arange(256)


def wrong(trace: dict[str, Any], reading: str) -> list[list[str]]:
    found = replay(Simulator(build(), reading=reading), trace["commands"])
    return [f for f, w in zip(found, trace["reads_hw"], strict=True) if f != w]


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", TRACES)
def test_trace(name: str, reading: str) -> None:
    assert wrong(TRACES[name], reading) == []


def published(trace: dict[str, Any]) -> list[list[str]]:
    """Return the reads as the generated ILA simulator gave them; it has no reads of activation buffers."""
    reads = [[address, trace["ila_sim_values"].get(str(n), value)] for n, (address, value) in enumerate(trace["reads_hw"])]
    return [r for r in reads if not is_activation_buffer(r[0])]


def is_activation_buffer(address: str) -> bool:
    return int(address, 16) >> 24 >= 0x34 and int(address, 16) >> 20 & 0xF == 9


# where the simulator of November 2021 is not the published model that the revision describes
OTHER_MODEL = {
    "zeropad_nv2_5_to_20": "an older model, whose vector 1 is already wrong",
    "fuzz_pe_01": "hangs on undefined activation instructions",
    "fuzz_pe_08": "hangs on undefined activation instructions",
    "fuzz_pe_17": "hangs on undefined activation instructions",
}


@pytest.mark.parametrize("name", sorted(TRACES.keys() - OTHER_MODEL.keys()))
def test_published_ila(name: str) -> None:
    """The revision `published_ila` gives what the published model's generated simulator gave."""
    trace = TRACES[name]
    found = replay(Simulator(build(behaviour="published_ila")), trace["commands"])
    assert [r for r in found if not is_activation_buffer(r[0])] == published(trace)


# -- primitives


def test_decode() -> None:
    code = leaf("code", (8, 256), (0, 255))
    fixed = array(lambda b, c: numerics.fixed(code[b, c], b), (8, 256))
    found = evaluate(fixed, {code: np.broadcast_to(CODES, (8, 256)).copy()})
    assert np.array_equal(found, GOLDEN["to_fixed_20_14"])
    assert np.array_equal(found / float(1 << 14), GOLDEN["decode_float"])


@pytest.mark.parametrize("bias", range(8))
def test_encode_of_every_word(bias: int) -> None:
    assert np.array_equal(table_data(numerics.ENCODE[bias])[SIGNED + (1 << 19)], GOLDEN["encode_fixed_20_14"][bias])


UNARY: dict[str, Callable[[Expr], Expr] | Table] = {
    "sigmoid": numerics.SIGMOID["3.2"],
    "sigmoid_acmath34": numerics.SIGMOID["3.4"],
    "tanh": numerics.TANH,
    "invsqrt": numerics.INVSQRT,
    "relu": numerics.relu,
    "onex": numerics.one_minus,
}


@pytest.mark.parametrize("name", UNARY)
def test_function_of_every_word(name: str) -> None:
    x = leaf("x", (1 << 20,), numerics.WORD20)
    found = evaluate(array(lambda i: UNARY[name](x[i]), 1 << 20), {x: SIGNED})
    assert np.array_equal(found, GOLDEN[name])


BINARY = {"max": numerics.MAXIMUM, "mean": numerics.MEAN, "add": numerics.SUM}


@pytest.mark.parametrize("name", BINARY)
def test_function_of_every_pair_of_codes(name: str) -> None:
    assert np.array_equal(table_data(BINARY[name]).reshape(256, 256), GOLDEN[name])


def test_product_of_every_pair_of_codes() -> None:
    decoded = table_data(numerics.DECODE).astype(np.int64)
    assert np.array_equal(decoded[:, None] * decoded, GOLDEN["mul"])


def pairs(a: np.ndarray, b: np.ndarray, function: Callable[[Expr, Expr], Expr], bits: int) -> np.ndarray:
    word = (-(1 << bits - 1), (1 << bits - 1) - 1)
    x, y = leaf("x", a.shape, word), leaf("y", b.shape, word)
    return evaluate(array(lambda i: function(x[i], y[i]), a.shape), {x: a, y: b})


def test_sampled_functions() -> None:
    a, b = GOLDEN["emul_eadd_in"].T
    assert np.array_equal(pairs(a, b, lambda x, y: signed((x * y) >> 14, 20), 20), GOLDEN["emul_out"])
    assert np.array_equal(pairs(a, b, lambda x, y: signed(x + y, 20), 20), GOLDEN["eadd_out"])
    a, b = GOLDEN["ediv_in"].T
    assert np.array_equal(pairs(a, b, numerics.quotient, 32), GOLDEN["ediv_out"])
    x = GOLDEN["exp_in"]
    found = pairs(x, x, lambda v, _: numerics.exponential(v), 32)
    assert np.array_equal(found, GOLDEN["exp_out"].astype(np.int64) % (1 << 32))


@pytest.mark.parametrize("bias", range(8))
def test_encode_of_26_bit_words(bias: int) -> None:
    x = GOLDEN["encode_fixed_26_20_in"]
    found = pairs(x, x, lambda v, _: numerics.encoded(v, bias, 20, 26), 26)
    assert np.array_equal(found, GOLDEN["encode_fixed_26_20_out"][:, bias])


def test_oracle_gives_the_same_primitives_on_a_sample() -> None:
    rng = np.random.default_rng(20)
    picked = np.concatenate([rng.integers(0, 1 << 20, 300), [0, 1, (1 << 19) - 1, 1 << 19, (1 << 20) - 1]])
    x = leaf("x", (len(picked),), numerics.WORD20)
    for name, function in UNARY.items():
        term = array(lambda i, f=function: f(x[i]), len(picked))
        assert oracle(term, {x: SIGNED[picked].tolist()}, len(picked)) == GOLDEN[name][picked].tolist(), name


# -- refusals


def test_unknown_parameter() -> None:
    with pytest.raises(UsageError) as refusal:
        build(sigmoid="3.3")
    assert refusal.value.problem.sentence == 'parameter sigmoid of flexasr must be one of 3.2, 3.4, not "3.3"'


def test_wait_names_what_is_missing() -> None:
    with pytest.raises(DeviceHang) as refusal:
        Simulator(build()).wait_for_interrupt()
    assert refusal.value.problem.sentence == ("no interrupt can come: Control is not configured valid (config_gb_control is_valid)")
