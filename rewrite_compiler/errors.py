"""Refusals: one sentence, its place, one remedy, and the exit code of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

DONE, NO, USAGE, REFUSED, BUDGET, INTERNAL = 0, 1, 2, 3, 4, 5
INTERRUPTED, TERMINATED = 130, 143
TARGET_FORMS = "a name of `flexmatch list`, the path of a Python file, or a Target"  # what names an accelerator
MAX_EDITS = 2  # between a name that does not exist and one that may be meant


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: code, place, sentence, remedy."""

    code: str
    sentence: str
    place: str = ""
    help: str = ""

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        remedy = f"\n  help: {self.help}" if self.help else ""
        return f"{place}error[{self.code}]: {self.sentence}{remedy}"


class FlexmatchError(Exception):
    """A refusal the user can act on; the command line prints it and exits with `exit_code`."""

    exit_code = REFUSED

    def __init__(self, code: str, sentence: str, *, place: str = "", help: str = "") -> None:
        self.problem = Problem(code, printable(sentence), printable(place), printable(help))
        super().__init__(str(self.problem))

    def __reduce__(self) -> tuple[Callable[[], FlexmatchError], tuple[()]]:
        return partial(_refusal_of, type(self), self.problem), ()

    def at(self, place: str) -> FlexmatchError:
        """Return the same refusal located at `place`, unless it already has a place."""
        if self.problem.place:
            return self
        return _refusal_of(type(self), replace(self.problem, place=printable(place)))


class UsageError(FlexmatchError):
    """The command itself is wrong: a flag, a name, a missing file."""

    exit_code = USAGE


class InputError(FlexmatchError):
    """A file was read and is refused: malformed, unsafe or over a limit."""

    exit_code = REFUSED


class BudgetError(FlexmatchError):
    """A limit was reached and nothing usable was left."""

    exit_code = BUDGET


class AnswerNo(FlexmatchError):
    """The work was finished and the answer is no."""

    exit_code = NO


class SpecError(InputError):
    """A specification (term, ILA, target, rule) breaks its own contract."""


def _refusal_of(kind: type[FlexmatchError], p: Problem) -> FlexmatchError:
    """Return the refusal of a kind for a problem, whatever arguments the kind itself is made from."""
    refusal = kind.__new__(kind)
    FlexmatchError.__init__(refusal, p.code, p.sentence, place=p.place, help=p.help)
    return refusal


def require_type(value: object, kinds: tuple[type, ...], subject: str, expected: str) -> None:
    """Require a value of these types where a user's Python calls.

    Raises:
        UsageError: F203, it has another type.
    """
    if not isinstance(value, kinds):
        raise UsageError("F203", f"{subject} must be {expected}, not {type(value).__qualname__}")


def each_of(values: object, kinds: tuple[type, ...], subject: str, expected: str) -> list[Any]:
    """Return one value of these types, or several in an order, as a list.

    Raises:
        UsageError: F203, a value has another type.
    """
    is_one = isinstance(values, (*kinds, bytes, Mapping, Set)) or not isinstance(values, Iterable)
    listed = [values] if is_one else list(cast("Iterable[object]", values))
    for value in listed:
        require_type(value, kinds, subject, expected)
    return listed


def printable(text: str, limit: int = 1024) -> str:
    """Return `text` safe for a terminal: control and bidirectional characters escaped, length bounded."""
    if text.isprintable() and len(text) <= limit:
        return text
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return escaped if len(escaped) <= limit else f"{escaped[:limit]}… ({len(text)} characters)"


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return "did you mean …?" for the name nearest to `name` within edit distance 2; "" when none is, or all letters differ."""
    near = (k for k in candidates if abs(len(k) - len(name)) <= MAX_EDITS)  # a name of a file may be a megabyte
    matches = sorted((distance, k) for k in near if (distance := edits(name, k)) <= min(MAX_EDITS, max(len(name), len(k)) - 1))
    return f'did you mean "{matches[0][1]}"?' if matches else ""


def edits(a: str, b: str) -> int:
    """Return the edit distance of two texts (optimal string alignment): insertions, deletions, replacements, swaps of neighbours."""
    previous: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        older, previous, row = previous, row, [i]
        for j, y in enumerate(b, 1):
            best = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                best = min(best, older[j - 2] + 1)
            row.append(best)
    return row[-1]
