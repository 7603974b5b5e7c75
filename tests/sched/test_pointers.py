"""Drivers whose copies reach an image by registers of a file: they follow from the model, and are proved by the court."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila_models.hvx.state import VECTOR
from rewrite_compiler.prove import prove_mapping
from rewrite_compiler.readings.kernels.evaluate import evaluate
from rewrite_compiler.sched.driver import completion, generation
from rewrite_compiler.sched.driver.generation import Request, program_of
from rewrite_compiler.sched.instructions.copies import number
from rewrite_compiler.sched.instructions.image import copiers
from rewrite_compiler.sched.instructions.pointers import FileSetter, file_setters
from rewrite_compiler.target import find_target, simulated_device


def request(operation: str, *shape: int) -> Request:
    m = find_target("hvx").mappings[operation]
    formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0))
    return Request(m, {v.name: shape for v in m.operands}, formats, {})


class CountingDevice:
    def __init__(self, device: Any) -> None:
        self.device, self.count = device, 0

    def issue(self, instruction: str, **operands: int) -> None:
        self.count += 1
        self.device.issue(instruction, **operands)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)


SHAPES = [("add_1", (17,)), ("add_4", (3, 2, 11, 7)), ("add_2", (10, 128)), ("relu_3", (5, 3, 67))]


@pytest.mark.parametrize(("operation", "shape"), SHAPES)
def test_vectors_are_loaded_and_stored_by_pointers(operation: str, shape: tuple[int, ...]) -> None:
    """One pointer reaches neighbouring vectors by the offsets of loads and stores; sums take no more commands than by hand."""
    r, ila = request(operation, *shape), find_target("hvx").ila()
    random = np.random.default_rng(0)
    codes = {name: random.integers(-128, 128, s) for name, s in r.shapes.items()}
    program = program_of(ila, r)
    result = program.run(simulated_device(ila), codes, {name: len(s) for name, s in r.shapes.items()})
    assert np.array_equal(result, evaluate(r.term, {leaf: codes[leaf.name] for leaf in r.leaves}))
    by_hand = CountingDevice(simulated_device(ila))
    r.mapping.run_driver(by_hand, codes, r.formats, r.attributes)
    assert "relu" in operation or program.commands <= by_hand.count


@pytest.mark.parametrize("operation", ["add_2", "relu_2"])
def test_streams_with_pointers_have_certificates(operation: str) -> None:
    target = find_target("hvx")
    m = replace(target.mappings[operation], drive=None, moves=False)
    completion.completed(replace(target, mappings={operation: m}))
    proof = prove_mapping(m, target.ila())
    assert str(proof.verdict) == "proved", proof.evidence
    assert "symbolic at" in proof.strength


def test_the_court_notices_a_pointer_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setters that store one too much lead to other results, so that no driver follows."""
    right = FileSetter.settings
    monkeypatch.setattr(FileSetter, "settings", lambda self, register, target: right(self, register, target + VECTOR))
    with pytest.raises(SpecError) as refusal:
        generation.chosen(find_target("hvx").ila(), request("add_2", 3, 40))
    assert refusal.value.problem.code == "I116"


def test_a_register_of_a_file_takes_every_number_from_the_fields_of_one_instruction() -> None:
    ila = find_target("hvx").ila()
    setters = {s.instruction: s for s in file_setters(ila, "r")}
    assert {"transfer_imm", "transfer_extended"} <= setters.keys()
    for value in (0, 1, 63, 64, 1 << 20, (1 << 32) - 1):
        s = setters["transfer_extended"]
        fields = s.settings(3, value)
        assert fields is not None
        assert (fields["rd"], number(s.value, {}, fields)) == (3, value)
    assert setters["transfer_extended"].settings(0, 1 << 32) is None
    assert setters["transfer_imm"].settings(0, 1 << 20) is None


def test_a_pointer_reaches_as_far_as_the_offset_goes() -> None:
    ila = find_target("hvx").ila()
    load = next(c for c in copiers(ila) if c.instruction == "vmem_load")
    reached = [n for n in range(40) if load.pointed(ila, 5, n * 128, 20 * 128) is not None]
    assert reached == [*range(12, 28)]
    assert load.pointed(ila, 5, 20 * 128 + 1, 20 * 128) is None  # an aligned load reaches no other byte
