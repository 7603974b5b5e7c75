"""Read: the bytes of a model file, parsed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ..limits import Limits


def read_model(path: Path, limits: Limits) -> tuple[Any, str]:
    """Read: the bytes of a model file, parsed."""
    import onnx

    data = path.read_bytes()
    return onnx.load_model_from_string(data), hashlib.sha256(data).hexdigest()
