"""learn: rewrite rules that models need and the rule set lacks, enumerated and certified.

Fragments are pairs of adjacent operators in the e-graph of a model, and single ones; those that share operators with the
pattern of a mapping come first. Right sides are terms of a fixed vocabulary (`vocabulary.py`) over the fragment's variables
that agree with it on small random data. Those that make the programs cheaper (fewer host multiply-accumulates, fewer host
operators, …) are judged, and only those that are proved are returned.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...compile import Options, chosen_targets
from ...compile.matching.match import MatchResult, match
from ...compile.matching.objective import LEVELS
from ...egraph.graph.graph import EGraph, ENode
from ...egraph.graph.term_rows import operator_named
from ...egraph.saturation.rule_text import compile_rule
from ...errors import FlexmatchError, UsageError
from ...frontend.load import load
from ...ir.program import Data, Program
from ...lang.expr import var
from ...limits import Limits
from ...ops.op import FLOAT, INT, INTS, Apply, ShapeError, Tensor, Variable, subterms
from ...ops.static import Condition, IsConstant, NamedList, as_condition, holds
from ...prove.instances.instance_search import Instance, drawn_instances
from ...prove.instances.sides import binding_of, operands_from, right_shape, same_values, side_values
from ...prove.rules.guard_synthesis import vocabulary as conditions
from ...prove.rules.rules import prove_rule
from ...prove.verdict import Proof
from ...rewrite.rule import Float, Rule, check_bound
from ...rewrite.ruleset import shipped_rules
from ...rewrite.text import rule_text
from ...target import Mapping
from .vocabulary import right_sides

SCHEMA = "flexmatch.learn/1"
MAX_INSTANCES = 10  # instances of a fragment on which right sides are compared
QUICK_INSTANCES = 5  # of them, the first ones: a right side that agrees with none is dropped
MAX_CANDIDATES = 20_000  # right sides tried for a fragment
MAX_JUDGED = 12  # right sides of a fragment that are sent to the court
SECONDS = 600.0  # processor time of a search
NAMES = ("x", "y", "z", "u", "v", "t")
SEED = 11
DEFAULT = Options()


@dataclass(frozen=True)
class Fragment:
    """A pattern found in models: its variables, the guard on their ranks and constancy, and its similarity to a mapping's pattern."""

    left: Apply
    variables: dict[str, object]
    guard: tuple[Condition, ...]
    similarity: int


@dataclass(frozen=True)
class LearnedRule:
    """A proved rule, how many more offloads it gives, and what it saves in words."""

    rule: Rule
    proof: Proof
    gain: int
    savings: str


@dataclass(frozen=True)
class SearchResult:
    """The rules of a search and its statistics."""

    base: int
    fragments: int
    candidates: int
    judged: int
    laws: tuple[LearnedRule, ...]
    seconds: float = field(compare=False, default=0.0)


def learn(
    paths: Sequence[str | Path], accel: Sequence[str], options: Options = DEFAULT, *, seconds: float = SECONDS, max_rules: int = 1
) -> SearchResult:
    """Return so many rules at most that make the programs of models cheaper; `options.without` are shipped rules to do without.

    Raises:
        UsageError: `options.without` names no rule (F203), or there is no such accelerator (F201).
    """
    mappings = [m for t in chosen_targets(accel, options.limits) for m in t.mappings.values()]
    shipped = shipped_rules()
    rule_names = {r.name for r in shipped}
    for name in options.without:
        if name not in rule_names:
            raise UsageError("F203", f'there is no mapping or rule called "{name}"', help="`flexmatch list` shows the names")
    rules = [r for r in shipped if r.name not in options.without]
    programs = [load(p, options.shapes, options.limits).program for p in paths]
    hunt = RuleSearch(programs, rules, mappings, options.limits, seconds)
    laws = tuple(itertools.islice(hunt.laws(), max_rules))
    return SearchResult(hunt.base, hunt.fragments, hunt.candidates, hunt.judged, laws, time.process_time() - hunt.started)


@dataclass
class RuleSearch:
    """A search for rules, one after the other; each is used from then on."""

    programs: Sequence[Program]
    rules: list[Rule]
    mappings: Sequence[Mapping]
    limits: Limits
    seconds: float
    started: float = field(default_factory=time.process_time)
    base: int = 0
    fragments: int = 0
    candidates: int = 0
    judged: int = 0

    def laws(self) -> Iterator[LearnedRule]:
        """Yield the rules that are proved and make the programs cheaper, until the processor time is used up."""
        matches = [match(p, self.rules, self.mappings, self.limits) for p in self.programs]
        best = Worth.of(matches, self.mappings)
        self.base = best.offloads
        fragments = fragments_of([m.saturation.graph for m in matches], self.mappings)
        self.fragments = len(fragments)
        for fragment in fragments:
            laws, count = _laws(fragment)
            self.candidates += count
            for rule in laws:
                if time.process_time() - self.started > self.seconds:
                    return
                worth = self.worth_with(rule)
                if worth.cost >= best.cost:
                    continue
                self.judged += 1
                law, proof = _certified(rule)
                if proof.is_proved:
                    previous, best, self.rules = best, worth, [*self.rules, law]
                    yield LearnedRule(law, proof, best.offloads - previous.offloads, savings_text(previous.cost, best.cost))

    def worth_with(self, *added_rules: Rule) -> Worth:
        """Return the worth of the programs under the rules so far and more."""
        return Worth.of([match(p, [*self.rules, *added_rules], self.mappings, self.limits) for p in self.programs], self.mappings)


