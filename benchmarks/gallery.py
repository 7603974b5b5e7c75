"""What flexible matching finds in the architectures of the gallery on FlexASR, and the time of each phase."""

from __future__ import annotations

import tempfile
from pathlib import Path

from record import Row, finish, options, spread

from rewrite_compiler.apps import GALLERY, Architecture
from rewrite_compiler.compile import compile_model


def measure(a: Architecture, runs: int) -> Row:
    """Build a model once and compile it several times."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{a.name}.onnx"
        path.write_bytes(a.build().SerializeToString())
        plans = [compile_model(path, ["flexasr"]) for _ in range(runs)]
    plan = plans[-1]
    if plan.counts["flexasr"] != dict(a.offloads):
        raise SystemExit(f"{a.name}: {plan.counts['flexasr']} found, {dict(a.offloads)} expected")
    phases = {phase: spread([float(p.run["seconds"][phase]) for p in plans]) for phase in ("load", "match")}
    return {
        "name": a.name, "runs": runs, "operators": plan.model["ops"],
        "offloads": plan.counts["flexasr"], "exact": plan.exact_counts["flexasr"],
        "e_nodes": plan.egraph["e_nodes"], "gap": plan.extraction["gap"], **{f"{phase}_seconds": s for phase, s in phases.items()},
    }  # fmt: skip


def main() -> None:
    """Run the command line."""
    args = options(__doc__ or "", runs=5).parse_args()
    rows = []
    print(f"{'architecture':16}{'operators':>10}{'e-nodes':>9}{'load':>9}{'match':>9}  offloads (exact)")
    for a in GALLERY:
        rows.append(row := measure(a, args.runs))
        load, match = (row[f"{phase}_seconds"] for phase in ("load", "match"))
        assert isinstance(load, dict)
        assert isinstance(match, dict)
        offloads, exact = (", ".join(f"{n} {op}" for op, n in dict(row[k]).items()) or "none" for k in ("offloads", "exact"))  # type: ignore[call-overload]
        print(f"{a.name:16}{row['operators']:>10}{row['e_nodes']:>9}{load['median']:7.2f} s{match['median']:7.2f} s  {offloads} ({exact})")
    finish("gallery", rows, args.json)


if __name__ == "__main__":
    main()
