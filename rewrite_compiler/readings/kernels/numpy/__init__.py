"""Kernels computed by numpy where no compiler is at hand."""
