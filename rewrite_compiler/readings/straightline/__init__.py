"""Straight-line code of a term."""
