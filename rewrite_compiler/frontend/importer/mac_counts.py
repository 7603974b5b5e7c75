"""Multiply-accumulate counts of opaque operators, from the shapes of their operands and results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...ir.types import TensorType
from ..graph.attributes import subgraphs
from ..normalise.einsum import parse_equation
from ..site.context import Unsupported
from ..site.site import Site

CONTRIB = "com.microsoft"
Shape = tuple[int, ...]
MacCounter = Callable[[Site, Shape], int]  # of a node and the shape of its first result


def macs_of(site: Site, node: Any, results: Sequence[TensorType]) -> int | None:
    """Return the multiply-accumulates of a node, None where no formula is known."""
    if subgraphs(node):
        return 0 if multiplies_nothing(node) else None
    counted = MAC_COUNTERS.get((site.domain, site.op))
    if counted is None:
        return 0 if _is_mac_free(site.domain, site.op) else None
    try:
        return counted(site, results[0].shape)
    except (Unsupported, IndexError, ValueError):
        return None


def multiplies_nothing(node: Any) -> bool:
    """Tell whether a node inside a subgraph needs no multiply-accumulates, at any depth."""
    domain, inner = "" if node.domain == "ai.onnx" else str(node.domain), [n for graph in subgraphs(node) for n in graph.node]
    return (
        all(map(multiplies_nothing, inner)) if inner else (domain, node.op_type) not in MAC_COUNTERS and _is_mac_free(domain, node.op_type)
    )


def _is_mac_free(domain: str, op: str) -> bool:
    """Tell whether an operator is elementwise or only moves or selects elements."""
    return op in MAC_FREE.get(domain, ()) or (not domain and op not in UNCOUNTED)


def _size(shape: Sequence[int]) -> int:
    return math.prod(shape)


def _conv_macs(weight: int, _: int, site: Site, y: Shape) -> int:
    """Count a convolution: every result element reads one filter."""
    return _size(y) * _size(site.shape(weight)[1:])


def _transposed_conv_macs(site: Site, _: Shape) -> int:
    """Count a transposed convolution: every input element meets one filter of each result channel of its group."""
    return _size(site.shape(0)) * _size(site.shape(1)[1:])


def _matmul_macs(flag: str, site: Site, y: Shape) -> int:
    """Count a matrix product: every result reads one row; `flag` is the attribute that transposes the first operand."""
    if any(site.get(name, 0) for name in ("transBatchA", "transBatchB")):
        raise Unsupported("its batches are turned")
    is_transposed = bool(flag) and bool(site.get(flag, 0))
    return _size(y) * site.shape(0)[-2 if is_transposed else -1]


def _einsum_macs(site: Site, _: Shape) -> int:
    """Count an Einsum: one product fewer than operands for each assignment of all labels."""
    shapes = [site.shape(n) for n in range(len(site.inputs))]
    terms = parse_equation(str(site.get("equation", "")), [len(s) for s in shapes]).operands
    extents: dict[str, int] = {}
    for label, extent in (pair for axes, shape in zip(terms, shapes, strict=True) for pair in zip(axes, shape, strict=True)):
        extents[label] = max(extent, extents.get(label, 1))
    return _size(list(extents.values())) * (len(shapes) - 1)


def _recurrent_macs(site: Site, _: Shape) -> int:
    """Count a recurrent layer: both matrices of each direction at every step of every sample, in whichever order these are."""
    return _size(site.shape(0)[:2]) * (_size(site.shape(1)) + _size(site.shape(2)))


def _attention_macs(keys: int, past: int, site: Site, y: Shape) -> int:
    """Count the products of queries with keys and of attention weights with values: each reads every position."""
    if len(site.shape(0)) == 5 or not site.has(keys):
        raise Unsupported("its operands are packed")
    positions = site.shape(keys)[-2] + (site.shape(past)[-2] if site.has(past) else 0)
    return positions * (_size(site.shape(0)) + _size(y))


def _projected_attention_macs(past: int, site: Site, y: Shape) -> int:
    """Count an attention that projects to queries, keys and values by one matrix."""
    batch, length, _ = site.shape(0)
    columns = site.shape(1)[1]
    queries = int((list(site.get("qkv_hidden_sizes", ())) or [columns // 3])[0])
    positions = length + (site.shape(past)[-2] if site.has(past) else 0)
    return batch * length * _size(site.shape(1)) + positions * (batch * length * queries + _size(y))


def _blocked_matmul_macs(site: Site, y: Shape) -> int:
    """Count a product with blockwise quantised weights, whose inner extent is the attribute K."""
    return _size(y) * int(site.get("K", 0))


def _linear_model_macs(name: str, site: Site, _: Shape) -> int:
    """Count the products with coefficients stored in an attribute, for each sample."""
    samples = site.shape(0)[0] if site.rank(0) > 1 else 1
    return samples * len(site.get(name, ()))


CONV, MATMUL = partial(_conv_macs, 1, 0), partial(_matmul_macs, "")
MAC_COUNTERS: Mapping[tuple[str, str], MacCounter] = {
    **{("", op): CONV for op in ("Conv", "ConvInteger", "DeformConv")},
    ("", "QLinearConv"): partial(_conv_macs, 3, 0),
    ("", "ConvTranspose"): _transposed_conv_macs,
    **{("", op): MATMUL for op in ("MatMul", "MatMulInteger", "QLinearMatMul")},
    ("", "Gemm"): partial(_matmul_macs, "transA"),
    ("", "Einsum"): _einsum_macs,
    **{("", op): _recurrent_macs for op in ("LSTM", "GRU", "RNN")},
    ("", "Attention"): partial(_attention_macs, 1, 4),
    **{(CONTRIB, op): CONV for op in ("FusedConv", "NhwcFusedConv")},
    (CONTRIB, "QLinearConv"): partial(_conv_macs, 3, 0),
    (CONTRIB, "ConvTransposeWithDynamicPads"): _transposed_conv_macs,
    **{(CONTRIB, op): partial(_matmul_macs, "transA") for op in ("FusedMatMul", "TransposeMatMul", "FusedGemm", "QGemm")},
    **{(CONTRIB, op): MATMUL for op in ("GemmFastGelu", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulInteger16")},
    **{(CONTRIB, op): _blocked_matmul_macs for op in ("MatMulNBits", "MatMulBnb4")},
    (CONTRIB, "DynamicQuantizeLSTM"): _recurrent_macs,
    (CONTRIB, "MultiHeadAttention"): partial(_attention_macs, 1, 6),
    (CONTRIB, "Attention"): partial(_projected_attention_macs, 4),
    (CONTRIB, "QAttention"): partial(_projected_attention_macs, 8),
    **{("ai.onnx.ml", op): partial(_linear_model_macs, "coefficients") for op in ("LinearClassifier", "LinearRegressor")},
}  # fmt: skip
# of plain ONNX: transforms, determinants, and layers that only the host knows
UNCOUNTED = frozenset({"DFT", "STFT", "Det", "CausalConvWithState", "LinearAttention"})
# of other domains: functions of elements, normalisations, moves, choices
MAC_FREE: Mapping[str, frozenset[str]] = {
    CONTRIB: frozenset({
        "BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "BitmaskBiasDropout", "BitmaskDropout", "CropAndResize",
        "DequantizeLinear", "EmbedLayerNormalization", "ExpandDims", "FastGelu", "GatherBlockQuantized", "GatherND", "Gelu", "GridSample",
        "GroupNorm", "IsAllFinite", "MaxpoolWithMask", "NGramRepeatBlock", "NhwcMaxPool", "Pad", "QEmbedLayerNormalization", "QLinearAdd",
        "QLinearAveragePool", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearReduceMean",
        "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QuantizeLinear", "QuickGelu", "Range", "RemovePadding", "RestorePadding",
        "RotaryEmbedding", "SimplifiedLayerNormalization", "SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
        "Trilu", "UnfoldTensor", "Unique",
    }),
    "ai.onnx.ml": frozenset({
        "ArrayFeatureExtractor", "Binarizer", "CastMap", "CategoryMapper", "DictVectorizer", "FeatureVectorizer", "Imputer", "LabelEncoder",
        "Normalizer", "OneHotEncoder", "Scaler", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", "ZipMap",
    }),
}  # fmt: skip
