"""Reasons why a node stays on the host: the nearest mapping, and the pattern, guard, capacity or cost that excludes it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from ...fit import Refusal
from ...ir.program import OPAQUE, Node, Program
from ...ops.op import ELEMENTWISE, LAYOUT, Apply, Shape, Tensor, Variable, subterms
from ...ops.static import Condition, HasType, IsConstant, ListsEqual, RealComparison, ShapeOf, TermIsTrue, holds, list_of
from ...rewrite.rule import Rule, short_place
from ...rewrite.ruleset import LOWERING
from ...rewrite.text import condition_text
from ...target import Limit, Mapping
from ..matching.match import Fits
from ..matching.pattern_difference import PartialMatch, first_difference

FACTORS = ("dense", "matmul")  # products whose factors may both be computed
PRODUCTS = (*FACTORS, "conv")


class Distance(IntEnum):
    """How far a mapping is from taking a node; the reason of the nearest mapping is reported."""

    COST = 0
    """The mapping fits, and the chosen program costs no more without it."""

    CAPACITY = 1
    """Pattern and guard match; a capacity of the device is exceeded."""

    GUARD = 2
    """The pattern matches; a condition of the guard fails."""

    FORM = 3
    """The pattern differs from the program."""


@dataclass(frozen=True)
class Obstacle:
    """Why a mapping does not take a node: its distance, a sentence, the number of values its pattern bound, and of failed guards.

    `limit` is the exceeded capacity and `conditions` the failed ones that the sentence is about, if it is about any.
    """

    mapping: Mapping
    distance: Distance
    sentence: str
    bound_values: int = 0
    failed_guards: int = 0
    limit: Limit | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def place(self) -> str:
        """The mapping's name with the place where it is written."""
        return f"{self.mapping.name} ({short_place(self.mapping.rule.place)})"


