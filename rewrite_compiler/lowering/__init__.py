"""Lowering: arrays of terms as machine code of vectors, split in stages that each fill one array."""

from .run import Lowered
from .schedule import Schedule
from .vectors import NotLowered

__all__ = ["Lowered", "NotLowered", "Schedule"]
