"""Reasons why a node stays on the host: the nearest mapping, and the pattern, guard, capacity or cost that excludes it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

from ...fit import Refusal
from ...ir.program import OPAQUE, Node, Program, Value
from ...ops.op import COMPUTE, ELEMENTWISE, LAYOUT, Apply, Shape, Tensor, Variable, subterms
from ...ops.static import Condition, HasType, IsConstant, ListsEqual, RealComparison, ShapeOf, TermIsTrue, holds, list_of
from ...rewrite.rule import Rule, short_place
from ...rewrite.ruleset import LOWERING
from ...rewrite.text import condition_text, tensor_text
from ...target import Limit, Mapping
from ..matching.match import Fits, fit_case
from ..matching.objective import OFFLOADS, Objective
from ..matching.pattern_difference import PartialMatch, first_difference
from ..matching.recurrences import RECURRENT, excess_of_steps
from ..matching.requirements import (
    AttributeOf,
    Capacity,
    Difference,
    FewerSteps,
    Guarded,
    OneMatrix,
    PartOf,
    Pinned,
    Requirement,
    SoleReader,
)  # fmt: skip
from .law_routes import Step, fold_of, law_routes, variables_of

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
    """Why a mapping, or a law that folds, does not take a node: where that is written, a distance, sentences, and how near it was.

    `requirements` are what the sentences name, each a change after which it would no longer be in the way.
    """

    place: str
    distance: Distance
    sentences: tuple[str, ...] = ()
    bound_values: int = 0
    failed_guards: int = 0
    requirements: tuple[Requirement, ...] = ()
    law: str = ""  # that brings the node to the mapping
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """All that is in the way, as one sentence."""
        return f"{self.law}{', and '.join(dict.fromkeys(self.sentences))}{self.remedy}"

    @property
    def rank(self) -> tuple[int, int, int]:
        """The key by which the nearest obstacle comes first."""
        return self.distance, -self.bound_values, self.failed_guards


@dataclass(frozen=True)
class Reason:
    """Why a node stays on the host: a sentence, the requirements that it names, and whether it names the lowerings as a way."""

    sentence: str
    requirements: tuple[Requirement, ...] = ()
    lowers: bool = False


class HostReasons:
    """Explains the host nodes of one extracted program."""

    def __init__(
        self, program: Program, mappings: Sequence[Mapping], fitted: Fits, objective: Objective = OFFLOADS,
        *, as_written: bool = False, names_pins: bool = True, unselected: Sequence[Mapping] = (), rules: Sequence[Rule] = (),
        lowerings: Sequence[Rule] = (),
    ) -> None:  # fmt: skip
        """Create the explanation.

        `names_pins` says whether a reason may end with the pin that decides against the objective. `unselected` are mappings that
        this compilation does not use and that write weights at run time, `rules` those that it uses, `lowerings` those it does not.
        """
        self.program, self.mappings, self.fitted, self.as_written = program, mappings, fitted, as_written
        self.objective, self.names_pins = objective, names_pins
        self.unusable = "".join(f"; {name} is not used: {sentence}" for name, sentence in objective.unusable.items())
        self.unselected = ", ".join(m.name for m in unselected)
        self.laws, self.lowerings = law_routes(tuple(rules)), lowerings
        self.producer, self.users = program.producer(), program.users()
        self.offered: dict[str, list[Mapping]] = {}
        for m in mappings:
            for x in subterms(m.rule.left):
                if isinstance(x, Apply):
                    self.offered.setdefault(x.op.name, []).append(m)

    def __call__(self, node: Node) -> str:
        """Return one sentence on why a node stays on the host."""
        return self.reason(node).sentence

    def reason(self, node: Node) -> Reason:
        """Return why a node stays on the host, with what would take it off."""
        if node.op == OPAQUE:
            opaque = self.program.opaque_of(node)
            return Reason(f"unsupported operator: {opaque.label} ({opaque.reason})")
        if node.operator is not None and node.operator.kind == LAYOUT:
            return Reason("only moves data")
        moving = self.product_reason(node, self.near_mappings(node))
        if moving is not None:
            return replace(moving, sentence=f"{moving.sentence}{self.unusable}")
        reasons, remedy = self.obstacles(node), self.remedy(node)
        if not reasons:
            offered = ", ".join(sorted({f"{m.target}.{m.operation}" for m in self.mappings})) or "nothing"
            excess = excess_of_steps(self.program) if node.op in RECURRENT and self.takes_steps else ""
            sentence = f"no mapping for {node.op}{f', and {excess}' if excess else remedy}; offered: {offered}{self.unusable}"
            return Reason(sentence, (FewerSteps(node),) if excess else (), bool(remedy) and not excess)
        nearest = reasons[0]
        names = dict.fromkeys(r.place for r in reasons if r.sentence == nearest.sentence)
        remedy = remedy if nearest.distance == Distance.FORM else ""
        sentence = f"{', '.join(names)}: {nearest.sentence}{remedy}{self.unusable}"
        return Reason(sentence, nearest.requirements, bool(remedy))

    def remedy(self, node: Node) -> str:
        """Return which operations may take a node once the lowerings are used, as the end of a sentence; empty where none applies."""
        lowerings = [
            r for r in self.lowerings if self.applies(r, node) or (node.op in RECURRENT and not self.takes_steps and _is_of_product(r))
        ]
        operators = {x.op.name for r in lowerings for x in subterms(r.right) if isinstance(x, Apply)}
        names = dict.fromkeys(f"{m.target}.{m.operation}" for m in self.mappings if root_of(m) in operators & set(PRODUCTS))
        if not names and self.is_product_of_results(node):
            names = dict.fromkeys(filter(None, [self.unselected]))
        return f"; with --rules {LOWERING} {' or '.join(names)} may take it" if names else ""

    @property
    def takes_steps(self) -> bool:
        """Whether an operation that is offered takes the product of a recurrence's step."""
        return "dense" in self.offered

    def is_product_of_results(self, node: Node) -> bool:
        """Tell whether a node is a product of two computed tensors."""
        return node.op in FACTORS and not any(self.program.is_constant(v) for v in node.inputs[:2])

    def applies(self, rule: Rule, node: Node) -> bool:
        """Tell whether a rule's left side and conditions hold at a node, those on ranks aside where laws bring it to another rank."""
        if not isinstance(rule.left, Apply) or rule.left.op.name != node.op:
            return False
        partial_match = PartialMatch(self.program, self.users)
        if first_difference(partial_match, rule.left, node, self.producer):
            return False
        conditions = [c for c in rule.where if node.op not in self.laws.flattened or not _is_on_rank(c)]
        return all(self.is_decidable(c, partial_match) and holds(c, partial_match.binding()) for c in conditions)

    def near_mappings(self, node: Node) -> list[Mapping]:
        """Return the mappings whose pattern has the operator of a node, other than as a function of each element on top."""
        return [m for m in self.offered.get(node.op, ()) if root_of(m) == node.op or node.op not in _elementwise(m)]

    def obstacles(self, node: Node) -> list[Obstacle]:
        """Return why each near mapping does not take a node, the nearest first; where none is near, why none does by way of a law."""
        near = [self.obstacle(m, node) for m in self.near_mappings(node)]
        return sorted(near or self.obstacles_of_laws(node), key=lambda r: r.rank)

    def obstacles_of_laws(self, node: Node) -> Iterator[Obstacle]:
        """Yield why the laws do not bring a node to a pattern: not to that of another operator, not into the weights before it."""
        yield from self.folding(node, self.producer)
        for step in self.laws.steps.get(node.op, ()):
            partial_match = PartialMatch(self.program, self.users)
            assert isinstance(step.rule.left, Apply)
            difference = first_difference(partial_match, step.rule.left, node, self.producer)
            near = [m for m in self.offered.get(step.right.op.name, ()) if step.right.op.name in {root_of(m)} | _cores(m)]
            guards = self.failing(step.rule, node, partial_match)
            if difference is not None:
                obstacles = [_through(step, self.formed(m, difference), guards) for m in near]
                yield from (replace(o, bound_values=0) for o in obstacles)
                continue
            other = step.node(node, partial_match)
            obstacles = [self.formal(m, other) for m in near] + [*self.folding(other, self.producer)] if other is not None else []
            bare = [Obstacle(_place(m), Distance.COST, (), len(partial_match.values)) for m in near if other is None]
            yield from (_through(step, o, guards) for o in (*obstacles, *bare) if o.sentences or guards is not None)

    def formal(self, m: Mapping, node: Node) -> Obstacle:
        """Return the difference in form between a mapping and a node that a law made, or that there is none."""
        partial_match = PartialMatch(self.program, self.users, self.absorbing)
        difference = first_difference(partial_match, anchor_of(m.rule, node), node, self.producer)
        if difference is None or not difference.requirements:
            return Obstacle(_place(m), Distance.COST)
        obstacle = self.formed(m, difference, len(partial_match.values))
        return replace(obstacle, failed_guards=int(not self.is_along_channels("conv" in _cores(m), node)))

    def is_along_channels(self, of_image: bool, node: Node) -> bool:
        """Tell whether the axis of a node, if it has one, is that of the channels: the second of an image, the last of rows."""
        rank = len(self.program.types[node.outputs[0]].shape)
        return dict(node.attributes).get("axis") in (None, 1 if of_image and rank == 4 else rank - 1)

    def formed(self, m: Mapping, difference: Difference, bound_values: int = 0) -> Obstacle:
        """Return a difference as the obstacle of a mapping."""
        return Obstacle(_place(m), Distance.FORM, (difference.sentence,), bound_values, requirements=difference.requirements)

    def folding(self, node: Node, producer: MappingOf[Value, Node]) -> Iterator[Obstacle]:
        """Yield why the laws do not fold a function of each element into the weights of an operator before it that is offered."""
        for r in self.laws.folds.get(node.op, ()):
            if not any(root_of(m) == fold_of(r) or fold_of(r) in _cores(m) for m in self.mappings):
                continue
            partial_match = PartialMatch(self.program, self.users, self.absorbing)
            assert isinstance(r.left, Apply)
            difference = first_difference(partial_match, r.left, node, producer)
            place = f"into {fold_of(r)} by {r.name} ({short_place(r.place)})"
            bound = len(partial_match.values)
            obstacle = self.failing(r, node, partial_match) or Obstacle(place, Distance.COST)
            if difference is not None and difference.requirements:
                obstacle = _both(obstacle, Obstacle(place, Distance.FORM, (difference.sentence,), requirements=difference.requirements))
            if obstacle.sentences:
                off_axis = int(not self.is_along_channels(fold_of(r) == "conv", node))
                yield replace(obstacle, place=place, bound_values=bound, failed_guards=obstacle.failed_guards + off_axis)

    def failing(self, r: Rule, node: Node, partial_match: PartialMatch) -> Obstacle | None:
        """Return the obstacle of the conditions of a matched rule that fail; None where all hold."""
        conditions = [c for c in r.where if self.is_decidable(c, partial_match) and not holds(c, partial_match.binding())]
        if not conditions:
            return None
        sentences = dict.fromkeys(self.guard_sentence(c, partial_match) for c in conditions)
        requirement = Guarded(node, r, variables_of(r, partial_match.values))
        return Obstacle("", Distance.GUARD, tuple(sentences), len(partial_match.values), len(conditions), requirements=(requirement,))

    def product_reason(self, node: Node, candidates: Sequence[Mapping]) -> Reason | None:
        """Return the reason for a product of two computed tensors where all near operations need constant weights, else None."""
        if not self.is_product_of_results(node):
            return None
        if any(self.obstacle(m, node).distance != Distance.FORM for m in candidates if not _needs_weights(m)):
            return None
        names = ", ".join(dict.fromkeys(f"{m.target}.{m.operation}" for m in self.mappings if _needs_weights(m)))
        if not names:
            return None
        matrices = math.prod(self.program.types[node.inputs[1]].shape[:-2])
        sentence = f"both factors are computed at run time, and {names} takes one matrix of weights that is known at compile time"
        remedy = f"; with --rules {LOWERING} {self.unselected} may take it, its weights written at run time" if self.unselected else ""
        requirement = OneMatrix(node, node.inputs[1])
        return Reason(sentence + (f", not {matrices}" if matrices > 1 else "") + remedy, (requirement,), bool(remedy))

    def obstacle(self, m: Mapping, node: Node) -> Obstacle:
        """Return why one mapping does not take the node, with the number of values that its pattern bound."""
        partial_match = PartialMatch(self.program, self.users, self.absorbing)
        obstacle = self.first_obstacle(m, node, partial_match)
        if obstacle.distance >= Distance.GUARD:
            obstacle = self.widened_obstacle(m, node) or obstacle
        return self.with_objective(m, replace(obstacle, bound_values=len(partial_match.values)))

    @cached_property
    def absorbing(self) -> dict[str, frozenset[str]]:
        """The operators whose results each mapping has inside or gives, by its name: what follows them may become part of it."""
        return {m.name: frozenset({root_of(m)} | _cores(m)) for m in self.mappings}

    def with_objective(self, m: Mapping, obstacle: Obstacle) -> Obstacle:
        """Return an obstacle with what the objective says of an operation that only computes a function of each element."""
        if (
            obstacle.distance == Distance.FORM
            or self.as_written
            or not self.names_pins
            or not (prefers_host(m, self.objective) or not obstacle.distance)
        ):
            return obstacle
        pin = f"--on {m.target}=NODE puts it on {m.target}"
        pinning = f"; {pin}" if obstacle.distance == Distance.COST else f", and even then only {pin}: the objective prefers the host"
        return replace(obstacle, remedy=pinning, requirements=(*obstacle.requirements, Pinned(m.target)))

    def widened_obstacle(self, m: Mapping, node: Node) -> Obstacle | None:
        """Return the capacity that a node exceeds once a law has given its operands axes of size 1, None where that was not tried."""
        shapes = [self.program.types[v].shape for v in node.inputs]
        for (name, types, _), fit in self.fitted.items():
            widened = [t.shape for t in types[: len(shapes)]]
            if name == m.name and isinstance(fit, Refusal) and widened != shapes and _without_units(widened) == _without_units(shapes):
                return Obstacle(_place(m), Distance.CAPACITY, (f"with axes of size 1 added, {fit.limit}",), requirements=_capacity(m, fit))
        return None

    def first_obstacle(self, m: Mapping, node: Node, partial_match: PartialMatch) -> Obstacle:
        """Return why one mapping does not take the node, and record the bindings of its partial match."""
        anchor = anchor_of(m.rule, node)
        difference = first_difference(partial_match, anchor, node, self.producer)
        if difference:
            refused = None if difference.requirements else self.fused_refusal(m, node)
            if refused is not None:
                return Obstacle(_place(m), Distance.CAPACITY, (str(refused.limit),), requirements=_capacity(m, refused))
            if len(_cores(m)) > 1:
                return self.outside(m, difference, node)
            obstacle = self.with_readers(self.formed(m, difference), anchor, node)
            refused = self.then_refused(m, difference, partial_match)
            return obstacle if refused is None else _then(obstacle, f"then {refused.limit}", _capacity(m, refused))
        reader_sentence = self.reader_difference(m.rule.left, anchor, node)
        if reader_sentence and not self.as_written:
            return Obstacle(_place(m), Distance.FORM, (reader_sentence,))
        failing = self.failing(m.rule, node, partial_match)
        if failing is not None:
            return replace(failing, place=_place(m))
        refusal = self.refusal(m, partial_match)
        if refusal is not None:
            return Obstacle(_place(m), Distance.CAPACITY, (str(refusal.limit),), requirements=_capacity(m, refusal))
        if reader_sentence:
            return Obstacle(_place(m), Distance.COST, (f"as written, {reader_sentence}",))
        return Obstacle(_place(m), Distance.COST, (f"the chosen program is no dearer with {node.op} on the host",))

    def outside(self, m: Mapping, difference: Difference, node: Node) -> Obstacle:
        """Return the obstacle of a mapping of several operators that compute: the first difference, and the meaning that it takes."""
        guards = ", ".join(map(condition_text, m.rule.where))
        meaning = f"{tensor_text(m.rule.left)}{f' where {guards}' if guards else ''}"
        return Obstacle(_place(m), Distance.FORM, (f"{difference.sentence}: it takes {meaning}",), requirements=(PartOf(node, m),))

    def with_readers(self, obstacle: Obstacle, anchor: Apply, node: Node) -> Obstacle:
        """Return a difference in form with other readers of what is inside the pattern, which would be in the way, too."""
        inside = next((x for x in anchor.operands if isinstance(x, Apply)), None)
        maker = self.producer.get(node.inputs[0]) if inside is not None and inside is anchor.operands[0] else None
        while inside is not None and maker is not None and maker.op == inside.op.name:
            others = [n for n in self.users.get(maker.outputs[0], ()) if n.outputs != node.outputs]
            if others:
                reader = next((f'"{self.program.sources[s].name}"' for n in others for s in sorted(n.origins)), others[0].op)
                sentence = f"no other node may read the result of {maker.op}, as {reader} does"
                obstacle = _then(obstacle, sentence, (SoleReader(node, maker.outputs[0]),))
            node, anchor = maker, inside
            inside = next((x for x in anchor.operands[:1] if isinstance(x, Apply)), None)
            maker = self.producer.get(node.inputs[0]) if node.inputs else None
        return obstacle

    def then_refused(self, m: Mapping, difference: Difference, partial_match: PartialMatch) -> Refusal | None:
        """Return the refusal of a convolution once it is in one group, as a mapping asks; None where it fits then, or asks another."""
        (r, *others) = difference.requirements or (None,)
        if others or not isinstance(r, AttributeOf) or (r.node.op, r.name, r.value) != ("conv", "group", 1):
            return None
        image, weights = (self.program.types[v] for v in r.node.inputs)
        filters = replace(weights, shape=(weights.shape[0], image.shape[1], *weights.shape[2:]))
        types = {"w": filters, "b": replace(weights, shape=weights.shape[:1]), "x": image}
        attributes = {name: partial_match.attributes.get(name) for name, _ in m.statics}
        if len(image.shape) != 4 or any(v.name not in types for v in m.operands) or None in attributes.values():
            return None
        objective = self.objective if self.objective.is_mapped(m) else OFFLOADS  # what fits at all does not depend on prices
        fit = fit_case(m, [types[v.name] for v in m.operands], attributes, {}, objective)  # type: ignore[arg-type]
        return fit if isinstance(fit, Refusal) else None

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
        number = re.fullmatch(r"(\w+)\.size == 1", condition_text(condition))
        if number:
            return f"its operand {number[1]} must be one number"
        vector = re.fullmatch(r"(\w+)\.size == \w+\.shape\[-(\d)\]", condition_text(condition))
        if vector:
            return f"its operand {vector[1]} must be a vector along axis -{vector[2]}"
        shapes = [
            f"{x.name} {self.program.types[partial_match.values[id(x)]].shape}"
            for x in _variables(condition)
            if id(x) in partial_match.values
        ]
        attributes = {str(getattr(key, "name", key)): value for key, value in partial_match.attributes.items()}
        words = dict.fromkeys(re.findall(r"[a-z_]+", condition_text(condition)))
        shapes += [f"{name} {attributes[name]}" for name in words if name in attributes]
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

    def fused_refusal(self, m: Mapping, node: Node) -> Refusal | None:
        """Return the refusal of a mapping that would take a node with the operation before it, on that one's operands."""
        makers = (self.producer[v] for v in node.inputs if v in self.producer)
        before = [Counter(self.program.types[v] for v in n.inputs) for n in makers if n.op in self.absorbing]
        refusals = ((types, fit) for (name, types, _), fit in self.fitted.items() if name == m.name and isinstance(fit, Refusal))
        return next((fit for types, fit in refusals if any(b <= Counter(types) for b in before)), None)


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


