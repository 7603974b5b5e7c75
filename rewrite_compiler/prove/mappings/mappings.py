"""Mapping certificates: the driver's instruction stream on the accelerator model returns exactly the numerics.

Symbolically at a small size: data are z3 integers, encoders and tables uninterpreted, control concrete. Numerically, on
random codes, at larger sizes and at the edges of the capacities.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import FlexmatchError, SpecError
from ...fit import Refusal, tile
from ...ila import DATA, Ila
from ...ila.model import State
from ...ila.simulation.initialisation_tracking import CODE as UNWRITTEN
from ...lang.binders import Array, Leaf, unbounded_sums
from ...lang.expr import Expr
from ...lang.formats import Format
from ...ops.op import ShapeError
from ...ops.static import Binding, HasType, holds
from ...readings.arrays.labelled_array import Data
from ...readings.kernels.evaluate import evaluate, evaluate_together
from ...readings.smt.evaluator import SymbolicEvaluator, fresh_variables, interval_constraints
from ...readings.smt.inverse_pairs import without_inverse_pairs
from ...readings.smt.normal_form_code import NotInteger
from ...readings.smt.normal_form_evaluator import NormalFormEvaluator, Z3Translator, variables
from ...readings.smt.polynomial_terms import Number, Terms
from ...readings.smt.renamed_pairs import distinct_pairs
from ...readings.smt.shared_abstraction import prove_equal_sharing
from ...readings.smt.solver import Outcome as SolverOutcome
from ...readings.smt.solver import Verdict as SolverVerdict
from ...rewrite.rule import name_of
from ...rewrite.text import condition_text
from ...rewrite.user_file import user_line
from ...target import Mapping, Stay, simulated_device
from ...target.functions import place_of_function
from ...user_code import error_text
from ..instances.instance_search import Instance
from ..instances.sides import binding_of
from ..verdict import PROVED, REFUTED, UNPROVED, Counterexample, Outcome, Proof
from .code_draws import CodeDraws
from .induction import Steps, induction_failure
from .omission_recorder import OmissionRecorder
from .symbolic_device import symbolic_device

SEED = 7
UNITS = (1, 2, 3, 4)  # sizes tried, in units, where a mapping lists no trials
MAX_SHOWN_CODES = 64  # codes that a counter-example shows
PREVIOUS_CALL_MARK = " before"  # marks the operands of the call before
SCALES = (0.5, 3.0, 40.0)  # largest magnitudes for which formats are chosen
DRIVER_AND_NUMERICS = ("driver", "numerics")  # the sides of a counter-example
NORMAL_FORM_SHARE = 0.1  # of the time: the question in normal form, before it is asked as both sides compute it
Sides = tuple[list[tuple[Any, Any]], list[Any], int]  # results of driver and numerics, axioms, instructions executed


def prove_mapping(m: Mapping, ila: Ila, seconds: float = 60.0) -> Proof:
    """Prove that an operation's driver gives its numerics: on random codes, and symbolically at the first of its trials.

    Only codes refute: what the solver finds with tables it does not know may be impossible.
    """
    started = time.perf_counter()

    def proof(verdict: Outcome, strength: str, evidence: str, example: Counterexample | None = None, code: str = "") -> Proof:
        return Proof(m.name, m.rule.place, verdict, strength, evidence, "E", example, code, time.perf_counter() - started)

    try:
        return proof(*_judge(m, ila, seconds))
    except FlexmatchError as error:
        p = error.problem
        evidence = f"{p.sentence} at {p.place}" if p.place not in ("", m.rule.place) else p.sentence
        return proof(UNPROVED, "", "; ".join(filter(None, (evidence, p.help))), code=p.code)
    except Exception as error:  # the driver and the numerics are code of the target
        place = f"{error_text(error)} at {user_line(m.rule.place, error)}"
        return proof(UNPROVED, "", f"its driver or numerics end with {place}", code="R103")


Verdict = tuple[Outcome, str, str, Counterexample | None, str]  # verdict, strength, evidence, counter-example, code


def _judge(m: Mapping, ila: Ila, seconds: float) -> Verdict:
    if m.drive is None or m.codes is None:
        return _unproved("it has no driver or no numerics")
    sizes, reason = first_sizes(m)
    if sizes is None:
        return _unproved(reason)
    trials = [sizes, *(at for at in numeric_sizes(m) if at != sizes)]
    for at, counterexample in _differences(m, ila, trials):
        return _refuted(m, ila, at, counterexample)
    verdict, executed = symbolic_verdict(m, ila, sizes, seconds)
    if verdict.outcome == "refuted":
        example = _example_of_model(m, ila, sizes, verdict.model)
        evidence = f"z3 separates driver and numerics at {sizes_text(sizes)}, but no codes were found that do"
        return _unproved(evidence) if example is None else _refuted(m, ila, sizes, example)
    if verdict.outcome != "proved":
        return _unproved(f"the solver gave up at {sizes_text(sizes)}: {verdict.reason}")
    lengths = inductions(m, ila, sizes)
    for at, counterexample in _differences(m, ila, lengths.suspect_sizes):
        return _refuted(m, ila, at, counterexample)
    strength = f"symbolic at {sizes_text(sizes)} ({executed} instructions), random codes at {len(trials)} sizes"
    reasons = f"; no induction: {'; '.join(lengths.reasons)}" if lengths.reasons else ""
    return PROVED, "; ".join((strength, *lengths.proved)), f"sizes {'; '.join(map(sizes_text, trials))}{reasons}", None, ""


def _unproved(reason: str) -> Verdict:
    return UNPROVED, "", reason, None, "R103"


def _refuted(m: Mapping, ila: Ila, sizes: MappingOf[str, Any], example: Counterexample) -> Verdict:
    return REFUTED, "", f"driver and numerics differ at {sizes_text(sizes)}{omissions(m, ila, sizes)}", example, "I105"


def omissions(m: Mapping, ila: Ila, sizes: MappingOf[str, Any]) -> str:
    """Return which operands the driver gives no value, as the end of a sentence; nothing where it gives all."""
    recorder = OmissionRecorder(simulated_device(ila, reading="native", strict=False), ila)
    with contextlib.suppress(FlexmatchError):  # what it sent up to there counts
        _, codes, _ = next(iter(code_draws(m, sizes, SEED).draws()))
        m.run_driver(recorder, dict(codes), formats_at(m), attributes_at(m, sizes))
    return recorder.text


def _differences(m: Mapping, ila: Ila, trials: Sequence[MappingOf[str, Any]]) -> Iterator[tuple[MappingOf[str, Any], Counterexample]]:
    """Yield sizes at which driver and numerics differ, with the codes."""
    examples = ((at, code_difference(m, ila, at)) for at in trials)
    yield from ((at, example) for at, example in examples if example is not None)


def _dimensions(m: Mapping) -> list[str]:
    return list(dict.fromkeys(d for dims in m.axes.of.values() for d in dims))


def first_sizes(m: Mapping) -> tuple[MappingOf[str, Any] | None, str]:
    """Return the size that is proved symbolically, or None with the reason: the first trial, else the smallest units that are admitted."""
    for at in m.trials:
        refused = refusal_at(m, at)
        if refused:
            return None, f"the trial {sizes_text(at)} is not admitted: {refused}"
    if m.trials:
        return m.trials[0], ""
    if m.statics:
        return None, f"its pattern has attributes ({', '.join(name for name, _ in m.statics)}), so it needs trials"
    dimensions = _dimensions(m)
    for factors in sorted(itertools.product(UNITS, repeat=len(dimensions)), key=sum):
        sizes = {d: k * m.units.get(d, 1) for d, k in zip(dimensions, factors, strict=True)}
        if not refusal_at(m, sizes):
            return sizes, ""
    return None, f"guard and limits admit no size of at most {UNITS[-1]} units along each dimension; it needs trials"


def refusal_at(m: Mapping, sizes: MappingOf[str, Any]) -> str:
    """Return why an operation does not admit a tile of these sizes, nothing when it does."""
    attributes = attributes_at(m, sizes)
    binding = _binding(m, sizes)
    try:
        for (t, _), name in zip(m.rule.pairs, m.axes.results, strict=True):
            if binding.shape(t) != tuple(sizes[d] for d in m.axes.of[name]):
                return f"{name} has the shape {binding.shape(t)}"
        failed = next((c for c in m.rule.where if not holds(c, binding)), None)
    except ShapeError as error:
        return str(error.problem.sentence)
    if failed is not None:
        return f"the guard fails: {condition_text(failed)}"
    limit = m.exceeded_limit(sizes, attributes)
    return "" if limit is None else str(limit)


def _binding(m: Mapping, sizes: MappingOf[str, Any]) -> Binding:
    """Return operands of these sizes, and static variables, as a match."""
    attributes, shapes = attributes_at(m, sizes), shapes_at(m, sizes)
    values = {key if isinstance(key := m.rule.variables[name], Expr) else name: value for name, value in attributes.items()}
    dtypes = {name_of(c.tensor): c.dtypes[0] for c in m.rule.where if isinstance(c, HasType)}
    return binding_of(Instance({id(v): shapes[v.name] for v in m.operands}, values, shapes, dtypes))


def with_results(m: Mapping, sizes: MappingOf[str, Any]) -> dict[str, Any]:
    """Return the sizes of operands with those of results, as the pattern gives them.

    Raises:
        ShapeError: the pattern has no meaning at these sizes.
    """
    binding = _binding(m, sizes)
    shapes = {name: binding.shape(t) for (t, _), name in zip(m.rule.pairs, m.axes.results, strict=True)}
    return {**m.axes.sizes(shapes), **sizes}


def sizes_text(sizes: MappingOf[str, int]) -> str:
    """Return sizes as text."""
    return ", ".join(f"{d}={n}" for d, n in sizes.items())


def formats_at(m: Mapping) -> dict[str, Format]:
    """Return the formats in which an operation is judged."""
    return m.formats_for(dict(zip(m.format_choices, itertools.cycle(SCALES), strict=False)))


def attributes_at(m: Mapping, at: MappingOf[str, Any]) -> dict[str, Any]:
    """Return the static attributes among sizes."""
    return {name: at[name] for name, _ in m.statics}


def shapes_at(m: Mapping, sizes: MappingOf[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the operands."""
    return {v.name: tuple(sizes[d] for d in m.axes.of[v.name]) for v in m.operands}


