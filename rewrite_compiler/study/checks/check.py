"""check: every problem of a target, a rule file, an accelerator model or a model, in one go; what a plan's arithmetic may lose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from dataclasses import replace as changed
from enum import StrEnum
from pathlib import Path
from typing import Any

from ...compile.document import is_plan, read_plan
from ...data import Samples
from ...errors import FlexmatchError, Problem, UsageError
from ...ila import Ila
from ...ila.verification.check import Check
from ...ila.verification.check import check as check_ila
from ...limits import DEFAULT, Limits
from ...prove.certificates.shipped_certificates import certificate_of_operation
from ...prove.mappings.limit_edges import capacity_edges, limit_corners
from ...prove.mappings.mappings import code_difference, numeric_sizes, omissions
from ...prove.rules.rules import prove_rule
from ...prove.verdict import PROVED
from ...public_calls import CALLBACK_OF_NAME, COUNT, FILES, LIMITS, NATURAL, SHAPES, ArgumentKind, public
from ...rewrite.rule import Rule
from ...rewrite.ruleset import rules_in
from ...rewrite.user_file import module_at, user_line
from ...target import Macro, Mapping, Target, find_target
from .accuracy import BINADES, GROUPS, SEED, Accuracy, accuracy, accuracy_sizes
from .architecture import architecture_problems
from .capacity import contradictions, is_admitted, sizes_text
from .function_calls import function_problems
from .golden import ReplayResult, replay
from .model_problems import model_problems
from .plan_arithmetic import PlanArithmetic, arithmetic_document, plan_arithmetic

Progress = Callable[[str], None]
SCHEMA = "flexmatch.check/1"


class Kind(StrEnum):
    """The kind of a check's subject."""

    TARGET = "target"
    """An accelerator: its model, resources, golden vectors and mappings."""
    RULES = "rules"
    """A Python file of rewrite rules."""
    ILA = "ila"
    """A Python file of accelerator models without a target."""
    MODEL = "model"
    """An ONNX model."""
    PLAN = "plan"
    """A plan that compile wrote: what its arithmetic may lose, and the conditions of its laws' grades."""


@dataclass(frozen=True)
class CheckResult:
    """The subject of a check, its kind, and every problem of it."""

    subject: str
    kind: Kind
    problems: tuple[Problem, ...]
    ila: Check | None = None
    golden: ReplayResult | None = None
    accuracies: tuple[Accuracy, ...] = ()
    rules: tuple[str, ...] = ()
    parameters: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    arithmetic: PlanArithmetic | None = None
    macros: tuple[Macro, ...] = ()  # of a target: commands that are written by hand, each with its reason

    @property
    def is_good(self) -> bool:
        """Tell whether there is no problem."""
        return not self.problems


def kind_of(subject: str) -> Kind:
    """Return what a subject is: a file of Python by what it defines.

    Raises:
        UsageError: (F101) there is no such file.
        FlexmatchError: the file cannot be loaded.
    """
    name = subject.partition(":")[0]
    if Path(name).suffix != ".py":
        return Kind.MODEL if "/" in name or Path(name).exists() or Path(name).suffix in (".onnx", ".json") else Kind.TARGET
    module = module_at(Path(name), "target", "F101")
    if any(isinstance(v, Target) for v in vars(module).values()):
        return Kind.TARGET
    return Kind.RULES if any(rules_in(module)) else Kind.ILA


@public(
    "check", subject=ArgumentKind("the name of a target or the path of a file", (str, Path)), groups=COUNT, seed=NATURAL, shapes=SHAPES,
    limits=LIMITS, progress=CALLBACK_OF_NAME, rules=FILES,
)  # fmt: skip
def check(
    subject: str | Path,
    *,
    groups: int = GROUPS,
    seed: int = SEED,
    shapes: dict[str, tuple[int, ...]] | None = None,
    limits: Limits = DEFAULT,
    progress: Progress | None = None,
    data: Samples | None = None,
    accel: Sequence[Target | str] = (),
    rules: Sequence[Path] = (),
) -> CheckResult:
    """Check a target by name, a Python or ONNX file, or a plan; each operation on `groups` times ten random inputs.

    Of a plan `arithmetic` has what rounding may cost it beside its model on samples of `data`, else on one random input; `accel` and
    `rules` are accelerators and rule files of yours that it was made with.

    Raises:
        UsageError: F203, `data`, `accel` or `rules` is given for what is no plan.
    """
    subject = str(subject)
    report, (name, _, _) = progress or (lambda _: None), subject.partition(":")
    path = Path(name)
    is_a_plan = path.is_file() and is_plan(path)
    for argument, is_given in (("data", data is not None), ("accel", bool(accel)), ("rules", bool(rules))):
        if not is_a_plan and is_given:
            raise UsageError("F203", f"{argument} has no effect on {name}, which is no plan", help=f"leave {argument} out")
    if path.suffix == ".py":
        return _file(subject, path, groups, seed, report)
    if is_a_plan:
        plan = read_plan(path, accel, limits, rules=rules)
        return CheckResult(name, Kind.PLAN, (), arithmetic=plan_arithmetic(plan, data, limits))
    if "/" in name or path.exists() or path.suffix in (".onnx", ".json"):
        return CheckResult(name, Kind.MODEL, tuple(model_problems(path, shapes, limits)))
    return check_target(find_target(subject), groups=groups, seed=seed, progress=report)