@dataclass(frozen=True)
class Worth:
    """The number of offloads of programs, and their cost by the levels of the objective `offloads`."""

    offloads: int
    cost: tuple[int, ...]

    @staticmethod
    def of(matched: Sequence[MatchResult], mappings: Sequence[Mapping]) -> Worth:
        """Return the sum over matched programs."""
        costs = zip(*(m.extraction.cost for m in matched), strict=True)
        return Worth(sum(_offloads(m.program, mappings) for m in matched), tuple(map(sum, costs)))


def savings_text(old_cost: Sequence[int], new_cost: Sequence[int]) -> str:
    """Return the first level of the cost that a rule lowers, in words."""
    level, n = next((name, a - b) for name, a, b in zip(LEVELS, old_cost, new_cost, strict=True) if a != b)
    return f"{n} fewer {level.replace('_', ' ')}"


def _certified(rule: Rule) -> tuple[Rule, Proof]:
    """Return a rule with its proof; where it is false, one of tensors with elements alone."""
    proof = prove_rule(rule)
    if proof.is_proved:
        return rule, proof
    nonempty = [as_condition(x.size > 0) for x in rule.variables.values() if isinstance(x, Variable)]
    guarded = replace(rule, where=(*rule.where, *nonempty))
    return guarded, prove_rule(guarded)


def learned_document(search: SearchResult, models: Sequence[str]) -> dict[str, Any]:
    """Return a search as JSON."""
    laws = [
        {
            "name": x.rule.name, "text": rule_text(x.rule), "verdict": x.proof.verdict, "strength": x.proof.strength,
            "evidence": x.proof.evidence, "gain": x.gain, "saves": x.savings,
        }
        for x in search.laws
    ]  # fmt: skip
    counts = {"offloads": search.base, "fragments": search.fragments, "candidates": search.candidates, "judged": search.judged}
    return {"schema": SCHEMA, "models": list(models), **counts, "laws": laws, "cpu_seconds": round(search.seconds, 1)}


def _offloads(p: Program, mappings: Sequence[Mapping]) -> int:
    names = {m.name for m in mappings}
    return sum(n.op in names for n in p.nodes)


# -- fragments


def fragments_of(graphs: Sequence[EGraph], mappings: Sequence[Mapping]) -> list[Fragment]:
    """Return the fragments of e-graphs, those most similar to a mapping's pattern first."""
    fragments: dict[Any, Fragment] = {}
    patterns = [m.rule.left for m in mappings]
    for graph in graphs:
        for shape in _shapes(graph):
            if shape not in fragments:
                fragments[shape] = _fragment(shape, patterns)
    return sorted(fragments.values(), key=lambda f: -f.similarity)


Place = tuple[Any, ...]  # operator and operands; an operand is a place, or rank and whether it is constant


def _shapes(graph: EGraph) -> Iterator[Place]:
    for c in graph.classes.values():
        for n in c.nodes:
            operator = operator_named(n.op)
            if operator is None or not n.children or operator.outputs != 1 or operator.variadic:
                continue
            leaves = [_leaf(graph, child) for child in n.children]
            if None in leaves:
                continue
            yield (operator.name, tuple(leaves))
            for k, child in enumerate(n.children):
                for node in graph.classes[child].nodes if not graph.classes[child].fixed else ():
                    inner = _inner_shape(graph, node)
                    if inner is not None:
                        yield (operator.name, (*leaves[:k], inner, *leaves[k + 1 :]))


def _leaf(graph: EGraph, number: int) -> Place | None:
    c = graph.classes[number]
    return None if c.type is None else (len(c.type.shape), c.fixed)


def _inner_shape(graph: EGraph, n: ENode) -> Place | None:
    operator = operator_named(n.op)
    if operator is None or not n.children or operator.outputs != 1 or operator.variadic:
        return None
    leaves = [_leaf(graph, child) for child in n.children]
    return None if None in leaves else (operator.name, tuple(leaves))


def _fragment(place: Place, patterns: Sequence[Tensor]) -> Fragment:
    from ...ops.op import OPS

    variables: dict[str, object] = {}
    guard: list[Condition] = []

    def build(p: Place) -> Tensor:
        if isinstance(p[0], int):
            x = Variable(NAMES[sum(isinstance(v, Variable) for v in variables.values())])
            variables[x.name] = x
            guard.append(as_condition(x.rank == p[0]))
            guard.extend([IsConstant(x)] if p[1] else [])
            return x
        operator = OPS[p[0]]
        operands = tuple(map(build, p[1]))
        return Apply(operator, operands, {a.name: _free_attribute(a.kind, a.name, variables) for a in operator.attributes})

    left = build(place)
    assert isinstance(left, Apply)
    nearness = max((shared_operators(x, left) for p in patterns for x in subterms(p)), default=0)
    inner = max((shared_operators(x, y) for p in patterns for x in subterms(p) for y in left.operands), default=0)
    return Fragment(left, variables, tuple(guard), max(2 * nearness, inner))


