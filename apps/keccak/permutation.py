"""The permutation's constants and the bits that a message enters and leaves it with (FIPS 202)."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

SIDE, LANES, BITS, ROUNDS = 5, 25, 64, 24  # lanes lie in a square of SIDE · SIDE: lane x + SIDE · y
RATE, DIGEST = 136, 32  # bytes of a block and of a digest of SHA3-256
SUFFIX, LAST = 0x06, 0x80  # what SHA-3 adds behind a message, and at the end of its block


def round_constant(number: int) -> int:
    """Return the word that step ι adds to lane 0: bits 2ʲ − 1 from a shift register (section 3.2.5)."""
    word, register = 0, 1
    for step in range(7 * number + 7):
        if step >= 7 * number and register & 1:
            word |= 1 << ((1 << (step - 7 * number)) - 1)
        register = (register << 1) ^ (0x171 if register & 0x80 else 0)
    return word


def rotations() -> Places:
    """Return by how many bits step ρ rotates each lane."""
    offsets = np.zeros(LANES, np.int64)
    x, y = 1, 0
    for t in range(ROUNDS):
        offsets[x + SIDE * y] = (t + 1) * (t + 2) // 2 % BITS
        x, y = y, (2 * x + 3 * y) % SIDE
    return offsets


def sources() -> Places:
    """Return the lane that step π brings to each place."""
    x, y = np.arange(LANES) % SIDE, np.arange(LANES) // SIDE
    origin = np.zeros(LANES, np.int64)
    origin[y + SIDE * ((2 * x + 3 * y) % SIDE)] = np.arange(LANES)
    return origin


def moved_bits() -> Places:
    """Return the place [lane · BITS + bit] in the state that steps ρ and π bring to each place."""
    origin = sources()[:, None]
    return (origin * BITS + (np.arange(BITS) - rotations()[origin]) % BITS).reshape(-1)


def block_of(message: bytes) -> bytes:
    """Return the state that a message of less than RATE bytes starts from: padded, and zeros."""
    assert len(message) < RATE
    state = bytearray(message.ljust(LANES * BITS // 8, b"\0"))
    state[len(message)] ^= SUFFIX
    state[RATE - 1] ^= LAST
    return bytes(state)


def planes(state: bytes) -> Codes:
    """Return the bits [lane, 1, bit] of whole lanes, the lowest first."""
    return np.unpackbits(np.frombuffer(state, np.uint8), bitorder="little").reshape(-1, 1, BITS)


def digest(message: bytes) -> Codes:
    """Return the bits [lane, 1, bit] of a message's digest, by the standard library."""
    return planes(hashlib.sha3_256(message).digest())
