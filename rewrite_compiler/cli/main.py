"""The command line: finds the verb, runs it, and turns every problem into one sentence and an exit code."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from ..errors import BUDGET, REFUSED, FlexmatchError, Problem, UsageError, did_you_mean, printable
from ..intake import forget_opened_files
from ..user_code import error_text, user_failure
from .applications import model_file
from .error_codes import CODES
from .output import print_error, print_text
from .signals import INTERRUPTED, handle_signals
from .verb_table import VERBS, overview

INTERNAL = 5
OPTION_OF = {"number-of-samples": "samples", "number-of-threads": "threads"}  # a quantity to its option
USER_REMEDY = "correct the line, or return a plain object of the kind that is expected there"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; without `arguments` this process is the command and signals end it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        handle_signals()
    # one thread a worker: the co-simulator runs its own
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    debug = "--debug" in words
    forget_opened_files()
    try:
        return _dispatch([a for a in words if a != "--debug"])
    except FlexmatchError as error:
        if debug:
            raise
        return _refused(error.problem, error.exit_code, words)
    except KeyboardInterrupt:
        print_error("interrupted: no file is half-written; what was written before is complete")
        return INTERRUPTED
    except MemoryError:
        if debug:
            raise
        return _refused(Problem("X101", "there is not enough memory for this command"), BUDGET, words)
    except (Exception, SystemExit) as error:
        if debug:
            raise
        return _unexpected(error, words)


def _unexpected(error: BaseException, words: Sequence[str]) -> int:
    """Say whose an exception is that is no refusal: a file of the user's, the file system's, or a bug."""
    place = user_failure(error)
    if place:  # an object of that file was asked for something, and its class failed
        return _refused(
            Problem("I102", f"an object of this file must not end with {error_text(error)}", place, USER_REMEDY), REFUSED, words
        )
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes):  # what a file system answers is no bug of ours
        return _refused(system_problem(error), UsageError.exit_code, words)
    return _refused(Problem("X100", f"internal error: {type(error).__name__}: {error}"), INTERNAL, words)


def _refused(problem: Problem, code: int, words: Sequence[str]) -> int:
    """Say what is wrong and what to do, the code's own remedy when the problem has none."""
    problem_with_help = problem if problem.help else Problem(problem.code, problem.sentence, problem.place, _remedy(problem, words))
    print_error(str(problem_with_help))
    return code


def system_problem(error: OSError) -> Problem:
    """Return an operating-system error about a file as a problem (F100)."""
    message = (error.strerror or str(error)).lower()
    return Problem("F100", f"the file cannot be used: {message}", printable(os.fsdecode(error.filename)))


def _remedy(problem: Problem, words: Sequence[str]) -> str:
    """Return the remedy of a code; of a refused value what the option that the sentence names or begins with is for."""
    verb = words[0] if words and words[0] in VERBS else "compile"
    if problem.code == "F203":
        from .options import described_parser

        first = "limits" if problem.sentence.startswith("limit ") else "-".join(problem.sentence.split(" must be ")[0].lower().split())
        options = re.findall(r"--[a-z][a-z-]*", problem.sentence) or [f"--{OPTION_OF.get(first, first)}"]
        purpose = described_parser(verb_module(verb).run).purpose(options)
        if purpose:
            return purpose
    remedy = CODES[problem.code][1] if problem.code in CODES else "flexmatch --help lists the verbs"  # a code of somebody's own target
    return remedy.replace("VERB", verb)


def _dispatch(words: list[str]) -> int:
    """Run the verb; SystemExit comes from --help and from standard output that nobody reads."""
    try:
        return _run(words)
    except SystemExit as end:
        if user_failure(end):
            raise
        return int(end.code or 0)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print_text(overview())
        return 0
    if words[0] == "--version":
        from importlib.metadata import version

        print_text(f"flexmatch {version('flexmatch')}")
        return 0
    verb = words[0] if words[0] in VERBS else "compile"
    if verb != words[0]:
        _check_verb(words)
    return int(verb_module(verb).run(words[1:] if words[0] in VERBS else words))


def verb_module(verb: str) -> ModuleType:
    """Return the module that runs a verb."""
    return importlib.import_module(f".verbs.{VERBS[verb].module}", __package__)


def _check_verb(words: Sequence[str]) -> None:
    """Refuse a first word that is no verb and cannot be the model of the bare form."""
    word = words[0]
    if not word.startswith("-") and model_file(word) == word and "." not in word and "/" not in word and not Path(word).exists():
        verbs = f"verbs: {', '.join(VERBS)}; or give a model"
        raise UsageError("F203", f'there is no verb "{word}"', help=" ".join(filter(None, (did_you_mean(word, VERBS), verbs))))


if __name__ == "__main__":
    sys.exit(main())
