"""Wrong models, drivers and numerics of an accelerator: each refuted by the codes that are stored for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_wrong.devices import WRONG, judged, record, stored, target_of

from rewrite_compiler.prove.mappings import SEED, code_difference

KEPT = stored()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_device_is_refuted_by_the_stored_codes(name: str, tmp_path: Path) -> None:
    proof = judged(WRONG[name], tmp_path)
    assert (proof.verdict, proof.code) == ("refuted", "I105"), proof
    assert record(proof) == KEPT[name]


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
