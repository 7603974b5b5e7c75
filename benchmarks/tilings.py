"""How every layer of four networks is tiled: bytes of a greedy tiling, of the fewest calls, of the proven optimum, and of each tensor
moved once, which no tiling can undercut; over the links, and in the host's memory for partial sums that it adds."""

from __future__ import annotations

import lzma
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record import ROOT, Row, finish, options

from rewrite_compiler.fit import Refusal, Tiling, tile
from rewrite_compiler.fit.cheapest_calls import TilingResult, cheapest_tiling
from rewrite_compiler.fit.cost import price
from rewrite_compiler.frontend.load import load
from rewrite_compiler.target import Mapping, Resources, find_target

SHARED = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared"))
MODELS = {
    "ResNet-50": "tv_resnet50.ts17.onnx.xz",
    "MobileNet-V2": "mobilenetv2.tf2onnx.onnx.xz",
    "EfficientNet-B0": "efficientnet_nose.ts17.onnx.xz",
}
TOKENS, HIDDEN, INNER = 512, 768, 3072  # of BERT-base
OPERATIONS = (("flexasr", "linear"), ("hlscnn", "conv2d"), ("vta", "dense"))


@dataclass(frozen=True)
class Layer:
    """A layer with constant weights: sizes of its product, and of its convolution if it is one."""

    product: tuple[int, int, int]  # rows, summed, columns
    image: tuple[tuple[str, int], ...] = ()
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()


