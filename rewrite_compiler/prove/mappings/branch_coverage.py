"""Branch coverage of drivers by the trials of the court: which ways of conditions and loops no call takes.

A way that none may take, because the limits refuse it before, is marked by a comment on its line or the one above that begins with `MARK`.
"""

from __future__ import annotations

import linecache
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType

from ...target import Mapping, Target
from .control_classes import Branch, Call, branches, line_of, trace
from .draws import Invocation
from .driver_code import LEAST, codes_in, reachable_functions
from .limit_edges import LARGEST_DRAWN, capacity_edges, literal_edges
from .mappings import numeric_sizes
from .small_designs import operation_classes

MARK = "# no trial:"
FOLLOWED = 60  # calls of one function in one run


@dataclass
class Coverage:
    """What calls of a target's drivers took: the codes that ran, and the ways of their branches."""

    entered: set[CodeType] = field(default_factory=set)
    ways: set[Branch] = field(default_factory=set)
    reachable: set[CodeType] = field(default_factory=set)

    def add(self, call: Call) -> None:
        """Add what one call takes."""
        tracer = trace(call, FOLLOWED)
        self.entered |= tracer.entered
        self.ways |= tracer.transitions

    def open_ways(self) -> Iterator[str]:
        """Yield what no call takes and no comment marks, `file:line: …` in order."""
        rows = {(Path(c.co_filename), c.co_firstlineno, f"{c.co_qualname} is never entered") for c in self.reachable - self.entered}
        for code in self.entered:
            for origin, targets in branches(code).items():
                jumps = (targets.fallthrough,) if targets.is_loop else (targets.fallthrough, targets.jump)
                rows |= {
                    (Path(code.co_filename), line_of(code, way), f"never reached from line {line_of(code, origin)}")
                    for way in jumps
                    if (code, origin, way) not in self.ways
                }
        yield from (f"{file.name}:{line}: {text}" for file, line, text in sorted(rows) if not _is_marked(file, line))


def _is_marked(file: Path, line: int) -> bool:
    return any(MARK in linecache.getline(str(file), n) for n in (line, line - 1))


def further_calls(target: Target, m: Mapping) -> Iterator[Call]:
    """Yield the calls at which the court judges an operation beside those of its control classes: trials, edges of capacities, numbers."""
    least = LARGEST_DRAWN if target.small else LEAST
    for sizes in (*numeric_sizes(m), *capacity_edges(m), *literal_edges(m, least)):
        yield Call(target, m, Invocation(sizes))


def driver_coverage(target: Target, variants: Collection[str] | None = None) -> Coverage:
    """Return what the calls at which operations are judged, or some `variants`, take of their drivers; it ends where nothing is open."""
    coverage = Coverage()
    operations = [m for m in target.mappings.values() if m.drive is not None and (variants is None or m.variant in variants)]
    for m in operations:
        assert m.drive is not None
        coverage.reachable |= {c for f in reachable_functions(m.drive) for c in codes_in(f.__code__) if "<" not in c.co_name}
    streams = (operation_classes(target, m).calls for m in operations), (further_calls(target, m) for m in operations)
    for call in (call for calls in streams for of_operation in calls for call in of_operation):
        coverage.add(call)
        if not any(coverage.open_ways()):
            break
    return coverage
