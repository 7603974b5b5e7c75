"""What certificate has each rule, mapping and model of the library, and what does it cost to judge all of them?

    python benchmarks/prove_library.py --log library.jsonl --command --json benchmarks/results/prove_library.json

One process judges one case after the other, nothing from the cache; processor time is that of the process. What is in the log is
not judged again, so the run can be stopped. With `--command` the verb itself is measured, too: `flexmatch prove` judges the same
cases by two processes, first with an empty cache, then from it; its processor time is that of all its processes.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from record import Row, finish, options

from rewrite_compiler.garbage import RARE, rare_collection
from rewrite_compiler.prove.certificates.judge import Case, model_case, rule_case, target_cases
from rewrite_compiler.rewrite.ruleset import every_rule
from rewrite_compiler.target import find_target, target_names

STRENGTHS = ("all shapes:", "all shapes up to", "tested", "symbolic")


def cases() -> Iterator[Case]:
    """Yield every case of the library."""
    yield from (rule_case(r, None) for r in every_rule())
    for name in target_names():
        target = find_target(name)
        yield model_case(target, name)
        yield from target_cases(target, name)


def row(case: Case) -> Row:
    """Return the verdict on a case with its processor time."""
    started = time.process_time()
    with rare_collection(RARE):
        found: dict[str, Any] = case.judge()
    seconds = round(time.process_time() - started, 2)
    if case.message["kind"] == "model":
        verdict = "refuted" if found["problems"] else "proved"
        return {"kind": "model", "name": case.name, "verdict": verdict, "instructions": found["instructions"], "cpu_seconds": seconds}
    kept = {key: found[key] for key in ("verdict", "strength", "evidence", "grade", "measured")}
    return {"kind": case.message["kind"], "name": case.name, **kept, "cpu_seconds": seconds}


def command(folder: str) -> Iterator[Row]:
    """Yield what `flexmatch prove` costs with an empty cache, and from it."""
    verb = [str(Path(sys.executable).with_name("flexmatch")), "prove", "--json", str(Path(folder) / "verdicts.json")]
    for cache in ("empty", "full"):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(verb, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "FLEXMATCH_CACHE": folder})
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield {"kind": "command", "name": "flexmatch prove", "cache": cache, "seconds": round(wall, 2), "cpu_seconds": round(seconds, 2)}


def main() -> None:
    """Judge the library."""
    parser = options(__doc__ or "", 1)
    parser.add_argument("--log", type=Path, help="one line a verdict; what is there is not judged again")
    parser.add_argument("--command", action="store_true", help="measure `flexmatch prove`, too")
    args = parser.parse_args()
    measured: list[Row] = []
    if args.command:
        with tempfile.TemporaryDirectory() as folder:
            measured = [*command(folder)]
            print(*measured, sep="\n", flush=True)
    logged = map(json.loads, args.log.read_text().splitlines()) if args.log and args.log.exists() else ()
    known = {(r["kind"], r["name"]): r for r in logged}
    rows: list[Row] = []
    for case in cases():
        found = known.get((case.message["kind"], case.name)) or row(case)
        rows.append(found)
        if args.log and (case.message["kind"], case.name) not in known:
            with args.log.open("a") as log:
                log.write(json.dumps(found) + "\n")
        print(found["name"], found["verdict"], str(found.get("strength", ""))[:24], found["cpu_seconds"], flush=True)
    counts = {s.rstrip(":"): sum(str(r.get("strength", "")).startswith(s) for r in rows) for s in STRENGTHS}
    seconds = {k: round(sum(float(str(r["cpu_seconds"])) for r in rows if r["kind"] == k), 1) for k in ("rule", "mapping", "model")}
    summary: Row = {"cases": len(rows), "proved": sum(r["verdict"] == "proved" for r in rows), "strengths": counts, "cpu_seconds": seconds}
    print(summary)
    finish("prove_library", [summary, *measured, *rows], args.json)


if __name__ == "__main__":
    main()
