"""Kernels of the arrays reading: terms traced to straight-line code, blocked folds, conversions; by machine code or numpy."""
