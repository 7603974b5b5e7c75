"""FlexASR under strict simulation: what is not configured, undefined or over capacity is named; otherwise the hardware goes on."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila
from rewrite_compiler.ila.simulation.simulator import READINGS, Simulator
from rewrite_compiler.ila_models.flexasr import build

ELEMENTS = range(4)


@cache
def model(behaviour: str = "hardware") -> Ila:
    return build(behaviour)


def configured(sim: Simulator, **changes: Any) -> None:
    """Configure a linear layer of one vector a processing element; changes are `unit__field`."""
    words: dict[str, dict[str, int]] = {
        "config_gb_core_mem_mngr_large": {"num_vector_0": 1, "num_vector_1": 4, "base_1": 16},
        "config_gb_control": {"is_valid": 1, "memory_index_2": 1, "num_vector_1": 1, "num_vector_2": 4, "num_timestep_1": 1},
        "config_gb_layer_reduce": {"is_valid": 1, "num_vector_1": 1, "num_timestep_1": 2},
        "config_gb_layer_norm": {"is_valid": 1, "num_vector_1": 1, "num_timestep_1": 2},
        "config_gb_zero_padding": {"is_valid": 1, "num_vector_1": 1, "num_timestep_1": 1, "num_timestep_2": 3},
        "config_gb_attention": {"is_valid": 1, "memory_index_2": 2, "num_vector_1": 1, "num_timestep_1": 5},
        "config_gb_core_mem_mngr_small": {"base_7": 1},
    }
    for pe in ELEMENTS:
        words[f"pe{pe}_config_rnn_layer_sizing"] = {"is_valid": 1, "is_bias": 1, "num_manager": 1, "num_output": 1}
        words[f"pe{pe}_config_mem_mngr_first"] = {"num_input": 1, "base_bias": 1}
        words[f"pe{pe}_config_act_mngr"] = {"is_valid": 1, "num_inst": 2, "num_output": 1, "output_addr_base": pe}
    for name, value in changes.items():
        unit, _, field = name.partition("__")
        words[unit] = {**words[unit], field: value}
    for name, fields in words.items():
        sim.issue(name, **fields)


def program(sim: Simulator, *instructions: int) -> None:
    """Store an activation program in every element."""
    for pe in ELEMENTS:
        sim.issue(f"pe{pe}_config_act_vector_0_15", instructions=sum(byte << 8 * n for n, byte in enumerate(instructions)))


def filled(sim: Simulator, *, without: str = "", vector: int = 0) -> None:
    """Write what the engines read, but for one vector of one memory."""
    rows = {"gb_core_store_large": 16, "gb_core_store_small": 9}
    rows |= {f"pe{pe}_core_store_{memory}": n for pe in ELEMENTS for memory, n in (("weight_buffer", 32), ("input_buffer", 3))}
    for name, count in rows.items():
        for index in range(count):
            if (name, index) != (without, vector):
                sim.issue(name, index=index, vector=1 + index)


def ran(engine: str, *, strict: bool, instructions: tuple[int, ...] = (0x30, 0x40), **changes: Any) -> Simulator:
    sim = Simulator(model(), strict=strict)
    configured(sim, **changes)
    program(sim, *instructions)
    filled(sim)
    sim.issue(f"gb_{engine}_start")
    return sim


@pytest.mark.parametrize("engine", ["control", "layer_reduce", "layer_norm", "zero_padding", "attention"])
def test_what_is_configured_runs(engine: str) -> None:
    assert ran(engine, strict=True).state("interrupt") == 1


# engine, what is changed → code and sentence
DIAGNOSED: list[tuple[str, dict[str, Any], str, str]] = [
    *(
        (e, {f"config_gb_{e}__is_valid": 0}, "I112", f"{e} is started, but config_gb_{e} has is_valid 0")
        for e in ("control", "layer_reduce", "layer_norm", "zero_padding", "attention")
    ),
    ("control", {"pe2_config_act_mngr__is_valid": 0}, "I112",
     "control waits for PE2, whose core and activation unit are not both configured valid"),
    ("control", {"config_gb_control__mode": 5}, "I112", "mode of control must be 0…3, not 5"),
    ("control", {"config_gb_control__num_vector_2": 3}, "I112",
     "control counts 3 vectors a timestep, its memory manager 4: hardware and published model differ there"),
    ("control", {"instructions": (0x30, 0x50)}, "I113",
     "the program of PE0 has an instruction with an undefined opcode (0, 5, 6, 14 or 15)"),
    ("control", {"pe1_config_mem_mngr_first__base_weight": 65_521}, "I114",
     "PE1 reads its weight buffer up to vector 65537, which has 65536"),
    ("control", {"pe3_config_mem_mngr_first__base_bias": 256}, "I114", "PE3 reads its input buffer up to vector 257, which has 256"),
    ("control", {"instructions": (0x30, 0x20), "pe0_config_act_mngr__buffer_addr_base": 31, "pe0_config_act_mngr__num_output": 2,
                 "pe0_config_rnn_layer_sizing__num_output": 2}, "I114",
     "PE0 keeps vectors up to 33 in its activation buffer, which has 32"),
    ("control", {"config_gb_core_mem_mngr_large__base_1": 65_473}, "I114",
     "control uses the large buffer up to vector 65537, which has 65536"),
    ("layer_reduce", {"config_gb_layer_reduce__num_timestep_1": 3}, "I112",
     "layer_reduce combines pairs of timesteps: 3 is odd, and hardware and published model differ there"),
    ("layer_reduce", {"config_gb_layer_reduce__mode": 3}, "I112", "mode of layer_reduce must be 0, 1 or 2, not 3"),
    ("layer_norm", {"config_gb_layer_norm__num_vector_1": 0}, "I112", "layer_norm must have at least one vector a timestep, not 0"),
    ("layer_norm", {"config_gb_core_mem_mngr_small__base_5": 1024}, "I114",
     "layer_norm uses the small buffer up to vector 1025, which has 1024"),
    ("attention", {"config_gb_attention__num_timestep_1": 1025}, "I114",
     "attention must have 1…1024 rows, not 1025: the offset of a score has 8 bits"),
    ("attention", {"config_gb_core_mem_mngr_small__base_7": 1021}, "I114",
     "attention uses the small buffer up to vector 1025, which has 1024"),
    ("zero_padding", {"config_gb_core_mem_mngr_large__base_0": 65_535}, "I114",
     "zero_padding uses the large buffer up to vector 65551, which has 65536"),
]  # fmt: skip


@pytest.mark.parametrize("case", DIAGNOSED, ids=lambda c: f"{c[0]} {','.join(c[1])}")
def test_what_is_wrong_is_named_and_otherwise_done(case: tuple[str, dict[str, Any], str, str]) -> None:
    engine, changes, code, sentence = case
    with pytest.raises(SpecError) as refusal:
        ran(engine, strict=True, **changes)
    assert (refusal.value.problem.code, refusal.value.problem.sentence) == (code, sentence)
    ran(engine, strict=False, **changes)


STARTED_ALONE = (
    ({}, ""),
    ({"pe1_config_act_mngr__is_valid": 0}, "PE1 is started, but its core and activation unit are not both configured valid"),
    ({"pe1_config_mem_mngr_first__base_weight": 65521}, "PE1 reads its weight buffer up to vector 65537, which has 65536"),
    ({"pe0_config_act_mngr__is_valid": 0}, ""),
)  # fmt: skip


@pytest.mark.parametrize(("changes", "sentence"), STARTED_ALONE)
def test_an_element_that_is_started_alone(changes: dict[str, int], sentence: str) -> None:
    """Its own configuration counts; without strict mode a start of what is not valid is ignored."""
    for is_strict in (False, True):
        sim = Simulator(model(), strict=is_strict)
        configured(sim, **changes)
        program(sim, 0x30, 0x40)
        filled(sim)
        if not (is_strict and sentence):
            sim.write(0x35000000, 0)
            continue
        with pytest.raises(SpecError) as refusal:
            sim.write(0x35000000, 0)
        assert refusal.value.problem.sentence == sentence


def test_an_engine_that_is_not_valid_changes_nothing() -> None:
    """Without strict mode its start is ignored, as the hardware ignores it."""
    sim = ran("zero_padding", strict=False, config_gb_zero_padding__is_valid=0)
    assert sim.state("interrupt") == 0
    assert sim.state("large")[:3, 0].tolist() == [1, 2, 3]


def test_what_an_earlier_longer_program_left_behind_counts_for_nothing() -> None:
    """A STORE beyond the two instructions of this program keeps no vectors."""
    two = {"pe0_config_act_mngr__buffer_addr_base": 31, "pe0_config_act_mngr__num_output": 2, "pe0_config_rnn_layer_sizing__num_output": 2}
    assert ran("control", strict=True, instructions=(0x30, 0x40, 0x20), **two).state("interrupt") == 1


# engine, the store that is left out, its vector → what the engine misses
MISSING = [
    ("control", "gb_core_store_large", 0, "vector 0 of large"),
    ("control", "pe0_core_store_weight_buffer", 15, "vector 0, 15 of weight"),
    ("control", "pe3_core_store_weight_buffer", 4, "vector 3, 4 of weight"),
    ("control", "pe2_core_store_input_buffer", 1, "vector 2, 1 of input_buffer"),
    ("layer_reduce", "gb_core_store_large", 1, "vector 1 of large"),
    ("layer_norm", "gb_core_store_large", 1, "vector 1 of large"),
    ("layer_norm", "gb_core_store_small", 0, "vector 0 of small"),
    ("attention", "gb_core_store_large", 15, "vector 15 of large"),
    ("attention", "gb_core_store_small", 0, "vector 0 of small"),
]


@pytest.mark.parametrize("behaviour", ["hardware", "published_ila"])
@pytest.mark.parametrize(("engine", "store", "vector", "missing"), MISSING)
def test_an_engine_that_reads_what_nothing_has_written_is_named(engine: str, store: str, vector: int, missing: str, behaviour: str) -> None:
    for reading in READINGS:
        sim = Simulator(model(behaviour), reading=reading, strict=True)
        configured(sim)
        program(sim, 0x30, 0x40)
        filled(sim, without=store, vector=vector)
        with pytest.raises(SpecError) as refusal:
            sim.issue(f"gb_{engine}_start")
        problem = refusal.value.problem
        assert (problem.code, problem.sentence) == ("I104", f"gb_{engine}_start reads {missing}, which nothing has written")
        assert problem.help == f"write it first, by {store}"


# what the configuration says is not read needs no contents: a bias that is off, the state before the first timestep, a codebook's weights
NOT_READ: list[tuple[str, int, dict[str, Any], tuple[int, ...]]] = [
    ("pe1_core_store_input_buffer", 1, {f"pe{pe}_config_rnn_layer_sizing__is_bias": 0 for pe in ELEMENTS}, (0x30, 0x40)),
    ("pe1_core_store_weight_buffer", 8, {"pe1_config_rnn_layer_sizing__is_cluster": 1}, (0x30, 0x40)),
    (
        "pe1_core_store_weight_buffer", 3,
        {"pe1_config_rnn_layer_sizing__is_zero_first": 1, "pe1_config_mem_mngr_first__zero_active": 1}, (0x30, 0x40),
    ),
    ("", 0, {f"pe{pe}_config_act_mngr__is_zero_first": 1 for pe in ELEMENTS}, (0x30, 0x14, 0x20, 0x40)),
]  # fmt: skip


@pytest.mark.parametrize(("store", "vector", "changes", "instructions"), NOT_READ)
def test_what_the_configuration_leaves_out_needs_no_contents(
    store: str, vector: int, changes: dict[str, Any], instructions: tuple[int, ...]
) -> None:
    for steps in (1, 3):
        sim = Simulator(model(), strict=True)
        changed = {**changes, **{f"pe{pe}_config_act_mngr__num_inst": len(instructions) for pe in ELEMENTS}}
        configured(sim, **{**changed, "config_gb_control__num_timestep_1": steps})
        program(sim, *instructions)
        filled(sim, without=store, vector=vector)
        if "zero" in str(changes) and steps > 1 and store:  # the next timestep reads the weights
            with pytest.raises(SpecError, match="reads vector 1, 3 of weight, which nothing has written"):
                sim.issue("gb_control_start")
        else:
            sim.issue("gb_control_start")
            assert sim.state("interrupt") == 1


def test_a_second_start_judges_anew() -> None:
    """The state that the first timestep goes without is read by the next start."""
    sim = ran("control", strict=True, pe1_config_rnn_layer_sizing__is_bias=0)
    sim.issue("gb_control_start")
    sim.issue("pe1_config_rnn_layer_sizing", is_valid=1, is_bias=1, num_manager=1, num_output=1)
    sim.issue("pe1_config_mem_mngr_first", num_input=1, base_bias=7)
    with pytest.raises(SpecError, match="gb_control_start reads vector 1, 7 of input_buffer, which nothing has written"):
        sim.issue("gb_control_start")
