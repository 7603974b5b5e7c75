"""Stay: which tensors a call finds on its device, which it leaves there, and where all of them lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..readings.arrays.labelled_array import Data


@dataclass(frozen=True)
class Room:
    """What a tensor of one call takes of a memory, in addressable elements.

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


@dataclass(frozen=True)
class Stay:
    """The first element of every tensor of one call, operands that are `present` already, results that are `kept` there.

    Of a result that is kept nothing is read in the stream; `look` gives what the simulator holds, for who compares.
    """

    at: Mapping[str, int] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    look: Callable[[Callable[[], Data]], Data] = lambda load: load()

    def base(self, tensor: str, usual: int = 0) -> int:
        """Return where a tensor lies."""
        return self.at.get(tensor, usual)

    def result(self, tensor: str, load: Callable[[], Data]) -> Data:
        """Return a result: read by the stream, or looked at where it stays."""
        return self.look(load) if tensor in self.kept else load()


USUAL = Stay()
