"""Layers of a small network: initial parameters, forward pass with its derivative, and ONNX spelling of each.

`forward` returns the output and a function from the gradient at the output to the gradients at the input and at the layer's
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .data import Floats

Params = dict[str, Floats]
Backward = Callable[[Floats], tuple[Floats, Params]]
Attributes = Mapping[str, int | float | list[int]]

EPSILON = 1e-5


class Layer(Protocol):
    """One layer; `inputs` names its parameters in the order of the ONNX operator's inputs."""

    @property
    def op(self) -> str:
        """Name the ONNX operator."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Name the parameters."""

    @property
    def attributes(self) -> Attributes:
        """Give the ONNX operator's attributes."""

    def start(self, rng: np.random.Generator) -> Params:
        """Draw the initial parameters."""

    def forward(self, params: Params, x: Floats) -> tuple[Floats, Backward]:
        """Compute the output and its derivative."""


def he(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw weights with variance 2 / fan-in (He et al. 2015)."""
    deviation = math.sqrt(2.0 / math.prod(shape[1:]))
    return rng.normal(scale=deviation, size=shape).astype(np.float32)


@dataclass(frozen=True)
class Linear:
    """x·wᵀ + b."""

    features: int
    outputs: int
    op: str = "Gemm"
    inputs: tuple[str, ...] = ("weight", "bias")
    attributes: Attributes = field(default_factory=lambda: {"transB": 1})

    def start(self, rng: np.random.Generator) -> Params:
        """Draw weights; biases are zero."""
        return {"weight": he(rng, (self.outputs, self.features)), "bias": np.zeros(self.outputs, np.float32)}

    def forward(self, params: Params, x: Floats) -> tuple[Floats, Backward]:
        """Multiply and add the bias."""
        w = params["weight"]
        return x @ w.T + params["bias"], lambda g: (g @ w, {"weight": g.T @ x, "bias": g.sum(0)})


@dataclass(frozen=True)
class Conv:
    """A 3×3 convolution with stride 1 that keeps the image's size; no bias, since batch normalisation follows."""

    channels: int
    outputs: int
    op: str = "Conv"
    inputs: tuple[str, ...] = ("weight",)
    attributes: Attributes = field(default_factory=lambda: {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})

    def start(self, rng: np.random.Generator) -> Params:
        """Draw weights."""
        return {"weight": he(rng, (self.outputs, self.channels, 3, 3))}

    def forward(self, params: Params, x: Floats) -> tuple[Floats, Backward]:
        """Convolve; the gradient at the input is a convolution with the mirrored kernel."""
        w = params["weight"]
        patches = _patches(x)

        def backward(g: Floats) -> tuple[Floats, Params]:
            mirrored = w[:, :, ::-1, ::-1].swapaxes(0, 1)
            return _correlate(_patches(g), mirrored), {"weight": np.tensordot(g, patches, axes=((0, 2, 3), (0, 2, 3)))}

        return _correlate(patches, w), backward


def _patches(x: Floats) -> Floats:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sliding_window_view(padded, (3, 3), axis=(2, 3))


def _correlate(patches: Floats, w: Floats) -> Floats:
    return np.tensordot(patches, w, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalisation: by the statistics of the batch while training, by the frozen ones after `freeze`."""

    channels: int
    op: str = "BatchNormalization"
    inputs: tuple[str, ...] = ("scale", "bias", "mean", "variance")
    attributes: Attributes = field(default_factory=lambda: {"epsilon": EPSILON})

    def start(self, rng: np.random.Generator) -> Params:
        """Scale by one and shift by zero."""
        return {"scale": np.ones(self.channels, np.float32), "bias": np.zeros(self.channels, np.float32)}

    def freeze(self, params: Params, x: Floats) -> Params:
        """Return the parameters with the statistics of `x` stored."""
        return params | {"mean": x.mean((0, 2, 3)), "variance": x.var((0, 2, 3))}

    def forward(self, params: Params, x: Floats) -> tuple[Floats, Backward]:
        """Normalise each channel, then scale and shift it."""
        stored = params if "mean" in params else self.freeze(params, x)
        deviation = np.sqrt(_channelwise(stored["variance"]) + np.float32(EPSILON))
        normal = (x - _channelwise(stored["mean"])) / deviation
        scale = _channelwise(params["scale"])

        def backward(g: Floats) -> tuple[Floats, Params]:
            gradients = {"scale": (g * normal).sum((0, 2, 3)), "bias": g.sum((0, 2, 3))}
            centred = g - g.mean((0, 2, 3), keepdims=True) - normal * (g * normal).mean((0, 2, 3), keepdims=True)
            return scale * centred / deviation, gradients

        return normal * scale + _channelwise(params["bias"]), backward


def _channelwise(values: Floats) -> Floats:
    return values[:, None, None]


@dataclass(frozen=True)
class Fixed:
    """A layer without parameters: the ONNX operator and the function that gives output and derivative."""

    op: str
    function: Callable[[Floats], tuple[Floats, Callable[[Floats], Floats]]]
    attributes: Attributes = field(default_factory=dict)
    inputs: tuple[str, ...] = ()

    def start(self, rng: np.random.Generator) -> Params:
        """Have no parameters."""
        return {}

    def forward(self, params: Params, x: Floats) -> tuple[Floats, Backward]:
        """Apply the function."""
        y, derivative = self.function(x)
        return y, lambda g: (derivative(g), {})


def _relu(x: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
    return np.maximum(x, 0), lambda g: g * (x > 0)


def _flatten(x: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
    return x.reshape(len(x), -1), lambda g: g.reshape(x.shape)


def _max_pool(x: Floats) -> tuple[Floats, Callable[[Floats], Floats]]:
    n, c, h, w = x.shape
    squares = x.reshape(n, c, h // 2, 2, w // 2, 2)
    largest = squares.max((3, 5), keepdims=True)
    is_largest = (squares == largest).astype(np.float32)
    share = is_largest / is_largest.sum((3, 5), keepdims=True)  # equal values share the gradient
    return largest[:, :, :, 0, :, 0], lambda g: (share * g[:, :, :, None, :, None]).reshape(x.shape)


RELU = Fixed("Relu", _relu)
FLATTEN = Fixed("Flatten", _flatten)
MAX_POOL = Fixed("MaxPool", _max_pool, {"kernel_shape": [2, 2], "strides": [2, 2]})
