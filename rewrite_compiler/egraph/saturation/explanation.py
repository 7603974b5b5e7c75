"""Provenance of an e-node: the rules behind it, by matching again the sides of the rule that made it, down to the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...lang.expr import Expr
from ...ops.op import Apply, AttributeValue, Tensor, Variable, subterms
from ...ops.static import ELEMENTS, Binding, Ints, NamedList, list_of, value_of
from ...rewrite.rule import Float, Rule
from ..graph.graph import ClassId, EGraph, ENode
from ..graph.schema import op_constructor

MOST_NODES = 5_000  # e-nodes visited in the search for one match
Nodes = tuple[tuple[ClassId, ENode], ...]


@dataclass(frozen=True)
class BirthRule:
    """The rule of a birth number, or the mapping, with the names of its operands and static variables in order."""

    rule: Rule
    operands: tuple[str, ...] | None = None
    statics: tuple[str, ...] = ()


@dataclass(frozen=True)
class _State:
    """A partial match: classes of patterns and variables, values of attribute variables, e-nodes matched by operators."""

    classes: Mapping[Any, ClassId]
    values: Mapping[Any, AttributeValue]
    nodes: tuple[tuple[ClassId, ENode], ...] = ()


class Explainer:
    """Explains the e-nodes of an extracted choice; `makers` are the rules and mappings by birth number."""

    def __init__(self, graph: EGraph, choice: Mapping[ClassId, ENode], makers: Sequence[BirthRule]) -> None:
        self.graph, self.choice, self.makers = graph, choice, makers
        self.class_of = {id(n): c for c, n in choice.items()}
        self.users: dict[ClassId, list[tuple[ClassId, ENode]]] = {}
        for c, e_class in graph.classes.items():
            for n in e_class.nodes:
                for d in set(n.children):
                    self.users.setdefault(d, []).append((c, n))

    def births(self, e_node: ENode) -> list[int]:
        """Return the births behind a chosen e-node, its own first: those of the e-nodes it was matched from and of its chosen operands.

        The first match of a rule counts, e-nodes of the program before others; a search ends after MOST_NODES e-nodes without one.
        """
        ordered_births: dict[int, None] = {}
        work = [(self.class_of[id(e_node)], e_node)]
        while work:
            c, node = work.pop(0)
            if node.birth < 0 or node.birth in ordered_births or (node is not e_node and self.makers[node.birth].operands is not None):
                continue  # of the program, visited, or another offload
            ordered_births[node.birth] = None
            work.extend(_Matches(self.graph, self.users).parts(self.makers[node.birth], c, node))
            work.extend((d, self.choice[d]) for d in node.children if d in self.choice)
        return list(ordered_births)


def operand_classes(graph: EGraph, pattern: Tensor) -> Iterator[Mapping[str, ClassId]]:
    """Yield the classes of a pattern's tensor variables at each match in a graph, whatever its guard says."""
    for c in graph.classes:
        for state in _Matches(graph, {}).terms(pattern, c, _State({}, {})):
            yield {name: bound for name, bound in state.classes.items() if isinstance(name, str)}


