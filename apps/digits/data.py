"""The digits bundled with scikit-learn, split once and for all into training and test images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

TEST_IMAGES = 500
CALIBRATION_IMAGES = 128
LEVELS = 16.0


@dataclass(frozen=True)
class Images:
    """Images [sample, channel, row, column] with values from 0 to 1, and the digit that each shows."""

    image: Floats
    labels: Labels

    def take(self, indices: slice | npt.NDArray[np.int64]) -> Images:
        """Return the images at some indices with their labels."""
        return Images(self.image[indices], self.labels[indices])

    def __len__(self) -> int:
        return len(self.labels)


def split(seed: int = 0) -> tuple[Images, Images]:
    """Return the training and the test images.

    scikit-learn gives 1,797 distinct images; a permutation drawn from `seed` puts the last 500 aside for the test.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    every = Images((digits.images[:, None] / LEVELS).astype(np.float32), digits.target.astype(np.int64))
    order = np.random.default_rng(seed).permutation(len(every))
    return every.take(order[:-TEST_IMAGES]), every.take(order[-TEST_IMAGES:])


def calibration(training: Images) -> Images:
    """Return the images that calibrate number formats: the first 128 of the training images."""
    return training.take(slice(CALIBRATION_IMAGES))
