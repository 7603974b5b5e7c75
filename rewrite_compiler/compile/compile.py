"""The compiler driver: import a model, match and extract offloads, judge the operations used, and write the plan."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingOf
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..data import SAMPLES, Samples, check_existence, single_samples
from ..egraph.extraction.extract import ExtractionStatus
from ..egraph.graph.outcome import Saturation, StopReason
from ..egraph.saturation.explanation import BirthRule, Explainer
from ..egraph.saturation.rule_text import rule_text
from ..egraph.saturation.saturate import start_children
from ..errors import TARGET_FORMS, AnswerNo, BudgetError, UsageError, each_of
from ..fit import Refusal, Tiling
from ..fit.cost import price_with_overlap
from ..fit.host import SHIPPED, HostTable, host_document, picoseconds_of
from ..frontend.exporters import LibraryModel, as_onnx
from ..frontend.load import LoadedModel, Model, load
from ..garbage import rare_collection
from ..ir.program import Node, Program, total_macs
from ..limits import DEFAULT, Limits, compact_repr
from ..ops.op import Apply, subterms
from ..prove.certificates.operations import Progress
from ..prove.certificates.shipped_certificates import Certificate, coverage_of
from ..public_calls import CALLBACK_OF_NAME, FILES, FLAG, LIMITS, NAME, NAMES, SHAPES, ArgumentKind, public, public_record
from ..rewrite.rule import Rule, short_place
from ..rewrite.ruleset import LOWERING, lowering_rules, shipped_rules
from ..target import Mapping, Target, body_of, find_target
from .explanation.egraph_statistics import back_off_notes, egraph_document, rule_seconds
from .explanation.host_reasons import HostReasons
from .explanation.law_routes import RULESETS
from .matching.match import MatchResult, case_of, match, offloads_as_written, spelling_rules
from .matching.objective import OFFLOADS, Objective, comparable_mappings, objective_for
from .matching.pins import HOST, NO_PINS, Pins, pins_of, require_pins, unmet_pin
from .matching.recurrences import RECURRENT, unroll_recurrences
from .operating import calibrated_within_range
from .plan.accounting import account
from .plan.application_time import picoseconds_of_sources
from .plan.lowered_counts import are_lowered
from .plan.plan import Offload, Plan, Reason
from .plan.residency import residencies
from .plan.step_certificates import CertificateLookup
from .plan.user_rules import admit_rules, judge_used_operations
from .rescaling import rescaled


@public_record(
    "flexmatch.compile.Options", exact=FLAG, shapes=SHAPES, only=NAMES, without=NAMES, rules=FILES, trusted=NAMES, limits=LIMITS,
    objective=NAME, host=ArgumentKind("a HostTable", (HostTable,)), on=NAMES, scaled=NAMES,
)  # fmt: skip
@dataclass(frozen=True)
class Options:
    """The settings of a compilation."""

    exact: bool = False
    shapes: MappingOf[str, tuple[int, ...]] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    rules: tuple[Path, ...] = ()  # rule files; their rules are judged before use
    trusted: tuple[str, ...] = ()  # names of rules of these files, and of operations, to use without a proof
    limits: Limits = DEFAULT
    objective: str = "offloads"
    host: HostTable = SHIPPED  # costs of operators on the host
    on: tuple[str, ...] = ()  # pins PLACE=NODE, where the place is a target's name or `host`
    scaled: tuple[str, ...] = ()  # offloads on scaled operands, `layer_norm_0: x-3` for x · 2^-3

    def __repr__(self) -> str:
        """Return the settings that differ from their defaults."""
        return compact_repr(self)


@public(
    "compile", "options", options=ArgumentKind("flexmatch.compile.Options", (Options,)), calibrate=SAMPLES,
    calibration_method=NAME, progress=CALLBACK_OF_NAME,
)  # fmt: skip
@rare_collection()
def compile_model(
    model: Model | LibraryModel, accel: str | Path | Target | Sequence[str | Path | Target], options: Options = Options(), *,
    example_inputs: object = None, calibrate: Samples | None = None, calibration_method: str = "", progress: Progress | None = None,
) -> Plan:  # fmt: skip
    """Return the plan of a model for one or several accelerators.

    The model is an ONNX file, its bytes or ModelProto, or a model of torch, Keras or scikit-learn, which that library's exporter
    turns into ONNX; `example_inputs` are what a torch.nn.Module is called with: one tensor, a tuple, or a dict by parameter name.
    An accelerator is a name, `name:key=value,…`, the path of a Python file, or a Target. `calibrate` are samples, or the file of
    samples, that fix the number formats; without it the plan has none yet. Operations that the plan uses and that have no
    certificate are judged first, and `progress` is called with their names. With samples, offloads that are far off at their
    magnitudes compute on scaled operands where a proved law mends that, and those no nearer than zeros stay on the host.

    Raises:
        UsageError: (F201, F202, F203) a target, mapping, rule, objective, pin or calibration method does not exist.
        InputError: the model, or the samples, cannot be read; (F107) the model cannot be exported; (C100, C102) there are no samples,
            or values that are not finite.
        AnswerNo: (R102, R103) a rule of a file is not proved; (I105) an operation is refuted; (F216) a pin cannot be kept.
        BudgetError: (F210) saturation ended before its first round.
    """
    if calibration_method and calibrate is None:
        raise UsageError("F203", "calibration_method has no effect without samples", help="give calibrate=…")
    check_existence(calibrate)
    targets = chosen_targets(accel, options.limits)
    model = as_onnx(model, example_inputs)
    plan = _uncalibrated_plan(model, targets, options, calibrate, progress or (lambda _: None))
    return plan if calibrate is None else calibrated_within_range(plan, calibrate, method=calibration_method, limits=options.limits)


def _uncalibrated_plan(model: Model, targets: Sequence[Target], options: Options, calibrate: Samples | None, progress: Progress) -> Plan:
    """Return the plan without formats; of `calibrate` only the batch size is used."""
    start_time = time.perf_counter()
    start_children(2)  # one for the plan, one for the exact counts
    imported = load(model, options.shapes, options.limits)
    shapes = {} if options.shapes else single_samples(imported.program, calibrate, options.limits)
    if shapes:
        options = replace(options, shapes=shapes)
        imported = load(model, shapes, options.limits)
    load_time = time.perf_counter()
    space = search_space(targets, options)
    rules, mappings, objective = space.rules, space.mappings, space.objective
    applied_rules = spelling_rules(rules) if options.exact else rules
    pins = pins_of(options.on, imported.program, targets)
    with ThreadPoolExecutor(1) as pool:
        exact_future = pool.submit(offloads_as_written, imported.program, spelling_rules(rules), mappings, options.limits, objective)
        match_result = _match_pinned(imported.program, applied_rules, mappings, options, objective, pins)
        program, match_result = cheaper_in_steps(imported.program, match_result, replace(space, rules=tuple(applied_rules)), options, pins)
        exact = exact_future.result()
    imported = replace(imported, program=program)
    match_time = time.perf_counter()
    by_name = {m.name: m for m in mappings}
    used_operations = judge_used_operations(
        {by_name[n.op] for n in match_result.program.nodes if n.op in by_name}, targets, options.trusted, progress
    )
    judge_time = time.perf_counter()
    certified = CertificateLookup({**space.certificates, **used_operations.certificates})
    plan = _plan(imported, targets, applied_rules, mappings, match_result, exact, options, objective, certified)
    end_time = time.perf_counter()
    seconds = {"load": load_time - start_time, "match": end_time - load_time - (judge_time - match_time), "judge": judge_time - match_time}
    run = {"seconds": {name: round(s, 3) for name, s in seconds.items()}, "egraph_kept": match_result.saturation.is_cached}
    if objective.mapped_costs:
        run["mapper"] = {"products": objective.mapped.products, "searched": objective.mapped.searched}
    run["rule_seconds"] = rule_seconds(match_result.saturation, applied_rules, mappings)
    notes = (*plan.notes, *space.notes, *objective.refusal_notes, *used_operations.notes)

    def compile_again(on: tuple[str, ...], scaled: tuple[str, ...]) -> Plan:
        return _uncalibrated_plan(model, targets, replace(options, on=on, scaled=scaled), None, progress)

    plan = replace(plan, run=run, notes=notes, compile_again=compile_again)
    return rescaled(plan, options.scaled, objective.resources)


@dataclass(frozen=True)
class SearchSpace:
    """The search space of a compilation: rules, mappings and the objective, with notes and the certificates of rules from files."""

    rules: tuple[Rule, ...]
    mappings: Sequence[Mapping]
    objective: Objective
    notes: tuple[str, ...] = ()
    certificates: MappingOf[str, Certificate] = field(default_factory=dict)  # of rules from files, by name


def cheaper_in_steps(
    p: Program, match_result: MatchResult, space: SearchSpace, options: Options, pins: Pins = NO_PINS
) -> tuple[Program, MatchResult]:
    """Return a program and its match; recurrences left on the host are unrolled if that makes the match cheaper.

    Raises:
        BudgetError: (F210) saturation crashed before its first round.
        AnswerNo: (F216) a pin cannot be kept.
    """
    operators = {x.op.name for m in space.mappings for x in subterms(m.rule.left) if isinstance(x, Apply)}
    takes_products = "dense" in operators or ("conv" in operators and _uses_lowerings(options))
    steps = unroll_recurrences(p, match_result.program.nodes) if takes_products and not options.exact else None
    if steps is None:
        return p, match_result
    alternative = _match_pinned(steps, space.rules, space.mappings, options, space.objective, pins)
    names, recurrent = {m.name for m in space.mappings}, {s for n in match_result.program.nodes if n.op in RECURRENT for s in n.origins}
    takes_steps = any(n.op in names and n.origins & recurrent for n in alternative.program.nodes)
    is_cheaper = takes_steps and alternative.extraction.cost < match_result.extraction.cost
    return (steps, alternative) if is_cheaper else (p, match_result)


def search_space(targets: Sequence[Target], options: Options) -> SearchSpace:
    """Return the search space of a compilation; rules of files are judged first.

    Raises:
        UsageError: (F203) a mapping, rule, trusted name or objective does not exist.
        AnswerNo: (R102, R103) a rule of a file is refuted or not proved.
    """
    operations = {m.name for t in targets for m in t.mappings.values()}
    court = admit_rules(shipped_rules(), _rule_files(options), options.trusted, options.limits, operations)
    objective = replace(objective_for(options.objective, targets, options.host), runtime_weights=_uses_lowerings(options))
    selected = _mappings(targets, options, court.rules)
    if not _uses_lowerings(options):
        selected = [m for m in selected if not m.runtime_weights]
    mappings, unpriced = comparable_mappings(selected, objective)
    rules = tuple(r for r in court.rules if r.name not in options.without)
    return SearchSpace(rules, mappings, objective, (*court.notes, *unpriced), court.certificates)


def _rule_files(options: Options) -> tuple[Path, ...]:
    """Return the rule files, with the lowerings for every objective that prices the host, too; for the others only on request."""
    lowering = Path(LOWERING)
    weighs = options.objective not in (OFFLOADS.name, "edp") and not options.exact
    return (*options.rules, lowering) if weighs and lowering not in options.rules else options.rules


def _uses_lowerings(options: Options) -> bool:
    """Tell whether lowerings are used, and with them the operations that write weights at run time."""
    return Path(LOWERING) in _rule_files(options)


def _match_pinned(
    p: Program, rules: Sequence[Rule], mappings: Sequence[Mapping], options: Options, objective: Objective, pins: Pins
) -> MatchResult:
    """Return the cheapest program that satisfies all pins; refuse (F216) with the reason of the first that cannot be satisfied."""
    by_name = {m.name: m for m in mappings}
    try:
        match_result = match(p, rules, mappings, options.limits, objective, pins)
        require_pins(pins, p, match_result.program, by_name)
    except (BudgetError, AnswerNo) as error:
        if not pins.place or error.problem.code == "F210":
            raise
    else:
        return match_result
    free = match(p, rules, mappings, options.limits, objective)
    ids = _ids([n for n in free.program.nodes if n.op in by_name], by_name)
    reasons = HostReasons(free.program, mappings, free.fitted, objective, names_pins=False, rules=rules)
    host_reasons = {h.node: h.why_not for h in account(p, free.program, ids, reasons).host}
    requested = [(p.sources[s].name, place) for s, place in pins.place.items()]
    name, place = next(((n, at) for n, at in requested if n in host_reasons and at != HOST), requested[0])
    raise unmet_pin(name, place, host_reasons.get(name, "no program has all pinned nodes in their places"))


def chosen_targets(accel: str | Path | Target | Sequence[str | Path | Target], limits: Limits | None = None) -> tuple[Target, ...]:
    """Return the configured targets of one or several accelerators.

    Raises:
        UsageError: (F201) there is none; (F202) two have one name.
    """
    listed = each_of(accel, (str, Path, Target), "an accelerator", TARGET_FORMS)
    targets = tuple(t.configured({}) if isinstance(t, Target) else find_target(str(t), limits) for t in listed)
    if not targets:
        raise UsageError("F201", "no accelerator is given", help="add --accel NAME; `flexmatch list` shows the names")
    names = [t.name for t in targets]
    for n in names:
        if names.count(n) > 1:
            raise UsageError("F202", f'two targets are called "{n}"', help="give each accelerator once")
    return targets


def _mappings(targets: Sequence[Target], options: Options, rules: Sequence[Rule]) -> list[Mapping]:
    mappings = [m for t in targets for m in t.mappings.values()]
    visible_names = {x for m in mappings for x in (m.name, m.variant, m.operation)} | {r.name for r in rules}
    for name in (*options.only, *options.without):
        if name not in visible_names:
            raise UsageError("F203", f'there is no mapping or rule called "{name}"', help="`flexmatch list` shows the names")
    return [m for m in mappings if _is_selected(m, options.only, empty=True) and not _is_selected(m, options.without, empty=False)]


def _is_selected(m: Mapping, names: Sequence[str], *, empty: bool) -> bool:
    return bool({m.name, m.variant, m.operation} & set(names)) if names else empty


def _plan(
    model: LoadedModel, targets: Sequence[Target], rules: Sequence[Rule], mappings: Sequence[Mapping],
    match_result: MatchResult, exact: Sequence[Mapping], options: Options, objective: Objective, certified: CertificateLookup,
) -> Plan:  # fmt: skip
    by_name = {m.name: m for m in mappings}
    devices = [n for n in match_result.program.nodes if n.op in by_name]
    ids, lowered = _ids(devices, by_name), are_lowered(model.program, devices, by_name)
    unselected = [] if _uses_lowerings(options) else [m for t in targets for m in t.mappings.values() if m.runtime_weights]
    reasons = HostReasons(
        match_result.program, mappings, match_result.fitted, objective, as_written=options.exact, unselected=unselected, rules=rules,
        lowerings=() if _uses_lowerings(options) else lowering_rules(),
    )  # fmt: skip
    accounting = account(model.program, match_result.program, ids, reasons)
    rule_reasons = _Reasons(match_result, rules, mappings, certified)
    host_times = picoseconds_of_sources(model.program, accounting.offloads, objective.host)
    offloads = tuple(
        _offload(key, node, nodes, by_name[node.op], targets, match_result, rule_reasons, objective, host_time)
        for (key, node), nodes, host_time in zip(ids.items(), accounting.offloads, host_times, strict=True)
    )
    return Plan(
        model={"path": str(model.path), "sha256": model.sha256, "ops": len(model.program.sources), "opset": model.file_opset},
        source=model.program, program=match_result.program, targets=tuple(targets), offloads=offloads,
        host=accounting.host, absorbed=accounting.absorbed,
        rules_sha256=_digest_of_rules(tuple(rules)),
        counts=_counts(targets, (by_name[n.op] for n, is_lowered in zip(devices, lowered, strict=True) if not is_lowered)),
        lowered_counts=_counts(targets, (by_name[n.op] for n, is_lowered in zip(devices, lowered, strict=True) if is_lowered)),
        exact_counts=_counts(targets, exact),
        egraph=egraph_document(match_result.saturation, rules, mappings), extraction=_extraction_document(match_result, objective),
        settings=_settings_document(options), limited=_limits_reached(match_result, rules),
        notes=(*model.program.notes, *back_off_notes(match_result.saturation, rules)),
        residency=residencies(match_result.program, offloads, objective.resources),
    )  # fmt: skip


@lru_cache(maxsize=RULESETS)
def _digest_of_rules(rules: tuple[Rule, ...]) -> str:
    return hashlib.sha256("\n".join(rule_text(r, n) for n, r in enumerate(rules)).encode()).hexdigest()


def _ids(devices: Sequence[Node], mappings: MappingOf[str, Mapping]) -> dict[str, Node]:
    """Number device operations in program order: linear_0, linear_1, …, with the target's name where two targets share an operation."""
    targets_of: dict[str, set[str]] = {}
    for m in mappings.values():
        targets_of.setdefault(m.operation, set()).add(m.target)
    ids: dict[str, Node] = {}
    numbers: dict[str, int] = {}
    for node in devices:
        m = mappings[node.op]
        stem = f"{m.target}_{m.operation}" if len(targets_of[m.operation]) > 1 else m.operation
        ids[f"{stem}_{numbers.get(stem, 0)}"] = node
        numbers[stem] = numbers.get(stem, 0) + 1
    return ids


