"""The spectrogram, and the spectrogram with its network, as ONNX models whose Fourier transform is two products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..digits.network import Weights
from .network import NETWORK
from .spectrogram import (
    BANDS,
    FLOOR,
    FRAMES,
    HALVES,
    HOP,
    INNER,
    OUTER,
    SAMPLES,
    TAPS,
    band_pass,
    filters_of_places,
    inner_factor,
    outer_factor,
    window,
)
from .speech import WORDS

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 17, 8
FEATURES = (1, 1, FRAMES, BANDS)


@dataclass
class Model:
    """A model under construction: its nodes and constants; each method adds nodes and returns the name of their result."""

    nodes: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)

    def constant(self, name: str, value: Any, dtype: type = np.float32) -> str:
        """Add a constant."""
        from onnx import numpy_helper

        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, op: str, operands: list[str], name: str, **attributes: Any) -> str:
        """Add a node."""
        from onnx import helper

        self.nodes.append(helper.make_node(op, operands, [f"{name}.out"], name, **attributes))
        return f"{name}.out"

    def reshape(self, x: str, name: str, *shape: int) -> str:
        """Give the elements another shape."""
        return self.add("Reshape", [x, self.constant(f"{name}.shape", shape, np.int64)], name)

    def frames(self, audio: str) -> str:
        """Filter, cut into frames that overlap by half, and weight them: [FRAMES, FRAME]."""
        taps = self.constant("taps", band_pass()[None, None])
        filtered = self.add("Conv", [audio, taps], "filter", kernel_shape=[TAPS], pads=[TAPS - 1, 0])
        hops = self.reshape(filtered, "hops", FRAMES + 1, HOP)
        bounds = [self.constant(f"bound_{n}", [n], np.int64) for n in (0, 1, FRAMES, FRAMES + 1)]
        halves = [self.add("Slice", [hops, bounds[n], bounds[n + 2], bounds[0]], f"half_{n}") for n in (0, 1)]
        return self.add("Mul", [self.add("Concat", halves, "frame", axis=1), self.constant("window", window())], "weight")

    def transform(self, frames: str) -> str:
        """Transform frames by two products: [FRAMES, (k1, part, k2)]."""
        columns = self.add("Transpose", [self.reshape(frames, "rows", FRAMES, OUTER, INNER)], "columns", perm=[0, 2, 1])
        outer = self.add("MatMul", [columns, self.constant("outer_factor", outer_factor())], "outer")
        parts = self.add("Transpose", [self.reshape(outer, "parts", FRAMES, INNER, HALVES, 2)], "turn", perm=[2, 0, 1, 3])
        inner = self.add(
            "MatMul", [self.reshape(parts, "pairs", HALVES, FRAMES, 2 * INNER), self.constant("inner_factor", inner_factor())], "inner"
        )
        return self.reshape(self.add("Transpose", [inner], "turn_back", perm=[1, 0, 2]), "spectrum", FRAMES, HALVES * 2 * INNER)

    def features(self, audio: str) -> str:
        """Take the logarithm of the amplitude in each band: [1, 1, FRAMES, BANDS]."""
        spectrum = self.transform(self.frames(audio))
        parts = self.reshape(self.add("Mul", [spectrum, spectrum], "square"), "squares", FRAMES * HALVES, 2, INNER)
        power = self.add("ReduceSum", [parts, self.constant("part", [1], np.int64)], "power", keepdims=0)
        amplitude = self.reshape(self.add("Sqrt", [power], "root"), "amplitude", FRAMES, HALVES * INNER)
        bands = self.add("MatMul", [amplitude, self.constant("filters", filters_of_places())], "mel")
        loudness = self.add("Log", [self.add("Add", [bands, self.constant("silence", FLOOR)], "above_silence")], "logarithm")
        return self.reshape(loudness, "features", *FEATURES)

    def classifier(self, x: str, weights: Weights) -> str:
        """Add the network's layers."""
        for k, (layer, params) in enumerate(zip(NETWORK, weights, strict=True)):
            node = f"{layer.op.lower()}_{k}"
            x = self.add(layer.op, [x, *(self.constant(f"{node}.{i}", params[i]) for i in layer.inputs)], node, **layer.attributes)
        return x

    def finish(self, name: str, result: str, output: str, *shape: int) -> ModelProto:
        """Return the checked model with input `audio` and one output."""
        from onnx import TensorProto, checker, helper

        self.nodes[-1].output[:] = [output]
        assert self.nodes[-1].name == result.removesuffix(".out")
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("audio", (1, 1, SAMPLES)), (output, shape))]
        graph = helper.make_graph(self.nodes, name, ends[:1], ends[1:], self.tensors)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="rewrite_compiler.apps.keywords")
        checker.check_model(model, full_check=True)
        return model


def spectrogram() -> ModelProto:
    """Return the model with input `audio` (1, 1, SAMPLES) from −1 to 1 and output `features` (1, 1, FRAMES, BANDS)."""
    model = Model()
    return model.finish("spectrogram", model.features("audio"), "features", *FEATURES)


def keywords(weights: Weights) -> ModelProto:
    """Return the model with input `audio` (1, 1, SAMPLES) and output `logits` (1, number of WORDS)."""
    model = Model()
    return model.finish("keywords", model.classifier(model.features("audio"), weights), "logits", 1, len(WORDS))