def _file(subject: str, path: Path, groups: int, seed: int, progress: Progress) -> CheckResult:
    """Check what a Python file defines: a target, else rules, else accelerator models."""
    try:
        module = module_at(path, "target", "F101")
    except UsageError:
        raise
    except FlexmatchError as error:
        return CheckResult(subject, Kind.RULES, (error.problem,))
    values = list(vars(module).values())
    if any(isinstance(v, Target) for v in values):
        return check_target(find_target(subject), path, groups=groups, seed=seed, progress=progress)
    rules = tuple(rules_in(module))
    if rules:
        return check_rules(subject, rules, progress)
    models = [(v, check_ila(v)) for v in values if isinstance(v, Ila)]
    if models:
        problems = [p for v, c in models for p in (c.problems or architecture_problems(v, None))]
        return CheckResult(subject, Kind.ILA, tuple(problems), models[0][1])
    raise UsageError("F203", f"{path} defines no target, no rule and no accelerator model", help="flexmatch check NAME_OR_PATH")


def check_rules(subject: str, rules: tuple[Rule, ...], progress: Progress = lambda _: None) -> CheckResult:
    """Judge every rule, and check that their names differ."""
    problems = []
    names: dict[str, Rule] = {}
    for r in rules:
        progress(r.name)
        first = names.setdefault(r.name, r)
        if first is not r:
            problems.append(Problem("R104", f'there are two rules called "{r.name}"', r.place, f"the first is at {first.place}"))
        problem = prove_rule(r).problem
        problems += [problem] if problem is not None else []
    return CheckResult(subject, Kind.RULES, tuple(problems), rules=tuple(names))


def check_target(
    target: Target, path: Path | None = None, *, groups: int = GROUPS, seed: int = SEED, progress: Progress = lambda _: None
) -> CheckResult:
    """Check decodes, widths and binding times of a target's model, its golden vectors, and every mapping."""
    if path is not None and not target.sources:
        target = changed(target, sources=(path,))
    target = target.configured({})
    progress("decodes")
    try:
        ila = target.ila()
    except FlexmatchError as error:
        others = [p for m in target.mappings.values() for p in function_problems(m, target, None)]
        return CheckResult(target.name, Kind.TARGET, (error.problem, *others), parameters=target.values, seed=seed)
    verdict = check_ila(ila)
    problems = list(verdict.problems)
    progress("golden vectors")
    golden = replay(target, ila)
    if golden is not None:
        problems += [
            Problem("I110", f"vector {n} of {target.name}: {difference}", str(golden.folder))
            for n, difference in golden.differences.items()
        ]
    accuracies = []
    try:
        resources = target.resources()
        problems += [] if problems else architecture_problems(ila, resources)
    except FlexmatchError as error:
        problems.append(error.problem)
    for m in target.mappings.values():
        progress(m.name)
        wrong, sizes, mapping_problems = function_problems(m, target, ila), accuracy_sizes(m), list(_missing_parts(m))
        can_run = {*wrong.values()}.isdisjoint(("limits", "formats", "driver"))
        try:
            mapping_problems += _mapping_problems(m, ila, target, compares="numerics" not in wrong.values()) if can_run else ()
            is_run = can_run and m.drive is not None and is_admitted(m, sizes)  # sizes that its limits refuse are a problem already
            accuracies += [accuracy(m, ila, sizes, groups=groups, seed=seed, binades=BINADES)] if is_run else []
        except FlexmatchError as error:
            mapping_problems.append(error.at(m.rule.place).problem)
        except Exception as error:  # the driver and the numerics are code of the target
            mapping_problems.append(_driver_problem(m, error))
        problems += dict.fromkeys([*mapping_problems, *wrong])
    return CheckResult(
        target.name, Kind.TARGET, tuple(problems), verdict, golden, tuple(accuracies), parameters=target.values, seed=seed,
        macros=tuple(target.macros.values()),
    )  # fmt: skip


