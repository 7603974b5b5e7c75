"""What operators cost on the host: processor nanoseconds a call, a multiply-accumulate and an element in onnxruntime, one thread.

Beside them the table that ships, whose figures were measured once in this way and do not follow the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from record import Row, finish, options, spread

from rewrite_compiler.fit.host import SHIPPED
from rewrite_compiler.frontend.graph.emit import to_onnx
from rewrite_compiler.hostrun import Session
from rewrite_compiler.ir.program import Builder, total_macs
from rewrite_compiler.ir.types import TensorType

SEED, BATCH = 11, 0.02  # seconds of one measurement
DEPTHWISE = "depthwise conv"
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Case:
    """One operator on operands of given shapes, all but the first constant; what its time is divided by."""

    op: str
    shapes: Shapes
    per: str = "element"
    attributes: Mapping[str, Any] | None = None
    chain: int = 1  # so many in a row


ROW, IMAGE = (256, 1024), (1, 64, 56, 56)
CASES = (
    Case("tanh", ((1, 16),), "call", chain=256),
    Case("dense", (ROW, (1024, 1024)), "mac"),
    Case("matmul", ((8, 128, 128), (8, 128, 128)), "mac"),
    Case("conv", (IMAGE, (64, 64, 3, 3)), "mac", {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}),
    Case("conv", (IMAGE, (64, 1, 3, 3)), "mac", {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 64}),
    *(Case(op, (ROW,)) for op in ("relu", "exp", "tanh", "erf", "sigmoid", "sqrt")),
    *(Case(op, (ROW, ROW)) for op in ("add", "mul", "div")),
    Case("softmax", (ROW,), attributes={"axis": 1}),
    Case("layer_norm", (ROW, (1024,), (1024,)), attributes={"axis": 1, "epsilon": 1e-5}),
    Case("max_pool", (IMAGE,), attributes={"kernel": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}),
    Case("reduce_mean", (ROW,), attributes={"axes": (1,), "keepdims": 0}),
    Case("transpose", (ROW,), attributes={"perm": (1, 0)}),
)


def session_of(case: Case) -> tuple[Callable[[], object], int, int]:
    """Return a run of the operator, its multiply-accumulates and the elements of its largest tensor."""
    rng = np.random.default_rng(SEED)
    data = [rng.uniform(0.5, 1.5, s).astype(np.float32) for s in case.shapes]
    builder = Builder(case.op)
    x = builder.input("x", TensorType(case.shapes[0], "float32"))
    y = x
    for _ in range(case.chain):
        y = builder.apply(case.op, [y, *(builder.constant(d) for d in data[1:])], dict(case.attributes or {}))[0]
    program = builder.finish([y])
    session = Session(to_onnx(program))
    name = session.inputs[0].name
    return (lambda: session.run({name: data[0]})), total_macs(program), max(program.types[v].size for v in (x, *program.outputs))


def shipped_picoseconds(label: str, per: str) -> int:
    """Return what the table that ships says of an operator."""
    if per == "call":
        return SHIPPED.call
    return SHIPPED.mac["grouped" if label == DEPTHWISE else label] if per == "mac" else SHIPPED.element[label]


def measured(run: Callable[[], object], runs: int) -> list[float]:
    """Return processor nanoseconds of one run, measured several times over a batch of runs; the first batch is not counted."""
    started = time.process_time()
    run()
    count = max(1, int(BATCH / max(time.process_time() - started, 1e-5)))
    rows = []
    for _ in range(runs + 1):
        started = time.process_time()
        for _ in range(count):
            run()
        rows.append((time.process_time() - started) / count * 1e9)
    return rows[1:]


def main() -> None:
    """Measure and print."""
    args = options(__doc__ or "", 7).parse_args()
    rows: list[Row] = []
    for case in CASES:
        run, macs, elements = session_of(case)
        units = {"call": case.chain, "mac": macs, "element": elements}[case.per]
        times = spread([t / units for t in measured(run, args.runs)])
        label = DEPTHWISE if (case.attributes or {}).get("group", 1) > 1 else case.op
        shipped = shipped_picoseconds(label, case.per) / 1000
        rows.append({
            "operator": label, "per": case.per, "units": units, "seed": SEED, "threads": 1, "shipped_nanoseconds": shipped,
            **{f"processor_nanoseconds_{key}": round(value, 4) for key, value in times.items()},
        })  # fmt: skip
        print(f"{label:>15}  {times['median']:10.4f} ns a {case.per}  ({times['low']:.4f} … {times['high']:.4f})  shipped {shipped:.4f}")
    finish("host_costs", rows, args.json)


if __name__ == "__main__":
    main()
