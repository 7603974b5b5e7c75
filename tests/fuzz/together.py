"""Many random models compiled as one, in this process: a compilation costs what its rules cost, whatever it compiles."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from generate import valid_model
from harness import EQUAL, HOST_REFUSES, Finding, compared
from onnx import compose, helper
from saturation import MODULE, answer_here

from rewrite_compiler.compile import Options, Plan, compile_model
from rewrite_compiler.compile.document import plan_onnx
from rewrite_compiler.disk_cache import DiskCache
from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.hostrun import Session
from rewrite_compiler.ir.evaluate import random_tensor
from rewrite_compiler.limits import DEFAULT, Limits

ROUNDING = 2.0**-21  # what engines approximate functions of values of size one to
DISAGREE = "equal, but onnxruntime and the reference evaluator are not"
NO_NUMBER = "no finite number inside"
COMPILING = "rewrite_compiler.compile.compile"


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Saturate in this process: without limits of memory and time, kept answers, a Python for each model, and counts of exact matching."""
    compiling = sys.modules[COMPILING]
    before, kept, exactly = MODULE._run_worker, MODULE.answer_cache, compiling.offloads_as_written
    MODULE._run_worker, MODULE.answer_cache = answer_here, lambda: DiskCache(None)
    compiling.offloads_as_written = lambda *_: []
    try:
        yield
    finally:
        MODULE._run_worker, MODULE.answer_cache, compiling.offloads_as_written = before, kept, exactly


def joined(models: Sequence[Any]) -> Any:
    """Return several models as one, side by side."""
    parts = [compose.add_prefix(m, f"m{n}_") for n, m in enumerate(models)]
    graph = helper.make_graph(
        [n for m in parts for n in m.graph.node], "random", [i for m in parts for i in m.graph.input],
        [o for m in parts for o in m.graph.output], [t for m in parts for t in m.graph.initializer],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=models[0].opset_import, ir_version=models[0].ir_version)


def accounts(plan: Plan) -> bool:
    """Tell whether every node of the model is in one account of the plan."""
    named = [n for o in plan.offloads for n in o.nodes] + [h.node for h in plan.host] + [a.node for a in plan.absorbed]
    return sorted(named) == sorted(s.name for s in plan.source.sources)


def compiled_in_process(path: Path, accel: Sequence[str], limits: Limits = DEFAULT, *, second: bool = False) -> str | Finding:
    """Compile a valid model in this process and compare all outputs: with onnxruntime and, asked, with onnx's reference evaluator."""
    data = path.read_bytes()
    try:
        with in_process():
            plan = compile_model(path, accel, Options(limits=limits))
        values = inputs_of(plan)
        host = _host(data, values)
        if host is None:
            return HOST_REFUSES
        found = list(_run(plan_onnx(plan), values).values())
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return Finding(f"{type(error).__name__}: {error}", data)
    if not accounts(plan):
        return Finding("a node is in no account, or in two", data)
    told = compared(host, found, data, partial(_run, data), values)
    if told == EQUAL and second:
        other, again = evaluated(data, values), partial(evaluated, data)
        if compared(other, list(host.values()), data, again, values, ROUNDING) != EQUAL:
            return DISAGREE
        told = compared(other, found, data, again, values, ROUNDING)
    return NO_NUMBER if told != EQUAL and not_a_number(data, values) else told


def not_a_number(data: bytes, values: Mapping[str, Any]) -> bool:
    """Tell whether a value inside of a model is not finite: what a maximum makes of it is left to engines, the host writes −3.4e38."""
    model = onnx.load_from_string(data)
    known = {o.name for o in model.graph.output}
    inner = {name for n in model.graph.node for name in n.output if name} - known
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(inner))
    found = _run(model.SerializeToString(), values).values()
    return any(x.dtype.kind == "f" and not np.isfinite(x).all() for x in found)


def inputs_of(plan: Plan) -> dict[str, Any]:
    """Return the same random inputs each time."""
    program, random = plan.source, np.random.default_rng(0)
    return {program.names[v]: random_tensor(program.types[v], random) for v in program.inputs}


def _run(model: bytes, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return Session(model).run(inputs, seconds=60)


def _host(model: bytes, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the host computes; None where it refuses a valid model, as it does pads of a pool that are as wide as its window."""
    try:
        return _run(model, inputs)
    except FlexmatchError:
        return None


def evaluated(model: bytes, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what onnx's reference evaluator computes."""
    from onnx.reference import ReferenceEvaluator

    made = onnx.load_from_string(model)
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(made).run(None, dict(inputs))
    return {o.name: np.asarray(x) for o, x in zip(made.graph.output, results, strict=True)}


def judged(seeds: Sequence[int], path: Path, accel: Sequence[str], most: int = 40, *, second: bool = False) -> dict[int, Finding]:
    """Return the findings of the models of these seeds; what only their sum shows is the finding of the first."""
    models = [valid_model(s, most) for s in seeds]
    path.write_bytes(joined(models).SerializeToString())
    whole = compiled_in_process(path, accel, second=second)
    if whole == EQUAL:
        return {}
    found: dict[int, Finding] = {}
    for seed, model in zip(seeds, models, strict=True):
        path.write_bytes(model.SerializeToString())
        one = compiled_in_process(path, accel, second=second)
        if isinstance(one, Finding):
            found[seed] = one
    if found or not isinstance(whole, Finding):
        return found
    return {seeds[0]: Finding(f"together with the next {len(seeds) - 1}: {whole.what}", whole.model)}
