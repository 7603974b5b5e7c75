"""Networks as chains of layers: forward pass, gradients, training by Adam, frozen batch statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .data import Floats, Images, Labels
from .layers import FLATTEN, MAX_POOL, RELU, Backward, BatchNorm, Conv, Layer, Linear, Params

Network = tuple[Layer, ...]
Weights = tuple[Params, ...]

CNN: Network = (Conv(1, 16), BatchNorm(16), RELU, Conv(16, 32), BatchNorm(32), RELU, MAX_POOL, FLATTEN, Linear(512, 10))
MLP: Network = (FLATTEN, Linear(64, 64), RELU, Linear(64, 32), RELU, Linear(32, 10))

BATCH = 64
RATE, DECAY_MEAN, DECAY_SQUARE, TINY = 2e-3, 0.9, 0.999, 1e-8


def forward(network: Network, weights: Weights, x: Floats) -> tuple[Floats, list[Backward]]:
    """Return the logits [sample, class] and the derivative of each layer."""
    backwards = []
    for layer, params in zip(network, weights, strict=True):
        x, backward = layer.forward(params, x)
        backwards.append(backward)
    return x, backwards


def cross_entropy(logits: Floats, labels: Labels) -> tuple[float, Floats]:
    """Return the mean cross-entropy and its gradient at the logits."""
    rows = np.arange(len(labels))
    shifted = logits - logits.max(1, keepdims=True)
    log_share = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    gradient = np.exp(log_share)
    gradient[rows, labels] -= 1
    return float(-log_share[rows, labels].mean()), gradient / np.float32(len(labels))


def gradients(network: Network, weights: Weights, batch: Images) -> tuple[float, Weights]:
    """Return the loss on one batch and its gradient at every parameter."""
    logits, backwards = forward(network, weights, batch.image)
    loss, g = cross_entropy(logits, batch.labels)
    layer_gradients: list[Params] = []
    for backward in reversed(backwards):
        g, at_params = backward(g)
        layer_gradients.append(at_params)
    return loss, tuple(reversed(layer_gradients))


def train(network: Network, images: Images, epochs: int, seed: int) -> Iterator[tuple[float, Weights]]:
    """Yield the mean loss and the weights after each epoch of Adam (Kingma & Ba 2015); the learning rate falls linearly to zero."""
    rng = np.random.default_rng(seed)
    weights = tuple(layer.start(rng) for layer in network)
    mean = square = tuple({name: np.zeros_like(value) for name, value in params.items()} for params in weights)
    batches = len(images) // BATCH
    for epoch in range(epochs):
        losses = []
        for k, indices in enumerate(np.array_split(rng.permutation(len(images)), batches)):
            step = epoch * batches + k
            loss, g = gradients(network, weights, images.take(indices))
            mean = _blend(mean, g, DECAY_MEAN)
            square = _blend(square, tuple({name: value * value for name, value in params.items()} for params in g), DECAY_SQUARE)
            weights = _move(weights, mean, square, step + 1, RATE * (1 - step / (epochs * batches)))
            losses.append(loss)
        yield float(np.mean(losses)), weights


def _blend(old: Weights, new: Weights, decay: float) -> Weights:
    old_weight, new_weight = np.float32(decay), np.float32(1 - decay)
    return tuple({name: old_weight * o[name] + new_weight * n[name] for name in o} for o, n in zip(old, new, strict=True))


def _move(weights: Weights, mean: Weights, square: Weights, step: int, rate: float) -> Weights:
    scale = np.float32(rate * math.sqrt(1 - DECAY_SQUARE**step) / (1 - DECAY_MEAN**step))
    layers = zip(weights, mean, square, strict=True)
    return tuple({name: w[name] - scale * _over_root(m[name], s[name]) for name in w} for w, m, s in layers)


def _over_root(mean: Floats, square: Floats) -> Floats:
    root: Floats = np.sqrt(square)
    return mean / (root + np.float32(TINY))


def freeze(network: Network, weights: Weights, x: Floats) -> Weights:
    """Return the weights with the statistics of every batch normalisation over the images `x` frozen."""
    frozen: list[Params] = []
    for layer, params in zip(network, weights, strict=True):
        params = layer.freeze(params, x) if isinstance(layer, BatchNorm) else params
        frozen.append(params)
        x, _ = layer.forward(params, x)
    return tuple(frozen)


def accuracy(network: Network, weights: Weights, images: Images) -> float:
    """Return the share of images whose largest logit is that of their label."""
    logits, _ = forward(network, weights, images.image)
    return float((logits.argmax(1) == images.labels).mean())
