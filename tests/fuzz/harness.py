"""What a random model or a mutant must do: be refused in one sentence, or mean what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rewrite_compiler.compile import Options, compile_model
from rewrite_compiler.compile.verify import Run, beyond_rounding, check_plan, differences
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.graph.emit import to_onnx
from rewrite_compiler.frontend.graph.structure import without_trailing_absent
from rewrite_compiler.frontend.load import load
from rewrite_compiler.hostrun import Session
from rewrite_compiler.ir.evaluate import random_tensor
from rewrite_compiler.limits import DEFAULT, Limits

REFUSED, EQUAL, HOST_REFUSES = "refused", "equal", "the host refuses it, too"
SMALL = Limits(model_bytes=1 << 24, tensor_bytes=1 << 24, folding_bytes=1 << 22, nodes=2000)


@dataclass(frozen=True)
class Finding:
    """Something that must not happen: what, and the model."""

    what: str
    model: bytes


def imported(path: Path) -> str | Finding:
    """Import a file; what is accepted must run on the host as it was written, with the same results."""
    data = path.read_bytes()
    try:
        program = load(path, limits=SMALL).program
    except FlexmatchError as error:
        return REFUSED if error.problem.sentence and "\n" not in error.problem.sentence else Finding("a refusal of several lines", data)
    except BaseException as error:
        return Finding(f"{type(error).__name__}: {error}", data)
    random = np.random.default_rng(0)
    values = {program.names[v]: random_tensor(program.types[v], random) for v in program.inputs}
    try:
        source = Session(without_trailing_absent(data) or data)
        expected = _fed(source, values)
    except FlexmatchError:
        return HOST_REFUSES  # what the host refuses stays the host's: the plan says that nothing could be compared
    try:
        found = Session(to_onnx(program)).run(values, seconds=5)
    except FlexmatchError as error:
        return Finding(f"accepted, and not run: {error.problem.sentence}", data)
    return compared(expected, list(found.values()), data, lambda moved: _fed(source, moved), values)


def _fed(source: Session, values: Mapping[str, Any]) -> dict[str, Any]:
    """Run a model on those of the values that it declares."""
    return source.run({p.name: values[p.name] for p in source.inputs if p.name in values}, seconds=5)


def compared(
    expected: dict[str, Any], found: list[Any], data: bytes, run: Run, values: dict[str, Any], floor: float = 0.0
) -> str | Finding:  # fmt: skip
    """Compare outputs by position: integers exactly, floats by the largest value; the model itself, `run`, says what its rounding moves.

    `floor` is an absolute difference that means nothing: two engines approximate tanh to that.
    """
    for (name, x), y in zip(expected.items(), found, strict=True):
        if x.shape != y.shape or x.dtype != y.dtype:
            return Finding(f"{name} is {x.dtype}{list(x.shape)} on the host and {y.dtype}{list(y.shape)} here", data)
    apart = differences(expected, found)
    for (name, x), y in zip(expected.items(), found, strict=True):
        if floor and x.dtype.kind == "f" and np.isfinite(x).all() and np.max(np.abs(x - y), initial=0) <= floor:
            apart[name] = 0.0
    far = beyond_rounding(apart, expected, run, values)
    return Finding(f"{far[0]} differs", data) if far else EQUAL


def compiled(path: Path, accel: tuple[str, ...] = ("flexasr",), limits: Limits = DEFAULT) -> str | Finding:
    """Compile a valid model; its plan, as an ordinary model, must compute what the model computes."""
    from rewrite_compiler.compile.document import plan_onnx

    data = path.read_bytes()
    try:
        plan = compile_model(path, accel, Options(limits=limits))
        checked = check_plan(plan, plan_onnx(plan), path)
    except BaseException as error:
        return Finding(f"{type(error).__name__}: {error}", data)
    named = [n for o in plan.offloads for n in o.nodes] + [h.node for h in plan.host] + [a.node for a in plan.absorbed]
    if sorted(named) != sorted(s.name for s in plan.source.sources):
        return Finding("a node is in no account, or in two", data)
    return EQUAL if checked.against == "model" else Finding(f"checked against: {checked.against}", data)
