"""How far is each operation from what it means? The 3LA paper's Table 3 with the code of `flexmatch check`.

The paper gives relative errors (Frobenius) over 100 random inputs, and neither shapes nor distributions. Every operation is
measured on the operands that `check` draws, and on operands of −1 … 1, all alike.
"""

from __future__ import annotations

import time

from record import Row, finish, options

from rewrite_compiler.study.checks.accuracy import Uniform, accuracy
from rewrite_compiler.target import find_target

GATES = {"g": 4 * 64, "e": 8 * 64}
# operation in the paper → target, mapping, sizes, the paper's error in %
ROWS = (
    ("VTA GEMM", "vta", "dense", {"t": 16, "k": 64, "n": 64}, 0.00),
    (
        "HLSCNN Conv2D", "hlscnn", "conv2d",
        {"b": 1, "n": 16, "c": 16, "i": 14, "j": 14, "r": 3, "s": 3, "u": 14, "v": 14, "strides": (1, 1), "pads": (1, 1, 1, 1)}, 1.78,
    ),
    ("FlexASR LinearLayer", "flexasr", "linear", {"t": 16, "k": 64, "n": 64}, 0.84),
    ("FlexASR LSTM", "flexasr", "lstm", {"t": 10, "s": 1, "i": 64, "h": 64, **GATES}, 1.21),
    ("FlexASR LayerNorm", "flexasr", "layer_norm", {"t": 16, "n": 64, "epsilon": 1e-5}, 0.27),
    ("FlexASR MaxPool", "flexasr", "max_pool", {"u": 16, "w": 2, "n": 64}, 0.00),
    ("FlexASR MeanPool", "flexasr", "mean_pool", {"u": 16, "w": 2, "n": 64}, 1.79),
    ("FlexASR Attention", "flexasr", "attention", {"m": 1, "t": 16, "d": 64}, 4.22),
)  # fmt: skip
HEAD = f"{'operation':<22}{'paper':>8}{'as drawn':>18}{'operands held':>18}{'result rounded':>18}{'U(−1, 1) drawn':>18}{'and held':>18}"


def main() -> None:
    """Print the table and write the record."""
    parser = options(__doc__ or "", 10)
    args = parser.parse_args()
    rows: list[Row] = []
    print(f"relative error in %, mean ± deviation over {10 * args.runs} inputs\n{HEAD}")
    for title, target, name, sizes, paper in ROWS:
        configured = find_target(target)
        started = time.process_time()
        result = accuracy(configured.mappings[name], configured.ila(), sizes, groups=args.runs)
        alike = accuracy(configured.mappings[name], configured.ila(), sizes, groups=args.runs, distribution=Uniform())
        figures = {"drawn": result.drawn_errors, "held": result.held_errors, "rounded": result.rounded_errors}
        figures |= {"uniform_drawn": alike.drawn_errors, "uniform_held": alike.held_errors}
        errors_text = "".join(f"{100 * e.mean:>10.2f} ± {100 * e.deviation:<5.2f}" for e in figures.values())
        print(f"{title:<22}{paper:>8.2f}{errors_text}", flush=True)
        rows.append(
            {
                "name": title, "target": target, "mapping": name, "sizes": str(sizes), "operands": dict(result.inputs),
                "inputs": len(result.drawn_errors.values), "paper_percent": paper,
                **{f"{kind}_{key}_percent": 100 * value for kind, e in figures.items()
                   for key, value in (("mean", e.mean), ("deviation", e.deviation))},
                "cpu_seconds": time.process_time() - started,
            }
        )  # fmt: skip
    finish("table3", rows, args.json)


if __name__ == "__main__":
    main()
