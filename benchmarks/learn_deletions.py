"""Does `learn` find a deleted law again? Rules of layout and linear layers, drawn by seed, each deleted and searched for.

    python benchmarks/learn_deletions.py --seed 1 --log deletions.jsonl --json benchmarks/results/learn_deletions.json

The set is every rule of rules/layout.py and rules/linear.py. Of a rule that is drawn, models are written until one is found
whose plan costs less with the rule than without: its left side at a drawn instance, between linear layers or not, with the
layout before it put back or not. A rule that none of them needs, because others stand in for it, is listed and the next one is
drawn. The model, written to a file, is all that the search gets beside the rules that are left. A deletion is found again when
the laws that were found, each with its certificate, bring the plan's cost down to what it is with all rules. What is in the
log is not judged again.
"""

from __future__ import annotations

import importlib
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import Row, finish, options

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.graph.emit import to_onnx
from rewrite_compiler.frontend.load import load
from rewrite_compiler.ir.program import Builder, Program, Value
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.limits import Limits
from rewrite_compiler.ops.op import Apply, Tensor, Variable
from rewrite_compiler.ops.static import IsConstant
from rewrite_compiler.prove.instances.instance_search import Instance, attributes_of, drawn_instances
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.ruleset import rules_in, shipped_rules
from rewrite_compiler.rewrite.text import rule_text
from rewrite_compiler.study.laws.learn import RuleSearch, Worth
from rewrite_compiler.target import Mapping, find_target

SET = ("layout", "linear")
ACCEL = ("flexasr", "vta")
DELETIONS, SECONDS = 10, 600.0
INSTANCES = 6  # drawn of a rule, the largest first
EXTENTS, RANK = range(2, 5), 4
LIMITS = Limits()


def candidates(rule: Rule) -> Iterator[Program]:
    """Yield programs that contain the left side of a rule."""
    instances = drawn_instances(rule, EXTENTS, RANK, INSTANCES, seed=3) or drawn_instances(rule, range(1, 4), RANK, INSTANCES, seed=3)
    for instance in sorted(instances, key=lambda i: -i.size):
        for before in (False, True):
            for after in ("", "back", "layer", "back layer"):
                yield program(rule, instance, before, after)


def program(rule: Rule, instance: Instance, before: bool, after: str) -> Program:
    """Return the left side at an instance, its first operand from a linear layer or not, its result put back or read by a layer."""
    builder, random_data = Builder(rule.name), np.random.default_rng(5)
    constant = {c.tensor.name for c in rule.where if isinstance(c, IsConstant) and isinstance(c.tensor, Variable)}
    values: dict[str, Value] = {}

    def operand(name: str, shape: Sequence[int]) -> Value:
        if name in constant:
            return builder.constant(random_data.standard_normal(shape).astype(np.float32), name)
        v = builder.input(name, TensorType(tuple(shape), "float32"))
        return layer(builder, v, random_data) if before and len(values) == 0 and shape else v

    for name, shape in instance.operands.items():
        values[name] = operand(name, shape)
    (left, _), *_ = rule.pairs
    y = built(builder, left, values, instance)
    if after.startswith("back"):
        y = put_back(builder, left, y, instance)
    if after.endswith("layer") and builder.types[y].shape:
        y = layer(builder, y, random_data)
    return builder.finish([y])


def built(builder: Builder, t: Tensor, values: dict[str, Value], instance: Instance) -> Value:
    """Add a pattern to a program."""
    if isinstance(t, Variable):
        return values[t.name]
    assert isinstance(t, Apply)
    operands = [built(builder, x, values, instance) for x in t.operands]
    return builder.apply(t.op.name, operands, attributes_of(t, instance.binding()))[t.output]


def layer(builder: Builder, x: Value, random_data: np.random.Generator) -> Value:
    """Add a linear layer over the last axis."""
    n = builder.types[x].shape[-1]
    return builder.apply("dense", [x, builder.constant(random_data.standard_normal((n, n)).astype(np.float32))])[0]


