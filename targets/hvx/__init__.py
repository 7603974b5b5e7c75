"""HVX: dense layers and element-wise operations on vectors of bytes, as straight-line code."""

from . import elementwise, products
from .base import target

__all__ = ["elementwise", "products", "target"]
