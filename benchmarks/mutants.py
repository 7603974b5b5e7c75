"""Which wrong copies of the shipped rules does the court let pass? Every single change of a list of kinds, survivors by name.

    python benchmarks/mutants.py --log mutants.jsonl --json benchmarks/results/mutants.json
    python benchmarks/mutants.py --draw benchmarks/results/mutants.json

A mutant differs from its rule in one guard that is left out or one operator, operand or attribute of the right side. It is judged
on 4 drawn instances, then on 30, then at every shape, so that a survivor is one of the whole court. What is in the log is not
judged again. The second command draws those that a record says are proved, in other instances and more of them than the court
did: a proof of a false law would show there. It ends with 1 where one is refuted.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from record import Row, finish, options

from rewrite_compiler.ops.op import FLOAT, INT, INTS, OPS, Apply, Tensor
from rewrite_compiler.ops.static import IsConstant, ListLiteral
from rewrite_compiler.prove.rules.refuter import witness
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.prove.verdict import PROVED, REFUTED, Proof
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.ruleset import shipped_rules

COUNTS = (4, 30, None)
SEEDS, SHARE = (101, 202), 2.0  # of draws of what is proved: others than the court's, and twice its work
# operators that take the same operands and attributes
OTHERS = {
    "add": ("sub", "mul"), "sub": ("add",), "mul": ("add", "div"), "max": ("min",), "relu": ("neg", "abs"), "neg": ("relu",),
    "abs": ("relu",), "exp": ("tanh",), "log": ("exp",), "sqrt": ("exp",), "tanh": ("sigmoid",), "sigmoid": ("tanh",), "erf": ("tanh",),
    "reciprocal": ("neg",), "bias_add": ("scale",), "scale": ("bias_add",), "reduce_max": ("reduce_mean", "reduce_sum"),
    "reduce_mean": ("reduce_sum", "reduce_max"),
}  # fmt: skip


def changed(t: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield a pattern with one change, and its kind."""
    if not isinstance(t, Apply):
        return
    if len(t.operands) == 2 and t.operands[0] is not t.operands[1]:
        yield "operands exchanged", replace(t, operands=t.operands[::-1])
    if len(t.operands) == 1:
        yield "operator left out", t.operands[0]
    yield from (("another operator", replace(t, op=OPS[name])) for name in OTHERS.get(t.op.name, ()) if name in OPS)
    yield from (("attribute changed", replace(t, attributes={**t.attributes, **new})) for new in attributes(t))
    for n, operand in enumerate(t.operands):
        for kind, x in changed(operand):
            yield kind, replace(t, operands=(*t.operands[:n], x, *t.operands[n + 1 :]))


def negated(t: Tensor) -> Iterator[Tensor]:
    """Yield a pattern with one negation put in: the types stay what they are."""
    if not isinstance(t, Apply):
        return
    yield Apply(OPS["neg"], (t,), {})
    for n, operand in enumerate(t.operands):
        for x in negated(operand) if isinstance(operand, Apply) else [Apply(OPS["neg"], (operand,), {})]:
            yield replace(t, operands=(*t.operands[:n], x, *t.operands[n + 1 :]))


def attributes(t: Apply) -> Iterator[dict[str, object]]:
    """Yield changed values of one attribute."""
    for a in t.op.attributes:
        value = t.attributes[a.name]
        if a.kind == INTS and isinstance(value, ListLiteral):
            listed = value.elements
            for n in range(len(listed) - 1):
                if listed[n] is not listed[n + 1]:
                    yield {a.name: ListLiteral((*listed[:n], listed[n + 1], listed[n], *listed[n + 2 :]))}
            yield from ({a.name: ListLiteral((*listed[:n], listed[n] + 1, *listed[n + 1 :]))} for n in range(len(listed)))
        if a.kind == INT and not isinstance(value, str | float):
            yield from ({a.name: value + by} for by in (1, -1))  # type: ignore[operator]
        if a.kind == FLOAT and isinstance(value, int | float):
            yield {a.name: value + 1.0}


