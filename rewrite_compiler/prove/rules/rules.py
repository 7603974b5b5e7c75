"""Certificates of rules: a theorem on all extents and attributes proves one, an instance refutes it, grade and marks are checked.

Instances prove nothing: on random ones, where both sides are compared as terms, a difference on data refutes the rule and
is reported with the smallest operands that show it. What neither an engine proves nor an instance refutes is unproved.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...errors import SpecError
from ...ops.op import Apply, ShapeError, Variable, subterms
from ...ops.order import order_of
from ...ops.static import HasType
from ...rewrite.domain import Domain
from ...rewrite.rule import Float, Rule, has_infinite_number
from ...rewrite.text import condition_text
from ..instances import element_terms as nodes
from ..instances.counterexamples import find_difference
from ..instances.covering_sets import Instances, first_instances, instances_of, smallest_instances
from ..instances.element_meaning import NoSymbolicMeaning
from ..instances.instance_search import Instance
from ..instances.sides import Side, leaves_of, right_shape, symbolic_elements
from ..instances.thresholds import thresholds_of
from ..verdict import PROVED, REFUTED, UNPROVED, Counterexample, Outcome, Proof, Stop, Theorem
from .all_shapes import theorem_of
from .floating_point import UndecidedPairs
from .grades import grade_violation
from .guard_synthesis import has_instance, helpful_guard, suggested_guard
from .refuter import confirmed, larger_instances, witness
from .rounding_error import measure_rounding
from .scalar_laws import is_pointwise, scalar_term
from .wrapped_words import bitvector_answer, has_integer_operands, is_polynomial, operand_types

PROVED_DRAWS_SHARE = 0.2  # of the work of the wide draws, where a theorem says that they show nothing
HIGH_RANK_DRAWS_SHARE = 0.07  # of that work, where it says nothing
THRESHOLD_DRAWS_FACTOR = 5  # of both, where a rule computes with numbers near which its sides may part
NO_MEANING = {IndexError: "it reads an axis that does not exist", ZeroDivisionError: "it divides by an extent of 0"}
NO_INSTANCE = "no operands satisfy its left side and guard, of those with ranks to 6 and extents to 3 that were tried"
UNREAD_INFINITY = "no engine reads the infinite number of full: leave the bound out"
OPEN_GRADE = "it is not shown to be of grade"
FIRST_INSTANCES = 8  # on which data are searched that are plainer than what a solver finds
SEARCHES = 24  # of data on which sides that are not seen to be equal differ: instances of one batch
INTEGER_MARKS = frozenset({"any_dtype", "ring"})


@dataclass
class _Evidence:
    """How alike both sides were at the instances compared so far."""

    literal: bool = True  # the same elements, everywhere
    identical: bool = True  # the same operations in the same order, everywhere
    up_to_zeros: bool = True  # the same but for added zeros, everywhere
    searches: int = 0  # of data on which they differ
    undecided: UndecidedPairs = field(
        default_factory=lambda: UndecidedPairs(False)
    )  # elements that a grade claims more of than that they are equal

    def sentence(self, engine: str) -> str:
        """Return the strongest of these in words, else what proved the rule."""
        if self.literal:
            return "both sides are the same elements"
        if self.identical:
            return "both sides are the same operations in the same order"
        if self.up_to_zeros:
            return "both sides are the same operations in the same order, added zeros left out"
        return f"both sides are equal by the {engine}"


class _Failed(Exception):
    """A rule that is not proved; carries its proof."""

    def __init__(self, proof: Proof) -> None:
        super().__init__(proof.evidence)
        self.proof = proof


def prove_rules(rules: Iterable[Rule], count: int | None = None) -> Iterator[Proof]:
    """Yield the proof of each rule, in the order given."""
    for r in rules:
        yield prove_rule(r, count)


def prove_rule(rule: Rule, count: int | None = None) -> Proof:
    """Judge one rule: a theorem proves it, an instance refutes it.

    It is tried at `count` drawn instances, without a count at those of `instances_of`.
    """
    start = time.perf_counter()
    rule = replace(rule, where=(*rule.where, *Domain().conditions(rule.pairs)))
    try:
        proof = _judge(rule, count)
    except _Failed as failed:
        proof = failed.proof
    except SpecError as e:
        proof = Proof(rule.name, rule.place, UNPROVED, "", e.problem.sentence, rule.full_grade, code="R103")
    if proof.verdict != REFUTED:
        proof = _after_wide_draws(rule, proof)
    return replace(proof, seconds=time.perf_counter() - start)


def _after_wide_draws(rule: Rule, proof: Proof) -> Proof:
    """Return what was judged, or a refutation where instances beyond those show a difference."""
    factor = THRESHOLD_DRAWS_FACTOR if thresholds_of(rule) else 1
    refutation = witness(rule, share=factor * PROVED_DRAWS_SHARE if proof.is_proved else 1.0)
    if refutation is None and proof.is_proved and proof.ranks is not None:  # beyond the ranks of the theorem
        refutation = witness(rule, share=factor * HIGH_RANK_DRAWS_SHARE, least_rank=proof.ranks + 1)
    if refutation is None:
        return proof
    example, sentence = refutation
    code = "R105" if example.place is None else "R102"
    return Proof(rule.name, rule.place, REFUTED, proof.strength, sentence, rule.full_grade, example, code)


def with_suggestion(proof: Proof, rule: Rule) -> Proof:
    """Return a proof with a guard under which the rule is proved, where the sides differ or no engine decides and one is found."""
    if proof.evidence == NO_INSTANCE:
        needless = [condition_text(c) for n, c in enumerate(rule.where) if has_instance(rule.where[:n] + rule.where[n + 1 :], rule)]
        return replace(proof, evidence=f"{NO_INSTANCE}; there are some without {' or without '.join(needless)}") if needless else proof
    if proof.evidence == UNREAD_INFINITY or proof.evidence.startswith(OPEN_GRADE):  # a guard reads no number, and decides no bits
        return proof
    if proof.verdict == UNPROVED:
        guard, left_out = helpful_guard(rule, lambda r: isinstance(theorem_of(r), Theorem), prove_rule)
        return replace(proof, suggestion=guard, left_out=left_out)
    if proof.verdict != REFUTED or proof.counterexample is None or proof.evidence.startswith("it is "):
        return proof
    return replace(proof, suggestion=suggested_guard(rule, prove_rule))


def _judge(rule: Rule, count: int | None) -> Proof:
    fail = partial(_failure, rule)
    if has_infinite_number(rule):
        raise fail(UNPROVED, "R103", UNREAD_INFINITY)
    instances = instances_of(rule, count)
    if not instances.nonempty:
        raise fail(UNPROVED, "R103", NO_INSTANCE)
    if has_integer_operands(rule):
        return _judge_on_integers(rule, instances, fail)
    theorem = theorem_of(rule)
    if isinstance(theorem, Stop):
        _refute(rule, instances, theorem, fail)
        raise fail(UNPROVED, "R103", str(theorem))
    more = Instances((*instances.nonempty, *larger_instances(rule)), instances.rank, instances.empty)
    evidence = _compare_sides(rule, more, fail)
    _check_marks(rule, instances, evidence, fail)
    if not (evidence.literal or rule.marks & INTEGER_MARKS or has_real_operands(rule)):
        raise fail(UNPROVED, "R103", f"{theorem.engine}: it reads as real numbers what a guard says are integers")
    broken = grade_violation(rule, instances.nonempty, evidence.identical or (rule.grade == "Z" and evidence.up_to_zeros))
    if broken is not None:
        raise fail(REFUTED, "R102", *broken)
    figures, excess = measure_rounding(rule, instances.nonempty)
    if excess is not None:
        raise fail(REFUTED, "R102", excess.sentence, excess.example)
    _check_bits(rule, evidence.undecided, fail)
    strength, sentence = str(theorem), evidence.sentence(theorem.engine)
    return Proof(rule.name, rule.place, PROVED, strength, sentence, rule.full_grade, ranks=theorem.ranks, measured=tuple(figures))


def _refute(rule: Rule, instances: Instances, stop: Stop, fail: Any) -> None:
    """Refute a rule that no engine proves, where numbers, an instance or a claim of its grade do."""
    if stop.numbers is not None:
        plainest = first_instances(rule, FIRST_INSTANCES)
        plain_examples = (find_difference(rule.pairs, i) for i in plainest)
        example = next(filter(None, plain_examples), None) or confirmed(rule, [*plainest, *instances.nonempty], stop.numbers)
        if example is not None:
            raise fail(REFUTED, "R102", "the sides differ", example)
    for sample in (smallest_instances(rule), instances):
        evidence = _compare_sides(rule, sample, fail)
    broken = grade_violation(rule, instances.nonempty, evidence.identical or (rule.grade == "Z" and evidence.up_to_zeros))
    if broken is not None and broken[1] is not None:
        raise fail(REFUTED, "R102", *broken)


def _judge_on_integers(rule: Rule, instances: Instances, fail: Any) -> Proof:
    """Judge a rule whose operands are integers: data of real numbers are no instances of it, and nothing is rounded."""
    for instance in (*instances.nonempty, *instances.empty):
        _check_types(rule, instance, fail)
    answer = bitvector_answer(rule)
    if isinstance(answer, Counterexample):
        raise fail(REFUTED, "R102", "the sides differ on integers that wrap around", answer)
    sentence = f"both sides are equal on {', '.join(operand_types(rule))} that wrap around"
    if isinstance(answer, Stop):
        answer, sentence = _on_any_ring(rule, instances, answer, fail)
    _check_marks(rule, instances, _Evidence(), fail)
    return Proof(rule.name, rule.place, PROVED, str(answer), sentence, rule.full_grade, ranks=answer.ranks)


def _on_any_ring(rule: Rule, instances: Instances, stop: Stop, fail: Any) -> tuple[Theorem, str]:
    """Return the theorem on real numbers where it holds of integers, too: of polynomials, and of elements that are the same."""
    theorem = theorem_of(rule)
    if isinstance(theorem, Stop):
        raise fail(UNPROVED, "R103", f"{stop}; {theorem}")
    if is_polynomial(rule):
        return theorem, "both sides are one polynomial with integer coefficients"
    evidence = _Evidence(searches=SEARCHES)  # on which there are none: data are drawn as real numbers
    for instance in (*instances.nonempty, *larger_instances(rule)):
        _check_meaning(rule, instance, evidence, fail)
    if not evidence.literal:
        raise fail(UNPROVED, "R103", f"{stop}; {theorem.engine}: it reads as real numbers what a guard says are integers")
    return theorem, evidence.sentence(theorem.engine)


def has_real_operands(rule: Rule) -> bool:
    """Tell whether no guard gives an operand an integer type."""
    dtypes = [d for c in rule.where if isinstance(c, HasType) for d in c.dtypes]
    return all(d.startswith("float") for d in dtypes)


def _failure(rule: Rule, verdict: Outcome, code: str, sentence: str, example: Counterexample | None = None) -> _Failed:
    return _Failed(Proof(rule.name, rule.place, verdict, "", sentence, rule.full_grade, example, code))


def _compare_sides(rule: Rule, instances: Instances, fail: Any) -> _Evidence:
    """Compare both sides at all instances: first their shapes, then their elements."""
    for instance in (*instances.nonempty, *instances.empty):
        _check_types(rule, instance, fail)
    evidence = _Evidence(undecided=UndecidedPairs(rule.grade == "Z", rule.bounds))
    for instance in instances.nonempty:
        _check_meaning(rule, instance, evidence, fail)
    attributes = sorted({name for i in instances.nonempty[:1] for name in _float_attributes(i)})
    if attributes and rule.grade in ("E", "Z") and _computes_numbers(rule):
        evidence.undecided.give_up(attributes)
    return evidence


def _float_attributes(instance: Instance) -> list[str]:
    return sorted(name for name, value in instance.attributes.items() if isinstance(value, float))


def _computes_numbers(rule: Rule) -> bool:
    """Tell whether a side has an operation on numbers alone: its elements at an instance show the exact result and no operation."""
    parts = (x for pair in rule.pairs for side in pair for x in subterms(side))
    return any(isinstance(x, Apply) and x.operands and not any(isinstance(y, Variable) for y in subterms(x)) for x in parts)


def _check_types(rule: Rule, instance: Instance, fail: Any) -> None:
    for left, right in rule.pairs:
        expected = instance.shapes[id(left)]
        try:
            shape = right_shape(right, instance)
        except (ShapeError, IndexError, ZeroDivisionError) as e:
            sentence = e.problem.sentence if isinstance(e, ShapeError) else NO_MEANING[type(e)]
            example = _type_example(instance, str(expected), "no meaning")
            raise fail(REFUTED, "R105", f"the right side has no meaning where the left has one: {sentence}", example) from None
        if shape != expected:
            example = _type_example(instance, str(expected), str(shape))
            raise fail(REFUTED, "R105", "the sides have different shapes", example)


def _type_example(instance: Instance, left: str, right: str) -> Counterexample:
    operands = {name: f"tensor{list(shape)}" for name, shape in instance.operands.items()}
    return Counterexample(operands, instance.attributes, None, left, right)


def _terms(rule: Rule, instance: Instance, real: bool) -> list[tuple[Any, Any]]:
    """Return the elements of both sides as z3 terms over symbolic operands."""
    from ...readings.smt.evaluator import SymbolicEvaluator, fresh_variables

    leaves = leaves_of(instance, real=real)
    reading = SymbolicEvaluator({x: fresh_variables(name, instance.operands[name], real=real) for name, x in leaves.items()})
    side = Side(instance)
    sides = [(reading.array(side.term(left, leaves)), reading.array(side.term(right, leaves))) for left, right in rule.pairs]
    return [pair for a, b in sides for pair in zip(a.flat, b.flat, strict=True)]


def _elements(rule: Rule, instance: Instance, real: bool) -> tuple[list[tuple[Any, Any]], Any]:
    """Return the elements of both sides and the module that compares them: as nodes if possible, else as z3 terms."""
    try:
        return symbolic_elements(rule.pairs, instance, real=real), nodes
    except NoSymbolicMeaning:
        from ...readings.smt import syntactic_equality as smt_forms

        return _terms(rule, instance, real), smt_forms


def _check_meaning(rule: Rule, instance: Instance, evidence: _Evidence, fail: Any) -> None:
    pairs, forms = _elements(rule, instance, real=True)
    unequal = [pair for pair in pairs if not forms.identical(*pair)]
    if not unequal:
        return
    evidence.literal = False
    unequal = [pair for pair in unequal if not forms.same_operations(*pair)]
    if not unequal:
        return
    evidence.identical = False
    if rule.grade in ("E", "Z"):
        evidence.undecided.add(unequal, _float_attributes(instance))
    evidence.up_to_zeros &= all(forms.same_operations(*pair, drop_zeros=True) for pair in unequal)
    if evidence.searches < SEARCHES and not all(forms.normal_forms_agree(*pair) for pair in unequal):
        evidence.searches += 1
        example = find_difference(rule.pairs, instance)
        if example is not None:
            raise fail(REFUTED, "R102", "the sides differ", example)


def _check_bits(rule: Rule, undecided: UndecidedPairs, fail: Any) -> None:
    """Refuse a rule of grade E or Z whose bits are not shown to be the same: what is not decided is no pass."""
    if rule.grade in ("E", "Z") and is_pointwise(rule) and any(isinstance(v, Float) for v in rule.variables.values()):
        undecided = _symbolic_pairs(rule)
    answer = undecided.decision(order_of(rule.where).comparisons)
    if isinstance(answer, Stop):
        raise fail(UNPROVED, "R103", f"{OPEN_GRADE} {rule.full_grade}: {answer}")
    if answer is not None:
        kind, example = answer
        raise fail(REFUTED, "R102", f"it is not of grade {rule.full_grade}: the sides differ in {kind}", example)


def _symbolic_pairs(rule: Rule) -> UndecidedPairs:
    """Return what exact laws leave undecided of a rule that is pointwise, with float attributes as symbols."""
    undecided = UndecidedPairs(rule.grade == "Z", rule.bounds)
    pairs = [(scalar_term(left), scalar_term(right)) for left, right in rule.pairs]
    undecided.add(pair for pair in pairs if not nodes.same_operations(*pair, drop_zeros=undecided.up_to_zeros))
    return undecided


def _check_marks(rule: Rule, instances: Instances, evidence: _Evidence, fail: Any) -> None:
    if not rule.marks & INTEGER_MARKS:
        return
    if "any_dtype" in rule.marks and not evidence.literal:
        raise fail(REFUTED, "R102", "it is marked any_dtype, but its sides are not the same elements")
    for instance in instances.by_shape:
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
