"""Places: offload choice and residency as one integer program give what trying everything gives."""

from __future__ import annotations

import importlib
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rewrite_compiler.apps import find_application
from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.matching.dominance import DEPTH, Memo, _Trees, dominated_by_host, without_dominated
from rewrite_compiler.compile.matching.placement import RESULT, Key, Placement, PlacementGraph
from rewrite_compiler.egraph.extraction.extract import extract
from rewrite_compiler.egraph.extraction.prune import CostOf
from rewrite_compiler.egraph.graph.graph import EClass, EGraph, ENode
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.target import find_target

TYPE = TensorType((4, 16), "float32")
INSTANCES = 320
KEYS: tuple[Key, ...] = (("a", "large", 4, (4, 1)), ("b", "large", 4, (4, 1)))
ANY = find_target("vta").mappings["dense"]  # bounds name a mapping for every device operation
MOVE = 7  # what a tensor costs on its way to a device or back


class Instance:
    """A small e-graph: class 0 is the input, the last one the output; offloads of two devices, reshapes and host operators."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.classes: dict[int, list[ENode]] = {0: [ENode("Input", (), (), -1, frozenset())]}
        self.costs: dict[int, int] = {id(self.classes[0][0]): 0}
        self.placed: dict[int, Placement] = {}
        for c in range(1, draw.randint(3, 6)):
            self.classes[c] = [self.node(draw, c) for _ in range(draw.randint(1, 3))]
        self.root = max(self.classes)
        self.graph = EGraph({c: EClass(TYPE, False, tuple(nodes)) for c, nodes in self.classes.items()}, {})

    def node(self, draw: random.Random, c: int) -> ENode:
        kind = draw.choice(("host", "device", "device", "device", "reshape"))
        count = 1 if kind == "reshape" else min(draw.randint(1, 2), c)
        given = ("o_reshape", ((4, 16),)) if kind == "reshape" else (f"{kind}{c}", ())
        made = ENode(given[0], tuple(draw.sample(range(c), count)), given[1], -1, frozenset())
        self.costs[id(made)] = 0 if kind == "reshape" else draw.randint(5, 40)
        if kind == "device":
            self.place(draw, made)
        return made

    def place(self, draw: random.Random, made: ENode) -> None:
        key, calls = draw.choice(KEYS), draw.randint(1, 2)
        operands = {k: key for k in range(len(made.children)) if draw.random() < 0.8}
        result = key if calls == 1 and draw.random() < 0.8 else None
        worth = {**dict.fromkeys(operands, MOVE * calls), **({} if result is None else {RESULT: MOVE})}
        own = self.costs[id(made)]
        total = self.costs[id(made)] = own + sum(worth.values())
        held = (frozenset(x) for n in range(len(worth) + 1) for x in itertools.combinations(worth, n))
        self.placed[id(made)] = Placement(operands, result, calls, {h: total - sum(worth[k] for k in h) for h in held})

    def programs(self) -> Iterator[dict[int, ENode]]:
        """Every way to build the output."""
        for nodes in itertools.product(*self.classes.values()):
            chosen, work = {}, [self.root]
            while work:
                c = work.pop()
                if c not in chosen:
                    chosen[c] = nodes[c]
                    work.extend(nodes[c].children)
            if all(chosen[c] is n for c, n in enumerate(nodes) if c in chosen):
                yield chosen

    def best(self) -> int:
        """The cheapest program with the cheapest residency, by trying every operand on the device and on the host."""
        cheapest = 1 << 30
        for chosen in {tuple(sorted((c, id(n)) for c, n in p.items())): p for p in self.programs()}.values():
            able = [(c, k) for c, n in chosen.items() if id(n) in self.placed for k in self.placed[id(n)].operands]
            for count in range(len(able) + 1):
                for held in itertools.combinations(able, count):
                    cheapest = min(cheapest, self.spent(chosen, frozenset(held)))
        return cheapest

    def spent(self, chosen: dict[int, ENode], held: frozenset[tuple[int, int]]) -> int:
        """What a program costs when these operands are found on their devices; a reshaped tensor is the one it came from."""
        origin: dict[int, int] = {}
        for c in sorted(chosen):
            origin[c] = origin[chosen[c].children[0]] if chosen[c].op == "o_reshape" else c
        on_device, on_host = set[tuple[int, Key]](), {origin[self.root]}
        for c, n in chosen.items():
            for k, d in enumerate(n.children if n.op != "o_reshape" else ()):
                if (c, k) in held:
                    on_device.add((origin[d], self.placed[id(n)].operands[k]))
                else:
                    on_host.add(origin[d])
        total = 0
        for c, n in chosen.items():
            one = self.placed.get(id(n))
            uploads = sum(d == c and (one is None or one.result != key) for d, key in on_device)
            total += MOVE * uploads
            if one is None:
                total += self.costs[id(n)]
                continue
            free = frozenset(k for k in range(len(n.children)) if (c, k) in held)
            stays = one.result is not None and c not in on_host and not uploads
            total += one.cost_by_residents[free | {RESULT} if stays else free]
        return total


def plain(instance: Instance) -> CostOf:
    """What e-nodes cost when all moves."""
    return lambda c, n: (instance.costs[id(n)],)


def pruned(instance: Instance) -> CostOf:
    """The same without what is dominated."""
    names = {n.op for nodes in instance.classes.values() for n in nodes} - {"Input", "o_reshape"}
    return without_dominated(instance.graph, plain(instance), names, instance.placed)


class Bounds:
    """What offloads cost at least: most of what they cost."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.devices = {n.op: ANY for nodes in instance.classes.values() for n in nodes if n.op.startswith("device")}

    def __call__(self, c: int, node: ENode) -> tuple[int, ...]:
        return (self.instance.costs[id(node)] - self.cut(id(node)),)

    def cut(self, node: int) -> int:
        return self.instance.costs[node] // 8

    def placements(self) -> dict[int, Placement]:
        lower = {n: {h: spent - self.cut(n) for h, spent in one.cost_by_residents.items()} for n, one in self.instance.placed.items()}
        return {n: replace(one, cost_by_residents=lower[n]) for n, one in self.instance.placed.items()}


