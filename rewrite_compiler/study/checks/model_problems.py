"""The independent problems of a model.

After each refusal at a node, the node and everything that depends on it are removed, and the rest is read again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import FlexmatchError, Problem
from ...frontend.file.read import read_model
from ...frontend.load import import_model
from ...limits import DEFAULT, Limits

MAX_PROBLEMS = 100


def model_problems(path: Path, shapes: dict[str, tuple[int, ...]] | None = None, limits: Limits = DEFAULT) -> list[Problem]:
    """Return the independent problems of a model, at most 100.

    Raises:
        InputError: the file is missing or no ONNX model (F101, F104).
    """
    model, digest = read_model(path, limits)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    problems: list[Problem] = []
    while len(problems) < MAX_PROBLEMS:
        try:
            import_model(model, path, digest, shapes or {}, limits)
        except FlexmatchError as error:
            problem = error.at(str(path)).problem
            problems.append(problem)
            if not _remove_dependents(model.graph, problem.place):
                break
            continue
        break
    return problems


def _remove_dependents(graph: Any, place: str) -> bool:
    """Remove the nodes that a place names and everything that depends on them; False when it names none, or none are left."""
    removed = {n for n, node in enumerate(graph.node) if place.endswith(f':node "{node.name}"')}
    if not removed:
        return False
    removed_values = {name for n in removed for name in graph.node[n].output if name}
    while dependents := {n for n, node in enumerate(graph.node) if n not in removed and removed_values.intersection(node.input)}:
        removed |= dependents
        removed_values |= {name for n in dependents for name in graph.node[n].output if name}
    for n in sorted(removed, reverse=True):
        del graph.node[n]
    for n in reversed(range(len(graph.output))):
        if graph.output[n].name in removed_values:
            del graph.output[n]
    return bool(graph.output) and bool(graph.node)
