"""Sign conversion: products of 8-bit codes with operands of one sign, which onnxruntime computes exactly on every processor.

Where a processor has no VNNI, onnxruntime adds products of unsigned and signed codes in pairs of 16 bits, which saturate. Its
products of unsigned codes are exact everywhere; int8 codes plus 128 are uint8 codes whose zero point is 128 more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

CONTRIB = "com.microsoft"
NAME_PARTS = (b"Integer", b"QLinear", b"QGemm", b"DynamicQuantize", b"QAttention")  # one is in the name of every product of codes
QDQ_OPERATORS = ("QuantizeLinear", "DequantizeLinear")  # onnxruntime fuses what stands between them
SHIFT = 128  # from int8 to uint8
SMALL_WEIGHT = 64  # two products of 255 and such a weight stay within 16 bits


@dataclass(frozen=True)
class Codes:
    """An operand of codes: its position, and those of its zero point and of its scale, if the operator has one."""

    value: int
    zero: int
    scale: int | None = None


@dataclass(frozen=True)
class Product:
    """An operator that multiplies codes: the operands to convert to unsigned, only when the operand `beside` is unsigned, if given."""

    signed_operands: tuple[Codes, ...]
    unsigned_operand: Codes | None = None


SUMS = Product((Codes(0, 2), Codes(1, 3)))
CODES_TO_CODES = Product((Codes(3, 5, 4),), unsigned_operand=Codes(0, 2))
PRODUCTS = {
    ("", "MatMulInteger"): SUMS,
    ("", "ConvInteger"): SUMS,
    ("", "QLinearConv"): CODES_TO_CODES,
    ("", "QLinearMatMul"): CODES_TO_CODES,
    (CONTRIB, "QLinearConv"): CODES_TO_CODES,
    (CONTRIB, "QGemm"): CODES_TO_CODES,
    (CONTRIB, "MatMulIntegerToFloat"): Product((Codes(0, 4, 2), Codes(1, 5, 3))),
    (CONTRIB, "DynamicQuantizeMatMul"): Product((Codes(1, 3, 2),)),
    (CONTRIB, "DynamicQuantizeLSTM"): Product((Codes(1, 9, 8), Codes(2, 11, 10))),
    (CONTRIB, "QAttention"): Product((Codes(1, 7, 4),), unsigned_operand=Codes(0, 6)),
}


def multiplies_codes(model: bytes) -> bool:
    """Tell whether a model may have an operator that multiplies codes, by searching its bytes for their names."""
    return any(name in model for name in NAME_PARTS)


def with_unsigned_codes(model: bytes) -> bytes:
    """Return an equivalent model whose products of codes have operands of one sign; bytes that are no model are returned as they are."""
    import onnx
    import onnx.inliner

    try:
        proto = onnx.ModelProto.FromString(model)
    except Exception:  # protobuf's DecodeError
        return model
    if not products(proto):
        return model
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    kinds, names = _kinds(proto), _names(model)
    for graph in _graphs(proto.graph):
        _Rewriting(graph, kinds, names).run()
    return bytes(proto.SerializeToString())


def products(proto: Any) -> list[Any]:
    """Return the nodes of a model that multiply codes, those of its functions and subgraphs included."""
    return [n for n in _nodes(proto) if (_domain(n), n.op_type) in PRODUCTS]


def coded_operators(model: bytes) -> list[str]:
    """Return the operators of a model that compute on codes in onnxruntime: products, else what it fuses to products."""
    if not multiplies_codes(model) and QDQ_OPERATORS[0].encode() not in model and QDQ_OPERATORS[1].encode() not in model:
        return []
    import onnx

    proto = onnx.ModelProto.FromString(model)
    return sorted({n.op_type for n in products(proto)} or {n.op_type for n in _nodes(proto) if n.op_type in QDQ_OPERATORS})


def has_wide_weights(model: bytes) -> bool:
    """Tell whether two products of uint8 codes and int8 weights of a model may exceed 16 bits: unless all weights are known and small."""
    import numpy as np
    import onnx

    weights = [t for g in _graphs(onnx.ModelProto.FromString(model).graph) for t in g.initializer if len(t.dims) > 1]
    codes = [t for t in weights if t.data_type in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)]
    signed = [t for t in codes if t.data_type == onnx.TensorProto.INT8]
    if not codes or any(t.data_location == onnx.TensorProto.EXTERNAL for t in signed):
        return True
    return any(np.abs(onnx.numpy_helper.to_array(t).astype(np.int16)).max(initial=0) > SMALL_WEIGHT for t in signed)


def largest_pair() -> tuple[bytes, dict[str, Any], int]:
    """Return a model that adds the two largest products of uint8 and int8 codes, its operands, and the sum, which exceeds 16 bits."""
    import numpy as np
    import onnx

    text = """<ir_version: 8, opset_import: ["": 13]>
              pair (uint8[1, 2] a, int8[2, 1] b) => (int32[1, 1] sum) { sum = MatMulInteger(a, b) }"""
    most = {"a": np.full((1, 2), 255, np.uint8), "b": np.full((2, 1), 127, np.int8)}
    return onnx.parser.parse_model(text).SerializeToString(), most, 2 * 255 * 127


def _nodes(proto: Any) -> list[Any]:
    return [n for body in (proto.graph, *proto.functions) for g in _graphs(body) for n in g.node]


def _domain(node: Any) -> str:
    return "" if node.domain == "ai.onnx" else str(node.domain)


def _graphs(body: Any) -> Iterator[Any]:
    """Yield a graph, or the body of a function, and all its subgraphs."""
    yield body
    for node in body.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _kinds(proto: Any) -> dict[str, int]:
    """Return the element types of values by name; 0 for a name with several."""
    import onnx

    with suppress(Exception):  # whatever it finds wrong, onnxruntime says in its own words
        proto = onnx.shape_inference.infer_shapes(proto)
    kinds: dict[str, int] = {}
    for graph in _graphs(proto.graph):
        infos = [(i.name, i.type.tensor_type.elem_type) for i in (*graph.input, *graph.value_info, *graph.output)]
        for name, kind in (*infos, *((t.name, t.data_type) for t in graph.initializer)):
            kinds[name] = kind if kinds.get(name, kind) == kind else 0
    return kinds


def _names(model: bytes) -> Iterator[str]:
    """Yield fresh names, which no value of a model has."""
    prefix = "codes"
    while prefix.encode() in model:
        prefix += "_"
    return (f"{prefix}{n}" for n in itertools.count())


@dataclass
class _Rewriting:
    """One graph whose products of codes are rewritten; each value is converted once."""

    graph: Any
    kinds: Mapping[str, int]
    names: Iterator[str]
    nodes: list[Any] = field(default_factory=list)
    results: dict[tuple[object, ...], str] = field(default_factory=dict)

    def run(self) -> None:
        """Rewrite all nodes in place."""
        for node in self.graph.node:
            product = PRODUCTS.get((_domain(node), node.op_type))
            if product is not None and (product.unsigned_operand is None or self.kind(node, product.unsigned_operand) == "uint8"):
                for codes in product.signed_operands:
                    if self.kind(node, codes) == "int8":
                        self.change(node, codes)
            self.nodes.append(node)
        rewritten = list(self.nodes)
        del self.graph.node[:]
        self.graph.node.extend(rewritten)

    def kind(self, node: Any, codes: Codes) -> str:
        """Return the element type of an operand, which is that of its zero point."""
        import onnx

        names = [node.input[n] for n in (codes.value, codes.zero) if n < len(node.input)]
        kind = next((k for name in names if (k := self.kinds.get(name, 0))), 0)
        return {onnx.TensorProto.INT8: "int8", onnx.TensorProto.UINT8: "uint8"}.get(kind, "")

    def change(self, node: Any, codes: Codes) -> None:
        """Convert an int8 operand and its zero point to unsigned codes."""
        node.input.extend([""] * (codes.zero + 1 - len(node.input)))
        value, zero = node.input[codes.value], node.input[codes.zero]
        node.input[codes.value] = self.shifted(node.domain, value)
        node.input[codes.zero] = self.shifted(node.domain, zero) if zero else self.shift(node, codes)

    def shift(self, node: Any, codes: Codes) -> str:
        """Return zero points for an operand that has none: one, or one for each of its scales."""
        if codes.scale is None:
            return self.number("uint8", SHIFT)
        scale = node.input[codes.scale]
        none = self.step("", "Sub", scale, scale)
        return self.step(node.domain, "QuantizeLinear", none, self.number("float32", 1), self.number("uint8", SHIFT))

    def shifted(self, domain: str, name: str) -> str:
        """Return int8 codes plus 128, by way of real numbers of scale 1, which hold them exactly."""
        real = self.step(domain, "DequantizeLinear", name, self.number("float32", 1), self.number("int8", 0))
        return self.step(domain, "QuantizeLinear", real, self.number("float32", 1), self.number("uint8", SHIFT))

    def number(self, kind: str, value: int) -> str:
        """Return the name of a scalar."""
        import numpy as np
        from onnx import numpy_helper

        return self.node(("", "Constant", kind, value), value=numpy_helper.from_array(np.array(value, kind)))

    def step(self, domain: str, op: str, *inputs: str) -> str:
        """Return the name of the result of an operator."""
        return self.node((domain, op, *inputs), inputs)

    def node(self, key: tuple[str, str, *tuple[object, ...]], inputs: Sequence[str] = (), **attributes: Any) -> str:
        """Return the name of the result of a node, added on first use."""
        from onnx import helper

        if key not in self.results:
            self.results[key] = next(self.names)
            self.nodes.append(helper.make_node(key[1], inputs, [self.results[key]], domain=key[0], **attributes))
        return self.results[key]
