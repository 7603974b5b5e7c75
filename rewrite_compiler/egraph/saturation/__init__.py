"""Equality saturation in a child process."""