def _leaves(m: Mapping, sizes: MappingOf[str, int], formats: MappingOf[str, Format]) -> dict[str, Leaf]:
    return {n: Leaf(shape, formats[n].codes, False, n) for n, shape in shapes_at(m, sizes).items()}


def symbolic_verdict(
    m: Mapping, ila: Ila, sizes: MappingOf[str, int], seconds: float, stay: Stay | None = None
) -> tuple[Any, int]:  # fmt: skip
    """Prove all results equal on symbolic codes; return the verdict and the number of instructions executed.

    The question is asked in normal form first, with part of the time; where that leaves it open, on plain z3 terms.
    """
    with contextlib.suppress(NotInteger):
        run = execute(m, ila, sizes, Terms(), stay)
        verdict = normal_form_verdict(m, sizes, run, seconds)
        if verdict.outcome != "unknown":
            return verdict, run.executed
    return z3_verdict(m, ila, sizes, seconds, stay)


def normal_form_verdict(m: Mapping, sizes: MappingOf[str, int], run: Run, seconds: float) -> Any:
    """Return the verdict on both sides as they were executed, with part of the time; pairs that are one term are proved.

    Of pairs that are one up to the names of variables one is asked.
    """
    solved = Z3Translator()
    open_pairs = [(solved.of(a), solved.of(b)) for a, b in distinct_pairs(p for p in run.pairs if not is_same_term(*p))]
    return _ask_equal(m, sizes, (open_pairs, solved.axioms, run.executed), NORMAL_FORM_SHARE * seconds)[0]