def joint(instance: Instance, cost_of: CostOf) -> tuple[int, int, bool]:
    """The cost of the integer program, its bound, and whether the choice builds the output in the original e-graph."""
    places = PlacementGraph(instance.graph, cost_of, instance.placed)
    found = extract(places.extended_graph(), [instance.root], places.cost)
    back = places.project(found, [instance.root])
    return found.cost[0], found.bound[0], back is not None and all(d in back.choice for n in back.choice.values() for d in n.children)


def test_joint_extraction_is_what_trying_everything_gives() -> None:
    joined = 0
    for seed in range(INSTANCES):
        instance = Instance(seed)
        cost, bound, is_whole = joint(instance, plain(instance))
        expected = instance.best()
        assert (cost, bound) == (expected, expected), seed
        assert is_whole, seed
        joined += any(
            n.op == "Load" for c in PlacementGraph(instance.graph, lambda c, n: (1,), instance.placed).classes.values() for n in c.nodes
        )
    assert joined > INSTANCES // 4  # instances in which something could stay


def test_nothing_dominated_is_in_a_cheapest_program() -> None:
    left_out = 0
    for seed in range(INSTANCES):
        instance = Instance(seed)
        cost_of = pruned(instance)
        left_out += any(cost_of(c, n) is None for c, nodes in instance.classes.items() for n in nodes)
        assert joint(instance, cost_of)[0] == joint(instance, plain(instance))[0], seed
    assert left_out > INSTANCES // 8


def test_nothing_hopeless_is_in_a_cheapest_program() -> None:
    left_out = 0
    for seed in range(INSTANCES):
        instance = Instance(seed)
        never = dominated_by_host(instance.graph, Bounds(instance), plain(instance))
        left_out += bool(never)
        found = joint(instance, lambda c, n, i=instance, never=never: None if id(n) in never else (i.costs[id(n)],))[0]  # type: ignore[misc]
        assert found == joint(instance, plain(instance))[0], seed
    assert left_out > INSTANCES // 12


def test_a_class_has_the_origins_that_it_renames_once_each_and_no_constant() -> None:
    """Reshapes in a circle, as e-graphs have them; a constant that is reshaped is no tensor that a device could leave."""

    def renamed(*operands: int) -> tuple[ENode, ...]:
        return tuple(ENode("o_reshape", (c,), ((4, 16),), -1, frozenset()) for c in operands)

    constant = ENode("Constant", (), (5,), -1, frozenset())
    graph = EGraph(
        {
            0: EClass(TYPE, False, (ENode("Input", (), (), -1, frozenset()), *renamed(1))),
            1: EClass(TYPE, False, renamed(0, 2, 3)),
            2: EClass(TYPE, False, (ENode("o_relu", (0,), (), -1, frozenset()), *renamed(1, 0))),
            3: EClass(TYPE, True, (constant,)),
        },
        {},
    )
    places = PlacementGraph(graph, lambda c, n: (1,), {})
    assert [places.origins(c) for c in graph.classes] == [[0, 1, 2], [1, 0, 2], [2, 1, 0], [3]]


