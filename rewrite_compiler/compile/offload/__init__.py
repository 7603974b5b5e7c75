"""Evaluation of offloads, by their driver on a device or by their numerics."""
