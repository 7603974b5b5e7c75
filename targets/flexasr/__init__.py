"""FlexASR: which operations its engines accelerate, in which formats, within which capacities, and by which instructions."""

from . import attention, cost, gru, layer_norm, linear, pooling, recurrent
from .base import target

__all__ = ["attention", "cost", "gru", "layer_norm", "linear", "pooling", "recurrent", "target"]
