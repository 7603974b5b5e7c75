"""Candidates of extraction, and reductions of them that keep at least one optimum."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..graph.graph import ClassId, EGraph, ENode

Cost = tuple[int, ...]
CostOf = Callable[[ClassId, ENode], Cost | None]


@dataclass(frozen=True)
class Candidate:
    """An e-node that may be chosen: its operand classes without duplicates, and its cost by levels."""

    node: ENode
    children: frozenset[ClassId]
    cost: Cost


Candidates = dict[ClassId, list[Candidate]]


def candidates(graph: EGraph, cost_of: CostOf, constants: frozenset[ClassId] = frozenset()) -> Candidates:
    """Return the candidates by class; a cost of None removes an e-node, and classes in `given` cost nothing and have no candidates."""
    options: Candidates = {}
    for c, e_class in graph.classes.items():
        costed = [(n, cost_of(c, n)) for n in e_class.nodes if c not in constants and c not in n.children]
        options[c] = [Candidate(n, frozenset(n.children) - constants, cost) for n, cost in costed if cost is not None]
    return options


def pruned(options: Candidates, roots: Sequence[ClassId]) -> Candidates:
    """Return the candidates left by all reductions, repeated to a fixed point: buildable, not dominated, reachable, acyclic."""
    while True:
        options = _reachable(_undominated(_buildable(options)), roots)
        grounded = _grounded(options)
        if sum(map(len, grounded.values())) == sum(map(len, options.values())):
            return options  # the other reductions leave alone what they returned
        options = grounded


def _buildable(candidates: Candidates) -> Candidates:
    """Keep candidates all of whose operands can be built, by a worklist from the leaves."""
    users: dict[ClassId, list[tuple[ClassId, Candidate]]] = {}
    unbuilt_operands: dict[int, int] = {}
    work: list[ClassId] = []
    built: set[ClassId] = set()
    for c, options in candidates.items():
        for o in options:
            unbuilt_operands[id(o)] = len(o.children)
            for child in o.children:
                users.setdefault(child, []).append((c, o))
            if not o.children and c not in built:
                built.add(c)
                work.append(c)
    while work:
        for owner, o in users.get(work.pop(), ()):
            unbuilt_operands[id(o)] -= 1
            if unbuilt_operands[id(o)] == 0 and owner not in built:
                built.add(owner)
                work.append(owner)
    return {c: buildable for c, options in candidates.items() if (buildable := [o for o in options if o.children <= built])}


def _undominated(candidates: Candidates) -> Candidates:
    """Drop a candidate when another of its class costs no more and needs no other operands."""
    result: Candidates = {}
    for c, options in candidates.items():
        undominated: list[Candidate] = []
        for o in sorted(options, key=lambda o: (o.cost, len(o.children))):
            if not any(k.children <= o.children for k in undominated):
                undominated.append(o)
        result[c] = undominated
    return result


def _reachable(candidates: Candidates, roots: Iterable[ClassId]) -> Candidates:
    visited: set[ClassId] = set()
    work = [r for r in roots if r in candidates]
    while work:
        c = work.pop()
        if c not in visited:
            visited.add(c)
            work.extend(child for o in candidates[c] for child in o.children)
    return {c: options for c, options in candidates.items() if c in visited}


def _grounded(candidates: Candidates) -> Candidates:
    """Drop candidates that need an operand which cannot be built without their own class: no acyclic choice has them."""
    result = dict(candidates)
    for component in components(candidates):
        classes = sorted(component)
        dominators = dominator_sets(candidates, classes)
        for n, c in enumerate(classes):
            result[c] = [o for o in candidates[c] if all(d not in component or not dominators[d] >> n & 1 for d in o.children)]
    return {c: options for c, options in result.items() if options}


def dominator_sets(options: Candidates, classes: Sequence[ClassId]) -> dict[ClassId, int]:
    """Return the dominators of each class among `classes` as bit sets: the classes in every tree that builds it.

    The greatest fixed point of the data-flow equations of dominance; bit n stands for classes[n], and other classes count as built.
    """
    place = {c: n for n, c in enumerate(classes)}
    users: dict[ClassId, set[ClassId]] = {c: set() for c in classes}
    for c in classes:
        for d in {d for o in options[c] for d in o.children if d in place}:
            users[d].add(c)
    dominators = dict.fromkeys(classes, (1 << len(classes)) - 1)
    work, queued = deque(classes), set(classes)
    while work:
        c = work.popleft()
        queued.discard(c)
        bits = -1
        for o in options[c]:
            candidate_bits = 0
            for d in o.children:
                candidate_bits |= dominators.get(d, 0)
            bits &= candidate_bits
        bits |= 1 << place[c]
        if bits != dominators[c]:
            dominators[c] = bits
            readers = sorted(users[c] - queued)
            work.extend(readers)
            queued.update(readers)
    return dominators


def components(candidates_of: Mapping[ClassId, list[Candidate]]) -> list[frozenset[ClassId]]:
    """Return the strongly connected components of more than one class (Tarjan's algorithm, iterative)."""
    index: dict[ClassId, int] = {}
    low: dict[ClassId, int] = {}
    stack: list[ClassId] = []
    on_stack: set[ClassId] = set()
    strong_components: list[frozenset[ClassId]] = []
    edges = {c: sorted({child for o in options for child in o.children if child in candidates_of}) for c, options in candidates_of.items()}
    for start in candidates_of:
        if start in index:
            continue
        work = [(start, iter(edges[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            current, unvisited = work[-1]
            successor = next((d for d in unvisited if d not in index or d in on_stack), None)
            if successor is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[current])
                if low[current] == index[current]:
                    strong_components.append(_popped(stack, on_stack, current))
            elif successor in index:
                low[current] = min(low[current], index[successor])
            else:
                index[successor] = low[successor] = len(index)
                stack.append(successor)
                on_stack.add(successor)
                work.append((successor, iter(edges[successor])))
    return [f for f in strong_components if len(f) > 1]


def _popped(stack: list[ClassId], on_stack: set[ClassId], until: ClassId) -> frozenset[ClassId]:
    members: set[ClassId] = set()
    while until not in members:
        last = stack.pop()
        on_stack.discard(last)
        members.add(last)
    return frozenset(members)
