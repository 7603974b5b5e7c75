"""What a lowering is: a function from one source node to the values of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.program import Value
from ..site.site import Site

Lowering = Callable[[Site], Sequence[Value | None]]
