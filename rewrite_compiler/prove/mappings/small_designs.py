"""Operations proved on small designs of their accelerator, in every control class that random calls cover.

There a few hundred products fill the memories, so that bands, passes, images and resident weights all occur; driver and numerics
are executed on terms, and must be one term.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import replace
from typing import Any

from ...errors import FlexmatchError
from ...lang.formats import Fixed
from ...readings.smt.normal_form_code import NotInteger
from ...readings.smt.polynomial_terms import Terms
from ...rewrite.user_file import user_line
from ...target import Mapping, Target
from ...user_code import error_text
from ..verdict import REFUTED, UNPROVED, Proof
from .control_classes import Call, Classes, control_classes
from .draws import MAX_PRODUCTS, drawn_invocations, with_magnitudes
from .driver_code import LEAST, shared_functions
from .limit_edges import LARGEST_DRAWN, capacity_edges, literal_edges
from .mappings import SEED, Run, code_difference, execute, is_same_term, normal_form_verdict, prove_mapping, z3_verdict

OPERATION_CALLS, VARIANT_CALLS = 100, 24  # calls of an operation, and of each further variant of it
MODELS = "rewrite_compiler.ila_models"
FAR_MAGNITUDES = 2.0**-12, 2.0**12  # of data for which formats are chosen, times the usual ones
USUAL_CALLS = 12  # for each one in formats of such data
SECONDS = 10.0  # of the solver, where driver and numerics are not one term


def prove_mappings(target: Target) -> Iterator[Proof]:
    """Yield the certificate of every operation of a target."""
    yield from (prove_operation(target, m) for m in target.mappings.values())


def prove_operation(target: Target, m: Mapping) -> Proof:
    """Prove that an operation's driver gives its numerics: on its own design, where capacities are used up, and in every control class."""
    started = time.perf_counter()
    refused = refused_design(target)
    if refused is not None:
        return Proof(m.name, m.rule.place, strength="", grade="E", **refused)
    proof = _with_primitives(prove_mapping(m, target.ila()), m)
    if proof.is_proved:
        proof = _at_edges(proof, target, m)
    if proof.is_proved:
        proof = _on_small_designs(proof, target, m)
    return replace(proof, seconds=time.perf_counter() - started)


def refused_design(*designs: Target) -> dict[str, Any] | None:
    """Return what leaves operations open where a design cannot be made: its model or its resources refuse its parameters."""
    for design in designs:
        try:
            design.ila()
            design.resources()
        except FlexmatchError as error:
            problem = error.problem
            of = f" with {_parameters_text(design)}" if design.chosen else ""
            at = f" at {problem.place}" if problem.place else ""
            return _unproved(f"{design.name}{of} cannot be made: {problem.sentence}{at}", problem.code)
    return None


def _parameters_text(design: Target) -> str:
    return ", ".join(f"{k}={v}" for k, v in design.chosen.items())


def _with_primitives(proof: Proof, m: Mapping) -> Proof:
    """Return a certificate that names the functions that the numerics share with the model: a mistake in one is in both."""
    names = shared_functions(m.codes, MODELS) if proof.is_proved and m.codes is not None else []
    return proof if not names else replace(proof, evidence=f"{proof.evidence}; shared with the model: {', '.join(names)}")


def edge_failure(target: Target, m: Mapping, sizes: Iterable[MappingOf[str, Any]]) -> dict[str, Any] | None:
    """Compare on random codes where capacities are used up; return the refutation, None where there is none.

    Codes that differ refute, and so does a device that refuses sizes which the limits admit.
    """
    for at in sizes:
        place = ", ".join(f"{d}={n}" for d, n in at.items())
        try:
            example = code_difference(m, target.ila(), at)
        except FlexmatchError as error:
            sentence = f"its limits admit {place}, which the device refuses: {error.problem.sentence}"
            return {"verdict": REFUTED, "evidence": sentence, "code": "I106"}
        if example is not None:
            evidence = f"driver and numerics differ where a capacity is used up, or beside a number of the driver, at {place}"
            return {"verdict": REFUTED, "evidence": evidence, "counterexample": example, "code": "I105"}
    return None


def _at_edges(proof: Proof, target: Target, m: Mapping) -> Proof:
    sizes = [*capacity_edges(m), *literal_edges(m, LARGEST_DRAWN if target.small else LEAST)]
    failed = edge_failure(target, m, sizes)
    if failed is not None:
        return replace(proof, strength="", **failed)
    sizes_text = "; ".join(", ".join(f"{d}={n}" for d, n in at.items()) for at in sizes)
    evidence = f"{proof.evidence}; codes where a capacity is used up, or beside a number of the driver: {sizes_text}"
    return proof if not sizes else replace(proof, evidence=evidence)


