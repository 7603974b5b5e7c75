"""Guard synthesis for a false rule: the weakest condition of a small vocabulary that excludes all known differences, then proved.

The vocabulary compares ranks and extents of the rule's operands and attributes. A suggestion is never used by itself.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import SpecError
from ...lang.expr import Expr
from ...ops.op import ShapeError, Variable
from ...ops.static import Condition, NamedList, as_condition, holds
from ...rewrite.rule import Float, Rule, Str
from ...rewrite.text import condition_text
from ..instances import element_terms as nodes
from ..instances.element_meaning import NoSymbolicMeaning
from ..instances.instance_search import Instance, drawn_instances, numbers_of
from ..instances.sides import binding_of, right_shape, symbolic_elements
from ..verdict import Proof

SAMPLE = 80  # drawn instances on which conditions are compared
MAX_CONDITIONS = 4  # conditions that are sent to the court
MAX_QUESTIONS = 40  # conditions of which an engine is asked whether they help
SECONDS = 10.0  # of the processor for all of these: a suggestion is no verdict, so that it may depend on the machine
RANKS = (0, 1, 2, 3, 4)


def suggested_guard(rule: Rule, judge: Callable[[Rule], Proof]) -> str:
    """Return the text of a condition under which `judge` proves the rule, nothing when none is found."""
    sample = drawn_instances(
        rule, range(1, 4), 4, SAMPLE, numbers=tuple(dict.fromkeys(m for n in (0.0, 1.0, *numbers_of(rule)) for m in (n - 2, n, n + 2)))
    )
    true = [i for i in sample if _agrees(rule, i)]
    false = [i for i in sample if i not in true]
    candidates = []
    for n, condition in enumerate(vocabulary(rule)):
        satisfying = [i for i in true if _holds(condition, i)]
        if satisfying and not any(_holds(condition, i) for i in false):
            candidates.append((-len(satisfying), n, condition))
    for *_, condition in sorted(candidates, key=lambda f: f[:2])[:MAX_CONDITIONS]:
        if judge(replace(rule, where=(*rule.where, condition))).is_proved:
            return condition_text(condition)
    return ""


def helpful_guard(rule: Rule, proves: Callable[[Rule], bool], judge: Callable[[Rule], Proof]) -> tuple[str, str]:
    """Return the text of a condition under which an unproved rule is proved, and the smallest instance that it leaves out; none: nothing.

    `proves` is asked first, because an engine answers sooner than the whole court. Nothing more is asked after `SECONDS` of the processor.
    """
    end = time.process_time() + SECONDS
    sample = drawn_instances(rule, range(1, 4), 4, SAMPLE, numbers=(-1.0, 0.0, 1.0, *numbers_of(rule)))
    candidates: dict[tuple[int, ...], Condition] = {}  # by the instances that a condition leaves out: the first of those that tell alike
    for condition in vocabulary(rule):
        left_out = tuple(n for n, i in enumerate(sample) if not _holds(condition, i))
        if left_out and len(left_out) < len(sample):
            candidates.setdefault(left_out, condition)
    for left_out, condition in sorted(candidates.items(), key=lambda c: len(c[0]))[:MAX_QUESTIONS]:
        if time.process_time() > end:
            break
        guarded = replace(rule, where=(*rule.where, condition))
        if proves(guarded) and judge(guarded).is_proved:
            return condition_text(condition), instance_text(min((sample[n] for n in left_out), key=lambda i: i.size))
    return "", ""


def has_instance(where: tuple[Condition, ...], rule: Rule) -> bool:
    """Tell whether operands are found that satisfy the left side of a rule and some conditions."""
    return bool(drawn_instances(replace(rule, where=where), range(1, 4), 4, 1))


def instance_text(instance: Instance) -> str:
    """Return shapes and attributes of an instance as text."""
    shapes = {name: f"tensor{list(shape)}" for name, shape in instance.operands.items()}
    return ", ".join(f"{name} = {value}" for name, value in {**shapes, **instance.attributes}.items())


def _agrees(rule: Rule, instance: Instance) -> bool:
    try:
        if any(right_shape(right, instance) != instance.shapes[id(left)] for left, right in rule.pairs):
            return False
        if any(0 in instance.shapes[id(left)] for left, _ in rule.pairs):  # no elements, which agree
            return True
        return all(nodes.normal_forms_agree(a, b) for a, b in symbolic_elements(rule.pairs, instance, real=True))
    except (ShapeError, SpecError, IndexError, ZeroDivisionError, NoSymbolicMeaning):
        return False


def _holds(condition: Condition, instance: Instance) -> bool:
    return holds(condition, binding_of(instance))


def vocabulary(rule: Rule) -> Iterator[Condition]:
    """Yield the candidate conditions, the plainer of equally weak ones first."""
    tensors = [v for v in rule.variables.values() if isinstance(v, Variable)]
    lists = [v for v in rule.variables.values() if isinstance(v, NamedList)]
    numbers = [v for v in rule.variables.values() if isinstance(v, Expr)]
    terms: list[object] = []
    for x, y in itertools.permutations(tensors, 2):
        terms += [y.rank <= x.rank, y.shape == x.shape, y.shape[-1] == x.shape[-1], y.shape[0] == x.shape[-1], y.rank == x.rank]
    for x in tensors:
        terms += [*(x.rank == r for r in RANKS), *(x.rank > r for r in RANKS), x.size == 1, x.shape[-1] == 1]
    for s, x in itertools.product(lists, tensors):
        terms += [s == x.shape, s.length == x.rank, s[-1] == x.shape[-1], s[0] == x.shape[0]]
    for s, t in itertools.combinations(lists, 2):
        terms += [s == t, s.permuted(t) == t.permuted(s)]
    terms += [s[0] == 0 for s in lists] + [s.product == 1 for s in lists]
    terms += [s == [n] * count for s in lists for count in (1, 2, 4) for n in (0, 1)]
    for n in numbers:
        terms += [n == 0, n == 1, *(n == x.rank - 1 for x in tensors)]
    yield from map(as_condition, terms)
    yield from _of_floats(rule)


def _of_floats(rule: Rule) -> Iterator[Condition]:
    """Yield comparisons of float attributes with each other and with the numbers of both sides."""
    floats = [v for v in rule.variables.values() if isinstance(v, Float) and not isinstance(v, Str)]
    numbers = dict.fromkeys((0.0, 1.0, *numbers_of(rule)))
    for v, n in itertools.product(floats, numbers):
        yield from (v >= n, v <= n, v == n)
    for v, w in itertools.permutations(floats, 2):
        yield v <= w
