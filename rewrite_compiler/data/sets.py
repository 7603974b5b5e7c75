"""Test data sets as ONNX's models bring them: folders test_data_set_N with input_K.pb and output_K.pb; each is one sample."""

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
from .stored import Raw


@dataclass(frozen=True)
class Given:
    """Arrays by name, where they come from, and the hash of what they were read from."""

    path: Path
    arrays: Mapping[str, Raw]
    sha256: str


def test_sets(folder: Path) -> list[Path]:
    """Return the test data sets of a folder, or the folder itself when it is one, by number."""
    if (folder / "input_0.pb").exists():
        return [folder]
    found = [(int(m[1]), f) for f in folder.iterdir() if (m := re.fullmatch(r"test_data_set_(\d{1,9})", f.name)) and f.is_dir()]
    return [f for _, f in sorted(found)]


def read_test_sets(folder: Path, sets: list[Path], inputs: Mapping[str, TensorType], limits: Limits) -> Given:
    """Return the inputs in the model's order, and the first output as targets where every set has one."""
    digest = hashlib.sha256()
    columns: dict[str, list[Data]] = {name: [] for name in inputs}
    targets: list[Data] = []
    for one in sets:
        if (one / f"input_{len(inputs)}.pb").exists():
            sentence = f"the test data set must have {len(inputs)} inputs, as the model, and has input_{len(inputs)}.pb"
            raise InputError("C100", sentence, place=str(one))
        for k, name in enumerate(inputs):
            columns[name].append(_tensor(one / f"input_{k}.pb", columns[name], limits, digest))
        if (one / "output_0.pb").exists():
            targets.append(_tensor(one / "output_0.pb", targets, limits, digest))
    arrays: dict[str, Raw] = {name: np.stack(rows) for name, rows in columns.items()}
    if targets and len(targets) != len(sets):
        raise InputError("C100", f"all test data sets must have output_0.pb or none, not {len(targets)} of {len(sets)}", place=str(folder))
    if targets:
        arrays["targets"] = np.stack(targets)
    return Given(folder, arrays, digest.hexdigest())


def _tensor(file: Path, before: list[Data], limits: Limits, digest: object) -> Data:
    if not file.is_file():
        raise InputError("C100", f"the test data set must have {file.name}", place=str(file.parent))
    x, raw = read_tensor(file, limits)
    digest.update(hashlib.sha256(raw).digest())  # type: ignore[attr-defined]
    if before and (x.shape != before[0].shape or x.dtype != before[0].dtype):
        shown = [f"{a.dtype}[{', '.join(map(str, a.shape))}]" for a in (before[0], x)]
        raise InputError("C100", f"{file.name} must be {shown[0]}, as in the first test data set, not {shown[1]}", place=str(file))
    return x