def _offload(
    key: str, node: Node, nodes: tuple[str, ...], m: Mapping, targets: Sequence[Target], match_result: MatchResult, rule_reasons: _Reasons,
    objective: Objective, host_time: int,
) -> Offload:  # fmt: skip
    types = [match_result.program.types[v] for v in node.inputs]
    shapes = tuple(t.shape for t in types)
    tiling = match_result.fitted[case_of(m, types, dict(node.attributes))]
    assert isinstance(tiling, Tiling)
    body = body_of(m, types, dict(node.attributes))
    offload_price = price_with_overlap(m, tiling, dict(node.attributes), objective.resources.get(m.target), objective.host)
    mapped_cost = objective.mapped_cost(m, types, dict(node.attributes)) if objective.is_mapped(m) else None
    assert not isinstance(mapped_cost, Refusal), "a refused operation is not chosen"
    target = next(t for t in targets if t.name == m.target)
    return Offload(
        key,
        target,
        m,
        node,
        nodes,
        shapes,
        total_macs(body),
        rule_reasons.reasons_of(node),
        tiling,
        {} if m.format_choices else m.formats_for({}),  # a quantised model has its own
        offload_price,
        min(picoseconds_of(body, None, objective.host), host_time) if nodes else picoseconds_of(body, None, objective.host),
        mapped_cost,
    )


