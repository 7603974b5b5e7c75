"""The network that tells keywords apart by their spectrogram, of the digits' layers, and its training."""

from __future__ import annotations

from ..digits.data import Images
from ..digits.layers import FLATTEN, MAX_POOL, RELU, BatchNorm, Conv, Linear
from ..digits.network import Network, Weights, freeze, train
from .spectrogram import BANDS, FRAMES, log_mel
from .speech import WORDS

FILTERS = (16, 32)
NETWORK: Network = (
    Conv(1, FILTERS[0]), BatchNorm(FILTERS[0]), RELU, MAX_POOL, Conv(*FILTERS), BatchNorm(FILTERS[1]), RELU, MAX_POOL,
    FLATTEN, Linear(FRAMES * BANDS // 16 * FILTERS[1], len(WORDS)),
)  # fmt: skip
EPOCHS, SEED = 20, 0


def spectrograms(audio: Images) -> Images:
    """Return the features [sample, 1, FRAMES, BANDS] of samples, with their labels."""
    return Images(log_mel(audio.image)[:, None].astype("float32"), audio.labels)


def trained(training: Images, epochs: int = EPOCHS) -> Weights:
    """Return the weights after training on samples."""
    images = spectrograms(training)
    *_, (_, weights) = train(NETWORK, images, epochs, SEED)
    return freeze(NETWORK, weights, images.image)