def anchor_of(r: Rule, node: Node) -> Apply:
    """Return the place in a rule's left side that has the operator of a node."""
    return next(x for x in subterms(r.left) if isinstance(x, Apply) and x.op.name == node.op)


def prefers_host(m: Mapping, objective: Objective) -> bool:
    """Tell whether an objective that counts leaves what a mapping computes on the host, whatever its size: functions of each element."""
    operators = [x.op.kind for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.kind != LAYOUT]
    if objective.is_priced or any(kind != ELEMENTWISE for kind in operators):
        return False
    return objective.by_levels((0, 0, 0, len(operators), len(operators))) <= objective.by_levels((0, 0, 1, 0, 0))


def _place(m: Mapping) -> str:
    return f"{m.name} ({short_place(m.rule.place)})"


def _capacity(m: Mapping, refusal: Refusal) -> tuple[Requirement, ...]:
    return (Capacity(m, refusal.limit),) if isinstance(refusal.limit, Limit) else ()


def _then(obstacle: Obstacle, sentence: str, requirements: tuple[Requirement, ...]) -> Obstacle:
    """Return an obstacle with one more sentence and what it names."""
    return replace(obstacle, sentences=(*obstacle.sentences, sentence), requirements=(*obstacle.requirements, *requirements))


def _both(own: Obstacle, other: Obstacle) -> Obstacle:
    """Return two obstacles to one mapping as one, at the place of the other."""
    return Obstacle(
        other.place, max(own.distance, other.distance), (*own.sentences, *other.sentences), max(own.bound_values, other.bound_values),
        own.failed_guards + other.failed_guards, (*own.requirements, *other.requirements),
    )  # fmt: skip


