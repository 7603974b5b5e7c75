"""The command line: finds the verb, runs it, and turns every problem into one sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence

from ..errors import FlexmatchError
from .verbs import VERBS, overview

INTERNAL, INTERRUPTED, TERMINATED = 5, 130, 143


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # one thread a worker: the co-simulator runs its own
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    debug = "--debug" in given
    given = [a for a in given if a != "--debug"]
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return _dispatch(given)
    except FlexmatchError as error:
        if debug:
            raise
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; files written so far are complete", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
        return 0
    except Exception as error:
        if debug:
            raise
        print(f"error[X100]: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print("  help: this is a bug of flexmatch; run again with --debug and report what it prints", file=sys.stderr)
        return INTERNAL


def _terminated(_signal: int, _frame: object) -> None:
    print("terminated; files written so far are complete", file=sys.stderr)
    sys.exit(TERMINATED)


def _dispatch(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(overview())
        return 0
    if given[0] == "--version":
        from importlib.metadata import version

        print(f"flexmatch {version('rewrite-compiler')}")
        return 0
    verb = given[0] if given[0] in VERBS else "compile"
    module = importlib.import_module(f".{VERBS[verb].module}", __package__)
    return int(module.run(given[1:] if given[0] in VERBS else given))


if __name__ == "__main__":
    sys.exit(main())
