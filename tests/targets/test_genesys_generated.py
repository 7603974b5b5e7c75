"""GeneSys's systolic operations without their drivers: what a macro of its blocks leaves to the scheduler is generated and proved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from genesys_macro import declare

from rewrite_compiler.errors import SpecError
from rewrite_compiler.ila import Ila
from rewrite_compiler.prove import prove_mapping
from rewrite_compiler.sched.driver import completion
from rewrite_compiler.sched.driver.completion import completed
from rewrite_compiler.sched.driver.generation import Request, program_of
from rewrite_compiler.sched.driver.program import Program
from rewrite_compiler.target import Target, find_target

SIZES = ({"t": 1, "k": 16, "n": 16}, {"t": 5, "k": 40, "n": 33})  # of products, which declare no trials


def without_drivers(*names: str) -> Target:
    """Return GeneSys with some operations that have numerics alone."""
    shipped = find_target("genesys")
    bare = {
        n: replace(m, trials=m.trials or SIZES, drive=None, capacities=None, price=None) for n, m in shipped.mappings.items() if n in names
    }
    return replace(shipped, mappings=bare, macros={})


@pytest.fixture
def genesys(request: pytest.FixtureRequest) -> Target:
    target = without_drivers(request.param)
    declare(target)
    return completed(target)


@pytest.mark.parametrize(
    ("genesys", "length", "by_induction"),
    [
        ("dense", 28, "k"),
        ("dense_bias", 28, "k"),
        ("dense_bias_relu", 43, "k"),
        ("conv2d", 28, "c"),
        ("conv2d_bias", 28, "c"),
        ("conv2d_bias_relu", 43, "c"),
    ],
    indirect=["genesys"],
)  # fmt: skip
def test_systolic_operations_have_generated_drivers_with_certificates(genesys: Target, length: int, by_induction: str) -> None:
    """As strong as those of the drivers by hand, which take 77 instructions for the first size."""
    (m,) = genesys.mappings.values()
    proof = prove_mapping(m, genesys.ila())
    assert str(proof.verdict) == "proved", proof.evidence
    assert f"({length} instructions), random codes at {len(m.trials)} sizes" in proof.strength
    assert f"every {by_induction} from 16 on by induction in steps of 1" in proof.strength


def test_without_the_macro_they_have_none() -> None:
    target = without_drivers("dense")
    formats = target.mappings["dense"].formats_for({"x": 1.0, "w": 1.0})
    with pytest.raises(SpecError) as refusal:
        program_of(target.ila(), Request(target.mappings["dense"], {"x": (1, 16), "w": (16, 16)}, formats, {}))
    assert refusal.value.problem.code == "I116"


@pytest.mark.parametrize("genesys", ["dense_bias"], indirect=True)
@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("set_loop_stride", "immediate", 0),
        ("sa_loop_cfg", "count", 0),
        ("set_base_addr", "immediate", 0),
    ],
)
def test_the_court_refutes_a_fault_in_a_block(
    genesys: Target, name: str, field: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Strides, counts or bases that the macro leaves out."""

    def faulty(ila: Ila, r: Request) -> Program:
        p = program_of(ila, r)
        wrong = [replace(b, columns={**b.columns, field: b.columns[field] * 0 + value}) if b.instruction == name else b for b in p.blocks]
        return replace(p, blocks=tuple(wrong))

    monkeypatch.setattr(completion, "program_of", faulty)
    (m,) = genesys.mappings.values()
    proof = prove_mapping(replace(m, trials=SIZES[1:]), genesys.ila())
    assert str(proof.verdict) != "proved"