def _through(step: Step, obstacle: Obstacle, own: Obstacle | None = None) -> Obstacle:
    """Return the obstacle to what a law makes of a node, after those conditions of the law that fail."""
    return replace(obstacle if own is None else _both(own, obstacle), law=f"{step}, ")


def _cores(m: Mapping) -> set[str]:
    return {x.op.name for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.kind == COMPUTE}


def _is_on_rank(c: Condition) -> bool:
    return isinstance(c, TermIsTrue) and re.fullmatch(r"\w+\.rank == \d+", condition_text(c)) is not None


def _is_of_product(r: Rule) -> bool:
    """Tell whether a rule is one of products with weights: what the steps of a recurrence have."""
    return isinstance(r.left, Apply) and r.left.op.name == "dense"


def _needs_weights(m: Mapping) -> bool:
    """Tell whether an operation is a product whose weights must be compile-time constants."""
    constant_operands = {id(c.tensor) for c in m.rule.where if isinstance(c, IsConstant)}
    products = [x for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.name == "dense"]
    return any(id(x.operands[1]) in constant_operands for x in products)


def _elementwise(m: Mapping) -> set[str]:
    return {x.op.name for x in subterms(m.rule.left) if isinstance(x, Apply) and x.op.kind == ELEMENTWISE}
