"""The certificates that ship: everything in the library has one as it is written now, and a plan states what it rests on."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from known_wrong.devices import target_of

from rewrite_compiler import apps
from rewrite_compiler.compile import compile_model, to_json
from rewrite_compiler.compile.plan.user_rules import admit_rules
from rewrite_compiler.prove.certificates import shipped_certificates as shipped
from rewrite_compiler.prove.certificates import sources
from rewrite_compiler.prove.certificates.cache import Cache
from rewrite_compiler.prove.certificates.judge import judge_cases, rule_case
from rewrite_compiler.prove.certificates.shipped_certificates import (
    SYMBOLIC,
    Certificate,
    certificate_of_model,
    certificate_of_operation,
    certificate_of_record,
    certificate_of_rule,
    certificates_text,
    coverage_of,
    weakest_coverage,
)
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.target import find_target, target_names

TOP = Path(__file__).parents[2]
SHARE = 6  # rules that are judged anew
RULES = """from rewrite_compiler import Law, Tensor, rule
from rewrite_compiler import ops as o

@rule(grade="E")
def relu_twice(x: Tensor) -> Law:
    return o.relu(o.relu(x)), o.relu(x)

@rule(grade="E")
def relu_over_add(x: Tensor, y: Tensor) -> Law:
    return o.relu(o.add(x, y)), o.add(o.relu(x), o.relu(y))
"""
TARGETS = {name: find_target(name) for name in target_names()}


@cache
def found() -> Mapping[str, Certificate | None]:
    """Return the certificate of everything in the library by its kind and name."""
    rules = {f"rule {r.name}": certificate_of_rule(r) for r in every_rule()}
    models = {f"model {name}": certificate_of_model(t) for name, t in TARGETS.items()}
    return rules | models | {m.name: certificate_of_operation(t, n) for t in TARGETS.values() for n, m in t.mappings.items()}


def test_everything_in_the_library_has_a_certificate_as_it_is_written_now() -> None:
    lacking = [name for name, c in found().items() if c is None or c.verdict != "proved"]
    assert not lacking, "python benchmarks/certificates.py judges them"


def test_a_share_of_them_is_what_a_run_without_a_cache_says() -> None:
    drawn = random.Random(sources.SHIPPED.read_bytes()).sample(every_rule(), SHARE)  # another one with every change of the file
    records = judge_cases([rule_case(r, None) for r in drawn], Cache(None))
    assert [certificate_of_record("rule", r.name, record) for r, record in zip(drawn, records, strict=True)] == [
        certificate_of_rule(r) for r in drawn
    ], "python benchmarks/certificates.py --check compares all"


def test_all_of_them_are_what_a_run_without_a_cache_says() -> None:
    done = subprocess.run([sys.executable, "benchmarks/certificates.py", "--check"], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_rule_that_rounds_says_how_far_its_sides_were_seen_apart() -> None:
    exact, rounded = (found()[f"rule {name}"] for name in ("commute-addition", "merge-biases"))
    assert exact
    assert (exact.ulp, exact.share_of_rounding) == (0, 0)
    assert rounded
    assert rounded.ulp is not None
    assert rounded.share_of_rounding is not None
    assert 0 < rounded.share_of_rounding <= 1 < rounded.ulp


def test_a_certificate_is_of_one_text_and_of_one_set_of_parameters() -> None:
    r = every_rule()[0]
    assert certificate_of_rule(replace(r, doc="said otherwise")) == certificate_of_rule(r)
    assert certificate_of_rule(replace(r, name="another")) is None
    other = find_target("hlscnn:revision=uni16")
    assert certificate_of_operation(other, "conv2d") is certificate_of_model(other) is None


@pytest.mark.parametrize(
    ("kind", "verdict", "short"),
    [
        ("rule", "proved", "all shapes"),
        ("operation", "proved", "symbolic"),
        ("rule", "unproved", "used on trust"),
        ("operation", "refuted", "used on trust"),
    ],
)
def test_what_it_covers_in_short(kind: str, verdict: str, short: str) -> None:
    assert coverage_of(Certificate(kind, "mine", verdict, "", "")) == short


def test_the_weakest_step_is_what_an_offload_rests_on() -> None:
    order = ["all shapes", "symbolic", "used on trust", "not judged"]
    assert [weakest_coverage(order[: n + 1][::-1]) for n in range(len(order))] == order


def test_a_plan_states_what_every_step_rests_on(tmp_path: Path) -> None:
    model = next(a for a in apps.APPS if a.name == "digits_cnn").model
    offloads = to_json(compile_model(model, ["hlscnn"]))["offloads"]
    assert offloads
    for o in offloads:
        assert [(r["covers"], r["ulp"], r["share_of_rounding"]) for r in o["because"]] == [covered(r["rule"]) for r in o["because"]]
        assert o["certificate"] == weakest_coverage(r["covers"] for r in o["because"])
    toy = target_of((), tmp_path)  # the tutorial's, which is judged when it is used
    other = to_json(compile_model(next(a for a in apps.APPS if a.name == "digits_mlp").model, [toy]))
    assert {o["certificate"] for o in other["offloads"]} == {SYMBOLIC}


def covered(name: str) -> tuple[str, float | None, float | None]:
    """Return what the shipped certificate of a rule or an operation covers, and what was seen of rounding."""
    c = found().get(name) or found()[f"rule {name}"]
    assert c is not None
    return coverage_of(c), c.ulp, c.share_of_rounding


def test_a_rule_of_a_file_is_certified_by_its_own_trial(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(RULES)
    found = admit_rules((), [mine], ["relu-over-add"]).certificates
    assert {n: (coverage_of(c), c.ulp, c.share_of_rounding) for n, c in found.items()} == {
        "relu-twice": ("all shapes", 0.0, 0.0),
        "relu-over-add": ("used on trust", None, None),
    }


def test_the_file_is_read_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"ab": Certificate("rule", "mine", "proved", "all shapes: ≥ 1", "by index")}
    monkeypatch.setattr(sources, "SHIPPED", tmp_path / "certificates.json")
    sources.SHIPPED.write_text(certificates_text(made), "utf-8")
    sources.shipped_document.cache_clear()
    try:
        assert shipped._shipped.__wrapped__() == made
    finally:
        sources.shipped_document.cache_clear()
