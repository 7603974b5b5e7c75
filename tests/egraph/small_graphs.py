"""Small random e-graphs with cycles, and their cheapest programs found by trying every choice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from rewrite_compiler.egraph.extraction.prune import Cost
from rewrite_compiler.egraph.graph.graph import PROGRAM, EClass, EGraph, ENode
from rewrite_compiler.ir.types import TensorType

Draw = Callable[[random.Random], int]
Choice = Mapping[int, ENode]
FORBIDDEN = "forbidden"


def cost_of(graph: EGraph) -> Callable[[int, ENode], Cost | None]:
    """Return what e-nodes cost: their attributes, nothing in constant classes; a forbidden e-node has no cost."""

    def cost(c: int, node: ENode) -> Cost | None:
        if node.op == FORBIDDEN:
            return None
        given = tuple(int(a) for a in node.attributes)  # type: ignore[arg-type]
        return (0,) * len(given) if graph.classes[c].fixed else given

    return cost


def random_graph(seed: int, levels: int = 2, draw: Draw = lambda r: r.choice((0, 0, 1, 2, 3, 5))) -> tuple[EGraph, tuple[int, ...]]:
    """Return an e-graph of 3 to 8 classes and its roots; classes refer to each other freely, some are constant or forbidden."""
    r = random.Random(seed)
    count = r.randint(3, 8)
    nodes: dict[int, list[ENode]] = {c: [] for c in range(count)}
    for c in range(count):
        for n in range(r.randint(1, 3)):
            arity = r.choice((0, 1, 1, 2, 2, 3)) if c else r.choice((1, 2, 3))
            children = tuple(r.randrange(count) for _ in range(arity))
            op = FORBIDDEN if r.random() < 0.05 else f"{c}.{n}"
            nodes[c].append(ENode(op, children, tuple(draw(r) for _ in range(levels)), PROGRAM, frozenset()))
    for c in r.sample(range(1, count), r.choice((0, 0, 1, 2))):
        nodes[c] = [ENode("leaf", (), (0,) * levels, PROGRAM, frozenset())]
    fixed = _constant(nodes) if r.random() < 0.3 else set()
    graph = EGraph({c: EClass(TensorType(()), c in fixed, tuple(found)) for c, found in nodes.items()}, {})
    return graph, (0,) if r.random() < 0.6 else (0, r.randrange(1, count))


def _constant(nodes: Mapping[int, Sequence[ENode]]) -> set[int]:
    """Return the classes that some choice builds from leaves of the first leaf class: as an importer's constants would be."""
    found = {c for c in nodes if c and any(not n.children and n.op != FORBIDDEN for n in nodes[c])}
    return set(sorted(found)[:1])


def acyclic_choices(graph: EGraph, roots: Sequence[int]) -> Iterator[dict[int, ENode]]:
    """Yield every choice of one allowed e-node for each class below the roots that does not contain itself."""

    def extend(chosen: dict[int, ENode], needed: list[int]) -> Iterator[dict[int, ENode]]:
        rest = [c for c in needed if c not in chosen]
        if not rest:
            yield chosen
            return
        for node in graph.classes[rest[0]].nodes:
            larger = {**chosen, rest[0]: node}
            if node.op != FORBIDDEN and not _reaches(larger, node.children, rest[0]):
                yield from extend(larger, [*rest[1:], *node.children])

    yield from extend({}, list(roots))


def _reaches(choice: Choice, start: Sequence[int], goal: int) -> bool:
    work, seen = list(start), set(start)
    while work:
        c = work.pop()
        if c == goal:
            return True
        following = set(choice[c].children) - seen if c in choice else set()
        seen |= following
        work.extend(following)
    return False


def total(graph: EGraph, choice: Choice, roots: Sequence[int], levels: int) -> Cost:
    """Return the cost of what a choice builds below the roots, every class once; AssertionError when it contains itself."""
    price = cost_of(graph)
    done: dict[int, Cost] = {}

    def build(c: int, above: frozenset[int]) -> None:
        assert c not in above, "a choice contains itself"
        if c in done:
            return
        for d in choice[c].children:
            build(d, above | {c})
        paid = price(c, choice[c])
        assert paid is not None
        done[c] = paid

    for root in roots:
        build(root, frozenset())
    return tuple(sum(cost[k] for cost in done.values()) for k in range(levels))


def cheapest(graph: EGraph, roots: Sequence[int], levels: int) -> Cost | None:
    """Return the least cost, level by level, over all choices; None when the roots cannot be built."""
    return min((total(graph, choice, roots, levels) for choice in acyclic_choices(graph, roots)), default=None)
