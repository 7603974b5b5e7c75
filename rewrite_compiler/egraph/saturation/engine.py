"""Drives one egglog e-graph round by round, in the worker process.

Types of new classes are computed between rounds as an e-class analysis, by the operators' own shape rules.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..graph.graph import EGraph
from ..graph.reader import LEAVES, Reader
from ..graph.schema import Constructor, operators, schema_text
from ..graph.table_load import PRELUDE, Item, Loader, loader_text
from ..numbers import number_commands
from .relevant_rules import query_operators
from .type_analysis import TypeAnalysis

MILLISECONDS = 1000  # egglog gives milliseconds as the microseconds of a duration
FACTS = "(run-schedule (saturate (run facts)))"


def load_bindings() -> Any:
    """Return egglog's low-level bindings without importing the package around them.

    Raises:
        ImportError: egglog is not installed.
    """
    os.environ.setdefault("RUST_BACKTRACE", "0")
    package = importlib.util.find_spec("egglog")
    if package is None or package.origin is None:
        raise ImportError("egglog is not installed")
    libraries = sorted(Path(package.origin).parent.glob("bindings*.so")) or sorted(Path(package.origin).parent.glob("bindings*.pyd"))
    spec = importlib.util.spec_from_file_location("egglog.bindings", libraries[0]) if libraries else None
    if spec is None or spec.loader is None:
        return importlib.import_module("egglog.bindings")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Engine:
    """An egglog e-graph; `core` are the names of the constructors of operators that can occur, all when it is None."""

    def __init__(
        self, devices: Sequence[Constructor], rules: Iterable[str], items: Iterable[Item], core: Iterable[str] | None = None
    ) -> None:  # fmt: skip
        self.loader = Loader(load_bindings())
        self.egglog, self.run = self.loader.egglog, self.loader.run
        core_constructors = operators(core)
        self.constructors = {c.name: c for c in (*core_constructors, *devices)}
        self.matches: Counter[str] = Counter()  # matches of each rule, by its name
        self.seconds: Counter[str] = Counter()  # that each rule took to match and to act, by its name
        texts, loaded = list(rules), list(items)
        self.run(schema_text(core_constructors, devices), PRELUDE, *map(loader_text, core_constructors), *number_commands(texts, loaded))
        self.pending = {text: query_operators(text) for text in texts}  # commands whose operators no e-node has yet
        self.loader.load(loaded)
        self.run(FACTS)
        self.reader = Reader(self.egglog, self.constructors.values())
        self.types = TypeAnalysis(self.constructors)
        self.types.read(self.reader.refresh())

    def run_round(self, ruleset: str) -> bool:
        """Run one round of a ruleset, then type new classes; tell whether anything changed."""
        changed = self.run_untyped(ruleset)
        if changed:
            self.type_new_classes()
        return changed

    def load_rules(self) -> None:
        """Load the rules that may match now: compiling a rule takes longer than all its rounds, and many never match."""
        present = {name for name, size in self.sizes.items() if size}
        texts = [text for text, operators in self.pending.items() if operators <= present]
        for text in texts:
            del self.pending[text]
        self.run(*texts)

    def run_untyped(self, ruleset: str, times: int = 1) -> bool:
        """Run some rounds of a ruleset without typing new classes; tell whether they changed anything."""
        if self.pending:
            self.load_rules()
        answers = self.run(f"(run-schedule (repeat {times} (run {ruleset})))")
        reports = [report for r in answers if (report := getattr(r, "report", None)) is not None]
        for report in reports:
            self.matches.update({name: n for name, n in report.num_matches_per_rule.items() if n})
            for name, time in report.search_and_apply_time_per_rule.items():
                self.seconds[name] += MILLISECONDS * time.total_seconds()
        return any(report.updated for report in reports)

    def type_new_classes(self) -> None:
        """Compute the facts of classes that rules have made."""
        self.loader.load(self.types.rows(self.reader.refresh()))
        self.run(FACTS)

    @property
    def e_nodes(self) -> int:
        """Number of e-nodes."""
        sizes = self.sizes
        return sum(sizes.get(name, 0) for name in (*LEAVES, "Result", "Opaque", *self.constructors))

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of each table."""
        return dict(self.run("(print-size)")[0].sizes)

    def snapshot(self) -> EGraph:
        """Return the e-graph as plain data, classes numbered by first occurrence."""
        return self.reader.refresh().graph()
