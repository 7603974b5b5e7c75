"""Steps of an unrolled recurrence, recognised by the elements of a sequence on which each operation depends.

What depends on steps 0 … t and no others belongs to step t of a recurrence that runs forwards, what depends on steps t … T − 1 to
step t of one that runs backwards. Steps of one form are the same region on other values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...ir.program import Node, Program, Value
from ...ops.op import LAYOUT
from .regions import FormKey, Region, UseDefFacts, form_of, region_of

FEWEST_STEPS = 8  # steps of a sequence, and steps of one form, below which a program is saturated as it is
LINEAR = {"dense", "matmul", "bias_add", "add", "sub"}
StepSet = int  # a set of steps as bits


def recurrent_steps(p: Program) -> list[tuple[FormKey, Region]]:
    """Return the steps of frequent forms, each with the number of its form; the first step of each recurrence stays with what is before."""
    slice_counts = Counter(at for n in p.nodes if (at := _sequence(n)) is not None)
    sequences = {at for at, count in slice_counts.items() if count >= FEWEST_STEPS}
    if not sequences:
        return []
    facts = UseDefFacts(p)
    step_regions = _Steps(facts, sequences).regions()
    numbers: dict[FormKey, int] = {}  # of equal forms, which are compared often
    forms = {steps: numbers.setdefault(form_of(p, r), len(numbers)) for steps, r in step_regions.items()}
    frequent_forms = {form for form, count in Counter(forms.values()).items() if count > FEWEST_STEPS}
    cells, begun_recurrences = list[tuple[FormKey, Region]](), set[tuple[bool, int]]()
    for steps, form in sorted(forms.items(), key=lambda x: x[0].bit_count()):
        recurrence = bool(steps & 1), form
        if form in frequent_forms and recurrence in begun_recurrences:
            cells.append((form, step_regions[steps]))
        begun_recurrences.add(recurrence)
    return cells


def _sequence(n: Node) -> tuple[Value, object] | None:
    """Return the sequence and the axis of which a slice takes one step, None for other nodes."""
    if n.op != "slice" or n.attribute("step") != 1 or n.attribute("stop") != _start(n) + 1:
        return None
    return n.inputs[0], n.attribute("axis")


def _start(n: Node) -> int:
    return int(n.attribute("start"))  # type: ignore[arg-type]


class _Steps:
    """The operations of each step, without the slices of the sequence."""

    def __init__(self, facts: UseDefFacts, sequences: Iterable[tuple[Value, object]]) -> None:
        self.facts, self.sequences = facts, set(sequences)
        self.nodes = [n for n in facts.p.nodes if any(v not in facts.fixed for v in n.outputs)]
        self.steps_of: dict[Value, StepSet] = {}  # steps on which a value depends
        self.slices: set[int] = set()
        for n in self.nodes:
            self.steps_of.update(dict.fromkeys(n.outputs, self.of_node(n)))
        self.all_steps: StepSet = 0
        for steps in self.steps_of.values():
            self.all_steps |= steps

    def of_node(self, n: Node) -> StepSet:
        steps = 0
        for v in n.inputs:
            steps |= self.steps_of.get(v, 0)
        if not steps and n.inputs[0] not in self.facts.fixed and _sequence(n) in self.sequences:
            self.slices.add(id(n))
            return 1 << _start(n)
        return steps

    def regions(self) -> dict[StepSet, Region]:
        """Return the operations of each step as a region, by the steps on which they depend."""
        groups: dict[StepSet, list[Node]] = {}
        owners: dict[int, StepSet] = {}
        for n in reversed(self.nodes):
            owner = self.owner(n, owners)
            if owner:
                owners[id(n)] = owner
                groups.setdefault(owner, []).append(n)
        return {steps: region_of(self.facts, _operands_first(nodes[::-1], self.facts.producer)) for steps, nodes in groups.items()}

    def owner(self, n: Node, owners: Mapping[int, StepSet]) -> StepSet:
        """Return the steps to whose last one a node belongs, 0 for none; what prepares a step or a state belongs to its reader."""
        steps = self.steps_of[n.outputs[0]]
        if id(n) in self.slices or not steps:
            return 0
        own_steps = steps if steps.bit_count() > 1 and self.is_run(steps) else 0
        if own_steps and not self.prepares(n):
            return own_steps
        reader_steps = {owners.get(id(u), 0) for v in n.outputs for u in self.facts.users.get(v, ())}
        is_output = any(v in self.facts.p.outputs for v in n.outputs)
        return (reader_steps.pop() or own_steps) if len(reader_steps) == 1 and not is_output else own_steps

    def prepares(self, n: Node) -> bool:
        """Tell whether a node is linear or layout work on one operand, with which the next step begins."""
        moving = sum(v not in self.facts.fixed for v in n.inputs)
        return moving == 1 and n.operator is not None and (n.operator.kind == LAYOUT or n.op in LINEAR)

    def is_run(self, steps: StepSet) -> bool:
        """Tell whether a set of steps is a proper prefix or suffix of all steps."""
        complement = self.all_steps & ~steps
        return complement != 0 and (not steps & (steps + 1) or not complement & (complement + 1))


def _operands_first(nodes: Sequence[Node], producer: Mapping[Value, Node]) -> list[Node]:
    """Return nodes in a topological order independent of the position of those that read only outside values."""
    members = {id(n) for n in nodes}
    order: dict[int, Node] = {}

    def operands(n: Node) -> Iterator[Node]:
        return (m for v in n.inputs if (m := producer.get(v)) is not None and id(m) in members and id(m) not in order)

    for n in nodes:
        if all(id(producer[v]) not in members for v in n.inputs if v in producer):
            continue  # ordered before its reader
        work = [n]
        while work:
            unordered = list(operands(work[-1]))
            if unordered:
                work.extend(unordered[::-1])
            else:
                node = work.pop()
                order[id(node)] = node
    order.update((id(n), n) for n in nodes if id(n) not in order)
    return list(order.values())
