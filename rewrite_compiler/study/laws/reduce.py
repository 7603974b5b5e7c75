"""reduce: a smaller model that shows the same problem, by delta debugging over its nodes; every shape stays.

The problem is a predicate: a crash of the compiler, a plan that differs from its model, a node that is not offloaded for the
same reason, or a command that ends with 0 while the problem is there.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...compile import Options, compile_model
from ...errors import INTERNAL, AnswerNo, FlexmatchError, UsageError
from ...frontend.submodel import ReducibleModel, read_reducible, submodel

SCHEMA = "flexmatch.reduce/1"
CRASH, MISMATCH, NOT_OFFLOADED = "crash", "mismatch", "not-offloaded"
CHECKS = (CRASH, MISMATCH, NOT_OFFLOADED)
MOVES_DATA = "only moves data"  # the reason of host nodes that need no offload
Predicate = Callable[[Path], bool]


@dataclass(frozen=True)
class Question:
    """The predicate: the check, the accelerators, the node for `not-offloaded` (default: the first with work), and the budget."""

    check: str
    accel: tuple[str, ...] = ()
    node: str = ""
    options: Options = field(default_factory=Options)
    tests: int = 200  # how often the check may run
    seconds: float = 60.0  # for one run of a crash, a mismatch or a command


@dataclass(frozen=True)
class Reduction:
    """The smaller model, its number of operators beside the original's, and the problem that it shows."""

    onnx: bytes
    ops_before: int
    ops_after: int
    tests: int
    outcome: str


def reduce_model(path: Path, question: Question) -> Reduction:
    """Return the smallest model found that still shows the problem.

    Raises:
        AnswerNo: the original does not show it (F214).
        UsageError: the check cannot be run (F203).
    """
    model = read_reducible(path, question.options.shapes, question.options.limits)
    names = model.names
    with tempfile.TemporaryDirectory(prefix="flexmatch-reduce-") as folder:
        holds, outcome, focus = _check(path, question)
        search = _Search(model, holds, Path(folder) / path.name, question.tests)
        start = search.neighbourhood(names.index(focus)) if focus in names else tuple(range(len(names)))
        nodes = search.minimal(start)
    onnx = submodel(model, nodes) if len(nodes) < len(names) else path.read_bytes()
    assert onnx is not None
    return Reduction(onnx, len(names), len(nodes), search.tests, outcome)


