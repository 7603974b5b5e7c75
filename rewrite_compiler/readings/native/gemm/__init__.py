"""Sums of products as machine code."""
