"""How long do matching and extraction take, what do they use, and how do they grow with the number of equal layers?

Processor seconds of this process and, without its imports, of the one that saturates; beside them onnxscript's rewriter with its
default rules on the same file, which the extra `test` installs. Every plan must be a proven optimum.
"""

from __future__ import annotations

import lzma
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import onnx
from record import ROOT, Row, finish, fresh_answers, options, spread
from transformer import encoder

from rewrite_compiler.compile.match import match
from rewrite_compiler.egraph import prepare
from rewrite_compiler.frontend.load import load
from rewrite_compiler.limits import DEFAULT
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import find_target

SHARED = {"ResNet-50": "tv_resnet50.ts17", "EfficientNet": "efficientnet_nose.ts17", "Transformer": "transformer.dyn18"}
LAYERS = (2, 4, 12, 64)
Made = TypeVar("Made")


def models(scratch: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and files."""
    folder = Path(os.environ.get("FLEXMATCH_SHARED", ROOT.parent / "shared")) / "models" / "arch"
    for name, file in SHARED.items():
        path = scratch / f"{file}.onnx"
        path.write_bytes(lzma.decompress((folder / f"{file}.onnx.xz").read_bytes()))
        yield name, path
    for layers in LAYERS:
        path = scratch / f"encoder_{layers}.onnx"
        onnx.save(encoder(layers), str(path))
        yield f"BERT, {layers} layers", path
    sys.path.insert(0, str(ROOT / "tests" / "rules"))
    from unrolled import saved, unrolled

    for steps in (35, 100, 500):
        path = scratch / f"lstm_{steps}.onnx"
        saved(unrolled("separate", steps), scratch).rename(path)
        yield f"LSTM, {steps} steps", path


def processor_seconds(work: Callable[[], Made]) -> tuple[float, Made]:
    """Return processor seconds of this process and what the work returns."""
    here = time.process_time()
    made = work()
    return time.process_time() - here, made


def rewriter_seconds(path: Path) -> float | str:
    """Return what onnxscript's rewriter needs, or why it cannot run."""
    try:
        from onnxscript import rewriter
    except ImportError as error:
        return f"onnxscript cannot be imported: {error}"
    model = onnx.load(str(path))
    return processor_seconds(lambda: rewriter.rewrite(model))[0]


def measure(name: str, path: Path, target: str, runs: int) -> Row:
    """Return the medians for one model."""
    loading, loaded = processor_seconds(lambda: load(path))
    p = loaded.program
    mappings, rules = list(find_target(target).mappings.values()), shipped_rules()
    here, children, walls = [], [], []
    for _ in range(runs):
        prepare()
        started = time.perf_counter()
        with fresh_answers():
            mine, made = processor_seconds(lambda: match(p, rules, mappings, DEFAULT))
        walls.append(time.perf_counter() - started)
        here.append(mine)
        children.append(made.saturation.seconds)
    s, e = made.saturation, made.extraction
    return {
        "name": name, "target": target, "operators": len(p.nodes), "regions": s.regions, "forms": s.forms, "e_nodes": s.graph.e_nodes,
        "load_cpu_seconds": loading, "match_cpu_seconds": spread(here), "saturation_cpu_seconds": spread(children),
        "match_wall_seconds": spread(walls), "status": e.status, "gap": e.gap,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "child_peak_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, "onnxscript_cpu_seconds": rewriter_seconds(path),
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    parser = options(__doc__ or "", runs=3)
    parser.add_argument("--target", default="flexasr", help="the accelerator (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="NAME", help="models whose name has this in it")
    given = parser.parse_args()
    rows: list[Row] = []
    columns = f"{'operators':>10}{'regions':>8}{'forms':>6}{'here s':>8}{'child s':>8}{'wall s':>8}{'onnxscript s':>14}"
    print(f"{'model':18}{columns}  status")
    with TemporaryDirectory() as scratch:
        for name, path in models(Path(scratch)):
            if given.only not in name:
                continue
            rows.append(row := measure(name, path, given.target, given.runs))
            middle = [row[k]["median"] for k in ("match_cpu_seconds", "saturation_cpu_seconds", "match_wall_seconds")]  # type: ignore[index]
            other = row["onnxscript_cpu_seconds"]
            shown = f"{other:.2f}" if isinstance(other, float) else "not there"
            counts = f"{row['operators']!s:>10}{row['regions']!s:>8}{row['forms']!s:>6}"
            print(f"{name:18}{counts}{''.join(f'{m:8.2f}' for m in middle)}{shown:>14}  {row['status']}", flush=True)
    finish("matching", rows, given.json)
    raise SystemExit(int(any(row["status"] != "optimal" for row in rows)))


if __name__ == "__main__":
    main()
