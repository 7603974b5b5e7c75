"""Offloads as they run."""
