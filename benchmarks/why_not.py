"""Are the reasons why nodes stay on the host true? What a reason names is changed, and the node must then be offloaded.

Host nodes are drawn over the architectures of the gallery, or the models of a folder, and accelerators: one of each reason in each
plan. The plan's program around the node, its offloads written out, is changed as the reason says (an operand becomes a result of the
operator that is named, or a constant; an attribute, a shape, the kind of numbers or the readers change), capacities are lifted on
the device, and where the objective is named the node is pinned; then all is matched anew, and an offload must compute the node.
Where `--rules lowering` is named, the node must be offloaded with it. A reason that names no change says that none would do: there
the operator is tried in many forms, each with a price on the host, with and without the lowerings, and none may be offloaded.
Reasons that were not true are shown, and with fewer true ones than --share the script ends with 1. With `--json FILE` the record
goes on where it ended.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from functools import cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from changed_programs import Edit, Rebuilt, alone, around, cores_of, edits, variants
from record import Row, finish, options, recorded
from styles import models

from rewrite_compiler.compile import Options
from rewrite_compiler.compile.compile import SearchSpace, cheaper_in_steps, search_space
from rewrite_compiler.compile.explanation.host_reasons import HostReasons, Reason
from rewrite_compiler.compile.matching.match import MatchResult, match
from rewrite_compiler.compile.matching.pins import NO_PINS, Pins
from rewrite_compiler.compile.matching.recurrences import RECURRENT, unroll_recurrences
from rewrite_compiler.compile.matching.requirements import Capacity, PartOf, Pinned
from rewrite_compiler.egraph.extraction.prune import CostOf
from rewrite_compiler.egraph.graph.graph import EGraph, ENode
from rewrite_compiler.egraph.graph.term_rows import operator_named
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.load import load
from rewrite_compiler.ir.program import Node, Program
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.ops.op import LAYOUT, OPS, Apply
from rewrite_compiler.rewrite.ruleset import LOWERING, lowering_rules
from rewrite_compiler.target import Limit, Mapping, Target, body_of, find_target, target_names
from rewrite_compiler.target.meaning import inlined

# a search that a busy machine cuts short is no answer
UNHURRIED = replace(DEFAULT, saturation_seconds=3600, extraction_seconds=3600, alternatives_seconds=3600, solver_seconds=600)
PRICE = 10**9  # on the first level of the objective, beyond all multiply-accumulates of a small model
WITH_LOWERINGS = Options(rules=(Path(LOWERING),))
MOST_EDITS = 8  # ways to make a change that are tried
WRITTEN = 10  # verdicts after which the record is written


@dataclass(frozen=True)
class Price(Pins):
    """A price on source nodes on the host, which any operation that takes them is cheaper than, whatever the objective."""

    origins: frozenset[int] = frozenset()

    def restrict(self, cost_of: CostOf, graph: EGraph, devices: MappingOf[str, Mapping]) -> CostOf:
        """Return a cost function with the price on its first level."""

        def cost(c: int, node: ENode) -> tuple[int, ...] | None:
            levels, op = cost_of(c, node), operator_named(node.op)
            free = levels is None or node.op in devices or op is None or op.kind == LAYOUT or graph.classes[c].fixed
            return levels if levels is None or free or not self.origins & node.origins else (levels[0] + PRICE, *levels[1:])

        return cost


@dataclass(frozen=True)
class Compiled:
    """A program matched for a target, with its offloads written out, and why its host nodes stay there."""

    name: str
    target: Target
    space: SearchSpace
    result: MatchResult
    written_out: Program
    reasons: HostReasons

    def host_nodes(self) -> list[Node]:
        """Return the host nodes that compute."""
        return [n for n in self.result.program.nodes if n.operator is not None and n.operator.kind != LAYOUT and n.origins]

    def takes(self, node: Node, edit: Edit, space: SearchSpace, pinned: str = "") -> bool:
        """Tell whether an accelerator takes a node in another search space once the program is changed at it."""
        rebuilt = Rebuilt(around(self.written_out, node), node, edit)
        p = rebuilt.program()
        if p is None:
            return False
        pins = Pins({rebuilt.number: pinned}) if pinned else NO_PINS
        steps = unroll_recurrences(p, p.nodes) if node.op in RECURRENT else None
        return rebuilt.number in (taken(p, space, pins) if steps is None else taken(steps, space, pins, partly=True))


def taken(p: Program, space: SearchSpace, pins: Pins, *, partly: bool = False) -> frozenset[int]:
    """Return the source nodes that offloads compute, those of which the host computes a part, as gates of a layer, only if asked."""
    try:
        program = match(p, space.rules, space.mappings, UNHURRIED, space.objective, pins).program
    except (FlexmatchError, ValueError):  # without its condition on shapes an operation has no dimensions
        return frozenset()
    names = {m.name for m in space.mappings}
    offloaded = frozenset(s for n in program.nodes if n.op in names for s in n.origins)
    hosts = [n for n in program.nodes if n.operator is not None and n.operator.kind != LAYOUT]
    return offloaded if partly else offloaded - {s for n in hosts for s in n.origins}


def compiled(path: Path, target: Target) -> Compiled:
    """Return a model matched for a target."""
    program, space = load(path).program, search_space([target], Options())
    alone = match(program, space.rules, space.mappings, UNHURRIED, space.objective)
    _, result = cheaper_in_steps(program, alone, space, Options(limits=UNHURRIED))
    unselected = [m for m in target.mappings.values() if m.runtime_weights]
    lowerings = lowering_rules()
    reasons = HostReasons(
        result.program, space.mappings, result.fitted, space.objective, unselected=unselected, rules=space.rules, lowerings=lowerings
    )
    by_name = {m.name: m for m in space.mappings}
    p = result.program
    written_out = inlined(p, lambda n: body_of(by_name[n.op], [p.types[v] for v in n.inputs], dict(n.attributes)))
    return Compiled(path.stem, target, space, result, written_out, reasons)


def without_limit(m: Mapping, limit: Limit) -> Mapping:
    """Return a mapping of a device with as much of one capacity as is needed."""
    assert m.capacities is not None
    capacities: Callable[..., Any] = m.capacities

    @wraps(capacities)
    def lifted(*args: Any, **sizes: Any) -> Iterator[Limit]:
        yield from (Limit(x.what, 0, x.most) if x.what == limit.what else x for x in capacities(*args, **sizes))

    return replace(m, capacities=lifted)


def is_met(c: Compiled, node: Node, reason: Reason) -> bool:
    """Tell whether a node is offloaded once the requirements of its reason are met."""
    part = next((r for r in reason.requirements if isinstance(r, PartOf)), None)
    if part is not None:
        return 0 in taken(alone(part.mapping, node), c.space, NO_PINS)
    lifted = {id(r.mapping): without_limit(r.mapping, r.limit) for r in reason.requirements if isinstance(r, Capacity)}
    space = replace(c.space, mappings=[lifted.get(id(m), m) for m in c.space.mappings])
    pinned = next((r.target for r in reason.requirements if isinstance(r, Pinned)), "")
    ways = (edit for edit, _ in zip(edits(around(c.written_out, node), node, reason.requirements), range(MOST_EDITS), strict=False))
    return any(c.takes(node, edit, space, pinned) for edit in ways)


@cache
def lowering_space(target: str) -> SearchSpace:
    """Return the search space of a target with the lowerings."""
    return search_space([find_target(target)], WITH_LOWERINGS)


@cache
def is_never_taken(target: str, op: str, attributes: tuple[tuple[str, Any], ...]) -> bool:
    """Tell whether no form of an operator is offloaded to a target, whatever it costs on the host."""
    if any(a.default is None and a.name not in dict(attributes) for a in OPS[op].attributes):
        return False
    spaces = [search_space([find_target(target)], Options()), lowering_space(target)]
    cores = cores_of([m.rule.left for m in spaces[0].mappings if isinstance(m.rule.left, Apply)])
    p = variants(op, cores, attributes)
    tried = frozenset(range(1, len(p.sources), 2))
    return bool(tried) and not any(taken(p, space, Price(origins=tried)) & tried for space in spaces)


def verdict(c: Compiled, node: Node) -> tuple[str, bool, str]:
    """Return what a node's reason names, whether that is so, and the reason."""
    reason = c.reasons.reason(node)
    if not reason.requirements and not reason.lowers:
        in_no_mapping = reason.sentence.startswith("no mapping for")
        return "no change", in_no_mapping and is_never_taken(c.target.name, node.op, node.attributes), reason.sentence
    kind = " and ".join(dict.fromkeys([*(type(r).__name__ for r in reason.requirements), *(["lowering"] if reason.lowers else [])]))
    is_true = not reason.requirements or is_met(c, node, reason)
    lowered = not reason.lowers or c.takes(node, Edit(), lowering_space(c.target.name))
    return kind, is_true and lowered, reason.sentence