@pytest.mark.parametrize("is_reader", [True, False])
@pytest.mark.parametrize(("host_cost", "is_hopeless"), [(8, True), (9, False), (15, False)])
def test_hopeless_offloads_cost_more_than_a_rival_and_two_moves(host_cost: int, is_reader: bool, is_hopeless: bool) -> None:
    """Its least cost is 23 where a tensor stays, which costs 7 on its way: once as a bound, and once for the rival."""
    offload, rival, other = (ENode(op, (c,), (), -1, frozenset()) for op, c in (("device1", 0), ("host1", 0), ("device2", 1)))
    classes = {0: [ENode("Input", (), (), -1, frozenset())], 1: [offload, rival], 2: [other]}
    key, moved = KEYS[0], frozenset[int]()
    reader = Placement({0: key}, None, 1, {moved: 30, frozenset({0}): 23})
    maker = Placement({}, key, 1, {moved: 30, frozenset({RESULT}): 23})

    class Given:
        def __init__(self) -> None:
            self.devices = {"device1": ANY, "device2": ANY}

        def __call__(self, c: int, node: ENode) -> tuple[int, ...]:
            return (30,)

        def placements(self) -> dict[int, Placement]:
            return {id(offload): reader if is_reader else maker, id(other): maker if is_reader else reader}

    graph = EGraph({c: EClass(TYPE, False, tuple(nodes)) for c, nodes in classes.items()}, {})
    costs = {id(rival): host_cost, id(classes[0][0]): 0}
    hopeless = dominated_by_host(graph, Given(), lambda c, n: (costs.get(id(n), 30),))
    assert hopeless == ({id(offload)} if is_hopeless else set())


def cheapest_tree(instance: Instance, c: int, free: frozenset[int], depth: int) -> float:
    """The cost of the cheapest tree of a class, by trying all."""
    if not depth:
        return math.inf
    return min(
        instance.costs[id(n)] + sum(cheapest_tree(instance, d, free, depth - 1) for d in {*n.children} - free)
        for n in instance.classes[c]
    )  # fmt: skip


def test_a_tree_that_is_sought_below_a_limit_is_the_cheapest_of_all() -> None:
    """With what earlier searches of the same operands remember, whichever limits they had."""
    below = 0
    for seed in range(INSTANCES):
        instance, draw = Instance(seed), random.Random(seed)
        trees = _Trees(instance.graph, plain(instance))
        memos: dict[frozenset[int], Memo] = {}
        for _ in range(12):
            c, depth, limit = draw.choice(list(instance.classes)), draw.randint(1, DEPTH), draw.randint(1, 60)
            free = frozenset(draw.choice(instance.classes[c]).children) if draw.random() < 0.7 else frozenset()
            found, least = trees.cheapest(c, free, depth, limit, memos.setdefault(free, {})), cheapest_tree(instance, c, free, depth)
            assert found == least if least < limit else found >= limit, seed
            below += 0 < least < limit
    assert below > INSTANCES


def test_bounds_of_a_target_are_what_its_tilings_cost_or_less() -> None:
    """The same plans with and without them, by time and by bytes."""
    for objective in ("cycles", "bytes"):
        plan, whole = (compiled(objective, look=look) for look in (True, False))
        assert plan.extraction["cost"] == whole.extraction["cost"]
        assert [o.mapping.name for o in plan.offloads] == [o.mapping.name for o in whole.offloads]


def compiled(objective: str, *, look: bool) -> Plan:
    """Compile the digits CNN for all targets; without a `look` at bounds every tiling is searched."""
    options = Options(shapes={"image": (1, 1, 8, 8)}, objective=objective)
    with pytest.MonkeyPatch.context() as patch:
        if not look:
            patch.setattr(importlib.import_module("rewrite_compiler.compile.matching.match"), "dominated_by_host", lambda *_: frozenset())
        return compile_model(find_application("digits_cnn").model, ["flexasr", "hlscnn", "vta"], options)
