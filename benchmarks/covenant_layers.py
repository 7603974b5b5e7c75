"""The 17 layers of the Covenant paper's table, which benchmarks of GeneSys and HVX run.

A dense layer is a 1 × 1 convolution over its rows. The second convolution of ResNet-50 is printed as 224 → 56 with a 3 × 3 kernel,
which cannot be: it runs as 56 → 56.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Layer:
    """A layer as the convolution that it runs as, and how often the network has it."""

    name: str
    channels: int
    filters: int
    size: tuple[int, int]
    kernel: int = 1
    stride: int = 1
    pad: int = 0
    times: int = 1

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of its operands and results, and its attributes."""
        (i, j), k = self.size, self.kernel
        u, v = ((n + 2 * self.pad - k) // self.stride + 1 for n in self.size)
        of = {"b": 1, "n": self.filters, "c": self.channels, "i": i, "j": j, "r": k, "s": k, "u": u, "v": v}
        return {**of, "strides": (self.stride,) * 2, "pads": (self.pad,) * 4}

    @property
    def is_dense(self) -> bool:
        """Whether it is a product: its first extent are the rows."""
        return self.size[1] == 1

    @property
    def macs(self) -> int:
        """Products of the layer."""
        at = self.sizes
        return int(at["u"] * at["v"] * self.kernel**2 * self.channels * self.filters * self.times)


def dense(name: str, rows: int, channels: int, filters: int, times: int = 1) -> Layer:
    """Return a product of so many rows."""
    return Layer(name, channels, filters, (rows, 1), times=times)


LAYERS = (
    dense("BERT GEMM1", 384, 1024, 4096), dense("BERT GEMM2", 384, 4096, 1024), dense("BERT ATN1", 384, 1024, 64, 16),
    dense("BERT ATN2", 384, 64, 384, 16), dense("BERT ATN3", 384, 384, 64, 16), dense("BERT ATN4", 384, 1024, 1024),
    dense("DLRM FC1", 1, 745, 367), dense("DLRM FC2", 1, 367, 512), dense("DLRM FC3", 1, 512, 256), dense("DLRM FC4", 1, 256, 1),
    dense("Inception FC", 1, 2048, 1000), Layer("Inception CONV1", 3, 32, (299, 299), 3, 2),
    Layer("MobileNet-V3 CONV1", 3, 16, (224, 224), 3, 2, 1), Layer("MobileNet-V3 CONV2", 16, 64, (112, 112), 3, 1, 1),
    dense("ResNet-50 FC", 1, 512, 1000), Layer("ResNet-50 CONV1", 3, 64, (224, 224), 7, 2, 3),
    Layer("ResNet-50 CONV2", 64, 64, (56, 56), 3, 1, 1),
)  # fmt: skip