class _Reasons:
    """The rules behind offloads: those that made the e-node, the e-nodes it was matched from, and the ones below."""

    def __init__(self, match_result: MatchResult, rules: Sequence[Rule], mappings: Sequence[Mapping], certified: CertificateLookup) -> None:
        self.births: list[Rule | Mapping] = [*rules, *mappings]
        self.certified = certified
        self.reasons: dict[int, Reason] = {}
        self.explainer = Explainer(
            match_result.saturation.graph, match_result.extraction.choice, [*map(BirthRule, rules), *map(_maker, mappings)]
        )
        self.e_nodes = match_result.e_nodes

    def reasons_of(self, node: Node) -> tuple[Reason, ...]:
        return tuple(self._reason(b) for b in self.explainer.births(self.e_nodes[node.outputs[0]]))

    def _reason(self, birth: int) -> Reason:
        if birth not in self.reasons:
            step = self.births[birth]
            at, grade = (short_place(step.rule.place), "E") if isinstance(step, Mapping) else (short_place(step.place), step.full_grade)
            c = self.certified.of_operation(step) if isinstance(step, Mapping) else self.certified.of_rule(step)
            measured = () if c is None else (c.ulp, c.share_of_rounding, c.error_bound_ratio)
            self.reasons[birth] = Reason(step.name, at, grade, coverage_of(c), *measured)
        return self.reasons[birth]


