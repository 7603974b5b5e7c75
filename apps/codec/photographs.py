"""Tiles of the two photographs bundled with scikit-learn: one for the test, one for calibration."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .export import SIDE
from .transform import LEVELS

TEST_TILES, CALIBRATION_TILES = 60, 40
LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R BT.601)


def tiles(photograph: npt.NDArray[np.generic], count: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Return drawn tiles [sample, 1, row, column] of a photograph [row, column, colour], as whole grey levels over 255."""
    grey = np.rint(np.asarray(photograph, float) @ LUMINANCE)
    rows, columns = (n // SIDE for n in grey.shape)
    every = grey[: rows * SIDE, : columns * SIDE].reshape(rows, SIDE, columns, SIDE).swapaxes(1, 2).reshape(-1, 1, SIDE, SIDE)
    return (every[np.random.default_rng(seed).permutation(len(every))[:count]] / LEVELS).astype(np.float32)


def split() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the tiles for the test, of the flower, and those that calibrate, of the palace."""
    from sklearn.datasets import load_sample_images

    palace, flower = load_sample_images().images
    return tiles(flower, TEST_TILES), tiles(palace, CALIBRATION_TILES)
