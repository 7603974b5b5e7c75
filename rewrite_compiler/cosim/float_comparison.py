"""The comparison of offloads with their float meaning on the first samples of a run, kept on disk by what was compared.

The key has the bits of operands and results and everything that their float meaning depends on, so that a kept comparison is that
of the very same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np

from ..compile.formats.calibrate import float_program
from ..compile.host.data_movement import PendingMove, samples_of
from ..compile.host.host_program import HostProgram
from ..compile.host.lazy_codes import LazyCodes, Operand, elements_of
from ..compile.offload.execute import PreparedOffload, Statistics
from ..compile.plan.plan import Plan
from ..disk_cache import DiskCache, private_cache_folder
from ..frontend.graph.emit import to_onnx
from ..ir.evaluate import run as evaluate
from ..ir.program import Data, Program, Value
from ..target import body_of
from .format_errors import OffloadNumerics, squared_norm
from .validation.device_history import content_of, engine_hash

COMPARED_BYTES = 1 << 23  # of tensors of an offload whose float meaning is evaluated at once


class FloatComparison:
    """Compares offloads with their float meaning, for `count` samples of a run from `start` on; `numerics` are by offload."""

    def __init__(self, plan: Plan, inputs: Mapping[Value, Data], count: int, start: int, host_seconds: int) -> None:
        """Prepare to compare; `inputs` are those of the application [count, …]."""
        self.plan, self.inputs, self.count, self.start, self.host_seconds = plan, inputs, count, start, host_seconds
        self.numerics: dict[str, OffloadNumerics] = {}
        self.cache = DiskCache(private_cache_folder("float_comparisons"))

    @cached_property
    def program(self) -> Program:
        """The application in float32, whose outputs are the first results of all offloads."""
        return replace(float_program(self.plan), outputs=tuple(dict.fromkeys(o.node.outputs[0] for o in self.plan.offloads)))

    @cached_property
    def float_values(self) -> Mapping[Value, Data]:
        """The first results of all offloads in the float32 run of the application."""
        return HostProgram(self.program, self.program.inputs, seconds=self.host_seconds).one_by_one(self.inputs, self.count)

    @cached_property
    def application(self) -> tuple[object, ...]:
        """What the float values depend on: the model as the host engine gets it, that engine, and the inputs."""
        model = sha256(to_onnx(self.program)).hexdigest()
        return engine_hash(), version("onnxruntime"), model, [bits_of(x) for x in self.inputs.values()]

    def work_of(
        self, prepared: PreparedOffload, moving: Mapping[str, Operand], results: Sequence[Operand], statistics: Statistics
    ) -> Callable[[], None]:
        """Return what compares an offload's results, at once or later: operands and results are read now."""
        first = slice(0, self.count)
        operands = {name: samples_of(x, first) for name, x in moving.items()}
        result = samples_of(results[0], first)
        key = self._key(prepared, operands, result)
        stored = None if key is None else self.cache.get(key)
        if stored is not None:
            figures, numerics = json.loads(stored)
            return partial(self._add, prepared, Statistics(**figures), OffloadNumerics.from_record(numerics), statistics)
        elements = {name: elements_of(x) for name, x in operands.items()}
        return partial(self._compare, prepared, elements, elements_of(result), statistics, key)

    def _key(self, prepared: PreparedOffload, operands: Mapping[str, Operand], result: Operand) -> str | None:
        """Return the key of a comparison; None for an operation that no text tells."""
        content = content_of(prepared)
        if content is None:
            return None
        compared = [(name, bits_of(x)) for name, x in operands.items()], bits_of(result)
        parts = (self.application, content, prepared.offload.node.outputs[0], self.start, self.count, compared)
        return sha256(repr(parts).encode()).hexdigest()

    def _add(self, prepared: PreparedOffload, figures: Statistics, numerics: OffloadNumerics, statistics: Statistics) -> None:
        statistics.merge(figures)
        self.numerics[prepared.offload.id] = numerics

    def _compare(
        self, prepared: PreparedOffload, operands: Mapping[str, Data], result: Data, statistics: Statistics, key: str | None
    ) -> None:
        figures, numerics = self._figures(prepared, operands, result)
        if key is not None:
            self.cache.put(key, json.dumps([asdict(figures), numerics.to_record()]).encode())
        self._add(prepared, figures, numerics, statistics)

    def _figures(self, prepared: PreparedOffload, moving: Mapping[str, Data], result: Data) -> tuple[Statistics, OffloadNumerics]:
        """Compare a first result with its meaning in float64 on the same operands, and with the float32 run."""
        o, p, statistics, numerics = prepared.offload, self.plan.program, Statistics(), OffloadNumerics()
        body = body_of(o.mapping, [p.types[v] for v in o.node.inputs], dict(o.node.attributes))
        if not self.start:
            for name, x in prepared.constants.items():
                numerics.add_operand(name, x, o.formats[name])
        names = [x.name for x in o.mapping.operands]
        operands = {v: moving[n] if n in moving else prepared.constants[n] for v, n in zip(body.inputs, names, strict=True)}
        moving_inputs = [v for v, n in zip(body.inputs, names, strict=True) if n in moving]
        together = max(1, COMPARED_BYTES // max(1, sum(t.nbytes for t in body.types)))
        result_name, float_values = o.mapping.axes.result, self.float_values[o.node.outputs[0]]
        for first in range(0, self.count, together):
            part = slice(first, min(first + together, self.count))
            sampled = {v: x[part] if v in moving_inputs else x for v, x in operands.items()}
            every_expected = evaluate(body, sampled, moving=moving_inputs)[body.outputs[0]]
            for n, expected in zip(range(part.start, part.stop), every_expected, strict=True):
                expected_float = expected.astype(np.float64)
                error = result[n].astype(np.float64) - expected_float
                if expected.dtype.kind in "iu":
                    statistics.codes += error.size
                    statistics.differing_codes += int(np.count_nonzero(error))
                statistics.squared_errors.append(squared_norm(error))
                statistics.squared_references.append(squared_norm(expected_float))
                statistics.max_abs_error = max(statistics.max_abs_error, float(np.max(np.abs(error), initial=0)))
                statistics.compared += 1
                for name, x in moving.items():
                    numerics.add_operand(name, x[n], o.formats[name])
                numerics.add_result(result_name, expected_float, result[n], o.formats[result_name])
                numerics.add_cumulative_error(result[n], float_values[n])
        return statistics, numerics


def bits_of(x: Operand) -> object:
    """Return what tells the bits of a value apart, without computing the elements of a lazy one."""
    if isinstance(x, PendingMove):
        return x.move.digest, bits_of(x.root)
    if isinstance(x, LazyCodes):
        return x.format, x.limits, bits_of(x.codes)
    elements: Any = elements_of(x)
    content = repr(elements.tolist()).encode() if elements.dtype.kind == "O" else elements.tobytes()
    return elements.dtype.str, elements.shape, sha256(content).hexdigest()
