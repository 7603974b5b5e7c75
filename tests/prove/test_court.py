"""The court: verdicts kept and read back, damaged entries, processes that judge, rules that travel as text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rewrite_compiler import Law, Rule, Tensor, rule
from rewrite_compiler import ops as o
from rewrite_compiler.errors import AnswerNo
from rewrite_compiler.prove.certificates import cache
from rewrite_compiler.prove.certificates import judge as court
from rewrite_compiler.prove.certificates.cache import Cache, court_cache, mapping_key, rule_key
from rewrite_compiler.prove.certificates.document import prove, to_json
from rewrite_compiler.prove.certificates.json_record import proof_of, proof_record
from rewrite_compiler.prove.certificates.judge import judge_cases, judge_rule, model_case, rule_case, target_cases
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.target import find_target


@rule
def double_negation(x: Tensor) -> Law:
    """−(−x) = x"""
    return o.neg(o.neg(x)), x


@rule
def relu_is_odd(x: Tensor) -> Law:
    """False"""
    return o.relu(o.neg(x)), o.neg(o.relu(x))


@pytest.mark.parametrize("r", [double_negation, relu_is_odd], ids=str)
def test_a_proof_is_read_back_as_it_was(r: Rule) -> None:
    proof = prove_rule(r, count=10)
    back = proof_of(json.loads(json.dumps(proof_record(proof))))
    assert replace(back, counterexample=None) == replace(proof, counterexample=None)
    assert str(back.counterexample) == str(proof.counterexample)
    assert str(back.problem) == str(proof.problem)


@pytest.mark.parametrize("r", [double_negation, relu_is_odd], ids=str)
def test_a_verdict_is_found_again(r: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = judge_rule(r, Cache(tmp_path))
    monkeypatch.setattr(court, "prove_rule", None)  # it would fail if it were asked
    kept = Cache(tmp_path)
    again = judge_rule(r, kept)
    assert (kept.hits, again.verdict, again.at, again.seconds) == (1, first.verdict, r.place, first.seconds)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda _: b"",
    "changed": lambda data: data.replace(b'"verdict": "refuted"', b'"verdict": "proved"'),
    "another form": lambda _: b'{"digest": "", "record": []}',
    "deep": lambda _: b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_judged_again(damage: str, tmp_path: Path) -> None:
    judge_rule(relu_is_odd, Cache(tmp_path))
    (entry,) = tmp_path.iterdir()
    whole = entry.read_bytes()
    assert DAMAGES[damage](whole) != whole
    entry.write_bytes(DAMAGES[damage](whole))
    kept = Cache(tmp_path)
    assert judge_rule(relu_is_odd, kept).verdict == "refuted"
    assert kept.hits == 0
    assert Cache(tmp_path).get(entry.name) is not None


def test_an_entry_under_another_key_is_not_taken(tmp_path: Path) -> None:
    judge_rule(double_negation, Cache(tmp_path))
    (entry,) = tmp_path.iterdir()
    entry.rename(tmp_path / rule_key(relu_is_odd, count=None))
    assert judge_rule(relu_is_odd, Cache(tmp_path)).verdict == "refuted"


def test_an_open_verdict_is_not_kept(tmp_path: Path) -> None:
    @rule
    def impossible(x: Tensor) -> Law:
        return o.exp(o.add(x, x)), o.mul(o.exp(x), o.exp(x))

    assert judge_rule(impossible, Cache(tmp_path)).verdict == "unproved"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    assert judge_rule(double_negation, Cache(tmp_path / "missing")).is_proved
    assert judge_rule(double_negation, Cache(None)).is_proved


def test_keys_depend_on_what_is_judged_and_on_the_court(monkeypatch: pytest.MonkeyPatch) -> None:
    key = rule_key(double_negation, count=None)
    assert rule_key(replace(double_negation, doc="another", place="elsewhere:1"), count=None) == key
    others = [
        rule_key(double_negation, count=5),
        rule_key(replace(double_negation, grade="E"), count=None),
        rule_key(replace(double_negation, marks=frozenset({"ring"})), count=None),
        rule_key(relu_is_odd, count=None),
    ]
    monkeypatch.setattr(cache, "version", lambda name: "another")
    cache._court.cache_clear()
    others.append(rule_key(double_negation, count=None))
    monkeypatch.undo()
    cache._court.cache_clear()
    assert key not in others
    assert len(set(others)) == len(others)
    hlscnn = find_target("hlscnn")
    name = next(iter(hlscnn.mappings))
    assert mapping_key(hlscnn, name) != mapping_key(find_target("hlscnn:revision=ext16"), name)


def test_the_users_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path))
    found = court_cache().folder
    assert found == tmp_path / "court"
    assert found.stat().st_mode & 0o077 == 0
    found.chmod(0o777)
    assert court_cache().folder is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "file"))
    assert court_cache().folder is None


def test_processes_give_the_same_verdicts(tmp_path: Path) -> None:
    rules = [double_negation, relu_is_odd]
    here = to_json(prove(rules, instances=5))
    there = to_json(prove(rules, instances=5, jobs=2, cache=Cache(tmp_path)))
    assert len(list(tmp_path.iterdir())) == 2
    for document in (here, there):
        for r in document["rules"]:
            r.pop("seconds")
    assert here == there


def test_a_process_that_ends_leaves_its_case_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(court, "rule_text", lambda _: 3)  # no text: the process ends
    cases = [rule_case(r, 5) for r in (double_negation, relu_is_odd, double_negation)]
    verdicts = [proof_of(r) for r in judge_cases(cases, Cache(None), jobs=2)]
    assert [p.verdict for p in verdicts] == ["unproved"] * 3
    assert {p.evidence for p in verdicts} <= {"the process that judged it ended with status 1", "no process was left to judge it"}


def test_a_target_is_judged_by_name() -> None:
    vta = find_target("vta")
    (case,) = [c for c in target_cases(vta, "vta") if c.name == "vta.dense"]
    assert case.message == {"kind": "mapping", "target": "vta", "name": "dense"}
    record = court.judge_message(model_case(vta, "vta").message)
    assert (record["name"], record["decodes_disjoint"], record["problems"]) == ("vta", True, [])


def test_rule_files_use_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rewrite_compiler.compile.plan.user_rules import admit_rules

    monkeypatch.setenv("FLEXMATCH_CACHE", str(tmp_path / "cache"))
    os.makedirs(tmp_path / "cache")
    path = tmp_path / "mine.rules"
    path.write_text("rule twice(x: tensor) { relu(relu(x)) = relu(x) }\nrule false-one(x: tensor) { relu(neg(x)) = neg(relu(x)) }")
    for _ in range(2):
        with pytest.raises(AnswerNo) as refusal:
            admit_rules((), [path], ())
        assert refusal.value.problem.sentence.startswith("rule false-one is false: the sides differ; left 0, right -1")
        assert refusal.value.problem.place == f"{path}:2"
    assert len(list((tmp_path / "cache" / "court").iterdir())) == 2
    assert [r.name for r in admit_rules((), [path], ["false-one"]).rules] == ["twice", "false-one"]
