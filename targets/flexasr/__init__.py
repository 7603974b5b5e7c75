"""FlexASR: which operations its engines accelerate, in which formats, within which capacities, and by which instructions."""

from . import linear, recurrent
from .base import target

__all__ = ["linear", "recurrent", "target"]
