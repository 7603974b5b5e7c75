"""The 17 layers of the Covenant paper's table on GeneSys of 64 × 64: their outputs beside integer numpy, cycles beside MACs / 4096.

A dense layer runs as a 1 × 1 convolution over its rows, whose tiles are bands of them. The second convolution of ResNet-50 is
printed as 224 → 56 with a 3 × 3 kernel, which cannot be: it runs as 56 → 56.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from record import Row, finish, options

from rewrite_compiler.target import find_target, simulated_device

DESIGN = "genesys:array_n=64,ibuf_depth=2048,wbuf_depth=4096,obuf_depth=2048,bbuf_depth=1024,vmem_depth=2048"
MACS_A_CYCLE = 64 * 64


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
    Layer("MobileNetV3 CONV1", 3, 16, (224, 224), 3, 2, 1), Layer("MobileNetV3 CONV2", 16, 64, (112, 112), 3, 1, 1),
    dense("ResNet50 FC", 1, 512, 1000), Layer("ResNet50 CONV1", 3, 64, (224, 224), 7, 2, 3),
    Layer("ResNet50 CONV2", 64, 64, (56, 56), 3, 1, 1),
)  # fmt: skip


def expected(layer: Layer, x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the layer in integers: products in float64 are exact below 2⁵³."""
    bordered = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (layer.pad,) * 2, (layer.pad,) * 2))
    at, y = layer.sizes, 0.0
    for r in range(layer.kernel):
        for s in range(layer.kernel):
            rows, cols = (slice(n, n + (at[d] - 1) * layer.stride + 1, layer.stride) for n, d in ((r, "u"), (s, "v")))
            part = bordered[0, :, rows, cols]
            y = y + np.tensordot(w[:, :, r, s].astype(np.float64), part, 1)
    return np.asarray(y, np.float64).astype(np.int64)[None]


def measure(layer: Layer) -> Row:
    """Run a layer once on the simulator, and price it."""
    target = find_target(DESIGN)
    m, ila, random, at = target.mappings["conv2d"], target.ila(), np.random.default_rng(2), layer.sizes
    attributes = {"strides": at["strides"], "pads": at["pads"]}
    if (exceeded := m.exceeded_limit({d: n for d, n in at.items() if d not in attributes}, attributes)) is not None:
        raise SystemExit(f"{layer.name}: {exceeded}")
    x = random.integers(-128, 128, (1, layer.channels, *layer.size), dtype=np.int8)
    w = random.integers(-128, 128, (layer.filters, layer.channels, layer.kernel, layer.kernel), dtype=np.int8)
    started = time.process_time()
    y = m.run_driver(simulated_device(ila, reading="native"), {"x": x, "w": w}, m.formats_for({"x": 1.0, "w": 1.0}), attributes)
    seconds, resources = time.process_time() - started, target.resources()
    assert resources is not None
    cost = m.cost(at, attributes, resources)
    assert cost is not None
    cycles = layer.times * cost.cycles
    bound = layer.macs / MACS_A_CYCLE
    return {
        "layer": layer.name, "times": layer.times, "macs": layer.macs, "bound": bound, "compute_cycles": layer.times * cost.compute_cycles,
        "transfer_cycles": layer.times * cost.transfer_cycles, "utilisation": round(bound / cycles, 4), "cpu_seconds": round(seconds, 2),
        "is_equal": bool(np.array_equal(np.asarray(y).astype(np.int64), expected(layer, x, w))),
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=1).parse_args()
    print(f"{'layer':20}{'MACs':>15}{'MACs/4096':>12}{'compute':>12}{'transfers':>12}{'utilisation':>13}{'simulated':>11}")
    rows = []
    for layer in LAYERS:
        row = measure(layer)
        rows.append(row)
        cycles = f"{row['compute_cycles']:>12,}{row['transfer_cycles']:>12,}{row['utilisation']:>13}"
        print(f"{layer.name:20}{row['macs']:>15,}{row['bound']:>12,.0f}{cycles}{row['cpu_seconds']:>9} s", flush=True)
        if not row["is_equal"]:
            raise SystemExit(f"{layer.name}: the outputs are not those of integer numpy")
    finish("genesys_layers", rows, args.json)


if __name__ == "__main__":
    main()
