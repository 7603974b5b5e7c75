"""Vector kernels: arrays of terms compiled to machine code, in stages that each fill one array."""

from .run import Constants, Lowered
from .schedule import Schedule
from .vectors import NotLowered

__all__ = ["Constants", "Lowered", "NotLowered", "Schedule"]
