"""Image classifiers: ResNet, MobileNet-V2, EfficientNet without squeeze-excitation, ResMLP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .graph import Graph, Value

if TYPE_CHECKING:
    from onnx import ModelProto

# expansion, channels, blocks, stride; MobileNet-V2 (Sandler et al. 2018, table 2) with the strides of 32×32 images
MOBILENET = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
# expansion, channels, blocks, stride, kernel; EfficientNet-B0 (Tan & Le 2019, table 1)
EFFICIENTNET = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
)  # fmt: skip


def resnet20() -> ModelProto:
    """ResNet-20 for 32×32 images, 1×1 convolutions as shortcuts (He et al. 2016, section 4.2)."""
    g = Graph("resnet20")
    x = _conv_norm_relu(g, g.input("image", 1, 3, 32, 32), 16, 3)
    for stage, width in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if stage and not block else 1
            inner = g.batch_norm(g.conv(_conv_norm_relu(g, x, width, 3, stride), width, 3))
            shortcut = x if x.shape == inner.shape else g.batch_norm(g.conv(x, width, 1, stride))
            x = g.unary("Relu", g.binary("Add", inner, shortcut))
    return g.finish(g.gemm(g.global_mean(x), 10))


def resnet50() -> ModelProto:
    """ResNet-50 for 224×224 images: bottlenecks of 3, 4, 6 and 3 blocks (He et al. 2016, table 1)."""
    g = Graph("resnet50")
    x = _conv_norm_relu(g, g.input("image", 1, 3, 224, 224), 64, 7, 2)
    x = g.node("MaxPool", [x], [1, 64, 56, 56], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            inner = _conv_norm_relu(g, _conv_norm_relu(g, x, width, 1), width, 3, stride)
            inner = g.batch_norm(g.conv(inner, 4 * width, 1))
            shortcut = x if x.shape == inner.shape else g.batch_norm(g.conv(x, 4 * width, 1, stride))
            x = g.unary("Relu", g.binary("Add", inner, shortcut))
    return g.finish(g.gemm(g.global_mean(x), 1000))


def mobilenet_v2() -> ModelProto:
    """MobileNet-V2 for 32×32 images."""
    g = Graph("mobilenet_v2")
    x = _clipped(g, g.conv(g.input("image", 1, 3, 32, 32), 32, 3))
    for expansion, channels, blocks, first in MOBILENET:
        for block in range(blocks):
            inner = x if expansion == 1 else _clipped(g, g.conv(x, expansion * x.shape[1], 1))
            inner = _clipped(g, g.conv(inner, inner.shape[1], 3, 1 if block else first, inner.shape[1]))
            inner = g.batch_norm(g.conv(inner, channels, 1))
            x = g.binary("Add", x, inner) if x.shape == inner.shape else inner
    return g.finish(g.gemm(g.global_mean(_clipped(g, g.conv(x, 1280, 1))), 10))


def efficientnet() -> ModelProto:
    """EfficientNet-B0 without squeeze-excitation for 224×224 images, classified by a fully connected layer."""
    g = Graph("efficientnet")
    x = _swish(g, g.batch_norm(g.conv(g.input("image", 1, 3, 224, 224), 32, 3, 2)))
    for expansion, channels, blocks, first, kernel in EFFICIENTNET:
        for block in range(blocks):
            inner = x if expansion == 1 else _swish(g, g.batch_norm(g.conv(x, expansion * x.shape[1], 1)))
            inner = _swish(g, g.batch_norm(g.conv(inner, inner.shape[1], kernel, 1 if block else first, inner.shape[1])))
            inner = g.batch_norm(g.conv(inner, channels, 1))
            x = g.binary("Add", x, inner) if x.shape == inner.shape else inner
    return g.finish(g.gemm(g.global_mean(_swish(g, g.batch_norm(g.conv(x, 1280, 1)))), 1000))


def resmlp() -> ModelProto:
    """ResMLP of 12 layers on 4 patches of 16×16 pixels (Touvron et al. 2021): patches mixed by a conv1d, channels by two layers."""
    g = Graph("resmlp")
    x = g.reshape(g.input("image", 1, 3, 32, 32), 1, 3, 2, 16, 2, 16)
    x = g.reshape(g.transpose(x, 0, 2, 4, 3, 5, 1), 1, 4, 768)
    x = g.linear(x, 384)
    for _ in range(12):
        x = g.binary("Add", x, _scaled(g, g.conv(_scaled(g, x), 4, 1, bias=True)))
        x = g.binary("Add", x, _scaled(g, g.linear(_gelu(g, g.linear(_scaled(g, x), 1536)), 384)))
    mean = g.node("ReduceMean", [_scaled(g, x)], [1, 384], axes=[1], keepdims=0)
    return g.finish(g.gemm(mean, 10))


def _conv_norm_relu(g: Graph, x: Value, channels: int, kernel: int, stride: int = 1) -> Value:
    return g.unary("Relu", g.batch_norm(g.conv(x, channels, kernel, stride)))


def _clipped(g: Graph, x: Value) -> Value:
    low, high = (g.constant(np.array(v, np.float32)) for v in (0, 6))
    return g.node("Clip", [g.batch_norm(x), low, high], x.shape)


def _swish(g: Graph, x: Value) -> Value:
    return g.binary("Mul", x, g.unary("Sigmoid", x))


def _scaled(g: Graph, x: Value) -> Value:
    """Add an affine map of the last axis, which ResMLP has in place of normalisation."""
    k = x.shape[-1]
    return g.binary("Add", g.binary("Mul", x, g.weight(k, summed=4)), g.weight(k, summed=4))


def _gelu(g: Graph, x: Value) -> Value:
    """Add x · (1 + erf(x / √2)) / 2 in single operators."""
    root, unit, half = (g.constant(np.array(v, np.float32)) for v in (2**0.5, 1, 0.5))
    return g.binary("Mul", g.binary("Mul", x, g.binary("Add", g.unary("Erf", g.binary("Div", x, root)), unit)), half)