def _on_small_designs(proof: Proof, target: Target, m: Mapping) -> Proof:
    refused = refused_design(*(design for design, _ in target.miniatures()))
    if refused is not None:
        return replace(proof, strength="", **refused)
    control = operation_classes(target, m)
    solved = 0
    for call in (*control.calls, *_far_format_calls(control.calls)):
        failed, is_one_term = verdict_at(call)
        if failed is not None:
            return replace(proof, strength="", **failed)
        solved += not is_one_term
    if not control.calls:
        return proof
    by_solver = f", {solved} of them by the solver" if solved else ""
    open_control = str(control)
    return replace(
        proof, strength=f"{proof.strength}; {len(control.calls)} calls of all control classes on small designs{by_solver}",
        evidence=f"{proof.evidence}; {open_control}" if open_control else proof.evidence,
    )  # fmt: skip


def _far_format_calls(calls: Iterable[Call]) -> Iterator[Call]:
    """Yield the smallest call again with operands other than the data in fixed-point formats of far magnitudes: no branch shows these.

    Sums are shifted by other numbers of places then, which a driver may only compute.
    """
    call = next((c for c in calls if not c.is_far), None)
    if call is not None and all(isinstance(choose(1.0), Fixed) for choose in call.mapping.format_choices.values()):
        for factor in FAR_MAGNITUDES:
            far = with_magnitudes(call.mapping, factor, of_data=False)
            if far.format_choices != call.mapping.format_choices:
                yield Call(call.design, far, call.invocation, factor)


def operation_classes(target: Target, m: Mapping) -> Classes:
    """Return calls that cover the control of an operation's driver; of the variants of one operation the first gets more of them."""
    first = next(mapping for mapping in target.mappings.values() if mapping.operation == m.operation)
    return control_classes(drawn_design_calls(target, m), OPERATION_CALLS if first.variant == m.variant else VARIANT_CALLS)


def drawn_design_calls(target: Target, m: Mapping, seed: int = SEED) -> Iterator[Call]:
    """Yield random calls of an operation on the small designs of its target, round robin; some again in formats of far magnitudes."""

    def on(design: Target, products: MappingOf[str, int]) -> Iterator[Call]:
        small, most = replace(design.mappings[m.variant], drive=m.drive, codes=m.codes), products.get(m.operation, MAX_PRODUCTS)
        factors = itertools.cycle(FAR_MAGNITUDES)
        for n, invocation in enumerate(drawn_invocations(small, design, seed, most), start=1):
            yield Call(design, small, invocation)
            if n % USUAL_CALLS == 0 and m.format_choices:
                factor = next(factors)
                yield Call(design, with_magnitudes(small, factor), invocation, factor)

    streams = [on(design, products) for design, products in target.miniatures()]
    while streams:
        for calls in list(streams):
            call = next(calls, None)
            if call is None:
                streams.remove(calls)
            else:
                yield call


def verdict_at(call: Call) -> tuple[dict[str, Any] | None, bool]:
    """Return what refutes an operation or leaves it open at a call, None when it is proved there; and whether both sides are one term."""
    m, invocation, place = call.mapping, call.invocation, f"at {call}"
    try:
        run = None
        with contextlib.suppress(NotInteger):
            run = execute(m, call.ila, invocation.sizes, Terms(), invocation.stay)
            if all(is_same_term(a, b) for a, b in run.pairs):
                return _difference(call, place, draws=1), True
        return _by_codes(call, place, run), False
    except FlexmatchError as error:
        return _unproved(f"{error.problem.sentence} {place}", error.problem.code), False
    except Exception as error:  # the driver and the numerics are code of the target
        sentence = f"its driver or numerics end with {error_text(error)} at {user_line(m.rule.place, error)}, {place}"
        return _unproved(sentence), False


def _by_codes(call: Call, place: str, run: Run | None) -> dict[str, Any] | None:
    """Return what refutes an operation whose sides are not one term, or leaves it open, nothing when the solver proves it."""
    m, ila, invocation = call.mapping, call.ila, call.invocation
    outcome = "unknown" if run is None else normal_form_verdict(m, invocation.sizes, run, SECONDS).outcome
    different = _difference(call, place, draws=1 if outcome == "proved" else None)
    if different is not None:
        return different
    if outcome == "unknown":
        outcome = z3_verdict(m, ila, invocation.sizes, SECONDS, invocation.stay)[0].outcome
    return None if outcome == "proved" else _unproved(f"driver and numerics are not the same term {place}")


def _difference(call: Call, place: str, draws: int | None) -> dict[str, Any] | None:
    """Return the refutation by codes at a call, nothing where they are equal.

    Beside a proof, which is for all codes and runs instructions in one order, one strict draw: what the device refuses, such as results
    that depend on the order of its queues, does not depend on the codes.
    """
    example = code_difference(call.mapping, call.ila, call.invocation.sizes, SEED, call.invocation.stay, draws=draws)
    if example is None:
        return None
    return {"verdict": REFUTED, "evidence": f"driver and numerics differ {place}", "counterexample": example, "code": "I105"}


def _unproved(evidence: str, code: str = "R103") -> dict[str, Any]:
    return {"verdict": UNPROVED, "evidence": evidence, "code": code}
