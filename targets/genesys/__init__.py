"""GeneSys: which operations its systolic and SIMD arrays accelerate, in which formats, within which capacities, and by which words."""

from . import products
from .base import target

__all__ = ["products", "target"]
