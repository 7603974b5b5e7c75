"""The certificates that ship with the library: what the court said of every rule, operation and model, by what was judged.

A certificate counts as long as its statement is the same, and the court that judged it: the file names the hash of the court's
sources, from the operators' meaning and the arithmetic below it on, and the versions of what it asks, those of rules apart from
those of operations and models. `benchmarks/certificates.py` writes the file, and with `--check` compares it with a run that judges
all of it. Plans state these and not what one machine has judged, so that equal runs give equal plans.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from ...rewrite.rule import Rule
from ...target import Target
from ..verdict import PROVED, REFUTED
from .sources import ROOTS, court_of, shipped_courts, shipped_document
from .statements import statement_of_model, statement_of_operation, statement_of_rule


class Coverage(enum.StrEnum):
    """What a certificate covers, as a plan states it, from the strongest on."""

    ALL_SHAPES = "all shapes"
    """A rule proved at all extents and attributes."""
    SYMBOLIC = "symbolic"
    """An operation or a model proved on symbolic data at the sizes that its certificate names."""
    ON_TRUST = "used on trust"
    """It is judged, and not proved."""
    OPEN = "not judged"
    """There is no certificate."""


ALL_SHAPES, SYMBOLIC, ON_TRUST, OPEN = COVERAGES = tuple(Coverage)


@dataclass(frozen=True)
class Certificate:
    """What the court said of a rule, an operation or a model: its verdict, what that covers, and by what evidence.

    `ulp` is the largest difference of a rule's sides that was seen in float32, in units in the last place, `share_of_rounding` the
    largest one as a share of what rounding can do, `error_bound_ratio` how far apart the sides' error bounds are (of grades A and F);
    None: not measured.
    """

    kind: str
    name: str
    verdict: str
    strength: str
    evidence: str
    ulp: float | None = None
    share_of_rounding: float | None = None
    error_bound_ratio: float | None = None
    ranks: int | None = None  # the largest rank of an operand that a rule is proved for, None: every rank


def certificate_of_rule(rule: Rule) -> Certificate | None:
    """Return the shipped certificate of a rule as it is written now."""
    return _shipped().get(statement_of_rule(rule))


def certificate_of_operation(target: Target, name: str) -> Certificate | None:
    """Return the shipped certificate of an operation of a target as both are written now, at the target's parameters."""
    return _shipped().get(statement_of_operation(target, name))


def certificate_of_model(target: Target) -> Certificate | None:
    """Return the shipped certificate of a target's accelerator model as it is written now, at its parameters."""
    return _shipped().get(statement_of_model(target))


def certificate_of_record(kind: str, name: str, record: Mapping[str, Any]) -> Certificate:
    """Return the certificate that the JSON record of a verdict stands for."""
    if kind == "model":
        verdict = REFUTED if record["problems"] else PROVED
        evidence = "no command is decoded by two of them" if record["decodes_disjoint"] else "a command is decoded by two of them"
        return Certificate(kind, name, verdict, f"{record['instructions']} instructions", evidence)
    figures: Mapping[str, Any] = next((m for m in record["measured"] if m["dtype"] == "float32"), {})
    rounding = {name: figures.get(name) for name in ("ulp", "share_of_rounding", "error_bound_ratio")}
    return Certificate(kind, name, record["verdict"], record["strength"], record["evidence"], **rounding, ranks=record["ranks"])


def coverage_of(c: Certificate | None) -> str:
    """Return the coverage of a certificate."""
    if c is None:
        return OPEN
    if c.verdict != PROVED:
        return ON_TRUST
    return ALL_SHAPES if c.kind == "rule" else SYMBOLIC


def weakest_coverage(covers: Iterable[str]) -> str:
    """Return the weakest of several coverages."""
    return max(covers, key=COVERAGES.index)


def certificates_text(certificates: Mapping[str, Certificate]) -> str:
    """Return the text of the file that ships: the courts, and certificates with their statements, a line each in the order of names."""
    judges = ",\n".join(f"{json.dumps(kind)}: {json.dumps(asdict(court_of(kind)))}" for kind in ROOTS)
    by_name = sorted(certificates.items(), key=lambda c: (c[1].kind, c[1].name))
    rows = ",\n".join(json.dumps({"statement": s, **asdict(c)}, ensure_ascii=False) for s, c in by_name)
    return f'{{"courts": {{\n{judges}\n}},\n"certificates": [\n{rows}\n]}}\n'


@cache
def _shipped() -> dict[str, Certificate]:
    """Return the certificates that the courts as they are installed judged: none of another court counts."""
    current_kinds = {kind for kind, judge in shipped_courts().items() if judge.is_installed}
    rows = (
        (row["statement"], Certificate(**{k: v for k, v in row.items() if k != "statement"})) for row in shipped_document()["certificates"]
    )
    return {statement: c for statement, c in rows if ("rule" if c.kind == "rule" else "target") in current_kinds}
