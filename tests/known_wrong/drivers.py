"""Faults of the shipped drivers: one function of a target with a line changed, each right at most sizes."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

CONV, DENSE, HLSCNN = "vta.conv2d", "vta.dense", "hlscnn"
FLEXASR = "flexasr.linear"


@dataclass(frozen=True)
class Fault:
    """A line of a function in a module of `targets` as it is and as it is wrong; `of` is the operation that shows it."""

    of: str
    module: str
    function: str
    old: str
    new: str


def _conv(function: str, old: str, new: str, of: str = "vta.conv2d") -> Fault:
    return Fault(of, CONV, function, old, new)


def _dense(function: str, old: str, new: str, of: str = "vta.dense") -> Fault:
    return Fault(of, DENSE, function, old, new)


def _hlscnn(function: str, old: str, new: str, of: str = "hlscnn.conv2d") -> Fault:
    return Fault(of, HLSCNN, function, old, new)


FAULTS: dict[str, Fault] = {
    "weights of later bands are not loaded where channels come in passes": _conv(
        "Layer.loads_weights", "if len(self.passes) > 1:\n        return True", "if len(self.passes) > 1:\n        return not band.start"
    ),
    "weights of later images are not loaded where channels come in passes": _conv(
        "Layer.loads_weights", "if len(self.passes) > 1:\n        return True", "if len(self.passes) > 1:\n        return not part"
    ),
    "bottom zeros as many as top zeros": _conv("_load", "max(end - m.rows, 0) if inside", "max(-begin, 0) if inside"),
    "right zeros as many as left zeros": _conv("_load", "x_pad_1=right", "x_pad_1=left"),
    "inputs may be one element more than the buffer holds": _conv("Layer.tile_sizes", 'c.depth("inp")', '(c.depth("inp") + 1)'),
    "sums may be one element more than the buffer holds": _conv("Layer.tile_sizes", 'c.depth("acc")', '(c.depth("acc") + 1)'),
    "the column stride is at most 2": _conv("_pass", "m.out[1] > 1 and m.strides[1]", "m.out[1] > 1 and min(m.strides[1], 2)"),
    "the row stride is at most 2": _conv("_pass", "m.strides[0] * m.width", "min(m.strides[0], 2) * m.width"),
    "weights of a pass lie close together": _conv("_load", "x_stride=m.channels * m.taps", "x_stride=count * m.taps"),
    "the third image is the first": _conv("_load", "(part * m.channels + block)", "(part % 2 * m.channels + block)"),
    "micro-ops of a narrow last band are those of the wide one": _conv(
        "Layer.programs", "self.uops(*kind)", "self.uops(max(rows for rows, _ in kinds), kind[1])"
    ),
    "one bias for all but the first block": _conv("_start_at_bias", "first + n", "first + min(n, 1)", "vta.conv2d_bias"),
    "the activation runs after each pass": _conv("_pass", "if is_last and m.relu", "if m.relu", "vta.conv2d_relu"),
    "micro-ops ignore where kept weights lie": _dense("drive_dense", "c.micro_op(0, k, first + k)", "c.micro_op(0, k, k)"),
    "rows of inputs lie one apart": _dense("_compute", "b.rows > 1 and b.inner", "b.rows > 1 and min(b.inner, 3)"),
    "the activation misses columns from block 65 on": _dense(
        "_compute", '"alu_max", uop_end=1, **loops', '"alu_max", uop_end=1, **grid(b.rows, min(b.columns, 64))', "vta.dense_relu"
    ),
    "the second image finds the weights of the last pass": _hlscnn(
        "drive_images", "(bool(k) and len(parts) == 1)", "(bool(k) and n == 0)"
    ),
    "later passes do not add": _hlscnn("drive_images", "accumulate=bool(n) or b is not None", "accumulate=b is not None"),
    "every pass has the activation": _hlscnn("drive_images", "relu=relu and n == len(parts) - 1", "relu=relu", "hlscnn.conv2d_relu"),
    "every pass starts at the bias": _hlscnn("drive_images", "(None if n else b)", "b", "hlscnn.conv2d_bias"),
    "the stride register holds at most 2": _hlscnn("_configuration", '"col_stride": g.strides[1]', '"col_stride": min(g.strides[1], 2)'),
    "left zeros as many as top zeros": _hlscnn("drive_images", "at=(pads[0], pads[1])", "at=(pads[0], pads[0])"),
    "the third of the images is the first": _hlscnn("drive_images", "x[..., k, part, :, :]", "x[..., k % 2, part, :, :]"),
    "inputs and biases may be one vector more than the buffer holds": Fault(
        "flexasr.linear", FLEXASR, "linear_limits", "inputs + per_pe, INPUT", "inputs + per_pe, INPUT + 1"
    ),
    "the large buffer may be a block of timesteps more than it is": Fault(
        "flexasr.linear", "flexasr.base", "large_buffer_limits", "vectors_per_timestep, LARGE", "vectors_per_timestep, LARGE + BLOCK"
    ),
    "the second weight tile of a processing element lies one further": Fault(
        "flexasr.linear", "flexasr.base", "store_weights", "index=base + np.arange(len(tiles))",
        "index=base + np.arange(len(tiles)) + (np.arange(len(tiles)) // LANES > 8)"
    ),
    "timesteps from block 40 on lie where those of block 39 do": Fault(
        "flexasr.linear", "flexasr.base", "large_index", "(t // BLOCK * vectors + v)", "(np.minimum(t // BLOCK, 39) * vectors + v)"
    ),
    "biases lie one further behind more than four inputs": Fault(
        "flexasr.linear", FLEXASR, "drive_linear", "base_bias=inputs)", "base_bias=inputs + (inputs > 4 and per_pe > 1))"
    ),
}  # fmt: skip


def _function(fault: Fault) -> FunctionType:
    found: Any = import_module(f"rewrite_compiler.targets.{fault.module}")
    for name in fault.function.split("."):
        found = vars(found)[name]
    found = getattr(found, "func", getattr(found, "fget", found))
    assert isinstance(found, FunctionType)
    return found


def code_of(fault: Fault) -> CodeType:
    """Return the code of the changed function."""
    f = _function(fault)
    text = textwrap.dedent(inspect.getsource(f))
    assert text.count(fault.old) == 1, (fault, text.count(fault.old))
    made: dict[str, Any] = {}
    lines = text.replace(fault.old, fault.new).split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith("def "))
    exec(compile("from __future__ import annotations\n" + "\n".join(lines[start:]), f.__code__.co_filename, "exec"), f.__globals__, made)
    code = made[f.__name__].__code__
    assert isinstance(code, CodeType)
    return code


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """Let a driver have a fault."""
    f, forget = _function(fault), import_module(f"rewrite_compiler.targets.{CONV}")._known.cache_clear
    before, wrong = f.__code__, code_of(fault)
    forget()
    f.__code__ = wrong
    try:
        yield
    finally:
        f.__code__ = before
        forget()