def drawn(paths: Sequence[Path], targets: Sequence[Target], count: int) -> Iterator[tuple[Compiled, Node]]:
    """Yield host nodes of models and targets, drawn at random from one of each reason in each plan."""
    order = random.Random(1)
    plans = [compiled(path, target) for path in paths for target in targets]
    nodes = []
    for c in plans:
        hosts = c.host_nodes()
        order.shuffle(hosts)
        nodes += [(c, n) for n in {c.reasons(n): n for n in hosts}.values()]
    yield from order.sample(nodes, min(count, len(nodes)))


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=200)
    parser.add_argument("--targets", default=",".join(target_names()), help="accelerators (default: %(default)s)")
    parser.add_argument("--models", type=Path, metavar="DIR", help="a folder of models, in place of the gallery")
    parser.add_argument("--share", type=float, default=0.95, help="of reasons that must be true (default: %(default)s)")
    args = parser.parse_args()
    rows = recorded(args.json)
    with TemporaryDirectory() as scratch:
        paths = list(models(args.models, Path(scratch)))
        for number, (c, node) in enumerate(drawn(paths, [find_target(t) for t in args.targets.split(",")], args.runs)):
            place: Row = {"name": c.name, "target": c.target.name, "op": node.op}
            if number < len(rows):
                if any(rows[number][key] != value for key, value in place.items()):
                    raise SystemExit(f"{args.json}: row {number} is not {place}, which is drawn now: delete the file")
                continue
            kind, is_true, reason = verdict(c, node)
            rows.append({**place, "kind": kind, "true": is_true, "reason": reason})
            if not is_true:
                print(f"not true: {c.name} on {c.target.name}, {node.op}: {reason}", flush=True)
            if len(rows) % WRITTEN == 0:
                finish("why_not", rows, args.json)
    verdicts = Counter((str(row["kind"]), bool(row["true"])) for row in rows)
    for (kind, is_true), n in sorted(verdicts.items()):
        print(f"{n:4} {kind}: {'true' if is_true else 'NOT true'}")
    true = sum(bool(row["true"]) for row in rows)
    print(f"{true} of {len(rows)} reasons are true")
    finish("why_not", rows, args.json)
    raise SystemExit(true < args.share * len(rows))


if __name__ == "__main__":
    main()
