"""Evaluation of codelets in exact integers, at every stage, and how many bits of each storage they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import SpecError, did_you_mean
from ..lang import intervals as iv
from ..readings.arrays.labelled_array import Data
from .codelet import Allocation, Codelet, Compute, Constant, Index, Loop, Node, Surrogate, Transfer, dtype_bits


def _gemm(x: Data, w: Data, accumulator: Data) -> Data:
    """Return accumulator[n] + Σ x[k] · w[n, k]."""
    total: Data = accumulator + w @ x
    return total


# capability → its value on blocks of exact integers
CAPABILITIES: dict[str, Callable[..., Data]] = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "RELU": lambda a: np.maximum(a, 0),
    "MAC": lambda a, b, accumulator: accumulator + a * b,
    "GEMM": _gemm,
    "COPY": lambda a: a,
}


def evaluate(c: Codelet, inputs: Mapping[str, Data]) -> dict[str, Data]:
    """Return what a bound codelet computes: its `out` operands, in words of their types.

    Raises:
        SpecError: I102, an input is missing or has another shape, or a capability has no meaning; I103, a block leaves its surrogate.
    """
    return _Run(c, inputs).result()


class _Run:
    """The contents of surrogates, and the values of the loops around a node."""

    def __init__(self, c: Codelet, inputs: Mapping[str, Data]) -> None:
        self.codelet, self.numbers = c, dict[str, int]()
        self.words = {s.name: _interval(s.name, s.dtype) for s in c.surrogates}
        self.contents = {s.name: self.initial(s, inputs) for s in c.surrogates}

    def initial(self, s: Surrogate, inputs: Mapping[str, Data]) -> Data:
        if s.kind in ("out", "local"):
            return np.zeros(s.shape, object)
        if s.name not in inputs:
            raise SpecError("I102", f"{self.codelet.name} needs the input {s.name}", help=f"given: {', '.join(inputs) or 'none'}")
        data = np.asarray(inputs[s.name]).astype(object)
        if data.shape != s.shape:
            raise SpecError("I102", f"The input {s.name} must have the shape {s.shape}, not {data.shape}", help="or bind other sizes")
        return data

    def result(self) -> dict[str, Data]:
        for node in self.codelet.body:
            self.run(node)
        return {s.name: self.contents[s.name].astype(np.int64) for s in self.codelet.surrogates if s.kind == "out"}

    def run(self, node: Node) -> None:
        if isinstance(node, Loop):
            for value in range(int(node.low), int(node.high), node.stride):
                self.numbers[node.var] = value
                for part in node.body:
                    self.run(part)
        elif isinstance(node, Transfer):
            self.transfer(node)
        else:
            self.compute(node)

    def transfer(self, node: Transfer) -> None:
        source = node.source
        data = np.full(source.sizes, source.value, object) if isinstance(source, Constant) else self.block(source)
        if isinstance(node.sink, Allocation):
            self.contents[node.sink.name] = np.array(data)
            word = _interval(node.sink.name, source.dtype) if isinstance(source, Constant) else self.words[source.surrogate]
            self.words[node.sink.name] = word
        else:
            self.block(node.sink)[...] = data.reshape(node.sink.sizes)

    def compute(self, node: Compute) -> None:
        meaning = CAPABILITIES.get(node.capability)
        if meaning is None:
            remedy = did_you_mean(node.capability, CAPABILITIES) or f"known: {', '.join(CAPABILITIES)}"
            raise SpecError("I102", f"The capability {node.capability} has no meaning", help=remedy)
        value = np.asarray(meaning(*(self.block(i) for i in node.operands)))
        if value.size != node.result.elements:
            sentence = f"{node.capability} gives {value.size} elements, not the {node.result.elements} of {node.result.surrogate}"
            raise SpecError("I102", sentence, help="give its operands the sizes of one step")
        low, high = self.words[node.result.surrogate]
        span = (high or 0) - (low or 0) + 1
        self.block(node.result)[...] = (value.reshape(node.result.sizes) - (low or 0)) % span + (low or 0)

    def block(self, i: Index) -> Data:
        """Return a block as a view of its surrogate."""
        data = self.contents[i.surrogate]
        slices = list[Any]()
        for axis, (offset, size) in enumerate(zip(i.offsets, i.sizes, strict=True)):
            first = offset.value(self.numbers)
            if not 0 <= first <= first + size <= data.shape[axis]:
                sentence = f"elements {first}…{first + size - 1} of {i.surrogate} leave axis {axis}, which has {data.shape[axis]}"
                raise SpecError("I103", sentence, help="the last block of a loop must be cut to what is left")
            slices.append(slice(first, first + size))
        view: Data = data[(*slices, ...)]  # an array, even of no axes
        return view


def _interval(subject: str, dtype: str | None) -> iv.Interval:
    return iv.of_width(dtype_bits(subject, dtype), (dtype or "i")[0] == "i")


def usage(c: Codelet) -> dict[str, int]:
    """Return the peak of bits that a codelet takes of each storage: its operands, and the locals that live together."""
    types = {s.name: (s.dtype, s.loc) for s in c.surrogates}
    fixed: dict[str, int] = {}
    for s in c.surrogates:
        if s.loc is not None:
            fixed[s.loc] = fixed.get(s.loc, 0) + s.bits
    locals_peak: dict[str, int] = {}
    for total in _totals(c.body, types, {}):
        for loc, bits in total.items():
            locals_peak[loc] = max(locals_peak.get(loc, 0), bits)
    return {loc: fixed.get(loc, 0) + locals_peak.get(loc, 0) for loc in sorted({*fixed, *locals_peak})}


def _totals(body: tuple[Node, ...], types: dict[str, tuple[str | None, str | None]], live: dict[str, int]) -> Iterator[dict[str, int]]:
    """Yield, after each transfer, the bits that the locals allocated so far take of each storage; those of a loop end with it."""
    current = dict(live)
    for node in body:
        if isinstance(node, Loop):
            yield from _totals(node.body, dict(types), current)
        elif isinstance(node, Transfer) and isinstance(node.sink, Allocation):
            dtype = node.source.dtype if isinstance(node.source, Constant) else types[node.source.surrogate][0]
            types[node.sink.name] = (dtype, node.sink.loc)
            bits = int(np.prod(node.source.sizes, dtype=np.int64)) * dtype_bits(node.sink.name, dtype)
            current[node.sink.loc] = current.get(node.sink.loc, 0) + bits
            yield current
