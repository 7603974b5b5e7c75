"""ONNX test data sets: folders test_data_set_N with input_K.pb and output_K.pb; each is one sample."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..frontend.file.test_data import read_tensor
from ..ir.program import Data
from ..ir.types import TensorType
from ..limits import Limits
from .stored_samples import Raw


@dataclass(frozen=True)
class NamedArrays:
    """Arrays by name, their origin, and the SHA-256 of what they were read from."""

    path: Path
    arrays: Mapping[str, Raw]
    sha256: str


def test_set_folders(folder: Path) -> list[Path]:
    """Return the test data sets of a folder by number, or the folder itself when it is one."""
    if (folder / "input_0.pb").exists():
        return [folder]
    numbered = [(int(m[1]), f) for f in folder.iterdir() if (m := re.fullmatch(r"test_data_set_(\d{1,9})", f.name)) and f.is_dir()]
    return [f for _, f in sorted(numbered)]


def read_test_sets(folder: Path, sets: list[Path], inputs: Mapping[str, TensorType], limits: Limits) -> NamedArrays:
    """Return the inputs in the model's order, and the first output as targets where every set has one.

    Raises:
        InputError: a file is missing or superfluous, is no tensor, or differs in type from the first set's.
    """
    digest = hashlib.sha256()
    columns: dict[str, list[Data]] = {name: [] for name in inputs}
    targets: list[Data] = []
    for test_set in sets:
        if (test_set / f"input_{len(inputs)}.pb").exists():
            sentence = f"the test data set must have {len(inputs)} inputs, as the model, and has input_{len(inputs)}.pb"
            raise InputError("C100", sentence, place=str(test_set))
        for k, name in enumerate(inputs):
            columns[name].append(_tensor(test_set / f"input_{k}.pb", columns[name], limits, digest))
        if (test_set / "output_0.pb").exists():
            targets.append(_tensor(test_set / "output_0.pb", targets, limits, digest))
    arrays: dict[str, Raw] = {name: np.stack(rows) for name, rows in columns.items()}
    if targets and len(targets) != len(sets):
        raise InputError("C100", f"all test data sets must have output_0.pb or none, not {len(targets)} of {len(sets)}", place=str(folder))
    if targets:
        arrays["targets"] = np.stack(targets)
    return NamedArrays(folder, arrays, digest.hexdigest())


def _tensor(file: Path, previous: list[Data], limits: Limits, digest: object) -> Data:
    if not file.is_file():
        raise InputError("C100", f"the test data set must have {file.name}", place=str(file.parent))
    x, raw = read_tensor(file, limits)
    digest.update(hashlib.sha256(raw).digest())  # type: ignore[attr-defined]
    if previous and (x.shape != previous[0].shape or x.dtype != previous[0].dtype):
        texts = [f"{a.dtype}[{', '.join(map(str, a.shape))}]" for a in (previous[0], x)]
        raise InputError("C100", f"{file.name} must be {texts[0]}, as in the first test data set, not {texts[1]}", place=str(file))
    return x
