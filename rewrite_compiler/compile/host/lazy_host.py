"""Host fast path: sums, products with numbers, clamps, slices, padding and depthwise convolutions, in any memory layout.

The results have the bits of the host engine. Between two offloads a residual sum then needs no copy into the model's memory
layout and back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from ...ir.program import Data, Node, Program, Value
from ...limits import DEFAULT
from ...readings.arrays.buffer_pool import pooled_array_with_strides
from ...readings.kernels.selection import has_machine_code
from .depthwise import DepthwiseConvolution, fuse_depthwise
from .fused_elementwise import elementwise, factor_of
from .host_program import HostProgram
from .lazy_codes import Operand, elements_of

CHECK_SAMPLES = 2  # samples of the first run whose bits are compared with the host engine's


def _slice(x: Data, *, axis: int, start: int, stop: int, step: int) -> Data:
    return x[(*[slice(None)] * (1 + axis), slice(start, stop, step))]


def _pad(x: Data, *, pads: tuple[int, ...], value: float) -> Data:
    leading, trailing = (0, *pads[: x.ndim - 1]), (0, *pads[x.ndim - 1 :])
    out = pooled_array_with_strides([a + n + b for a, n, b in zip(leading, x.shape, trailing, strict=True)], x.strides, x.dtype)
    out.fill(value)
    out[tuple(slice(a, a + n) for a, n in zip(leading, x.shape, strict=True))] = x
    return out


def _place(x: Data, out: Data | None) -> Data:
    """Return the destination `out`, or an uninitialised array in the memory layout of `x`."""
    return pooled_array_with_strides(x.shape, x.strides, x.dtype) if out is None else out


def _clip(x: Data, out: Data | None = None, *, low: float, high: float) -> Data:
    clipped = np.maximum(x, np.float32(low), out=_place(x, out))
    return np.minimum(clipped, np.float32(high), out=clipped)


# operator → function on values with a sample axis; elementwise ones can overwrite their first operand (`out`)
ELEMENTWISE_OPERATORS: dict[str, Callable[..., Data]] = {
    "add": lambda a, b, out=None: np.add(a, b, out=_place(a, out)),
    "mul": lambda x, number, out=None: np.multiply(x, number, out=_place(x, out)),
    "relu": lambda x, out=None: np.maximum(x, np.float32(0), out=_place(x, out)),
    "clip": _clip,
}
FAST_OPERATORS: dict[str, Callable[..., Data]] = {**ELEMENTWISE_OPERATORS, "slice": _slice, "pad": _pad}


def has_fast_path(p: Program) -> bool:
    """Tell whether a host part has only fast operators, on float32 of one shape and without constants but factors, or depthwise ones."""

    def is_supported(node: Node | DepthwiseConvolution) -> bool:
        if isinstance(node, DepthwiseConvolution):
            return True
        types = [p.types[v] for v in (*node.inputs, *node.outputs)]
        moving = node.inputs if factor_of(p, node) is None else node.inputs[:1]
        is_one_shape = len({p.types[v].shape for v in moving}) == 1
        is_fixed = any(v in p.constants for v in moving) or (node.op == "mul" and len(moving) > 1)
        return node.op in FAST_OPERATORS and is_one_shape and not is_fixed and all(t.dtype == "float32" for t in types)

    return bool(p.nodes) and all(map(is_supported, fuse_depthwise(p)))


class FastHostProgram(HostProgram):
    """A host part on the fast path; if its first run differs from the host engine in a bit, the host engine runs all of it."""

    def __init__(self, program: Program, seconds: int = DEFAULT.host_seconds) -> None:
        """Prepare a host part for which `is_plain` holds."""
        super().__init__(program, program.inputs, seconds=seconds, is_part=True)
        self.is_used: bool | None = None
        self.nodes = fuse_depthwise(self.program)
        reads = Counter(v for n in self.nodes for v in n.inputs)
        fresh = {v for n in self.nodes if isinstance(n, DepthwiseConvolution) or n.op in ELEMENTWISE_OPERATORS for v in n.outputs}
        self.elementwise = elementwise(self.program)
        self.passing = {
            v for v in fresh if reads[v] == 1 and v not in self.program.outputs
        }  # temporaries with one reader, which may be overwritten

    def run_lazily(self, values: Mapping[Value, Operand]) -> Mapping[Value, Operand]:
        """Return the outputs: sums and clamps in one fused pass, clamps of codes as lazy codes."""
        fused_result = self.elementwise(values) if self.elementwise is not None and self.is_used else None
        arrays = {v: elements_of(x) for v, x in values.items()} if fused_result is None else {}
        return self._lazily(arrays) if fused_result is None else {self.program.outputs[0]: fused_result}

    def run(self, values: Mapping[Value, Data]) -> dict[Value, Data]:
        """Return the outputs: inputs [samples, …], outputs [samples, …]."""
        return {v: elements_of(x) for v, x in self._lazily(values).items()}

    def _lazily(self, values: Mapping[Value, Data]) -> Mapping[Value, Operand]:
        needs_code = any(isinstance(n, DepthwiseConvolution) for n in self.nodes)
        if needs_code and not has_machine_code():
            return super().run(values)
        if self.is_used is None:
            check_inputs = {v: np.ascontiguousarray(x[:CHECK_SAMPLES]) for v, x in values.items()}
            actual, expected = self._plain(check_inputs), self.one_by_one(check_inputs, min(len(x) for x in check_inputs.values()))
            self.is_used = all(elements_of(actual[v]).tobytes() == x.tobytes() for v, x in expected.items())
        return self._plain(values) if self.is_used else super().run(values)

    def _plain(self, values: Mapping[Value, Data]) -> dict[Value, Operand]:
        environment: dict[Value, Operand] = {**self.program.constants, **values}
        for node in self.nodes:
            operands = [elements_of(environment[v]) for v in node.inputs]
            if isinstance(node, DepthwiseConvolution):
                environment[node.outputs[0]] = node(*operands)
                continue
            is_over = node.op in ELEMENTWISE_OPERATORS and node.inputs[0] in self.passing
            place = {"out": operands[0]} if is_over else {}
            environment[node.outputs[0]] = FAST_OPERATORS[node.op](*operands, **place, **dict(node.attributes))
        return {v: environment[v] for v in self.program.outputs}
