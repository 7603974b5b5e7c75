"""Cost and limits: cycles of one call of a device, the bytes that cross its links to the host, and what it needs of its capacities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Protocol, SupportsIndex

from ..errors import SpecError
from ..user_code import name_text, quoted

if TYPE_CHECKING:
    from .resources import Resources

Levels = Mapping[str, Mapping[str, tuple[int, int]]]  # memory → tensor → bytes read, bytes written, over all its instances
LABELS = {"what": "name", "reason": "reason"}  # of the texts of a limit
LIMIT_FORM = 'write Limit("rows", t, 64): a name, how much a tile needs, how much there is'
DIVISION = "divide with // for whole numbers, -(-a // b) for the next one"


@dataclass(frozen=True)
class Cost:
    """Cycles of a compute unit and of the links, one after the other, and the bytes each tensor moves.

    `commands` are the bytes of the instructions themselves. `estimated` tells that the cycles follow from units and links
    alone; otherwise they were compared with a measurement of the design.
    """

    unit: str
    compute_cycles: int
    transfer_cycles: int
    moved: Mapping[str, int]
    estimated: bool = True

    @property
    def cycles(self) -> int:
        """All cycles."""
        return self.compute_cycles + self.transfer_cycles

    @property
    def bytes(self) -> int:
        """All bytes, commands included."""
        return sum(self.moved.values())

    def times(self, calls: int) -> Cost:
        """Return the cost of so many calls."""
        bytes_moved = {name: calls * n for name, n in self.moved.items()}
        return Cost(self.unit, calls * self.compute_cycles, calls * self.transfer_cycles, bytes_moved, self.estimated)

    def plus(self, other: Cost) -> Cost:
        """Return the cost of both, one after the other; of the same unit."""
        names = dict.fromkeys((*self.moved, *other.moved))
        bytes_moved = {name: self.moved.get(name, 0) + other.moved.get(name, 0) for name in names}
        compute, transfer = self.compute_cycles + other.compute_cycles, self.transfer_cycles + other.transfer_cycles
        return Cost(self.unit, compute, transfer, bytes_moved, self.estimated or other.estimated)


@dataclass(frozen=True)
class Limit:
    """A capacity of the device: its name, how much of it a tile needs, how much there is; `reason` says it in a sentence."""

    what: str
    needs: int
    most: int
    reason: str = ""

    def __post_init__(self) -> None:
        if type(self.needs) is type(self.most) is int and type(self.what) is type(self.reason) is str:
            return
        for label, text in (("what", self.what), ("reason", self.reason)):
            if not isinstance(text, str):
                sentence = f"The {LABELS[label]} of a capacity must be a text, not {quoted(text)}"
                raise SpecError("I102", sentence, help=LIMIT_FORM)
            object.__setattr__(self, label, str(text))
        for label, n in (("Need", self.needs), ("Most", self.most)):
            if isinstance(n, bool) or not hasattr(type(n), "__index__"):
                sentence = f"{label} of the capacity {self.what} must be a whole number, not {quoted(n)}"
                raise SpecError("I102", sentence, help=DIVISION if isinstance(n, float) else LIMIT_FORM)
        object.__setattr__(self, "needs", int(self.needs))
        object.__setattr__(self, "most", int(self.most))

    @property
    def holds(self) -> bool:
        """Tell whether the tile fits."""
        return self.needs <= self.most

    def __str__(self) -> str:
        return self.reason or f"{self.what} {self.needs:,}, must be at most {self.most:,}"


class Work(Protocol):
    """What a driver does for one tile."""

    def limits(self) -> Iterable[Limit]:
        """Return what the tile needs of the device's capacities."""

    def cost(self, resources: Resources) -> Cost:
        """Return the cycles and bytes of the tile."""


def counted(cost: Cost) -> Cost:
    """Return a cost whose figures are counts, as Python's own integers.

    Raises:
        SpecError: I102, one is none.
    """
    if not isinstance(cost.moved, Mapping):
        raise SpecError("I102", f"Bytes that {cost.unit} moves must be a dictionary by name of tensor, not {quoted(cost.moved)}")
    tensors = {name_text("Name of a tensor that is moved", name): n for name, n in cost.moved.items()}
    bytes_moved = {name: whole_number(f"Bytes of {name} that are moved", n) for name, n in tensors.items()}
    unit = name_text("Unit of a cost", cost.unit)
    compute = whole_number(f"Compute cycles of {unit}", cost.compute_cycles)
    transfer = whole_number(f"Transfer cycles of {unit}", cost.transfer_cycles)
    return Cost(unit, compute, transfer, bytes_moved, bool(cost.estimated))


def whole_number(subject: str, n: object) -> int:
    """Return a number that counts something, as Python's own integer.

    Raises:
        SpecError: I102, it is no whole number, or it is negative.
    """
    if type(n) is int and n >= 0:
        return n
    if isinstance(n, bool) or not isinstance(n, SupportsIndex) or index(n) < 0:
        raise SpecError("I102", f"{subject} must be a whole number that is not negative, not {quoted(n)}")
    return index(n)


def levels_times(levels: Levels, calls: int) -> Levels:
    """Return the bytes that so many calls read and write."""
    return {m: {x: (calls * reads, calls * writes) for x, (reads, writes) in tensors.items()} for m, tensors in levels.items()}
