"""The float32 reference: the source program on the host, run once for a model, its data and this machine, then cached."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ...compile import Plan
from ...compile.host.host_program import HostProgram
from ...data import Dataset
from ...disk_cache import DiskCache, private_cache_folder, sources_hash
from ...frontend.graph.emit import to_onnx
from ...ir.program import Data, Program
from ...limits import DEFAULT
from .metrics import Metric, truth_of_data
from .scores import Scores, concatenated_scores

TOLERANCE = 1e-5  # of a batched reference run against single runs
MOST_BYTES = 1 << 26  # of the outputs of a run that is kept
SECONDS = "seconds"


class Reference:
    """The source program in float32 on the host; `seconds` is the processor time of its runs."""

    def __init__(self, p: Program, first: Mapping[str, Data], limit: int = DEFAULT.host_seconds) -> None:
        self.program, self.seconds = p, 0.0
        self.host = HostProgram(p, p.inputs, tolerance=TOLERANCE, seconds=limit)
        self.host.run({v: first[p.names[v]] for v in p.inputs})  # chooses how samples are batched

    def run(self, inputs: Mapping[str, Data]) -> dict[str, Data]:
        """Return the outputs [samples, …] for these inputs, as one batch."""
        p = self.program
        started = time.thread_time()
        outputs = self.host.run({v: inputs[p.names[v]] for v in p.inputs})
        self.seconds += time.thread_time() - started
        return {p.names[v]: x for v, x in outputs.items()}


class CachedReference:
    """The reference over a data set, batch by batch: from the cache of an earlier run where there is one, else computed and cached.

    Outputs are cached up to MOST_BYTES. Of larger ones the scores are, where `metric` is given and compares with the data alone;
    a run that finds them has no outputs. `seconds` is the processor time of the runs, of the earlier ones where they are cached.
    """

    def __init__(self, plan: Plan, data: Dataset, batch: int, limit: int = DEFAULT.host_seconds, metric: Metric | None = None) -> None:
        self.program, self.data, self.batch, self.limit = plan.source, data, batch, limit
        self.cache, self.key = DiskCache(private_cache_folder("reference")), _key(plan, data, batch)
        self.score_key = "" if metric is None or truth_of_data(metric, data) is None else _score_key(self.key, metric)
        self.names = [plan.source.names[v] for v in plan.source.outputs]
        self.seconds, self.batches, self.size = 0.0, list[dict[str, Data]](), 0
        self.scores: list[Scores] = []
        self.outputs = self._read()
        self.cached_scores = self._read_scores() if self.outputs is None else None
        self.is_cached = self.outputs is not None or self.cached_scores is not None
        self.reference: Reference | None = None

    def run(self, part: slice) -> dict[str, Data]:
        """Return the outputs [samples, …] of one part of the samples; none where its scores are cached."""
        if self.cached_scores is not None:
            return {}
        if self.outputs is not None:
            return {name: x[part] for name, x in self.outputs.items()}
        outputs = self.run_uncached(self.data.rows(part).inputs)
        self._collect(part, outputs)
        return outputs

    def run_uncached(self, inputs: Mapping[str, Data]) -> dict[str, Data]:
        """Compute the outputs of some samples without the cache."""
        if self.reference is None:
            self.reference = Reference(self.program, self.data.rows(slice(0, self.batch)).inputs, self.limit)
        outputs = self.reference.run(inputs)
        self.seconds = self.reference.seconds
        return outputs

    def scores_of(self, part: slice) -> Scores | None:
        """Return the scores of one part of the samples, where they are cached."""
        return None if self.cached_scores is None else self.cached_scores.take(np.arange(part.start, part.stop))

    def collect_scores(self, part: slice, scores: Scores) -> None:
        """Collect the scores of one part; once they are those of all samples, write them to the cache unless their outputs are there."""
        if not self.score_key or self.is_cached or part.start != sum(len(s.values) for s in self.scores):
            return
        self.scores.append(scores)
        if part.stop < self.data.count or self.size <= MOST_BYTES:
            return
        total = concatenated_scores(self.scores)
        arrays = {"values": total.values, "weights": total.weights, "ends": np.array(total.ends)}
        self._write(self.score_key, arrays if total.details is None else {**arrays, "details": total.details})

    def _collect(self, part: slice, outputs: dict[str, Data]) -> None:
        """Collect outputs; once they are those of all samples, write them to the cache."""
        self.size += sum(x.nbytes for x in outputs.values())
        if self.size > MOST_BYTES or part.start != sum(len(x[self.names[0]]) for x in self.batches):
            self.batches, self.size = [], MOST_BYTES + 1
            return
        self.batches.append(outputs)
        if part.stop == self.data.count:
            self._write(self.key, {str(n): _plain(np.concatenate([x[name] for x in self.batches])) for n, name in enumerate(self.names)})

    def _write(self, key: str, arrays: Mapping[str, Data]) -> None:
        file = io.BytesIO()
        np.savez(file, **arrays, **{SECONDS: np.float64(self.seconds)})  # type: ignore[arg-type]
        self.cache.put(key, file.getvalue())

    def _read(self) -> dict[str, Data] | None:
        stored = self._read_arrays(self.key)
        return None if stored is None else {name: stored[str(n)] for n, name in enumerate(self.names)}

    def _read_scores(self) -> Scores | None:
        stored = self._read_arrays(self.score_key) if self.score_key else None
        if stored is None:
            return None
        least, largest = stored["ends"].tolist()
        return Scores(stored["values"], stored["weights"], (least, largest), stored.get("details"))

    def _read_arrays(self, key: str) -> dict[str, Data] | None:
        stored = self.cache.get(key)
        if stored is None:
            return None
        with np.load(io.BytesIO(stored), allow_pickle=False) as archive:
            self.seconds = float(archive[SECONDS])
            return {name: archive[name] for name in archive.files}


def _plain(x: Data) -> Data:
    """Return strings as an array that loads without unpickling."""
    return x.astype(str) if x.dtype.kind == "O" else x


def _key(plan: Plan, data: Dataset, batch: int) -> str:
    """Return the hash of everything that determines the outputs: bits of float32 differ between machines and host engines.

    The model is hashed as the host engine gets it, so that another importer or emitter is another key.
    """
    model = hashlib.sha256(to_onnx(plan.source)).hexdigest()
    parts = {
        "versions": [version("flexmatch"), version("onnxruntime"), version("numpy")], "machine": [*platform.uname()],
        "model": model, "data": data.sha256, "batch": batch,
        "samples": [data.number(n) for n in range(data.count)],
    }  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _score_key(outputs: str, metric: Metric) -> str:
    """Return the hash of the key of outputs and of what scores them."""
    return sources_hash([Path(__file__).parent], [outputs, metric.name, metric.sha256])
