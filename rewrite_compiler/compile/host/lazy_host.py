"""Host parts of sums, clamps, slices and zeros around, and convolutions of single channels, in whatever layout values have.

numpy and machine code give the host engine's bits. Between two offloads a residual sum then needs no copy into the order of
the model's axes and none back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from ...ir.program import Data, Node, Program, Value
from ...limits import DEFAULT
from ...readings.arrays.buffer_pool import laid_out
from ...readings.kernels.selection import has_machine_code
from .depthwise import Channelwise, joined
from .fused_elementwise import elementwise
from .host_program import HostProgram
from .lazy_codes import Operand, looked_at

CHECKED = 2  # samples of the first run whose bits are compared with the host engine's


def _slice(x: Data, *, axis: int, start: int, stop: int, step: int) -> Data:
    return x[(*[slice(None)] * (1 + axis), slice(start, stop, step))]


def _pad(x: Data, *, pads: tuple[int, ...], value: float) -> Data:
    before, after = (0, *pads[: x.ndim - 1]), (0, *pads[x.ndim - 1 :])
    out = laid_out([a + n + b for a, n, b in zip(before, x.shape, after, strict=True)], x.strides, x.dtype)
    out.fill(value)
    out[tuple(slice(a, a + n) for a, n in zip(before, x.shape, strict=True))] = x
    return out


def _place(x: Data, out: Data | None) -> Data:
    """Return where results go: where they are told to, or an array, not set, that lies in memory as another one does."""
    return laid_out(x.shape, x.strides, x.dtype) if out is None else out


def _clip(x: Data, out: Data | None = None, *, low: float, high: float) -> Data:
    found = np.maximum(x, np.float32(low), out=_place(x, out))
    return np.minimum(found, np.float32(high), out=found)


# operator → what it does to values with a sample axis; those that change elements, in place of the first operand where asked to
CHANGING: dict[str, Callable[..., Data]] = {
    "add": lambda a, b, out=None: np.add(a, b, out=_place(a, out)),
    "relu": lambda x, out=None: np.maximum(x, np.float32(0), out=_place(x, out)),
    "clip": _clip,
}
PLAIN: dict[str, Callable[..., Data]] = {**CHANGING, "slice": _slice, "pad": _pad}


def is_plain(p: Program) -> bool:
    """Tell whether a host part has operators of the table only, on float32 of one shape and no constants, or of single channels."""

    def known(node: Node | Channelwise) -> bool:
        if isinstance(node, Channelwise):
            return True
        types = [p.types[v] for v in (*node.inputs, *node.outputs)]
        same = len({p.types[v].shape for v in node.inputs}) == 1
        is_fixed = any(v in p.constants for v in node.inputs)
        return node.op in PLAIN and same and not is_fixed and all(t.dtype == "float32" for t in types)

    return bool(p.nodes) and all(map(known, joined(p)))


class PlainProgram(HostProgram):
    """A plain host part; where a bit differs in its first run, or machine code is needed and not in use, all is the host engine's."""

    def __init__(self, program: Program, seconds: int = DEFAULT.host_seconds) -> None:
        """Prepare to run."""
        super().__init__(program, program.inputs, seconds=seconds, is_part=True)
        self.is_used: bool | None = None
        self.nodes = joined(self.program)
        reads = Counter(v for n in self.nodes for v in n.inputs)
        fresh = {v for n in self.nodes if isinstance(n, Channelwise) or n.op in CHANGING for v in n.outputs}
        self.elementwise = elementwise(self.program)
        self.passing = {v for v in fresh if reads[v] == 1 and v not in self.program.outputs}  # nobody else's: may be written over

    def lazily(self, values: Mapping[Value, Operand]) -> Mapping[Value, Operand]:
        """Return the outputs, of sums and limits as one pass, of limits of codes as codes."""
        found = self.elementwise(values) if self.elementwise is not None and self.is_used else None
        given = {v: looked_at(x) for v, x in values.items()} if found is None else {}
        return self._lazily(given) if found is None else {self.program.outputs[0]: found}

    def run(self, values: Mapping[Value, Data]) -> dict[Value, Data]:
        """Return the outputs: inputs [samples, …], outputs [samples, …]."""
        return {v: looked_at(x) for v, x in self._lazily(values).items()}

    def _lazily(self, values: Mapping[Value, Data]) -> Mapping[Value, Operand]:
        needs_code = any(isinstance(n, Channelwise) for n in self.nodes)
        if needs_code and not has_machine_code():
            return super().run(values)
        if self.is_used is None:
            few = {v: np.ascontiguousarray(x[:CHECKED]) for v, x in values.items()}
            here, there = self._plain(few), self.one_by_one(few, min(len(x) for x in few.values()))
            self.is_used = all(looked_at(here[v]).tobytes() == x.tobytes() for v, x in there.items())
        return self._plain(values) if self.is_used else super().run(values)

    def _plain(self, values: Mapping[Value, Data]) -> dict[Value, Operand]:
        found: dict[Value, Operand] = dict(values)
        for node in self.nodes:
            given = [looked_at(found[v]) for v in node.inputs]
            if isinstance(node, Channelwise):
                found[node.outputs[0]] = node(*given)
                continue
            is_over = node.op in CHANGING and node.inputs[0] in self.passing
            place = {"out": given[0]} if is_over else {}
            found[node.outputs[0]] = PLAIN[node.op](*given, **place, **dict(node.attributes))
        return {v: found[v] for v in self.program.outputs}
