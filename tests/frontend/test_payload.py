"""Large weights are read where they stand in the file: once in memory, with the values and the refusals of the whole message."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rewrite_compiler.errors import FlexmatchError
from rewrite_compiler.frontend.file import weight_payloads as payload
from rewrite_compiler.frontend.file.protobuf_scan import varint
from rewrite_compiler.frontend.file.weight_payloads import LARGE_BYTES, split_payloads
from rewrite_compiler.frontend.load import load

WIDTH = 160  # weights of 102,400 bytes


def model(*tensors: TensorProto) -> onnx.ModelProto:
    """Products with some weights one after the other."""
    names = ["x", *(f"y{k}" for k in range(len(tensors)))]
    nodes = [helper.make_node("MatMul", [a, t.name], [b]) for a, b, t in zip(names, names[1:], tensors, strict=False)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, WIDTH)) for n in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], list(tensors))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def weight(name: str, seed: int) -> TensorProto:
    return numpy_helper.from_array(np.random.default_rng(seed).standard_normal((WIDTH, WIDTH), dtype=np.float32), name)


def in_fields(name: str, seed: int) -> TensorProto:
    data = numpy_helper.to_array(weight(name, seed))
    return helper.make_tensor(name, TensorProto.FLOAT, data.shape, data.ravel())


def test_large_weights_are_cut_out_and_read_where_they_stand(tmp_path: Path) -> None:
    tensors = [weight("a", 0), in_fields("b", 1), weight("c", 2)]
    data = model(*tensors).SerializeToString()
    apart = split_payloads(data)
    assert list(apart.payloads) == [0, 2]
    assert len(apart.model) < len(data) - 2 * LARGE_BYTES
    assert all(view.obj is data for view in apart.payloads.values())
    file = tmp_path / "m.onnx"
    file.write_bytes(data)
    program = load(file).program
    found = {program.names[v]: x for v, x in program.constants.items()}
    for t in tensors:
        np.testing.assert_array_equal(found[t.name], numpy_helper.to_array(t))
    bases = [found[name].base for name in "ac"]
    while any(isinstance(b, np.ndarray) for b in bases):
        bases = [b.base if isinstance(b, np.ndarray) else b for b in bases]
    assert all(isinstance(b, memoryview) for b in bases)  # of the bytes of the file


def test_what_is_not_plainly_there_is_left_to_the_parser() -> None:
    plain = model(weight("a", 0))
    data = plain.SerializeToString()
    graph = plain.graph.SerializeToString()
    twice = data + varint(7 << 3 | 2) + varint(len(graph)) + graph  # messages of one field are merged
    assert split_payloads(twice) == payload.SplitModel(twice, {})
    tensor = plain.graph.initializer[0].SerializeToString()
    second = varint(9 << 3 | 2) + varint(LARGE_BYTES) + bytes(LARGE_BYTES)  # the last of two counts
    inside = varint(5 << 3 | 2) + varint(len(tensor + second)) + tensor + second
    two = varint(7 << 3 | 2) + varint(len(inside)) + inside
    assert split_payloads(two).payloads == {}
    assert split_payloads(data[:-3]).payloads == {}
    assert split_payloads(b"\x00" * (LARGE_BYTES + 1)).payloads == {}


def test_a_damaged_file_is_refused_or_read_as_without_cutting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = model(weight("a", 0), weight("b", 1)).SerializeToString()
    source, file = random.Random(5), tmp_path / "m.onnx"

    def outcome() -> object:
        try:
            return {v: x.tobytes() for v, x in load(file).program.constants.items()}
        except FlexmatchError as error:
            return error.problem.code, error.problem.sentence

    places = [*range(40), *range(102_400, 102_480), *range(len(data) - 200, len(data))]
    for _ in range(40):
        changed = bytearray(data)
        for _ in range(source.choice((1, 1, 2))):
            changed[source.choice(places)] = source.randrange(256)
        file.write_bytes(bytes(changed))
        apart = outcome()
        with monkeypatch.context() as patch:
            patch.setattr(payload, "LARGE_BYTES", len(data) + 9)
            assert outcome() == apart


def test_a_weight_of_the_wrong_size_is_refused_with_its_bytes(tmp_path: Path) -> None:
    wrong = weight("a", 0)
    wrong.raw_data += b"1234"
    file = tmp_path / "m.onnx"
    file.write_bytes(model(wrong).SerializeToString())
    with pytest.raises(FlexmatchError) as caught:
        load(file)
    assert caught.value.problem.sentence == 'Initializer "a" (float32[160, 160]) must have 102400 bytes of data, not 102404'
