"""What simulated devices ran for single samples, kept on disk: equal commands on equal codes give equal results.

What a run gives depends on what its device ran before, so the key of a run has those of the earlier ones in it. A device is made, and
catches up on the runs that were left out, once one is not kept or a result is another than the kept one.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from ...compile.offload.execute import PreparedOffload, hash_of_arrays
from ...disk_cache import DiskCache, private_cache_folder, sources_hash
from ...ir.program import Data
from ...prove.certificates.statements import statement_of_operation
from ...target import SimulatedDevice, SimulatedStream

ENGINE = Path(__file__).parents[2]
Simulated = SimulatedDevice | SimulatedStream


@dataclass(frozen=True)
class DeviceRun:
    """A run that agreed with everything that it was compared with: its results by their hash, or why it was refused, and its work."""

    results: str
    commands: int
    audited: int = 0  # codes that the oracle or plain numerics computed again
    refusal: str = ""


@dataclass
class DeviceHistory:
    """The runs of one device on one sample, those included that are kept from an earlier process."""

    make: Callable[[], Simulated]
    reading: str
    key: str = ""
    is_known: bool = True  # whether the key tells all that ran
    device: Simulated | None = None
    left_out: list[Callable[[Simulated], object]] = field(default_factory=list)

    def begin(self, prepared: PreparedOffload, operands: Mapping[str, Data], *details: object) -> DeviceRun | None:
        """Begin a run of an offload, after those before; return what is kept of it."""
        content = content_of(prepared)
        self.is_known &= content is not None
        if not self.is_known:
            return None
        self.key = sha256(repr((self.key, engine_hash(), self.reading, content, hash_of_arrays(operands), details)).encode()).hexdigest()
        stored = _cache().get(self.key)
        return None if stored is None else DeviceRun(**json.loads(stored))

    def leave_out(self, run: Callable[[Simulated], object]) -> None:
        """Leave out a run that is kept, until the device is needed."""
        self.left_out.append(run)

    def keep(self, run: DeviceRun) -> None:
        """Keep the run that was begun."""
        if self.is_known:
            _cache().put(self.key, json.dumps(asdict(run)).encode())

    def ready(self) -> Simulated:
        """Return the device, after all runs before the one that was begun."""
        if self.device is None:
            self.device = self.make()
        for run in self.left_out:
            run(self.device)
        self.left_out.clear()
        return self.device


def _cache() -> DiskCache:
    return DiskCache(private_cache_folder("simulated"))


def content_of(prepared: PreparedOffload) -> tuple[object, ...] | None:
    """Return all that an offload is, its moving operands left out; None for an operation that is not the one of its target's files."""
    o = prepared.offload
    if not o.target.sources or o.target.mappings.get(o.mapping.variant) is not o.mapping:
        return None
    statement = statement_of_operation(o.target, o.mapping.variant)
    return statement, sorted(o.formats.items()), o.tiling, o.node.attributes, prepared.constants_hash


@lru_cache(maxsize=1)
def engine_hash() -> str:
    """Return the hash of what simulates: the engine's sources, Python, numpy and LLVM, and the machine."""
    return sources_hash([ENGINE], [sys.version, version("numpy"), version("llvmlite"), *platform.uname()])
