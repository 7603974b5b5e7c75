"""ONNX test data: one tensor a file, input_0.pb and output_0.pb, as the ONNX model zoo stores them."""

from __future__ import annotations

from pathlib import Path

from ...errors import FlexmatchError, InputError
from ...ir.program import Data
from ...limits import Limits
from .read import read_bytes
from .tensors import to_array


def read_tensor(path: Path, limits: Limits) -> tuple[Data, bytes]:
    """Return the tensor of a protobuf file and the file's bytes.

    Raises:
        InputError: the file holds no tensor, or a malformed one.
    """
    from onnx import TensorProto

    raw = read_bytes(path, limits)
    try:
        tensor = TensorProto.FromString(raw)
    except Exception:  # the parser's own kind of error is in a package that we do not name
        tensor = TensorProto()
    if tensor.data_type == 0:
        raise InputError("C100", "the file is not a tensor of ONNX", place=str(path))
    try:
        return to_array(tensor, "the tensor", limits, path.parent)[0], raw
    except FlexmatchError as error:
        raise error.at(str(path)) from None
