"""Certificates of rules: both sides equal over the reals at every instance within bounds, grade and marks checked.

Each instance is decided by the terms alone where both sides are the same operations on the same elements, else by
normal forms of polynomials, else by z3; real functions stay uninterpreted, so a proof holds whatever they are. What z3
cannot decide is not proved. A difference is looked for on data and reported with the smallest operands that show it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import SpecError
from ..ops.op import ShapeError
from ..rewrite.rule import Rule
from .grades import broken_grade
from .numeric import difference
from .shapes import Instance, Instances, instances_of
from .sides import Side, leaves_of, right_shape
from .verdict import PROVED, REFUTED, UNPROVED, Counterexample, Proof

if TYPE_CHECKING:
    from ..lang.smt import Verdict

COUNT = 100
INTEGER_COUNT = 30  # instances on which a mark is checked
NO_MEANING = {IndexError: "it reads an axis that does not exist", ZeroDivisionError: "it divides by an extent of 0"}
INTEGER_MARKS = frozenset({"any_dtype", "ring"})


@dataclass
class _Evidence:
    """How the elements of both sides were found equal, counted."""

    instances: int = 0
    literal: bool = True  # the same elements, everywhere
    identical: bool = True  # the same operations in the same order, everywhere
    up_to_zeros: bool = True  # the same but for added zeros, everywhere
    solved: int = 0
    proved: dict[tuple[int, int], Any] = field(default_factory=dict)  # questions z3 has answered, kept so that numbers stay theirs

    @property
    def sentence(self) -> str:
        if self.literal:
            return "both sides are the same elements"
        if self.identical:
            return "both sides are the same operations in the same order"
        if self.up_to_zeros:
            return "both sides are the same operations in the same order, added zeros left out"
        if not self.solved:
            return "both sides have the same normal form"
        return f"z3 proved {self.solved} of {self.instances} instances, the others have the same normal form"


class _Failed(Exception):
    """A rule that is not proved; carries its proof."""

    def __init__(self, proof: Proof) -> None:
        super().__init__(proof.evidence)
        self.proof = proof


def prove_rules(rules: Iterable[Rule], limit: int = 2, timeout: float = 5.0, count: int = COUNT) -> Iterator[Proof]:
    """Yield the proof of each rule, in the order given."""
    for r in rules:
        yield prove_rule(r, limit, timeout, count)


def prove_rule(rule: Rule, limit: int = 2, timeout: float = 5.0, count: int = COUNT) -> Proof:
    """Judge one rule at its instances with extents up to `limit`; `timeout` bounds each question to z3, in seconds."""
    start = time.perf_counter()
    try:
        proof = _judged(rule, limit, timeout, count)
    except _Failed as failed:
        proof = failed.proof
    except SpecError as e:
        proof = Proof(rule.name, rule.place, UNPROVED, "", e.problem.sentence, rule.grade, code="R103")
    return replace(proof, seconds=time.perf_counter() - start)


def _judged(rule: Rule, limit: int, timeout: float, count: int) -> Proof:
    found = instances_of(rule, limit, count)
    fail = _failure(rule, found)
    if not found.chosen:
        raise fail(UNPROVED, "R103", f"no operands with extents 1…{limit} satisfy its left side and guard")
    for instance in (*found.chosen, *found.empty):
        _check_types(rule, instance, fail)
    evidence = _Evidence()
    for instance in found.chosen:
        _check_meaning(rule, instance, timeout, evidence, fail)
    _check_marks(rule, found, evidence, fail)
    broken = broken_grade(rule, found.chosen, evidence.identical or (rule.grade == "Z" and evidence.up_to_zeros))
    if broken is not None:
        raise fail(REFUTED, "R102", *broken)
    return Proof(rule.name, rule.place, PROVED, found.strength, evidence.sentence, rule.grade)


def _failure(rule: Rule, found: Instances) -> Any:
    def fail(verdict: str, code: str, sentence: str, example: Counterexample | None = None) -> _Failed:
        return _Failed(Proof(rule.name, rule.place, verdict, found.strength, sentence, rule.grade, example, code))

    return fail


def _check_types(rule: Rule, instance: Instance, fail: Any) -> None:
    for left, right in rule.pairs:
        expected = instance.shapes[id(left)]
        try:
            shape = right_shape(right, instance)
        except (ShapeError, IndexError, ZeroDivisionError) as e:
            sentence = e.problem.sentence if isinstance(e, ShapeError) else NO_MEANING[type(e)]
            example = _types(instance, str(expected), "no meaning")
            raise fail(REFUTED, "R105", f"the right side has no meaning where the left has one: {sentence}", example) from None
        if shape != expected:
            example = _types(instance, str(expected), str(shape))
            raise fail(REFUTED, "R105", "the sides have different shapes", example)


def _types(instance: Instance, left: str, right: str) -> Counterexample:
    operands = {name: f"tensor{list(shape)}" for name, shape in instance.operands.items()}
    return Counterexample(operands, instance.attributes, None, left, right)


def _elements(rule: Rule, instance: Instance, real: bool) -> Iterator[tuple[Any, Any]]:
    """Yield the elements of both sides as z3 terms over symbolic operands."""
    from ..lang.smt import Symbolic, symbols

    leaves = leaves_of(instance, real=real)
    reading = Symbolic({x: symbols(name, instance.operands[name], real=real) for name, x in leaves.items()})
    side = Side(instance)
    for left, right in rule.pairs:
        a, b = (reading.array(side.term(t, leaves)) for t in (left, right))
        yield from zip(a.flat, b.flat, strict=True)


def _check_meaning(rule: Rule, instance: Instance, timeout: float, evidence: _Evidence, fail: Any) -> None:
    from ..lang.smt import prove_equal
    from ..lang.smt_forms import identical, normal_forms_agree, renamed, same_operations

    evidence.instances += 1
    different = [(a, b) for a, b in _elements(rule, instance, real=True) if not identical(a, b)]
    if not different:
        return
    evidence.literal = False
    different = [(a, b) for a, b in different if not same_operations(a, b)]
    if not different:
        return
    evidence.identical = False
    evidence.up_to_zeros &= all(same_operations(a, b, drop_zeros=True) for a, b in different)
    questions = [renamed(a, b) for a, b in different if not normal_forms_agree(a, b)]
    if not questions:
        return
    evidence.solved += 1
    new = {key: q for q in questions if (key := _key(q)) not in evidence.proved}
    example = difference(rule.pairs, instance) if new else None
    if example is not None:
        raise fail(REFUTED, "R102", "the sides differ", example)
    for key, question in new.items():
        verdict = prove_equal([question], seconds=timeout)
        if verdict.outcome != "proved":
            raise fail(UNPROVED, "R103", _open_question(verdict, instance))
        evidence.proved[key] = question


def _key(question: tuple[Any, Any]) -> tuple[int, int]:
    return question[0].get_id(), question[1].get_id()


def _open_question(verdict: Verdict, instance: Instance) -> str:
    at = ", ".join(f"{name} {list(shape)}" for name, shape in instance.operands.items())
    if verdict.outcome == "refuted":
        return f"z3 separates the sides at {at}, but only with functions or values that no data showed"
    return f"z3 gave no answer at {at} ({verdict.reason})"


def _check_marks(rule: Rule, found: Instances, evidence: _Evidence, fail: Any) -> None:
    from ..lang.smt_forms import identical, is_ring_term, normal_forms_agree

    if not rule.marks & INTEGER_MARKS:
        return
    if "any_dtype" in rule.marks and not evidence.literal:
        raise fail(REFUTED, "R102", "it is marked any_dtype, but its sides are not the same elements")
    step = max(1, len(found.chosen) // INTEGER_COUNT)
    for instance in found.chosen[::step]:
        for a, b in _integer_elements(rule, instance, fail):
            if "any_dtype" in rule.marks and not identical(a, b):
                raise fail(REFUTED, "R102", "it is marked any_dtype, but its sides differ on integers")
            if "ring" in rule.marks and not (is_ring_term(a) and is_ring_term(b) and normal_forms_agree(a, b)):
                raise fail(REFUTED, "R102", "it is marked ring, but its sides are not one polynomial in sums and products")


def _integer_elements(rule: Rule, instance: Instance, fail: Any) -> list[tuple[Any, Any]]:
    try:
        return list(_elements(rule, instance, real=False))
    except SpecError as e:
        marks = " and ".join(sorted(rule.marks & INTEGER_MARKS))
        raise fail(REFUTED, "R102", f"it is marked {marks}, but has no meaning on integers: {e.problem.sentence}") from None
