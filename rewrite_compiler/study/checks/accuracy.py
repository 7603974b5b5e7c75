"""Accuracy of an operation: its error on the device against its meaning, on seeded random inputs.

The error of one input is ‖device − meaning‖ / ‖meaning‖ in the Frobenius norm, the meaning in 64-bit floats. It is given
twice: against the meaning of the operands as drawn, and against that of the operands rounded to the device's formats, which
is the error of the operation alone. Inputs come in groups that share weights and formats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...compile.offload.execute import operand_codes
from ...ila import Ila
from ...ir.evaluate import run
from ...ir.program import Data
from ...ir.types import FLOATS, TensorType
from ...lang.formats import Format, Int
from ...ops.op import Variable
from ...ops.static import HasType, IsConstant
from ...readings.arrays.labelled_array import storage_dtype
from ...readings.kernels.format_conversion import codes_of, values_of
from ...target import Mapping, body_of, simulated_device

SEED, GROUPS, INPUTS_IN_GROUP = 20_262, 10, 10
VECTOR_DEVIATION = 0.25
BINADES = (-6, -3, 3, 6)  # binades of magnitudes, from the usual ones, at which an operation is measured, too


@dataclass(frozen=True)
class Distribution:
    """A normal distribution by mean and standard deviation."""

    mean: float
    deviation: float

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> Data:
        """Return float32 samples of a shape."""
        return random.normal(self.mean, self.deviation, shape).astype(np.float32)

    def scaled(self, k: int) -> Distribution:
        """Return the distribution of the samples times 2^k."""
        return Distribution(math.ldexp(self.mean, k), math.ldexp(self.deviation, k))

    def __str__(self) -> str:
        return f"N({self.mean:g}, {self.deviation:.3g}²)"


@dataclass(frozen=True)
class Uniform:
    """The uniform distribution over −1 … 1."""

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> Data:
        """Return float32 samples of a shape."""
        return random.uniform(-1, 1, shape).astype(np.float32)

    def __str__(self) -> str:
        return "U(−1, 1)"


FloatDistribution = Distribution | Uniform


@dataclass(frozen=True)
class Codes:
    """The uniform distribution over the integers of a format."""

    format: Int

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> Data:
        """Return integer samples of a shape, in the type that holds the format."""
        low, high = self.format.codes
        assert low is not None
        assert high is not None
        return random.integers(low, high, shape, storage_dtype(self.format.codes), endpoint=True)

    def __str__(self) -> str:
        return f"{self.format.codes[0]}…{self.format.codes[1]}"


@dataclass(frozen=True)
class Errors:
    """Relative errors, one for each input."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the inputs."""
        return math.fsum(self.values) / len(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation over the inputs."""
        return math.sqrt(math.fsum((e - self.mean) ** 2 for e in self.values) / len(self.values))

    @property
    def worst(self) -> float:
        """The largest error."""
        return max(self.values)


@dataclass(frozen=True)
class Accuracy:
    """The errors of one operation at one size.

    They are against the meaning of the operands as drawn, against that of the operands rounded to their formats, and against the
    latter with its result rounded to the result's format, too. `binades` maps k to the mean of the first where moving operands
    are scaled by 2^k.
    """

    name: str
    sizes: MappingOf[str, Any]
    inputs: MappingOf[str, str]  # distribution of every operand
    drawn_errors: Errors
    held_errors: Errors
    rounded_errors: Errors
    binades: MappingOf[int, float] = field(default_factory=dict)


def accuracy(
    m: Mapping, ila: Ila, sizes: MappingOf[str, Any], *, groups: int = GROUPS, seed: int = SEED,
    distribution: FloatDistribution | None = None, binades: Sequence[int] = (),
) -> Accuracy:  # fmt: skip
    """Run an operation on `groups` groups of ten random inputs through its driver, and compare with its meaning.

    A distribution that is given replaces that of every operand. For each k in `binades` one group is run, scaled by 2^k.
    """
    distributions = operand_distributions(m, sizes) if distribution is None else {v.name: distribution for v in m.operands}
    error_rows: list[tuple[float, float, float]] = []
    searched_formats: dict[str, Format] = {}
    for group in range(groups):
        error_rows += _group(m, ila, sizes, distributions, np.random.default_rng([seed, group]), searched_formats)
    distribution_texts = {n: str(d) for n, d in distributions.items()}
    drawn_errors, held_errors, rounded_errors = (Errors(column) for column in zip(*error_rows, strict=True))
    means = _at_binades(m, ila, sizes, distributions, seed, binades)
    return Accuracy(m.name, dict(sizes), distribution_texts, drawn_errors, held_errors, rounded_errors, means)


def _at_binades(
    m: Mapping, ila: Ila, sizes: MappingOf[str, Any], distributions: MappingOf[str, FloatDistribution | Codes], seed: int,
    binades: Sequence[int],
) -> dict[int, float]:  # fmt: skip
    """Return the mean error of one group where moving operands are 2^k as large; none where an operation takes a model's own integers."""
    if any(isinstance(d, Codes) for d in distributions.values()):
        return {}
    constants = constant_operands(m)
    means = {}
    for k in binades:
        scaled = {n: d if n in constants or not isinstance(d, Distribution) else d.scaled(k) for n, d in distributions.items()}
        group = _group(m, ila, sizes, scaled, np.random.default_rng([seed, 0]), {})
        means[k] = math.fsum(error for error, _, _ in group) / len(group)
    return means


def operand_distributions(m: Mapping, sizes: MappingOf[str, Any]) -> dict[str, FloatDistribution | Codes]:
    """Return the distribution of each operand: as the mapping says; else N(0, 1), weights N(0, 1 / fan-in), vectors N(0, ¼²).

    Operands that are integers in the model are drawn from all codes of their format.
    """
    formats = m.formats_for(dict.fromkeys(m.format_choices, 1.0)) if _takes_integers(m) else {}
    return {v.name: Codes(f) if isinstance(f := formats.get(v.name), Int) else _distribution(m, v, sizes) for v in m.operands}


def _takes_integers(m: Mapping) -> bool:
    """Tell whether the guard wants operands that are integers in the model."""
    return any(isinstance(c, HasType) and not set(c.dtypes) & set(FLOATS) for c in m.rule.where)


def _distribution(m: Mapping, v: Variable, sizes: MappingOf[str, Any]) -> Distribution:
    if v.name in m.draws:
        return Distribution(*m.draws[v.name])
    if v.name not in constant_operands(m):
        return Distribution(0, 1)
    fan_in = math.prod(sizes[d] for d in m.axes.of[v.name][1:])
    return Distribution(0, VECTOR_DEVIATION if len(m.axes.of[v.name]) < 2 else fan_in**-0.5)


def constant_operands(m: Mapping) -> set[str]:
    """Return the operands that the guard requires to be known at compile time."""
    return {c.tensor.name for c in m.rule.where if isinstance(c, IsConstant) and isinstance(c.tensor, Variable)}


def accuracy_sizes(m: Mapping) -> MappingOf[str, Any]:
    """Return the sizes at which an operation is measured: its second trial, else 3u + 1 of each dimension with unit u > 1, 3 of others."""
    if m.trials:
        return m.trials[min(1, len(m.trials) - 1)]
    dimensions = dict.fromkeys(d for dims in m.axes.of.values() for d in dims)
    return {d: 3 * u + (u > 1) for d in dimensions for u in (m.units.get(d, 1),)}


def _group(
    m: Mapping,
    ila: Ila,
    sizes: MappingOf[str, Any],
    distributions: MappingOf[str, FloatDistribution | Codes],
    random: np.random.Generator,
    searched_formats: dict[str, Format],
) -> list[tuple[float, float, float]]:
    """Return the errors of ten inputs with the same constants, in formats chosen for all of them."""
    constants = constant_operands(m)
    operands = {}
    for v in m.operands:
        shape = tuple(sizes[d] for d in m.axes.of[v.name])
        operands[v.name] = distributions[v.name].draw(random, shape if v.name in constants else (INPUTS_IN_GROUP, *shape))
    attributes = {name: sizes[name] for name, _ in m.statics}
    expected = _reference_results(m, operands, constants, attributes)
    formats = _formats(m, ila, operands, expected, attributes, searched_formats)
    codes = {n: operand_codes(formats[n], x) for n, x in operands.items()}
    actual = _device_results(m, ila, codes, expected, formats, attributes)
    exact = _reference_results(m, {n: _values_of_codes(formats[n], c, operands[n]) for n, c in codes.items()}, constants, attributes)
    result = formats[m.axes.result]
    rounded = np.asarray(values_of(result, codes_of(result, exact[0])))
    return list(
        zip(_relative_errors(actual, expected[0]), _relative_errors(actual, exact[0]), _relative_errors(actual, rounded), strict=True)
    )


def _reference_results(
    m: Mapping, operands: MappingOf[str, Data], constants: set[str], attributes: MappingOf[str, Any]
) -> tuple[Data, ...]:
    """Return every result of the meaning [inputs, …]."""
    types = [TensorType((x if n in constants else x[0]).shape, _dtype(x)) for n, x in operands.items()]
    body = body_of(m, types, attributes)
    rows = []
    for k in range(INPUTS_IN_GROUP):
        operand_rows = [x if n in constants else x[k] for n, x in operands.items()]
        reals = (x.astype(np.float64) if x.dtype.kind == "f" else x for x in operand_rows)
        values = run(body, dict(zip(body.inputs, reals, strict=True)), real=np.float64)
        rows.append([values[v] for v in body.outputs])
    return tuple(np.stack(column) for column in zip(*rows, strict=True))


def _values_of_codes(f: Format, codes: Data, operand: Data) -> Data:
    """Return the values of codes; a model's own integers are their codes."""
    return values_of(f, codes) if operand.dtype.kind == "f" else codes


def _dtype(x: Data) -> str:
    return "float32" if x.dtype.kind == "f" else str(x.dtype)


def _formats(
    m: Mapping,
    ila: Ila,
    operands: MappingOf[str, Data],
    expected: tuple[Data, ...],
    attributes: MappingOf[str, Any],
    searched_formats: dict[str, Format],
) -> dict[str, Format]:
    """Return formats calibrated on the group, as `calibrate` chooses them; those that are tried out, on the first group."""
    tensors = {**operands, **dict(zip(m.axes.results, expected, strict=True))}
    formats = m.formats_for({n: float(np.max(np.abs(tensors[n]), initial=0)) for n in m.format_choices})
    for name, candidates in m.search.items():
        if name not in searched_formats:
            searched_formats[name] = min(
                candidates, key=lambda f: _error(m, ila, operands, expected, attributes, m.with_format(formats, name, f))
            )
        formats = m.with_format(formats, name, searched_formats[name])
    return formats


def _error(
    m: Mapping,
    ila: Ila,
    operands: MappingOf[str, Data],
    expected: tuple[Data, ...],
    attributes: MappingOf[str, Any],
    formats: MappingOf[str, Format],
) -> float:
    codes = {n: operand_codes(formats[n], x) for n, x in operands.items()}
    return math.fsum(_relative_errors(_device_results(m, ila, codes, expected, formats, attributes), expected[0]))


def _device_results(
    m: Mapping,
    ila: Ila,
    codes: MappingOf[str, Data],
    expected: tuple[Data, ...],
    formats: MappingOf[str, Format],
    attributes: MappingOf[str, Any],
) -> Data:
    """Return the first result [inputs, …] that the driver brings back from a simulator; all must have the shapes of `expected`."""
    device = simulated_device(ila, samples=INPUTS_IN_GROUP)
    results = m.run_driver(device, codes, formats, attributes)
    arrays = results if isinstance(results, tuple) else (results,)
    m.check_shapes(arrays, m.axes.sizes({name: x.shape[1:] for name, x in zip(m.axes.results, expected, strict=True)}))
    return np.asarray(values_of(formats[m.axes.result], np.asarray(arrays[0])))


def _relative_errors(actual: Data, expected: Data) -> list[float]:
    expected_rows = expected.reshape(INPUTS_IN_GROUP, -1)
    actual_rows = np.broadcast_to(actual, expected.shape).reshape(INPUTS_IN_GROUP, -1)
    norms = np.maximum(np.linalg.norm(expected_rows, axis=1), np.finfo(np.float64).tiny)
    return [float(e) for e in np.linalg.norm(actual_rows - expected_rows, axis=1) / norms]