def _driver_problem(m: Mapping, error: Exception) -> Problem:
    """Return the problem of an exception that came through the target's own code; any other one is a mistake here."""
    place = user_line(m.rule.place, error)
    if not place.rpartition(":")[2].isdigit():
        raise error
    sentence = f"the driver or the numerics of {m.name} end with {type(error).__name__}: {error}"
    return Problem("I104", sentence, place, "correct the line, or narrow the mapping's Where or limits to the sizes that it takes")


def _mapping_problems(m: Mapping, ila: Ila, target: Target, *, compares: bool) -> Iterator[Problem]:
    """Yield what is wrong with one mapping: capacities, and codes that differ from the numerics where it `compares` them."""
    if m.drive is None or m.codes is None:
        return
    refused = list(contradictions(m, ila))
    yield from refused
    if refused or not compares or not is_admitted(m, accuracy_sizes(m)):
        return
    for sizes in _compared_sizes(m, target):
        try:
            example = code_difference(m, ila, sizes)
        except FlexmatchError as error:
            yield error.at(m.rule.place).problem
            return
        if example is not None:
            at = f"{sizes_text(sizes)}{omissions(m, ila, sizes)}"
            sentence = f"driver and numerics of {m.name} differ at {at}: {example}"
            yield Problem("I105", sentence, m.rule.place, "correct the driver, or where its codes are right, the numerics")
            return


def _missing_parts(m: Mapping) -> Iterator[Problem]:
    """Yield the parts that a mapping lacks."""
    for part, part_name in ((m.drive, "driver"), (m.codes, "numerics")):
        if part is None:
            yield Problem("I104", f"{m.name} has no {part_name}", m.rule.place, f"decorate a function with @{m.variant}.{part_name}")


def _compared_sizes(m: Mapping, target: Target) -> Iterator[MappingOf[str, Any]]:
    """Yield the sizes at which codes are compared, each once: of an operation without a proof trials and corners of its limits, too."""
    certificate = certificate_of_operation(target, m.variant)
    is_proved = certificate is not None and certificate.verdict == PROVED
    more_sizes = () if is_proved else (*numeric_sizes(m), *limit_corners(m), *capacity_edges(m))
    compared: list[MappingOf[str, Any]] = []
    for sizes in (accuracy_sizes(m), *more_sizes):
        if dict(sizes) not in compared and is_admitted(m, sizes):
            compared.append(dict(sizes))
            yield sizes


def check_document(result: CheckResult) -> dict[str, Any]:
    """Return a check as JSON."""
    return {
        "schema": SCHEMA,
        "subject": result.subject,
        "kind": result.kind,
        "parameters": result.parameters,
        "good": result.is_good,
        "problems": [vars(p) for p in result.problems],
        "ila": None if result.ila is None else _decodes(result.ila),
        "golden": None if result.golden is None else _golden(result.golden),
        "mappings": [_accuracy(a) for a in result.accuracies],
        "macros": [{"name": m.name, "reason": m.reason} for m in result.macros],
        "rules": list(result.rules),
        "seed": result.seed,
        **({} if result.arithmetic is None else arithmetic_document(result.arithmetic)),
    }


def _decodes(c: Check) -> dict[str, Any]:
    return {"instructions": c.instructions, "decodes_disjoint": c.decodes_disjoint, "undecoded_ranges": len(c.holes)}


def _golden(g: ReplayResult) -> dict[str, Any]:
    return {"run": len(g.names), "equal": len(g.names) - len(g.differences), "of_other_designs": g.other_designs}


def _accuracy(a: Accuracy) -> dict[str, Any]:
    figures = {
        kind: {"mean": e.mean, "deviation": e.deviation, "largest": e.worst}
        for kind, e in (("drawn", a.drawn_errors), ("held", a.held_errors), ("rounded", a.rounded_errors))
    }
    return {
        "name": a.name,
        "sizes": {n: list(v) if isinstance(v, tuple) else v for n, v in a.sizes.items()},
        "operands": dict(a.inputs),
        "inputs": len(a.drawn_errors.values),
        "relative_error": figures,
        "binades": {str(k): error for k, error in a.binades.items()},
    }
