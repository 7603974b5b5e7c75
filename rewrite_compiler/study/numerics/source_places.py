"""Source places of terms: which expression of a target's file built each term of its numerics.

Terms carry no place, because equal terms are one object. Numerics are therefore run once more under a profiler of this
thread, which sees every term as it is returned and the frame outside of the engine that asked for it.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import rewrite_compiler

from ...lang import expr
from ...lang.expr import Expr

ENGINE = tuple(str(Path(folder).resolve()) for folder in rewrite_compiler.__path__[:1])
CONTENT = tuple(f"{folder}/{name}/" for folder in ENGINE for name in ("targets", "ila_models", "rules", "apps"))
TERM_CODE = expr.node.__code__  # the only function that makes terms
SELECT_CODE = expr.select.__code__  # which makes none where its condition is a constant
LONGEST_TEXT = 60
T = TypeVar("T")


@dataclass(frozen=True)
class SourcePlace:
    """An expression of a file: its lines and columns, and its text on one line."""

    file: str
    line: int
    columns: tuple[int, int]
    text: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True)
class Places:
    """The places of terms, and for terms that selects by a constant chose the term of the other branch, by the select's place."""

    of_terms: dict[Expr, tuple[SourcePlace, ...]]
    other_branches: dict[Expr, dict[SourcePlace, Expr]]


def with_places(build: Callable[[], T]) -> tuple[T, Places]:
    """Return what `build` returns, and the places of the terms that it built: those of equal terms together.

    A term that an earlier call built and that this one does not ask for again has no place.
    """
    places: dict[Expr, dict[SourcePlace, None]] = {}
    other_branches: dict[Expr, dict[SourcePlace, Expr]] = {}

    def observe(frame: FrameType, event: str, result: Any) -> None:
        if event == "return" and frame.f_code is TERM_CODE and result is not None:
            place = place_outside(frame)
            if place is not None:
                places.setdefault(result, {})[place] = None
        elif event == "return" and frame.f_code is SELECT_CODE and result is not None and frame.f_back is not None:
            place, other = place_outside(frame), _other_branch(frame.f_locals)
            is_written = not _is_engine(frame.f_back.f_code.co_filename)  # by a target, not inside of a function of the language
            if is_written and place is not None and other is not None:
                other_branches.setdefault(result, {})[place] = other

    previous = sys.getprofile()
    sys.setprofile(observe)
    try:
        built = build()
    finally:
        sys.setprofile(previous)
    return built, Places({term: tuple(at) for term, at in places.items()}, other_branches)


def _other_branch(branches: Mapping[str, Any]) -> Expr | None:
    """Return the branch that a select by a constant does not take; None where the data decides, or both are one term."""
    c, then, otherwise = (branches[name] for name in "cab")
    if c.value is None or then is otherwise:
        return None
    other: Expr = otherwise if c.value else then
    return other


def place_outside(frame: FrameType) -> SourcePlace | None:
    """Return the place of the innermost caller that is no part of the engine."""
    caller = frame.f_back
    while caller is not None:
        if not _is_engine(caller.f_code.co_filename):
            return _place_of(caller.f_code, caller.f_lasti)
        caller = caller.f_back
    return None


@lru_cache(maxsize=1024)
def _is_engine(file: str) -> bool:
    path = str(Path(file).resolve())
    return file.startswith("<") or (path.startswith(ENGINE) and not path.startswith(CONTENT))


@lru_cache(maxsize=1 << 14)
def _place_of(code: CodeType, instruction: int) -> SourcePlace | None:
    """Return the place of an instruction of a function's code; None where the code says none."""
    positions = list(code.co_positions())[instruction // 2]
    line, end_line, column, end_column = positions
    if line is None:
        return None
    end_line, column, end_column = end_line or line, column or 0, end_column or 0
    rows = [linecache.getline(code.co_filename, n).rstrip("\n") for n in range(line, end_line + 1)]
    text = rows[0][column:end_column] if len(rows) == 1 else " ".join([rows[0][column:], *rows[1:-1], rows[-1][:end_column]])
    text = " ".join(text.split())
    short = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
    return SourcePlace(code.co_filename, line, (column, end_column), short)


def innermost(places: Mapping[Expr, tuple[SourcePlace, ...]], terms: Iterator[Expr]) -> SourcePlace | None:
    """Return the place of the first of some terms that has one."""
    return next((places[term][0] for term in terms if term in places), None)
