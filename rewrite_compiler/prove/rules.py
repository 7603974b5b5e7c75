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
from . import nodes
from .elements import Unreadable
from .general import proved_for_all_shapes
from .grades import broken_grade
from .instances import Instances, instances_of
from .measure import measured
from .numeric import difference
from .refuter import witness
from .shapes import Instance
from .sides import Side, leaves_of, right_shape, symbolic_elements
from .suggest import suggested_guard
from .verdict import PROVED, REFUTED, UNPROVED, Counterexample, Proof

if TYPE_CHECKING:
    from ..lang.smt import Verdict

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


def prove_rules(rules: Iterable[Rule], limit: int | None = None, timeout: float = 5.0, count: int | None = None) -> Iterator[Proof]:
    """Yield the proof of each rule, in the order given."""
    for r in rules:
        yield prove_rule(r, limit, timeout, count)


def prove_rule(rule: Rule, limit: int | None = None, timeout: float = 5.0, count: int | None = None) -> Proof:
    """Judge one rule at every shape with extents up to `limit` (default 3 or 2, see `instances_of`), or at `count` drawn instances.

    `timeout` bounds a question to z3, in seconds of an idle processor.
    """
    start = time.perf_counter()
    try:
        proof = _judged(rule, limit, timeout, count)
    except _Failed as failed:
        proof = failed.proof
    except SpecError as e:
        proof = Proof(rule.name, rule.place, UNPROVED, "", e.problem.sentence, rule.grade, code="R103")
    if proof.verdict != REFUTED:
        proof = _beside_wide_draws(rule, proof)
    return replace(proof, seconds=time.perf_counter() - start)


def _beside_wide_draws(rule: Rule, proof: Proof) -> Proof:
    """Return what was judged, or a refutation where instances beyond those show a difference."""
    found = witness(rule)
    if found is None:
        return proof
    example, sentence = found
    code = "R105" if example.place is None else "R102"
    return Proof(rule.name, rule.place, REFUTED, proof.strength, sentence, rule.grade, example, code)


def with_suggestion(proof: Proof, rule: Rule) -> Proof:
    """Return the proof of a rule, with a guard under which it is proved when its sides differ."""
    if proof.verdict != REFUTED or proof.counterexample is None or proof.evidence.startswith("it is "):
        return proof
    return replace(proof, suggestion=suggested_guard(rule, prove_rule))


def _judged(rule: Rule, limit: int | None, timeout: float, count: int | None) -> Proof:
    def look(some: Instances) -> None:
        _checked(rule, some, timeout, _failure(rule, some))

    general: list[str] = []  # where it holds at all shapes, in words

    def covered(some: Instances) -> bool | None:
        try:
            look(some)
        except _Failed as failed:
            return None if failed.proof.verdict == REFUTED else False
        general.append(proved_for_all_shapes(rule))
        return any(general)

    found = instances_of(rule, limit, count, look, covered)
    fail = _failure(rule, found)
    if not found.chosen:
        raise fail(UNPROVED, "R103", f"no operands with extents 1…{found.limit} satisfy its left side and guard")
    evidence = _checked(rule, found, timeout, fail)
    _check_marks(rule, found, evidence, fail)
    broken = broken_grade(rule, found.chosen, evidence.identical or (rule.grade == "Z" and evidence.up_to_zeros))
    if broken is not None:
        raise fail(REFUTED, "R102", *broken)
    figures, excess = measured(rule, found.chosen)
    if excess is not None:
        raise fail(REFUTED, "R102", excess.sentence, excess.example)
    strength = _strength(found, next(iter(general), ""))
    return Proof(rule.name, rule.place, PROVED, strength, evidence.sentence, rule.grade, measured=tuple(figures))


def _strength(found: Instances, general: str) -> str:
    """Return what a proof holds for in words: `all shapes`, `all shapes up to n` or `tested`, then the instances."""
    if general:
        return f"all shapes: {general}; {found.strength}"
    return f"{f'all shapes up to {found.limit}' if found.is_every_shape else 'tested'}: {found.strength}"