def z3_verdict(m: Mapping, ila: Ila, sizes: MappingOf[str, int], seconds: float, stay: Stay | None = None) -> tuple[Any, int]:
    """Return the verdict on both sides executed on plain z3 terms, and the number of instructions executed."""
    return _ask_equal(m, sizes, _z3_sides(m, ila, sizes, stay), seconds)


def _ask_equal(m: Mapping, sizes: MappingOf[str, int], sides: Sides, seconds: float) -> tuple[Any, int]:
    """Ask whether both sides are equal."""
    if not sides[0]:
        return SolverVerdict(SolverOutcome.PROVED), sides[2]
    formats = formats_at(m)
    shapes = shapes_at(m, sizes)
    premises = [c for n, shape in shapes.items() for c in interval_constraints(fresh_variables(n, shape), formats[n].codes)]
    ranges = {str(v): formats[n].codes for n, shape in shapes.items() for v in fresh_variables(n, shape).flat}
    pairs, axioms, executed = sides
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    pairs = list(zip(without_inverse_pairs(left, ranges), right, strict=True))
    return prove_equal_sharing(pairs, [*axioms, *premises], seconds, ranges), executed


def run_call(
    m: Mapping, device: Any, sizes: MappingOf[str, Any], operands: MappingOf[str, Data], stay: Stay | None,
    previous_operands: Callable[[str], MappingOf[str, Data]],
) -> Any:  # fmt: skip
    """Return the results of a driver; where operands are present already, a call on `previous_operands` leaves them there first."""
    formats, attributes = formats_at(m), attributes_at(m, sizes)
    if stay is not None and stay.present:
        previous = {**previous_operands(PREVIOUS_CALL_MARK), **{n: operands[n] for n in stay.present}}
        m.run_driver(device, previous, formats, attributes, replace(stay, present=frozenset()))
    return m.run_driver(device, operands, formats, attributes, stay)


