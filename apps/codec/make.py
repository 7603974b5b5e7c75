"""Write the codec's model and its data again: `python -m rewrite_compiler.apps.codec.make [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from .export import to_onnx
from .photographs import split


def main(folder: Path) -> None:
    """Write `codec.onnx`, `test.npz` and `calibration.npz`; the true values are the images themselves."""
    (folder / "codec.onnx").write_bytes(to_onnx().SerializeToString())
    for name, image in zip(("test", "calibration"), split(), strict=True):
        np.savez_compressed(folder / f"{name}.npz", image=image, targets=image)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
