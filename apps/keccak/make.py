"""Write the model of Keccak and its messages again: `python -m rewrite_compiler.apps.keccak.make [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from .export import to_onnx
from .permutation import RATE, block_of, digest, planes

MESSAGES = 32


def messages() -> list[bytes]:
    """Return the empty message, the longest of one block, and drawn ones."""
    rng = np.random.default_rng(0)
    return [b"", rng.bytes(RATE - 1), *(rng.bytes(int(rng.integers(1, RATE))) for _ in range(MESSAGES - 2))]


def main(folder: Path) -> None:
    """Write `keccak.onnx` and `test.npz`: padded messages and the bits of their digests."""
    (folder / "keccak.onnx").write_bytes(to_onnx().SerializeToString())
    states, digests = zip(*((planes(block_of(m)), digest(m)) for m in messages()), strict=True)
    np.savez_compressed(folder / "test.npz", state=np.array(states), labels=np.array(digests))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
