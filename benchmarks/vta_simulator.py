"""How fast VTA instructions run in the two readings: a dense layer that fills the buffers, instruction by instruction."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Sequence

import numpy as np
from record import Row, finish, options, spread

from rewrite_compiler.ila import Ila, assemble
from rewrite_compiler.ila_models.vta import build
from rewrite_compiler.ila_models.vta.config import Config

READINGS = ("oracle", "arrays")
BLOCK, SEED = 16, 1
Step = tuple[str, dict[str, int]]


def dense(m: int, k: int, n: int) -> tuple[bytes, list[Step]]:
    """Return the image and the program of out[m, n] = clip(inp[m, k] · wgt[n, k]ᵀ >> 8), all resident, in loops."""
    rng = np.random.default_rng(SEED)
    kb, nb = k // BLOCK, n // BLOCK
    inp, wgt = rng.integers(-128, 128, m * k).astype(np.int8), rng.integers(-128, 128, n * k).astype(np.int8)
    uops = [*(Config().micro_op(0, b, b) for b in range(kb)), Config().micro_op(0, 0)]
    table = np.array(uops, np.uint32).tobytes().ljust(256, b"\0")
    at = {"wgt": inp.nbytes, "uop": inp.nbytes + wgt.nbytes, "out": inp.nbytes + wgt.nbytes + len(table)}
    grid = {"iter_out": m, "iter_in": nb, "dst_factor_out": nb, "dst_factor_in": 1}
    each = {"uop_bgn": kb, "uop_end": kb + 1, **grid}
    self_ = {**each, "use_imm": 1, "src_factor_out": nb, "src_factor_in": 1}
    program = [
        ("load_uop", {"dram_base": at["uop"] // 4, "y_size": 1, "x_size": len(uops)}),
        ("load_wgt", {"dram_base": at["wgt"] // BLOCK**2, "y_size": 1, "x_size": nb * kb}),
        ("load_inp", {"y_size": 1, "x_size": m * kb, "push_next": 1}),
        ("gemm", {"reset": 1, **each, "pop_prev": 1}),
        ("gemm", {"uop_end": kb, **grid, "src_factor_out": kb, "wgt_factor_in": kb}),
        ("alu_shr", {**self_, "imm": 8}),
        ("alu_max", {**self_, "imm": -127}),
        ("alu_min", {**self_, "imm": 127, "push_next": 1}),
        ("store", {"dram_base": at["out"] // BLOCK, "y_size": 1, "x_size": m * nb, "pop_prev": 1, "push_prev": 1}),
        ("finish", {"pop_next": 1}),
    ]
    return inp.tobytes() + wgt.tobytes() + table + bytes(m * n), program


def once(model: Ila, image: bytes, program: Sequence[Step], reading: str) -> tuple[bytearray, list[float]]:
    """Run a program; return the image after it and the processor seconds of each instruction."""
    mine, seconds = bytearray(image), []
    vta = model.simulator(dram=mine, reading=reading)
    for name, fields in program:
        issue = vta._issue(0, assemble(model.instructions[name], **fields)["data"])
        start = time.thread_time()
        vta.execute(issue.instruction, issue.operands)
        seconds.append(time.thread_time() - start)
    return mine, seconds


def measure(behaviour: str, sizes: tuple[int, int, int], runs: int) -> list[Row]:
    """Run the readings in turn; the first round is not counted."""
    model = build(behaviour=behaviour)
    image, program = dense(*sizes)
    rounds = [{reading: once(model, image, program, reading) for reading in READINGS} for _ in range(runs + 1)]
    if any(r["oracle"][0] != r["arrays"][0] for r in rounds):
        raise SystemExit(f"the readings of {behaviour} differ")
    rows: list[Row] = []
    for n, (name, fields) in enumerate(program):
        times = {reading: spread([r[reading][1][n] for r in rounds[1:]]) for reading in READINGS}
        label = f"{name} (reset)" if fields.get("reset") else name
        row: Row = {"behaviour": behaviour, "instruction": label, "size": "×".join(map(str, sizes)), "seed": SEED, "runs": runs}
        rows.append(row | {f"{reading}_cpu_seconds": x for reading, x in times.items()})
    return rows


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=3)
    parser.add_argument(
        "--size", type=int, nargs=3, default=(128, 256, 256), metavar=("M", "K", "N"), help="the layer (default: 128 256 256)"
    )
    args = parser.parse_args()
    rows = [row for behaviour in ("fsim", "hls") for row in measure(behaviour, tuple(args.size), args.runs)]
    print(f"{'behaviour':10}{'instruction':16}{'oracle':>12}{'arrays':>12}{'ratio':>9}   median processor time, one thread")
    for row in rows:
        slow, fast = row["oracle_cpu_seconds"], row["arrays_cpu_seconds"]
        assert isinstance(slow, dict)
        assert isinstance(fast, dict)
        ratio = slow["median"] / fast["median"]
        print(f"{row['behaviour']:10}{row['instruction']:16}{1e3 * slow['median']:9.2f} ms{1e3 * fast['median']:9.2f} ms{ratio:8.1f}×")
    finish("vta_simulator", rows, args.json)


if __name__ == "__main__":
    main()
