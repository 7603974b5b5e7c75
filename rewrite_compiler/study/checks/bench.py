"""bench: seconds of the phases of a compilation and a co-simulation, measured several times; and which became slower."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ...compile import Options, Plan, chosen_targets, compile_model
from ...compile.compile import search_space
from ...compile.explanation.egraph_statistics import rule_seconds
from ...compile.matching.match import extract_match, saturate_program
from ...cosim import Settings, cosimulate
from ...cosim.cosimulate import dataset_for, with_formats
from ...egraph.saturation.answer_cache import cache_disabled
from ...egraph.saturation.saturate import start_children
from ...errors import InputError
from ...frontend.load import load

SCHEMA = "flexmatch.bench/1"
RUNS = 5
DEFAULT = Options()
COMPARED_PARTS = ("phases", "simulators")
Result = TypeVar("Result")
Document = dict[str, Any]


@dataclass
class Phase:
    """Samples of one phase, one a run: processor seconds, those of a child process included, and wall-clock seconds."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def measure(self, work: Callable[[], Result], child_seconds: Callable[[Result], float] = lambda _: 0.0) -> Result:
        """Return the result of `work`, and record the seconds that it and its child process took."""
        cpu, wall = time.process_time(), time.perf_counter()
        result = work()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu + child_seconds(result))
        return result

    def document(self, name: str) -> Document:
        """Return the phase as JSON."""
        return {"name": name, "cpu_seconds": spread(self.cpu), "wall_seconds": spread(self.wall)}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and maximum, rounded to microseconds."""
    low, high = min(values), max(values)
    return {name: round(x, 6) for name, x in (("low", low), ("median", statistics.median(values)), ("high", high))}


def bench(
    model: str | Path, accel: Sequence[str], options: Options = DEFAULT, *, runs: int = RUNS, data: str | Path | None = None,
    calibrate: str | Path | None = None, settings: Settings | None = None, progress: Callable[[str, int], None] = lambda *_: None,
) -> Document:  # fmt: skip
    """Return seconds for reading, saturating, extracting, planning and, with data, simulating a model, as JSON.

    Saturation is computed in every run; planning is the whole command with the saturation from the cache.
    """
    phases = {name: Phase() for name in ("read", "saturate", "extract", "plan")}
    rules: dict[str, list[float]] = {}
    for n in range(runs):
        progress("compile", n)
        plan, seconds = _compile_timed(model, accel, options, phases)
        for rule, seconds_list in seconds.items():
            rules.setdefault(rule, []).append(seconds_list)
    simulators = []
    for tier in () if data is None else _tiers(settings):
        simulators.append(_simulate_timed(plan, Path(str(data)), calibrate, replace(settings or Settings(), tier=tier), runs, progress))
    return {
        "schema": SCHEMA, "model": dict(plan.model), "runs": runs,
        "targets": [{"name": t.name, "parameters": dict(t.values), "sha256": t.sha256} for t in plan.targets],
        "egraph": {key: plan.egraph[key] for key in ("rounds", "e_nodes", "e_classes")}, "offloads": len(plan.offloads),
        "rules": [{**row, "offloads": _offloads_by(plan, row["rule"])} for row in plan.egraph["fired"]],
        "run": {
            "phases": [phase.document(name) for name, phase in phases.items()], "simulators": simulators,
            "rules": [{"name": name, "seconds": spread(seconds_list)} for name, seconds_list in rules.items()],
        },
    }  # fmt: skip


def _compile_timed(model: str | Path, accel: Sequence[str], options: Options, phases: Mapping[str, Phase]) -> tuple[Plan, dict[str, float]]:
    """Return the plan and the seconds of each rule that matched, and note what each phase took."""
    targets = chosen_targets(accel, options.limits)
    start_children()
    loaded = phases["read"].measure(lambda: load(model, options.shapes, options.limits))
    space = search_space(targets, options)
    with cache_disabled():
        saturation = phases["saturate"].measure(
            lambda: saturate_program(loaded.program, space.rules, space.mappings, options.limits), lambda s: s.seconds
        )
    phases["extract"].measure(
        lambda: extract_match(loaded.program, saturation, space.rules, space.mappings, options.limits, space.objective)
    )
    compile_model(model, accel, options)  # keeps what saturation finds
    return phases["plan"].measure(lambda: compile_model(model, accel, options)), rule_seconds(saturation, space.rules, space.mappings)


def _tiers(settings: Settings | None) -> tuple[str, ...]:
    """Return the tiers to measure: both fast ones, or the one that is asked for."""
    return ("native", "arrays") if settings is None or settings.tier == "auto" else (settings.tier,)


def _simulate_timed(
    plan: Plan, data: Path, calibrate: str | Path | None, settings: Settings, runs: int, progress: Callable[[str, int], None]
) -> Document:
    """Return what a sample takes on the simulators of one tier, beside the same samples in float32 on the host."""
    formatted_plan, samples = with_formats(plan, dataset_for(plan, data), calibrate)
    simulator_seconds, host_seconds, wall_seconds, document = [], [], [], {}
    for n in range(runs):
        progress(settings.tier, n)
        document = dict(cosimulate(formatted_plan, samples, settings=settings).document)
        run = document["run"]
        simulator_seconds.append(run["cpu_seconds_per_sample"])
        wall_seconds.append(run["wall_seconds"] / document["samples"])
        host_seconds.append(run["reference_cpu_seconds_per_sample"])
    measured_hosts = [h for h in host_seconds if h is not None]
    return {
        "name": settings.tier, "tier": document["simulator"]["tier"], "samples": document["samples"], "batch": run["batch"],
        "threads": run["threads"], "instructions": document["simulator"]["instructions"], "cpu_seconds": spread(simulator_seconds),
        "wall_seconds": spread(wall_seconds), "reference_cpu_seconds": spread(measured_hosts) if measured_hosts else None,
    }  # fmt: skip


def _offloads_by(plan: Plan, rule: str) -> int:
    """Return how many offloads have a rule in the chain that leads to them."""
    return sum(any(step.rule == rule for step in o.because) for o in plan.offloads)


def slower_phases(document: Mapping[str, Any], baseline: Mapping[str, Any], max_factor: float) -> list[Document]:
    """Return the phases and simulators whose median of processor seconds exceeds that of an earlier document by more than a factor.

    Raises:
        InputError: the earlier document is none of bench, or one of another model (F103).
    """
    if baseline.get("schema") != SCHEMA or baseline.get("model", {}).get("sha256") != document["model"]["sha256"]:
        raise InputError("F103", "what --against names must be a document of flexmatch bench for the same model")
    slower_rows = []
    for name, current_median in medians(document).items():
        earlier_median = medians(baseline).get(name)
        if earlier_median and current_median > max_factor * earlier_median:
            slower_rows.append(
                {"name": name, "before": earlier_median, "now": current_median, "factor": round(current_median / earlier_median, 2)}
            )
    return slower_rows


def medians(document: Mapping[str, Any]) -> dict[str, float]:
    """Return the median processor seconds of each phase, and of one sample on each tier."""
    return {row["name"]: row["cpu_seconds"]["median"] for part in COMPARED_PARTS for row in document["run"][part]}
