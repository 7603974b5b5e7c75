"""Mapping from Python: a problem, an architecture, and the best mapping of one on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..public_calls import public
from .mappers.document import mapping_document, schedule_document
from .mappers.run import BUDGET, DEFAULT, best_mapping, best_with_rests
from .mapping.architectures import find_clusters
from .mapping.clusters import Clusters, clusters_from
from .mapping.constraints import constraints_from
from .mapping.schedule import schedule_from, violations
from .models.model import Objective
from .models.published import model_named
from .problems.layers import is_layer, layer_problem
from .problems.meaning import problem_of
from .problems.problem import Problem, problem_from


def problem(subject: str | Mapping[str, Any], shapes: Sequence[tuple[int, ...]] = (), **attributes: Any) -> Problem:
    """Return the problem of a layer text, of a JSON document, or of an operation at operand shapes, read from its meaning.

    InputError F230, F231 or F233 says why there is none.
    """
    if not isinstance(subject, str):
        return problem_from(subject)
    return layer_problem(subject) if is_layer(subject) else problem_of(subject, shapes, **attributes)


def clusters(subject: str | Mapping[str, Any]) -> Clusters:
    """Return a shipped architecture, that of a file, or that of a JSON document.

    UsageError or InputError F231 says why there is none.
    """
    return find_clusters(subject) if isinstance(subject, str) else clusters_from(subject)


@public("map")
def map(  # noqa: A001 -- flexmatch.map is the public name
    work: Problem | str | Mapping[str, Any], on: Clusters | str | Mapping[str, Any], *, model: str = "timeloop", objective: str = "edp",
    mapper: str = DEFAULT, budget: int = BUDGET, seed: int = 0, constraints: Mapping[str, Any] | None = None,
    mapping: Sequence[Any] | None = None, points: int = 0, remainders: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the best mapping of a problem on an architecture with its cost, or the cost of a given mapping, as flexmatch.map/1 has it.

    With `remainders` the last tile along a dimension may be smaller than the others.

    Raises:
        InputError: the mapping is not legal (F230), an option has an unknown value (F231), no mapping satisfies the constraints (F232),
            or the model does not price the problem (F233).
    """
    subject = work if isinstance(work, Problem) else problem(work)
    machine = on if isinstance(on, Clusters) else clusters(on)
    if objective not in list(Objective):
        raise InputError("F231", f'The objective must be one of {", ".join(Objective)}, not "{objective}"')
    chosen_model = model_named(model)
    if mapping is not None:
        schedule = schedule_from(mapping, subject, machine)
        broken = violations(subject, machine, schedule, spans=True, rests=remainders)
        refusal = chosen_model.conforms(subject, machine)
        if broken or refusal:
            raise InputError("F230", broken[0].sentence) if broken else InputError("F233", str(refusal))
        return schedule_document(subject, machine, schedule, chosen_model.cost(subject, machine, schedule))
    limits = None if constraints is None else constraints_from(constraints, subject, machine)
    if remainders:
        if points:
            raise InputError("F231", "A scatter of mappings is of tiles without rests: ask for points or for remainders")
        answer = best_with_rests(subject, machine, chosen_model, Objective(objective), mapper, budget, seed, limits)
        return mapping_document(subject, machine, answer)
    result = best_mapping(subject, machine, chosen_model, Objective(objective), mapper, budget, seed, limits, points)
    return mapping_document(subject, machine, result)
