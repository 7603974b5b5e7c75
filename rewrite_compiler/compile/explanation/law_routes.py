"""Laws that bring an operator to a pattern: those that make it another operator, and those that fold it into the weights before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from functools import lru_cache

from ...ir.program import Node, Value
from ...ops.op import COMPUTE, LAYOUT, Apply, Tensor, Variable, subterms
from ...ops.static import IsConstant
from ...rewrite.rule import Rule, short_place
from ..matching.pattern_difference import PartialMatch, value_of_attribute

RULESETS = 8  # of which a process keeps what it has computed


@dataclass(frozen=True)
class Step:
    """A law that makes an operator, of any operands, a function of another: `right` is where that other one is applied."""

    rule: Rule
    right: Apply

    def __str__(self) -> str:
        return f"as {self.right.op.name} by {self.rule.name} ({short_place(self.rule.place)})"

    def node(self, node: Node, partial_match: PartialMatch) -> Node | None:
        """Return the node that the law makes of a node at which its left side matched; None where it reads what the law computes."""
        inputs: list[Value] = []
        for x in self.right.operands:
            variables = [v for v in subterms(x) if isinstance(v, Variable) and id(v) in partial_match.values]
            if not variables or (x is self.right.operands[0] and not isinstance(x, Variable)):
                return None
            inputs.append(partial_match.values[id(variables[0])])
        attributes = {name: value_of_attribute(term, partial_match) for name, term in self.right.attributes.items()}
        pairs = tuple((name, value) for name, value in attributes.items() if value is not None)
        return replace(node, op=self.right.op.name, inputs=tuple(inputs), attributes=pairs)


class LawRoutes:
    """The laws of a ruleset by the operator at the root of their left sides."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.steps: dict[str, list[Step]] = {}
        self.folds: dict[str, list[Rule]] = {}
        self.flattened: set[str] = set()  # operators that laws bring to other ranks
        for r in rules:
            if isinstance(r.left, Apply):
                self.enter(r, r.left)

    def enter(self, r: Rule, left: Apply) -> None:
        """Enter a law under the operator at its root."""
        right = list(_operators(r.right))
        if all(isinstance(x, Variable) for x in left.operands):
            others = {y.op.name: y for y in reversed(right) if not _is_constant(y, r) and left.op not in [x.op for x in _operators(y)]}
            self.steps.setdefault(left.op.name, []).extend(Step(r, y) for y in others.values())
            if any(y.op is left.op and any(isinstance(x, Apply) and x.op.name == "reshape" for x in y.operands) for y in right):
                self.flattened.add(left.op.name)
        elif fold_of(r) is not None:
            self.folds.setdefault(left.op.name, []).append(r)


@lru_cache(maxsize=RULESETS)
def law_routes(rules: tuple[Rule, ...]) -> LawRoutes:
    """Return the laws of a ruleset by operator, entered once for all models that a process compiles."""
    return LawRoutes(rules)


def fold_of(r: Rule) -> str | None:
    """Return the operator into whose constants a law folds the function of each element behind it; None where it folds nothing."""
    left = r.left
    if not isinstance(left, Apply) or left.op.kind in (COMPUTE, LAYOUT):
        return None
    core = [x.op.name for x in _operators(left) if x.op.kind == COMPUTE]
    outer = [y for y in _operators(r.right) if not _is_constant(y, r)]
    return core[0] if len(core) == 1 and [y.op.name for y in outer] == core else None


def _operators(t: Tensor) -> Iterator[Apply]:
    return (x for x in subterms(t) if isinstance(x, Apply) and x.op.kind != LAYOUT)


def _is_constant(x: Apply, r: Rule) -> bool:
    """Tell whether a term of a rule reads constants alone."""
    constants = {id(c.tensor) for c in r.where if isinstance(c, IsConstant)}
    variables = [v for v in subterms(x) if isinstance(v, Variable)]
    return all(id(v) in constants for v in variables)


def variables_of(r: Rule, values: MappingOf[int, Value]) -> tuple[tuple[str, Value], ...]:
    """Return the values that the variables of a rule stand for, by name."""
    by_name = {x.name: values[id(x)] for x in subterms(r.left) if isinstance(x, Variable) and id(x) in values}
    return tuple(by_name.items())