@dataclass(frozen=True)
class Run:
    """Both sides at one size: the symbolic operands, the pairs of results of driver and numerics, the number of instructions executed."""

    operands: MappingOf[str, Data]
    pairs: Sequence[tuple[Number, Number]]
    executed: int


def execute(
    m: Mapping, ila: Ila, sizes: MappingOf[str, Any], terms: Terms, stay: Stay | None = None,
    device_of: Callable[[Any], Any] = lambda device: device,
) -> Run:  # fmt: skip
    """Execute driver and numerics on terms in normal form; the driver is given what `device_of` makes of the symbolic device.

    Raises:
        NotInteger: one computes with real numbers.
    """
    formats = formats_at(m)
    leaves = _leaves(m, sizes, formats)

    def symbolic(mark: str) -> dict[str, Data]:
        return {n: variables(terms, n + mark, shape, formats[n].codes) for n, shape in shapes_at(m, sizes).items()}

    operands = symbolic("")

    def unwritten(state: State) -> Number:
        """A symbol for what data memories hold at first: what reads it is not the numerics' term."""
        return terms.variable(f"unwritten {state.name}", state.leaf.interval) if state.binding == DATA else state.reset

    device = symbolic_device(ila, lambda memories: NormalFormEvaluator(memories, terms), unwritten)
    results = run_call(m, device_of(device), sizes, operands, stay, symbolic)
    meaning = NormalFormEvaluator({leaves[n]: x for n, x in operands.items()}, terms)
    expected = [meaning.array(a) for a in _tuple(m.result_codes(list(leaves.values()), formats, attributes_at(m, sizes)))]
    return Run(operands, list(zip(_flat(_tuple(results)), _flat(expected), strict=True)), device.executed)


@dataclass(frozen=True)
class Lengths:
    """The reduction lengths for which an operation is proved, why not for every one, and sizes at which its sides may differ."""

    proved: Sequence[str]
    reasons: Sequence[str]
    suspect_sizes: Sequence[MappingOf[str, Any]]


def inductions(m: Mapping, ila: Ila, sizes: MappingOf[str, Any]) -> Lengths:
    """Prove an operation at every length of each of its reductions, by induction from a size at which it is proved."""
    proved, reasons, doubtful = list[str](), dict[str, list[str]](), list[MappingOf[str, Any]]()
    for d in m.axes.summed:
        reason = "another size alone does not fit the pattern"
        for step, first in _lengthenings(m, sizes, d):
            two_sizes = [{**sizes, d: sizes[d] + k * step} for k in (first, first + 1)]
            if any(refusal_at(m, at) for at in two_sizes):
                continue
            reason, differing = _induction(m, ila, two_sizes, d, step)
            doubtful += differing
            if not reason:
                first_length = two_sizes[0][d] - (step if first == 1 else 0)  # the size before is the first one
                proved.append(f"every {d} from {first_length} on by induction in steps of {step}")
            if not reason or differing:
                break
        if reason:
            reasons.setdefault(reason, []).append(d)
    reason_texts = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return Lengths(proved, reason_texts if m.axes.summed else ["every dimension is one of the result's"], doubtful)


