"""Saturation in the process of the tests: starting one of its own takes longer than saturating most of their models."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from typing import Any

from rewrite_compiler.egraph.saturation.worker import Schedule
from rewrite_compiler.limits import DEFAULT, Limits

MODULE = importlib.import_module("rewrite_compiler.egraph.saturation.saturate")  # the package has a function of that name
WITH_PROCESSES = "tests/egraph/"  # tests of the process itself


class InProcess(Schedule):
    """The worker's schedule, with its answers kept instead of written."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.lines: list[str] = []
        super().__init__(request)

    def send(self, results: dict[str, Any]) -> None:
        line = {"rounds": self.rounds, "stop": self.stop, "growth": self.growth, **results}
        self.lines.append(json.dumps(line, separators=(",", ":")) + "\n")


def answer_here(request: dict[str, Any], limits: Limits) -> Any:
    """Answer a request without limits of memory and time."""
    schedule = InProcess(request)
    schedule.run()
    return MODULE._parse_output("".join(schedule.lines), "", 0, False, limits)


def answer_most_here() -> None:
    """Answer requests under the default limits in this process from now on, but for tests of the process itself."""
    in_a_process: Callable[[dict[str, Any], Limits], Any] = MODULE._run_worker

    def answered(request: dict[str, Any], limits: Limits) -> Any:
        of_the_process = os.environ.get("PYTEST_CURRENT_TEST", "").startswith(WITH_PROCESSES)
        return in_a_process(request, limits) if of_the_process or limits != DEFAULT else answer_here(request, limits)

    MODULE._run_worker = answered
