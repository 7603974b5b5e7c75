"""Keywords spoken by the synthesiser espeak-ng in many voices: some for training, others for the test."""

from __future__ import annotations

import io
import subprocess
import wave
from dataclasses import dataclass

import numpy as np

from ..digits.data import Floats, Images
from .spectrogram import RATE, SAMPLES, Reals

WORDS = ("yes", "no", "up", "down", "left", "right", "stop", "go")
TEST_VOICES = ("en-us+m3", "en-gb+f4", "en-us+Andrea", "en-gb-scotland+m7", "en-us+Annie", "en-gb+max")
ACCENTS = ("en-us", "en-gb", "en-gb-scotland", "en-029")
VARIANTS = (
    "m1", "m2", "m4", "m5", "m6", "m8", "f1", "f2", "f3", "f5", "Alex", "Denis", "Diogo", "Gene", "Hugo", "Lee", "Mike", "Michael", "Steph",
    "belinda", "linda", "marcelo", "pablo", "quincy", "rob", "zac",
)  # fmt: skip
VOICES = tuple(f"{accent}+{variant}" for accent in ACCENTS for variant in VARIANTS)
SPEEDS = (150, 185)  # words a minute
LEVELS = 128.0  # of a sample: 8 bits
QUIET, CALIBRATION = 0.05, 16


@dataclass(frozen=True)
class Take:
    """One word as one voice says it."""

    word: str
    voice: str
    speed: int


def spoken(take: Take) -> Reals:
    """Return what the synthesiser says at RATE, between −1 and 1."""
    command = ["espeak-ng", "-v", take.voice, "-s", str(take.speed), "--stdout", take.word]
    with wave.open(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout)) as file:
        rate = file.getframerate()
        sound = np.frombuffer(file.readframes(file.getnframes()), np.int16) / 32768
    sound = _low_pass(sound, rate)
    places = np.arange(0, len(sound) - 1, rate / RATE)
    return np.interp(places, np.arange(len(sound)), sound)


def _low_pass(sound: Reals, rate: int) -> Reals:
    n = np.arange(-64, 65)
    cut = 0.95 * RATE / rate
    taps: Reals = cut * np.sinc(cut * n) * np.hamming(len(n))
    return np.convolve(sound, taps, "same")


def sample_of(sound: Reals, shift: int, noise: float, rng: np.random.Generator) -> Floats:
    """Return a sample [1, SAMPLES] of 8-bit levels: the loud part of a sound, shifted, with white noise."""
    sound = sound / np.abs(sound).max()
    loud = np.flatnonzero(np.abs(sound) > QUIET)
    sound = sound[loud[0] : loud[-1] + 1][:SAMPLES]
    room = SAMPLES - len(sound)
    at = min(max(room // 2 + shift, 0), room)
    whole = np.zeros(SAMPLES)
    whole[at : at + len(sound)] = 0.9 * sound
    whole += noise * rng.standard_normal(SAMPLES)
    return (np.clip(np.rint(whole * LEVELS), 1 - LEVELS, LEVELS - 1) / LEVELS).astype(np.float32)[None]


def samples(takes: list[Take], seed: int, noise: tuple[float, float], shift: int) -> Images:
    """Return audio [sample, 1, SAMPLES] of takes in this order, noise and shift drawn, with the place of its word in WORDS."""
    rng = np.random.default_rng(seed)
    audio = [sample_of(spoken(t), int(rng.integers(-shift, shift + 1)), float(rng.uniform(*noise)), rng) for t in takes]
    return Images(np.array(audio), np.array([WORDS.index(t.word) for t in takes]))


def split() -> tuple[Images, Images]:
    """Return the samples that train and those of the test, which other voices say."""
    training = [Take(word, voice, speed) for word in WORDS for voice in VOICES for speed in SPEEDS]
    test = [Take(word, voice, SPEEDS[n % 2]) for word in WORDS for n, voice in enumerate(TEST_VOICES)]
    return samples(training, 0, (0, 0.02), 400), samples(test, 1, (0, 0.004), 200)


def calibration(training: Images) -> Images:
    """Return the samples that calibrate number formats, drawn from those that train."""
    return training.take(np.random.default_rng(2).permutation(len(training))[:CALIBRATION])