def mutants() -> Iterator[tuple[str, Rule]]:
    """Yield every mutant with what was changed."""
    for r in shipped_rules():
        for n, c in enumerate(r.where):
            if not isinstance(c, IsConstant):
                yield f"guard {n} left out", replace(r, where=r.where[:n] + r.where[n + 1 :])
        for k, (left, right) in enumerate(r.pairs):
            for n, (kind, made) in enumerate(changed(right)):
                yield f"{kind} (equation {k}, change {n})", replace(r, pairs=(*r.pairs[:k], (left, made), *r.pairs[k + 1 :]))
            for n, made in enumerate(negated(right)):
                yield f"negation put in (equation {k}, place {n})", replace(r, pairs=(*r.pairs[:k], (left, made), *r.pairs[k + 1 :]))


def judged(mutant: Rule) -> Proof:
    """Return the verdict on a mutant: on a few drawn instances, on more, and at every shape, as long as nothing refutes it."""
    proof = prove_rule(mutant, count=COUNTS[0])
    for count in COUNTS[1:]:
        if proof.verdict == REFUTED:
            break
        proof = prove_rule(mutant, count=count)
    return proof


def row(change: str, mutant: Rule) -> Row:
    """Return the verdict on a mutant as a row; a mutant with sides of different types is refuted by them, code R105."""
    started = time.process_time()
    proof = judged(mutant)
    return {
        "rule": mutant.name, "change": change, "verdict": proof.verdict, "code": proof.code, "strength": proof.strength,
        "evidence": proof.evidence, "cpu_seconds": round(time.process_time() - started, 2),
    }  # fmt: skip


def summary_of(rows: Sequence[Row], total: int) -> Row:
    """Return the counts: how many were judged, had sides of one type, were refuted, or proved at all shapes."""
    typed = [r for r in rows if r["code"] != "R105"]
    decided = [r for r in rows if r["verdict"] == REFUTED or str(r["strength"]).startswith("all shapes")]
    return {
        "mutants": total, "judged": len(rows), "well_typed": len(typed), "refuted": sum(r["verdict"] == REFUTED for r in rows),
        "refuted_or_proved_equal": len(decided), "share": round(len(decided) / max(len(rows), 1), 4),
        "cpu_seconds": round(sum(float(str(r["cpu_seconds"])) for r in rows), 1),
    }  # fmt: skip


def drawn(record: Path) -> int:
    """Draw every mutant that a record says is proved; return how many of them have a witness, which is printed."""
    proved = {(r["rule"], r["change"]) for r in json.loads(record.read_text("utf-8"))["rows"] if r.get("verdict") == PROVED}
    laws = [(change, m) for change, m in mutants() if (m.name, change) in proved]
    found = 0
    for change, m in laws:
        example = next((w for seed in SEEDS if (w := witness(m, seed=seed, share=SHARE)) is not None), None)
        if example is not None:
            found += 1
            print(m.name, change, example, flush=True)
    print(f"{len(laws)} of {len(proved)} proved mutants drawn, {found} refuted")
    return found + len(proved) - len(laws)


def main() -> None:
    """Judge all mutants in an order drawn by seed, so that those that are through are a sample of all."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--log", type=Path, help="one line a mutant; what is there is not judged again")
    parser.add_argument("--draw", type=Path, metavar="RECORD", help="draw what this record says is proved, and judge nothing")
    args = parser.parse_args()
    if args.draw:
        raise SystemExit(drawn(args.draw) > 0)
    whole = list(mutants())
    order = random.Random(0).sample(whole, len(whole))
    logged = map(json.loads, args.log.read_text().splitlines()) if args.log and args.log.exists() else ()
    known = {(r["rule"], r["change"]): r for r in logged}
    rows: list[Row] = []
    for change, mutant in order:
        found = known.get((mutant.name, change)) or row(change, mutant)
        rows.append(found)
        if args.log and (mutant.name, change) not in known:
            with args.log.open("a") as log:
                log.write(json.dumps(found) + "\n")
            print(len(rows), mutant.name, change, found["verdict"], found["cpu_seconds"], flush=True)
    summary = summary_of(rows, len(whole))
    print(summary)
    finish("mutants", [summary, *(r for r in rows if r["verdict"] != REFUTED)], args.json)


if __name__ == "__main__":
    main()
