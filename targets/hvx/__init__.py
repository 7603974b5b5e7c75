"""HVX: element-wise operations on vectors of bytes, as straight-line code."""

from . import elementwise
from .base import target

__all__ = ["elementwise", "target"]
