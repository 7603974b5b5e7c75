"""flexmatch check PLAN --symbolic: every call of a plan's offloads judged as it is issued."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..files import write_atomically
from ..findings import write_problems
from ..options import emit_json
from ..output import document_bytes, is_live, print_lines

SCHEMA = "flexmatch.check/1"


def check_symbolic(args: argparse.Namespace) -> int:
    """Judge the calls of the plan that `args.subject` names, and enter the verdicts in it as `validated`; return the exit code.

    Raises:
        UsageError: the subject is no plan (F203).
    """
    from ...compile import is_plan, read_plan
    from ...compile.document import plan_json
    from ...compile.plan.validation import problems_of, validated_calls, validation_document
    from ...limits import DEFAULT
    from ...prove.certificates.cache import court_cache
    from ...study.checks.plan_arithmetic import arithmetic_document, arithmetic_lines, plan_arithmetic

    path = Path(args.subject)
    if not path.is_file() or not is_plan(path):
        raise UsageError(
            "F203", f"--symbolic is for plans, and {args.subject} is none", help="write one with flexmatch compile MODEL --accel NAME"
        )
    plan = read_plan(path, args.accel, DEFAULT.with_overrides(args.limits), rules=args.rules)
    arithmetic = plan_arithmetic(plan, args.data, DEFAULT.with_overrides(args.limits))
    calls = validated_calls(plan, court_cache(recheck=args.recheck), _progress if is_live(args) else lambda _: None)
    rows = validation_document(calls)
    place, document = plan_json(path)
    write_atomically({place: document_bytes({**document, "validated": rows})}, is_update=True)
    problems = problems_of(calls, str(place))
    result = {
        "schema": SCHEMA, "subject": args.subject, "kind": "plan", "parameters": {}, "good": not problems,
        "problems": [vars(p) for p in problems], "ila": None, "golden": None, "mappings": [], "rules": [], "seed": None, "validated": rows,
        **arithmetic_document(arithmetic),
    }  # fmt: skip
    emit_json(result, args.json)
    write_problems(args, problems)
    print_lines(args, [*arithmetic_lines(arithmetic), *lines(rows, verbose=args.verbose)])
    for p in problems:
        print(p, file=sys.stderr)
    return 1 if problems else 0


def _progress(name: str) -> None:
    print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)


def lines(rows: Sequence[Mapping[str, Any]], *, verbose: bool) -> list[str]:
    """Return validated calls as text: how many are shown by which method, what is not control_lines for all codes, open control."""
    counts = Counter(row["by"] for row in rows)
    counted = ", ".join(f"{counts[by]} by {ABOUT[by]}" for by in ABOUT if counts[by])
    output = [f"calls     {len(rows)} distinct: {counted}" if rows else "calls     none: the plan has no offload"]
    weak_rows = [row for row in rows if row["by"] == "sample"]
    output += [f"          {row['call']} ({', '.join(row['offloads'])}): {row['why_not_more']}" for row in (rows if verbose else weak_rows)]
    open_rows = [row for row in rows if row["unproved_control"]]
    output.append(f"control   {len(rows) - len(open_rows)} of {len(rows)} go only ways that the certificates of their operations cover")
    for row in open_rows:
        control_lines = row["unproved_control"] if verbose else row["unproved_control"][:MOST_SHOWN]
        more = len(row["unproved_control"]) - len(control_lines)
        output.append(f"          {row['call']}: {'; '.join(control_lines)}{f'; {more} more' if more else ''}")
    return output


MOST_SHOWN = 2
ABOUT = {
    "one term": "one term", "blocks": "one term of elements (block lemma)", "sample": "samples only",
    "refuted": "a difference, which refutes them",
}  # fmt: skip