class HostReasons:
    """Explains the host nodes of one extracted program."""

    def __init__(
        self, program: Program, mappings: Sequence[Mapping], fitted: Fits, unusable: MappingOf[str, str] | None = None,
        *, as_written: bool = False, unselected: Sequence[Mapping] = (), lowerings: Sequence[Rule] = (),
    ) -> None:  # fmt: skip
        """Create the explanation.

        `unselected` are mappings that this compilation does not use and that write weights at run time, `lowerings` rules that it does
        not use.
        """
        self.program, self.mappings, self.fitted, self.as_written = program, mappings, fitted, as_written
        self.unusable = "".join(f"; {name} is not used: {sentence}" for name, sentence in (unusable or {}).items())
        self.unselected = ", ".join(m.name for m in unselected)
        self.lowerings = lowerings
        self.producer, self.users = program.producer(), program.users()
        self.offered: dict[str, list[Mapping]] = {}
        for m in mappings:
            for x in subterms(m.rule.left):
                if isinstance(x, Apply):
                    self.offered.setdefault(x.op.name, []).append(m)

    def __call__(self, node: Node) -> str:
        """Return one sentence on why a node stays on the host."""
        if node.op == OPAQUE:
            opaque = self.program.opaque_of(node)
            return f"unsupported operator: {opaque.label} ({opaque.reason})"
        if node.operator is not None and node.operator.kind == LAYOUT:
            return "only moves data"
        moving = self.product_sentence(node, self.near_mappings(node))
        if moving:
            return f"{moving}{self.unusable}"
        reasons = self.obstacles(node)
        if not reasons:
            offered = ", ".join(sorted({f"{m.target}.{m.operation}" for m in self.mappings})) or "nothing"
            return f"no mapping for {node.op}{self.remedy(node)}; offered: {offered}{self.unusable}"
        names = dict.fromkeys(r.place for r in reasons if r.sentence == reasons[0].sentence)
        remedy = self.remedy(node) if reasons[0].distance == Distance.FORM else ""
        return f"{', '.join(names)}: {reasons[0].sentence}{remedy}{self.unusable}"

    def remedy(self, node: Node) -> str:
        """Return which operations may take a node once the lowerings are used, as the end of a sentence; empty where none applies."""
        operators = {x.op.name for r in self.lowerings if self.applies(r, node) for x in subterms(r.right) if isinstance(x, Apply)}
        names = dict.fromkeys(f"{m.target}.{m.operation}" for m in self.mappings if root_of(m) in operators & set(PRODUCTS))
        return f"; with --rules {LOWERING} {' or '.join(names)} may take it" if names else ""

    def applies(self, rule: Rule, node: Node) -> bool:
        """Tell whether a rule's left side and conditions hold at a node."""
        if not isinstance(rule.left, Apply) or rule.left.op.name != node.op:
            return False
        partial_match = PartialMatch(self.program, self.users)
        if first_difference(partial_match, rule.left, node, self.producer):
            return False
        return all(self.is_decidable(c, partial_match) and holds(c, partial_match.binding()) for c in rule.where)

    def near_mappings(self, node: Node) -> list[Mapping]:
        """Return the mappings whose pattern has the operator of a node, other than as a function of each element on top."""
        return [m for m in self.offered.get(node.op, ()) if root_of(m) == node.op or node.op not in _elementwise(m)]

    def obstacles(self, node: Node) -> list[Obstacle]:
        """Return why each near mapping does not take a node, the nearest first."""
        return sorted(
            (self.obstacle(m, node) for m in self.near_mappings(node)), key=lambda r: (r.distance, -r.bound_values, r.failed_guards)
        )

    def product_sentence(self, node: Node, candidates: Sequence[Mapping]) -> str:
        """Return the sentence for a product of two computed tensors where all near operations need constant weights, else an empty text."""
        if node.op not in FACTORS or any(self.program.is_constant(v) for v in node.inputs[:2]):
            return ""
        if any(self.obstacle(m, node).distance != Distance.FORM for m in candidates if not _needs_weights(m)):
            return ""
        names = ", ".join(dict.fromkeys(f"{m.target}.{m.operation}" for m in self.mappings if _needs_weights(m)))
        matrices = math.prod(self.program.types[node.inputs[1]].shape[:-2])
        sentence = f"both factors are computed at run time, and {names} takes one matrix of weights that is known at compile time"
        remedy = f"; with --rules {LOWERING} {self.unselected} may take it, its weights written at run time" if self.unselected else ""
        return names and sentence + (f", not {matrices}" if matrices > 1 else "") + remedy

    def obstacle(self, m: Mapping, node: Node) -> Obstacle:
        """Return why one mapping does not take the node, with the number of values that its pattern bound."""
        partial_match = PartialMatch(self.program, self.users, {m.name: root_of(m) for m in self.mappings})
        obstacle = self.first_obstacle(m, node, partial_match)
        if obstacle.distance >= Distance.GUARD:
            obstacle = self.widened_obstacle(m, node) or obstacle
        return replace(obstacle, bound_values=len(partial_match.values))

    def widened_obstacle(self, m: Mapping, node: Node) -> Obstacle | None:
        """Return the capacity that a node exceeds once a law has given its operands axes of size 1, None where that was not tried."""
        shapes = [self.program.types[v].shape for v in node.inputs]
        for (name, types, _), fit in self.fitted.items():
            widened = [t.shape for t in types[: len(shapes)]]
            if name == m.name and isinstance(fit, Refusal) and widened != shapes and _without_units(widened) == _without_units(shapes):
                exceeded = fit.limit if isinstance(fit.limit, Limit) else None
                return Obstacle(m, Distance.CAPACITY, f"with axes of size 1 added, {fit.limit}", limit=exceeded)
        return None

    def first_obstacle(self, m: Mapping, node: Node, partial_match: PartialMatch) -> Obstacle:
        """Return why one mapping does not take the node, and record the bindings of its partial match."""
        anchor = next(x for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.name == node.op)
        difference = first_difference(partial_match, anchor, node, self.producer)
        if difference:
            return Obstacle(m, Distance.FORM, difference)
        reader_sentence = self.reader_difference(m.rule.left, anchor, node)
        if reader_sentence and not self.as_written:
            return Obstacle(m, Distance.FORM, reader_sentence)
        failing = [c for c in m.rule.where if self.is_decidable(c, partial_match) and not holds(c, partial_match.binding())]
        if failing:
            sentences = dict.fromkeys(self.guard_sentence(c, partial_match) for c in failing)
            return Obstacle(m, Distance.GUARD, ", and ".join(sentences), failed_guards=len(failing), conditions=tuple(failing))
        refusal = self.refusal(m, partial_match)
        if refusal is not None:
            exceeded = refusal.limit if isinstance(refusal.limit, Limit) else None
            return Obstacle(m, Distance.CAPACITY, str(refusal.limit), limit=exceeded)
        if reader_sentence:
            return Obstacle(m, Distance.COST, f"as written, {reader_sentence}")
        return Obstacle(m, Distance.COST, f"the chosen program is no dearer with {node.op} on the host")

    def reader_difference(self, pattern: Tensor, anchor: Apply, node: Node) -> str:
        """Return a sentence on a reader of a node that is not the operator above it in the pattern, empty where the readers fit."""
        parent = next((x for x in subterms(pattern) if isinstance(x, Apply) and any(y is anchor for y in x.operands)), None)
        if parent is None:
            return ""
        readers = self.users.get(node.outputs[0], [])
        fitting = next((r for r in readers if r.op == parent.op.name), None)
        if fitting is not None:
            return self.reader_difference(pattern, parent, fitting)
        reader_names = " and ".join(sorted({r.op for r in readers})) or "nothing"
        return f"{reader_names} reads the result of {node.op}, its pattern has {parent.op.name} there"

    def is_decidable(self, condition: Condition, partial_match: PartialMatch) -> bool:
        """Tell whether every tensor and attribute of a condition is bound by the partial match."""
        try:
            holds(condition, partial_match.binding())
        except KeyError:
            return False
        return True

    def guard_sentence(self, condition: Condition, partial_match: PartialMatch) -> str:
        """Return a failed condition with its values."""
        if isinstance(condition, IsConstant):
            return f"{condition.tensor.name} must be known at compile time"
        if isinstance(condition, HasType):
            dtype = partial_match.binding().dtype(condition.tensor)
            return f"its operand {condition.tensor.name} must be {' or '.join(condition.dtypes)}, not {dtype}"
        if isinstance(condition, ListsEqual):
            return _unequal(condition, partial_match)
        if isinstance(condition, RealComparison):
            values = ", ".join(f"{v.name} {partial_match.attributes[v.name]}" for v in condition.variables)
            return f"{condition_text(condition)} fails with {values}"
        assert isinstance(condition, TermIsTrue)
        rank = re.fullmatch(r"(\w+)\.rank == (\d+)", condition_text(condition))
        if rank:
            axes = len(partial_match.binding().shape(_variables(condition)[0]))
            return f"its operand {rank[1]} must have {rank[2]} axes, not {axes}"
        shapes = [
            f"{x.name} {self.program.types[partial_match.values[id(x)]].shape}"
            for x in _variables(condition)
            if id(x) in partial_match.values
        ]
        return f"{condition_text(condition)} fails{' with ' if shapes else ''}{', '.join(dict.fromkeys(shapes))}"

    def refusal(self, m: Mapping, partial_match: PartialMatch) -> Refusal | None:
        """Return the refusal of the mapping's tiling on operands of the bound types, None if there was none."""
        operand_types = {
            n: self.program.types[partial_match.values[id(x)]] for n, x in enumerate(m.operands) if id(x) in partial_match.values
        }
        for (name, types, _), fit in self.fitted.items():
            if operand_types and name == m.name and isinstance(fit, Refusal) and all(types[n] == t for n, t in operand_types.items()):
                return fit
        return None