def _lengthenings(m: Mapping, sizes: MappingOf[str, int], d: str) -> Iterator[tuple[int, int]]:
    """Yield steps, and after how many of them to begin: what starts from 0 shows its step from the second one on."""
    yield 1, 1
    for step in dict.fromkeys((m.units.get(d, 1), sizes[d])):
        if step > 1:
            yield from ((step, 1), (step, 2))


def _induction(
    m: Mapping, ila: Ila, two_sizes: Sequence[MappingOf[str, Any]], d: str, step: int
) -> tuple[str, list[MappingOf[str, Any]]]:  # fmt: skip
    """Return why two sizes show no induction, nothing when they do, and the size at which the sides may differ."""
    terms = Terms(unbounded=True)
    try:
        with unbounded_sums(two_sizes[0][d]):
            runs = [execute(m, ila, at, terms) for at in two_sizes]
    except NotInteger:
        return "it computes with real numbers", []
    for at, run in zip(two_sizes, runs, strict=True):
        if any(not is_same_term(a, b) for a, b in run.pairs):
            return f"driver and numerics at {sizes_text(at)} are not the same term", [at]
    steps = Steps(runs[1].operands, m.axes.of, d)
    return induction_failure([(at[d], [a for a, _ in run.pairs]) for at, run in zip(two_sizes, runs, strict=True)], steps, step), []


def is_same_term(a: Number, b: Number) -> bool:
    """Tell whether two values are one term, or one number."""
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def _flat(results: Sequence[Any]) -> list[Any]:
    return [x for a in results for x in np.asarray(a, object).flat]


def _z3_sides(m: Mapping, ila: Ila, sizes: MappingOf[str, int], stay: Stay | None = None) -> Sides:
    """Execute both sides on z3 terms."""
    formats = formats_at(m)
    leaves = _leaves(m, sizes, formats)

    def symbolic(mark: str) -> dict[str, Data]:
        return {n: fresh_variables(n + mark, shape) for n, shape in shapes_at(m, sizes).items()}

    operands = symbolic("")
    device = symbolic_device(ila)
    results = run_call(m, device, sizes, operands, stay, symbolic)
    meaning = SymbolicEvaluator({leaves[n]: x for n, x in operands.items()}, uninterpreted_tables=True)
    expected = [meaning.array(a) for a in _tuple(m.result_codes(list(leaves.values()), formats, attributes_at(m, sizes)))]
    pairs = list(zip(_flat(_tuple(results)), _flat(expected), strict=True))
    return pairs, [*device.symbolic.axioms, *meaning.axioms], device.executed


def numeric_sizes(m: Mapping) -> Iterator[MappingOf[str, int]]:
    """Yield sizes for random codes: the trials, else a ragged size, and the largest tile along each dimension at one unit of the others."""
    if m.trials:
        yield from m.trials
        return
    units = {d: m.units.get(d, 1) for d in _dimensions(m)}
    ragged = {d: 3 * u + (u > 1) for d, u in units.items()}
    fits = {d: tile(m, {**units, d: 1 << 24}) for d in units}
    largest = ({**units, d: fit.tile[d]} for d, fit in fits.items() if not isinstance(fit, Refusal))
    yield from (at for at in (ragged, *largest) if not refusal_at(m, at))


def code_difference(
    m: Mapping, ila: Ila, sizes: MappingOf[str, Any], seed: int = SEED, stay: Stay | None = None, draws: int | None = None
) -> Counterexample | None:  # fmt: skip
    """Compare driver and numerics on codes that do not saturate, the smallest, extreme ones and halves; return the first difference.

    With a number of `draws` only the first ones are taken.

    Raises:
        FlexmatchError: the device refuses the driver's commands.
    """
    unwritten: FlexmatchError | None = None
    for n, (name, codes, expected) in enumerate(itertools.islice(code_draws(m, sizes, seed).draws(), draws)):
        description = {"codes": f"{name}seed {seed}"}
        try:  # what is read unwritten, out of range or in an open order does not depend on the codes: it is looked for once
            example = difference_on(m, ila, sizes, codes, description, expected, strict=n == 0, stay=stay)
        except FlexmatchError as refusal:
            if n or refusal.problem.code != UNWRITTEN:
                raise
            unwritten, example = refusal, difference_on(m, ila, sizes, codes, description, expected, strict=False, stay=stay)
        if example is not None:
            return example
    if unwritten is not None:  # codes that differ would say more
        raise unwritten
    return None


