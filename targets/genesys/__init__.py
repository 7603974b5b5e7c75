"""GeneSys: which operations its systolic and SIMD arrays accelerate, in which formats, within which capacities, and by which words."""

from . import elementwise, systolic, windows
from .base import target

__all__ = ["elementwise", "systolic", "target", "windows"]