def layers_of(path: Path) -> Iterator[Layer]:
    """Yield the dense layers and the convolutions without groups of a model, batch 1."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "model.onnx"
        plain.write_bytes(lzma.decompress(path.read_bytes()))
        program = load(plain, {}).program
    for node in program.nodes:
        if node.op not in ("conv", "dense") or not program.is_constant(node.inputs[1]):
            continue
        x, w = (program.types[v].shape for v in node.inputs[:2])
        y, a = program.types[node.outputs[0]].shape, dict(node.attributes)
        if node.op == "dense":
            yield Layer((x[0], x[1], w[0]))
        elif a["group"] == 1 and a["dilations"] == (1, 1):
            sizes = dict(zip("bcijnrsuv", (*x, w[0], *w[2:], *y[2:]), strict=True))
            yield Layer((y[2] * y[3], w[1] * w[2] * w[3], w[0]), tuple(sizes.items()), a["strides"], a["pads"])


def networks() -> dict[str, Counter[Layer]]:
    """Return every layer of each network and how often it occurs."""
    layers = {name: Counter(layers_of(SHARED / "models" / "arch" / file)) for name, file in MODELS.items()}
    square = Layer((TOKENS, HIDDEN, HIDDEN))
    layers["BERT-base"] = Counter({square: 48, Layer((TOKENS, HIDDEN, INNER)): 12, Layer((TOKENS, INNER, HIDDEN)): 12})
    return layers


def sizes_for(operation: str, layer: Layer) -> tuple[dict[str, int], dict[str, Any]] | None:
    """Return sizes and attributes of a layer as an operation, None when it is none: products take convolutions as im2col."""
    if operation == "conv2d":
        return (dict(layer.image), {"strides": layer.strides, "pads": layer.pads}) if layer.image else None
    return dict(zip("tkn", layer.product, strict=True)), {}


def greedy(m: Mapping, sizes: dict[str, int], attributes: dict[str, Any]) -> Tiling | None:
    """Return the tiling that makes one dimension after the other as large as still fits, in the order of the operands' axes."""
    units = m.unit_sizes(sizes)
    chosen = dict(units)
    if m.exceeded_limit(chosen, attributes) is not None:
        return None
    for d in sizes:
        low, high = 1, -(-sizes[d] // units[d])
        while low < high:  # the largest number of units that fits
            middle = (low + high + 1) // 2
            fits = m.exceeded_limit({**chosen, d: min(middle * units[d], sizes[d])}, attributes) is None
            low, high = (middle, high) if fits else (low, middle - 1)
        chosen[d] = min(low * units[d], sizes[d])
    return Tiling(sizes, chosen)


def row(network: str, m: Mapping, layer: Layer, count: int, resources: Resources) -> Row | None:
    """Return what tiling one layer gives."""
    layer_sizes = sizes_for(m.operation, layer)
    if layer_sizes is None:
        return None
    sizes, attributes = layer_sizes
    first = tile(m, sizes, attributes)
    columns: Row = {"network": network, "operation": m.name, "occurrences": count, "sizes": {d: n for d, n in sizes.items() if n > 1}}
    started = time.process_time()
    result = cheapest_tiling(m, sizes, attributes, resources)
    seconds = time.process_time() - started
    if isinstance(result, Refusal) or isinstance(first, Refusal):
        assert isinstance(result, Refusal)
        return {**columns, "refused": str(result.limit)}
    assert isinstance(result, TilingResult)
    fewest, once = price(m, first, attributes, resources), price(m, Tiling(sizes, sizes), attributes, resources)
    simple = greedy(m, sizes, attributes)
    assert simple is not None
    eager = price(m, simple, attributes, resources)
    assert fewest is not None
    assert result.price.moved_bytes <= fewest.moved_bytes
    assert eager is not None
    assert once is not None
    return {
        **columns, "calls": result.tiling.calls, "fewest_calls": first.calls, "fewest_calls_bytes": fewest.moved_bytes,
        "greedy_calls": simple.calls, "greedy_bytes": eager.moved_bytes,
        "optimum_bytes": result.price.moved_bytes, "bound_bytes": result.bound, "each_tensor_once_bytes": once.moved_bytes,
        "proven": result.is_optimal, "tried_tiles": result.nodes, "search_processor_seconds": round(seconds, 4),
    }  # fmt: skip


def main() -> None:
    """Tile, print one line a network and operation, write every layer."""
    args = options(__doc__ or "", 1).parse_args()
    if not (SHARED / "models" / "arch").is_dir():
        sys.exit(f"the shared models are not in {SHARED}; set FLEXMATCH_SHARED")
    rows: list[Row] = []
    for network, layers in networks().items():
        for target, variant in OPERATIONS:
            chosen = find_target(target)
            resources = chosen.resources()
            assert resources is not None
            network_rows = [row(network, chosen.mappings[variant], layer, n, resources) for layer, n in layers.items()]
            mine = [r for r in network_rows if r is not None]
            rows.extend(mine)
            print_line(network, f"{target}.{variant}", [r for r in mine if "refused" not in r], sum("refused" in r for r in mine))
    finish("tilings", rows, args.json)


def print_line(network: str, operation: str, rows: list[Any], refused: int) -> None:
    """Print the sums over all layers of a network, each as often as it occurs."""
    if not rows:
        print(f"{network:>16}  {operation:>14}  no layer" + (f", {refused} refused" if refused else ""))
        return
    keys = ("greedy_bytes", "fewest_calls_bytes", "optimum_bytes", "each_tensor_once_bytes")
    total = {key: sum(r[key] * r["occurrences"] for r in rows) / 1e6 for key in keys}
    seconds = [r["search_processor_seconds"] for r in rows]
    print(
        f"{network:>16}  {operation:>14}  {len(rows):3d} layers  {refused} refused  "
        f"greedy {total['greedy_bytes']:9.1f} MB  fewest calls {total['fewest_calls_bytes']:9.1f} MB  "
        f"optimum {total['optimum_bytes']:9.1f} MB  once {total['each_tensor_once_bytes']:9.1f} MB  "
        f"proven {sum(r['proven'] for r in rows)}/{len(rows)}  {statistics.median(seconds):.3f} s median, {max(seconds):.3f} s most"
    )


if __name__ == "__main__":
    main()
