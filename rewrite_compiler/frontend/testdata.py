"""Test data of models: one tensor a file, input_0.pb and output_0.pb, as ONNX's own models bring them."""

from __future__ import annotations

from pathlib import Path

from ..errors import FlexmatchError, InputError, UsageError
from ..ir.program import Data
from ..limits import Limits
from .tensors import to_array


def read_tensor(path: Path, limits: Limits) -> tuple[Data, bytes]:
    """Return the tensor of a protobuf file and the file's bytes; one sentence when it is none."""
    from google.protobuf.message import DecodeError
    from onnx import TensorProto

    try:
        size = path.stat().st_size
        if size > limits.protobuf_bytes:
            raise InputError("C101", f"a tensor must have at most {limits.protobuf_bytes} bytes, not {size}", place=str(path))
        raw = path.read_bytes()
        tensor = TensorProto.FromString(raw)
        if tensor.data_type == 0:
            raise InputError("C100", "the file is not a tensor of ONNX", place=str(path))
        return to_array(tensor, "the tensor", limits, path.parent)[0], raw
    except DecodeError:
        raise InputError("C100", "the file is not a tensor of ONNX", place=str(path)) from None
    except OSError as error:
        raise UsageError("F100", f"the file cannot be read: {(error.strerror or str(error)).lower()}", place=str(path)) from None
    except FlexmatchError as error:
        raise error.at(str(path)) from None
