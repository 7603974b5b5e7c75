"""Co-simulation: whole applications with their offloads on the simulators."""

from .cosimulate import Report, Settings, cosimulate
from .data import Dataset, load_data
from .run import Engine, Outcome

__all__ = ["Dataset", "Engine", "Outcome", "Report", "Settings", "cosimulate", "load_data"]
