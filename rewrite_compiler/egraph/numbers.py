"""Numbers of float attributes: the e-graph stores a float as its text, and guards compare the number of the text.

NaN has no number, so that no comparison with it matches.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence

from .graph.table_load import Item

NUMBER = "number"
DECLARED = f"(function {NUMBER} (String) f64 :no-merge)"
TEXT = re.compile(r'"([^"\\]*)"')


def number_commands(rules: Sequence[str], items: Sequence[Item]) -> list[str]:
    """Return the commands that define the number of every float text in rules and items; none where no rule compares floats."""
    if not any(f"({NUMBER} " in text for text in rules):
        return []
    number_of = {x: n for x in _texts(rules, items) for n in _number(x)}
    return [DECLARED, *(f'(set ({NUMBER} "{x}") {n!r})' for x, n in number_of.items())]


def _texts(rules: Iterable[str], items: Iterable[Item]) -> Iterator[str]:
    for item in itertools.chain(rules, items):
        yield from TEXT.findall(item) if isinstance(item, str) else (c for c in item[1:] if isinstance(c, str))


def _number(text: str) -> Iterator[float]:
    """Yield the number of a text that is the shortest text of a float other than NaN."""
    with contextlib.suppress(ValueError):
        n = float(text)
        if repr(n) == text and not math.isnan(n):
            yield n
