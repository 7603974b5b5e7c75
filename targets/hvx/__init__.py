"""HVX: dense layers, convolutions, pools and element-wise operations on vectors of bytes, as straight-line code."""

from . import conv2d, elementwise, pooling, products, quantised, requantise, weighted
from .base import target

__all__ = ["conv2d", "elementwise", "pooling", "products", "quantised", "requantise", "target", "weighted"]
