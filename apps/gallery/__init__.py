"""The architectures of 3LA's Table 2 as builders: real layers and sizes, drawn weights, nothing trained.

`offloads` are what flexible matching finds on FlexASR: one linear layer for every convolution that is not grouped, every
convolution of a sequence and every fully connected layer; and operations of their own (a mean over 2ⁿ positions is a mean_pool).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .images import efficientnet, mobilenet_v2, resmlp, resnet20, resnet50
from .sequences import language_model, transformer

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class Architecture:
    """A model without data: its builder and the offloads that compiling it for FlexASR must find."""

    name: str
    about: str
    build: Callable[[], ModelProto]
    offloads: Mapping[str, int]


GALLERY = (
    Architecture("resnet20", "32×32 images: 21 convolutions and a linear layer", resnet20, {"linear": 22, "mean_pool": 1}),
    Architecture("resnet50", "224×224 images: 53 convolutions and a linear layer", resnet50, {"linear": 54}),
    Architecture(
        "mobilenet_v2", "32×32 images: 35 convolutions, 17 depthwise ones, a linear layer", mobilenet_v2, {"linear": 36, "mean_pool": 1}
    ),
    Architecture("efficientnet", "224×224 images: 33 convolutions, 16 depthwise ones, a linear layer", efficientnet, {"linear": 34}),
    Architecture("resmlp", "32×32 images: 26 linear layers, 12 convolutions over patches", resmlp, {"linear": 38, "mean_pool": 1}),
    Architecture(
        "transformer",
        "6 encoder and 6 decoder layers: 66 linear layers, 36 batched products",
        transformer,
        {"linear": 66, "layer_norm": 31},
    ),
    Architecture("language_model", "35 words: an LSTM and a linear layer", language_model, {"linear": 1, "lstm": 1}),
)