def _free_attribute(kind: str, name: str, variables: dict[str, object]) -> Any:
    label = name if name not in variables else f"{name}_{len(variables)}"
    variable: Any = NamedList(label) if kind == INTS else var(label, (0, None)) if kind == INT else Float(label)
    if kind not in (INT, INTS, FLOAT):
        variable = "tanh"
    variables[label] = variable
    return variable


def shared_operators(a: Tensor, b: Tensor) -> int:
    """Return how many operators the least general generalisation (anti-unification) of two patterns keeps."""
    if not isinstance(a, Apply) or not isinstance(b, Apply) or a.op is not b.op:
        return 0
    return 1 + sum(shared_operators(x, y) for x, y in zip(a.operands, b.operands, strict=False))


# -- right sides that agree


def _laws(fragment: Fragment) -> tuple[list[Rule], int]:
    """Return the rules to judge for a fragment, and how many right sides were compared."""
    identity = Rule("learned", "", "learned", ((fragment.left, fragment.left),), fragment.guard, "ir", "A", frozenset(), fragment.variables)
    try:
        sample = drawn_instances(identity, range(1, 4), 4, MAX_INSTANCES, SEED)
        instances = [_Instance(fragment.left, i) for i in sample]
    except (FlexmatchError, KeyError, IndexError):
        return [], 0
    rules: list[Rule] = []
    count = 0
    for right in itertools.islice(right_sides(fragment.left, fragment.variables), MAX_CANDIDATES):
        count += 1
        if any(isinstance(x, Apply) and x.op is fragment.left.op and x.operands == fragment.left.operands for x in subterms(right)):
            continue  # a left side inside of its right side only grows
        if not any(b.agrees(right) for b in instances[:QUICK_INSTANCES]):
            continue
        agreements = [b.agrees(right) for b in instances]
        if sum(agreements) * 4 < len(agreements) or _changes_nothing(right, sample):
            continue
        rule = _guarded(identity, right, [i for i, a in zip(sample, agreements, strict=True) if not a], sample)
        rules += [rule] if rule is not None else []
        if len(rules) == MAX_JUDGED:
            break
    return rules, count


def _changes_nothing(right: Tensor, sample: Sequence[Instance]) -> bool:
    """Tell whether a reshape inside of a right side gives every operand of the sample the shape it has."""
    reshapes = [x for x in subterms(right) if isinstance(x, Apply) and x.op.name == "reshape"]
    with suppress(ShapeError, IndexError, ZeroDivisionError):
        return any(all(right_shape(x, i) == right_shape(x.operands[0], i) for i in sample) for x in reshapes)
    return False


def _guarded(identity: Rule, right: Tensor, counterexamples: Sequence[Instance], sample: Sequence[Instance]) -> Rule | None:
    """Return the law with one more condition where some instances need it, None where none of the vocabulary helps."""
    law = replace(identity, name=_name(identity.left, right), pairs=((identity.left, right),), doc="found in a model")
    if not _can_match(law):
        return None
    if not counterexamples:
        return law
    best = (0, law)
    for c in conditions(law):
        instance_count = sum(holds(c, binding_of(i)) for i in sample if i not in counterexamples)
        if instance_count > best[0] and not any(holds(c, binding_of(i)) for i in counterexamples):
            guarded = replace(law, where=(*law.where, c))
            best = (instance_count, guarded) if _can_match(guarded) else best
    return best[1] if best[0] else None


def _can_match(law: Rule) -> bool:
    """Tell whether a law can be matched in the e-graph: all on its right side is bound, and its guard is one that matching has."""
    try:
        check_bound(law)
        compile_rule(law, 0)
    except FlexmatchError:
        return False
    return True


def _name(left: Tensor, right: Tensor) -> str:
    words = [x.op.name.replace("_", "-") for side in (left, right) for x in subterms(side) if isinstance(x, Apply)]
    return "learned-" + "-".join(words)


class _Instance:
    """One instance of a fragment with random data and its value there."""

    def __init__(self, left: Apply, instance: Instance) -> None:
        self.left, self.instance = left, instance
        random = np.random.default_rng(SEED)
        self.operands = operands_from(instance, random.standard_normal)
        values = side_values(((left, left),), instance, self.operands, np.float64)
        self.value: Data | None = values[0][0] if values else None  # none where it divides by 0

    def agrees(self, right: Tensor) -> bool:
        """Tell whether a right side has the shape and the value of the fragment here."""
        if self.value is None:
            return False
        try:
            if right_shape(right, self.instance) != self.instance.shapes[id(self.left)]:
                return False
            actual = side_values(((right, right),), self.instance, self.operands, np.float64)[0][0]
        except (ShapeError, IndexError, ZeroDivisionError, ValueError, KeyError, FlexmatchError):
            return False
        return bool(same_values(self.value, actual, exact=False).all())
