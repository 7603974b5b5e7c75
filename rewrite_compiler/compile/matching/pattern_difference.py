"""Partial matching of a pattern at a node: the bindings up to the first difference, and a sentence on that difference."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from ...ir.program import Node, Program, Value
from ...lang.expr import Expr
from ...ops.op import Apply, AttributeTerm, AttributeValue, Tensor
from ...ops.static import Binding, Ints, list_of, value_of
from ...rewrite.rule import free_attribute
from .requirements import AttributeOf, Difference, ResultOf, SoleReader

# attributes with so many numbers for each spatial axis
PER_AXIS = {"strides": 1, "dilations": 1, "kernel": 1, "pads": 2}


@dataclass(frozen=True)
class PartialMatch:
    """A partial match: values of subpatterns by identity, and values of attribute variables."""

    program: Program
    users: MappingOf[Value, Sequence[Node]] = field(default_factory=dict)
    absorbing: MappingOf[str, AbstractSet[str]] = field(default_factory=dict)  # device operation → operators that it computes, for fusing
    values: dict[int, Value] = field(default_factory=dict)
    attributes: dict[Any, Any] = field(default_factory=dict)

    def binding(self) -> Binding:
        """Return the binding under which guards are evaluated."""
        p, at = self.program, self.values
        return Binding(
            lambda x: p.types[at[id(x)]].shape, self.attributes, lambda x: p.types[at[id(x)]].dtype, lambda x: p.is_constant(at[id(x)])
        )


def first_difference(partial_match: PartialMatch, pattern: Apply, node: Node, producer: MappingOf[Value, Node]) -> Difference | None:
    """Match a pattern top-down at a node, extending the partial match; return the first difference, None without any."""
    partial_match.values.update((id(x), v) for x, v in zip(pattern.operands, node.inputs, strict=False))
    fused = None
    for x, v in zip(pattern.operands, node.inputs, strict=False):
        if not isinstance(x, Apply):
            continue
        maker = producer.get(v)
        if maker is not None and maker.op == x.op.name:
            difference = first_difference(partial_match, x, maker, producer)
        else:
            difference = _operand_difference(partial_match, pattern, x, v, node, maker)
        if difference is not None and difference.requirements:
            return difference
        fused = fused or difference
    wrong = [(name, term) for name, term in pattern.attributes.items() if not _agrees(partial_match, term, dict(node.attributes).get(name))]
    if not wrong:
        return fused
    expected = [(name, value_of_attribute(term, partial_match)) for name, term in wrong]
    sentences = dict.fromkeys(_attribute_sentence(node, name, value) for name, value in expected)
    return Difference(", and ".join(sentences), tuple(AttributeOf(node, name, value) for name, value in expected))


def _attribute_sentence(node: Node, name: str, expected: AttributeValue | None) -> str:
    """Return the sentence on an attribute whose value is not the one that a pattern has."""
    actual = dict(node.attributes)[name]
    if name in PER_AXIS and isinstance(actual, tuple) and isinstance(expected, tuple) and len(actual) != len(expected):
        if len(set(expected)) == 1 and set(actual) != set(expected):
            return f"{name} of {node.op} must be {expected[0]} along every axis, not {actual}"
        return f"{node.op} must be over {_counted(len(expected) // PER_AXIS[name])}, not {_counted(len(actual) // PER_AXIS[name])}"
    return f"{name} of {node.op} must be {expected}, not {actual}"


def name_of(pattern: Apply, operand: Tensor) -> str:
    """Return an operator's name of one of its operands, the position where it has none."""
    names = pattern.op.operands
    place = next(n for n, x in enumerate(pattern.operands) if x is operand)
    return names[place] if place < len(names) else str(place)


def _counted(axes: int) -> str:
    return f"{axes} {'axis' if axes == 1 else 'axes'}"


def _operand_difference(
    partial_match: PartialMatch, pattern: Apply, operand: Apply, v: Value, node: Node, maker: Node | None
) -> Difference:
    """Return the difference that an operand makes which another operator gives than a pattern has there.

    Where a device operation gives it that has the operator inside, other readers prevent fusing, and without any nothing is required.
    """
    if maker is None or operand.op.name not in partial_match.absorbing.get(maker.op, ()):
        sentence = f"the operand {name_of(pattern, operand)} of {node.op} must be a result of {operand.op.name}, not "
        return Difference(sentence + _origin_text(partial_match.program, v, maker), (ResultOf(node, v, operand),))
    p = partial_match.program
    other_readers = sorted(
        {p.sources[s].name for n in partial_match.users.get(v, ()) if n.outputs != node.outputs for s in n.origins if p.sources}
    )
    if not other_readers and v not in p.outputs:
        return Difference(f"the chosen program is no dearer with {node.op} on the host")
    reader = f'another node, "{other_readers[0]}",' if other_readers else "the caller"
    sentence = f"{reader} reads the result of {maker.op}, too, so that {node.op} cannot become part of it"
    return Difference(sentence, (SoleReader(node, v),))


def _origin_text(p: Program, v: Value, maker: Node | None) -> str:
    if maker is not None:
        return f"of {maker.op}"
    return "a constant" if p.is_constant(v) else "an input"


def _agrees(partial_match: PartialMatch, term: AttributeTerm, value: AttributeValue | None) -> bool:
    """Tell whether an attribute agrees with a pattern; an unbound attribute variable is bound to the value."""
    key = free_attribute(term)
    if key is not None:
        return bool(partial_match.attributes.setdefault(key, value) == value)
    expected = value_of_attribute(term, partial_match)
    return expected is None or expected == value


def value_of_attribute(term: AttributeTerm, partial_match: PartialMatch) -> AttributeValue | None:
    """Return the value that a pattern requires of an attribute, None where a variable of it is unbound."""
    key = free_attribute(term)
    if key is not None:
        return partial_match.attributes.get(key)
    try:
        if isinstance(term, Ints):
            return list_of(term, partial_match.binding())
        return value_of(term, partial_match.binding()) if isinstance(term, Expr) else term
    except (KeyError, IndexError):
        return None
