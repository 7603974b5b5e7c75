"""Forms of a mapping: printers and parsers by name, and which form a text has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ....errors import InputError
from ...problems.problem import Problem
from ..clusters import Clusters
from ..schedule import Schedule
from .codelet import codelet_schedule, codelet_text
from .directives import directives_schedule, directives_text
from .loops import listing, loops_schedule
from .timeloop import timeloop_schedule, timeloop_text
from .union import union_schedule, union_text


def loops_text(schedule: Schedule, problem: Problem, clusters: Clusters) -> str:
    """Return the listing as one text."""
    return "\n".join(listing(schedule, problem, clusters)) + "\n"


@dataclass(frozen=True)
class Form:
    """How a mapping is printed and parsed, and the words of which one begins a line of such a text."""

    text: Callable[[Schedule, Problem, Clusters], str]
    schedule: Callable[[str, Problem, Clusters], Schedule]
    beginnings: tuple[str, ...]


FORMS: Mapping[str, Form] = {
    "loops": Form(loops_text, loops_schedule, ()),  # a level of the architecture
    "union": Form(union_text, union_schedule, ("target_cluster:",)),
    "timeloop": Form(timeloop_text, timeloop_schedule, ("mapping:", "- target:")),
    "maestro": Form(directives_text, directives_schedule, ("//", "SpatialMap", "TemporalMap", "Cluster(")),
    "codelet": Form(codelet_text, codelet_schedule, ("codelet ",)),
}


def form_of(text: str, clusters: Clusters) -> Form:
    """Return the form of a text by its first line.

    Raises:
        InputError: it is none (F230).
    """
    first = next((line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")), "")
    if first.startswith(f"{clusters.names[0]}  "):
        return FORMS["loops"]
    form = next((f for f in FORMS.values() if f.beginnings and first.startswith(f.beginnings)), None)
    if form is None:
        remedy = f"JSON as --json writes it, or a text as --as {', '.join(FORMS)} prints it for {clusters.name}"
        raise InputError("F230", f'The mapping begins with "{first[:80]}", which is no form of one', help=remedy)
    return form


def schedule_of_text(text: str, problem: Problem, clusters: Clusters) -> Schedule:
    """Return the mapping of a text in any form; InputError F230 says what is wrong with it."""
    return form_of(text, clusters).schedule(text, problem, clusters)
