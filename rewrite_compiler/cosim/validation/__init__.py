"""Validation of what offloads return against the simulator."""
