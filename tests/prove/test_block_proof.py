"""Calls of a blocked design, proved on the design with one lane an element: the block lemma, streams, layouts; and what breaks each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from known_wrong.drivers import Fault, planted

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila.verification.lane_correspondence import LanesDiffer, instruction_correspondence
from rewrite_compiler.lang import Expr, reduce_sum, signed, update
from rewrite_compiler.prove.calls import call_validation
from rewrite_compiler.prove.calls.block_proof import BlockProofs
from rewrite_compiler.prove.calls.call_validation import CallCourt, Method
from rewrite_compiler.prove.calls.lane_lifting import Lifting, PartLayout
from rewrite_compiler.prove.calls.stream_correspondence import Event, StreamCorrespondence
from rewrite_compiler.readings.smt.polynomial_terms import Terms
from rewrite_compiler.target import Stay, find_target
from rewrite_compiler.targets.vta.base import blocks
from rewrite_compiler.targets.vta.conv2d import _trial
from rewrite_compiler.targets.vta.depthwise import _trial as depthwise_trial

VTA = find_target("vta")
NARROW = VTA.variant(blocks(VTA.values).parameters)
LAYER = _trial(32, 33, 3, 1, 1, 0)
PADDED = {**_trial(20, 33, 5, 3, 1, 0), "pads": (0, 0, 2, 0), "u": 5}
PASSES = _trial(40, 400, 4, 3, 1, 1, 2)


def failure(operation: str, sizes: dict[str, Any]) -> str:
    return BlockProofs(VTA).failure(VTA.mappings[operation], sizes)


@pytest.mark.parametrize("name", VTA.ila().instructions)
def test_updates_correspond_but_for_lanes(name: str) -> None:
    found = instruction_correspondence(VTA.ila(), NARROW.ila(), name)
    assert bool(found.contracted) == (name == "gemm")
    assert found.multiplies == (name == "alu_mul")
    assert bool(found.accesses) == name.startswith(("load", "store"))


@pytest.mark.parametrize(
    ("operation", "sizes"),
    [
        ("conv2d", LAYER), ("conv2d_bias_relu", _trial(19, 21, 5, 3, 2, 1, 2)), ("conv2d", PADDED), ("conv2d_bias", PASSES),
        ("dense", {"t": 3, "k": 37, "n": 20}), ("dense_bias_relu", {"t": 1, "k": 64, "n": 10}),
    ],
)  # fmt: skip
def test_calls_are_proved(operation: str, sizes: dict[str, Any]) -> None:
    assert failure(operation, sizes) == ""


CONV = "vta.conv2d"
WRONG = {
    "weights are transposed in a block": ("drive_conv2d", "{0: c.block, 1: c.block}", "{1: c.block, 0: c.block}", LAYER),
    "blocks of 16 have weights one further": (
        "_load", "dram_base=group + blocks.start * m.taps", "dram_base=group + blocks.start * m.taps + (c.block == 16)", LAYER
    ),
    "blocks of 16 have other rows": ("_load", "x_stride=m.cols", "x_stride=m.cols + (c.block == 16)", LAYER),
    "filters are exchanged": ("drive_conv2d", "b)[..., : len(w), :, :]", "b)[..., : len(w), :, :][..., ::-1, :, :]", LAYER),
    "the numerics leave a channel out": ("conv2d_codes", "(channels, *kernel)", "(channels - (channels == 33), *kernel)", LAYER),
    "the numerics turn the channels round": ("conv2d_codes", "w[n, c, r, s]", "w[n, channels - 1 - c, r, s]", LAYER),
    "bottom zeros are not loaded": ("_load", "max(end - m.rows, 0) if inside", "max(-begin, 0) if inside", PADDED),
    "results begin a word further": ("run_layer", 'm.places["out"], m.parts', 'm.places["out"] + (m.design.block == 16), m.parts', LAYER),
    "later passes have the first one's weights": (
        "_load", "dram_base=group + blocks.start * m.taps", "dram_base=group", _trial(32, 1024, 3, 3, 1, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_no_proof(name: str) -> None:
    function, old, new, sizes = WRONG[name]
    with planted(Fault("vta.conv2d", CONV, function, old, new)):
        assert failure("conv2d", sizes) != ""


def test_weights_that_stay_are_proved_where_they_lie() -> None:
    stay = Stay({"w": 37}, frozenset("w"))
    m = VTA.mappings["conv2d"]
    assert BlockProofs(VTA).failure(m, LAYER, stay) == ""
    with planted(Fault("vta.conv2d", CONV, "Layer.uops", "self.weights_at + ", "")):
        assert BlockProofs(VTA).failure(m, LAYER, stay) != ""


CODES_LAYER = {**_trial(20, 33, 3, 3, 1, 1), "x_zero": 120}
FILTERS = {**depthwise_trial(40, 3, 3, 1, 1, 100), "u": 3, "v": 3}
FACTORS = {"multiplier": (8_388_608, 16_777_215, 12_345_679), "shift": (25, 54, 32), "zero": 3, "low": 0, "high": 255}
SUMS = {"multiplier": (11_671_530, 8_730_912), "shift": (24, 24), "zeros": (118, 111), "zero": 116, "low": 0, "high": 255}
RAGGED = {"a": 2, "b": 3, "c": 5, "d": 7}


@pytest.mark.parametrize(
    ("operation", "sizes"),
    [
        ("conv2d_bias_uint8", CODES_LAYER), ("conv2d_uint8", {**CODES_LAYER, "x_zero": 127}), ("conv2d_int8", {**CODES_LAYER, "x_zero": 0}),
        ("conv2d_bias_int8", {**_trial(19, 16, 3, 1, 1, 0), "x_zero": -1}), ("dense_bias_uint8", {"t": 2, "k": 40, "n": 20, "x_zero": 4}),
        ("depthwise_bias_uint8", FILTERS), ("depthwise_int8", FILTERS), ("requantise_uint8_4", {**RAGGED, **FACTORS}),
        ("requantise_int8_2", {"a": 3, "b": 20, **FACTORS, "multiplier": (11_184_811,), "shift": (33,), "high": 100}),
        ("quantized_add_uint8_4", {**RAGGED, **SUMS}), ("relu_4", RAGGED),
    ],
)  # fmt: skip
def test_calls_of_a_quantised_model_are_proved(operation: str, sizes: dict[str, Any]) -> None:
    assert failure(operation, sizes) == ""


CALLS = {  # operation and sizes by module
    "quantised": ("conv2d_bias_uint8", CODES_LAYER), "conv2d": ("conv2d_bias_uint8", CODES_LAYER),
    "depthwise": ("depthwise_uint8", FILTERS), "requantise": ("requantise_uint8_4", {**RAGGED, **FACTORS}),
    "sums": ("quantized_add_uint8_4", {**RAGGED, **SUMS}),
}  # fmt: skip
WORDS = "split_bytes(words.reshape(*x.shape[:lead], -1), planes(m.design))"
WRONG_CODES = {  # module, function, old, new
    "one bias": ("quantised", "initial_sums", "widen(b)", "widen(b) + (np.arange(len(w)) == 17)"),
    "a bias in another lane": ("quantised", "initial_sums", "widen(b)", "np.roll(widen(b), 1)"),
    "what the zero point leaves out": ("quantised", "initial_sums", "(offset - zero)", "(zero - offset)"),
    "a weight is not summed": ("quantised", "initial_sums", "-1))", "-1)[:, 1:])"),
    "sums of the weights of another filter": ("quantised", "initial_sums", "w.reshape(", "w[::-1].reshape("),
    "the code around images": ("quantised", "with_zero_points", "pads, zero)", "pads, zero + 1)"),
    "the code around some channels": ("quantised", "with_zero_points", "x.shape[-3], block) * block", "x.shape[-3] // 2, 1)"),
    "codes enter as they are": ("quantised", "drive_conv2d_sums", "widen(x) - offset", "widen(x)"),
    "biases of the first block": ("conv2d", "_start_at_bias", "dram_base=first + n", "dram_base=first"),
    "weights beyond the last channel": (
        "conv2d", "drive_conv2d", "tile(w, {0",
        "tile(np.pad(w, ((0, 0), (0, -w.shape[1] % c.block), (0, 0), (0, 0)), constant_values=1), {0",
    ),
    "a micro-op": ("conv2d", "Layer.uops", "(k * height + i)", "(k * height + i - (n == 1 and i == 2 and j == 2))"),
    "filters turned round": ("depthwise", "_diagonals", "tile(w, {0: block})", "tile(w[::-1], {0: block})"),
    "weights beside the diagonal": ("depthwise", "_diagonals", "lane, lane]", "lane, lane[::-1]]"),
    "weights in whole rows": ("depthwise", "_diagonals", "lane, lane] = tile(w, {0: block})", ":] = tile(w, {0: block})[..., None]"),
    "one number of a channel": (
        "requantise", "drive", "np.repeat(_numbers(pairs), lanes)",
        "np.repeat(_numbers(pairs), lanes) + (np.arange(7 * lanes * len(pairs)) == 21 * (lanes == 16))",
    ),
    "numbers of the channel before": ("requantise", "drive", "_numbers(pairs), lanes", "np.roll(_numbers(pairs), 1), lanes"),
    "a shift": ("requantise", "steps", 'Step("alu_shr", SUM, DOWN)', 'Step("alu_shr", SUM, MORE)'),
    "channels of results": ("requantise", "drive", "return in_order if", "in_order = in_order[:, ::-1]; return in_order if"),
    "elements of results": ("requantise", "drive", "return in_order if", "in_order = in_order[..., ::-1]; return in_order if"),
    "one byte of a sum": ("requantise", "drive", WORDS, f"{WORDS} * (np.arange(words.size * planes(m.design)) != 8 * lanes)"),
    "factors exchanged": ("sums", "steps", 'Step("alu_mul", X, X_HIGH)', 'Step("alu_mul", X, Z_HIGH)'),
    "an operand's elements": ("sums", "drive", "((x, z))", "((x, z[:, ::-1]))"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_CODES)
def test_a_fault_in_a_call_of_a_quantised_model_is_no_proof(name: str) -> None:
    module, function, old, new = WRONG_CODES[name]
    with planted(Fault("", f"vta.{module}", function, old, new)):
        assert failure(*CALLS[module]) != ""


def test_numbers_are_not_multiplied_with_numbers() -> None:
    """In the narrow design 1 · 1 is 1, and in the wide one the number of lanes."""
    rows, columns = frozenset({("wgt", 1)}), frozenset({("inp", 2), ("wgt", 2)})
    layouts = {0: PartLayout(16, 1, ((columns, 16, 1),)), 1: PartLayout(256, 1, ((rows, 16, 16), (columns, 16, 1)))}

    def streams(weight: int) -> StreamCorrespondence:
        wide, narrow = ([Event("place", "dram", words=np.full(n, word)) for n, word in zip(words, (1, weight), strict=True)]
                        for words in ((16, 256), (1, 1)))  # fmt: skip
        return StreamCorrespondence(wide, narrow, parts=layouts, contracted_labels={columns})

    streams(0).compare_contents(Lifting({}, Terms()))
    with pytest.raises(LanesDiffer, match="numbers are multiplied with numbers"):
        streams(1).compare_contents(Lifting({}, Terms()))


def _design(target: Any, weight: Any, lanes: int) -> Any:
    """Return a design whose GEMM adds Σ inp · weight(memories, column, lane) over so many lanes to the first accumulators."""
    ila = target.build(**target.values)
    gemm, s, block = ila.instructions["gemm"], ila.s, ila.parameters["log_block"]

    def element(i: Expr, j: Expr) -> tuple[tuple[Any, ...], Expr]:
        return (0, i, j), signed(s.acc[0, i, j] + reduce_sum(lambda k: s.inp[0, i, k] * weight(s, j, k), lanes), 32)

    ila.instructions["gemm"] = replace(gemm, update=update(s.acc, (1, 1 << block), element))
    return ila


def _weight(s: Any, j: Expr, k: Expr) -> Expr:
    return s.wgt[0, j, k]


@pytest.mark.parametrize(
    ("weight", "lanes", "sentence"),
    [
        (lambda s, j, k: s.wgt[0, j, (k + 1) % 16], 16, "gemm: axis 2 of wgt is one of lanes"),
        (lambda s, j, k: s.wgt[0, j, k] + k, 16, "gemm: "),
        (lambda s, j, k: s.wgt[k % 2, j, k], 16, "gemm: "),
        (lambda s, j, k: s.wgt[0, k, j], 16, ""),
        (_weight, 15, "gemm: "),
        (_weight, 16, ""),
    ],
)  # fmt: skip
def test_lanes_must_be_used_as_lanes(weight: Any, lanes: int, sentence: str) -> None:
    wide, narrow = _design(VTA, weight, lanes), _design(NARROW, weight if not sentence else _weight, 1)
    if not sentence:  # a transposed weight is a lane like any other: which one it is decides where operands must lie
        assert instruction_correspondence(wide, narrow, "gemm").contracted
        return
    with pytest.raises(LanesDiffer) as refusal:
        instruction_correspondence(wide, narrow, "gemm")
    assert str(refusal.value).startswith(sentence)


@pytest.mark.parametrize("side", ["wide", "narrow"])
def test_parts_of_external_memory_do_not_share_a_word(side: str) -> None:
    def parts(second: int, count: int = 4) -> list[Event]:
        return [Event("place", "dram", start=n, words=np.zeros(words, object)) for n, words in ((0, 4), (second, count))]

    for second, count, is_apart in ((4, 4, True), (3, 4, False), (2, 0, True), (0, 1, False)):
        both = {"wide": parts(8), "narrow": parts(8), side: parts(second, count)}
        streams = StreamCorrespondence(**both)
        if is_apart:
            streams._check_disjoint((0, 1))
        else:
            with pytest.raises(LanesDiffer, match="parts of external memory overlap"):
                streams._check_disjoint((0, 1))


@pytest.mark.parametrize("differs", ["", "on the first seed", "on the second seed", "refused"])
def test_a_sample_of_a_call_is_drawn_twice_and_refutes_what_the_device_refuses(differs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = list[int]()

    def difference(m: Any, ila: Any, sizes: Any, seed: int, stay: Any) -> str | None:
        seeds.append(seed)
        if differs == "refused":
            raise SpecError("I104", "nothing has written it")
        return "y[0]" if differs == ("on the first seed", "on the second seed")[len(seeds) - 1] else None

    monkeypatch.setattr(call_validation, "code_difference", difference)
    target = find_target("vta")
    method, reason = CallCourt(target)._sample(target.mappings["dense"], {}, None)
    if not differs:
        assert (method, reason, len({*seeds})) == (Method.SAMPLE, "", 2)
    else:
        said = "the device refuses the stream: nothing has written it" if differs == "refused" else "driver and numerics differ: y[0]"
        assert (method, reason) == (Method.NONE, said)
