"""The 17 layers of the Covenant paper's table on GeneSys of 64 × 64: their outputs beside integer numpy, cycles beside MACs / 4096.

A dense layer runs as a 1 × 1 convolution over its rows, whose tiles are bands of them.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from covenant_layers import LAYERS, Layer
from record import Row, finish, options

from rewrite_compiler.target import find_target, simulated_device

DESIGN = "genesys:array_n=64,ibuf_depth=2048,wbuf_depth=4096,obuf_depth=2048,bbuf_depth=1024,vmem_depth=2048"
MACS_A_CYCLE = 64 * 64


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
    print(f"{'layer':22}{'MACs':>15}{'MACs/4096':>12}{'compute':>12}{'transfers':>12}{'utilisation':>13}{'simulated':>11}")
    rows = []
    for layer in LAYERS:
        row = measure(layer)
        rows.append(row)
        cycles = f"{row['compute_cycles']:>12,}{row['transfer_cycles']:>12,}{row['utilisation']:>13}"
        print(f"{layer.name:22}{row['macs']:>15,}{row['bound']:>12,.0f}{cycles}{row['cpu_seconds']:>9} s", flush=True)
        if not row["is_equal"]:
            raise SystemExit(f"{layer.name}: the outputs are not those of integer numpy")
    finish("genesys_layers", rows, args.json)


if __name__ == "__main__":
    main()
