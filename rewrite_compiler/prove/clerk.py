"""A process of the court: reads one case a line, answers with its verdict.

python -m rewrite_compiler.prove.clerk < cases
"""

from __future__ import annotations

import json
import sys

from .court import answer


def main() -> int:
    """Judge until there are no more cases."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
