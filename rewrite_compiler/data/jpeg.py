"""JPEG: decoded by Pillow (extra `images`). Decoders differ in bits, so that the hash of the data names this one."""

from __future__ import annotations

import io

import numpy as np

from ..errors import InputError, UsageError
from ..ir.program import Data
from .png import MOST_BYTES

SIGNATURE = b"\xff\xd8\xff"


def decode_jpeg(raw: bytes) -> Data:
    """Return an image [rows, columns, channels] of bytes: one channel when it is gray, else three."""
    _check()
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(raw), formats=("JPEG",)) as image:
            size = image.width * image.height * 3
            if size > MOST_BYTES:
                raise InputError("C101", f"an image must have 1 to {MOST_BYTES} bytes, not {size}")
            found = np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except UnidentifiedImageError:
        raise InputError("C100", "the file is not a JPEG image") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError("C100", f"the image is damaged: {error}") from None
    return found.reshape(*found.shape[:2], -1)


def decoder() -> str:
    """Return what decodes, with its versions."""
    _check()
    from PIL import __version__, features

    return f"Pillow {__version__}, libjpeg {features.version('jpg')}, libjpeg-turbo {features.version('libjpeg_turbo')}"


def _check() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        said = "JPEG images are decoded by Pillow, which is not installed"
        raise UsageError("F100", said, help="pip install 'rewrite-compiler[images]', or convert the images to PNG once") from None
