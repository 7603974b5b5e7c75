"""Sequence models: an encoder-decoder Transformer, a word language model with one LSTM."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .graph import Graph, Value

if TYPE_CHECKING:
    from onnx import ModelProto

WIDTH, HEADS, HIDDEN, LAYERS = 256, 8, 2048, 6  # of the Transformer
EMBEDDING, STEPS, WORDS = 128, 35, 2000  # of the language model


def transformer() -> ModelProto:
    """An encoder and a decoder of six layers each (Vaswani et al. 2017), query, key and value projections packed."""
    g = Graph("transformer")
    memory, x = g.input("source", 1, 10, WIDTH), g.input("target", 1, 20, WIDTH)
    for _ in range(LAYERS):
        memory = g.layer_norm(g.binary("Add", memory, _self_attention(g, memory)))
        memory = g.layer_norm(g.binary("Add", memory, _feed_forward(g, memory)))
    for _ in range(LAYERS):
        x = g.layer_norm(g.binary("Add", x, _self_attention(g, x)))
        x = g.layer_norm(g.binary("Add", x, _cross_attention(g, x, memory)))
        x = g.layer_norm(g.binary("Add", x, _feed_forward(g, x)))
    return g.finish(g.layer_norm(x))


def language_model() -> ModelProto:
    """One LSTM over 35 embedded words from a zero state, and a layer that scores the next word."""
    g = Graph("language_model")
    words = g.input("embedded", STEPS, 1, EMBEDDING)
    w, r = (g.weight(1, 4 * EMBEDDING, EMBEDDING, summed=EMBEDDING) for _ in range(2))
    b = g.weight(1, 8 * EMBEDDING, summed=8 * EMBEDDING)
    y = g.node("LSTM", [words, w, r, b], [STEPS, 1, 1, EMBEDDING], hidden_size=EMBEDDING)
    return g.finish(g.linear(g.node("Squeeze", [y, g.ints(1)], [STEPS, 1, EMBEDDING]), WORDS))


def _feed_forward(g: Graph, x: Value) -> Value:
    return g.linear(g.unary("Relu", g.linear(x, HIDDEN)), WIDTH)


def _self_attention(g: Graph, x: Value) -> Value:
    parts = g.multi_node("Split", [g.linear(x, 3 * WIDTH)], [x.shape] * 3, axis=2)
    return _attention(g, *parts)


def _cross_attention(g: Graph, x: Value, memory: Value) -> Value:
    keys, values = g.multi_node("Split", [g.linear(memory, 2 * WIDTH)], [memory.shape] * 2, axis=2)
    return _attention(g, g.linear(x, WIDTH), keys, values)


def _attention(g: Graph, q: Value, k: Value, v: Value) -> Value:
    """Add softmax(q kᵀ / √d) v for every head, and the projection of the heads."""
    deep = WIDTH // HEADS
    n, rows, columns = q.shape[0], q.shape[1], k.shape[1]
    heads = [g.transpose(g.reshape(x, n, x.shape[1], HEADS, deep), 0, 2, 1, 3) for x in (q, k, v)]
    scores = g.node("MatMul", [heads[0], g.transpose(heads[1], 0, 1, 3, 2)], [n, HEADS, rows, columns])
    scaled = g.binary("Div", scores, g.constant(np.array(math.sqrt(deep), np.float32)))
    mixed = g.node("MatMul", [g.unary("Softmax", scaled, axis=-1), heads[2]], [n, HEADS, rows, deep])
    return g.linear(g.reshape(g.transpose(mixed, 0, 2, 1, 3), n, rows, WIDTH), WIDTH)
