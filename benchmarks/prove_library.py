"""What certificate has each rule, mapping and model of the library, and what does it cost to judge all of them?

    python benchmarks/prove_library.py --log library.jsonl --json benchmarks/results/prove_library.json

One process judges one case after the other, nothing from the cache; processor time is that of the process. What is in the log is
not judged again, so the run can be stopped. `flexmatch prove --json FILE` gives the same verdicts by two processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from record import Row, finish, options

from rewrite_compiler.prove.court import Case, model_case, rule_case, target_cases
from rewrite_compiler.rewrite.ruleset import shipped_rules
from rewrite_compiler.target import find_target, target_names

STRENGTHS = ("all shapes:", "all shapes up to", "tested", "symbolic")


def cases() -> Iterator[Case]:
    """Yield every case of the library."""
    yield from (rule_case(r, None) for r in shipped_rules())
    for name in target_names():
        target = find_target(name)
        yield model_case(target, name)
        yield from target_cases(target, name)


def row(case: Case) -> Row:
    """Return the verdict on a case with its processor time."""
    started = time.process_time()
    found: dict[str, Any] = case.judge()
    seconds = round(time.process_time() - started, 2)
    if case.message["kind"] == "model":
        verdict = "refuted" if found["problems"] else "proved"
        return {"kind": "model", "name": case.name, "verdict": verdict, "instructions": found["instructions"], "cpu_seconds": seconds}
    kept = {key: found[key] for key in ("verdict", "strength", "evidence", "grade", "measured")}
    return {"kind": case.message["kind"], "name": case.name, **kept, "cpu_seconds": seconds}


def main() -> None:
    """Judge the library."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--log", type=Path, help="one line a verdict; what is there is not judged again")
    given = parser.parse_args()
    logged = map(json.loads, given.log.read_text().splitlines()) if given.log and given.log.exists() else ()
    known = {(r["kind"], r["name"]): r for r in logged}
    rows: list[Row] = []
    for case in cases():
        found = known.get((case.message["kind"], case.name)) or row(case)
        rows.append(found)
        if given.log and (case.message["kind"], case.name) not in known:
            with given.log.open("a") as log:
                log.write(json.dumps(found) + "\n")
        print(found["name"], found["verdict"], str(found.get("strength", ""))[:24], found["cpu_seconds"], flush=True)
    counts = {s.rstrip(":"): sum(str(r.get("strength", "")).startswith(s) for r in rows) for s in STRENGTHS}
    seconds = {k: round(sum(float(str(r["cpu_seconds"])) for r in rows if r["kind"] == k), 1) for k in ("rule", "mapping", "model")}
    summary: Row = {"cases": len(rows), "proved": sum(r["verdict"] == "proved" for r in rows), "strengths": counts, "cpu_seconds": seconds}
    print(summary)
    finish("prove_library", [summary, *rows], given.json)


if __name__ == "__main__":
    main()
