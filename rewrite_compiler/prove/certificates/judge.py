"""Judging of cases: each is looked up in the cache; a miss is judged in this process or by worker processes.

A case is a JSON value: a rule travels in the text form, an operation as the name of its target with its parameters. A
verdict that the solver left open is not cached: it may depend on the time it had.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from ...errors import Problem, SpecError
from ...garbage import RARE, rare_collection
from ...ila.verification.check import check
from ...rewrite.rule import Rule
from ...rewrite.text import rule_text
from ...rewrite.text_file import rules_of_text
from ...target import Mapping, Target, find_target
from ..mappings.small_designs import prove_operation, refused_design
from ..rules.all_shapes import theorem_of
from ..rules.rules import prove_rule, with_suggestion
from ..verdict import PROVED, UNPROVED, Proof, Theorem
from . import json_record as record
from .cache import Cache, mapping_key, model_key, rule_key
from .shipped_certificates import certificate_of_rule

JSON = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One statement to judge: its name, the key of its verdict, a message for another process, and the function that judges it here.

    A cached verdict counts where the case confirms it.
    """

    name: str
    key: str
    message: JSON
    judge: Callable[[], JSON]
    at: str = ""
    is_confirmed: Callable[[JSON], bool] = lambda _: True


def rule_case(rule: Rule, count: int | None) -> Case:
    """Return the case of a rule, tried at drawn instances or at `count` of them."""
    message = {"kind": "rule", "text": rule_text(rule), "count": count}
    judge, confirmed = partial(_judge_rule, rule, count), partial(_is_confirmed, rule)
    return Case(rule.name, rule_key(rule, count=count), message, judge, rule.place, confirmed)


def _is_confirmed(rule: Rule, cached: JSON) -> bool:
    """Tell whether a cached verdict may be believed: who can write the cache proves nothing, so a rule of a file is proved again.

    A shipped rule has its certificate. Grade and measured figures are taken as they are cached.
    """
    if cached["name"] != rule.name or cached["grade"] != rule.full_grade:
        return False
    if cached["verdict"] != PROVED:
        return True
    shipped = certificate_of_rule(rule)
    if shipped is not None:
        return shipped.verdict == PROVED
    theorem = theorem_of(rule)
    return isinstance(theorem, Theorem) and theorem.ranks == cached["ranks"]


def _judge_rule(rule: Rule, count: int | None) -> JSON:
    return record.proof_record(with_suggestion(prove_rule(rule, count=count), rule))


def target_cases(target: Target, spec: str) -> Iterator[Case]:
    """Return the cases of a target: its operations; `spec` names it for another process."""
    return (mapping_case(target, spec, name) for name in target.mappings)


def mapping_case(target: Target, spec: str, name: str) -> Case:
    """Return the case of an operation of a target."""
    m = target.mappings[name]
    message = {"kind": "mapping", "target": spec, "name": name}
    return Case(m.name, mapping_key(target, name), message, partial(_judge_mapping, target, m), m.rule.place)


def _judge_mapping(target: Target, m: Mapping) -> JSON:
    return record.proof_record(prove_operation(target, m))


def model_case(target: Target, spec: str) -> Case:
    """Return the case of a target's accelerator model."""
    message = {"kind": "model", "target": spec}
    return Case(target.name, model_key(target), message, partial(_judge_model, target))


def _judge_model(target: Target) -> JSON:
    refused = refused_design(target)
    if refused is not None:
        reason = refused["evidence"]
        return record.model_record(record.ModelVerdict(target.name, 0, False, (), reason, (reason,)))
    return record.model_record(record.verdict_of_check(check(target.ila())))


def judge_message(message: JSON) -> JSON:
    """Judge the case of a message: the body of a worker process."""
    if message["kind"] == "rule":
        (rule,) = rules_of_text(message["text"], "rule")
        return _judge_rule(rule, message["count"])
    target = _target(message["target"])
    if message["kind"] == "model":
        return _judge_model(target)
    return _judge_mapping(target, target.mappings[message["name"]])


@lru_cache(maxsize=16)
def _target(spec: str) -> Target:
    """Return a target, once in a process: its tables and terms are made once, too."""
    return find_target(spec)


def judge_cases(cases: Sequence[Case], cache: Cache, progress: Callable[[str], None] = lambda _: None, jobs: int = 1) -> list[JSON]:
    """Return the records of all verdicts, in the order of the cases.

    Raises:
        SpecError: judging one found its specification wrong, as a worker process reports it.
    """
    verdicts = dict(enumerate(_cached_verdict(c, cache) for c in cases))
    missing = [n for n, cached in verdicts.items() if cached is None]
    with contextlib.ExitStack() as stack:
        jobs = min(jobs, len(missing))
        stack.enter_context(rare_collection(RARE))
        answers = _judged_in_process(cases, missing) if jobs < 2 else stack.enter_context(_Workers(jobs)).answers(cases, missing)
        for n, verdict in answers:
            progress(cases[n].name)
            if "refused" in verdict:
                problem = Problem(**verdict["refused"])
                raise SpecError(problem.code, problem.sentence, place=problem.place, help=problem.help)
            verdicts[n] = verdict
            if verdict.get("verdict") != UNPROVED:
                cache.put(cases[n].key, verdict)
    return [{**x, "at": c.at} if c.at else x for c, x in zip(cases, verdicts.values(), strict=True) if x is not None]