def _checked(rule: Rule, found: Instances, timeout: float, fail: Any) -> _Evidence:
    """Compare both sides at all instances: first their shapes, then their elements."""
    for instance in (*found.chosen, *found.empty):
        _check_types(rule, instance, fail)
    evidence = _Evidence()
    for instance in found.chosen:
        _check_meaning(rule, instance, timeout, evidence, fail)
    return evidence


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


def _terms(rule: Rule, instance: Instance, real: bool) -> list[tuple[Any, Any]]:
    """Return the elements of both sides as z3 terms over symbolic operands."""
    from ..lang.smt import Symbolic, symbols

    leaves = leaves_of(instance, real=real)
    reading = Symbolic({x: symbols(name, instance.operands[name], real=real) for name, x in leaves.items()})
    side = Side(instance)
    sides = [(reading.array(side.term(left, leaves)), reading.array(side.term(right, leaves))) for left, right in rule.pairs]
    return [pair for a, b in sides for pair in zip(a.flat, b.flat, strict=True)]


def _elements(rule: Rule, instance: Instance, real: bool) -> tuple[list[tuple[Any, Any]], Any]:
    """Return the elements of both sides and the module that compares them: as nodes if possible, else as z3 terms."""
    try:
        return symbolic_elements(rule.pairs, instance, real=real), nodes
    except Unreadable:
        from ..lang import smt_forms

        return _terms(rule, instance, real), smt_forms


def _check_meaning(rule: Rule, instance: Instance, timeout: float, evidence: _Evidence, fail: Any) -> None:
    evidence.instances += 1
    pairs, forms = _elements(rule, instance, real=True)
    different = [n for n, (a, b) in enumerate(pairs) if not forms.identical(a, b)]
    if not different:
        return
    evidence.literal = False
    different = [n for n in different if not forms.same_operations(*pairs[n])]
    if not different:
        return
    evidence.identical = False
    evidence.up_to_zeros &= all(forms.same_operations(*pairs[n], drop_zeros=True) for n in different)
    open_places = [n for n in different if not forms.normal_forms_agree(*pairs[n])]
    if open_places:
        _solve(rule, instance, open_places, timeout, evidence, fail)


def _solve(rule: Rule, instance: Instance, places: list[int], timeout: float, evidence: _Evidence, fail: Any) -> None:
    """Ask z3 about the elements that normal forms leave open; a difference on data refutes."""
    from ..lang.smt import prove_equal
    from ..lang.smt_forms import renamed

    terms = _terms(rule, instance, real=True)
    questions = [renamed(*terms[n]) for n in places]
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
    if not rule.marks & INTEGER_MARKS:
        return
    if "any_dtype" in rule.marks and not evidence.literal:
        raise fail(REFUTED, "R102", "it is marked any_dtype, but its sides are not the same elements")
    for instance in found.by_shape:
        pairs, forms = _integer_elements(rule, instance, fail)
        if "any_dtype" in rule.marks and not all(forms.identical(a, b) for a, b in pairs):
            raise fail(REFUTED, "R102", "it is marked any_dtype, but its sides differ on integers")
        if "ring" in rule.marks and not all(_is_polynomial(a, b, forms) for a, b in pairs):
            raise fail(REFUTED, "R102", "it is marked ring, but its sides are not one polynomial in sums and products")


def _is_polynomial(a: Any, b: Any, forms: Any) -> bool:
    return bool(forms.is_ring_term(a) and forms.is_ring_term(b) and (forms.identical(a, b) or forms.normal_forms_agree(a, b)))


def _integer_elements(rule: Rule, instance: Instance, fail: Any) -> tuple[list[tuple[Any, Any]], Any]:
    try:
        return _elements(rule, instance, real=False)
    except SpecError as e:
        marks = " and ".join(sorted(rule.marks & INTEGER_MARKS))
        raise fail(REFUTED, "R102", f"it is marked {marks}, but has no meaning on integers: {e.problem.sentence}") from None
