"""Instances of rules at concrete shapes."""