def _cached_verdict(case: Case, cache: Cache) -> JSON | None:
    """Return the cached verdict on a case, None where there is none to be believed."""
    cached = cache.get(case.key)
    if cached is None or case.is_confirmed(cached):
        return cached
    cache.hits -= 1
    return None


def _judged_in_process(cases: Sequence[Case], missing: Sequence[int]) -> Iterator[tuple[int, JSON]]:
    return ((n, cases[n].judge()) for n in missing)


class _Pending:
    """Cases that wait: a process goes on with the target that it has begun, whose terms and machine code it has made."""

    def __init__(self, cases: Sequence[Case], missing: Sequence[int]) -> None:
        self.lock, self.begun = threading.Lock(), dict[int, str]()
        self.numbers: dict[str, list[int]] = {}
        for n in missing:
            self.numbers.setdefault(cases[n].message.get("target", ""), []).append(n)

    def take(self, worker: int) -> int | None:
        """Return the next case of a worker's target, else of one that no other has begun, else of the one with most left."""
        with self.lock:
            lacking = [target for target, numbers in self.numbers.items() if numbers]
            if not lacking:
                return None
            if self.begun.get(worker) not in lacking:
                unbegun = [target for target in lacking if target not in self.begun.values()]
                self.begun[worker] = unbegun[0] if unbegun else max(lacking, key=lambda target: len(self.numbers[target]))
            return self.numbers[self.begun[worker]].pop(0)

    def rest(self) -> list[int]:
        """Return the cases that nobody has taken."""
        with self.lock:
            return [n for numbers in self.numbers.values() for n in numbers]


class _Workers:
    """Worker processes that judge cases, each fed by a thread of its own; they end with the body."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-m", "rewrite_compiler.prove.certificates.judge_process"]
        streams: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
        single_threaded = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")  # each process is a thread of the work already
        self.processes = [subprocess.Popen(command, env={**os.environ, **single_threaded}, **streams) for _ in range(count)]
        self.threads: list[threading.Thread] = []

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for p in self.processes:
            p.kill()
        for t in self.threads:
            t.join()
        for p in self.processes:
            p.communicate()

    def answers(self, cases: Sequence[Case], missing: Sequence[int]) -> Iterator[tuple[int, JSON]]:
        """Yield the index of each case with its verdict, in the order of completion."""
        pending = _Pending(cases, missing)
        results: queue.SimpleQueue[tuple[int, JSON]] = queue.SimpleQueue()

        def serve(p: subprocess.Popen[str]) -> None:
            while p.poll() is None and (n := pending.take(p.pid)) is not None:
                results.put((n, _ask(p, cases[n])))

        self.threads = [threading.Thread(target=serve, args=(p,), daemon=True) for p in self.processes]
        for t in self.threads:
            t.start()
        for count in range(len(missing)):
            while True:
                with contextlib.suppress(queue.Empty):
                    yield results.get(timeout=1.0)
                    break
                if not any(t.is_alive() for t in self.threads) and results.empty():
                    unjudged = pending.rest()[: len(missing) - count]
                    yield from ((n, _open_record(cases[n], "no process was left to judge it")) for n in unjudged)
                    return


def _ask(p: subprocess.Popen[str], case: Case) -> JSON:
    """Ask a process for a verdict; one that has ended leaves the case open."""
    assert p.stdin is not None
    assert p.stdout is not None
    line = ""
    with contextlib.suppress(OSError, ValueError):
        p.stdin.write(json.dumps(case.message) + "\n")
        p.stdin.flush()
        line = p.stdout.readline()
    if line.endswith("\n"):
        reply: JSON = json.loads(line)
        return reply
    return _open_record(case, f"the process that judged it ended with status {p.wait()}")


def _open_record(case: Case, reason: str) -> JSON:
    if case.message["kind"] == "model":
        return record.model_record(record.ModelVerdict(case.name, 0, False, (), reason, (reason,)))
    return record.proof_record(Proof(case.name, case.at, UNPROVED, "", reason, "", code="R103"))


def proofs(records: Sequence[JSON]) -> tuple[Proof, ...]:
    """Return the proofs of records."""
    return tuple(record.proof_of(r) for r in records)


def judge_rule(rule: Rule, cache: Cache) -> Proof:
    """Return the verdict on one rule, from the cache where it is there."""
    (verdict,) = judge_cases([rule_case(rule, None)], cache)
    return replace(record.proof_of(verdict), at=rule.place)