def put_back(builder: Builder, left: Tensor, y: Value, instance: Instance) -> Value:
    """Undo what the layout operator inside of a left side did to its operand's shape, where there is one."""
    inner = next((x for x in getattr(left, "operands", ()) if isinstance(x, Apply) and x.op.name in ("reshape", "transpose")), None)
    if inner is None:
        return y
    if inner.op.name == "reshape":
        shape = instance.shapes[id(inner.operands[0])]
        return builder.apply("reshape", [y], {"shape": shape})[0] if np.prod(shape) == np.prod(builder.types[y].shape) else y
    perm: Any = attributes_of(inner, instance.binding())["perm"]
    return (
        builder.apply("transpose", [y], {"perm": tuple(int(n) for n in np.argsort(perm))})[0]
        if len(perm) == len(builder.types[y].shape)
        else y
    )


def model_that_needs(rule: Rule, rules: Sequence[Rule], mappings: Sequence[Mapping], folder: Path) -> tuple[Path, Worth] | None:
    """Return a model file whose plan costs less with a rule than without, and what it is worth with it."""
    remaining_rules = [r for r in rules if r.name != rule.name]
    hashes = set[bytes]()
    for p in candidates(rule):
        path = folder / "model.onnx"
        try:
            data = to_onnx(p)
            if data in hashes:
                continue
            hashes.add(data)
            path.write_bytes(data)
            loaded = load(path, {}, LIMITS).program
            worth_with, worth_without = (
                RuleSearch([loaded], some, mappings, LIMITS, 0.0).worth_with() for some in ([*rules], remaining_rules)
            )
        except FlexmatchError:
            continue
        if worth_with.cost < worth_without.cost:
            return path, worth_with
    return None


def deletion(rule: Rule, rules: Sequence[Rule], mappings: Sequence[Mapping]) -> Row:
    """Delete a rule and search for it; return what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        needed = model_that_needs(rule, rules, mappings, Path(folder))
        if needed is None:
            return {"rule": rule.name, "verdict": "no model needs it"}
        path, goal = needed
        hunt = RuleSearch([load(path, {}, LIMITS).program], [r for r in rules if r.name != rule.name], mappings, LIMITS, SECONDS)
        wall, laws, reached = time.perf_counter(), [], hunt.worth_with()
        for law in hunt.laws():
            laws.append(law)
            reached = hunt.worth_with()
            if reached.cost <= goal.cost:
                break
    return {
        "rule": rule.name, "verdict": "found" if reached.cost <= goal.cost else "not found",
        "goal": list(goal.cost), "reached": list(reached.cost),
        "laws": [{"text": rule_text(x.rule), "verdict": x.proof.verdict, "strength": x.proof.strength} for x in laws],
        "fragments": hunt.fragments, "candidates": hunt.candidates, "judged": hunt.judged,
        "cpu_seconds": round(time.process_time() - hunt.started, 1), "wall_seconds": round(time.perf_counter() - wall, 1),
    }  # fmt: skip


def main() -> None:
    """Delete and search until ten rules that a model needs are through."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=Path, help="one line a deletion; what is there is not done again")
    args = parser.parse_args()
    rules = shipped_rules()
    whole = [r for name in SET for r in rules_in(importlib.import_module(f"rewrite_compiler.rules.{name}"))]
    order = random.Random(args.seed).sample(whole, len(whole))
    mappings = [m for n in ACCEL for m in find_target(n).mappings.values()]
    rows_by_rule = {r["rule"]: r for r in map(json.loads, args.log.read_text().splitlines())} if args.log and args.log.exists() else {}
    rows: list[Row] = []
    for rule in order:
        row = rows_by_rule.get(rule.name) or deletion(rule, rules, mappings)
        rows.append(row)
        if args.log and rule.name not in rows_by_rule:
            with args.log.open("a") as log:
                log.write(json.dumps(row) + "\n")
        print(row["rule"], row["verdict"], row.get("cpu_seconds", ""), flush=True)
        if sum(r["verdict"] != "no model needs it" for r in rows) == DELETIONS:
            break
    found_count = sum(r["verdict"] == "found" for r in rows)
    summary: Row = {"seed": args.seed, "set": len(whole), "deletions": DELETIONS, "found": found_count, "seconds_each": SECONDS}
    print(summary)
    finish("learn_deletions", [summary, *rows], args.json)


if __name__ == "__main__":
    main()
