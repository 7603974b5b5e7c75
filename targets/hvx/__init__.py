"""HVX: element-wise operations on vectors of bytes, and products of bytes in groups of four, as straight-line code."""

from . import dense, elementwise
from .base import target

__all__ = ["dense", "elementwise", "target"]
