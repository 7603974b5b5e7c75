"""What `flexmatch list` knows of proofs: what was judged of a target as it is now, here or before it shipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from rewrite_compiler.prove.certificates.cache import court_cache, mapping_key
from rewrite_compiler.prove.certificates.status import NOT_JUDGED, known_verdicts, verdicts_summary
from rewrite_compiler.target import find_target


def test_verdicts_are_those_that_were_kept_of_this_very_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    target = find_target("hlscnn:revision=uni16")
    assert set(known_verdicts(target).values()) == {NOT_JUDGED}
    court_cache().put(mapping_key(target, "conv2d"), {"verdict": "proved"})
    known = known_verdicts(target)
    assert known["conv2d"] == "proved"
    assert verdicts_summary(known) == f"1 proved, {len(known) - 1} not judged yet"
    other = find_target("hlscnn:revision=ext16_a3p8")
    assert set(known_verdicts(other).values()) == {NOT_JUDGED}


def test_what_was_judged_before_it_shipped_is_known_until_it_is_judged_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    target = find_target("hlscnn")
    assert verdicts_summary(known_verdicts(target)) == f"{len(target.mappings)} proved"
    court_cache().put(mapping_key(target, "conv2d"), {"verdict": "refuted"})
    assert known_verdicts(target)["conv2d"] == "refuted"