class _Search:
    """Delta debugging: tries sets of nodes, remembers answers, stops after so many tests."""

    def __init__(self, model: ReducibleModel, holds: Predicate, file: Path, max_tests: int) -> None:
        self.model, self.holds, self.file, self.max_tests = model, holds, file, max_tests
        self.answers: dict[tuple[int, ...], bool] = {}

    @property
    def tests(self) -> int:
        """How often the check ran."""
        return len(self.answers)

    def test(self, nodes: Sequence[int]) -> bool:
        """Tell whether some nodes alone show the problem."""
        key = tuple(sorted(nodes))
        if key not in self.answers and self.tests < self.max_tests:
            data = submodel(self.model, key)
            if data is None:
                return False
            self.file.write_bytes(data)
            self.answers[key] = self.holds(self.file)
        return self.answers.get(key, False)

    def neighbourhood(self, focus: int) -> tuple[int, ...]:
        """Return the smallest neighbourhood of a node that shows the problem, by its distance against the edges."""
        readers = self.model.producers_by_node()
        nodes = {focus}
        while not self.test(sorted(nodes)):
            larger = nodes | {b for n in nodes for b in readers[n]}
            if larger == nodes:
                return tuple(range(len(self.model.model.graph.node)))
            nodes = larger
        return tuple(sorted(nodes))

    def minimal(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """Return a set from which no tried part can be left out."""
        remaining, parts = list(nodes), 2
        while len(remaining) > 1:
            size = max(1, -(-len(remaining) // parts))
            chunks = [remaining[k : k + size] for k in range(0, len(remaining), size)]
            reduced = next(([n for n in remaining if n not in c] for c in chunks if self.test([n for n in remaining if n not in c])), None)
            if reduced is not None:
                remaining, parts = reduced, max(parts - 1, 2)
            elif size == 1:
                break
            else:
                parts = min(2 * parts, len(remaining))
        return tuple(sorted(remaining))


def _check(path: Path, q: Question) -> tuple[Predicate, str, str]:
    """Return the predicate of a question, what it found in the whole model, and the node it is about."""
    if q.check == NOT_OFFLOADED:
        return _not_offloaded(path, q)
    observe = _compiler_failure if q.check in (CRASH, MISMATCH) else _command_verdict
    expected = observe(path, q)
    if not expected:
        raise AnswerNo("F214", f"the model does not show what --check {q.check} looks for", place=str(path))
    return lambda file: observe(file, q) == expected, expected, ""


def _not_offloaded(path: Path, q: Question) -> tuple[Predicate, str, str]:
    host = _host_reasons(path, q)
    node = q.node or next((name for name, reason in host.items() if reason != MOVES_DATA), "")
    if node not in host:
        sentence = f'node "{node}" is not on the host' if node else "no node with work of its own is on the host"
        raise AnswerNo("F214", sentence, place=str(path), help="flexmatch explain MODEL NODE says where a node went")
    return lambda file: _host_reasons_or_none(file, q).get(node) == host[node], f"{node}: {host[node]}", node


def _host_reasons(path: Path, q: Question) -> dict[str, str]:
    return {h.node: h.why_not for h in compile_model(path, q.accel, q.options).host}


def _host_reasons_or_none(path: Path, q: Question) -> dict[str, str]:
    try:
        return _host_reasons(path, q)
    except FlexmatchError:
        return {}


def _compiler_failure(path: Path, q: Question) -> str:
    """Return how the compiler fails on a model, in words that do not name the model; nothing when it does not fail this way."""
    with tempfile.TemporaryDirectory(prefix="flexmatch-reduce-") as folder:
        accel = [x for name in q.accel for x in ("--accel", name)]
        output = ("-q", "-o", str(Path(folder) / "plan"))
        result = _run([sys.executable, "-m", "rewrite_compiler.cli.main", str(path.absolute()), *accel, *output], q)
    if result is None:
        return "no answer in time" if q.check == CRASH else ""
    code, error_text = result
    is_mismatch = "the plan differs from its model" in error_text
    if q.check == MISMATCH:
        return "the plan differs from its model" if is_mismatch else ""
    if code < 0:
        return f"ended by signal {-code}"
    kind = re.search(r"internal error: (\w+)", error_text)
    return kind[0] if code == INTERNAL and kind else ""


def _command_verdict(path: Path, q: Question) -> str:
    """Run a command on a model: exit code 0 says that the problem is there."""
    result = _run([*shlex.split(q.check), str(path)], q)
    return f"{q.check} ends with 0" if result is not None and result[0] == 0 else ""


def _run(command: Sequence[str], q: Question) -> tuple[int, str] | None:
    try:
        process = subprocess.run(command, capture_output=True, timeout=q.seconds, check=False)
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        checks = f"checks: {', '.join(CHECKS)}, or a command"
        raise UsageError("F203", f'the check "{q.check}" cannot be run: {error.strerror}', help=checks) from None
    return process.returncode, process.stderr.decode("utf-8", "replace")


def reduction_document(reduction: Reduction, question: Question, model: Path, output: Path) -> dict[str, Any]:
    """Return the reduction as JSON."""
    return {
        "schema": SCHEMA, "model": {"path": str(model)}, "check": question.check, "ops_before": reduction.ops_before,
        "ops_after": reduction.ops_after, "tests": reduction.tests, "outcome": reduction.outcome, "written": str(output),
    }  # fmt: skip
