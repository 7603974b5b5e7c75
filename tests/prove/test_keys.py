"""Keys of verdicts: they hold all that a verdict is computed by, and nothing of the machine; kept proofs are not believed blindly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rewrite_compiler
from rewrite_compiler import Law, Rule, Tensor, rule
from rewrite_compiler import ops as o
from rewrite_compiler.cli.main import main
from rewrite_compiler.prove.certificates import cache, sources
from rewrite_compiler.prove.certificates import shipped_certificates as shipped
from rewrite_compiler.prove.certificates.cache import DATE, Cache, court_cache, rule_key
from rewrite_compiler.prove.certificates.judge import judge_cases, judge_rule, rule_case
from rewrite_compiler.prove.certificates.shipped_certificates import shipped_courts
from rewrite_compiler.prove.certificates.sources import OUTSIDE_COURT
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.rewrite.ruleset import every_rule

PACKAGE = Path(rewrite_compiler.__file__).parent
COUNTED = """
from rewrite_compiler.prove.certificates.shipped_certificates import certificate_of_model, certificate_of_operation, certificate_of_rule
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.target import find_target, target_names
targets = [find_target(name) for name in target_names()]
known = [certificate_of_rule(r) for r in every_rule()] + [certificate_of_model(t) for t in targets]
known += [certificate_of_operation(t, name) for t in targets for name in t.mappings]
print(sum(c is not None for c in known), len(known))
"""


@rule(grade="E")
def relu_is_nothing(x: Tensor) -> Law:
    """False, and kept as proved by who can seal"""
    return o.relu(x), x


@rule(grade="E")
def twice(x: Tensor) -> Law:
    """True"""
    return o.relu(o.relu(x)), o.relu(x)


def executed(r: Rule) -> set[str]:
    """Return the files of the library whose functions run while a rule is judged."""
    found: set[str] = set()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        found.add(frame.f_code.co_filename)

    sys.setprofile(seen)
    try:
        prove_rule(r)
    finally:
        sys.setprofile(None)
    return {f.relative_to(PACKAGE).as_posix() for f in map(Path, found) if f.is_relative_to(PACKAGE)}


@pytest.mark.parametrize("name", ["merge-biases", "max-pool-of-max-pool-1d", "subtract-constant"])
def test_the_key_holds_every_file_that_judging_runs(name: str) -> None:
    (r,) = (r for r in every_rule() if r.name == name)
    files = {f for f in executed(r) if Path(f).parts[0] not in OUTSIDE_COURT}
    assert files <= {*shipped_courts()["rule"].files}
    assert len(files) > 20


def test_the_key_holds_the_court_and_what_is_below_it() -> None:
    rules, targets = (set(shipped_courts()[kind].files) for kind in ("rule", "target"))
    assert {
        "lang/arithmetic.py",
        "ops/elementwise.py",
        "prove/rules/rules.py",
        "prove/rules/rounding_error.py",
        "rewrite/grammar.lark",
        "readings/smt/floating_point.py",
    } <= rules
    assert rules | {"prove/mappings/mappings.py", "ila/model.py", "readings/native/printer.py", "target/mapping.py"} <= targets
    assert not any(f.startswith(("ila/", "cosim/", "cli/")) for f in rules)


def counted(package: Path) -> list[int]:
    """Return how many certificates count in a copy of the library, and how many there could be."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, "-c", COUNTED], env=environment, cwd=package.parent, capture_output=True, text=True, check=True)
    return [int(n) for n in done.stdout.split()]


def test_a_maximum_that_is_a_minimum_leaves_nothing_certified(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    counts, there = counted(copy)
    assert counts == there > len(every_rule())  # neither the folder nor its times are in a key
    arithmetic = copy / "lang" / "arithmetic.py"  # which stands below operators, models and numerics alike
    text = arithmetic.read_text("utf-8")
    false = text.replace('binary("max", a, b)', 'binary("min", a, b)')
    assert false != text
    arithmetic.write_text(false, "utf-8")
    assert counted(copy)[0] == 0


def test_another_solver_leaves_nothing_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    r = every_rule()[0]
    assert shipped.certificate_of_rule(r) is not None
    key = rule_key(r)
    for name in ("z3-solver", "egglog"):
        with monkeypatch.context() as patch:
            patch.setattr(sources, "version", lambda asked, name=name: "another" if asked == name else "1")
            forget()
            assert shipped.certificate_of_rule(r) is None
            assert rule_key(r) != key
    forget()


def forget() -> None:
    """Let the versions be asked again."""
    for asked in (shipped._shipped, cache._court, sources._court_by_imports):
        asked.cache_clear()


def forged(r: Rule, folder: Path) -> Cache:
    """Return a cache in which a false rule is proved: sealed as by the library itself."""
    (proof,) = judge_cases([rule_case(replace(r, pairs=twice.pairs), None)], Cache(None))
    assert proof["verdict"] == "proved"
    kept = Cache(folder)
    kept.put(rule_case(r, None).key, proof)
    assert kept.get(rule_case(r, None).key) is not None
    return Cache(folder)


def test_a_forged_entry_is_not_believed(tmp_path: Path) -> None:
    kept = forged(relu_is_nothing, tmp_path)
    assert judge_rule(relu_is_nothing, kept).verdict == "refuted"
    assert kept.hits == 0
    assert judge_rule(relu_is_nothing, Cache(tmp_path)).verdict == "refuted"  # which is what is kept now


def test_a_kept_verdict_says_when_it_was_judged_and_is_judged_anew_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    only = ["prove", "--only", "commute-addition"]
    assert main(only) == 0
    assert "kept" not in capsys.readouterr().out
    assert main(only) == 0
    day = judge_rule(next(r for r in every_rule() if r.name == "commute-addition"), court_cache()).kept
    assert f"kept {day}" in capsys.readouterr().out
    assert main([*only, "--recheck"]) == 0
    assert "kept" not in capsys.readouterr().out


def test_what_is_judged_otherwise_is_said(tmp_path: Path) -> None:
    case = rule_case(relu_is_nothing, None)
    Cache(tmp_path).put(case.key, {**case.judge(), "verdict": "proved"})
    anew = Cache(tmp_path, anew=True)
    (record,) = judge_cases([case], anew)
    assert record["verdict"] == "refuted"
    (said,) = anew.changed_verdicts
    assert said.startswith("relu-is-nothing: proved (kept 20")
    assert said.endswith("), now refuted")
    kept = Cache(tmp_path).get(case.key)
    assert kept is not None
    assert (kept["verdict"], len(kept[DATE])) == ("refuted", len("2026-11-24"))
