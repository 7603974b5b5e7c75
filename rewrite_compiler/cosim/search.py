"""Search: shortcuts for the offloads of a recording, looked for by several threads where memory allows it."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from ..compile.coded import Operand, looked_at
from ..compile.execute import Prepared, operand_codes
from ..compile.moves import Move, Moved
from ..lang.named import Data
from ..lang.tape import Diverged
from ..lang.twin import NoTwin
from ..target import TapedDevice
from .affine import AffineShortcut
from .provenance import NoShortcut
from .shortcut import Shortcut, shortcut

ROOM = 1 << 21  # elements of operands and results that are looked at in one moment, where that is more than one offload


@dataclass(frozen=True)
class Asked:
    """An offload of a recording: where its events start, and codes of which only shapes and types matter."""

    prepared: Prepared
    device: TapedDevice
    start: int
    codes: Mapping[str, Data]
    moves: Mapping[str, tuple[Move, int]]  # of operands that are given as their roots, with the code of zero

    @property
    def name(self) -> str:
        """The offload's."""
        return self.prepared.offload.id

    @property
    def samples(self) -> int:
        """How many there are in the batch."""
        return len(next(iter(self.codes.values())))

    @property
    def key(self) -> tuple[str, int]:
        """What has one shortcut."""
        return self.name, self.samples

    @property
    def size(self) -> int:
        """Elements of operands and results."""
        o = self.prepared.offload
        results = sum(math.prod(o.tiling.sizes[d] for d in o.mapping.axes.of[n]) for n in o.mapping.axes.results)
        return sum(x.size for x in self.codes.values()) + self.samples * results


def asked(prepared: Prepared, device: TapedDevice, operands: Mapping[str, Operand]) -> Asked:
    """Return an offload whose events start where the device stands."""
    formats = prepared.offload.formats
    roots = {n: x for n, x in operands.items() if isinstance(x, Moved) and x.move.is_onto}
    codes = {}
    for n, x in operands.items():
        whole = roots[n].root if n in roots else looked_at(x)
        codes[n] = np.broadcast_to(operand_codes(formats[n], np.zeros(1, whole.dtype)), whole.shape)
    moves = {n: (x.move, int(operand_codes(formats[n], np.zeros(1, x.root.dtype))[0])) for n, x in roots.items()}
    return Asked(prepared, device, device.at, codes, moves)


@dataclass
class Search:
    """A search: what is left, and what was found, or why not."""

    left: deque[Asked]
    found: dict[str, Shortcut | AffineShortcut] = field(default_factory=dict)
    moving: dict[str, str] = field(default_factory=dict)
    busy: int = 0  # elements that are looked at
    turn: threading.Condition = field(default_factory=threading.Condition)

    def work(self, twins: Mapping[int, TapedDevice]) -> None:
        """Look for shortcuts as long as there is anything left, on twins of devices where they are given."""
        while (one := self._next()) is not None:
            try:
                self._look(one, twins.get(id(one.device), one.device))
            except NoTwin:
                self.left.append(one)
                return
            finally:
                self._done(one)

    def _next(self) -> Asked | None:
        """Return what is to be looked at next, once there is room for it."""
        with self.turn:
            if not self.left:
                return None
            one = self.left.popleft()
            self.turn.wait_for(lambda: not self.busy or self.busy + one.size <= ROOM)
            self.busy += one.size
            return one

    def _done(self, one: Asked) -> None:
        with self.turn:
            self.busy -= one.size
            self.turn.notify_all()

    def _look(self, one: Asked, device: TapedDevice) -> None:
        device.at = one.start
        try:
            found = shortcut(one.prepared, device, one.codes, one.moves)
        except (NoShortcut, Diverged) as why:
            self.moving[one.name] = str(why)
        else:
            self.found[one.name] = found if device is one.device else found.on(one.device, one.start)


def searched(wanted: Sequence[Asked], threads: int) -> Search:
    """Look for shortcuts through the offloads of recordings, each of which plays on the memory of its thread."""
    found = Search(deque(wanted))
    if not wanted:
        return found
    devices = {id(one.device): one.device for one in wanted}
    with ThreadPoolExecutor(max(threads - 1, 1)) as pool:
        others = [pool.submit(found.work, {n: d.twin() for n, d in devices.items()}) for _ in range(min(threads, len(wanted)) - 1)]
        found.work({})
        for other in others:
            other.result()
    found.work({})  # what others could not
    return found
