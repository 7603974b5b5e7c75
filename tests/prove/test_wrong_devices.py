"""Wrong models, drivers and numerics of an accelerator: each refuted by the codes that are stored for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known_wrong.devices import WRONG, Change, judged, record, record_of, stored, target_of

from rewrite_compiler.prove.mappings.mappings import SEED, code_difference, difference_on

KEPT = stored()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_device_is_refuted_by_the_stored_codes(name: str, tmp_path: Path) -> None:
    proof = judged(WRONG[name], tmp_path)
    assert (proof.verdict, proof.code) == ("refuted", "I105"), proof
    found = record(proof)
    if "codes" in KEPT[name]["operands"]:  # of a seed
        assert found == KEPT[name]
        return
    assert {k: found[k] for k in ("sizes", "place")} == {k: KEPT[name][k] for k in ("sizes", "place")}
    for of_the_solver in (found, KEPT[name]):  # which codes it finds depends on what the process asked it before
        assert replayed(WRONG[name], of_the_solver, tmp_path) == of_the_solver
        assert replayed((), of_the_solver, tmp_path) is None


def replayed(changes: tuple[Change, ...], found: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """Run the codes of a record on a device and its numerics without the court; return the record of their first difference."""
    target = target_of(changes, folder)
    codes = {n: np.array(json.loads(shown)) for n, shown in found["operands"].items()}
    example = difference_on(target.mappings["dense"], target.ila(), found["sizes"], codes, found["operands"])
    return None if example is None else record_of(example)


@pytest.mark.parametrize("name", list(WRONG)[::6])
def test_the_stored_codes_refute_without_the_court_and_not_the_true_one(name: str, tmp_path: Path) -> None:
    wrong, true = target_of(WRONG[name], tmp_path), target_of((), tmp_path)
    found = code_difference(wrong.mappings["dense"], wrong.ila(), KEPT[name]["sizes"], SEED)
    assert found is not None
    assert (found.left, found.right) == (KEPT[name]["left"], KEPT[name]["right"])
    assert code_difference(true.mappings["dense"], true.ila(), KEPT[name]["sizes"], SEED) is None


def test_the_gallery_has_models_drivers_and_numerics() -> None:
    parts = [{c.part for c in changes} for changes in WRONG.values()]
    assert KEPT.keys() == WRONG.keys()
    assert len(parts) >= 10
    assert set().union(*parts) == {"model", "driver", "numerics"}
