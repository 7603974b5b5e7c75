"""Verdicts as JSON values and back: the form in which they are cached and sent between processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..verdict import Counterexample, Outcome, Proof, RoundingMeasurement
from .cache import DATE

if TYPE_CHECKING:
    from ...ila.verification.check import Check

TEXTS = ("name", "at", "verdict", "strength", "evidence", "grade", "code", "suggestion")


@dataclass(frozen=True)
class ModelVerdict:
    """The verdict on an accelerator model: whether its decodes are disjoint, the commands that none decodes, and what is wrong."""

    name: str
    instructions: int
    decodes_disjoint: bool
    holes: tuple[str, ...]
    holes_unknown: str
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Tell whether nothing is wrong; commands that no instruction decodes are not, they have no effect."""
        return not self.problems


def verdict_of_check(c: Check) -> ModelVerdict:
    """Return the verdict that the check of a model gives."""
    holes, problems = (tuple(map(str, x)) for x in (c.holes, c.problems))
    return ModelVerdict(c.name, c.instructions, c.decodes_disjoint, holes, c.holes_unknown, problems)


def proof_record(p: Proof) -> dict[str, Any]:
    """Return a proof as a JSON value; values of attributes become text."""
    c = p.counterexample
    counterexample = None
    if c is not None:
        operands, attributes = ({k: str(v) for k, v in x.items()} for x in (c.operands, c.attributes))
        place = None if c.place is None else list(c.place)
        counterexample = {
            "operands": operands,
            "attributes": attributes,
            "place": place,
            "left": c.left,
            "right": c.right,
            "sides": c.sides,
        }
    texts = {
        "suggestion": p.suggestion,
        "name": p.name,
        "at": p.at,
        "verdict": p.verdict,
        "strength": p.strength,
        "evidence": p.evidence,
        "grade": p.grade,
        "code": p.code,
    }
    figures = [figure_record(m) for m in p.measured]
    record = {**texts, "ranks": p.ranks, "seconds": p.seconds, "counterexample": counterexample, "measured": figures}
    return {**record, "left_out": p.left_out} if p.left_out else record


def figure_record(m: RoundingMeasurement) -> dict[str, Any]:
    """Return the rounding measured in one element type as a JSON value."""
    return {"dtype": m.dtype, "samples": m.samples, "ulp": m.ulp, "share_of_rounding": m.share, "error_bound_ratio": m.ratio}


def figure_of(record: dict[str, Any]) -> RoundingMeasurement:
    """Return the rounding measured in one element type, of a JSON value."""
    ratio = record["error_bound_ratio"]
    return RoundingMeasurement(
        str(record["dtype"]), int(record["samples"]), float(record["ulp"]), float(record["share_of_rounding"]),
        None if ratio is None else float(ratio),
    )  # fmt: skip


def proof_of(record: dict[str, Any]) -> Proof:
    """Return the proof of a record.

    Raises:
        KeyError: a field is missing.
        TypeError: a field that must be text is something else.
        ValueError: its verdict is no outcome.
    """
    texts = [record[key] for key in TEXTS]
    if not all(isinstance(t, str) for t in texts):
        raise TypeError("a proof is made of texts")
    name, at, verdict, strength, evidence, grade, code, suggestion = texts
    c = record["counterexample"]
    example = None
    if c is not None:
        place = None if c["place"] is None else tuple(c["place"])
        example = Counterexample(c["operands"], c["attributes"], place, c["left"], c["right"], tuple(c["sides"]))
    figures = tuple(map(figure_of, record["measured"]))
    ranks = None if record["ranks"] is None else int(record["ranks"])
    seconds, day, left_out = float(record["seconds"]), str(record.get(DATE, "")), str(record.get("left_out", ""))
    return Proof(name, at, Outcome(verdict), strength, evidence, grade, example, code, seconds, suggestion, ranks, figures, day, left_out)


def model_record(m: ModelVerdict) -> dict[str, Any]:
    """Return the verdict on a model as a JSON value."""
    return {
        "name": m.name, "instructions": m.instructions, "decodes_disjoint": m.decodes_disjoint, "holes": list(m.holes),
        "holes_unknown": m.holes_unknown, "problems": list(m.problems),
    }  # fmt: skip


def model_of(record: dict[str, Any]) -> ModelVerdict:
    """Return the verdict of a record.

    Raises:
        KeyError: a field is missing.
    """
    return ModelVerdict(
        str(record["name"]), int(record["instructions"]), bool(record["decodes_disjoint"]), tuple(record["holes"]),
        str(record["holes_unknown"]), tuple(record["problems"]),
    )  # fmt: skip
