"""The codec as mathematics: the cosine transform of 8×8 blocks and the table that its coefficients are divided by."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

BLOCK = 8
LEVELS = 255.0  # of grey; images have values from 0 to 1
MIDDLE = 128.0 / LEVELS
# JPEG's example table for luminance (ITU-T T.81, table K.1): the steps of the coefficients of grey levels, at quality 50
STEPS = np.array([
    16, 11, 10, 16, 24, 40, 51, 61,
    12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77,
    24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
], float) / LEVELS  # fmt: skip


def cosines() -> Reals:
    """Return the orthonormal basis [coefficient, row, column] of the cosine transform of a block, coefficients row by row."""
    n = np.arange(BLOCK)
    waves = np.cos((2 * n + 1) * n[:, None] * np.pi / (2 * BLOCK)) * np.sqrt(2 / BLOCK)
    waves[0] /= np.sqrt(2)
    basis: Reals = np.einsum("ur,vc->uvrc", waves, waves).reshape(BLOCK * BLOCK, BLOCK, BLOCK)
    return basis


def coded(image: npt.NDArray[np.generic]) -> Reals:
    """Return the quantised coefficients [sample, coefficient, block row, block column] of images [sample, 1, row, column]."""
    samples, _, rows, columns = image.shape
    blocks = (np.asarray(image, float) - MIDDLE).reshape(samples, rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
    return np.asarray(np.rint(np.einsum("srycx,kyx->skrc", blocks, cosines()) / STEPS[:, None, None]))


def decoded(codes: Reals) -> Reals:
    """Return the images that quantised coefficients stand for, limited to 0 … 1."""
    samples, _, rows, columns = codes.shape
    blocks = np.einsum("skrc,kyx->srycx", codes * STEPS[:, None, None], cosines())
    restored: Reals = np.clip(blocks.reshape(samples, 1, rows * BLOCK, columns * BLOCK) + MIDDLE, 0, 1)
    return restored
