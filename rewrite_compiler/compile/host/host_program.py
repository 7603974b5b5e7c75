"""Host evaluation of a part of a program by onnxruntime, in batches of samples where that gives the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...errors import InputError
from ...frontend.graph.emit import to_onnx
from ...hostrun import Session
from ...ir.placement import Place, merge_samples, split_samples
from ...ir.program import Data, Program, Value
from ...ir.rebatch import NotBatchable, Rebatched, rebatch
from ...limits import DEFAULT
from .lazy_codes import Operand, elements_of

MOST_CHOICES = 64  # combinations of batch axes on trial for one program


@dataclass(frozen=True)
class Batching:
    """How a program runs several samples: batched along the axes `places`, or one by one with the reason why."""

    places: Mapping[Value, Place] | None
    why: str = ""


class HostProgram:
    """A program of core and opaque operators in onnxruntime; sampled values have a leading sample axis."""

    def __init__(
        self,
        program: Program,
        sampled: Sequence[Value],
        *,
        threads: int = 1,
        tolerance: float = 0.0,
        seconds: int = DEFAULT.host_seconds,
        is_part: bool = False,
    ) -> None:
        """Prepare the program; `sampled` are the inputs that differ between samples.

        A batch of two must give the bits of two runs, or with `tolerance` values that close, relative to the largest.
        `seconds` limit the run of a sample. Parts of one program use the same memory.
        """
        self.program = replace(program, names=tuple(f"v{n}" for n in range(len(program.types))))
        self.sampled = tuple(v for v in program.inputs if v in set(sampled))
        self.threads, self.tolerance, self.seconds, self.is_part = threads, tolerance, seconds, is_part
        self.sessions: dict[int, tuple[Session, Mapping[Value, Place]]] = {}
        self.batching: Batching | None = None

    def run(self, values: Mapping[Value, Data]) -> dict[Value, Data]:
        """Return the outputs: sampled inputs [samples, …], others as they are; outputs [samples, …]."""
        samples = len(values[self.sampled[0]]) if self.sampled else 1
        if self.batching is None:
            self.batching = self.choose_batching(values, samples)
        if self.batching.places is None or samples == 1:
            return self.one_by_one(values, samples)
        return self.run_batched(self.batching.places, values, samples)

    def run_lazily(self, values: Mapping[Value, Operand]) -> Mapping[Value, Operand]:
        """Return the outputs, possibly lazy, for inputs that may be lazy."""
        return self.run({v: elements_of(x) for v, x in values.items()})

    def one_by_one(self, values: Mapping[Value, Data], samples: int) -> dict[Value, Data]:
        """Return the outputs [samples, …], one run a sample."""
        session = self.session(1, {})[0]
        rows = [
            self._outputs(
                self._run(session, {self._name(v): values[v][n] if v in self.sampled else values[v] for v in self.program.inputs})
            )
            for n in range(samples)
        ]
        return {v: np.stack([row[v] for row in rows]) for v in rows[0]} if rows else {}

    def run_batched(self, places: Mapping[Value, Place], values: Mapping[Value, Data], samples: int) -> dict[Value, Data]:
        """Return the outputs [samples, …] of one run over all samples, batched along `places`."""
        session, result_places = self.session(samples, places)
        inputs = {self._name(v): merge_samples(values[v], places[v]) if v in self.sampled else values[v] for v in self.program.inputs}
        results = self._outputs(self._run(session, inputs, samples))
        return {v: split_samples(data, result_places.get(v), samples) for v, data in results.items()}

    def _run(self, session: Session, inputs: Mapping[str, Data], samples: int = 1) -> dict[str, Data]:
        """Run a session within `seconds` a sample."""
        return session.run(inputs, seconds=self.seconds * samples)

    def choose_batching(self, values: Mapping[Value, Data], samples: int) -> Batching:
        """Return batch axes of the inputs under which two samples have the bits of single runs; the first that pass a trial."""
        if not self.sampled or samples < 2:
            return Batching(None)
        pair = {v: values[v][:2] if v in self.sampled else values[v] for v in self.program.inputs}
        expected = self.one_by_one(pair, 2)
        why = "no batch axis was found"
        for places in itertools.islice(self._choices(), MOST_CHOICES):
            batched = rebatch(self.program, 2, places)
            if isinstance(batched, NotBatchable):
                why = batched.reason
                continue
            actual = self.run_batched(places, pair, 2)
            different = [v for v in expected if not are_equal(actual[v], expected[v], self.tolerance)]
            if not different:
                return Batching(places)
            why = f"value {self.program.names[different[0]]} has other bits in a batch of two"
            self.sessions.pop(2)  # its batch axes are rejected
        return Batching(None, why)

    def _choices(self) -> Iterator[dict[Value, Place]]:
        """Yield candidate batch axes of the sampled inputs: axes of extent 1 first, then from the front."""
        axes = []
        for v in self.sampled:
            shape = self.program.types[v].shape
            axes.append(sorted(range(len(shape)), key=lambda a, shape=shape: (shape[a] != 1, a)))  # type: ignore[misc]
        for combination in itertools.product(*axes):
            yield {v: Place(a) for v, a in zip(self.sampled, combination, strict=True)}

    def session(self, samples: int, places: Mapping[Value, Place]) -> tuple[Session, Mapping[Value, Place]]:
        """Return the session for a number of samples, cached, and the batch axis of each value.

        Raises:
            InputError: (F161) the program cannot be batched along `places`.
        """
        if samples not in self.sessions:
            batched = rebatch(self.program, samples, places) if samples > 1 else Rebatched(self.program, {}, 1, 0)
            if isinstance(batched, NotBatchable):
                raise InputError("F161", batched.reason)
            renamed = replace(batched.program, names=tuple(f"v{n}" for n in range(len(batched.program.types))))
            self.sessions[samples] = Session(to_onnx(renamed), threads=self.threads, is_part=self.is_part), batched.places
        return self.sessions[samples]

    def _name(self, v: Value) -> str:
        return self.program.names[v]

    def _outputs(self, results: Mapping[str, Data]) -> dict[Value, Data]:
        return {v: results[self._name(v)] for v in self.program.outputs}


def are_equal(a: Data, b: Data, tolerance: float) -> bool:
    """Tell whether two arrays are equal, of floats that are finite up to a tolerance relative to the largest magnitude of the second."""
    if a.shape != b.shape:
        return False
    scale = float(np.max(np.abs(b), initial=0)) if b.dtype.kind == "f" and tolerance else 0.0
    if a.dtype.kind != "f" or not 0 < scale < np.inf:
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    return bool(np.allclose(a, b, rtol=0, atol=tolerance * scale, equal_nan=True))
