"""The spectrogram as mathematics: band-pass filter, frames, Fourier transform, mel bands, logarithm; and the transform's factors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

RATE = 8000  # samples a second
TAPS, BAND = 64, (300.0, 3400.0)  # of the filter; hertz that it lets through: a telephone's
FRAME, HOP, FRAMES = 512, 256, 16
SAMPLES = HOP * (FRAMES + 1)
BANDS, FLOOR = 24, 1 / 16  # mel bands; the amplitude that stands for silence
GAIN = 1 / 8  # of the transform: its results stay below 31, the largest number that FlexASR has
OUTER, INNER = 32, 16  # the transform's factors: OUTER · INNER = FRAME
HALVES = OUTER // 2 + 1  # of OUTER places, those that are not conjugates of others


def band_pass() -> Reals:
    """Return the taps of the filter: the ideal response under a Hamming window."""
    n = np.arange(TAPS) - (TAPS - 1) / 2
    low, high = (2 * f / RATE for f in BAND)
    taps: Reals = (high * np.sinc(high * n) - low * np.sinc(low * n)) * np.hamming(TAPS)
    return taps


def window() -> Reals:
    """Return the window of a frame: Hann's."""
    return np.asarray(np.hanning(FRAME + 1)[:-1])


def mel_filters() -> Reals:
    """Return the weights [bin, band] of triangles that are equally wide in mel, between the edges of the filter; a band's add up to 1."""
    low, high = (2595 * np.log10(1 + f / 700) for f in BAND)
    edges = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    frequency = np.arange(FRAME // 2 + 1)[:, None] * RATE / FRAME
    rising, falling = (frequency - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - frequency) / np.diff(edges)[1:]
    triangles = np.maximum(np.minimum(rising, falling), 0)
    return np.asarray(triangles / triangles.sum(0))


def log_mel(audio: npt.NDArray[np.generic]) -> Reals:
    """Return the features [sample, frame, band] of audio [sample, 1, SAMPLES] from −1 to 1: logarithms of amplitudes plus FLOOR."""
    filtered = np.array([np.convolve(x, band_pass()[::-1])[:SAMPLES] for x in np.asarray(audio, float)[:, 0]])
    frames = np.lib.stride_tricks.sliding_window_view(filtered, FRAME, axis=1)[:, ::HOP]
    amplitude = np.abs(np.fft.rfft(frames * window())) * GAIN
    return np.asarray(np.log(amplitude @ mel_filters() + FLOOR))


def outer_factor() -> Reals:
    """Return the first products [n1, (k1, part)]: transforms of OUTER samples that are INNER apart, real and imaginary part."""
    waves = np.exp(-2j * np.pi * np.outer(np.arange(OUTER), np.arange(HALVES)) / OUTER)
    return np.stack([waves.real, waves.imag], -1).reshape(OUTER, -1)


def inner_factor() -> Reals:
    """Return the second products [k1, (n2, part), (part, k2)]: transforms of INNER places, with the phases between both and the gain."""
    n2, k1, k2 = np.arange(INNER), np.arange(HALVES)[:, None, None], np.arange(INNER)
    waves = GAIN * np.exp(-2j * np.pi * n2[:, None] * (k1 + OUTER * k2) / FRAME)
    real, imaginary = (np.concatenate(parts, -1) for parts in ((waves.real, waves.imag), (-waves.imag, waves.real)))
    return np.stack([real, imaginary], 2).reshape(HALVES, 2 * INNER, 2 * INNER)


def filters_of_places() -> Reals:
    """Return the mel filters [(k1, k2), band] for the places of the factored transform; a bin that comes twice counts once."""
    bins = (np.arange(HALVES)[:, None] + OUTER * np.arange(INNER)).reshape(-1)
    bins = np.minimum(bins, FRAME - bins)
    first = np.zeros(bins.size, bool)
    first[np.unique(bins, return_index=True)[1]] = True
    return np.where(first[:, None], mel_filters()[bins], 0)
