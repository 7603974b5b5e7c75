"""Validation of a plan: every call of its offloads judged as it is issued, equal calls once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from typing import Any

from ...errors import FlexmatchError, Problem
from ...prove.calls.call_validation import CallCourt, CallVerdict, Method
from ...prove.certificates.cache import Cache, call_key
from ...prove.mappings.mappings import SEED, code_difference, sizes_text, with_results
from ...target import Mapping, Stay
from .plan import Offload, Plan

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ValidatedCall:
    """A call of a plan with its verdict, and the offloads that issue it."""

    operation: str
    sizes: MappingOf[str, Any]
    stay: Stay | None
    offloads: tuple[str, ...]
    verdict: CallVerdict

    @property
    def name(self) -> str:
        """The operation with its sizes, and where tensors lie that stay."""
        at = "" if self.stay is None else "".join(f", {n} at {at}" for n, at in sorted(self.stay.at.items()))
        return f"{self.operation} at {sizes_text(self.sizes)}{at}"


def validated_calls(plan: Plan, cache: Cache, progress: Progress = lambda _: None) -> tuple[ValidatedCall, ...]:
    """Judge every distinct call of a plan; verdicts are cached by the text of driver, model and court, the design, and the call."""
    courts = {t.name: CallCourt(t) for t in plan.targets}
    issued: dict[tuple[Any, ...], tuple[Offload, dict[str, Any], Stay | None, list[str]]] = {}
    for o in plan.offloads:
        for sizes, stay in _calls(plan, o):
            key = o.mapping.name, tuple(sizes.items()), _stay_key(stay)
            _, _, _, offloads = issued.setdefault(key, (o, sizes, stay, []))
            if o.id not in offloads:
                offloads.append(o.id)
    calls = []
    for o, sizes, stay, offloads in issued.values():
        progress(f"{o.id}: {sizes_text(sizes)}")
        verdict = _cached(courts[o.target.name], o.mapping, sizes, stay, cache)
        calls.append(ValidatedCall(o.mapping.name, sizes, stay, tuple(offloads), verdict))
    return tuple(calls)


def _calls(plan: Plan, o: Offload) -> Iterator[tuple[dict[str, Any], Stay | None]]:
    """Yield the sizes of each call of an offload, and where its tensors lie; constants that last are there already."""
    residency = plan.residency.get(o.target.name)
    stays = residency.stays[o.id] if residency is not None else ()
    lasting = residency.lasting[o.id] if residency is not None else ()
    for n, slices in enumerate(o.tiling.slices()):
        tile = {d: s.stop - s.start for d, s in slices.items()}
        stay = replace(stays[n], present=stays[n].present | lasting[n], kept=frozenset()) if stays else None
        yield with_results(o.mapping, {**tile, **dict(o.node.attributes)}), stay if stay is not None and stay.at else None


def _stay_key(stay: Stay | None) -> tuple[Any, ...]:
    return () if stay is None else (tuple(sorted(stay.at.items())), tuple(sorted(stay.present)))


def _cached(court: CallCourt, m: Mapping, sizes: MappingOf[str, Any], stay: Stay | None, cache: Cache) -> CallVerdict:
    text = repr((sorted(sizes.items()), _stay_key(stay)))
    key = call_key(court.target, m.variant, hashlib.sha256(text.encode()).hexdigest()) if court.target.sources else ""
    record = cache.get(key) if key else None
    if record is None:
        verdict = _in_every_order(court, m, sizes, stay)
        record = {"name": m.name, "verdict": verdict.method, "reason": verdict.reason, "unproved_control": list(verdict.unproved_control)}
        if key:
            cache.put(key, record)
    return CallVerdict(Method(record["verdict"]), str(record["reason"]), tuple(record["unproved_control"]))


def _in_every_order(court: CallCourt, m: Mapping, sizes: MappingOf[str, Any], stay: Stay | None) -> CallVerdict:
    """Judge one call; beside a proof, which runs its instructions in one order, a strict draw says what the device refuses of the stream.

    That is what is read unwritten, tokens that nothing takes, fields too wide, and results that depend on the order of the queues: none of
    them depends on the codes.
    """
    verdict = court.verdict(m, sizes, stay)
    if not verdict.is_symbolic:
        return verdict
    try:
        example = code_difference(m, court.target.ila(), sizes, SEED, stay, draws=1)
    except FlexmatchError as error:
        return replace(verdict, method=Method.NONE, reason=f"the device refuses the stream: {error.problem.sentence}")
    return verdict if example is None else replace(verdict, method=Method.NONE, reason=f"driver and numerics differ: {example}")


def problems_of(calls: tuple[ValidatedCall, ...], place: str) -> list[Problem]:
    """Return a problem for each call on which driver and numerics differ."""
    remedy = "correct the driver; flexmatch check NAME runs it at small sizes, too"
    refuted = (c for c in calls if c.verdict.method is Method.NONE)
    return [Problem("I105", f"{c.name} ({', '.join(c.offloads)}): {c.verdict.reason}", place, remedy) for c in refuted]


def validation_document(calls: tuple[ValidatedCall, ...]) -> list[dict[str, Any]]:
    """Return validated calls as JSON."""
    return [
        {
            "call": c.name, "offloads": list(c.offloads), "by": c.verdict.method.value, "why_not_more": c.verdict.reason,
            "unproved_control": list(c.verdict.unproved_control),
        }
        for c in calls
    ]  # fmt: skip
