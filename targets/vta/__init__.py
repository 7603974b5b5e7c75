"""VTA: which operations its tensor unit accelerates, in which formats, within which capacities, and by which instructions."""

from . import alu, conv2d, cost, dense, depthwise, pooling, quantised, requantise, sums
from .base import target

__all__ = ["alu", "conv2d", "cost", "dense", "depthwise", "pooling", "quantised", "requantise", "sums", "target"]
