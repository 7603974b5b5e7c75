"""Which variants of false laws does the court prove? Laws of the attack gallery with another number, operator, operand or guard.

    python benchmarks/variants.py --log variants.jsonl --json benchmarks/results/variants.json

A variant changes one or two places of a law's text: a number of an attribute, an extent or a guard, an operator for one of the same
operands, a condition left out, two operands exchanged. Most are false, some are true; what is proved is executed on wide draws of
seeds that the court does not use, and one that a draw shows false is a fault of the court. What is in the log is not judged again.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from record import Row, finish, options

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.prove.rules.refuter import witness
from rewrite_compiler.prove.rules.rules import prove_rule
from rewrite_compiler.prove.verdict import PROVED
from rewrite_compiler.rewrite.rule import Rule
from rewrite_compiler.rewrite.text import rule_text
from rewrite_compiler.rewrite.text_file import rules_of_file, rules_of_text

TESTS = Path(__file__).parents[1] / "tests"
FILES = ("attacks.rules", "beyond.rules", "rounding.rules", "integers.rules")
COUNT, SEEDS = 240, (101, 102, 103)
SHARE = 2.0  # of the usual work, for each of these seeds
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+|(?<![\w.])\d+(?![\w.])")
FAMILIES = (
    ("relu", "neg", "abs"), ("exp", "tanh", "sigmoid", "log", "sqrt"), ("add", "sub", "mul", "max", "min", "div"),
    ("reduce_max", "reduce_sum", "reduce_mean"), ("<=", "<", "=="), (" + ", " - "), (" // ", " % ", " * "),
)  # fmt: skip
REALS = ("0.0", "0.5", "1.0", "-1.0", "2.0", "3.0", "6.0", "0.25")


def laws() -> list[Rule]:
    """Return the false laws that variants are made of."""
    sys.path.insert(0, str(TESTS))
    from known_wrong.gallery import FALSE, gallery

    return [*(r for name in FILES for r in rules_of_file(TESTS / "known_wrong" / name)), *gallery(*FALSE)]


def changes(text: str) -> Iterator[str]:
    """Yield the texts with one change."""
    for m in NUMBER.finditer(text):
        alternatives = REALS if "." in m[0] else [str(n) for n in (int(m[0]) - 1, int(m[0]) + 1, int(m[0]) + 2) if n >= 0]
        yield from (text[: m.start()] + other + text[m.end() :] for other in alternatives if other != m[0])
    for family in FAMILIES:
        for name in family:
            pattern = re.compile(rf"\b{name}\(" if name.isidentifier() else re.escape(name))
            for m in pattern.finditer(text):
                end = "(" if name.isidentifier() else ""
                yield from (text[: m.start()] + other + end + text[m.end() :] for other in family if other != name)
    body, where, guard = text.rpartition("where ")
    conditions = guard.rstrip("}\n ").split(", ") if where else []
    for n in range(len(conditions)):
        remaining = ", ".join(conditions[:n] + conditions[n + 1 :])
        yield f"{body}where {remaining}\n}}" if remaining else f"{body}}}"
    for m in re.finditer(r"\((\w+), (\w+)([,)])", text):
        yield f"{text[: m.start()]}({m[2]}, {m[1]}{m[3]}{text[m.end() :]}"


def variants(count: int, seed: int = 0) -> list[Rule]:
    """Return different variants of all laws that can be read, in an order drawn by seed."""
    source, rules = random.Random(seed), dict[str, Rule]()
    bases = [rule_text(r) for r in laws()]
    while len(rules) < count:
        text = source.choice(bases)
        for _ in range(source.choice((1, 1, 2))):
            text = source.choice([*changes(text)] or [text])
        try:
            (variant,) = rules_of_text(text, "variant")
        except FlexmatchError:
            continue
        if text not in bases:
            rules[text] = variant
    return list(rules.values())


def row(n: int, variant: Rule) -> Row:
    """Return the verdict on a variant, and whether a wide draw shows one that is proved to be false."""
    started = time.process_time()
    proof = prove_rule(variant)
    witness_text = (
        next((str(w[0]) for seed in SEEDS if (w := witness(variant, seed, SHARE)) is not None), None) if proof.verdict == PROVED else None
    )
    return {
        "variant": n, "law": variant.name, "text": rule_text(variant), "verdict": proof.verdict, "evidence": proof.evidence,
        "witness": witness_text, "cpu_seconds": round(time.process_time() - started, 2),
    }  # fmt: skip


def main() -> None:
    """Judge variants drawn by seed."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--log", type=Path, help="one line a variant; what is there is not judged again")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logged = map(json.loads, args.log.read_text().splitlines()) if args.log and args.log.exists() else ()
    rows_by_text = {r["text"]: r for r in logged}
    rows: list[Row] = []
    for n, variant in enumerate(variants(args.count, args.seed)):
        result = rows_by_text.get(rule_text(variant)) or row(n, variant)
        rows.append(result)
        if args.log and result["text"] not in rows_by_text:
            with args.log.open("a") as log:
                log.write(json.dumps(result) + "\n")
            print(n, result["law"], result["verdict"], result["witness"] or "", result["cpu_seconds"], flush=True)
    verdicts = [r["verdict"] for r in rows]
    summary: Row = {
        "variants": len(rows), "laws": len(laws()), **{v: verdicts.count(v) for v in ("refuted", "unproved", "proved")},
        "without_an_instance": sum(str(r["evidence"]).startswith("no operands satisfy") for r in rows),
        "proved_with_a_witness": sum(r["witness"] is not None for r in rows),
        "cpu_seconds": round(sum(float(str(r["cpu_seconds"])) for r in rows), 1),
    }  # fmt: skip
    print(summary)
    finish("variants", [summary, *(r for r in rows if r["verdict"] == PROVED)], args.json)


if __name__ == "__main__":
    main()
