"""Which wrong copies of the shipped rules does the court let pass? Every single change of a list of kinds, survivors by name.

    python benchmarks/mutants.py --json benchmarks/results/mutants.json

A mutant differs from its rule in one guard that is left out or one operator, operand or attribute of the right side. It is
judged on drawn instances; what is proved there is judged again at every shape, so that a survivor is one of the whole court.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from record import Row, finish, options

from rewrite_compiler.ops.op import FLOAT, INT, INTS, OPS
from rewrite_compiler.ops.static import IsConstant, Listed
from rewrite_compiler.ops.term import Apply, Tensor
from rewrite_compiler.prove.rules import prove_rule
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.ruleset import shipped_rules

COUNT = 30
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


def attributes(t: Apply) -> Iterator[dict[str, object]]:
    """Yield changed values of one attribute."""
    for a in t.op.attributes:
        value = t.attributes[a.name]
        if a.kind == INTS and isinstance(value, Listed):
            listed = value.elements
            for n in range(len(listed) - 1):
                if listed[n] is not listed[n + 1]:
                    yield {a.name: Listed((*listed[:n], listed[n + 1], listed[n], *listed[n + 2 :]))}
            yield from ({a.name: Listed((*listed[:n], listed[n] + 1, *listed[n + 1 :]))} for n in range(len(listed)))
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


def main() -> None:
    """Judge all mutants."""
    given = options(__doc__ or "", 1).parse_args()
    started, counts, rows = time.process_time(), Counter[str](), list[Row]()
    for change, mutant in mutants():
        proof = prove_rule(mutant, count=COUNT)
        if proof.is_proved:
            proof = prove_rule(mutant)
        counts[proof.verdict + (f" {proof.code}" if proof.code else "")] += 1
        if proof.verdict != "refuted":
            rows.append(
                {"rule": mutant.name, "change": change, "verdict": proof.verdict, "strength": proof.strength, "evidence": proof.evidence}
            )
            print(f"{mutant.name}: {change}: {proof.verdict}: {proof.evidence}", flush=True)
    seconds = time.process_time() - started
    summary: Row = {"mutants": sum(counts.values()), **dict(counts), "cpu_seconds": round(seconds, 1)}
    print(summary)
    finish("mutants", [summary, *rows], given.json)


if __name__ == "__main__":
    main()
