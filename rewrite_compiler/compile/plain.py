"""Host parts of sums, ReLUs, slices and zeros around: numpy gives the host engine's bits, in whatever layout values have.

Between two offloads a residual sum then needs no copy into the order of the model's axes and none back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.program import Data, Node, Program, Value
from ..limits import DEFAULT
from .host import HostProgram

CHECKED = 2  # samples of the first run whose bits are compared with the host engine's


def laid_out(shape: Sequence[int], strides: Sequence[int], kind: Any) -> Data:
    """Return an array, not set, whose axes lie in memory in the order of these strides."""
    places = sorted(range(len(shape)), key=lambda n: -strides[n])
    whole = np.empty([shape[n] for n in places], kind)
    return whole.transpose(np.argsort(places))


def _slice(x: Data, *, axis: int, start: int, stop: int, step: int) -> Data:
    return x[(*[slice(None)] * (1 + axis), slice(start, stop, step))]


def _pad(x: Data, *, pads: tuple[int, ...], value: float) -> Data:
    before, after = (0, *pads[: x.ndim - 1]), (0, *pads[x.ndim - 1 :])
    out = laid_out([a + n + b for a, n, b in zip(before, x.shape, after, strict=True)], x.strides, x.dtype)
    out.fill(value)
    out[tuple(slice(a, a + n) for a, n in zip(before, x.shape, strict=True))] = x
    return out


# operator → what it does to values with a sample axis
PLAIN: dict[str, Callable[..., Data]] = {
    "add": lambda a, b: a + b,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "slice": _slice,
    "pad": _pad,
}


def is_plain(p: Program) -> bool:
    """Tell whether a host part has operators of the table only, on float32 of one shape and no constants."""

    def known(node: Node) -> bool:
        types = [p.types[v] for v in (*node.inputs, *node.outputs)]
        same = len({p.types[v].shape for v in node.inputs}) == 1
        is_fixed = any(v in p.constants for v in node.inputs)
        return node.op in PLAIN and same and not is_fixed and all(t.dtype == "float32" for t in types)

    return bool(p.nodes) and all(map(known, p.nodes))


class PlainProgram(HostProgram):
    """A plain host part; where a bit differs in its first run, all is the host engine's."""

    def __init__(self, program: Program, seconds: int = DEFAULT.host_seconds) -> None:
        """Prepare to run."""
        super().__init__(program, program.inputs, seconds=seconds)
        self.is_used: bool | None = None

    def run(self, values: Mapping[Value, Data]) -> dict[Value, Data]:
        """Return the outputs: inputs [samples, …], outputs [samples, …]."""
        if self.is_used is None:
            few = {v: np.ascontiguousarray(x[:CHECKED]) for v, x in values.items()}
            here, there = self._plain(few), self.one_by_one(few, min(len(x) for x in few.values()))
            self.is_used = all(here[v].tobytes() == x.tobytes() for v, x in there.items())
        return self._plain(values) if self.is_used else super().run(values)

    def _plain(self, values: Mapping[Value, Data]) -> dict[Value, Data]:
        found: dict[Value, Any] = dict(values)
        for node in self.program.nodes:
            found[node.outputs[0]] = PLAIN[node.op](*(found[v] for v in node.inputs), **dict(node.attributes))
        return {v: found[v] for v in self.program.outputs}
