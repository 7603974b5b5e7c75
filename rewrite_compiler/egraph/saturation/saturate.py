"""Equality saturation from the parent process: whole programs, regions, or steps of a recurrence, each in a child process under limits.

egglog cannot be interrupted within a round, so limits end the child; the parent then asks for the completed rounds only.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

from ...disk_cache import DiskCache
from ...errors import BudgetError
from ...ir.program import Program
from ...limits import DEFAULT, Limits
from ...rewrite.rule import Rule
from ...rewrite.ruleset import every_rule
from ..graph.encode import program_items
from ..graph.graph import EGraph, from_json
from ..graph.outcome import Saturation, StopReason
from ..graph.schema import Constructor
from ..regions.join import join_regions, representatives
from ..regions.recurrent_join import StepJoiner, states_of
from ..regions.recurrent_skeleton import NoLayers, skeleton, step_of
from ..regions.recurrent_steps import recurrent_steps
from ..regions.regions import UseDefFacts, regions_of
from .answer_cache import answer_cache, key_of
from .relevant_rules import constructors_of, relevant_commands
from .staged_match import rule_commands

SaturatePart = Callable[[Program, Sequence[str]], Saturation]  # a program and the commands to run once it is loaded

CHILDREN: set[subprocess.Popen[str]] = set()  # running now; a signal handler kills them before this process ends

READY: list[subprocess.Popen[str]] = []  # idle: started and waiting for a request

NO_CACHE = DiskCache(None)

STALL = 60  # times its limit of processor time: how long a child may take that gets no processor

OUT_OF_TIME = getattr(signal, "SIGXCPU", 0)  # what ends a child at its limit of processor time

OUT_OF_MEMORY = ("memory allocation", "MemoryError", "failed to map segment", "Cannot allocate memory")  # what egglog and Python say


@dataclass(frozen=True)
class DeviceRule:
    """A mapping as the e-graph sees it: the constructor of the device operation and the egglog rule that adds it."""

    constructor: Constructor
    text: str


def saturate_regions(p: Program, rules: Sequence[Rule], mappings: Sequence[DeviceRule], limits: Limits = DEFAULT) -> Saturation:
    """Saturate a program region by region, each form of region once, and join the copies; otherwise as `saturate`.

    An unrolled recurrence is saturated step by step, a program of one region as a whole. Answers that reach saturation are
    cached by their request.

    Raises:
        Unsaturated: as `saturate`.
    """
    cache = answer_cache()
    by_steps = _saturate_by_steps(p, lambda part, commands: saturate(part, rules, mappings, limits, commands, cache))
    if by_steps is not None:
        return by_steps
    regions = regions_of(p)
    if len(regions) < 2:
        return saturate(p, rules, mappings, limits, cache=cache)
    forms = representatives(p, regions)
    saturation = saturate(forms.program, rules, mappings, limits, forms.commands, cache)
    graph = join_regions(p, regions, forms, saturation.graph)
    return replace(saturation, graph=graph, regions=len(regions), forms=len(forms.forms))


def _saturate_by_steps(p: Program, saturate_part: SaturatePart) -> Saturation | None:
    """Return the e-graph of a program with an unrolled recurrence; None where it has none, or its steps are not made of layers.

    Each form of step is saturated once, the steps written as layers are saturated together, and copies of the forms join them.
    """
    cells = recurrent_steps(p)
    if not cells:
        return None
    regions = [r for _, r in cells]
    shared = representatives(p, regions, [form for form, _ in cells])
    steps = saturate_part(shared.program, shared.commands)
    try:
        written_steps = [step_of(f, steps.graph, states) for f, states in zip(shared.forms, states_of(regions, shared), strict=True)]
        layered = skeleton(p, UseDefFacts(p).fixed, [(r, written_steps[n]) for r, n in zip(regions, shared.form_of, strict=True)])
    except NoLayers:
        return None
    layers = saturate_part(layered.program, ())
    joiner = StepJoiner(p, layered, layers.graph, steps.graph)
    for r, n in zip(regions, shared.form_of, strict=True):
        joiner.add_step(r, shared.forms[n])
    return _combined(replace(layers, graph=joiner.result(), regions=len(regions) + 1, forms=len(shared.forms) + 1), steps)


def _combined(layers: Saturation, steps: Saturation) -> Saturation:
    """Return the statistics of both saturations summed, on the graph of `layers`; an unfinished one gives the stop reason."""
    unfinished = steps if layers.reason is StopReason.SATURATED else layers
    return replace(
        layers, rounds=max(layers.rounds, steps.rounds), reason=unfinished.reason, detail=unfinished.detail,
        matches=_sum(layers.matches, steps.matches), e_nodes_by_birth=_sum(layers.e_nodes_by_birth, steps.e_nodes_by_birth),
        rounds_held=_sum(layers.rounds_held, steps.rounds_held), e_nodes_added=_sum(layers.e_nodes_added, steps.e_nodes_added),
        seconds=layers.seconds + steps.seconds,
        rule_seconds=_sum(layers.rule_seconds, steps.rule_seconds), is_cached=layers.is_cached and steps.is_cached,
    )  # fmt: skip


def _sum(a: Mapping[Any, Any], b: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the key-wise sum of two tables of counts."""
    return {k: a.get(k, 0) + b.get(k, 0) for k in dict.fromkeys((*a, *b))}


