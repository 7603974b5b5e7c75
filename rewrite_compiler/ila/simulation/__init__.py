"""Simulators generated from an instruction-level abstraction."""
