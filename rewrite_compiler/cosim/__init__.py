"""Co-simulation: whole applications with their offloads on the generated simulators, against the float32 reference."""

from ..data import Dataset, load_data
from .cosimulate import Report, Settings, cosimulate
from .engine import Engine, Outcome

__all__ = ["Dataset", "Engine", "Outcome", "Report", "Settings", "cosimulate", "load_data"]
