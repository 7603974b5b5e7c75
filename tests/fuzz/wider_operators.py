"""Steps of random models beyond the first ones: normalisation, reduction, layout, recurrence, integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

if TYPE_CHECKING:
    from generate import Growing

SCALARS = ("Exp", "Erf", "HardSigmoid", "HardSwish", "Elu", "LeakyRelu", "Sign", "Floor", "Cos")
REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")
EXACT = ("Add", "Sub", "Mul", "Max", "Min")


def scalar(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    op = g.rng.choice(SCALARS)
    if op == "Exp":  # of what is bounded: it must not grow without end
        g.node("Tanh", [name], shape)
        name = g.values[-1][0]
    g.node(op, [name], shape)


def divide(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    g.node("Div", [name, g.constant(shape, near=2.0)], shape)


def clip(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    bounds = [np.float32(g.rng.choice((near, near, near, -near, np.inf, -np.inf))) for near in (-1.0, 2.0)]
    g.node("Clip", [name, *map(g.stored, bounds)], shape)


def reduce(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    axes = sorted(g.rng.sample(range(len(shape)), g.rng.randint(1, len(shape))))
    keep = g.rng.randint(0, 1) if len(axes) < len(shape) else 1
    made = tuple(1 if k in axes else n for k, n in enumerate(shape) if keep or k not in axes)
    op = g.rng.choice(REDUCTIONS)
    if g.opset < 18:
        g.node(op, [name], made, axes=axes, keepdims=keep)
    else:
        g.node(op, [name, g.list(*axes)], made, keepdims=keep)


def total(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    axis = g.rng.randrange(len(shape))
    g.node("ReduceSum", [name, g.list(axis)], tuple(1 if k == axis else n for k, n in enumerate(shape)), keepdims=1)


def slices(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    axis = g.rng.randrange(len(shape))
    first = g.rng.randrange(shape[axis])
    step = g.rng.choice((1, 1, 2, -1))
    if step < 0:
        made, last = shape[axis] - first, first - shape[axis] - 1  # from the end down to `first`
        reads = [name, g.list(-1), g.list(last), g.list(axis), g.list(step)]
    else:
        made, reads = -(-(shape[axis] - first) // step), [name, g.list(first), g.list(1 << 40), g.list(axis), g.list(step)]
    g.node("Slice", reads, tuple(made if k == axis else n for k, n in enumerate(shape)))


def pad(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    before = [g.rng.randint(0, 1) for _ in shape]
    after = [g.rng.randint(0, 2) for _ in shape]
    g.node("Pad", [name, g.list(*before, *after)], tuple(map(sum, zip(before, shape, after, strict=True))))


def split(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    axes = [k for k, n in enumerate(shape) if n > 1]
    if axes:
        axis = g.rng.choice(axes)
        first = g.rng.randint(1, shape[axis] - 1)
        shapes = [tuple(n if k == axis else m for k, m in enumerate(shape)) for n in (first, shape[axis] - first)]
        g.nodes_of("Split", [name, g.list(first, shape[axis] - first)], shapes, axis=axis)


def unsqueeze(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    at = g.rng.randint(0, len(shape))
    if len(shape) < 5:
        g.node("Unsqueeze", [name, g.list(at)], (*shape[:at], 1, *shape[at:]))


def squeeze(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    ones = [k for k, n in enumerate(shape) if n == 1]
    if ones and len(shape) > 1:
        at = g.rng.choice(ones)
        g.node("Squeeze", [name, g.list(at)], (*shape[:at], *shape[at + 1 :]))


def expand(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    lead = g.rng.choice((1, 2))
    made = tuple(g.rng.choice((2, 3)) if n == 1 else n for n in shape)
    if len(shape) < 5:
        g.node("Expand", [name, g.list(lead, *made)], (lead, *made))


def gather(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    axis = g.rng.randrange(len(shape))
    rows = [g.rng.randrange(-shape[axis], shape[axis]) for _ in range(g.rng.randint(1, 4))]
    g.node("Gather", [name, g.list(*rows)], (*shape[:axis], len(rows), *shape[axis + 1 :]), axis=axis)


def where(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    condition = g.stored(np.random.default_rng(g.rng.getrandbits(32)).integers(0, 2, shape).astype(bool))
    g.node("Where", [condition, name, g.constant(())], shape)


def product(g: Growing) -> None:
    """Multiply a value by itself, transposed: both operands move."""
    found = g.pick(2)
    if found:
        name, (n, m) = found
        g.node("Transpose", [name], (m, n), perm=[1, 0])
        g.node("MatMul", [name, g.values[-1][0]], (n, n))


def batch_norm(g: Growing) -> None:
    found = g.pick(4)
    if found:
        c = found[1][1]
        reads = [g.constant((c,)), g.constant((c,)), g.constant((c,)), g.constant((c,), near=2.0)]
        g.node("BatchNormalization", [found[0], *reads], found[1])


def layer_norm(g: Growing) -> None:
    name, shape = g.rng.choice(g.values)
    if shape[-1] > 1:
        g.node("LayerNormalization", [name, g.constant(shape[-1:]), g.constant(shape[-1:])], shape, axis=-1)


def global_pool(g: Growing) -> None:
    found = g.pick(4)
    if found:
        g.node(g.rng.choice(("GlobalAveragePool", "GlobalMaxPool")), [found[0]], (*found[1][:2], 1, 1))


def padded_conv(g: Growing) -> None:
    found = g.pick(4)
    if found:
        (n, c, h, w), depthwise = found[1], g.rng.random() < 0.4
        o, group = (c, c) if depthwise else (g.rng.choice((2, 4)), 1)
        weights = g.constant((o, c // group, 3, 3))
        g.node("Conv", [found[0], weights], (n, o, h, w), kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=group)


def recurrence(g: Growing) -> None:
    found = g.pick(3)
    if found and found[1][0] <= 4:
        (steps, batch, features), hidden = found[1], g.rng.choice((2, 4))
        op, gates = g.rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
        reads = [found[0], g.constant((1, gates * hidden, features)), g.constant((1, gates * hidden, hidden))]
        more: dict[str, Any] = {"linear_before_reset": g.rng.randint(0, 1)} if op == "GRU" else {}
        g.node(op, reads, (steps, 1, batch, hidden), hidden_size=hidden, **more)


def integers(g: Growing) -> None:
    """Compute with the bytes of the input: exactly, as any order of rewriting must."""
    name, shape = g.values[0]
    if len(shape) != 2:
        return
    scale, zero = g.stored(np.float32(0.05)), g.stored(np.uint8(128))
    g.inner("QuantizeLinear", [name, scale, zero])
    codes, m = g.last, g.rng.choice((2, 8))
    weights = g.stored(np.random.default_rng(g.rng.getrandbits(32)).integers(-128, 128, (shape[1], m)).astype(np.int8))
    g.inner("MatMulInteger", [codes, weights, zero])
    for _ in range(g.rng.randint(1, 4)):
        other = np.random.default_rng(g.rng.getrandbits(32)).integers(-(1 << 31), 1 << 31, (m,)).astype(np.int32)
        g.inner(g.rng.choice(EXACT), [g.last, g.stored(other)])
    if g.rng.random() < 0.5:
        g.inner("Transpose", [g.last], perm=[1, 0])
        shape = (m, shape[0])
    else:
        shape = (shape[0], m)
    g.ends.append((g.last, TensorProto.INT32, shape))


def requantised(g: Growing) -> None:
    """Quantise and dequantise the input, as exported quantised models do."""
    name, shape = g.values[0]
    scale, zero = g.stored(np.float32(0.05)), g.stored(np.uint8(100))
    g.inner("QuantizeLinear", [name, scale, zero])
    g.node("DequantizeLinear", [g.last, scale, zero], shape)


WIDER = (
    scalar, scalar, divide, clip, reduce, total, slices, pad, split, unsqueeze, squeeze, expand, gather, where, product, batch_norm,
    layer_norm, global_pool, padded_conv, recurrence, integers, requantised,
)  # fmt: skip