def saturate(
    p: Program, rules: Sequence[Rule], mappings: Sequence[DeviceRule], limits: Limits = DEFAULT, commands: Sequence[str] = (),
    cache: DiskCache = NO_CACHE,
) -> Saturation:  # fmt: skip
    """Saturate a program under rules and mappings; rule n of `rules` has birth n, mapping m birth len(rules) + m.

    `more` are commands to run once the program is loaded, `kept` the cache of earlier answers. A child that ends at a limit or
    crashes after some rounds is replaced by one that runs only the completed rounds.

    Raises:
        Unsaturated: (F210) no round was completed, or the completed rounds cannot be read out within the limits.
    """
    added = {f"added{n}": r for n, r in enumerate(rules) if r.phase == "ir" and r.name not in shipped_rule_names()}
    texts, core = relevant_commands(
        [*(_commands(r, n, added) for n, r in enumerate(rules)), *([m.text] for m in mappings)], constructors_of(p)
    )
    request = {
        "rules": texts,
        "operators": sorted(core),
        "added": {ruleset: r.name for ruleset, r in added.items()},
        "devices": [[m.constructor.name, m.constructor.operands, m.constructor.attributes] for m in mappings],
        "phases": [*sorted({r.phase for r in rules}), "map"],
        "items": [*program_items(p), *commands],
        "limits": asdict(limits),
        "parent": os.getpid(),
    }
    key = key_of(request) if cache.folder else ""
    line = cache.get(key)
    if line is not None:
        return replace(_saturation(_parse_answer(json.loads(line))), is_cached=True)
    answer = _run_worker(request, limits)
    if answer.graph is not None:
        if answer.reason is StopReason.SATURATED:
            cache.put(key, answer.line.encode())
        return _saturation(answer)
    if answer.rounds < 0:
        raise Unsaturated("before its first round", answer)
    for rounds in dict.fromkeys((answer.rounds, answer.rounds // 2, 0)):  # reading out a large e-graph may exceed a limit, too
        rerun = _run_worker({**request, "limits": {**asdict(limits), "rounds": rounds}}, limits)
        if rerun.graph is not None:
            saturation = replace(_saturation(rerun), rounds=rounds, reason=answer.reason, detail=answer.detail)
            return replace(saturation, growth=answer.growth or rerun.growth)
    raise Unsaturated("in its mapping phase", rerun)


def _commands(r: Rule, n: int, added: Mapping[str, Rule]) -> list[str]:
    """Return the commands of a rule, one that was added in a ruleset of its own."""
    *stages, text = rule_commands(r, n)
    own_ruleset = f"added{n}"
    return [*stages, text.replace(f":ruleset {r.phase} ", f":ruleset {own_ruleset} ") if own_ruleset in added else text]


@cache
def shipped_rule_names() -> frozenset[str]:
    """Return the names of the shipped rules, which rules of a user cannot have."""
    return frozenset(r.name for r in every_rule())


def _saturation(answer: _Answer) -> Saturation:
    assert answer.graph is not None
    births = Counter(n.birth for c in answer.graph.classes.values() for n in c.nodes)
    return Saturation(
        answer.graph, answer.rounds, answer.reason, answer.detail, answer.growth, answer.matches, births, answer.held, answer.grown,
        seconds=answer.seconds, rule_seconds=answer.rule_seconds,
    )  # fmt: skip


@dataclass(frozen=True)
class _Answer:
    graph: EGraph | None
    rounds: int
    reason: StopReason
    detail: str
    growth: tuple[int, ...] = ()
    matches: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    line: str = ""  # as the child wrote it
    rule_seconds: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    grown: Mapping[str, int] = field(default_factory=dict)


class Unsaturated(BudgetError):
    """No round was completed: the child crashed or reached a limit; `reason` is the stop reason."""

    def __init__(self, when: str, answer: _Answer) -> None:
        help_ = "raise the limit with --limits, or use fewer rules"
        super().__init__("F210", f"saturation ended {when}: {answer.detail}", help=help_)
        self.reason = answer.reason


def start_children(count: int = 1) -> None:
    """Start idle children, up to `count`, so that their imports overlap with reading the model."""
    READY.extend(_start_child() for _ in range(count - len(READY)))


def _next_child() -> subprocess.Popen[str]:
    """Return an idle child, a new one if none is alive."""
    while READY:
        child = READY.pop()
        if child.poll() is None:
            return child
        _end_child(child)
    return _start_child()


def _start_child() -> subprocess.Popen[str]:
    environment = {**os.environ, "RUST_BACKTRACE": "0"}
    command = [sys.executable, "-m", "rewrite_compiler.egraph.saturation.worker"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    CHILDREN.add(child)
    return child


def _end_child(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()
    CHILDREN.discard(child)


@atexit.register
def _end_unused() -> None:
    while READY:
        _end_child(READY.pop())


def _run_worker(request: dict[str, Any], limits: Limits) -> _Answer:
    child = _next_child()
    stalled = threading.Event()

    def expire() -> None:
        stalled.set()
        child.kill()

    timer = threading.Timer(min(STALL * limits.saturation_seconds, threading.TIMEOUT_MAX), expire)
    timer.start()
    try:
        out, err = child.communicate(json.dumps(request))
    finally:
        timer.cancel()
        child.kill()
        CHILDREN.discard(child)
    return _parse_output(out, err, child.returncode, stalled.is_set(), limits)


def _parse_output(out: str, err: str, code: int, stalled: bool, limits: Limits) -> _Answer:
    """Return the answer in the last complete line of output, with the reason the child ended."""
    lines = [line for line in out.split("\n")[:-1] if line]
    last: dict[str, Any] = json.loads(lines[-1]) if lines else {"rounds": -1, "stop": {}}
    if "graph" in last:
        return replace(_parse_answer(last), line=lines[-1])
    growth = tuple(last.get("growth", ()))
    if stalled or code == -OUT_OF_TIME:
        limit = f"{STALL * limits.saturation_seconds} s by the clock" if stalled else f"{limits.saturation_seconds} s of processor time"
        return _Answer(None, last["rounds"], StopReason.SECONDS, f"the limit of {limit}", growth)
    reason = StopReason.MEMORY if any(sign in err for sign in OUT_OF_MEMORY) else StopReason.CRASHED
    return _Answer(None, last["rounds"], reason, _cause_of_exit(err, code), growth)


def _parse_answer(last: dict[str, Any]) -> _Answer:
    """Return the answer in a line that holds the e-graph."""
    stop, growth = last["stop"], tuple(last.get("growth", ()))
    graph = from_json(last["graph"])
    return _Answer(
        graph, last["rounds"], StopReason(stop["reason"]), stop["detail"], growth, last["matches"], last["seconds"],
        rule_seconds=last["rule_seconds"], held=last["held"], grown=last["grown"],
    )  # fmt: skip


def _cause_of_exit(err: str, code: int) -> str:
    lines = [line.strip() for line in err.strip().splitlines() if line.strip()]
    return lines[-1] if lines else f"the child process ended with code {code}"
