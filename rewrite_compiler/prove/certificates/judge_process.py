"""A worker process: reads one case a line, answers with its verdict.

python -m rewrite_compiler.prove.certificates.judge_process < cases
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from ...child_process import die_with_parent
from ...errors import FlexmatchError
from ...garbage import RARE, rare_collection
from .judge import judge_message


def main() -> int:
    """Judge the cases on standard input, one a line, until its end or that of the process which asks."""
    die_with_parent()
    with rare_collection(RARE):
        for line in sys.stdin:
            try:
                reply = judge_message(json.loads(line))
            except FlexmatchError as refusal:
                reply = {"refused": asdict(refusal.problem)}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