def _without_units(shapes: Sequence[Shape]) -> list[Shape]:
    """Return shapes without axes of size 1."""
    return [tuple(n for n in s if n != 1) for s in shapes]


def _unequal(condition: ListsEqual, partial_match: PartialMatch) -> str:
    """Return the sentence for a failed equality of lists, naming the operands if they are shapes."""
    left, right = (list_of(side, partial_match.binding()) for side in (condition.left, condition.right))
    owners = [s.tensor for s in (condition.left, condition.right) if isinstance(s, ShapeOf) and isinstance(s.tensor, Variable)]
    if len(owners) == 2:
        return f"its operands {owners[0].name} and {owners[1].name} must have one shape, not {left} and {right}"
    return f"{condition_text(condition)} fails with {left} and {right}"


def _variables(condition: TermIsTrue) -> list[Variable]:
    from ...ops.static import ELEMENTS

    bases = [ELEMENTS[v].base for v in condition.term.free if v in ELEMENTS]
    return [b.tensor for b in bases if isinstance(b, ShapeOf) and isinstance(b.tensor, Variable)]


def root_of(m: Mapping) -> str:
    """Return the operator at the root of a mapping's pattern."""
    left = m.rule.left
    return left.op.name if isinstance(left, Apply) else ""


def _needs_weights(m: Mapping) -> bool:
    """Tell whether an operation is a product whose weights must be compile-time constants."""
    constant_operands = {id(c.tensor) for c in m.rule.where if isinstance(c, IsConstant)}
    products = [x for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.name == "dense"]
    return any(id(x.operands[1]) in constant_operands for x in products)


def _elementwise(m: Mapping) -> set[str]:
    return {x.op.name for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.kind == ELEMENTWISE}
