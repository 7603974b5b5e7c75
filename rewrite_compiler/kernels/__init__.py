"""Vector kernels: arrays of terms compiled to machine code, in stages that each fill one array."""

from typing import TYPE_CHECKING

from ..callable_module import import_on_use

if TYPE_CHECKING:
    from .run import Constants, Lowered
    from .schedule import Schedule
    from .vectors import NotLowered

__all__ = ["Constants", "Lowered", "NotLowered", "Schedule"]

import_on_use(__name__, {"Constants": "run", "Lowered": "run", "NotLowered": "vectors", "Schedule": "schedule"})
