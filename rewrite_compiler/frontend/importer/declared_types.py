"""Types of values: declared by the caller or the model, or inferred for opaque operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...ir.types import TensorType
from ...ops import OPS
from ...ops.elementwise import broadcast
from ..classical.operators import DOMAIN
from ..classical.types import classical_types
from ..file.tensors import CODES, DTYPES, dtype_name
from ..graph.opset_upgrade import schema_of
from ..site.context import Context, UnknownShape
from ..site.site import Site

Declared = tuple[str, list[int | str | None]]  # element type; extents: a number, a symbol, or unknown
BY_DATA = {"Compress", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"}  # operators whose results have as many elements as data say
SMALL = 1024  # known operands up to this many elements take part in inference


def declared_type(info: Any, subject: str) -> Declared | None:
    """Return element type and extents (numbers, symbols, None for unknown) of a declared tensor; None without a shape or a tensor.

    Raises:
        InputError: an extent is negative, or ONNX does not define the element type.
    """
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return None
    tensor = info.type.tensor_type
    dtype = dtype_name(tensor.elem_type, subject)
    if not tensor.HasField("shape"):
        return None
    return dtype, [_extent(d, subject) for d in tensor.shape.dim]


def _extent(d: Any, subject: str) -> int | str | None:
    if d.HasField("dim_value"):
        if d.dim_value < 0:
            raise InputError("F132", f"Dimensions of {subject} must be zero or positive, not {d.dim_value}")
        return int(d.dim_value)
    return str(d.dim_param) or None


def type_proto(t: TensorType) -> Any:
    """Return a tensor type as ONNX's TypeProto."""
    from onnx import helper

    return helper.make_tensor_type_proto(CODES[t.dtype], list(t.shape))


def result_types(site: Site, node: Any, reads: Mapping[str, int], declared: Mapping[str, Any], reason: str = "") -> list[TensorType]:
    """Return the types of the results of an opaque node, from shape inference, our rules, or the model's declarations.

    `reason` says why the node is opaque.

    Raises:
        UnknownShape: a result's shape is not known, or it is no tensor.
        InputError: the node does not fit its operands.
    """
    rule = BY_RULE.get(site.domain)
    types = rule(site) if rule is not None else _by_schema(site, node, reads)
    if site.op == "Loop" and site.domain == "" and types:
        types = [t or s for t, s in zip(types, _loop_states(site, node), strict=False)]
    names = [o for o in node.output if o]
    types_or_none = [t or literal_type(declared.get(name)) for name, t in zip(names, types or [None] * len(names), strict=False)]
    for name, t in zip(names, [*types_or_none, *[None] * len(names)], strict=False):
        if t is None:
            raise UnknownShape(
                "F160",
                f'the shape of "{name}", which {site.label} gives, is not known{_because(site, reason)}',
                place=site.place,
                help=_remedy(site, reason),
            )
    return [t for t in types_or_none if t is not None]


def _because(site: Site, reason: str) -> str:
    """Return what else is said of a result without a shape: what depends on data."""
    if site.domain == "" and site.op in BY_DATA:
        return ": it depends on data"
    return f": {reason}" if "data" in reason or "run time" in reason else ""


def _remedy(site: Site, reason: str) -> str:
    """Return how a shape becomes known: no dimension of an input fixes one that depends on data."""
    if not _because(site, reason):
        return "declare it in the model (value_info), or fix the dimensions it depends on with --shape"
    declared = "declare it in the model (value_info) if it is always the same"
    return f"{declared}, or make what ends the loop a constant of the model (initializer)" if site.op == "Loop" else declared


def _loop_states(site: Site, node: Any) -> list[TensorType | None]:
    """Return the types of a Loop's results: a state that its body declares as it comes in keeps its type in every step."""
    graph, operands = site.attributes["body"], site.inputs[2:]
    declared = [literal_type(info) for info in graph.output[1:]]
    states = [t if v is not None and t == site.type(v) else None for t, v in zip(declared, operands, strict=False)]
    return [t for t, name in zip([*states, *[None] * len(declared)], node.output, strict=False) if name]


def literal_type(info: Any) -> TensorType | None:
    """Return the type that a declaration states; None where there is none, or an extent is open."""
    declared = declared_type(info, "a declared value") if info is not None else None
    if declared is None or not all(isinstance(n, int) for n in declared[1]):
        return None
    return TensorType(tuple(n for n in declared[1] if isinstance(n, int)), declared[0])


def _by_schema(site: Site, node: Any, reads: Mapping[str, int]) -> list[TensorType | None] | None:
    from onnx import shape_inference

    schema = schema_of(site.op, site.domain, site.version)
    if schema is None:
        return None
    context = site.context
    types = {name: type_proto(context.builder.types[v]) for name, v in reads.items()}
    try:
        outputs = shape_inference.infer_node_outputs(
            schema, node, types, small_constants(context, reads), opset_imports=opset_imports(context)
        )
    except Exception as error:  # the inference raises InferenceError, RuntimeError and ValidationError
        reason = str(error).splitlines()[0].removeprefix("[ShapeInferenceError] ")
        raise InputError("F131", f"{site.op} does not fit its operands: {reason}", place=site.place) from None
    return [tensor_type(outputs.get(o), o) for o in node.output if o]


