"""Certificates of mappings: the shipped driver is proved, drivers with one wrong instruction are refuted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.ila import Ila
from rewrite_compiler.prove.mappings.mappings import code_difference, first_sizes, prove_mapping
from rewrite_compiler.prove.mappings.small_designs import prove_mappings
from rewrite_compiler.readings.arrays.labelled_array import Data
from rewrite_compiler.readings.smt.solver import Verdict
from rewrite_compiler.target import Device, Limit, find_target
from rewrite_compiler.target import Mapping as Operation
from rewrite_compiler.target.mapping import accepted_arguments

TARGET = find_target("flexasr")
LINEAR = TARGET.mappings["linear"]
SMALL = ({"t": 1, "k": 16, "n": 64}, {"t": 17, "k": 33, "n": 70})  # symbolically; two time blocks, ragged vectors, two vectors a PE
Operands = dict[str, Any]
Change = Callable[[str, Operands], Operands | None]


@cache
def model() -> Ila:
    return TARGET.ila()


@dataclass(frozen=True)
class Tampered:
    """A device that changes what a driver sends; an instruction changed to None is not sent."""

    device: Device
    change: Change

    def issue(self, instruction: str, **operands: int) -> None:
        found = self.change(instruction, operands)
        if found is not None:
            self.device.issue(instruction, **found)

    def store(self, instruction: str, **operands: Data) -> None:
        found = self.change(instruction, operands)
        if found is not None:
            self.device.store(instruction, **found)

    def load(self, instruction: str, **operands: Data) -> Data:
        return self.device.load(instruction, **(self.change(instruction, operands) or operands))

    def wait(self) -> None:
        self.device.wait()


def plus(pattern: str, field: str, by: Any) -> Change:
    """Add to one field of the instructions whose name matches."""

    def change(name: str, operands: Operands) -> Operands:
        return {**operands, field: operands.get(field, 0) + by} if re.fullmatch(pattern, name) else operands

    return change


def put(pattern: str, **fields: Any) -> Change:
    """Replace fields of the instructions whose name matches."""
    return lambda name, operands: {**operands, **fields} if re.fullmatch(pattern, name) else operands


def drop(pattern: str) -> Change:
    return lambda name, operands: None if re.fullmatch(pattern, name) else operands


def mirrored_elements(name: str, operands: Operands) -> Operands:
    """Send the results of the four elements in the reverse order."""
    if not name.endswith("config_act_mngr"):
        return operands
    return {**operands, "output_addr_base": (3 - int(name[2])) * operands["num_output"]}


def exchanged_elements(name: str, operands: Operands) -> Operands:
    """Store the weights of one element turned by a row of the tile."""
    return {**operands, "vector": np.roll(operands["vector"], 1, axis=0)} if name == "pe2_core_store_weight_buffer" else operands


def transposed_tiles(name: str, operands: Operands) -> Operands:
    if not name.endswith("store_weight_buffer"):
        return operands
    tiles = operands["vector"].reshape(-1, 16, 16)
    return {**operands, "vector": tiles.swapaxes(1, 2).reshape(-1, 16)}


def tiles_in_the_wrong_order(name: str, operands: Operands) -> Operands:
    """Store the tiles in reverse: wrong as soon as there are two."""
    if not name.endswith("store_weight_buffer"):
        return operands
    tiles = operands["vector"].reshape(-1, 16, 16)
    return {**operands, "vector": tiles[::-1].reshape(-1, 16)}


def first_block_only(name: str, operands: Operands) -> Operands:
    """Place every timestep in the first block of 16: wrong from the 17th on."""
    if name != "gb_core_store_large":
        return operands
    return {**operands, "index": operands["index"] % 16}


# wrong driver → what it sends instead
WRONG: dict[str, Change] = {
    "elements in reverse order": mirrored_elements,
    "weights of one element turned": exchanged_elements,
    "weight tiles transposed": transposed_tiles,
    "weight tiles in reverse order": tiles_in_the_wrong_order,
    "bias looked for one vector further": plus(r"pe\d_config_mem_mngr_first", "base_bias", 1),
    "no bias": put(r"pe\d_config_rnn_layer_sizing", is_bias=0),
    "bias never stored": drop(r"pe1_core_store_input_buffer"),
    "bias in the wrong format": plus(r"pe\d_config_mem_mngr_first", "adpfloat_bias_b", -1),
    "weights in the wrong format": plus(r"pe3_config_mem_mngr_first", "adpfloat_bias_w", 1),
    "results in the wrong format": plus(r"pe\d_config_act_mngr", "adpfloat_bias", 1),
    "results looked for one vector further": plus("gb_core_load_large", "index", 1),
    "one timestep too few": plus("config_gb_control", "num_timestep_1", -1),
    "all timesteps in one block": first_block_only,
    "a needless activation": put(r"pe\d_config_act_mngr", num_inst=1),
}


def tampered(change: Change) -> Operation:
    drive = LINEAR.drive
    assert drive is not None

    def wrong(device: Device, x: Data, w: Data, b: Data, f: Mapping[str, Any]) -> Data:
        return np.asarray(drive(Tampered(device, change), x=x, w=w, b=b, f=f))

    return replace(LINEAR, drive=wrong, trials=SMALL)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_driver_is_refuted_with_codes(name: str) -> None:
    proof = prove_mapping(tampered(WRONG[name]), model())
    assert (proof.verdict, proof.code) == ("refuted", "I105"), proof
    example = proof.counterexample
    assert example is not None
    assert example.left != example.right
    assert proof.evidence == f"driver and numerics differ at {', '.join(f'{d}={n}' for d, n in example.attributes.items())}"
    assert proof.problem is not None
    assert re.fullmatch(
        r"rule flexasr\.linear is false: driver and numerics differ at t=\d+, k=\d+, n=\d+; "
        r"driver \d+, numerics \d+ at \[\d+, \d+\], with codes = seed 7, t = \d+, k = \d+, n = \d+",
        proof.problem.sentence,
    )
    assert proof.problem.place == LINEAR.rule.place


def test_the_shipped_driver_is_proved() -> None:
    proof = prove_mapping(LINEAR, model())
    assert proof.is_proved, proof
    every = "every k from 16 on by induction in steps of 1"
    assert proof.strength == f"symbolic at t=1, k=16, n=64 (92 instructions), random codes at 5 sizes; {every}"
    # ragged vectors, then the largest tile along each dimension
    assert proof.evidence == "sizes t=1, k=16, n=64; t=3, k=49, n=193; t=13097, k=16, n=64; t=1, k=4080, n=64; t=1, k=16, n=4032"
    assert (proof.problem, proof.code, proof.counterexample) == (None, "", None)


@pytest.mark.parametrize("name", ["linear_relu", "linear_sigmoid", "linear_tanh"])
def test_fused_activations_are_proved(name: str) -> None:
    proof = prove_mapping(replace(TARGET.mappings[name], trials=SMALL), model())
    assert proof.is_proved, proof


def test_each_activation_refutes_the_numerics_of_another() -> None:
    codes = TARGET.mappings["linear_relu"].codes
    proof = prove_mapping(replace(TARGET.mappings["linear_tanh"], codes=codes, trials=SMALL), model())
    assert (proof.verdict, proof.code) == ("refuted", "I105")


@pytest.mark.parametrize("absent", ["drive", "codes"])
def test_without_driver_or_numerics_nothing_is_proved(absent: str) -> None:
    proof = prove_mapping(replace(LINEAR, **{absent: None}), model())  # type: ignore[arg-type]
    assert (proof.verdict, proof.code, proof.evidence) == ("unproved", "R103", "it has no driver or no numerics")


def test_a_driver_that_never_starts_the_device_is_not_proved() -> None:
    proof = prove_mapping(tampered(drop("gb_control_start")), model())
    assert proof.verdict == "unproved"
    assert re.match("no interrupt can come: .+", proof.evidence)


def test_what_only_the_solver_sees_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.prove.mappings.mappings.code_difference", lambda *_: None)
    monkeypatch.setattr("rewrite_compiler.prove.mappings.mappings._example_of_model", lambda *_: None)
    proof = prove_mapping(tampered(WRONG["one timestep too few"]), model(), seconds=2)
    assert (proof.verdict, proof.code) == ("unproved", "R103")
    assert proof.evidence == "z3 separates driver and numerics at t=1, k=16, n=64, but no codes were found that do"


def test_codes_of_the_solver_refute_when_both_sides_differ_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.prove.mappings.mappings.code_difference", lambda *_: None)
    proof = prove_mapping(tampered(WRONG["one timestep too few"]), model(), seconds=2)
    assert (proof.verdict, proof.code) == ("refuted", "I105")
    assert "codes of the solver" in str(proof.counterexample)


def test_a_solver_without_an_answer_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewrite_compiler.prove.mappings.mappings.symbolic_verdict", lambda *_: (Verdict("unknown", reason="canceled"), 92))
    proof = prove_mapping(replace(LINEAR, trials=SMALL[:1]), model())
    assert (proof.verdict, proof.code, proof.evidence) == ("unproved", "R103", "the solver gave up at t=1, k=16, n=64: canceled")


def test_every_operation_of_a_target_gets_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr("rewrite_compiler.prove.mappings.small_designs.prove_operation", lambda target, m: seen.append(m.name))
    assert len(list(prove_mappings(TARGET))) == len(TARGET.mappings)
    assert seen == [m.name for m in TARGET.mappings.values()]


def test_a_driver_that_raises_is_not_proved() -> None:
    def drive(cmd: Device, x: Data, w: Data, b: Data) -> Data:
        raise ValueError("no such buffer")

    proof = prove_mapping(replace(LINEAR, drive=drive), model())
    assert (proof.verdict, proof.code) == ("unproved", "I102")
    assert re.fullmatch(
        r"The driver of .* must return an array of codes, .*, not end with ValueError: no such buffer at .*", proof.evidence
    )


def test_sizes_that_the_guard_refuses_are_not_tried() -> None:
    pool = TARGET.mappings["max_pool"]
    proof = prove_mapping(replace(pool, trials=({"u": 1, "w": 3, "n": 16},)), model())
    assert proof.evidence == "the trial u=1, w=3, n=16 is not admitted: the guard fails: 65536 % x.shape[1] == 0"
    alone = replace(pool, trials=(), drive=lambda *_, **__: None)
    sizes, reason = first_sizes(alone)
    assert (reason, sizes is not None and sizes["w"] > 1) == ("", True)
    never = replace(pool, trials=(), capacities=lambda **_: [Limit("nothing", 2, 1)])
    assert (
        prove_mapping(never, model()).evidence == "guard and limits admit no size of at most 4 units along each dimension; it needs trials"
    )
    norm = replace(TARGET.mappings["layer_norm"], trials=())
    assert prove_mapping(norm, model()).evidence == "its pattern has attributes (epsilon), so it needs trials"


def exchanged_strides(name: str, operands: Operands) -> Operands:
    """Send the strides of rows and columns for one another."""
    if name != "cfg_wr_conv_kernel_size":
        return operands
    return {**operands, "row_stride": operands["col_stride"], "col_stride": operands["row_stride"]}


def test_a_driver_that_takes_rows_for_columns_is_not_proved() -> None:
    """The last trial of every windowed operation has rows unlike its columns."""
    hlscnn = find_target("hlscnn")
    conv2d = replace(hlscnn.mappings["conv2d"], trials=hlscnn.mappings["conv2d"].trials[-1:])
    drive = conv2d.drive
    assert drive is not None

    def wrong(device: Device, **given: Any) -> Data:
        return np.asarray(drive(Tampered(device, exchanged_strides), **accepted_arguments(drive, given)))

    assert code_difference(conv2d, hlscnn.ila(), conv2d.trials[0]) is None
    proof = prove_mapping(replace(conv2d, drive=wrong), hlscnn.ila())
    assert proof.verdict == "unproved", proof
    assert proof.evidence.startswith("rows and columns in ConvOutputSize must be 1…(input − kernel) / stride + 1"), proof
