"""Straight-line code of terms, with common subexpressions shared, and analyses of it."""
