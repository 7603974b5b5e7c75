"""Does any mutant, random model or random limit make the tool crash, hang, accept silently, or compute something else?

Findings are written as files beside the record, to become cases of tests/bad_inputs.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from record import ROOT, Row, finish, options

sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

from generate import byte_mutant, structural_mutant, valid_model  # noqa: E402
from harness import Finding, compiled, imported  # noqa: E402

from rewrite_compiler.limits import DEFAULT  # noqa: E402

SEEDS = 40  # starting models of mutants
SLOW = 5.0  # seconds after which a case counts as a hang


@dataclass(frozen=True)
class Campaign:
    """One kind of case: how many by default, and what makes and judges the case of a seed."""

    name: str
    count: int
    judge: Callable[[int, Path], str | Finding]


def _bytes(seed: int, path: Path) -> str | Finding:
    path.write_bytes(byte_mutant(valid_model(seed % SEEDS).SerializeToString(), seed))
    return imported(path)


def _structure(seed: int, path: Path) -> str | Finding:
    path.write_bytes(structural_mutant(valid_model(seed % SEEDS), seed).SerializeToString())
    return imported(path)


def _model(seed: int, path: Path) -> str | Finding:
    path.write_bytes(valid_model(seed, 40).SerializeToString())
    return imported(path)


def _plan(seed: int, path: Path) -> str | Finding:
    path.write_bytes(valid_model(seed, 40).SerializeToString())
    return compiled(path, random.Random(seed).choice((("flexasr",), ("hlscnn",), ("flexasr", "hlscnn"))))


def _limit(seed: int, path: Path) -> str | Finding:
    rng = random.Random(seed)
    limits = replace(DEFAULT, e_nodes=rng.choice((1, 10, 100, 1000)), rounds=rng.randint(1, 4), extraction_seconds=rng.choice((1, 60)))
    path.write_bytes(valid_model(seed).SerializeToString())
    return compiled(path, limits=limits)


CAMPAIGNS = (
    Campaign("byte mutants imported", 50_000, _bytes), Campaign("structural mutants imported", 200_000, _structure),
    Campaign("random models imported", 20_000, _model), Campaign("random models compiled", 1_000, _plan),
    Campaign("random limits", 200, _limit),
)  # fmt: skip


def run(campaign: Campaign, count: int, start: int, findings: Path) -> Row:
    """Try the cases of a campaign and keep what must not happen."""
    outcomes: Counter[str] = Counter()
    slowest, found, began = 0.0, 0, time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        for seed in range(start, start + count):
            at = time.process_time()
            outcome = campaign.judge(seed, path)
            seconds = time.process_time() - at
            slowest = max(slowest, seconds)
            if seconds > SLOW and not isinstance(outcome, Finding):
                outcome = Finding(f"took {seconds:.1f} s", path.read_bytes())
            if isinstance(outcome, Finding):
                found += 1
                findings.mkdir(parents=True, exist_ok=True)
                (findings / f"{campaign.name.split()[0]}_{seed}.onnx").write_bytes(outcome.model)
                print(f"  seed {seed}: {outcome.what}")
                continue
            outcomes[outcome] += 1
    return {
        "case": campaign.name, "runs": count, "first_seed": start, "findings": found, "outcomes": dict(sorted(outcomes.items())),
        "slowest_seconds": round(slowest, 2), "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def main() -> None:
    """Run every campaign, or those named, and write the record."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--only", default="", metavar="WORD", help="campaigns whose name has this word")
    parser.add_argument("--count", type=int, default=0, metavar="N", help="cases of each campaign (default: the table's)")
    parser.add_argument("--start", type=int, default=0, metavar="SEED", help="first seed (default 0)")
    given = parser.parse_args()
    chosen = [c for c in CAMPAIGNS if given.only in c.name]
    rows: list[Row] = []
    for c in chosen:
        rows.append(run(c, given.count or c.count, given.start, Path("findings")))
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    finish("reliability", rows, given.json)


if __name__ == "__main__":
    main()
