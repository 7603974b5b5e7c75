"""HVX: a subset of Hexagon's vector extension: vectors of 128 bytes, packets of up to four instructions, a scalar core."""

from rewrite_compiler.ila import Ila

from .encoding import ROWS, declare_row
from .memory import declare_memory
from .packet import packets
from .scalar import declare_scalar
from .sequence import declare_sequence
from .state import declare_state
from .vector import update_of

__all__ = ["build"]


def build() -> Ila:
    """Return the model."""
    m = Ila("hvx", __doc__ or "")
    declare_state(m)
    for row in ROWS:
        declare_row(m, row, update_of)
    declare_memory(m)
    declare_scalar(m)
    declare_sequence(m)
    m.packets = packets(m)
    return m