class _Matches:
    def __init__(self, graph: EGraph, users: Mapping[ClassId, Sequence[tuple[ClassId, ENode]]]) -> None:
        self.graph, self.users = graph, users
        self.forced: dict[int, ENode] = {}
        self.fuel = MOST_NODES

    def parts(self, maker: BirthRule, c: ClassId, node: ENode) -> Nodes:
        """Return the e-nodes that the left side of a rule matched where the rule made `node`."""
        if maker.operands is not None:
            operand_classes = dict(zip(maker.operands, node.children, strict=True))
            variables = (maker.rule.variables[name] for name in maker.statics)
            state = _State(operand_classes, {_key(v): value for v, value in zip(variables, node.attributes, strict=True)})
            find = self.tuples if len(maker.rule.pairs) > 1 else self.terms
            return next((m.nodes for m in find(maker.rule.left, c, state)), ())
        for left, right in maker.rule.pairs:
            for t in subterms(right):
                if isinstance(t, Apply) and op_constructor(t.op).name == node.op:
                    matched_nodes = self.left_match(left, right, t, c, node)
                    if matched_nodes:
                        return matched_nodes
        return ()

    def left_match(self, left: Tensor, right: Tensor, t: Apply, c: ClassId, node: ENode) -> Nodes:
        """Return the e-nodes that the left side matched where subterm `t` of the right side is the e-node `node`."""
        self.forced = {id(t): node}
        for root in self.roots(t, right, c):
            for right_match in self.terms(right, root, _State({id(left): root}, {})):
                state = _State({k: v for k, v in right_match.classes.items() if isinstance(k, str)}, right_match.values)
                self.forced = {}
                return next((m.nodes for m in self.terms(left, root, state)), ())
        return ()

    def roots(self, t: Apply, right: Tensor, c: ClassId) -> Iterator[ClassId]:
        """Yield the classes that the whole right side can be in when its subterm `t` is in class `c`."""
        # what an operator of several results made is in the class of all of them
        projections = [u for u, n in self.users.get(c, ()) if n.op == "Result" and n.attributes[0] == t.output]
        for output in projections if t.op.outputs > 1 else [c]:
            if t is right:
                yield output
            for parent in subterms(right):
                if isinstance(parent, Apply) and any(x is t for x in parent.operands):
                    name = op_constructor(parent.op).name
                    for user in dict.fromkeys(u for u, n in self.users.get(output, ()) if n.op == name):
                        yield from self.roots(parent, right, user)

    def terms(self, t: Tensor, c: ClassId, state: _State) -> Iterator[_State]:
        """Yield the matches of a pattern in a class."""
        key = t.name if isinstance(t, Variable) else id(t)
        if isinstance(t, Variable) or key in state.classes:
            if state.classes.get(key, c) != c:
                return
            if isinstance(t, Variable):
                yield _State({**state.classes, key: c}, state.values, state.nodes)
                return
        if not isinstance(t, Apply):
            return
        bound = _State({**state.classes, key: c}, state.values, state.nodes)
        if t.op.outputs == 1:
            yield from self.applications(t, c, bound)
            return
        for n in self.graph.classes[c].nodes:
            if n.op == "Result" and n.attributes[0] == t.output:
                yield from self.tuples(t, n.children[0], bound)

    def tuples(self, t: Tensor, c: ClassId, state: _State) -> Iterator[_State]:
        """Yield the matches of all results of an operator in the class of their tuple."""
        if isinstance(t, Apply):
            yield from self.applications(t, c, state)

    def applications(self, t: Apply, c: ClassId, state: _State) -> Iterator[_State]:
        constructor, forced_node = op_constructor(t.op), self.forced.get(id(t))
        options = [n for n in self.graph.classes[c].nodes if n.op == constructor.name and (forced_node is None or n is forced_node)]
        for n in sorted(options, key=lambda n: n.birth):
            self.fuel -= 1
            if self.fuel < 0:
                return
            states: Iterator[_State] = iter([_State(state.classes, state.values, (*state.nodes, (c, n)))])
            for x, child in zip(t.operands, n.children, strict=True):
                states = self.extended(states, x, child)
            for s in states:
                values = self.attributes(t, n, s)
                if values is not None:
                    yield _State(s.classes, values, s.nodes)

    def extended(self, states: Iterator[_State], t: Tensor, c: ClassId) -> Iterator[_State]:
        for state in states:
            yield from self.terms(t, c, state)

    def attributes(self, t: Apply, node: ENode, state: _State) -> Mapping[Any, AttributeValue] | None:
        """Return the bindings of attribute variables extended by an e-node's attributes; None where they conflict."""
        values = dict(state.values)
        for a, value in zip(t.op.attributes, node.attributes, strict=True):
            term = t.attributes[a.name]
            key = _key(term)
            expected = values.setdefault(key, value) if key is not None else self.evaluate(term, value, _State(state.classes, values))
            if expected != value:
                return None
        return values

    def evaluate(self, term: object, value: AttributeValue, state: _State) -> AttributeValue:
        """Return the value of a literal or computed attribute; `value` itself where a variable of it is not bound yet."""
        if not isinstance(term, Ints | Expr):
            return tuple(term) if isinstance(term, list) else term  # type: ignore[return-value]
        binding = Binding(lambda x: self.shape(x, state), state.values)
        try:
            return list_of(term, binding) if isinstance(term, Ints) else value_of(term, binding)
        except (KeyError, IndexError):
            return value

    def shape(self, x: Any, state: _State) -> tuple[int, ...]:
        tensor_type = self.graph.classes[state.classes[x.name if isinstance(x, Variable) else id(x)]].type
        if tensor_type is None:
            raise KeyError(x)
        return tensor_type.shape


def _key(term: object) -> Any:
    """Return the key under which an attribute variable is bound, None for other terms."""
    if isinstance(term, NamedList | Float):
        return term.name
    return term if isinstance(term, Expr) and term.op == "var" and term not in ELEMENTS else None
