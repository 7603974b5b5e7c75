"""HVX: dense layers, convolutions, pools and element-wise operations on vectors of bytes, as straight-line code."""

from . import layers, products, requantise, sweeps, weighted
from .base import target

__all__ = ["layers", "products", "requantise", "sweeps", "target", "weighted"]
