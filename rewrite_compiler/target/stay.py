"""Residency of one call: which operands are on the device already, which results stay there, and at which addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..readings.arrays.labelled_array import Data
from ..user_code import entries_of, name_text
from .cost import whole_number


@dataclass(frozen=True)
class Room:
    """The room of one tensor of a call in a memory: `size` in addressable elements.

    Two calls can hand a tensor over where memory and `form` (rows, words a row) agree. A `lasting` tensor is known at
    compile time and may lie there from one inference to the next. A room without a tensor is scratch: at the address that
    `Stay.base` gives for its name `scratch`, without a name from address 0 on.
    """

    memory: str
    size: int
    tensor: str = ""
    form: tuple[int, ...] = ()
    lasting: bool = False
    scratch: str = ""

    def __post_init__(self) -> None:
        for label, name in (("memory", self.memory), ("tensor", self.tensor), ("scratch", self.scratch)):
            object.__setattr__(self, label, name_text(f"The {label} of a room", name))
        form = entries_of(f"Form of the room in {self.memory}", self.form, object, noun="numbers")
        object.__setattr__(self, "size", whole_number(f"Size of the room in {self.memory}", self.size))
        object.__setattr__(self, "form", tuple(whole_number(f"Form of the room in {self.memory}", n) for n in form))


@dataclass(frozen=True)
class Stay:
    """The first element of every tensor of one call, the operands that are `present` already, the results that are `kept`.

    A kept result is not read back in the stream; `look` reads it from the simulator for comparisons.
    """

    at: Mapping[str, int] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    inspect: Callable[[Callable[[], Data]], Data] = lambda load: load()

    def base(self, tensor: str, usual: int = 0) -> int:
        """Return the first addressable element of a tensor, `usual` where none is chosen."""
        return self.at.get(tensor, usual)

    def result(self, tensor: str, load: Callable[[], Data]) -> Data:
        """Return a result: loaded by the stream, or inspected where it is kept."""
        return self.inspect(load) if tensor in self.kept else load()


USUAL = Stay()