def opset_imports(context: Context) -> list[Any]:
    """Return the operator sets of an import as ONNX's messages."""
    from onnx import helper

    return [helper.make_opsetid(domain, version) for domain, version in context.imports.items()]


def small_constants(context: Context, reads: Mapping[str, int]) -> dict[str, Any]:
    """Return the known operands that take part in inference, by name, as ONNX's tensors."""
    from onnx import numpy_helper

    constants = {name: context.data(v) for name, v in reads.items()}
    return {name: numpy_helper.from_array(x) for name, x in constants.items() if x is not None and x.size <= SMALL}


def tensor_type(proto: Any, name: str) -> TensorType | None:
    """Return the type that inference gives a value; None where it is not all known.

    Raises:
        UnknownShape: the value is no tensor.
    """
    kind = proto.WhichOneof("value") if proto is not None else None
    if kind is not None and kind != "tensor_type":
        raise UnknownShape("F133", f'"{name}" must be a tensor, not {kind.removesuffix("_type")}')
    if kind is None or not proto.tensor_type.HasField("shape"):
        return None
    extents = [int(d.dim_value) for d in proto.tensor_type.shape.dim if d.HasField("dim_value")]
    if len(extents) != len(proto.tensor_type.shape.dim):
        return None
    return TensorType(tuple(extents), DTYPES[proto.tensor_type.elem_type])


def _like(n: int) -> Callable[[Site], TensorType]:
    return lambda site: site.type(site.value(n))


def _broadcast(a: int, b: int) -> Callable[[Site], TensorType]:
    def rule(site: Site) -> TensorType:
        return TensorType(broadcast(site.shape(a), site.shape(b)), site.type(site.value(a)).dtype)

    return rule


def _scaled(place: int, default: str) -> Callable[[Site], TensorType]:
    """Return the rule of a result with the shape of the first operand and the element type of another, if that is there."""

    def rule(site: Site) -> TensorType:
        return TensorType(site.shape(0), site.type(site.value(place)).dtype if site.has(place) else default)

    return rule


def _global_pool(site: Site) -> TensorType:
    shape = site.shape(0)
    ones = (1,) * (len(shape) - 2)
    extents = (shape[0], *ones, shape[-1]) if site.get("channels_last", 0) else (*shape[:2], *ones)
    return TensorType(extents, site.type(site.value(0)).dtype)


def _pool(site: Site) -> TensorType:
    from ...ops.conv import window_extents
    from ..normalise.conv import window

    if site.get("channels_last", 0):
        raise InputError("F160", f"{site.label} with channels last has no shape rule", place=site.place)
    kernel = tuple(site.get("kernel_shape", ()))
    w = window(site, kernel)
    extents = window_extents(site.shape(0)[2:], kernel, w["strides"], w["pads"], w["dilations"], ceil=bool(site.get("ceil_mode", 0)))
    return TensorType((*site.shape(0)[:2], *extents), site.type(site.value(0)).dtype)


def _concatenation(site: Site) -> TensorType:
    """Return the type of a QLinearConcat, whose operands are scale and zero point, then each tensor with its own."""
    parts = [site.type(v).shape for v in site.inputs[2::3] if v is not None]
    axis = site.axis(0, len(parts[0]))
    shape = OPS["concat"].shapes(parts, {"axis": axis})[0]
    return TensorType(shape, site.type(site.value(1)).dtype)


# operators of com.microsoft, which onnx cannot infer → the type of their first result
CONTRIB: dict[str, Callable[[Site], TensorType]] = {
    "QuantizeLinear": _scaled(2, "uint8"),
    "DequantizeLinear": _scaled(1, "float32"),
    "QLinearAdd": _broadcast(0, 3),
    "QLinearMul": _broadcast(0, 3),
    "QLinearConcat": _concatenation,
    "QLinearAveragePool": _pool,
    "QLinearGlobalAveragePool": _global_pool,
    "QLinearLeakyRelu": _like(0),
    "QLinearSigmoid": _like(0),
    "QLinearSoftmax": _like(0),
    "Gelu": _like(0),
    "FastGelu": _like(0),
    "BiasGelu": _like(0),
    "QuickGelu": _like(0),
    "SkipLayerNormalization": _like(0),
    "SimplifiedLayerNormalization": _like(0),
}


def _contrib(site: Site) -> Sequence[TensorType | None] | None:
    rule = CONTRIB.get(site.op)
    return None if rule is None else [rule(site)]


# domains whose operators onnx does not infer
BY_RULE: dict[str, Callable[[Site], Sequence[TensorType | None] | None]] = {"com.microsoft": _contrib, DOMAIN: classical_types}
