"""Batches of a co-simulation on other machines: what a worker needs to rebuild the engine, and the check that it is the same.

Samples travel with the work. The files of the model, and of the user's targets and rules, must exist under the same paths;
a worker compiles the model once, and refuses when its plan differs from the one that was sent.
"""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from ..compile import Plan, plan_digest, plan_of_document, to_json
from ..compile.host.host_program import Batching, HostProgram
from ..errors import InputError
from ..ir.program import Data
from ..target import Target, target_names
from .cluster import Cluster
from .engine import Engine, Outcome, Take

WORKER_LOCK = threading.Lock()  # a worker process runs one batch at a time


@dataclass(frozen=True)
class Job:
    """A plan to co-simulate, without code; `batchings` are how its host programs batch samples."""

    plan: str
    digest: str
    model: str
    targets: tuple[str, ...]
    rules: tuple[str, ...]
    reading: str
    audit: int
    host: str
    engine: str
    size: int
    flexmatch: str = field(default_factory=lambda: version("flexmatch"))
    batchings: tuple[Batching | None, ...] = ()

    def __hash__(self) -> int:
        return hash((self.digest, self.reading, self.audit, self.host, self.engine, self.size))


def target_text(target: Target) -> str:
    """Return the text that names a target on the command line: its name, or the file that defines it, with its parameters."""
    name = target.name if target.name in target_names() else str(Path(inspect.getfile(target.build)).resolve())
    return ":".join(filter(None, (name, ",".join(f"{k}={v}" for k, v in target.values.items()))))


class RemoteEngine:
    """An engine whose batches run on a cluster, except the very first, which chooses how host programs batch samples."""

    def __init__(self, engine: Engine, cluster: Cluster) -> None:
        plan = engine.plan
        self.engine, self.cluster, self.shared = engine, cluster, None
        self.job = Job(
            json.dumps(to_json(plan)), plan_digest(plan), str(Path(plan.model["path"]).resolve()),
            tuple(target_text(t) for t in plan.targets), tuple(str(Path(p).resolve()) for p in plan.settings["rules"]),
            engine.reading, engine.audit, engine.host, engine.engine, engine.size,
        )  # fmt: skip

    def batches(self, take: Take, parts: Sequence[slice]) -> Iterator[Outcome]:
        """Yield the outcome of each part of the samples, in order."""
        remaining = parts
        if self.shared is None and parts:
            yield self.engine.batch(take, parts[0])
            batchings = tuple(h.batching if isinstance(h, HostProgram) else None for _, h in self.engine.steps)
            size = max(part.stop - part.start for part in parts)
            self.shared = self.cluster.share(replace(self.job, batchings=batchings, size=size))
            remaining = parts[1:]
        work: Iterable[tuple[slice, Mapping[str, Data]]] = ((part, take(part)) for part in remaining)
        yield from self.cluster.map(batch_of, work, self.shared)


def batch_of(work: tuple[slice, Mapping[str, Data]], job: Job) -> Outcome:
    """Run one batch: the function that workers execute."""
    part, inputs = work
    with WORKER_LOCK:
        engine = engine_of(job)
        return engine.batch(lambda _: inputs, part)


@lru_cache(maxsize=2)
def engine_of(job: Job) -> Engine:
    """Return the engine of a job, rebuilt from the worker's files.

    Raises:
        InputError: C109, the worker's version of flexmatch, or the plan that it compiles, is another.
    """
    local_version = version("flexmatch")
    if local_version != job.flexmatch:
        raise InputError("C109", f"a worker must have flexmatch {job.flexmatch}, not {local_version}", help="install the same version")
    document = json.loads(job.plan)
    plan: Plan = plan_of_document(document, Path(job.model), job.model, job.targets, rules=[Path(p) for p in job.rules])
    if plan_digest(plan) != job.digest:
        raise InputError("C109", "a worker made another plan of the model", place=job.model, help="its files or packages differ")
    engine = Engine(plan, reading=job.reading, audit=job.audit, host=job.host, engine=job.engine)
    engine.size = job.size
    for (_, host), batching in zip(engine.steps, job.batchings, strict=True):
        if isinstance(host, HostProgram):
            host.batching = batching
    return engine
