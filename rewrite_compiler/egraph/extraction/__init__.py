"""Exact extraction."""
