"""The layers of a model that are problems: its distinct operations with multiply-accumulates, and how often each comes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...errors import InputError, UsageError, did_you_mean
from ...frontend.load import load
from ...ir.program import Node, Program
from .meaning import problem_of
from .problem import Problem


def model_layers(path: Path, node_name: str = "") -> list[tuple[str, int, Problem]]:
    """Return name, repetitions and problem of each distinct layer of a model, or of the one node that is named.

    Raises:
        UsageError: the model has no node of that name (F203).
        InputError: no operation of it is a problem (F233).
    """
    program = load(path).program
    layers: dict[str, tuple[str, int, Problem]] = {}
    names = []
    for node in program.nodes:
        if node.operator is None or node.operator.macs is None:
            continue
        name = _name(program, node)
        names.append(name)
        if node_name not in ("", name):
            continue
        problem = _problem(program, node)
        if problem is not None:
            key = repr(problem.document())
            first, repeats, _ = layers.get(key, (name, 0, problem))
            layers[key] = (first, repeats + 1, problem)
    if node_name and node_name not in names:
        raise UsageError(
            "F203", f'the model has no layer called "{node_name}"', help=did_you_mean(node_name, names) or ", ".join(names[:8])
        )
    if not layers:
        raise InputError("F233", "No operation of the model is a sum of products of two operands", place=str(path))
    return list(layers.values())


def _name(program: Program, node: Node) -> str:
    first = min(node.origins, default=None)
    return program.names[node.outputs[0]] if first is None else program.sources[first].name or program.names[node.outputs[0]]


def _problem(program: Program, node: Node) -> Problem | None:
    """Return the problem of a node, None of one that is no product of two operands."""
    assert node.operator is not None
    shapes = [tuple(program.types[v].shape) for v in node.inputs]
    try:
        problem = problem_of(node.op, shapes, **dict(node.attributes))
    except InputError:
        return None
    group = dict(node.attributes).get("group", 1)
    is_depthwise = node.op == "conv" and group == shapes[0][1] != 1
    return replace(problem, tag="depthwise" if is_depthwise else problem.tag)
