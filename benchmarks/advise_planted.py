"""Does `advise` find the change that was planted? Designs of VTA with one buffer too small for a layer, all others large."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from record import Row, finish, options

from rewrite_compiler.compile import Options
from rewrite_compiler.frontend.graph.emit import to_onnx
from rewrite_compiler.ir.program import Builder
from rewrite_compiler.ir.types import TensorType
from rewrite_compiler.study.designs.advise import Advice, advise

SEED = 41
LARGE = {"log_inp_buffer": 14, "log_wgt_buffer": 17, "log_acc_buffer": 16}
SMALLEST = {"log_inp_buffer": 10, "log_wgt_buffer": 12, "log_acc_buffer": 12}
BLOCK = 16


def needed(rows: int, inner: int, columns: int) -> dict[str, int]:
    """Return the bytes that a product takes in each buffer."""
    k, n = -(-inner // BLOCK), -(-columns // BLOCK)
    return {"log_inp_buffer": rows * k * BLOCK, "log_wgt_buffer": k * n * BLOCK * BLOCK, "log_acc_buffer": rows * n * BLOCK * 4}


def planted(r: random.Random) -> tuple[tuple[int, int, int], str, int]:
    """Return a layer, a buffer, and its size with which it holds at most half of what the layer needs; the others hold it whole."""
    while True:
        sizes = r.randint(8, 128), r.randint(64, 384), r.randint(64, 384)
        needs = needed(*sizes)
        name = r.choice(sorted(LARGE))
        short = (needs[name] - 1).bit_length() - r.randint(1, 2)
        if short >= SMALLEST[name] and all(n <= 1 << LARGE[dimension] for dimension, n in needs.items()):
            return sizes, name, short


def advice(sizes: tuple[int, int, int], name: str, short: int) -> Advice:
    """Return what `advise` says about a layer on a design."""
    rows, inner, columns = sizes
    builder = Builder("layer")
    x = builder.input("x", TensorType((rows, inner), "float32"))
    w = builder.constant(np.random.default_rng(SEED).standard_normal((columns, inner)).astype(np.float32))
    program = builder.finish(builder.apply("dense", [x, w], {}))
    design = ",".join(f"{key}={short if key == name else value}" for key, value in LARGE.items())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        path.write_bytes(to_onnx(program))
        return advise([path], f"vta:{design}", Options(objective="bytes"))


def main() -> None:
    """Plant, ask, count."""
    args = options(__doc__ or "", 30).parse_args()
    r = random.Random(SEED)
    rows: list[Row] = []
    for number in range(args.runs):
        sizes, name, short = planted(r)
        started = time.process_time()
        saved = advice(sizes, name, short)
        first = saved.ranked[0].change
        assert first is not None
        hit = (first.kind, first.name, first.after) == ("parameter", name, str(short + 1))
        rows.append({
            "case": number, "sizes": list(sizes), "planted": name, "log2_bytes": short, "first": str(first), "is_first": hit,
            "changes": len(saved.ranked), "seed": SEED, "processor_seconds": round(time.process_time() - started, 2),
        })  # fmt: skip
        print(f"{number:3d}  {sizes}  {name}={short}  {'first' if hit else 'NOT FIRST'}: {first}")
    finish("advise_planted", rows, args.json)
    share = sum(bool(row["is_first"]) for row in rows) / len(rows)
    print(f"the planted change is first in {100 * share:.0f}% of {len(rows)} cases")
    if share < 0.8:
        sys.exit("advise misses too many planted changes")


if __name__ == "__main__":
    main()
