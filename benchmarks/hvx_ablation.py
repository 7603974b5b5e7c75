"""What each step gains on HVX, for the 17 layers of Covenant's table: vectors, packets, unrolled loops.

Cycles are packets of the model, one each. Every step is code that computes the layer:

- scalar: one product at a time, of words: two loads, two addresses, one product that is added; one instruction a packet.
- vectorised: what the driver issues for one row and one vector of columns; one instruction a packet.
- packed: the same, with packets inside of each iteration, which ends with its sum of products.
- unrolled: what the driver issues for a block of rows and columns, with packets over all of its iterations.

Loops themselves cost nothing, as the hardware counts them. Scalar sums are not requantised, which favours them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from covenant_layers import LAYERS, Layer
from hvx_layers import Issued, columns, issued, layer_packets, packets
from record import Row, finish, options

LANES = 32  # columns of a vector
STEPS = ("scalar", "vectorised", "packed", "unrolled")
GAINS = tuple(f"gain_{step}" for step in STEPS[1:])
X, W, X_AT, W_AT, TOTAL, BIAS_AT, Y_AT = range(7)  # scalar registers


def scalar_program(products: int) -> list[Issued]:
    """Return the code of one sum of products, whose operands lie in memory as words."""
    step = {"imm_low": 4, "imm": 0}
    at_once = {"offset_low": 0, "offset": 0}
    body: list[Issued] = [
        ("memw_load", {"rd": X, "rs": X_AT, **at_once}), ("memw_load", {"rd": W, "rs": W_AT, **at_once}),
        ("mpyi_acc", {"rd": TOTAL, "rs": X, "rt": W}),
        ("add_imm", {"rd": X_AT, "rs": X_AT, **step}), ("add_imm", {"rd": W_AT, "rs": W_AT, **step}),
    ]  # fmt: skip
    started: Issued = ("memw_load", {"rd": TOTAL, "rs": BIAS_AT, **at_once})
    return [started, *body * products, ("memw_store", {"rt": TOTAL, "rs": Y_AT, "offset_low": 0, "offset_mid": 0, "offset": 0})]


def iterations(program: Sequence[Issued]) -> list[list[Issued]]:
    """Return the parts of a program that end with a sum of products, and what is left."""
    parts: list[list[Issued]] = [[]]
    for name, operands in program:
        parts[-1].append((name, operands))
        if name.startswith("vrmpy"):
            parts.append([])
    return [part for part in parts if part]


def vector_program(layer: Layer, width: int) -> list[Issued]:
    """Return what the driver issues for one row of results and some columns."""
    c, kernel = layer.channels, layer.kernel
    if layer.is_dense:
        return issued("dense", {"x": (1, c), "w": (width, c), "b": (width,)})
    shapes = {"x": (1, c, kernel, kernel), "w": (width, c, kernel, kernel), "b": (width,)}
    return issued("conv2d", shapes, strides=layer.sizes["strides"], pads=(0, 0, 0, 0))


def measure(layer: Layer) -> Row:
    """Return the packets of each step and what it gains over the one before."""
    rows, products = layer.times * layer.sizes["u"] * layer.sizes["v"], layer.channels * layer.kernel**2
    single = [(vector_program(layer, width), count) for width, count in columns(layer.filters, LANES)]
    used = {
        "scalar": rows * layer.filters * len(scalar_program(products)),
        "vectorised": rows * sum(count * len(program) for program, count in single),
        "packed": rows * sum(count * sum(len(packets(part)) for part in iterations(program)) for program, count in single),
        "unrolled": layer_packets(layer),
    }
    gains = {name: round(used[before] / used[step], 3) for name, (before, step) in zip(GAINS, pairwise(STEPS), strict=True)}
    return {"layer": layer.name, **used, **gains, "gain": round(used["scalar"] / used["unrolled"], 1)}


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=1).parse_args()
    print(f"{'layer':22}" + "".join(f"{step:>17}" for step in STEPS) + "".join(f"{step:>12}" for step in (*STEPS[1:], "together")))
    names, found = (*GAINS, "gain"), []
    for layer in LAYERS:
        r = measure(layer)
        found.append(r)
        print(f"{r['layer']:22}" + "".join(f"{r[step]:>17,}" for step in STEPS) + "".join(f"{r[name]:>11}×" for name in names), flush=True)
    means = [statistics.geometric_mean(float(str(r[name])) for r in found) for name in names]
    print(f"{'geometric mean':22}{'':{17 * len(STEPS)}}" + "".join(f"{mean:>11.2f}×" for mean in means))
    least = min(float(str(r[name])) for r in found for name in names)
    finish("hvx_ablation", found, args.json)
    if least <= 1:
        raise SystemExit(f"a step gains nothing: {least}")


if __name__ == "__main__":
    main()