def difference_on(
    m: Mapping, ila: Ila, sizes: MappingOf[str, Any], codes: MappingOf[str, Data], description: MappingOf[str, str],
    expected: Sequence[Data] | None = None, *, strict: bool = True, stay: Stay | None = None,
) -> Counterexample | None:  # fmt: skip
    """Compare the driver on some codes with what is expected, by default the numerics' results; return the first difference.

    The instructions run as machine code, whose bits are those of numpy.

    Raises:
        SpecError: driver and numerics return arrays of different shapes.
    """
    device = simulated_device(ila, reading="native", strict=strict)
    reversed_codes = {n: np.flip(x) for n, x in codes.items()}
    results = _tuple(run_call(m, device, sizes, dict(codes), stay, lambda _: reversed_codes))
    for result, expected_result in zip(results, expected or _Numerics.of(m, sizes)([codes])[0], strict=True):
        if np.shape(result) != np.shape(expected_result):
            shapes = f"of shape {np.shape(result)}, its numerics one of {np.shape(expected_result)}"
            sentence = f"the driver of {m.name} returns an array {shapes}"
            remedy = "return the codes in the order of the axes of the result"
            raise SpecError("I105", sentence, place=place_of_function(m.drive), help=remedy)
        places = np.argwhere(np.asarray(result) != expected_result)
        if len(places):
            place = tuple(int(i) for i in places[0])
            return Counterexample(
                dict(description), dict(sizes), place, str(result[place]), str(expected_result[place]), DRIVER_AND_NUMERICS
            )
    return None


@dataclass(frozen=True)
class _Numerics:
    """The numerics of a call on draws of codes."""

    leaves: MappingOf[str, Leaf]
    terms: tuple[Array, ...]

    @classmethod
    def of(cls, m: Mapping, sizes: MappingOf[str, Any]) -> _Numerics:
        formats = formats_at(m)
        leaves = _leaves(m, sizes, formats)
        return cls(leaves, _tuple(m.result_codes(list(leaves.values()), formats, attributes_at(m, sizes))))

    def __call__(self, draws: Sequence[MappingOf[str, Data]]) -> list[tuple[Data, ...]]:
        """Return the results of each draw; several draws are evaluated together."""
        if len(draws) == 1:
            contents = {self.leaves[n]: x for n, x in draws[0].items()}
            return [tuple(evaluate(term, contents) for term in self.terms)]
        stacked = {leaf: np.stack([codes[n] for codes in draws]) for n, leaf in self.leaves.items()}
        return list(zip(*(evaluate_together(term, stacked) for term in self.terms), strict=True))


def code_draws(m: Mapping, sizes: MappingOf[str, Any], seed: int) -> CodeDraws:
    """Return the draws of codes for a call."""
    numerics = _Numerics.of(m, sizes)
    return CodeDraws(numerics.leaves, formats_at(m), m.axes.results, numerics, seed)


def _example_of_model(m: Mapping, ila: Ila, sizes: MappingOf[str, Any], model: MappingOf[str, Any]) -> Counterexample | None:
    """Return a difference on the codes that the solver found, None where the tables it does not know make it impossible."""
    formats = formats_at(m)
    codes: dict[str, Data] = {}
    for n, shape in shapes_at(m, sizes).items():
        low, high = formats[n].codes
        values = [int(model.get(str(v), 0)) for v in fresh_variables(n, shape).flat]
        codes[n] = np.clip(np.array(values, np.int64), low or 0, high or 0).reshape(shape)
    description = {n: str(x.tolist()) if x.size <= MAX_SHOWN_CODES else f"{x.size} codes of the solver" for n, x in codes.items()}
    return difference_on(m, ila, sizes, codes, description, strict=False)  # strictness has been asked already


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)