def _maker(m: Mapping) -> BirthRule:
    return BirthRule(m.rule, tuple(v.name for v in m.operands), tuple(name for name, _ in m.statics))


def _counts(targets: Sequence[Target], mappings: Iterable[Mapping]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {t.name: {} for t in targets}
    for m in mappings:
        counts[m.target][m.operation] = counts[m.target].get(m.operation, 0) + 1
    return counts


def _extraction_document(match_result: MatchResult, objective: Objective) -> dict[str, Any]:
    e, levels = match_result.extraction, objective.levels
    return {
        "objective": objective.name, "cost": dict(zip(levels, e.cost, strict=True)), "bound": dict(zip(levels, e.bound, strict=True)),
        "gap": e.gap, "status": e.status,
    }  # fmt: skip


def _settings_document(options: Options) -> dict[str, Any]:
    shapes = {name: list(shape) for name, shape in sorted(options.shapes.items())}
    return {
        "exact": options.exact,
        "shapes": shapes,
        "only": list(options.only),
        "without": list(options.without),
        "on": list(options.on),
        "scaled": list(options.scaled),
        "rules": [str(p) for p in options.rules],
        "trusted": list(options.trusted),
        "objective": options.objective,
        "host_costs": host_document(options.host),
    }


def _most_matched(s: Saturation, rules: Sequence[Rule]) -> str:
    """Return the rules with most matches, with their places: the suspects when saturation does not end."""
    first = sorted((r for r in rules if s.matches.get(r.name)), key=lambda r: -s.matches[r.name])[:3]
    most_matched = ", ".join(f"{r.name} ({short_place(r.place)}) {s.matches[r.name]} times" for r in first)
    return f"; most matches: {most_matched}" if most_matched else ""


def _limits_reached(match_result: MatchResult, rules: Sequence[Rule]) -> tuple[str, ...]:
    sentences = []
    if match_result.saturation.reason is not StopReason.SATURATED:
        sentences.append(f"saturation stopped: {match_result.saturation.detail}{_most_matched(match_result.saturation, rules)}")
    if match_result.extraction.status is not ExtractionStatus.OPTIMAL:
        sentences.append(f"extraction is {match_result.extraction.status}, gap {match_result.extraction.gap:.4f}")
    bounded_cases = [case[0] for case, fit in match_result.fitted.items() if isinstance(fit, Tiling) and fit.bound is not None]
    if bounded_cases:
        sentences.append(f"tilings not proved cheapest: {len(bounded_cases)} of {', '.join(sorted(set(bounded_cases)))}")
    return tuple(sentences)


__all__ = ["Options", "chosen_targets", "compile_model"]
