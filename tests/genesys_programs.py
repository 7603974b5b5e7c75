"""Programs of GeneSys for tests: layers as its target emits them, run on a model, and what integer numpy gives."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from rewrite_compiler.ila import Ila, assemble
from rewrite_compiler.ila_models import genesys
from rewrite_compiler.ila_models.genesys.programs import Word
from rewrite_compiler.targets.genesys.systolic import IC, OC, ROWS, Layer, layer_words

build = cache(genesys.build)
SMALL = genesys.Config(array_n=4, array_m=4)


def small(**parameters: Any) -> Ila:
    return build(array_n=4, array_m=4, **parameters)


def words(model: Ila, program: list[Word]) -> list[int]:
    return [assemble(model.instructions[name], **fields)["data"] for name, fields in program]


def weight_bytes(m: Layer, w: np.ndarray) -> np.ndarray:
    """Return weights [kh, kw, ic, oc] as the port holds them: tile by tile, byte by byte as the specification numbers them."""
    n, columns = m.design.array_n, m.design.array_m
    tiles = []
    for o in range(m.tiles[OC]):
        for i in range(m.tiles[IC]):
            part = w[:, :, i * m.tic * n : (i + 1) * m.tic * n, o * m.toc * columns : (o + 1) * m.toc * columns]
            rows = part.reshape(*m.kernel, m.tic, n, m.toc, columns).transpose(0, 1, 2, 4, 3, 5).reshape(-1, n, columns)
            tile = np.zeros(m.weight_rows * n * columns, np.int8)
            for b in range(len(tile)):
                row = ROWS * (b // (4 * n * columns)) + b % 4
                if row < len(rows):
                    tile[b] = rows[row, b % (4 * n) // 4, columns - 1 - b % (4 * n * columns) // (4 * n)]
            tiles.append(tile)
    return np.concatenate(tiles).view(np.uint8)


def operands(m: Layer, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    n, columns = m.design.array_n, m.design.array_m
    x = draw.integers(-128, 128, (m.samples, *m.size, m.ic * n), dtype=np.int8)
    w = draw.integers(-128, 128, (*m.kernel, m.ic * n, m.oc * columns), dtype=np.int8)
    return x, w, draw.integers(-(1 << 31), 1 << 31, m.oc * columns).astype(np.int32)


def run_layer(model: Ila, m: Layer, x: np.ndarray, w: np.ndarray, bias: np.ndarray, reading: str) -> np.ndarray:
    """Run a layer's program and return its results [sample, row, column, channel]."""
    sim = model.simulator(reading=reading)
    out, simd = np.zeros(m.bytes["obuf"], np.uint8), np.zeros(m.bytes["obuf"], np.uint8)
    param = np.concatenate([bias.view(np.uint8), weight_bytes(m, w)])
    for port, contents in {"param": param, "ibuf": x.reshape(-1).view(np.uint8), "obuf": out, "simd": simd}.items():
        sim.give(f"dram_{port}", contents)
    sim.run(words(model, layer_words(m)))
    assert sim.state("done")
    return (simd if m.relu else out).view(np.int32).reshape(m.samples, *m.out, -1)


def expected(m: Layer, x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the convolution in integers, modulo 2³²."""
    y = np.zeros((m.samples, *m.out, w.shape[3]), np.int64) + bias
    (rows, cols), (down, right) = m.out, m.strides
    for i in range(m.kernel[0]):
        for j in range(m.kernel[1]):
            part = x[:, i : i + (rows - 1) * down + 1 : down, j : j + (cols - 1) * right + 1 : right]
            y += part.astype(np.int64) @ w[i, j].astype(np.int64)
    wrapped = y.astype(np.int32)
    return np.maximum(wrapped, 0) if m.relu else wrapped
