"""Perturbation: another spelling of an ONNX model that computes the same, as another exporter might have written it.

Every perturbation is a small rewriting of nodes or of the whole graph; a seed chooses where it is applied. What a matcher
finds in a model must not depend on any of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import UsageError
from ...ir.program import Data
from .lstm_unrolled import lstm_as_steps
from .rewriting import Graph

OLDEST = 13  # from this operator set on, axes and pads are operands
MAX_MOVED_ELEMENTS = 1 << 16  # elements of a value that goes through a pair of moves


Rewrite = Callable[[Graph, Any], "list[Any] | None"]


def attributes_of(node: Any) -> dict[str, Any]:
    """Return the attributes of a node as Python values."""
    from onnx import helper

    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def through_inverse_pair(g: Graph, node: Any, forward: Callable[[str], Any], inverse: Callable[[str], Any]) -> list[Any]:
    """Return a node whose first result goes through an operation and its inverse."""
    name = node.output[0]
    node.output[0] = g.fresh(f"{name}_plain")
    first = forward(node.output[0])
    second = inverse(first.output[0])
    second.output[0] = name
    return [node, first, second]


def movable_shape(g: Graph, node: Any) -> tuple[int, ...] | None:
    """Return the shape of a float result that may go through a pair of inverse moves, or None."""
    shape = g.shape(node.output[0]) if node.output else None
    small = shape is not None and 0 < int(np.prod(shape)) <= MAX_MOVED_ELEMENTS
    return shape if small and node.op_type in MOVABLE else None


MOVABLE = {"Relu", "Conv", "Add", "Mul", "Gemm", "MatMul", "BatchNormalization", "Sigmoid", "Tanh", "MaxPool", "Clip"}


def identity_after(g: Graph, node: Any) -> list[Any] | None:
    """y = Identity(f(x))"""
    if not node.output or not node.output[0] or node.op_type in ("Constant", "If", "Loop", "Scan"):
        return None
    name = node.output[0]
    node.output[0] = g.fresh(f"{name}_same")
    return [node, g.node("Identity", [node.output[0]], [name])]


def transpose_pair(g: Graph, node: Any) -> list[Any] | None:
    """y = Transpose(Transpose(f(x), p), p⁻¹)"""
    shape = movable_shape(g, node)
    if shape is None or len(shape) < 2:
        return None
    perm = list(range(len(shape)))
    g.source.shuffle(perm)
    inverse = [perm.index(a) for a in range(len(perm))]
    return through_inverse_pair(g, node, lambda x: g.node("Transpose", [x], perm=perm), lambda x: g.node("Transpose", [x], perm=inverse))


def unsqueeze_pair(g: Graph, node: Any) -> list[Any] | None:
    """y = Squeeze(Unsqueeze(f(x)))"""
    shape = movable_shape(g, node)
    if shape is None:
        return None
    axis = g.ints(g.source.randint(0, len(shape)))
    return through_inverse_pair(g, node, lambda x: g.node("Unsqueeze", [x, axis]), lambda x: g.node("Squeeze", [x, axis]))


def reshape_pair(g: Graph, node: Any) -> list[Any] | None:
    """y = Reshape(Reshape(f(x), flat), shape)"""
    shape = movable_shape(g, node)
    if shape is None or not shape:
        return None
    flat, full_shape = g.ints(shape[0], -1), g.ints(*shape)
    return through_inverse_pair(g, node, lambda x: g.node("Reshape", [x, flat]), lambda x: g.node("Reshape", [x, full_shape]))


def split_pair(g: Graph, node: Any) -> list[Any] | None:
    """y = Concat(Split(f(x)))"""
    shape = movable_shape(g, node)
    if shape is None or not shape or shape[-1] < 2:
        return None
    name, axis = node.output[0], len(shape) - 1
    node.output[0] = g.fresh(f"{name}_plain")
    parts = [g.fresh(f"{name}_part") for _ in range(2)]
    first = g.source.randint(1, shape[-1] - 1)
    cut = g.node("Split", [node.output[0], g.ints(first, shape[-1] - first)], parts, axis=axis)
    return [node, cut, g.node("Concat", parts, [name], axis=axis)]


def swap_operands(g: Graph, node: Any) -> list[Any] | None:
    """b + a for a + b"""
    if node.op_type not in ("Add", "Mul") or len(node.input) != 2:
        return None
    node.input[:] = list(reversed(node.input))
    return [node]


def gemm_as_matmul(g: Graph, node: Any) -> list[Any] | None:
    """MatMul and Add for Gemm"""
    if node.op_type != "Gemm":
        return None
    attributes, w = attributes_of(node), g.data(node.input[1])
    if attributes.get("transA", 0) or attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0 or w is None:
        return None
    weight = g.constant(w.T, "turned_weight") if attributes.get("transB", 0) else node.input[1]
    if len(node.input) < 3 or not node.input[2]:
        return [g.node("MatMul", [node.input[0], weight], node.output)]
    product = g.node("MatMul", [node.input[0], weight])
    return [product, g.node("Add", [product.output[0], node.input[2]], node.output)]


def matmul_as_gemm(g: Graph, node: Any) -> list[Any] | None:
    """Gemm between Reshapes for MatMul with a weight"""
    if node.op_type != "MatMul":
        return None
    x, w, shape = g.shape(node.input[0]), g.data(node.input[1]), g.shape(node.output[0])
    if x is None or shape is None or w is None or w.ndim != 2 or w.dtype != np.float32 or len(x) < 2:
        return None
    rows = g.node("Reshape", [node.input[0], g.ints(-1, x[-1])])
    weight = g.constant(w.T, "turned_weight")
    product = g.node("Gemm", [rows.output[0], weight], transB=1)
    return [rows, product, g.node("Reshape", [product.output[0], g.ints(*shape)], node.output)]


def bias_as_add(g: Graph, node: Any) -> list[Any] | None:
    """Add of [C, 1, …] behind Conv for its bias"""
    if node.op_type != "Conv" or len(node.input) < 3:
        return None
    bias, shape = g.data(node.input[2]), g.shape(node.output[0])
    if bias is None or shape is None:
        return None
    name = node.output[0]
    node.output[0] = g.fresh(f"{name}_unbiased")
    del node.input[2]
    ones = (1,) * (len(shape) - 2)
    form = (1, len(bias), *ones) if g.source.random() < 1 / 2 else (len(bias), *ones)
    return [node, g.node("Add", [node.output[0], g.constant(bias.reshape(form), "bias")], [name])]


def norm_folded(g: Graph, node: Any) -> list[Any] | None:
    """Conv with other weights for BatchNormalization behind Conv"""
    factors = _scale_and_shift(g, node)
    conv = next((n for n in g.model.graph.node if factors is not None and n.output[:1] == node.input[:1]), None)
    if factors is None or conv is None or conv.op_type != "Conv" or _readers(g, conv.output[0]) > 1:
        return None
    k, shift = factors
    weights, bias = g.data(conv.input[1]), g.data(conv.input[2]) if len(conv.input) > 2 and conv.input[2] else np.zeros_like(shift)
    if weights is None or bias is None:
        return None
    folded = [g.constant(weights * k.reshape(-1, *[1] * (weights.ndim - 1)), "folded"), g.constant(bias * k + shift, "folded_bias")]
    conv.input[1:] = folded
    conv.output[0] = node.output[0]
    return []


def _readers(g: Graph, name: str) -> int:
    """Return the number of uses of a value, by nodes or as an output."""
    return [*(i for n in g.model.graph.node for i in n.input), *(o.name for o in g.model.graph.output)].count(name)


def _scale_and_shift(g: Graph, node: Any) -> tuple[Data, Data] | None:
    """Return scale and shift of a BatchNormalization by channel, None where they are not constant."""
    attributes = attributes_of(node)
    if node.op_type != "BatchNormalization" or attributes.get("training_mode", 0):
        return None
    data = [g.data(n) for n in node.input[1:5]]
    if any(d is None for d in data):
        return None
    gamma, beta, mean, variance = (np.asarray(d).astype(np.float64) for d in data)
    k = gamma / np.sqrt(variance + attributes.get("epsilon", 1e-5))
    return k.astype(np.float32), (beta - mean * k).astype(np.float32)


def norm_as_scale(g: Graph, node: Any) -> list[Any] | None:
    """Mul and Add, or the equations, for BatchNormalization"""
    factors, shape = _scale_and_shift(g, node), g.shape(node.output[0])
    if shape is None or factors is None:
        return None
    k, shift, beta, mean = (
        np.asarray(x).reshape(-1, *[1] * (len(shape) - 2)) for x in (*factors, *map(g.data, (node.input[2], node.input[3])))
    )
    if g.source.random() < 1 / 2:
        scaled = g.node("Mul", [node.input[0], g.constant(k, "scale")])
        return [scaled, g.node("Add", [scaled.output[0], g.constant(shift, "shift")], node.output[:1])]
    centred = g.node("Sub", [node.input[0], g.constant(mean, "mean")])
    scaled = g.node("Mul", [centred.output[0], g.constant(k, "scale")])
    return [centred, scaled, g.node("Add", [scaled.output[0], g.constant(beta, "beta")], node.output[:1])]


def channels_last(g: Graph, node: Any) -> list[Any] | None:
    """Transposes to channels last and back around Conv, as a framework of that layout exports it"""
    x = g.shape(node.input[0]) if node.op_type == "Conv" else None
    if x is None or len(x) != 4:
        return None
    last, first = [0, 2, 3, 1], [0, 3, 1, 2]
    transposes = [g.node("Transpose", [node.input[0]], perm=last)]
    transposes.append(g.node("Transpose", [transposes[0].output[0]], perm=first))
    node.input[0] = transposes[1].output[0]
    return [
        *transposes,
        *through_inverse_pair(g, node, lambda y: g.node("Transpose", [y], perm=last), lambda y: g.node("Transpose", [y], perm=first)),
    ]


def conv1d_as_conv2d(g: Graph, node: Any) -> list[Any] | None:
    """Conv over two axes, one of length 1, for Conv over one axis"""
    x = g.shape(node.input[0]) if node.op_type == "Conv" else None
    w = g.data(node.input[1]) if x is not None and len(x) == 3 else None
    attributes = attributes_of(node)
    if w is None or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        return None
    axis, pads = g.ints(2), attributes.get("pads", [0, 0])
    window = {
        "strides": [1, *attributes.get("strides", [1])], "dilations": [1, *attributes.get("dilations", [1])],
        "pads": [0, pads[0], 0, pads[1]], "group": attributes.get("group", 1), "kernel_shape": [1, w.shape[2]],
    }  # fmt: skip
    image = g.node("Unsqueeze", [node.input[0], axis])
    y = g.node("Conv", [image.output[0], g.constant(w[:, :, None], "filters"), *node.input[2:]], **window)
    return [image, y, g.node("Squeeze", [y.output[0], axis], node.output)]


def pads_as_node(g: Graph, node: Any) -> list[Any] | None:
    """Pad before Conv for its pads"""
    attributes = attributes_of(node)
    pads = [int(p) for p in attributes.get("pads", ())] if node.op_type == "Conv" else []
    if not any(pads) or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        return None
    half = len(pads) // 2
    padding = g.node("Pad", [node.input[0], g.ints(0, 0, *pads[:half], 0, 0, *pads[half:])])
    node.input[0] = padding.output[0]
    next(a for a in node.attribute if a.name == "pads").ints[:] = [0] * len(pads)
    return [padding, node]


def flatten_as_reshape(g: Graph, node: Any) -> list[Any] | None:
    """Reshape for Flatten"""
    shape = g.shape(node.output[0]) if node.op_type == "Flatten" else None
    return None if shape is None else [g.node("Reshape", [node.input[0], g.ints(shape[0], -1)], node.output)]


def reshape_as_flatten(g: Graph, node: Any) -> list[Any] | None:
    """Flatten for a Reshape to two axes"""
    if node.op_type != "Reshape":
        return None
    x, shape = g.shape(node.input[0]), g.shape(node.output[0])
    if x is None or shape is None or len(shape) != 2 or len(x) < 2 or x[0] != shape[0]:
        return None
    return [g.node("Flatten", [node.input[0]], node.output, axis=1)]


def relu_as_clip(g: Graph, node: Any) -> list[Any] | None:
    """Max with 0, or Clip from 0 on, for Relu"""
    if node.op_type != "Relu":
        return None
    zero = g.constant(np.zeros((), np.float32), "zero")
    return [g.node(g.source.choice(("Max", "Clip")), [node.input[0], zero], node.output)]


def pool_as_mean(g: Graph, node: Any) -> list[Any] | None:
    """ReduceMean for GlobalAveragePool"""
    x = g.shape(node.input[0]) if node.op_type == "GlobalAveragePool" else None
    if x is None:
        return None
    axes = list(range(2, len(x)))
    if g.version >= 18:  # axes are an operand
        return [g.node("ReduceMean", [node.input[0], g.ints(*axes)], node.output, keepdims=1)]
    return [g.node("ReduceMean", node.input[:1], node.output, axes=axes, keepdims=1)]


def duplicate(g: Graph, node: Any) -> list[Any] | None:
    """f(x) twice for its two readers"""
    readers = [n for n in g.model.graph.node if node.output and node.output[0] in n.input and n is not node]
    if len(readers) < 2 or node.op_type not in MOVABLE - {"Conv", "Gemm", "MatMul"}:
        return None
    copy = type(node)()
    copy.CopyFrom(node)
    copy.name, copy.output[0] = g.fresh(f"{node.name or node.op_type}_twin"), g.fresh(f"{node.output[0]}_twin")
    for n in readers[1:]:
        n.input[:] = [copy.output[0] if i == node.output[0] else i for i in n.input]
    return [node, copy]


# -- rewritings of the whole graph


def rename_values(g: Graph) -> int:
    """Other names for all values and nodes between inputs and outputs"""
    graph = g.model.graph
    port_names = {v.name for v in (*graph.input, *graph.output)} | {""}
    if any(a.HasField("g") or a.graphs for n in graph.node for a in n.attribute):
        return 0  # subgraphs read by name
    names = [n for n in {*(o for n in graph.node for o in n.output), *(t.name for t in graph.initializer)} if n not in port_names]
    numbers = list(range(len(names)))
    g.source.shuffle(numbers)
    fresh = {name: g.fresh(f"t{n}") for name, n in zip(sorted(names), numbers, strict=True)}
    for t in graph.initializer:
        t.name = fresh.get(t.name, t.name)
    for n in graph.node:
        n.input[:], n.output[:] = [fresh.get(i, i) for i in n.input], [fresh.get(o, o) for o in n.output]
        n.name = g.fresh("n")
    del graph.value_info[:]
    return len(names)


def permute_initializers(g: Graph) -> int:
    """Another order of the initializers"""
    tensors = list(g.model.graph.initializer)
    g.source.shuffle(tensors)
    del g.model.graph.initializer[:]
    g.model.graph.initializer.extend(tensors)
    return len(tensors)


def permute_nodes(g: Graph) -> int:
    """Another order of the nodes in which every value is defined before it is read"""
    graph = g.model.graph
    if any(a.HasField("g") or a.graphs for n in graph.node for a in n.attribute):
        return 0
    nodes = list(graph.node)
    producer = {o: n for n, node in enumerate(nodes) for o in node.output if o}
    missing = [{producer[i] for i in node.input if i in producer} for node in nodes]
    users: dict[int, list[int]] = {}
    for n, predecessors in enumerate(missing):
        for m in predecessors:
            users.setdefault(m, []).append(n)
    ready, order = [n for n, before in enumerate(missing) if not before], []
    while ready:
        n = ready.pop(g.source.randrange(len(ready)))
        order.append(nodes[n])
        for user in users.get(n, ()):
            missing[user].discard(n)
            if not missing[user]:
                ready.append(user)
    del graph.node[:]
    graph.node.extend(order)
    return len(order)


def constants_as_nodes(g: Graph) -> int:
    """Constant nodes for initializers"""
    graph = g.model.graph
    inputs = {i.name for i in graph.input} | {o.name for o in graph.output}
    converted = [t for t in graph.initializer if t.name not in inputs and g.draw()]
    remaining = [t for t in graph.initializer if all(t is not m for m in converted)]
    nodes = [g.node("Constant", [], [t.name], value=t) for t in converted]
    old = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(remaining)
    graph.node.extend([*nodes, *old])
    return len(converted)


NODE_REWRITES: dict[str, Rewrite] = {
    "lstm-as-steps": lstm_as_steps,
    "gemm-as-matmul": gemm_as_matmul,
    "matmul-as-gemm": matmul_as_gemm,
    "bias-as-add": bias_as_add,
    "norm-folded": norm_folded,
    "norm-as-scale": norm_as_scale,
    "conv1d-as-conv2d": conv1d_as_conv2d,
    "pads-as-node": pads_as_node,
    "flatten-as-reshape": flatten_as_reshape,
    "reshape-as-flatten": reshape_as_flatten,
    "relu-as-clip": relu_as_clip,
    "pool-as-mean": pool_as_mean,
    "channels-last": channels_last,
    "swap-operands": swap_operands,
    "duplicate": duplicate,
    "identity": identity_after,
    "transpose-pair": transpose_pair,
    "unsqueeze-pair": unsqueeze_pair,
    "reshape-pair": reshape_pair,
    "split-pair": split_pair,
}
GRAPH_REWRITES: dict[str, Callable[[Graph], int]] = {
    "constants-as-nodes": constants_as_nodes,
    "permute-initializers": permute_initializers,
    "permute-nodes": permute_nodes,
    "rename-values": rename_values,
}
PERTURBATIONS = (*NODE_REWRITES, *GRAPH_REWRITES)


def perturbed(model: Any, seed: int, names: Sequence[str] = PERTURBATIONS, share: float = 0.5) -> tuple[Any, dict[str, int]]:
    """Return an equivalent ONNX model and how often each perturbation was applied, to a `share` of the places.

    Raises:
        UsageError: F203 for a perturbation that does not exist, or a model of an operator set before 13.
    """
    for name in names:
        if name not in PERTURBATIONS:
            raise UsageError("F203", f'there is no perturbation called "{name}"', help=f"known: {', '.join(PERTURBATIONS)}")
    copy = type(model)()
    copy.CopyFrom(model)
    g = Graph(copy, random.Random(seed), share, known_shapes(copy))
    if g.version < OLDEST:
        raise UsageError("F203", f"a model must be of operator set {OLDEST} or later to be perturbed, not {g.version}")
    g.constants = {t.name: t for t in copy.graph.initializer}
    graph = copy.graph
    g.reserved_names = {n for node in graph.node for n in (node.name, *node.input, *node.output)} | set(g.constants)
    g.reserved_names |= {v.name for v in (*graph.input, *graph.output)}
    for name in names:
        count = _apply_to_nodes(g, NODE_REWRITES[name]) if name in NODE_REWRITES else GRAPH_REWRITES[name](g)
        g.applied[name] = count
    return copy, {name: count for name, count in g.applied.items() if count}


def _apply_to_nodes(g: Graph, rewrite: Rewrite) -> int:
    """Apply a rewriting at randomly chosen nodes; return how often."""
    graph, rewritten, count = g.model.graph, [], 0
    for node in list(graph.node):
        replacement = rewrite(g, node) if g.draw() else None
        count += replacement is not None
        rewritten.extend([node] if replacement is None else replacement)
    nodes = []
    for node in rewritten:
        copy = type(node)()
        copy.CopyFrom(node)
        nodes.append(copy)
    del graph.node[:]
    graph.node.extend(nodes)
    return count


def known_shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of values by ONNX's shape inference, without the data of large weights."""
    from onnx import helper, shape_inference

    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    large = [t for t in graph.initializer if int(np.prod(t.dims)) > 1024]
    small = [t for t in graph.initializer if int(np.prod(t.dims)) <= 1024]
    input_names = {i.name for i in graph.input}
    del graph.initializer[:]
    graph.initializer.extend(small)
    graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in large if t.name not in input_names)
    inferred = shape_inference.infer_shapes(copy, data_prop=True).graph
    shapes: dict[str, tuple[int, ...]] = {}
    for v in (*inferred.value_info, *inferred.input, *inferred.output):
        dims = v.type.tensor_type.shape.dim
        if v.type.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes[v.name] = tuple(int(d.dim_value) for d in dims)
    return shapes
